"""Normalization layers (BatchNorm1d/2d, InstanceNorm1d/2d, GroupNorm, LayerNorm, RMSNorm) and dropout,
which is random in training mode and does nothing in eval mode (a trace records no node).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError
from fxlite.base.state import is_traced
from fxlite.nn import functional as F
from fxlite.nn.linear import empty_parameter
from fxlite.nn.module import Module, Parameter
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim


def _ones(*shape: int, dtype: Any) -> Parameter:
    parameter = empty_parameter(*shape, dtype=dtype)
    parameter[...] = 1
    return parameter


class _Normalization(Module):
    """Per-channel normalization with affine parameters and running statistics."""

    ranks: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", _ones(num_features, dtype=dtype) if affine else None)
        self.register_parameter("bias", empty_parameter(num_features, dtype=dtype) if affine and bias else None)
        numpy_dtype = dtypes.dtype("f32" if dtype is None else dtype).numpy
        buffers = {
            "running_mean": np.zeros(num_features, numpy_dtype),
            "running_var": np.ones(num_features, numpy_dtype),
            "num_batches_tracked": np.zeros((), np.int64),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Reset the running mean to 0, the running variance to 1, and the number of batches to 0."""
        if self.track_running_stats:
            self._buffers["running_mean"][...] = 0
            self._buffers["running_var"][...] = 1
            self._buffers["num_batches_tracked"][...] = 0

    def reset_parameters(self) -> None:
        """Reset the weight to 1, the bias to 0, and the running statistics."""
        self.reset_running_stats()
        for name, value in (("weight", 1), ("bias", 0)):
            if self._parameters[name] is not None:
                self._parameters[name][...] = value

    def _check(self, x: Any) -> None:
        if is_traced(x) and not x.is_typed:
            return
        if x.ndim not in self.ranks:
            layouts = {2: "[N, C]", 3: "[N, C, L]", 4: "[N, C, H, W]"}
            wanted = " or ".join(layouts[r] for r in self.ranks)
            raise ValueError(f"{type(self).__name__} takes {wanted}, not rank {x.ndim}")

    def _track(self, x: Any, axes: tuple[int, ...]) -> None:
        """Move the running statistics toward those of ``x``, in place."""
        wide = x.astype(np.float64)
        count = math.prod(x.shape[a] for a in axes)
        if isinstance(count, NamedDim):
            x.tracer.require(count.expr, ">", 1)
        elif count <= 1:
            raise ValueError(
                f"{type(self).__name__} needs more than one value for each channel in training "
                f"mode, got x {list(x.shape)}; call eval() to use the running statistics"
            )
        mean, var = wide.mean(axis=axes), wide.var(axis=axes, ddof=1)
        if mean.ndim > 1:  # instance norm: the mean over the batch
            mean, var = mean.mean(axis=0), var.mean(axis=0)
        self.num_batches_tracked += 1
        factor: Any = self.momentum
        if factor is None:  # cumulative average
            factor = 1.0 / self.num_batches_tracked.astype(np.float64)
        for buffer, value in ((self.running_mean, mean), (self.running_var, var)):
            buffer[...] = ((1 - factor) * buffer + factor * value).astype(buffer.dtype)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Normalization):
    """Batch normalization; see BatchNorm1d and BatchNorm2d."""

    @property
    def _is_impure(self) -> bool:
        return self.training

    def forward(self, x: Any) -> Any:
        self._check(x)
        batch_statistics = self.training or not self.track_running_stats
        result = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, batch_statistics, self.momentum, self.eps
        )
        if self.training and self.track_running_stats:
            self._track(x, (0, *range(2, x.ndim)))
        return result


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel of x [N, C] or [N, C, L]. In eval mode it uses the running statistics; in
    training mode it uses those of the batch and updates the running ones, which are states of a graph
    that is traced in this mode."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of x [N, C, H, W]. In eval mode it uses the running statistics; in training
    mode it uses those of the batch and updates the running ones, which are states of a graph that is
    traced in this mode."""

    ranks = (4,)


class _InstanceNorm(_Normalization):
    """Instance normalization; see InstanceNorm1d and InstanceNorm2d."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype, bias=bias)

    def forward(self, x: Any) -> Any:
        self._check(x)
        input_statistics = self.training or not self.track_running_stats
        result = F.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, input_statistics, 0.0, self.eps
        )
        if self.training and self.track_running_stats:
            self._track(x, tuple(range(2, x.ndim)))
        return result


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of x [N, C, L]."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of x [N, C, H, W]."""

    ranks = (4,)


class GroupNorm(Module):
    """Normalizes each group of channels of each sample of x [N, num_channels, ...]."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.affine = affine
        self.register_parameter("weight", _ones(num_channels, dtype=dtype) if affine else None)
        self.register_parameter("bias", empty_parameter(num_channels, dtype=dtype) if affine and bias else None)

    def forward(self, x: Any) -> Any:
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class _OverLastAxes(Module):
    """Normalization over the last axes with affine parameters."""

    def _setup(self, normalized_shape: Any, eps: Any, affine: bool, dtype: Any) -> None:
        super().__init__()
        is_int = isinstance(normalized_shape, int)
        shape = (normalized_shape,) if is_int else tuple(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, affine
        self.register_parameter("weight", _ones(*shape, dtype=dtype) if affine else None)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class LayerNorm(_OverLastAxes):
    """Normalizes x [..., *normalized_shape] over its last axes; weight and bias have the shape
    ``normalized_shape``."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self._setup(normalized_shape, eps, elementwise_affine, dtype)
        has_bias = elementwise_affine and bias
        made = empty_parameter(*self.normalized_shape, dtype=dtype) if has_bias else None
        self.register_parameter("bias", made)

    def forward(self, x: Any) -> Any:
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(_OverLastAxes):
    """Divides x [..., *normalized_shape] by the root mean square over its last axes, and multiplies by
    weight.

    If ``eps`` is None, it is the machine epsilon of the dtype in which the result is computed."""

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True, dtype: Any = None
    ) -> None:
        self._setup(normalized_shape, eps, elementwise_affine, dtype)

    def forward(self, x: Any) -> Any:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


# -- dropout ---------------------------------------------------------------------------------------
class _Dropout(Module):
    """Holds the probability of a zero."""

    @property
    def _is_impure(self) -> bool:
        return self.training

    _shown = ("p", "inplace")

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
            raise ArgumentError(f"the dropout probability must be between 0 and 1, not {p!r}")
        self.p, self.inplace = p, inplace


class Dropout(_Dropout):
    """In training mode, sets each element of x to 0 with probability ``p``, else scales it by
    1 / (1 - p). In eval mode it returns x itself."""

    def forward(self, x: Any) -> Any:
        return F.dropout(x, self.p, self.training)


class Dropout1d(_Dropout):
    """In training mode, sets whole channels of x [N, C, L] to 0, each with probability ``p``, and scales
    the others by 1 / (1 - p). In eval mode it returns x itself."""

    def forward(self, x: Any) -> Any:
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """In training mode, sets whole channels of x [N, C, H, W] to 0, each with probability ``p``, and
    scales the others by 1 / (1 - p). In eval mode it returns x itself."""

    def forward(self, x: Any) -> Any:
        return F.dropout2d(x, self.p, self.training)
