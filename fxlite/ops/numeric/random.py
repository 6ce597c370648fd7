"""Random numbers as functions of a key (``fx.random``): the same key gives the same numbers in NumPy, C
and CUDA, whatever else a program draws.

In: a key, ``u32[2]``, from :func:`key`, :func:`split` or :func:`fold_in`, and a shape. Out: numbers for
that key. Draw from each key only once, and split it to draw more. The bits come from Philox, which
encrypts a counter: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. Everything else is arithmetic on them, which rounds like other arithmetic. ``np.random``, in
contrast, draws from a hidden state, which a graph does not have.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, ShapeError
from fxlite.base.state import is_traced
from fxlite.ops.op import Tensor, lookup, op, shape_of
from fxlite.ops.samples import Bad, S
from fxlite.ops.samples import uniform as _uniform
from fxlite.ops.view import as_shape
from fxlite.scalar import expr
from fxlite.scalar.expr import Expr, MultiIndex, Reader
from fxlite.scalar.index import Index, flatten
from fxlite.types import dtypes, shapes
from fxlite.types.tensor_type import TensorType

_U32, _U64 = dtypes.dtype("u32"), dtypes.dtype("u64")
#: The multipliers of a round, the numbers added to the key after it, and the number of rounds.
_FACTORS, _STEPS, _ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
_MASK = 0xFFFFFFFF
#: The third word of the counter, which tells the purpose of the numbers.
_DRAWN, _SPLIT, _FOLDED = 0, 1, 2


# -- bits ------------------------------------------------------------------------------------------
@op(
    "gather",
    stands_alone=True,
    samples=[
        S(_uniform("u32[2]", 0, 2**32), 0, (4,)),
        S(_uniform("u32[2]", 2**31, 2**32), 0, (3, 5)),
        S(_uniform("u32[2]", 0, 2**31), np.array(2**40 + 3), (7,), 2),
        S(_uniform("u32[2]", 0, 2**31), -1, (2, 2), 1),
        S(_uniform("u32[2]", 0, 2**31), 3, ()),
        S(_uniform("u32[2]", 0, 2**31), 2**32 - 9, (5, 13)),
        S(_uniform("u32[2]", 0, 2**31), np.array(-1100), (8206,)),
        S(_uniform("u32[2]", 0, 2**31), 0, (0, 4)),
    ],
    bad=[
        Bad("u32[3]", 0, (4,), match="u32[2]"),
        Bad("i64[2]", 0, (4,), match="u32[2]"),
        Bad("u32[2]", "f32[]", (4,), match="an integer"),
        Bad("u32[2]", "i64[2]", (4,), match="an integer"),
        Bad("u32[2]", 0, (-1,), match="negative size"),
    ],
)
def philox(key: Tensor, start: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Random bits (u32): element i in row-major order is word i % 4 of Philox 4x32-10 for the counter
    ``(start + i // 4, stream)``, each part of which has 64 bits. ``key`` is u32[2].

    Raises DTypeError or ShapeError for another key, a start that is not an integer, or a negative size."""
    count = math.prod(as_shape(shape))
    block = np.asarray(start).astype(np.int64) + np.arange(-(-count // 4), dtype=np.int64)
    low, high = (block & _MASK).astype(np.uint64), ((block >> 32) & _MASK).astype(np.uint64)
    c = [low, high, np.full_like(low, stream), np.zeros_like(low)]
    k = [int(word) for word in np.asarray(key)]
    for _ in range(_ROUNDS):
        first, second = c[0] * np.uint64(_FACTORS[0]), c[2] * np.uint64(_FACTORS[1])
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            second & np.uint64(_MASK),
            (first >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            first & np.uint64(_MASK),
        ]
        k = [(word + step) & _MASK for word, step in zip(k, _STEPS)]
    return np.stack(c, axis=-1).astype(np.uint32).reshape(-1)[:count].reshape(shape)


@philox.canonical
def _(key: Any, start: Any, shape: Any, stream: int = 0) -> Any:
    made = as_shape(shape)
    if made == shape:
        return None
    return philox, {"key": key, "start": start, "shape": made, "stream": stream}


@philox.infer
def _(key: Any, start: Any, shape: Any, stream: int) -> TensorType:
    if not isinstance(key, TensorType) or key.shape != (2,) or key.dtype is not _U32:
        raise DTypeError(f"a key must be u32[2], as fx.random.key gives it, not {key}")
    is_integer = start.dtype.is_integer if isinstance(start, TensorType) else type(start) is int
    if shape_of(start) or not is_integer:
        raise ShapeError(f"start must be an integer, not {start}")
    sizes = as_shape(shape)
    if any(type(d) is int and d < 0 for d in sizes):
        raise ShapeError(f"shape {shape} has a negative size")
    if type(stream) is not int or not 0 <= stream <= _MASK:
        raise ArgumentError(f"stream must be an int from 0 to 2**32 - 1, not {stream!r}")
    return TensorType(sizes, _U32)


@philox.body
def _(i: MultiIndex, key: Reader, start: Reader, shape: Any, stream: int) -> Expr:
    flat = flatten(i, [Index.of(d) for d in as_shape(shape)])
    wide, half = expr.Const(_U64, _MASK), expr.Const(_U64, 32)

    def word(value: Expr) -> Expr:
        return expr.apply("and", value, wide)

    def high(value: Expr) -> Expr:
        return expr.apply("shr", value, half)

    block = expr.cast(start[()], dtypes.int64) + expr.index_value(flat // 4)
    block = expr.cast(block, _U64)
    c = [word(block), high(block), expr.Const(_U64, stream), expr.Const(_U64, 0)]
    k = [expr.cast(key[(Index.of(place),)], _U64) for place in (0, 1)]
    for number in range(_ROUNDS):
        first, second = (expr.apply("mul", c[2 * p], expr.Const(_U64, _FACTORS[p])) for p in (0, 1))
        a, b = (word(k[p] + expr.Const(_U64, number * _STEPS[p])) for p in (0, 1))
        c = [
            expr.apply("xor", expr.apply("xor", high(second), c[1]), a),
            word(second),
            expr.apply("xor", expr.apply("xor", high(first), c[3]), b),
            word(first),
        ]
    found = c[3]
    for place in (2, 1, 0):
        found = expr.where(expr.equals(flat % 4, place), c[place], found)
    return expr.cast(found, _U32)


# -- keys ------------------------------------------------------------------------------------------
def key(seed: Any) -> Any:
    """A key, u32[2], for an integer, which may be traced. Only its lowest 64 bits are used."""
    if is_traced(seed):
        word = lookup("cast")(seed, "i64")
        parts = (lookup("cast")(part, "u32") for part in (word, lookup("right_shift")(word, 32)))
        return lookup("stack")(tuple(parts))
    if np.ndim(seed) or np.asarray(seed).dtype.kind not in "iu":
        raise ArgumentError(f"a seed must be an integer, not {seed!r}")
    return np.array([int(seed) & _MASK, int(seed) >> 32 & _MASK], np.uint32)


def split(key: Any, count: int = 2) -> Any:
    """``count`` keys, u32[count, 2], that are independent of each other and of ``key``."""
    return philox(key, 0, (count, 4), _SPLIT)[:, :2]


def fold_in(key: Any, number: Any) -> Any:
    """A key for a number, such as that of a step or a layer: a different one for each integer."""
    return philox(key, number, (2,), _FOLDED)


# -- numbers ---------------------------------------------------------------------------------------
def bits(key: Any, shape: Any = (), dtype: Any = "u32") -> Any:
    """Integers (u8, u16, u32 or u64) whose bits are all random."""
    kind = dtypes.dtype(dtype)
    if not kind.is_unsigned:
        raise ArgumentError(f"random bits must have dtype u8, u16, u32 or u64, not {kind}")
    if kind is not _U64:
        return lookup("cast")(philox(key, 0, shapes.as_tuple(shape)), kind)
    words = lookup("cast")(philox(key, 0, (*shapes.as_tuple(shape), 2)), _U64)
    return lookup("bitwise_or")(lookup("left_shift")(words[..., 0], 32), words[..., 1])


#: The binary digits of the numbers from 0 to 1.
_DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def _unit(words: Any, kind: dtypes.DType) -> Any:
    """Numbers in [0, 1), each from one word (from two for f64)."""
    digits = _DIGITS[kind.name]
    if kind is dtypes.float64:
        high, low = (lookup("right_shift")(words[..., place], by) for place, by in ((0, 5), (1, 6)))
        return (lookup("cast")(high, kind) * 2.0**26 + lookup("cast")(low, kind)) * 2.0**-digits
    top = lookup("right_shift")(words, 32 - digits)
    return lookup("cast")(lookup("cast")(top, "f32") * 2.0**-digits, kind)


def _float(dtype: Any) -> dtypes.DType:
    kind = dtypes.dtype(dtype)
    if kind.name not in _DIGITS:
        raise ArgumentError(f"random numbers must have a float dtype, not {kind}")
    return kind


def uniform(key: Any, shape: Any = (), dtype: Any = "f32", low: Any = 0.0, high: Any = 1.0) -> Any:
    """Uniformly distributed numbers in ``[low, high)``; only rounding can give ``high`` itself."""
    kind = _float(dtype)
    sizes = (*shapes.as_tuple(shape), 2) if kind is dtypes.float64 else shapes.as_tuple(shape)
    found = _unit(philox(key, 0, sizes), kind)
    return found if (low, high) == (0.0, 1.0) else found * (high - low) + low


def normal(key: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Numbers from the standard normal distribution, each computed from two uniform ones (G. Box, M. Muller, "A note
    on the generation of random normal deviates", 1958)."""
    kind = _float(dtype)
    wide = kind.compute
    sizes = (*shapes.as_tuple(shape), 2, 2) if wide is dtypes.float64 else (*shapes.as_tuple(shape), 2)
    pair = _unit(philox(key, 0, sizes), wide)
    size = lookup("sqrt")(-2.0 * lookup("log")(1.0 - pair[..., 0]))
    return lookup("cast")(size * lookup("cos")(2 * math.pi * pair[..., 1]), kind)


def exponential(key: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Numbers from the exponential distribution with mean 1."""
    return -lookup("log")(1.0 - uniform(key, shape, dtype))


def gumbel(key: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Numbers from the standard Gumbel distribution."""
    even = lookup("maximum")(uniform(key, shape, dtype), 2.0**-25)
    return -lookup("log")(-lookup("log")(even))


def randint(key: Any, shape: Any, low: Any, high: Any, dtype: Any = "i64") -> Any:
    """Integers from ``low`` to ``high`` - 1, each from 64 random bits: some are more likely than
    others, by at most (high - low) / 2**64."""
    if isinstance(low, int) and isinstance(high, int) and high <= low:
        raise ArgumentError(f"high must be larger than low, not {low} to {high}")
    span = high - low
    span = span if isinstance(span, int) else lookup("cast")(span, _U64)
    offset = lookup("cast")(lookup("remainder")(bits(key, shape, "u64"), span), "i64")
    return lookup("cast")(offset + low, dtypes.dtype(dtype))


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Bools that are true with probability ``p``."""
    kind = getattr(p, "dtype", "f32")
    return uniform(key, getattr(p, "shape", ()) if shape is None else shape, kind) < p


def permutation(key: Any, x: Any, axis: int = 0) -> Any:
    """The integers from 0 to ``x`` - 1, or the parts of an array along ``axis``, in random order."""
    is_count = isinstance(x, (int, shapes.NamedDim))
    count = x if is_count else x.shape[axis]
    order = lookup("argsort")(bits(key, (count,), "u64"))
    return order if is_count else lookup("take")(x, order, axis=axis)


def choice(key: Any, x: Any, shape: Any = ()) -> Any:
    """Random elements of an array along its first axis, or integers from 0 to ``x`` - 1, drawn with
    replacement."""
    is_count = isinstance(x, int)
    places = randint(key, shape, 0, x if is_count else x.shape[0])
    return places if is_count else lookup("take")(x, places, axis=0)


def categorical(key: Any, logits: Any, axis: int = -1) -> Any:
    """Positions along ``axis`` (i64), with probabilities proportional to ``exp(logits)``: the position of the
    largest logit after adding Gumbel noise."""
    return lookup("argmax")(logits + gumbel(key, logits.shape, logits.dtype), axis=axis)
