"""Loop vectorization: loops whose iterations do not depend on each other become operations on whole arrays.

Before::

    for i in range(0, n):
        take: f32[8] = ops.take(x, i)
        matmul: f32[4] = take @ w
        index_update: f32[n,4] = ops.index_update(out, matmul, (i,), at=(None,))
        out = index_update

After::

    matmul: f32[n,4] = x @ w

A nest of loops is rewritten in one step. Each value inside gets a leading axis for each loop that it depends on, as
in vectorizing maps (``jax.vmap``), and the elements that iterations write at their own places become one write of
all. Reads at positions that are sums of iteration numbers (``x[i + 1]``, ``x[i:i + 3]``) become a slice, or a look-up
at an array of positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import SubGraph, bodies_of
from fxlite.ops.indexing import parts_of_update
from fxlite.ops.op import Op, lookup, normalize_axes, normalize_axis
from fxlite.passes.base import graph_pass, refuse
from fxlite.passes.inside import control_nodes, edit_bodies
from fxlite.passes.rewrite.rewire import Rewiring
from fxlite.passes.rewrite.rule import is_call
from fxlite.passes.rules.decompose import Recorder
from fxlite.tracing.nonempty import guards_of_call
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.selections.spans import counting
from fxlite.types import shapes
from fxlite.types.guards import Guard
from fxlite.types.shapes import Dim, decide
from fxlite.types.tensor_type import TensorType


@graph_pass(exactness="allclose", inside=None)
def vectorize_loops(gm: GraphModule) -> None:
    """Turn loops whose iterations do not depend on each other into operations on whole arrays.

    An iteration may read values that no iteration writes, and the element that it writes itself, before it does. It
    must write at a place of its own: ``out[i] = ...``, ``out[:, i, 2 * j] = ...``. A loop stays, with a line in the
    ledger, if its number of iterations is computed or may be negative, if a bound changes from one iteration to the
    next (a loop visits only what lies between the bounds), if a call has no form for many iterations, or if values of
    all iterations would have to be held: beside elementwise calls there may be one reduction or product. Bounds may
    change if what is written within them is a product: ``out[i, i:] = out[i:, i] = x[i] @ x[i:].T`` is computed whole,
    as one product of matrices, which takes less time than half of it row by row.
    """
    _vectorize(gm, gm.graph.guards)
    edit_bodies(gm, lambda body: _vectorize(body, gm.graph.guards))  # the bodies of loops that stay


def _vectorize(gm: GraphModule, guards: Sequence[Guard]) -> None:
    recorder, rewiring = Recorder(gm), Rewiring(gm.graph)
    for node in control_nodes(gm.graph):
        rewiring.refresh(node)
        if node.target is not lookup("fori_loop"):
            continue
        try:
            results = recorder.run(node, _Nest(recorder, guards, node).results)
        except (_Stays, FxliteError) as reason:
            refuse(gm, "vectorize_loops", node, str(reason).splitlines()[0], [node])
            continue
        rewiring.replace(node, results)
        for user in list(node.users):
            rewiring.take_element(user)
    rewiring.finish()


class _Stays(Exception):
    """Raised with the reason why a loop stays as it is."""


@dataclass(frozen=True, eq=False)
class _Loop:
    """A loop of a nest: its number runs from ``first``, ``count`` times. ``depth`` counts the loops around it."""

    depth: int
    first: Dim
    count: Dim


@dataclass(frozen=True)
class _Places:
    """Integers equal to ``start``, plus ``steps`` times the positions in loops (which count from 0), plus ``own``
    times the position along the value's only axis, of ``size`` elements. If ``own`` is None, the value is a number."""

    start: Dim
    steps: Mapping[_Loop, int] = field(default_factory=dict)
    own: int | None = None
    size: Dim = 1

    def plus(self, other: _Places, times: int = 1) -> _Places | None:
        if self.own is not None and other.own is not None:
            return None
        steps = dict(self.steps)
        for loop, step in other.steps.items():
            steps[loop] = steps.get(loop, 0) + times * step
        steps = {loop: step for loop, step in steps.items() if step}
        axis = self if other.own is None else other
        own = axis.own if other.own is None or axis.own is None else times * axis.own
        return _Places(shapes.normalize(self.start + times * other.start), steps, own, axis.size)

    def bounds(self) -> tuple[Dim, Dim]:
        """The least and the largest of the integers, if there are any."""
        low = high = self.start
        parts = [(step, loop.count) for loop, step in self.steps.items()]
        for step, count in [*parts, *([] if self.own is None else [(self.own, self.size)])]:
            if step > 0:
                high = high + step * (count - 1)
            else:
                low = low + step * (count - 1)
        return shapes.normalize(low), shapes.normalize(high)


