"""Ops of fxlite on selected elements: ``ops.gelu(x[mask])``, or a layer of ``fxlite.nn`` on the rows of a mask.

In: a call of an op, some of whose operands are :class:`Masked`. Out: its result for the selected elements. If an
element of the result depends only on elements at its own position along the selected axis, the op is computed for all
positions, and the same positions of its result are selected; the expression for an element tells whether this is the
case. For an op across that axis, NumPy's function (a sum, a sort) is used, or the expansion of the op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.base.facade import above
from fxlite.base.state import is_traced
from fxlite.graph.graph import Node
from fxlite.ops.op import REGISTRY, Op, TypeReader, as_multi_index, lookup, normalize_axis, type_reader
from fxlite.scalar import expr
from fxlite.scalar.index import Index
from fxlite.tracing.selections.compact import as_shape, compact
from fxlite.tracing.selections.masked import FUNCTIONS, REDUCTIONS, Masked, first_of, product, takes_none
from fxlite.tracing.selections.spans import Sum, as_number, counting, sum_of
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Kinds of ops for which the elements show which operands they are made from.
_PLAIN = ("view", "reduction", "contraction", "window", "gather", "scan", "composite")
#: The place of a selection among the operands of an op: the operand's name, and the position if it is a list.
_Place = tuple[str, int]


def applied(tracer: Tracer, op: Op, bound: dict[str, Any]) -> Any:
    """The result of an op for operands some of which are selected. Raises TraceError if it needs their number."""
    first = next(v for v in op.tensors(bound) if type(v) is Masked)
    if op.kind == "pointwise":
        names = [name for name in op.tensor_kinds if name in bound]
        return first._applied(lambda *v: op(**{**bound, **dict(zip(names, v))}), tuple(bound[n] for n in names))
    if first.mask.ndim > 1:
        bound = op.map_tensors(lambda v: compact(v) if type(v) is Masked else v, bound)
        first = next(v for v in op.tensors(bound) if type(v) is Masked)
    if op is lookup("reshape"):
        return _reshaped(first, bound["shape"])
    for way in (_position_by_position, _in_order, _across):
        found = way(tracer, op, bound, first)
        if found is not None:
            return found
    if op.has_expansion:
        token = takes_none.set(not op.needs_elements)
        try:
            return op.expand(op.with_defaults(bound))
        finally:
            takes_none.reset(token)
    raise first.refusal(f"{op.name} along the axis that is selected")


def _of_positions(op: Op, *operands: Any) -> Any:
    """An op on operands with the same selection. Raises TraceError if it works across that axis, or combines the
    selection with the whole axis."""
    first = next(v for v in operands if type(v) is Masked)
    found = _position_by_position(first.tracer, op, op.bind(operands, {}), first)
    if found is None:
        raise first.refusal(f"{op.name} of it and elements selected otherwise, or a whole axis")
    return found


# -- position by position ----------------------------------------------------------------------------
def _position_by_position(tracer: Tracer, op: Op, bound: dict[str, Any], first: Masked) -> Any:
    """The op computed for all positions, with its result selected; None if one position depends on others."""
    if op.kind not in _PLAIN:
        return None
    if not all(v.same(first) for v in op.tensors(bound) if type(v) is Masked):
        bound = op.map_tensors(lambda v: compact(v) if type(v) is Masked else v, bound)
        first = next(v for v in op.tensors(bound) if type(v) is Masked)
        if not all(v.same(first) for v in op.tensors(bound) if type(v) is Masked):
            return None
    count = sum_of(tracer, first.count)
    size = shapes.for_user(first.values.type.shape[first.before])

    def in_bounds(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(in_bounds, value))
        return size if is_traced(value) and sum_of(tracer, value).same(count) else value

    whole, axes = {n: v if n in op.tensor_kinds else in_bounds(v) for n, v in bound.items()}, {}
    looked_up = op.looks_up[0] if op.looks_up else ""
    for name in op.tensor_kinds:
        given = whole.get(name)
        several = isinstance(given, (tuple, list))
        values = list(given) if several else [given]  # type: ignore[arg-type]
        for place, value in enumerate(values):
            if type(value) is Masked:
                axes[name, place] = value.before
                values[place] = value.filled(0) if name == looked_up else value.values
        if name in whole:
            whole[name] = tuple(values) if several else values[0]
    types = op.map_tensors(_type_or_number, whole)
    if any(is_traced(v) for n, v in whole.items() if n not in op.tensor_kinds) or None in op.tensors(types):
        return None
    found = _axes_of_results(op, types, axes)
    if found is None:
        return None
    results = op(**whole)
    several = isinstance(results, (tuple, list))
    made = [first.like(r, r.ndim - axis - 1) for r, axis in zip(results if several else (results,), found)]
    return tuple(made) if several else made[0]


def _type_or_number(value: Any) -> Any:
    if isinstance(value, dtypes.NUMBERS):
        return value
    if isinstance(value, shapes.NamedDim):
        return TensorType((), dtypes.int64)
    return value.type if isinstance(value, Node) or is_traced(value) else type_of(np.asarray(value))


def _axes_of_results(op: Op, types: Mapping[str, Any], axes: Mapping[_Place, int]) -> list[int] | None:
    """For each result, the axis along which its element at a position depends only on elements of the operands at the
    same position of their ``axes``; None if a result has no such axis."""
    if op.has_body:
        axis = _axis_of_element(op, types, axes)
        return None if axis is None else [axis]
    if op.needs_whole:
        axis = _axis_beside_whole(op, types, axes)
        return None if axis is None else [axis]
    return _axes_of_expansion(op, types, axes) if op.has_expansion else None


def _axis_of_element(op: Op, types: Mapping[str, Any], axes: Mapping[_Place, int]) -> int | None:
    result = op.result_type(types)
    places = tuple(Index.of(expr.fresh_var(d)) for d in result.shape)
    readers: dict[str, Any] = dict(types)
    names: dict[str, int] = {}

    def reader(value: Any, place: _Place) -> Any:
        return _Named(value, f"{place[0]}:{place[1]}") if isinstance(value, TensorType) else type_reader(value)

    for name in op.tensor_kinds:
        value = types.get(name)
        if isinstance(value, (tuple, list)):
            readers[name] = tuple(reader(v, (name, n)) for n, v in enumerate(value))
        elif value is not None:
            readers[name] = reader(value, (name, 0))
    names = {f"{name}:{place}": axis for (name, place), axis in axes.items()}
    parts = list(expr.walk(op.element(places, readers)))
    loads = [part for part in parts if isinstance(part, expr.Load)]
    found = {load.index[names[load.buffer]] for load in loads if load.buffer in names}
    if len(found) != 1 or not found.issubset(places):
        return None
    axis = places.index(next(iter(found)))
    size = next(iter(axes.items()))
    if not shapes.equal(result.shape[axis], _type_at(types, size[0]).shape[size[1]]):
        return None
    elsewhere = [i for load in loads for n, i in enumerate(load.index) if names.get(load.buffer) != n]
    elsewhere += [part.index for part in parts if isinstance(part, expr.IndexValue)]
    own = places[axis].variables()
    return None if any(own & i.variables() for i in elsewhere) else axis


def _type_at(types: Mapping[str, Any], place: _Place) -> Any:
    found = types[place[0]]
    return found[place[1]] if isinstance(found, (tuple, list)) else found


class _Named(TypeReader):
    """Reads an operand that has only a type and a name."""

    def __init__(self, type: TensorType, name: str) -> None:
        super().__init__(type)
        self.name = name

    def __getitem__(self, index: Any) -> expr.Expr:
        return expr.Load(self.dtype, self.name, as_multi_index(index))


def _axis_beside_whole(op: Op, types: Mapping[str, Any], axes: Mapping[_Place, int]) -> int | None:
    """The axis of the result for an op that needs some axes whole: the other axes keep their order in the result, with
    the same numbers if the ranks are equal, else as the first ones."""
    result = op.result_type(types)
    if isinstance(result, tuple):
        return None
    found = set()
    for name in op.tensor_kinds:
        value = types.get(name)
        if not isinstance(value, TensorType):
            continue
        named: Any = op.needs_whole.get(name, ())
        named = types.get(named, op.defaults.get(named)) if isinstance(named, str) else named
        named = range(value.rank) if named is None else named if isinstance(named, (tuple, list, range)) else (named,)
        whole = {normalize_axis(a, value.rank) for a in named}
        own = axes.get((name, 0))
        if own is None and len(whole) < value.rank:  # it has an axis that may be aligned with the selected one
            return None
        if own is not None:
            if own in whole:
                return None
            found.add(own if value.rank == result.rank else own - sum(a < own for a in whole))
    return found.pop() if len(found) == 1 else None


def _axes_of_expansion(op: Op, types: Mapping[str, Any], axes: Mapping[_Place, int]) -> list[int] | None:
    """Like :func:`_axes_of_results`, from the calls in the expansion of the op."""
    try:
        graph, inputs, results = above("traced_call")(lambda **given: op.expand(given), op, types)
    except FxliteError:
        return None
    placeholders = iter(inputs)
    known: dict[Node, list[int]] = {}
    for name in op.tensor_kinds:
        value = types.get(name)
        for place, one in enumerate(shapes.as_tuple(value)):
            if isinstance(one, TensorType):
                node = next(placeholders)
                if (name, place) in axes:
                    known[node] = [axes[name, place]]
    for node in graph.nodes:
        operands = [n for n in node.all_input_nodes if n in known]
        if node.op != "call_function" or not operands:
            continue
        inner, taken = node.bound, {}
        if node.target is lookup("getitem"):
            known[node] = [known[operands[0]][inner["index"]]]
            continue
        for name in node.target.tensor_kinds:
            given = inner.get(name)
            for place, value in enumerate(shapes.as_tuple(given)):
                if value in known:
                    taken[name, place] = known[value][0]
        found = _axes_of_results(node.target, node.target.map_tensors(_type_or_number, inner), taken)
        if found is None:
            return None
        known[node] = found
    made = [known.get(result) for result in (results if isinstance(results, tuple) else (results,))]
    return None if None in made else [m[0] for m in made]  # type: ignore[index]


# -- across the axis ---------------------------------------------------------------------------------
def _across(tracer: Tracer, op: Op, bound: dict[str, Any], first: Masked) -> Any:
    """The result of NumPy's function for the op, if there is one for selected elements; else None."""
    if op is lookup("matmul"):
        return product(*op.tensors(bound))
    x = bound.get("x")
    if op.looks_up and op.kind == "gather" and type(x) is Masked and not x.before and not bound.get("axis", 0):
        return x[bound["index"]] if op is lookup("take") or x.ndim == 1 else None
    function = _in_numpy(op)
    if function is None:
        return None
    given = op.with_defaults(bound)
    values = [given.pop(name) for name in op.tensor_kinds]
    return first._reduced(function, **given) if function in REDUCTIONS else FUNCTIONS[function](*values, **given)


def _in_numpy(op: Op) -> Callable[..., Any] | None:
    """NumPy's function for an op, if it is supported for selected elements."""
    names = {op.name, op.numpy.partition(" ")[0].removeprefix("np.").removeprefix(".")}
    functions = (getattr(np, name, None) for name in sorted(names) if name)
    return next((f for f in functions if f is not None and (f in REDUCTIONS or f in _GIVEN)), None)


def _in_order(tracer: Tracer, op: Op, bound: dict[str, Any], first: Masked) -> Any:
    """The result of an op that keeps the order of the elements, as a reshape; None for other ops."""
    if not op.keeps_order:
        return None
    shape = op.result_type(op.map_tensors(lambda m: m.values.type, bound)).shape
    before = shapes.product(first.values.type.shape[: first.before])
    axis = next((n for n in range(len(shape)) if shapes.equal(shapes.product(shape[:n]), before)), None)
    return None if axis is None else _reshaped(first, (*shape[:axis], -1, *shape[axis + 1 :]))


def _reshaped(m: Masked, shape: Any) -> Any:
    """A selection in another shape: the axes before the selected one stay; those after it may change, or become parts
    of it. If no axis of the shape is computed, the result is an ordinary array."""
    tracer, sizes = m.tracer, m.values.type.shape
    computed = [n for n, s in enumerate(shape) if is_traced(s) or (type(s) is int and s == -1)]
    before = shapes.product(sizes[: m.before])
    what = f"reshape to ({', '.join('a computed size' if is_traced(s) else str(s) for s in shape)})"
    if len(computed) > 1 and m.ndim == 1:
        return as_shape(m, shape)
    if not computed and (rows := _exact_quotient(shapes.product(shape), before, *sizes[m.before + m.mask.ndim :])):
        return _as_whole(m, rows, shape)
    if len(computed) != 1:
        raise m.refusal(what, "give -1 for the one axis whose size is computed")
    axis = computed[0]
    behind, inner = shapes.product(shape[axis + 1 :]), shapes.product(sizes[m.before + 1 :])
    ratio = shapes.normalize(inner) / shapes.normalize(behind) if behind != 0 else 0
    if not shapes.equal(shapes.product(shape[:axis]), before) or ratio != int(ratio):
        raise m.refusal(what, "keep the selected axis in its place, or make it longer")
    ratio, wanted = int(ratio), shape[axis]
    if is_traced(wanted) and not sum_of(tracer, wanted).same(Sum((), 0).plus(sum_of(tracer, m.count), ratio)):
        raise m.refusal(f"{what}, of another number of elements", "give -1 for its size")
    if ratio > 1:
        m = compact(m)
    long = shapes.for_user(shapes.normalize(m.values.type.shape[m.before] * ratio))
    values = lookup("reshape")(m.values, (*shape[:axis], long, *shape[axis + 1 :]))
    after = len(shape) - axis - 1
    return m.like(values, after) if ratio == 1 else first_of(values, m.count * ratio, after)


