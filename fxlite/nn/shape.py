"""Layers that change shapes: Flatten, Unflatten, padding, Upsample, PixelShuffle."""

from __future__ import annotations

from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn.module import FunctionLayer, Module


class Flatten(FunctionLayer):
    """Axes ``start_dim`` to ``end_dim`` of x as one."""

    function = staticmethod(F.flatten)
    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim


class Unflatten(FunctionLayer):
    """Axis ``dim`` of x as several axes of sizes ``unflattened_size``, one of which may be -1."""

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
    """``value`` before and after the last axis; padding (left, right)."""

    rank = 1


class ConstantPad2d(_Pad):
    """``value`` around the last two axes; padding (left, right, top, bottom)."""

    rank = 2


class ZeroPad1d(ConstantPad1d):
    """Zeros before and after the last axis; padding (left, right)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad2d(ConstantPad2d):
    """Zeros around the last two axes; padding (left, right, top, bottom)."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class Upsample(Module):
    """The spatial axes of x [N, C, ...] resized to ``size`` or by ``scale_factor``."""

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
    """[N, C*r*r, H, W] -> [N, C, H*r, W*r] with r the ``upscale_factor``."""

    function = staticmethod(F.pixel_shuffle)
    _shown = ("upscale_factor",)

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor
