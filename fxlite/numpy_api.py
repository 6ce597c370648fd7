"""NumPy's spellings of the ops: one table from ufuncs, NumPy functions and ndarray methods to ops.

In: a call on proxies as NumPy dispatches it. Out: calls of ops, so that ``np.maximum(x, 0)``,
``x.clip(0)`` and ``F.relu(x)`` are the same node. What the table does not hold is refused by name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite import dtypes, shapes
from fxlite.op import Op, lookup, normalize_axes, normalize_axis
from fxlite.proxy import Proxy
from fxlite.types import TensorType

if TYPE_CHECKING:
    from fxlite.tracer import Tracer


def ops_by_name(name: str) -> Op:
    """The op of that name."""
    return lookup(name)


def is_operand(value: Any) -> bool:
    """What an operator of a proxy accepts on its other side."""
    return isinstance(value, (Proxy, np.ndarray, np.generic, bool, int, float, shapes.NamedDim))


def value_type(x: Any) -> TensorType:
    """Type of a proxy, array or number."""
    if isinstance(x, Proxy):
        return x.type
    array = np.asarray(x)
    return TensorType(array.shape, dtypes.dtype(array.dtype))


# -- ufuncs ----------------------------------------------------------------------------------------
_UFUNCS: dict[Any, str] = {
    getattr(np, name): name
    for name in (
        "add subtract multiply divide floor_divide remainder power maximum minimum arctan2 "
        "negative "
        "absolute fabs sign square reciprocal exp expm1 log log1p log2 sqrt sin cos tan sinh cosh "
        "tanh "
        "arcsin arccos arctan floor ceil trunc rint equal not_equal less less_equal greater "
        "greater_equal logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
        "bitwise_xor invert left_shift right_shift isnan isinf isfinite matmul"
    ).split()
}
_REDUCE = {np.add: "sum", np.multiply: "prod", np.maximum: "max", np.minimum: "min",
           np.logical_and: "all", np.logical_or: "any"}  # fmt: skip


def call_ufunc(
    tracer: Tracer, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A ufunc is called with a proxy among its inputs or in ``out=``."""
    kwargs = dict(kwargs)
    dtype = kwargs.pop("dtype", None)
    for name in ("out", "where", "casting", "subok", "order"):
        value = kwargs.get(name)
        if name in ("out", "where") and value is not None and value is not True:
            raise tracer.error(
                f"np.{ufunc.__name__}(..., {name}=...) cannot be traced",
                "use the returned value" if name == "out" else "use np.where(mask, a, b)",
            )
        kwargs.pop(name, None)
    if method == "__call__" and ufunc in _UFUNCS and not kwargs:
        result = lookup(_UFUNCS[ufunc])(*inputs)
    elif method == "reduce" and ufunc in _REDUCE:
        axis = kwargs.pop("axis", 0)
        result = lookup(_REDUCE[ufunc])(*inputs, axis=axis, keepdims=kwargs.pop("keepdims", False))
    else:
        raise tracer.error(
            f"np.{ufunc.__name__}{'' if method == '__call__' else '.' + method} has no fxlite op",
            f"write it with these: {', '.join(sorted(u.__name__ for u in _UFUNCS))}",
        )
    return result if dtype is None else lookup("cast")(result, dtype)


# -- helpers that need more than one op or a shape -----------------------------------------------
def subscript(x: Any, index: Any) -> Any:
    """``x[index]``."""
    from fxlite.ops.indexing import subscript as implementation

    return implementation(x, index)


def reshape(x: Any, *shape: Any, order: str = "C") -> Any:
    """``x.reshape(2, -1)`` and ``np.reshape(x, (2, -1))``."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    return lookup("reshape")(x, tuple(shape))


def transpose(x: Any, *axes: Any) -> Any:
    if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))):
        axes = tuple(axes[0]) if axes[0] is not None else ()
    rank = value_type(x).rank
    return lookup("permute")(x, tuple(axes) if axes else tuple(reversed(range(rank))))


def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    rank = value_type(x).rank
    order = list(range(rank))
    a, b = normalize_axis(axis1, rank), normalize_axis(axis2, rank)
    order[a], order[b] = order[b], order[a]
    return lookup("permute")(x, tuple(order))


def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    rank = value_type(x).rank
    one = isinstance(source, int)
    sources = [normalize_axis(a, rank) for a in ([source] if one else source)]
    targets = [normalize_axis(a, rank) for a in ([destination] if one else destination)]
    order = [a for a in range(rank) if a not in sources]
    for target, source_axis in sorted(zip(targets, sources)):
        order.insert(target, source_axis)
    return lookup("permute")(x, tuple(order))


def ravel(x: Any, order: str = "C") -> Any:
    return lookup("reshape")(x, (-1,))


def squeeze(x: Any, axis: Any = None) -> Any:
    if axis is None:
        axis = tuple(a for a, d in enumerate(value_type(x).shape) if type(d) is int and d == 1)
    for a in sorted(normalize_axes(axis, value_type(x).rank), reverse=True):
        x = lookup("squeeze")(x, axis=a)
    return x


def expand_dims(x: Any, axis: Any) -> Any:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = value_type(x).rank + len(axes)
    for a in sorted(normalize_axis(a, rank) for a in axes):
        x = lookup("unsqueeze")(x, axis=a)
    return x


def var(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0,
        keepdims: bool = False) -> Any:  # fmt: skip
    return lookup("var")(x, axis=axis, correction=ddof, keepdims=keepdims)


def std(x: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0,
        keepdims: bool = False) -> Any:  # fmt: skip
    return lookup("sqrt")(var(x, axis, ddof=ddof, keepdims=keepdims))


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """np.split: equal parts, or cuts at indices."""
    size = value_type(x).shape[normalize_axis(axis, value_type(x).rank)]
    if isinstance(indices_or_sections, int):
        part = shapes.floordiv(size, indices_or_sections)
        if type(size) is int and size % indices_or_sections:
            raise ValueError(
                f"axis {axis} of size {size} does not split into {indices_or_sections}"
            )
        sizes = (part,) * indices_or_sections
    else:
        cuts = [0, *indices_or_sections, size]
        sizes = tuple(shapes.normalize(b - a) for a, b in itertools.pairwise(cuts))
    return list(lookup("split")(x, sizes, axis=axis))


def array_split(x: Any, sections: int, axis: int = 0) -> list[Any]:
    size = value_type(x).shape[axis]
    base, extra = divmod(size, sections)
    return list(lookup("split")(x, (base + 1,) * extra + (base,) * (sections - extra), axis=axis))


def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None,
         out: Any = None) -> Any:  # fmt: skip
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    plain = (bool, int, float, type(None))
    if isinstance(low, plain) and isinstance(high, plain):
        return lookup("clip")(x, low, high)
    if low is not None:
        x = lookup("maximum")(x, low)
    return x if high is None else lookup("minimum")(x, high)


def take(x: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if axis is None:
        x, axis = ravel(x), 0
    if isinstance(indices, (list, tuple, int)):
        indices = np.asarray(indices)
    return lookup("take")(x, indices, axis=axis)


def repeat(x: Any, repeats: int, axis: Any = None) -> Any:
    """Each element ``repeats`` times: unsqueeze, expand, reshape."""
    if axis is None:
        x, axis = ravel(x), 0
    shape = list(value_type(x).shape)
    axis = normalize_axis(axis, len(shape))
    wide = [*shape[: axis + 1], repeats, *shape[axis + 1 :]]
    shape[axis] = shapes.normalize(shape[axis] * repeats)
    return lookup("reshape")(
        lookup("expand")(lookup("unsqueeze")(x, axis + 1), tuple(wide)), tuple(shape)
    )


def tile(x: Any, reps: Any) -> Any:
    shape = list(value_type(x).shape)
    counts = [reps] if isinstance(reps, int) else list(reps)
    rank = max(len(shape), len(counts))
    shape, counts = [1] * (rank - len(shape)) + shape, [1] * (rank - len(counts)) + counts
    paired = lookup("reshape")(x, tuple(d for s in shape for d in (1, s)))
    wide = lookup("expand")(paired, tuple(d for c, s in zip(counts, shape) for d in (c, s)))
    return lookup("reshape")(wide, tuple(shapes.normalize(c * s) for c, s in zip(counts, shape)))


def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if mode != "constant":
        raise ValueError(f"np.pad is traced with mode='constant' only, not {mode!r}")
    rank = value_type(x).rank
    if isinstance(pad_width, int):
        pad_width = ((pad_width, pad_width),) * rank
    pairs = [tuple(p) if isinstance(p, (tuple, list)) else (p, p) for p in pad_width]
    if len(pairs) == 1:
        pairs = pairs * rank
    return lookup("pad")(x, tuple(pairs), value=constant_values)


def _join(name: str) -> Callable[..., Any]:
    def call(arrays: Sequence[Any], axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
        return lookup(name)(tuple(arrays), axis=axis)

    return call


def _stacked(axis: int, rank: int) -> Callable[..., Any]:
    def call(arrays: Sequence[Any]) -> Any:
        parts = list(arrays)
        if value_type(parts[0]).rank < rank:
            axis_new = 0 if axis == 0 else -1
            parts = [lookup("unsqueeze")(p, axis_new) for p in parts]
        return lookup("concat")(tuple(parts), axis=axis if value_type(parts[0]).rank > 1 else 0)

    return call


def _like(value: float) -> Callable[..., Any]:
    def call(x: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return full_like(x, value, dtype)

    return call


def full_like(x: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    known = value_type(x)
    target = known.dtype if dtype is None else dtypes.dtype(dtype)
    if isinstance(fill_value, Proxy):
        return lookup("expand")(lookup("cast")(fill_value, target), known.shape)
    return lookup("full")(known.shape, fill_value, dtype=target)


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors: 2-norm, 1-norm, infinity."""
    if ord in (None, 2):
        return lookup("sqrt")(lookup("sum")(lookup("square")(x), axis=axis, keepdims=keepdims))
    if ord == 1:
        return lookup("sum")(lookup("abs")(x), axis=axis, keepdims=keepdims)
    if ord in (math.inf, "inf"):
        return lookup("max")(lookup("abs")(x), axis=axis, keepdims=keepdims)
    raise ValueError(f"np.linalg.norm is traced with ord 1, 2 or inf, not {ord!r}")


