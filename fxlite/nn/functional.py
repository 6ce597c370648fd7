"""torch.nn.functional's names and argument orders over the ops.

Every function takes arrays or traced values and returns a new value. ``inplace=`` is accepted for
torch's signatures and ignored: nothing is ever written in place. torch's deprecated
``size_average`` and ``reduce`` do not exist; arguments that torch places behind them are
keyword-only here.
"""

from __future__ import annotations

from typing import Any

from fxlite import ops
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError
from fxlite.nn.functional_loss import (
    attention_weights,
    binary_cross_entropy_with_logits,
    causal_mask,
    cross_entropy,
    dropout,
    dropout1d,
    dropout2d,
    embedding,
    l1_loss,
    mse_loss,
    nll_loss,
    one_hot,
    scaled_dot_product_attention,
)
from fxlite.nn.functional_spatial import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    flatten,
    interpolate,
    max_pool1d,
    max_pool2d,
    pad,
    pixel_shuffle,
    unflatten,
)

Tensor = Any

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "attention_weights", "avg_pool1d", "avg_pool2d", "batch_norm", "bilinear",
    "binary_cross_entropy_with_logits", "causal_mask", "celu", "conv1d", "conv2d",
    "conv_transpose1d", "conv_transpose2d", "cosine_similarity", "cross_entropy", "dropout",
    "dropout1d", "dropout2d", "elu", "embedding", "flatten", "gelu", "glu", "group_norm",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "instance_norm", "interpolate",
    "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool1d",
    "max_pool2d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pad", "pixel_shuffle",
    "prelu", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu", "sigmoid",
    "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "unflatten",
]  # fmt: skip


# -- activations -----------------------------------------------------------------------------------
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """``maximum(x, 0)``."""
    return ops.relu(x)


def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """``minimum(maximum(x, 0), 6)``."""
    return ops.relu6(x)


def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``alpha * (exp(x) - 1)``."""
    return ops.elu(x, alpha=alpha)


def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """Scaled elu."""
    return ops.selu(x)


def celu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``maximum(x, 0) + minimum(alpha * (exp(x / alpha) - 1), 0)``."""
    return ops.celu(x, alpha=alpha)


def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x`` where positive, else ``negative_slope * x``."""
    return ops.leaky_relu(x, negative_slope=negative_slope)


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` where positive, else ``weight * x``, a slope for each channel (axis 1) or one for
    all."""
    return ops.prelu(x, weight)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """``x * P(Z <= x)`` of a standard normal Z."""
    return ops.gelu(x, approximate=approximate)


def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
    return ops.silu(x)


def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
    return ops.mish(x)


def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
    return ops.hardswish(x)


def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """``relu6(x + 3) / 6``."""
    return ops.hardsigmoid(x)


def hardtanh(
    x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """``x`` limited to ``[min_val, max_val]``."""
    return ops.hardtanh(x, min_val=min_val, max_val=max_val)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``."""
    return ops.softplus(x, beta=beta, threshold=threshold)


def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where ``|x| <= lambd``."""
    return ops.hardshrink(x, lambd=lambd)


def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """``x`` moved toward 0 by ``lambd``."""
    return ops.softshrink(x, lambd=lambd)


def threshold(x: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """``x`` where above ``threshold``, else ``value``."""
    return ops.threshold(x, threshold=threshold, value=value)


def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return ops.softsign(x)


def logsigmoid(x: Tensor) -> Tensor:
    """``log(sigmoid(x))``."""
    return ops.logsigmoid(x)


def tanhshrink(x: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return ops.tanhshrink(x)


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return ops.tanh(x)


def sigmoid(x: Tensor) -> Tensor:
    """Logistic function."""
    return ops.sigmoid(x)


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """``a * sigmoid(b)`` of the halves of ``x`` along ``dim``."""
    return ops.glu(x, axis=dim)


def _axis(dim: int | None, axis: int | None, name: str) -> int:
    if dim is not None and axis is not None:
        raise ArgumentError(f"{name}: dim= and axis= are two names of one argument; give one")
    found = axis if dim is None else dim
    if found is None:
        raise ArgumentError(f"{name} needs dim=, the axis that sums to 1 (torch guesses one)")
    return found


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else ops.cast(x, dtype)


def softmax(
    x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None
) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``dim``. Raises ArgumentError without ``dim``."""
    return ops.softmax(_cast(x, dtype), axis=_axis(dim, axis, "softmax"))


def softmin(
    x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None
) -> Tensor:
    """``softmax(-x)``."""
    return ops.softmax(ops.neg(_cast(x, dtype)), axis=_axis(dim, axis, "softmin"))


def log_softmax(
    x: Tensor, dim: int | None = None, dtype: Any = None, *, axis: int | None = None
) -> Tensor:
    """``log(softmax(x))`` along ``dim``. Raises ArgumentError without ``dim``."""
    return ops.log_softmax(_cast(x, dtype), axis=_axis(dim, axis, "log_softmax"))


# -- linear and convolution ------------------------------------------------------------------------
def linear(x: Tensor, weight: Tensor, bias: Tensor = None) -> Tensor:
    """``x @ weight.T + bias``: [..., in] -> [..., out]."""
    return ops.linear(x, weight, bias)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor = None) -> Tensor:
    """``out[o] = sum over i, j of x[i] * weight[o, i, j] * y[j] + bias[o]``."""
    result = ops.einsum((x, weight, y), "...i,oij,...j->...o")
    return result if bias is None else result + bias


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolution of x [N, C, L] with weight [O, C/groups, K]."""
    return ops.conv1d(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
    )


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, layout: str = "NCHW",
) -> Tensor:  # fmt: skip
    """Convolution of x [N, C, H, W] with weight [O, C/groups, KH, KW]; with ``layout="NHWC"`` of x
    [N, H, W, C]."""
    return ops.conv2d(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups,
        layout=layout,
    )  # fmt: skip


def conv_transpose1d(
    x: Tensor, weight: Tensor, bias: Tensor = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of x [N, C, L] with weight [C, O/groups, K]."""
    return ops.conv_transpose1d(
        x, weight, bias, stride=stride, padding=padding, output_padding=output_padding,
        groups=groups, dilation=dilation,
    )  # fmt: skip


def conv_transpose2d(
    x: Tensor, weight: Tensor, bias: Tensor = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of x [N, C, H, W] with weight [C, O/groups, KH, KW]."""
    return ops.conv_transpose2d(
        x, weight, bias, stride=stride, padding=padding, output_padding=output_padding,
        groups=groups, dilation=dilation,
    )  # fmt: skip


# -- normalization ---------------------------------------------------------------------------------
def batch_norm(
    x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor = None,
    bias: Tensor = None, training: bool = False, momentum: float | None = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalization of each channel. Running statistics are never written (``nn.BatchNorm2d``
    does)."""
    return ops.batch_norm(x, running_mean, running_var, weight, bias, training=training, eps=eps)


def layer_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor = None, bias: Tensor = None, eps: float = 1e-5
) -> Tensor:
    """Normalization over the last axes, of sizes ``normalized_shape``."""
    return ops.layer_norm(x, weight, bias, normalized_shape=_tuple(normalized_shape), eps=eps)


def rms_norm(
    x: Tensor, normalized_shape: Any, weight: Tensor = None, eps: float | None = None
) -> Tensor:
    """Division by the root mean square of the last axes, of sizes ``normalized_shape``."""
    return ops.rms_norm(x, weight, normalized_shape=_tuple(normalized_shape), eps=eps)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor = None, bias: Tensor = None, eps: float = 1e-5
) -> Tensor:
    """Normalization of groups of channels of each sample."""
    return ops.group_norm(x, weight, bias, num_groups=num_groups, eps=eps)


def instance_norm(
    x: Tensor, running_mean: Tensor = None, running_var: Tensor = None, weight: Tensor = None,
    bias: Tensor = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Normalization of each channel of each sample. Running statistics are never written."""
    return ops.instance_norm(
        x, running_mean, running_var, weight, bias, use_input_stats=use_input_stats, eps=eps
    )


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """``x`` divided by its p-norm along ``dim``."""
    return ops.normalize(x, p=p, axis=dim, eps=eps)


def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between ``x`` and ``y`` along ``dim``."""
    return ops.cosine_similarity(x, y, axis=dim, eps=eps)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _check_all() -> None:
    """All of these functions name the argument that they cannot take."""
    for name in __all__:
        function = checked(globals()[name], is_whole=True)
        function.__module__ = __name__
        globals()[name] = function


_check_all()
