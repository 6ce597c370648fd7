"""torch.nn.functional's names and argument orders over the ops.

Every function takes arrays or traced values and returns a new value. ``inplace=`` is accepted for
torch's signatures and ignored: nothing is ever written in place. torch's deprecated
``size_average`` and ``reduce`` do not exist; arguments that torch places behind them are
keyword-only here.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
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
from fxlite.ops.op import Op

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


def _of(record: Op, inplace: bool = False) -> Callable[..., Tensor]:
    """The function that an op is: torch's parameters are its own, and for some ``inplace``."""
    parameters = [*record.signature.parameters.values()]
    most = len(parameters)
    if inplace:
        parameters.append(Parameter("inplace", Parameter.POSITIONAL_OR_KEYWORD, default=False))

    def call(*args: Any, **kwargs: Any) -> Tensor:
        if inplace:
            kwargs.pop("inplace", None)
            args = args[:most] if len(args) == most + 1 else args
        return record(*args, **kwargs)

    call.__name__ = call.__qualname__ = record.name
    call.__doc__ = record.__doc__
    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


# -- activations -----------------------------------------------------------------------------------
relu = _of(ops.relu, inplace=True)
relu6 = _of(ops.relu6, inplace=True)
elu = _of(ops.elu, inplace=True)
selu = _of(ops.selu, inplace=True)
celu = _of(ops.celu, inplace=True)
leaky_relu = _of(ops.leaky_relu, inplace=True)
silu = _of(ops.silu, inplace=True)
mish = _of(ops.mish, inplace=True)
hardswish = _of(ops.hardswish, inplace=True)
hardsigmoid = _of(ops.hardsigmoid, inplace=True)
hardtanh = _of(ops.hardtanh, inplace=True)
threshold = _of(ops.threshold, inplace=True)
prelu = _of(ops.prelu)
gelu = _of(ops.gelu)
softplus = _of(ops.softplus)
hardshrink = _of(ops.hardshrink)
softshrink = _of(ops.softshrink)
softsign = _of(ops.softsign)
logsigmoid = _of(ops.logsigmoid)
tanhshrink = _of(ops.tanhshrink)
tanh = _of(ops.tanh)
sigmoid = _of(ops.sigmoid)


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
linear = _of(ops.linear)
conv1d = _of(ops.conv1d)
conv2d = _of(ops.conv2d)
conv_transpose1d = _of(ops.conv_transpose1d)
conv_transpose2d = _of(ops.conv_transpose2d)


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor = None) -> Tensor:
    """``out[o] = sum over i, j of x[i] * weight[o, i, j] * y[j] + bias[o]``."""
    result = ops.einsum((x, weight, y), "...i,oij,...j->...o")
    return result if bias is None else result + bias


# -- normalization ---------------------------------------------------------------------------------
instance_norm = _of(ops.instance_norm)


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