def dot(x: Any, y: Any, out: Any = None) -> Any:
    if value_type(x).rank == 0 or value_type(y).rank == 0:
        return lookup("mul")(x, y)
    if value_type(y).rank > 2:
        raise ValueError("np.dot with a second operand of rank > 2 is not traced; use np.einsum")
    return lookup("matmul")(x, y)


def outer(x: Any, y: Any, out: Any = None) -> Any:
    return lookup("mul")(lookup("unsqueeze")(ravel(x), -1), ravel(y))


def astype(x: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    target = dtypes.dtype(dtype)
    if isinstance(x, Proxy) and x.node.type is not None and x.type.dtype is target:
        return x
    return lookup("cast")(x, target)


def _reduction(name: str) -> Callable[..., Any]:
    def call(
        x: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False
    ) -> Any:
        if out is not None:
            raise ValueError(f"{name}(out=...) cannot be traced; use the returned value")
        if dtype is not None:
            x = astype(x, dtype)
        return lookup(name)(x, axis=axis, keepdims=keepdims)

    return call


def _extreme(name: str) -> Callable[..., Any]:
    def call(x: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        return lookup(name)(x, axis=axis, keepdims=keepdims)

    return call


def cumsum(x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    if axis is None:
        x, axis = ravel(x), 0
    return lookup("cumsum")(x if dtype is None else astype(x, dtype), axis=axis)


def einsum(equation: str, *operands: Any, **kwargs: Any) -> Any:
    return lookup("einsum")(tuple(operands), equation)


def round_(x: Any, decimals: int = 0, out: Any = None) -> Any:
    if decimals:
        return lookup("div")(lookup("round")(lookup("mul")(x, 10.0**decimals)), 10.0**decimals)
    return lookup("round")(x)


def where(condition: Any, x: Any, y: Any) -> Any:
    return lookup("where")(condition, x, y)


def copy(x: Any, *args: Any, **kwargs: Any) -> Any:
    """A copy has memory of its own, so in-place operations on it are fine."""
    return Proxy(x.node, x.tracer)


def flip(x: Any, axis: Any = None) -> Any:
    for a in normalize_axes(axis, value_type(x).rank):
        x = lookup("flip")(x, axis=a)
    return x


def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """np.roll; tuples of shifts and axes roll one axis after the other."""
    if axis is None:
        return lookup("reshape")(lookup("roll")(ravel(x), shift, axis=0), value_type(x).shape)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = shift if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"{len(shifts)} shifts for {len(axes)} axes")
    for s, a in zip(shifts, axes):
        x = lookup("roll")(x, s, axis=a)
    return x


def broadcast_to(x: Any, shape: Any, subok: bool = False) -> Any:
    return lookup("expand")(x, tuple(shape) if isinstance(shape, (tuple, list)) else (shape,))


def _shape_function(x: Any) -> Any:
    return x.shape


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _reduction("sum"), np.mean: _reduction("mean"), np.prod: _reduction("prod"),
    np.any: _extreme("any"), np.all: _extreme("all"), np.max: _extreme("max"),
    np.min: _extreme("min"), np.amax: _extreme("max"), np.amin: _extreme("min"),
    np.argmax: _extreme("argmax"), np.argmin: _extreme("argmin"), np.cumsum: cumsum,
    np.var: var, np.std: std, np.reshape: reshape, np.transpose: transpose, np.swapaxes: swapaxes,
    np.moveaxis: moveaxis, np.ravel: ravel, np.squeeze: squeeze, np.expand_dims: expand_dims,
    np.concatenate: _join("concat"), np.stack: _join("stack"), np.vstack: _stacked(0, 2),
    np.hstack: _stacked(1, 1), np.split: split, np.array_split: array_split, np.clip: clip,
    np.take: take, np.repeat: repeat, np.tile: tile, np.pad: pad, np.where: where, np.flip: flip,
    np.roll: roll, np.tril: lambda x, k=0: lookup("tril")(x, k),
    np.triu: lambda x, k=0: lookup("triu")(x, k), np.einsum: einsum, np.dot: dot, np.outer: outer,
    np.broadcast_to: broadcast_to,
    np.take_along_axis: lambda x, indices, axis=-1: lookup("gather")(x, indices, axis=axis),
    np.zeros_like: _like(0), np.ones_like: _like(1), np.full_like: full_like,
    np.linalg.norm: norm, np.round: round_, np.copy: copy, np.shape: _shape_function,
    np.ndim: lambda x: x.ndim, np.size: lambda x,
    axis=None: x.size if axis is None else x.shape[axis],
}  # fmt: skip


def call_function(tracer: Tracer, function: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function is called with a proxy among its arguments."""
    implementation = _FUNCTIONS.get(function)
    name = f"{getattr(function, '__module__', 'numpy').replace('numpy', 'np')}.{function.__name__}"
    if implementation is None:
        raise tracer.error(
            f"{name} has no fxlite op",
            "write it with NumPy functions that have one (fx.ops lists them), or compute it before "
            "tracing if it does not depend on the inputs",
        )
    if kwargs.get("out") is not None:
        raise tracer.error(f"{name}(out=...) cannot be traced", "use the returned value")
    try:
        return implementation(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if error.__class__ in (TypeError, ValueError):  # not one of fxlite's own, located already
            raise tracer.error(f"{name}: {error}") from error
        raise


#: Methods of ndarray that a Proxy has.
METHODS: dict[str, Callable[..., Any]] = {
    "sum": _reduction("sum"), "mean": _reduction("mean"), "prod": _reduction("prod"),
    "max": _extreme("max"), "min": _extreme("min"), "argmax": _extreme("argmax"),
    "argmin": _extreme("argmin"), "any": _extreme("any"), "all": _extreme("all"), "cumsum": cumsum,
    "var": var, "std": std, "reshape": reshape, "transpose": transpose, "swapaxes": swapaxes,
    "ravel": ravel, "flatten": ravel, "squeeze": squeeze, "clip": clip, "take": take,
    "repeat": repeat, "round": round_, "astype": astype, "copy": copy, "dot": dot,
}  # fmt: skip