@dataclass(frozen=True)
class _Value:
    """A value of the iterations of some ``loops``, outermost first: their axes come first, then its own."""

    proxy: Any
    loops: tuple[_Loop, ...] = ()
    places: _Places | None = None

    @property
    def sizes(self) -> tuple[Dim, ...]:
        return tuple(self.proxy.type.shape)

    @property
    def rank(self) -> int:
        """The rank of the value in one iteration."""
        return len(self.sizes) - len(self.loops)


@dataclass(frozen=True)
class _Bound:
    """Which elements along its only axis an iteration visits: those at the position of a loop plus ``distance`` and
    after it, or (not ``from_there``) those up to there. ``mask`` is true for them."""

    mask: _Value
    loop: _Loop
    distance: int
    from_there: bool


#: Attributes that count axes, give all sizes, or order all axes.
_AXES = {"axis", "shape", "axes"}
#: Where an array is written or read: for each loop the axis, the start and the step of its places.
_At = Mapping[_Loop, tuple[int, Dim, int]]


@dataclass(frozen=True)
class _Target:
    """An array that a loop carries, and what is written into it: the array before the loops, and the places where
    it was read."""

    number: int
    whole: Any
    reads: list[_At]
    writes: tuple[_Write, ...] = ()


@dataclass(frozen=True)
class _Element:
    """A part of a target, read at the places of some loops but perhaps not yet of all: ``axes`` are the remaining
    axes, and ``taken`` says how the others are indexed."""

    target: _Target
    axes: tuple[int, ...]
    taken: tuple[tuple[int, _Value], ...] = ()


@dataclass(frozen=True)
class _Bounded:
    """``values`` within a bound, and elsewhere what an array has at a place."""

    bound: _Bound
    values: _Value
    element: _Element


@dataclass(frozen=True)
class _Write:
    """A write into a carried array: its place, the parts for all axes (one for each loop), and the values; within a
    ``bound`` only, if there is one."""

    at: _At
    parts: tuple[Any, ...]
    values: _Value
    bound: _Bound | None = None

    def meets(self, other: _Write) -> bool:
        """Whether two iterations, of which this one writes a part of a row and the other a part of a column, may
        write the same element."""
        one, two = self.bound, other.bound
        if one is None or two is None or one.loop is not two.loop or one.from_there != two.from_there:
            return True
        (axis, start, step), (other_axis, other_start, other_step) = self.at[one.loop], other.at[one.loop]
        if len(self.parts) != 2 or axis == other_axis or (step, other_step) != (1, 1):
            return True
        # Positions p and q of the loop: start + p >= q + two.distance, and other_start + q >= p + one.distance.
        apart, other_apart = shapes.normalize(two.distance - start), shapes.normalize(one.distance - other_start)
        if type(apart) is not int or type(other_apart) is not int:
            return True
        total = apart + other_apart if one.from_there else -apart - other_apart
        return total < 0 or (total == 0 and apart != 0)


_CHANGING_BOUNDS = "it tells which elements lie between bounds that change"


