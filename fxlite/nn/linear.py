"""Linear layers, lookups, and layers that change shapes: Identity, Linear, Bilinear, Embedding; Flatten, Unflatten,
padding, Upsample, PixelShuffle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.module import FunctionLayer, Module, Parameter
from fxlite.types import dtypes


def empty_parameter(*shape: int, dtype: Any = None) -> Parameter:
    """A parameter of zeros; float32 unless ``dtype`` is given. Raises ArgumentError for sizes that are
    not non-negative integers."""
    for size in shape:
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise ArgumentError(
                f"a layer's sizes are whole numbers, 0 or more; a parameter cannot have the shape "
                f"[{', '.join(map(repr, shape))}]"
            )
    return Parameter(np.zeros(shape, dtypes.dtype("f32" if dtype is None else dtype).numpy))


class Identity(Module):
    """Returns its input. Arguments of any kind are accepted and ignored."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    """``x @ weight.T + bias``: [..., in_features] -> [..., out_features].

    weight [out_features, in_features], bias [out_features]; both start uniform in ±1/sqrt(in)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty_parameter(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_features, dtype=dtype) if bias else None)
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
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features = in1_features, in2_features
        self.out_features = out_features
        self.weight = empty_parameter(out_features, in1_features, in2_features, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_features, dtype=dtype) if bias else None)
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


# -- lookup ----------------------------------------------------------------------------------------
class Embedding(Module):
    """The rows of weight [num_embeddings, embedding_dim] at the integers x [...], as
    [..., embedding_dim].

    Row ``padding_idx`` starts as zeros. ``max_norm`` would change the weight in every call and raises
    ArgumentError. ``norm_type``, ``scale_grad_by_freq`` and ``sparse`` concern gradients and have no
    effect."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if max_norm is not None:
            raise ArgumentError("Embedding does not support max_norm; normalize the weight once")
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ArgumentError(f"padding_idx {padding_idx} is out of range of {num_embeddings}")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = padding_idx
        self.weight = empty_parameter(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """An Embedding with the given weight [N, D], not trainable unless ``freeze`` is False."""
        weight = np.asarray(embeddings)
        rows, width = weight.shape
        made = cls(rows, width, padding_idx, dtype=weight.dtype)
        made.weight = Parameter(weight, requires_grad=not freeze)
        return made

    def reset_parameters(self) -> None:
        """Draw new weights from a standard normal; zeros at ``padding_idx``."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight[self.padding_idx] = 0

    def forward(self, x: Any) -> Any:
        return F.embedding(x, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


# -- shapes ----------------------------------------------------------------------------------------
class Flatten(FunctionLayer):
    """Joins the axes ``start_dim`` to ``end_dim`` of x to one."""

    function = staticmethod(F.flatten)
    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim


class Unflatten(FunctionLayer):
    """Splits axis ``dim`` of x into axes of sizes ``unflattened_size``, one of which may be -1."""

    function = staticmethod(F.unflatten)
    _shown = ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise ArgumentError(f"Unflatten takes an int for dim, not {dim!r}")
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)


class _Pad(Module):
    """Pads the last ``rank`` axes with a constant; ``padding`` is (before, after) for the last
    axis, then for the one before it, or one int for all."""

    _shown = ("padding", "value")

    rank = 0

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__()
        count = 2 * self.rank
        self.padding = (padding,) * count if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != count:
            raise ArgumentError(f"padding must be an int or {count} ints, not {padding!r}")
        self.value = value

    def forward(self, x: Any) -> Any:
        return F.pad(x, self.padding, value=self.value)


class ConstantPad1d(_Pad):
    """Pads the last axis with ``value``; padding (left, right)."""

    rank = 1


class ConstantPad2d(_Pad):
    """Pads the last two axes with ``value``; padding (left, right, top, bottom)."""

    rank = 2


class ZeroPad1d(ConstantPad1d):
    """Pads the last axis with zeros; padding (left, right)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad2d(ConstantPad2d):
    """Pads the last two axes with zeros; padding (left, right, top, bottom)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class Upsample(Module):
    """Resizes the spatial axes of x [N, C, ...] to ``size`` or by ``scale_factor``; see
    :func:`F.interpolate`."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, x: Any) -> Any:
        given = (self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)
        return F.interpolate(x, *given)

    def extra_repr(self) -> str:
        what = "size" if self.size is not None else "scale_factor"
        return f"{what}={getattr(self, what)!r}, mode={self.mode!r}"


class PixelShuffle(FunctionLayer):
    """Moves blocks of channels into space: [N, C*r*r, H, W] -> [N, C, H*r, W*r], where r is
    ``upscale_factor``."""

    function = staticmethod(F.pixel_shuffle)
    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor
