"""Activation layers: torch.nn's names, arguments and defaults.

All of them map x [...] to the same shape (GLU halves an axis). ``inplace=`` is accepted and ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.nn import functional as F
from fxlite.nn.module import FunctionLayer, Parameter
from fxlite.types import dtypes


class _InPlace(FunctionLayer):
    """An activation whose only argument is ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InPlace):
    """``maximum(x, 0)``."""

    function = staticmethod(F.relu)


class ReLU6(_InPlace):
    """``minimum(maximum(x, 0), 6)``."""

    function = staticmethod(F.relu6)


class SELU(_InPlace):
    """``scale * elu(x, alpha)``, with the constants of Klambauer et al. (2017, arXiv:1706.02515)."""

    function = staticmethod(F.selu)


class SiLU(_InPlace):
    """``x * sigmoid(x)``."""

    function = staticmethod(F.silu)


class Mish(_InPlace):
    """``x * tanh(softplus(x))``."""

    function = staticmethod(F.mish)


class Hardswish(_InPlace):
    """``x * relu6(x + 3) / 6``."""

    function = staticmethod(F.hardswish)


class Hardsigmoid(_InPlace):
    """``relu6(x + 3) / 6``."""

    function = staticmethod(F.hardsigmoid)


class GELU(FunctionLayer):
    """``x * P(Z <= x)`` for a standard normal Z; with ``approximate="tanh"``, the usual approximation by
    tanh."""

    function = staticmethod(F.gelu)
    _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate


class ELU(FunctionLayer):
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""

    function = staticmethod(F.elu)
    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace


class CELU(FunctionLayer):
    """``maximum(x, 0) + minimum(alpha * (exp(x / alpha) - 1), 0)``."""

    function = staticmethod(F.celu)
    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace


class LeakyReLU(FunctionLayer):
    """``x`` where it is positive, else ``negative_slope * x``."""

    function = staticmethod(F.leaky_relu)
    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace


class PReLU(FunctionLayer):
    """``x`` where it is positive, else ``weight * x``. ``weight`` [num_parameters] has one element for
    each channel, or one for all."""

    _shown = ("num_parameters",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        numpy_dtype = dtypes.dtype("f32" if dtype is None else dtype).numpy
        self.weight = Parameter(np.full(num_parameters, init, numpy_dtype))

    def forward(self, x: Any) -> Any:
        return F.prelu(x, self.weight)


class Sigmoid(FunctionLayer):
    """The logistic function, ``1 / (1 + exp(-x))``."""

    function = staticmethod(F.sigmoid)


class Tanh(FunctionLayer):
    """The hyperbolic tangent, ``tanh(x)``."""

    function = staticmethod(F.tanh)


class LogSigmoid(FunctionLayer):
    """``log(sigmoid(x))``."""

    function = staticmethod(F.logsigmoid)


class Softsign(FunctionLayer):
    """``x / (1 + |x|)``."""

    function = staticmethod(F.softsign)


class Tanhshrink(FunctionLayer):
    """``x - tanh(x)``."""

    function = staticmethod(F.tanhshrink)


class Softplus(FunctionLayer):
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x > threshold``."""

    function = staticmethod(F.softplus)
    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold


class Hardtanh(FunctionLayer):
    """``x`` limited to ``[min_val, max_val]``."""

    function = staticmethod(F.hardtanh)
    _shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace


class Threshold(FunctionLayer):
    """``x`` where it is above ``threshold``, else ``value``."""

    function = staticmethod(F.threshold)
    _shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace


class Hardshrink(FunctionLayer):
    """0 where ``|x| <= lambd``, else ``x``."""

    function = staticmethod(F.hardshrink)
    _shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class Softshrink(FunctionLayer):
    """``x`` moved toward 0 by ``lambd``."""

    function = staticmethod(F.softshrink)
    _shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class GLU(FunctionLayer):
    """``a * sigmoid(b)``, where a and b are the halves of ``x`` along ``dim``."""

    function = staticmethod(F.glu)
    _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim


class _AlongAxis(FunctionLayer):
    """An activation along ``dim``, without which forward() raises an error (torch guesses an axis, with a
    warning)."""

    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_AlongAxis):
    """``exp(x) / sum(exp(x))`` along ``dim``."""

    function = staticmethod(F.softmax)


class Softmin(_AlongAxis):
    """``softmax(-x)`` along ``dim``."""

    function = staticmethod(F.softmin)


class LogSoftmax(_AlongAxis):
    """``log(softmax(x))`` along ``dim``."""

    function = staticmethod(F.log_softmax)
