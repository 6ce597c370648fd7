"""Initialization: functions that fill parameters in place with torch.nn.init's distributions.

Each function writes into an array and returns it. All random numbers of ``fxlite.nn``, including those
of dropout, come from one NumPy generator, which :func:`manual_seed` seeds. They are not torch's numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.checked import public_names
from fxlite.base.errors import ArgumentError
from fxlite.base.state import generator
from fxlite.base.state import manual_seed as manual_seed

Array = np.ndarray[Any, Any]


def fill(tensor: Array, values: Any) -> Array:
    """Write values into an array, cast to its dtype."""
    tensor[...] = np.asarray(values).astype(tensor.dtype)
    return tensor


def uniform_(tensor: Array, a: float = 0.0, b: float = 1.0) -> Array:
    """Fill with numbers that are uniform in ``[a, b)``."""
    return fill(tensor, generator().uniform(a, b, tensor.shape))


def normal_(tensor: Array, mean: float = 0.0, std: float = 1.0) -> Array:
    """Fill with normally distributed numbers of this mean and standard deviation."""
    return fill(tensor, generator().normal(mean, std, tensor.shape))


def trunc_normal_(tensor: Array, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Array:
    """Fill with normally distributed numbers, each of which is drawn again until it lies in ``[a, b]``."""
    values = np.asarray(generator().normal(mean, std, tensor.shape))
    if not _overlaps(mean, std, a, b):
        raise ArgumentError(f"[{a}, {b}] is too far from the mean {mean} (standard deviation {std})")
    outside = (values < a) | (values > b)
    while outside.any():
        values[outside] = generator().normal(mean, std, int(outside.sum()))
        outside = (values < a) | (values > b)
    return fill(tensor, values)


def _overlaps(mean: float, std: float, a: float, b: float) -> bool:
    """True if ``[a, b]`` is probable enough to draw numbers until they lie in it."""
    low, high = ((v - mean) / (std * math.sqrt(2)) for v in (a, b))
    return math.erf(high) - math.erf(low) > 1e-3


def constant_(tensor: Array, val: float) -> Array:
    """Fill with ``val``."""
    return fill(tensor, val)


def zeros_(tensor: Array) -> Array:
    """Fill with zeros."""
    return fill(tensor, 0)


def ones_(tensor: Array) -> Array:
    """Fill with ones."""
    return fill(tensor, 1)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The gain that torch recommends for a nonlinearity (``torch.nn.init.calculate_gain``)."""
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    linear = ["linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "sigmoid"]
    if nonlinearity in linear:
        return 1.0
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in gains:
        known = ", ".join([*linear, *gains, "leaky_relu"])
        raise ArgumentError(f"no gain is known for {nonlinearity!r}; known: {known}")
    return gains[nonlinearity]


def fans(tensor: Array) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight [out, in, ...]."""
    if tensor.ndim < 2:
        raise ArgumentError(f"fan in and fan out need a weight of rank 2 or more, not {tensor.shape}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def xavier_uniform_(tensor: Array, gain: float = 1.0) -> Array:
    """Fill with uniform numbers of standard deviation ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot,
    Bengio 2010)."""
    bound = gain * math.sqrt(6 / max(sum(fans(tensor)), 1))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Array, gain: float = 1.0) -> Array:
    """Fill with normal numbers of standard deviation ``gain * sqrt(2 / (fan_in + fan_out))`` (Glorot,
    Bengio 2010)."""
    return normal_(tensor, 0.0, gain * math.sqrt(2 / max(sum(fans(tensor)), 1)))


def _kaiming_std(tensor: Array, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f'mode must be "fan_in" or "fan_out", not {mode!r}')
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(tensor: Array, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Array:
    """Fill with uniform numbers of standard deviation ``gain / sqrt(fan)`` (He et al. 2015,
    arXiv:1502.01852)."""
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Array, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Array:
    """Fill with normal numbers of standard deviation ``gain / sqrt(fan)`` (He et al. 2015,
    arXiv:1502.01852)."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Array, gain: float = 1.0) -> Array:
    """Fill with a (semi-)orthogonal matrix, whose rows are the first axis and whose columns are all other
    axes (Saxe et al. 2013, arXiv:1312.6120)."""
    fans(tensor)
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    q, r = np.linalg.qr(generator().normal(size=(max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diagonal(r))
    return fill(tensor, gain * (q if rows >= columns else q.T).reshape(tensor.shape))


def eye_(tensor: Array) -> Array:
    """Fill with the identity matrix."""
    return fill(tensor, np.eye(*tensor.shape))


def __dir__() -> list[str]:
    return public_names(globals())