def _exact_quotient(size: Dim, *divisors: Dim) -> Dim | None:
    """A size without these factors; None if they are not known to divide it."""
    factor = shapes.normalize(shapes.product(divisors))
    found = shapes.normalize(size) // factor if factor != 0 else None
    return found if found is not None and shapes.equal(shapes.normalize(found * factor), size) else None


def _as_whole(m: Masked, rows: Dim, shape: Any) -> Any:
    """The selected elements, of which there must be ``rows``, as an array of a known shape."""
    m, tracer = compact(m), m.tracer
    size = m.values.type.shape[m.before]
    places = lookup("minimum")(counting(tracer, rows), shapes.for_user(size) - 1)
    found = lookup("reshape")(lookup("take")(m.values, places, axis=m.before), tuple(shape))
    is_other = lookup("ne")(m.count, as_number(tracer, shapes.for_user(rows)))
    text = ", ".join(map(str, shape))
    return tracer.unless(found, is_other, ValueError(f"cannot reshape the selected elements into shape ({text})"))


# -- NumPy's functions that move axes ----------------------------------------------------------------
def _moved(function: Callable[..., Any]) -> Callable[..., Masked]:
    def call(a: Masked, *args: Any, **named: Any) -> Masked:
        marked = function(np.broadcast_to(0, range(a.ndim)), *args, **named)  # the size of each axis is its number
        return lookup("permute")(a, marked.shape)  # type: ignore[no-any-return]

    return call