class _Nest:
    """Converts the loops of one nest into operations."""

    def __init__(self, recorder: Recorder, guards: Sequence[Guard], node: Node) -> None:
        self.recorder, self.guards, self.node = recorder, guards, node
        self.loops: list[_Loop] = []
        self.totals = 0  # reductions and products that have the axis of a loop
        self.products = 0  # products of matrices among them
        self.is_bounded = False  # whether something is written within bounds that change

    def results(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results of the outermost loop, as proxies."""
        outside = [
            _Value(value, (), None if (size := _size(node)) is None else _Places(size))
            for value, node in zip(arguments.get("captured", ()), self.node.arguments.get("captured", ()))
        ]
        targets = [_Target(n, value, []) for n, value in enumerate(arguments.get("carried", ()))]
        bounds = [_size(self.node.arguments[name]) for name in ("lower", "upper")]
        made = self._loop(self.node.kwargs["body_fn"], bounds, targets, outside)
        if self.is_bounded and not self.products:
            raise _Stays(_CHANGING_BOUNDS)
        return tuple(self._written(target) for target in made)

    # -- loops -------------------------------------------------------------------------------------
    def _loop(self, body: SubGraph, bounds: Sequence[Any], targets: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
        """The targets after the writes of all iterations of a loop."""
        first, last = bounds
        if first is None or last is None:
            raise _Stays("its number of iterations is computed")
        count = shapes.normalize(last - first)
        if decide(count, ">=", 0, self.guards) is not True:
            raise _Stays(f"its number of iterations, {count}, may be negative")
        loop = _Loop(len(self.loops), first, count)
        self.loops.append(loop)
        number = counting(self.recorder, count)
        number = number if type(first) is int and first == 0 else number + self._number(first)
        env: dict[Node, Any] = {body.inputs[0]: _Value(number, (loop,), _Places(first, {loop: 1}))}
        env.update(zip(body.inputs[1:], [*targets, *outside]))
        for call in body.calls:
            env[call] = self._call(call, env)
        self.loops.pop()
        made = [env[result] for result in body.results]
        for before, after in zip(targets, made):
            if not isinstance(after, _Target) or after.number != before.number:
                raise _Stays("an iteration reads what the one before computed")
        return made

    def _number(self, size: Dim) -> Any:
        return size if type(size) is int else self.recorder.size(size)

    def _nested(self, call: Node, env: Mapping[Node, Any]) -> Any:
        if call.target is not lookup("fori_loop"):
            raise _Stays(f"{call.target.name} inside of it depends on values")
        targets = [env[node] for node in call.arguments.get("carried", ())]
        if not all(isinstance(target, _Target) for target in targets):
            raise _Stays(f"the loop {call.name} inside of it computes a value from iteration to iteration")
        outside = [env[node] for node in call.arguments.get("captured", ())]
        bounds = []
        for name in ("lower", "upper"):
            given = call.arguments[name]
            places: _Places | None = _Places(given) if type(given) is int else getattr(env[given], "places", None)
            bounds.append(None if places is None or places.steps or places.own is not None else places.start)
        (body,) = bodies_of(call).values()
        return tuple(self._loop(body, bounds, targets, outside))

    # -- calls -------------------------------------------------------------------------------------
    def _call(self, call: Node, env: Mapping[Node, Any]) -> Any:
        """The value of a call in all iterations."""
        op: Op = call.target
        if op.kind == "control":
            return self._nested(call, env)
        arguments = op.map_tensors(lambda v: env[v] if isinstance(v, Node) else v, dict(call.arguments))
        operands = list(op.tensors(arguments))
        if op.name == "getitem" and isinstance(operands[0], tuple):
            return operands[0][arguments["index"]]
        if isinstance(arguments.get("x"), _Target) and op.writes_part:
            return self._write(call, arguments, env)
        if op is lookup("take") and isinstance(x := arguments.get("x"), (_Target, _Element)) and not self._is_whole(x):
            return self._element(arguments)
        if op is lookup("where") and isinstance(bound := arguments["condition"], _Bound):
            return self._bounded(bound, self._read(arguments["x"]), arguments["y"])
        arguments = op.map_tensors(self._read, arguments)
        operands = [v for v in op.tensors(arguments) if isinstance(v, _Value)]
        loops = self._union(operands)
        if op is lookup("take") and isinstance(arguments["index"], _Value):
            return self._take(**arguments)
        if self._may_not_run(loops) and self._may_fail(call):
            raise _Stays(f"{call.name} may fail, and would be computed where no iteration runs")
        if not loops:
            return _Value(self._record(op, arguments), (), self._places(op, arguments, call))
        if op.kind == "pointwise":
            return self._pointwise(op, arguments, operands, loops, call)
        if op.kind == "contraction":
            return self._product(op, arguments, loops)
        if op.kind in ("view", "reduction") and len(operands) == 1:
            return self._of_one(op, arguments, operands[0])
        raise _Stays(f"{op.name} has no form for many iterations")

    def _record(self, op: Op, arguments: Mapping[str, Any]) -> Any:
        """Record the call of an op; returns its proxy."""
        values = op.map_tensors(lambda v: v.proxy if isinstance(v, _Value) else v, arguments)
        return self.recorder.record(op, op.bind((), values))

    def _may_not_run(self, loops: Sequence[_Loop]) -> bool:
        """Whether one of the other loops may have no iterations."""
        others = [loop for loop in self.loops if loop not in loops]
        return any(decide(loop.count, ">=", 1, self.guards) is not True for loop in others)

    def _may_fail(self, call: Node) -> bool:
        """Whether a call may raise an error for some values and sizes that the guards allow."""
        op = call.target
        if op.kind in ("random", "opaque", "gather", "scatter") or call.is_impure():
            return True
        if op.starts_at:
            bound = call.bound
            return type(bound["x"].type.shape[bound["axis"]]) is not int
        types = op.map_tensors(lambda value: getattr(value, "type", value), call.arguments)
        return bool(guards_of_call(op, types, call.loc, self.guards))

    def _union(self, values: Sequence[_Value]) -> tuple[_Loop, ...]:
        found = {loop for value in values for loop in value.loops}
        return tuple(sorted(found, key=lambda loop: loop.depth))

    def _aligned(self, value: _Value, loops: tuple[_Loop, ...], rank: int) -> Any:
        """A value with an axis for each of the loops and ``rank`` of its own; missing axes have size 1."""
        if not value.loops and value.rank <= rank:
            return value.proxy
        sizes = value.sizes
        lead = tuple(sizes[value.loops.index(loop)] if loop in value.loops else 1 for loop in loops)
        wanted = (*lead, *(1,) * (rank - value.rank), *sizes[len(value.loops) :])
        return value.proxy if wanted == sizes else lookup("reshape")(value.proxy, wanted)

    def _pointwise(
        self, op: Op, arguments: Mapping[str, Any], operands: Sequence[_Value], loops: tuple[_Loop, ...], call: Node
    ) -> Any:
        rank = max(value.rank for value in operands)
        places = self._places(op, arguments, call)
        aligned = op.map_tensors(lambda v: self._aligned(v, loops, rank) if isinstance(v, _Value) else v, arguments)
        made = _Value(self._record(op, aligned), loops, places)
        if call.type.dtype.is_bool and any(v.places is not None and v.places.own is not None for v in operands):
            return self._bound(op, arguments, made)
        return made

    def _of_one(self, op: Op, arguments: Mapping[str, Any], value: _Value) -> _Value:
        """A view or a reduction; its attributes must also count the axes of the loops."""
        lead, rank = len(value.loops), value.rank
        given: dict[str, Any] = op.map_tensors(lambda v: v.proxy if isinstance(v, _Value) else v, arguments)
        names = _AXES & op.signature.parameters.keys()
        if not names and not op.keeps_triangle:
            raise _Stays(f"{op.name} has no form for many iterations")
        for name in names:
            known = given.get(name)
            if name == "shape":
                given[name] = (*value.sizes[:lead], *(known or ()))
                continue
            if name == "axes":  # an order of axes, which normalize_axes would sort
                given[name] = (*range(lead), *(lead + normalize_axis(axis, rank) for axis in known or ()))
                continue
            axes = range(rank) if known is None else normalize_axes(known, rank + max(op.added_axes, 0))
            moved = tuple(axis + lead for axis in axes)
            given[name] = moved[0] if type(known) is int else moved
        if op.kind == "reduction":
            self._count(op)
        if op.name == "expand":
            given["x"] = self._aligned(value, value.loops, len(given["shape"]) - lead)
        return _Value(self._record(op, given), value.loops)

    def _count(self, op: Op) -> None:
        self.totals += 1
        if self.totals > 1:
            raise _Stays(f"{op.name} is its second reduction or product: values of all iterations would be held")

    def _product(self, op: Op, arguments: Mapping[str, Any], loops: tuple[_Loop, ...]) -> _Value:
        self._count(op)
        x = arguments.get("x")
        if op.is_linear and isinstance(x, _Value) and x.loops == loops:
            others = [v for v in op.tensors(arguments) if isinstance(v, _Value) and v is not x]
            if not any(v.loops for v in others):
                return _Value(self._record(op, arguments), loops)
        if not op.is_matrix_product or op.is_linear:
            raise _Stays(f"{op.name} has no form for many iterations")
        self.products += 1
        a, b = arguments["x"], arguments["y"]
        if not b.loops and a.rank == 1 and b.rank <= 2:
            return _Value(op(a.proxy, b.proxy), loops)
        if not set(a.loops) & set(b.loops) and b.rank == 1 and len(b.loops) == 1 and a.rank + len(a.loops) <= 2:
            # rows by columns: the loop axis of b becomes the axis of the columns
            found = op(a.proxy, lookup("permute")(b.proxy, (1, 0)))
            return self._ordered(found, (*a.loops, *(None,) * (a.rank - 1), *b.loops))
        left = a.proxy if a.rank > 1 else lookup("unsqueeze")(a.proxy, -2)
        right = b.proxy if b.rank > 1 else lookup("unsqueeze")(b.proxy, -1)
        ranks = [max(v.rank, 2) for v in (a, b)]
        sides = [self._aligned(_Value(proxy, v.loops), loops, max(ranks)) for proxy, v in zip((left, right), (a, b))]
        found = op(*sides)
        if b.rank == 1:
            found = lookup("squeeze")(found, -1)
        if a.rank == 1:
            found = lookup("squeeze")(found, -2 if b.rank > 1 else -1)
        return _Value(found, loops)

    def _ordered(self, proxy: Any, axes: Sequence[_Loop | None]) -> _Value:
        """The value whose axes, given in some order, belong to loops or are its own (None)."""
        loops = tuple(sorted((loop for loop in axes if loop is not None), key=lambda loop: loop.depth))
        order = (*(axes.index(loop) for loop in loops), *(n for n, loop in enumerate(axes) if loop is None))
        moved = proxy if order == tuple(range(len(order))) else lookup("permute")(proxy, order)
        return _Value(moved, loops)

    # -- places ------------------------------------------------------------------------------------
    def _places(self, op: Op, arguments: Mapping[str, Any], call: Node) -> _Places | None:
        """What is known about integers; None if they are not sums of iteration numbers."""
        if not isinstance(call.type, TensorType) or not call.type.dtype.is_integer or call.type.rank > 1:
            return None
        if op is lookup("full"):
            return None if call.type.rank else _Places(shapes.normalize(arguments["value"]))
        if op is lookup("arange"):
            start, stop, step = (arguments.get(name, d) for name, d in (("start", 0), ("stop", None), ("step", 1)))
            start, stop = (0, start) if stop is None else (start, stop)
            return _Places(shapes.normalize(start), {}, step, call.type.shape[0]) if type(step) is int else None
        if op.symbol not in ("+", "-", "*") or call.type.dtype.numpy.itemsize < 8 or "y" not in arguments:
            return None
        sides = [arguments["x"], arguments["y"]]
        one, other = (_Places(v) if type(v) is int else getattr(v, "places", None) for v in sides)
        if one is None or other is None:
            return None
        if op.symbol != "*":
            return one.plus(other, 1 if op.symbol == "+" else -1)
        for side, factor in ((one, other), (other, one)):
            if factor.own is None and not factor.steps and type(factor.start) is int:
                return _Places(0).plus(side, factor.start)
        return None

    def _is_inside(self, places: _Places, size: Dim) -> bool:
        low, high = places.bounds()
        return decide(low, ">=", 0, self.guards) is True and decide(high + 1, "<=", size, self.guards) is True

    def _take(self, x: Any, index: _Value, axis: int = 0) -> _Value:
        """``x[..., index, ...]`` in all iterations."""
        x = x if isinstance(x, _Value) else _Value(x)
        axis = normalize_axis(axis, x.rank)
        at = axis + len(x.loops)
        places, size = index.places, x.sizes[at]
        is_inside = places is not None and self._is_inside(places, size)
        if not is_inside and self._may_not_run(self._union([x, index])):
            raise _Stays("it may read outside of an array where no iteration runs")
        if set(x.loops) & set(index.loops):
            raise _Stays("it takes elements of a value that changes with the iteration")
        new: tuple[_Loop | None, ...] = (*index.loops, *(None,) * index.rank)
        before, behind = (None,) * axis, (None,) * (x.rank - axis - 1)
        if is_inside and len(index.loops) == 1 and not index.rank:
            found = self._strided(x.proxy, at, places, index.loops[0])  # type: ignore[arg-type]
        elif is_inside and len(index.loops) == 1 and places.own == 1 and places.steps[index.loops[0]] > 0:  # type: ignore[union-attr]
            found = self._windows(x.proxy, at, places, index.loops[0])  # type: ignore[arg-type]
            return self._moved(found, (*x.loops, *before, index.loops[0], *behind, None), len(x.loops) + axis)
        else:
            found = lookup("take")(x.proxy, index.proxy, at)
        return self._ordered(found, (*x.loops, *before, *new, *behind))

    def _windows(self, x: Any, axis: int, places: _Places, loop: _Loop) -> Any:
        """The windows at the places of a loop; the axis within the windows is the last one."""
        step, end = places.steps[loop], places.bounds()[1] + 1
        part = self._part(x, axis, places.start, shapes.normalize(end), 1)
        return lookup("unfold")(part, axis, places.size, step)

    def _moved(self, proxy: Any, axes: Sequence[_Loop | None], place: int) -> _Value:
        """The value with these axes, the last of which is moved after those of loops and the own ones before it."""
        own = sum(loop is None for loop in axes[:place])
        value = self._ordered(proxy, axes)
        lead, rank = len(value.loops), value.rank
        order = [*range(lead + own), lead + rank - 1, *range(lead + own, lead + rank - 1)]
        if order == list(range(lead + rank)):
            return value
        return _Value(lookup("permute")(value.proxy, tuple(order)), value.loops)

    def _strided(self, x: Any, axis: int, places: _Places, loop: _Loop) -> Any:
        """The elements at the places of a loop, all of which are inside the axis."""
        step = places.steps[loop]
        start, end = places.start, places.start + step * (loop.count - 1)
        if step < 0:
            size = x.type.shape[axis]
            x, start, end = lookup("flip")(x, axis), size - 1 - start, size - 1 - end
        return self._part(x, axis, shapes.normalize(start), shapes.normalize(end + 1), abs(step))

    def _part(self, x: Any, axis: int, start: Dim, stop: Dim, step: int) -> Any:
        if step == 1 and start == 0 and shapes.equal(stop, x.type.shape[axis]):
            return x
        if is_call(x.node, "permute"):  # of the whole: parts of several axes then have one order, mostly none
            whole, axes = Proxy(x.node.args[0], self.recorder), x.node.arguments["axes"]
            return lookup("permute")(self._part(whole, axes[axis], start, stop, step), axes)
        return lookup("slice")(x, axis, start, stop, step)

    # -- what loops carry --------------------------------------------------------------------------
    def _element(self, arguments: Mapping[str, Any]) -> Any:
        """A carried array, read at the place of a loop."""
        x, index = arguments["x"], arguments["index"]
        part = x if isinstance(x, _Element) else _Element(x, tuple(range(x.whole.type.rank)))
        axis = normalize_axis(arguments.get("axis", 0), len(part.axes))
        if not isinstance(index, _Value) or index.rank:
            raise _Stays("it reads several elements of an array that it writes")
        left = (*part.axes[:axis], *part.axes[axis + 1 :])
        return _Element(part.target, left, (*part.taken, (part.axes[axis], index)))

    def _is_whole(self, value: Any) -> bool:
        """Whether a part of a carried array is at the places of all loops."""
        taken = value.taken if isinstance(value, _Element) else ()
        return len({loop for _, index in taken for loop in index.loops}) == len(self.loops)

    def _bound(self, op: Op, arguments: Mapping[str, Any], mask: _Value) -> _Bound:
        """The bound that a comparison of a loop's number and of the places along an axis tells."""
        ends = {"<=": 0, "<": -1, ">=": 0, ">": 1}
        sides = [_Places(v) if type(v) is int else getattr(v, "places", None) for v in arguments.values()]
        one, other = sides if len(sides) == 2 else (None, None)
        if op.symbol in ends and one is not None and other is not None and len(mask.loops) == mask.rank == 1:
            (loop,), apart = mask.loops, one.plus(other, -1)
            if apart is not None and type(apart.start) is int and apart.own in (1, -1):
                # sign * (own - position) + start is <= the end (which "<" and "<=" ask), or >= it
                sign, is_low = apart.own, op.symbol in ("<=", "<")
                if apart.steps.get(loop) == -sign:
                    return _Bound(mask, loop, sign * (ends[op.symbol] - apart.start), is_low == (sign < 0))
        raise _Stays(_CHANGING_BOUNDS)

    def _bounded(self, bound: _Bound, values: Any, old: Any) -> _Bounded:
        """What is written within a bound."""
        if not isinstance(old, _Element) or not isinstance(values, _Value) or values.rank > 1:
            raise _Stays(_CHANGING_BOUNDS)
        return _Bounded(bound, values, old)

    def _read(self, value: Any) -> Any:
        """A value that a call reads; for a carried array its value before the loops."""
        if isinstance(value, tuple):
            raise _Stays("it reads several results of a call")
        if isinstance(value, (_Bound, _Bounded)):
            raise _Stays(_CHANGING_BOUNDS)
        if not isinstance(value, (_Target, _Element)):
            return value
        if isinstance(value, _Target) or value.target.writes:
            raise _Stays("an iteration reads what others may have written")
        at: dict[_Loop, tuple[int, Dim, int]] = {}
        found, axes = _Value(value.target.whole), list(range(value.target.whole.type.rank))
        for axis, index in value.taken:
            for loop, place in self._place(axis, index).items():
                at[loop] = place
            found = self._take(found, index, axes.index(axis))
            axes.remove(axis)
        if any(loop not in at for loop in self.loops):
            raise _Stays("an iteration reads what others may have written")
        value.target.reads.append(at)
        return found

    def _place(self, axis: int, index: _Value) -> _At:
        places = index.places
        if places is None and not index.loops:
            return {}  # one place, whose index is computed
        if places is None or len(places.steps) > 1 or places.own is not None:
            raise _Stays("it writes or reads at places that are not its own")
        return {loop: (axis, places.start, step) for loop, step in places.steps.items()}

    def _write(self, call: Node, arguments: Mapping[str, Any], env: Mapping[Node, Any]) -> _Target:
        """``out[..., i, ...] = values``."""
        target, given_values = arguments["x"], arguments["values"]
        bound = given_values.bound if isinstance(given_values, _Bounded) else None
        values = self._read(given_values if bound is None else given_values.values)
        given = iter(arguments.get("positions", ()))
        at: dict[_Loop, tuple[int, Dim, int]] = {}
        parts: list[Any] = []
        for axis, part in enumerate(parts_of_update(dict(call.bound))):
            index = next(given) if part is None else None
            if not isinstance(index, _Value):
                parts.append(part if index is None else index)
                continue
            found = self._place(axis, index)
            if any(loop in at for loop in found):
                raise _Stays("it writes along a diagonal")
            at.update(found)
            if found and not self._is_inside(index.places, target.whole.type.shape[axis]):  # type: ignore[arg-type]
                raise _Stays(f"it may write outside of {call.name}")
            parts.append(next(iter(found), index))
        if any(loop not in at for loop in self.loops):
            raise _Stays("several iterations write at one place")
        if not isinstance(values, _Value):
            made = self._record(lookup("full"), {"shape": (), "value": values, "dtype": target.whole.type.dtype})
            values = _Value(made)
        if bound is not None:
            self._check_bounded(given_values.element, target, at, parts)
        write = _Write(at, tuple(parts), values, bound)
        return _Target(target.number, target.whole, target.reads, (*target.writes, write))

    def _check_bounded(self, element: _Element, target: _Target, at: _At, parts: Sequence[Any]) -> None:
        """Raise unless a write leaves what it does not write: that was read at the same place, which is one of an
        axis, and all of another."""
        read = [self._place(axis, index) for axis, index in element.taken]
        own = [(part[0], part[3]) for part in parts if isinstance(part, tuple)]
        if element.target is not target or read != [at] or len(parts) != 2 or own != [(0, 1)]:
            raise _Stays(_CHANGING_BOUNDS)
        self.is_bounded = True

    def _written(self, target: _Target) -> Any:
        """A carried array after all iterations."""
        for write in target.writes:
            apart = [at for at in target.reads if not _is_same_place(write.at, at)]
            crossing = [w for w in target.writes if not _is_same_place(write.at, w.at) and write.meets(w)]
            if apart or crossing:
                raise _Stays("iterations read or write at places of others")
        return reduce(self._update, target.writes, target.whole)

    def _update(self, x: Any, write: _Write) -> Any:
        at, parts, values = write.at, write.parts, write.values
        loops = tuple(sorted(at, key=lambda loop: loop.depth))
        sizes = [part[2] for part in parts if isinstance(part, tuple)]
        lead = [loop.count for loop in loops]
        wanted = (*lead, *sizes)

        def for_all(value: _Value) -> Any:
            found = self._aligned(value, loops, len(sizes)) if value.loops else value.proxy
            found = found if tuple(found.type.shape) == wanted else lookup("expand")(found, wanted)
            return found if order == list(range(len(order))) else lookup("permute")(found, tuple(order))

        own = iter(range(len(loops), len(wanted)))
        order: list[int] = []
        entries: list[Any] = []
        positions: list[Any] = []
        is_whole = True
        for axis, part in enumerate(parts):
            size = x.type.shape[axis]
            if isinstance(part, _Loop):
                _, start, step = at[part]
                if step < 0:
                    raise _Stays("it writes from the end to the start")
                stop = shapes.normalize(start + step * (part.count - 1) + 1)
                entries.append((shapes.normalize(start), stop, step))
                order.append(loops.index(part))
            elif isinstance(part, tuple):
                entries.append((part[0], part[1], part[3]))
                order.append(next(own))
            else:
                positions += [] if type(part) is int else [part.proxy]
                entries.append(part if type(part) is int else None)
            last = entries[-1]
            is_whole &= isinstance(last, tuple) and last[0] == 0 and last[2] == 1 and shapes.equal(last[1], size)
        proxy = for_all(values)
        if write.bound is not None:
            old = x
            for axis, (start, stop, step) in enumerate(entries):
                old = self._part(old, axis, start, stop, step)
            proxy = lookup("where")(for_all(write.bound.mask), proxy, old)
        if is_whole:
            return proxy
        if positions:
            return lookup("index_update")(x, proxy, tuple(positions), tuple(entries))
        return lookup("slice_update")(x, proxy, tuple(entries))


def _is_same_place(one: _At, other: _At) -> bool:
    """Whether both are at the same place of each loop."""
    return all(one[loop] == other[loop] for loop in one.keys() & other.keys())


def _size(value: Any) -> Dim | None:
    """A bound of a loop as a size; None if it is computed."""
    if type(value) is int:
        return value
    if isinstance(value, Node) and value.op == "call_function" and value.target is lookup("full"):
        return shapes.normalize(value.arguments["value"])
    return None


def _rows(x: Any, w: Any) -> Any:
    from fxlite.tracing.capture.control import fori_loop

    def row(i: Any, out: Any) -> Any:
        out[i] = x[i] @ w
        return out

    return fori_loop(0, 5, row, np.zeros((5, 4), np.float32))


def _running(x: Any) -> Any:
    from fxlite.tracing.capture.control import fori_loop

    def step(i: Any, out: Any) -> Any:
        out[i + 1] = out[i] * 0.5 + x[i]
        return out

    return fori_loop(0, 5, step, np.zeros(6, np.float32))


vectorize_loops.example(_rows, "one product of all rows", x="f32[5,8]", w="f32[8,4]")
vectorize_loops.counterexample(_running, "each iteration reads what the one before wrote", x="f32[5]")
