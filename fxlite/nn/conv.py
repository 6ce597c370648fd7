"""Convolution and pooling layers, for inputs [N, C, L] (1d), [N, C, H, W] (2d) and [N, C, D, H, W] (3d)."""

from __future__ import annotations

import math
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.nn import functional as F
from fxlite.nn import init
from fxlite.nn.linear import empty_parameter
from fxlite.nn.module import FunctionLayer, Module


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One int for each spatial axis, from one for all of them or one for each."""
    return (value,) * rank if isinstance(value, int) else tuple(value)


class _Conv(Module):
    """The common part of all convolutions; ``rank`` is the number of spatial axes."""

    rank = 0
    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_mode != "zeros":
            raise ArgumentError(
                f"{type(self).__name__} pads with zeros only, not padding_mode={padding_mode!r}; "
                f"pad the input with np.pad before it"
            )
        for name, count in (("in_channels", in_channels), ("out_channels", out_channels)):
            if groups < 1 or count % groups:
                raise ArgumentError(f"{name} {count} does not divide into {groups} groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f'padding must be ints, "same" or "valid", not {padding!r}')
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = _each(kernel_size, self.rank), _each(stride, self.rank)
        self.padding = padding if isinstance(padding, str) else _each(padding, self.rank)
        self.output_padding = _each(0, self.rank)
        self.dilation, self.padding_mode = _each(dilation, self.rank), padding_mode
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = empty_parameter(*channels, *self.kernel_size, dtype=dtype)
        self.register_parameter("bias", empty_parameter(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights: uniform in ±1/sqrt(fan in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        fan_in = init.fans(self.weight)[0]
        if self.bias is not None and fan_in:
            init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        usual: dict[str, Any] = {
            "padding": (0,) * self.rank,
            "dilation": (1,) * self.rank,
            "output_padding": (0,) * self.rank,
            "groups": 1,
        }
        for name, value in usual.items():
            if getattr(self, name) != value:
                text += f", {name}={getattr(self, name)!r}"
        return text if self._parameters["bias"] is not None else f"{text}, bias=False"


class Conv1d(_Conv):
    """Convolution: [N, in_channels, L] -> [N, out_channels, L']; weight [out, in/groups, K].

    ``padding`` is an int, "same" or "valid". A ``padding_mode`` other than "zeros" raises
    ArgumentError."""

    rank = 1

    def forward(self, x: Any) -> Any:
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """Convolution: [N, in_channels, H, W] -> [N, out_channels, H', W']; weight [out, in/groups, KH, KW].

    ``padding`` is an int, two ints, "same" or "valid". A ``padding_mode`` other than "zeros" raises
    ArgumentError."""

    rank = 2

    def forward(self, x: Any) -> Any:
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv3d(_Conv):
    """Convolution: [N, in_channels, D, H, W] -> [N, out_channels, D', H', W']; weight
    [out, in/groups, KD, KH, KW].

    ``padding`` is an int, three ints, "same" or "valid". A ``padding_mode`` other than "zeros" raises
    ArgumentError."""

    rank = 3

    def forward(self, x: Any) -> Any:
        return F.conv3d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class _Transposed(_Conv):
    """A transposed convolution; see ConvTranspose1d and ConvTranspose2d."""

    transposed = True
    function: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        dtype: Any = None,
    ) -> None:
        given = (stride, padding, dilation, groups, bias, padding_mode, dtype)
        super().__init__(in_channels, out_channels, kernel_size, *given)
        self.output_padding = _each(output_padding, self.rank)

    def forward(self, x: Any) -> Any:
        given = (self.stride, self.padding, self.output_padding, self.groups, self.dilation)
        return type(self).function(x, self.weight, self.bias, *given)


class ConvTranspose1d(_Transposed):
    """Transposed convolution: [N, in_channels, L] -> [N, out_channels, L']; weight [in, out/groups, K]."""

    rank = 1
    function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_Transposed):
    """Transposed convolution: [N, in_channels, H, W] -> [N, out_channels, H', W']; weight
    [in, out/groups, KH, KW]."""

    rank = 2
    function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_Transposed):
    """Transposed convolution: [N, in_channels, D, H, W] -> [N, out_channels, D', H', W']; weight
    [in, out/groups, KD, KH, KW]."""

    rank = 3
    function = staticmethod(F.conv_transpose3d)


class _MaxPool(FunctionLayer):
    """Largest value of each window; ``stride`` is ``kernel_size`` unless given."""

    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        given = (self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)
        return type(self).function(x, *given, self.return_indices)


class MaxPool1d(_MaxPool):
    """Largest value of each window of x [N, C, L]; ``stride`` is ``kernel_size`` unless given."""

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """Largest value of each window of x [N, C, H, W]; ``stride`` is ``kernel_size`` unless
    given."""

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """Largest value of each window of x [N, C, D, H, W]; ``stride`` is ``kernel_size`` unless
    given."""

    function = staticmethod(F.max_pool3d)


class _MaxUnpool(Module):
    """Puts the values that max pooling selected back in their places, with zeros elsewhere."""

    function: Any
    _shown = ("kernel_size", "stride", "padding")

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x: Any, indices: Any, output_size: Any = None) -> Any:
        return type(self).function(x, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpool):
    """The partial inverse of :class:`MaxPool1d` with ``return_indices=True``; see
    :func:`F.max_unpool2d`."""

    function = staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpool):
    """The partial inverse of :class:`MaxPool2d` with ``return_indices=True``; see
    :func:`F.max_unpool2d`."""

    function = staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpool):
    """The partial inverse of :class:`MaxPool3d` with ``return_indices=True``; see
    :func:`F.max_unpool2d`."""

    function = staticmethod(F.max_unpool3d)


class AvgPool1d(Module):
    """Mean of each window of x [N, C, L]; ``stride`` is ``kernel_size`` unless given."""

    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, x: Any) -> Any:
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolByDivisor(Module):
    """Mean of each window, or its sum divided by ``divisor_override``."""

    function: Any
    _shown = ("kernel_size", "stride", "padding")

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode = padding, ceil_mode
        self.count_include_pad, self.divisor_override = count_include_pad, divisor_override

    def forward(self, x: Any) -> Any:
        given = (self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return type(self).function(x, *given, self.divisor_override)


class AvgPool2d(_AvgPoolByDivisor):
    """Mean of each window of x [N, C, H, W]; ``stride`` is ``kernel_size`` unless given."""

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolByDivisor):
    """Mean of each window of x [N, C, D, H, W]; ``stride`` is ``kernel_size`` unless given."""

    function = staticmethod(F.avg_pool3d)


class _Adaptive(FunctionLayer):
    """Pooling to a given output size."""

    _shown = ("output_size",)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size


class AdaptiveAvgPool1d(_Adaptive):
    """Mean over windows: [N, C, L] -> [N, C, output_size]."""

    function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_Adaptive):
    """Mean over windows: [N, C, H, W] -> [N, C, *output_size]; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_Adaptive):
    """Mean over windows: [N, C, D, H, W] -> [N, C, *output_size]; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMax(_Adaptive):
    """Adaptive pooling by the largest value."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Any) -> Any:
        return type(self).function(x, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """Largest value over windows: [N, C, L] -> [N, C, output_size]."""

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """Largest value over windows: [N, C, H, W] -> [N, C, *output_size]; None keeps an axis."""

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """Largest value over windows: [N, C, D, H, W] -> [N, C, *output_size]; None keeps an axis."""

    function = staticmethod(F.adaptive_max_pool3d)