def _roll(a: Masked, shift: Any, axis: Any = None) -> Any:
    if axis is None and a.ndim > 1:
        raise a.refusal("np.roll of all elements", "say along which axis: np.roll(x, shift, axis)")
    if axis is not None and not isinstance(axis, tuple) and normalize_axis(axis, a.ndim) != a.before:
        return lookup("roll")(a, shift, axis)
    if isinstance(axis, tuple):
        raise a.refusal("np.roll along several axes", "roll along one after the other")
    m = compact(a)
    places = counting(a.tracer, m.values.type.shape[m.before]) - shift
    places = places % lookup("maximum")(m.count, 1)
    return first_of(lookup("take")(m.values, places, axis=m.before), m.count, m.after)


def _expand_dims(a: Masked, axis: Any) -> Any:
    axes = shapes.as_tuple(axis)
    for each in sorted(normalize_axis(one, a.ndim + len(axes)) for one in axes):
        a = lookup("unsqueeze")(a, each)
    return a


def _squeeze(a: Masked, axis: Any = None) -> Any:
    if axis is None:
        raise a.refusal("np.squeeze without axis=", "say which axes go: np.squeeze(x, axis=0)")
    for each in sorted((normalize_axis(one, a.ndim) for one in np.atleast_1d(axis)), reverse=True):
        a = lookup("squeeze")(a, each)
    return a


