"""Activation layers: torch.nn's names, arguments and defaults.

All map x [...] to the same shape (GLU halves an axis). ``inplace=`` is taken and ignored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.nn import functional as F
from fxlite.nn.module import Module, Parameter
from fxlite.types import dtypes


class Activation(Module):
    """Base: shows the attributes named by ``shown`` in ``repr``."""

    shown: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)


class _InPlace(Activation):
    """An activation whose only argument is ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InPlace):
    """``maximum(x, 0)``."""

    def forward(self, x: Any) -> Any:
        return F.relu(x)


class ReLU6(_InPlace):
    """``minimum(maximum(x, 0), 6)``."""

    def forward(self, x: Any) -> Any:
        return F.relu6(x)


class SELU(_InPlace):
    """Scaled elu."""

    def forward(self, x: Any) -> Any:
        return F.selu(x)


class SiLU(_InPlace):
    """``x * sigmoid(x)``."""

    def forward(self, x: Any) -> Any:
        return F.silu(x)


class Mish(_InPlace):
    """``x * tanh(softplus(x))``."""

    def forward(self, x: Any) -> Any:
        return F.mish(x)


class Hardswish(_InPlace):
    """``x * relu6(x + 3) / 6``."""

    def forward(self, x: Any) -> Any:
        return F.hardswish(x)


class Hardsigmoid(_InPlace):
    """``relu6(x + 3) / 6``."""

    def forward(self, x: Any) -> Any:
        return F.hardsigmoid(x)


class GELU(Activation):
    """``x * P(Z <= x)`` of a standard normal Z; ``approximate="tanh"``: the usual approximation."""

    shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        return F.gelu(x, approximate=self.approximate)


class ELU(Activation):
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Any) -> Any:
        return F.elu(x, self.alpha)


class CELU(Activation):
    """``maximum(x, 0) + minimum(alpha * (exp(x / alpha) - 1), 0)``."""

    shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Any) -> Any:
        return F.celu(x, self.alpha)


class LeakyReLU(Activation):
    """``x`` where positive, else ``negative_slope * x``."""

    shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Any) -> Any:
        return F.leaky_relu(x, self.negative_slope)


class PReLU(Activation):
    """``x`` where positive, else ``weight * x``; weight [num_parameters], one for each channel or
    one."""

    shown = ("num_parameters",)

    def __init__(self, num_parameters: int = 1, init: float = 0.25, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        numpy_dtype = dtypes.dtype("f32" if dtype is None else dtype).numpy
        self.weight = Parameter(np.full(num_parameters, init, numpy_dtype))

    def forward(self, x: Any) -> Any:
        return F.prelu(x, self.weight)


class Sigmoid(Activation):
    """Logistic function."""

    def forward(self, x: Any) -> Any:
        return F.sigmoid(x)


class Tanh(Activation):
    """Hyperbolic tangent."""

    def forward(self, x: Any) -> Any:
        return F.tanh(x)


class LogSigmoid(Activation):
    """``log(sigmoid(x))``."""

    def forward(self, x: Any) -> Any:
        return F.logsigmoid(x)


class Softsign(Activation):
    """``x / (1 + |x|)``."""

    def forward(self, x: Any) -> Any:
        return F.softsign(x)


class Tanhshrink(Activation):
    """``x - tanh(x)``."""

    def forward(self, x: Any) -> Any:
        return F.tanhshrink(x)


class Softplus(Activation):
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x > threshold``."""

    shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Any) -> Any:
        return F.softplus(x, self.beta, self.threshold)


class Hardtanh(Activation):
    """``x`` limited to ``[min_val, max_val]``."""

    shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, x: Any) -> Any:
        return F.hardtanh(x, self.min_val, self.max_val)


class Threshold(Activation):
    """``x`` where above ``threshold``, else ``value``."""

    shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, x: Any) -> Any:
        return F.threshold(x, self.threshold, self.value)


class Hardshrink(Activation):
    """0 where ``|x| <= lambd``, else ``x``."""

    shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Any) -> Any:
        return F.hardshrink(x, self.lambd)


class Softshrink(Activation):
    """``x`` moved toward 0 by ``lambd``."""

    shown = ("lambd",)

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, x: Any) -> Any:
        return F.softshrink(x, self.lambd)


class GLU(Activation):
    """``a * sigmoid(b)`` of the halves of ``x`` along ``dim``."""

    shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Any) -> Any:
        return F.glu(x, self.dim)


class _AlongAxis(Activation):
    """An activation along ``dim``, which forward() needs (torch guesses one with a warning)."""

    shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_AlongAxis):
    """``exp(x) / sum(exp(x))`` along ``dim``."""

    def forward(self, x: Any) -> Any:
        return F.softmax(x, self.dim)


class Softmin(_AlongAxis):
    """``softmax(-x)`` along ``dim``."""

    def forward(self, x: Any) -> Any:
        return F.softmin(x, self.dim)


class LogSoftmax(_AlongAxis):
    """``log(softmax(x))`` along ``dim``."""

    def forward(self, x: Any) -> Any:
        return F.log_softmax(x, self.dim)
