"""Linear layers: Identity, Linear, Bilinear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.module import Module, Parameter
from fxlite.types import dtypes


def empty_parameter(*shape: int, dtype: Any = None) -> Parameter:
    """A parameter of zeros, float32 unless ``dtype`` says otherwise. Raises ArgumentError for
    sizes that are no whole numbers from 0."""
    for size in shape:
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(
                f"a layer's sizes are whole numbers, 0 or more; a parameter cannot have the shape "
                f"[{', '.join(map(repr, shape))}]"
            )
    return Parameter(np.zeros(shape, dtypes.dtype("f32" if dtype is None else dtype).numpy))


class Identity(Module):
    """Returns its input. Arguments of any kind are taken and ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """``x @ weight.T + bias``: [..., in_features] -> [..., out_features].

    weight [out_features, in_features], bias [out_features]; both start uniform in ±1/sqrt(in)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty_parameter(out_features, in_features, dtype=dtype)
        self.register_parameter(
            "bias", empty_parameter(out_features, dtype=dtype) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(max(self.in_features, 1))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Any) -> Any:
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        bias = self._parameters["bias"] is not None
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={bias}"


class Bilinear(Module):
    """``x A y + bias``: x [..., in1_features], y [..., in2_features] -> [..., out_features]."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = empty_parameter(out_features, in1_features, in2_features, dtype=dtype)
        self.register_parameter(
            "bias", empty_parameter(out_features, dtype=dtype) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        bound = 1 / math.sqrt(max(self.in1_features, 1))
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, x: Any, y: Any) -> Any:
        return F.bilinear(x, y, self.weight, self.bias)

    def extra_repr(self) -> str:
        bias = self._parameters["bias"] is not None
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={bias}"
        )