def _reshape(a: Masked, shape: Any, order: Any = "C") -> Any:
    if order != "C":
        raise a.refusal(f"np.reshape with order={order!r}")
    return lookup("reshape")(a, shapes.as_tuple(shape))


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
    first = a if isinstance(a, Masked) else indices
    if out is not None or mode != "raise":
        raise first.refusal("np.take with out= or mode=")
    return lookup("take")(a.reshape(-1), indices, axis=0) if axis is None else lookup("take")(a, indices, axis=axis)


def _split(ary: Masked, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    size = ary.shape[axis]
    if type(size) is not int:
        raise ary.refusal("np.split along the axis that is selected")
    parts = np.split(np.arange(size), indices_or_sections)
    return list(lookup("split")(ary, tuple(map(len, parts)), normalize_axis(axis, ary.ndim)))


def _method(function: Callable[..., Any], several: bool) -> Callable[..., Any]:
    def call(self: Masked, *args: Any, **named: Any) -> Any:
        if several and args and not isinstance(args[0], (tuple, list)) and args[0] is not None:
            args = (args,)
        return function(self, *args, **named)

    return call


#: Functions that are defined for selections, before those of ops are added.
_GIVEN = frozenset(FUNCTIONS)
FUNCTIONS |= {
    **{getattr(np, o.numpy.split()[0][3:], None): o for o in REGISTRY.values() if o.numpy.startswith("np.")},
    **FUNCTIONS,
    "of positions": _of_positions,
    **{f: _moved(f) for f in (np.transpose, np.swapaxes, np.moveaxis, np.rollaxis)},
    np.expand_dims: _expand_dims,
    np.roll: _roll,
    np.squeeze: _squeeze,
    np.split: _split,
    np.reshape: _reshape,
    np.ravel: lambda a, order="C": _reshape(a, -1, order),
    np.take: _take,
    np.broadcast_to: lambda array, shape, subok=False: lookup("expand")(array, tuple(shape)),
}
#: Functions for which NumPy makes views.
_VIEWS = (np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.expand_dims, np.squeeze, np.reshape, np.ravel)


def _viewed(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(m: Masked, *args: Any, **named: Any) -> Any:
        return m.as_part(function(m, *args, **named), lambda other: function(other, *args, **named))

    return call


Masked.flatten = _method(FUNCTIONS[np.ravel], False)  # type: ignore[attr-defined]
FUNCTIONS |= {function: _viewed(FUNCTIONS[function]) for function in _VIEWS}
for _called in (np.transpose, np.swapaxes, np.squeeze, np.reshape, np.ravel, np.take):
    setattr(Masked, _called.__name__, _method(FUNCTIONS[_called], _called in (np.transpose, np.reshape)))
