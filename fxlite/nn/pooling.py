"""Pooling layers over x [N, C, L] (1d) and [N, C, H, W] (2d)."""

from __future__ import annotations

from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn.module import Module


class _Pool(Module):
    """Shows the attributes named by ``shown`` in ``repr``."""

    shown: tuple[str, ...] = ()

    def _no_indices(self, return_indices: bool) -> None:
        if return_indices:
            raise ArgumentError(f"{type(self).__name__} does not return indices")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self.shown)


class _MaxPool(_Pool):
    """Largest value of each window; ``stride`` is ``kernel_size`` unless given."""

    shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._no_indices(return_indices)
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode


class MaxPool1d(_MaxPool):
    """Largest value of each window of x [N, C, L]; ``stride`` is ``kernel_size`` unless given."""

    def forward(self, x: Any) -> Any:
        return F.max_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )


class MaxPool2d(_MaxPool):
    """Largest value of each window of x [N, C, H, W]; ``stride`` is ``kernel_size`` unless
    given."""

    def forward(self, x: Any) -> Any:
        return F.max_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode
        )


class AvgPool1d(_Pool):
    """Mean of each window of x [N, C, L]; ``stride`` is ``kernel_size`` unless given."""

    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Any) -> Any:
        return F.avg_pool1d(
            x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )


class AvgPool2d(_Pool):
    """Mean of each window of x [N, C, H, W]; ``stride`` is ``kernel_size`` unless given."""

    shown = ("kernel_size", "stride", "padding")

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, x: Any) -> Any:
        return F.avg_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip


class _Adaptive(_Pool):
    """Pooling to a given output size."""

    shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_Adaptive):
    """Mean over windows: [N, C, L] -> [N, C, output_size]."""

    def forward(self, x: Any) -> Any:
        return F.adaptive_avg_pool1d(x, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean over windows: [N, C, H, W] -> [N, C, *output_size]; None keeps an axis."""

    def forward(self, x: Any) -> Any:
        return F.adaptive_avg_pool2d(x, self.output_size)


class _AdaptiveMax(_Adaptive):
    """Adaptive pooling by the largest value."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self._no_indices(return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Largest value over windows: [N, C, L] -> [N, C, output_size]."""

    def forward(self, x: Any) -> Any:
        return F.adaptive_max_pool1d(x, self.output_size)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Largest value over windows: [N, C, H, W] -> [N, C, *output_size]; None keeps an axis."""

    def forward(self, x: Any) -> Any:
        return F.adaptive_max_pool2d(x, self.output_size)
