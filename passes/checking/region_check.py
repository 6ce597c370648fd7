"""Running a region: both sides on random inputs, and the first result that breaks a promise.

In: a region, its two sides and the promise. Out: an :class:`Outcome`: the first disagreement with
the inputs that show it, or the reason why the region could not be run. The reference functions of
ops are called directly; no code is generated. Inputs come from a list of :class:`Draw`, each a choice
of sizes and of values, made from the types of the region's inputs and the numbers that occur in its
attributes and weights; they are the same in every run.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.base.state import most_iterations
from fxlite.graph.graph import Node, map_nodes
from fxlite.graph.subgraph import bodies_of
from fxlite.passes.checking.changed_region import AnyCall, Half, Key, Region, Side
from fxlite.scalar.functions import complex_of
from fxlite.show.node_cost import longest_chain
from fxlite.types import shapes
from fxlite.types.agreement import USUAL, Agreement, Exactness, compare
from fxlite.types.shapes import symbols
from fxlite.types.tensor_type import TensorType

# -- inputs ----------------------------------------------------------------------------------------
Array = np.ndarray[Any, Any]

#: Fixed sizes up to this are not made smaller.
SMALL = 12
#: The most telling first: a small array has room for some of them.
_SPECIAL = (np.nan, -np.inf, -0.0, np.inf, 0.0, 1e-40, -1e-310)


@dataclass(frozen=True)
class Draw:
    """A choice of inputs: the sizes ``dims`` of the named dims, of the ``sort`` "odd", "large", "one" or
    "zero"; smaller sizes to use ``instead`` of large fixed ones; and the kind of ``values``: "normal",
    "positive", or "special" (NaN, infinities, zeros of both signs and denormal numbers among normal
    ones). With ``positions`` integers are small and not negative, as positions are."""

    sort: str
    dims: Mapping[str, int]
    values: str
    instead: Mapping[int, int] = field(default_factory=dict)
    positions: bool = False

    def concrete(self, type: TensorType) -> TensorType:
        """The type with these sizes."""
        shape = [self.instead.get(d, d) if d.__class__ is int else shapes.substitute(d, self.dims) for d in type.shape]
        return TensorType(tuple(shape), type.dtype)

    def is_like(self, other: Draw) -> bool:
        """Whether both choose the same kinds of sizes and values."""
        return (self.sort, self.values) == (other.sort, other.values)

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.dims.items())
        smaller = ", ".join(f"{new} for {old}" for old, new in self.instead.items())
        parts = [sizes, f"sizes {smaller}" if smaller else ""]
        parts.append("" if self.values == "normal" else f"{self.values} values")
        return "; ".join(p for p in parts if p)


def draws(types: Collection[Any], names: Iterable[str], special: bool) -> list[Draw]:
    """The draws that a region is tried with, the most revealing first: named dims odd and different;
    NaN, infinities and the limits of integers if ``special``; all dims 1; one of the first three dims
    0; dims large and different. If facts about a dim exclude such a size, the nearest one is taken."""
    names = sorted(names)
    known = {s.name: s.facts for t in _tensors(types) if names for s in symbols.fact_symbols(t.shape)}

    def nearest(sizes: Mapping[str, int]) -> dict[str, int]:
        return {n: known[n].nearest(size) if n in known else size for n, size in sizes.items()}

    odd = nearest({name: 3 + 2 * i for i, name in enumerate(names)})
    large = nearest({name: 10 + 3 * i for i, name in enumerate(names)})
    made = [Draw("odd", odd, "normal")]
    if special and any(not t.dtype.is_bool for t in _tensors(types)):
        made.append(Draw("large", large, "special"))
    if names:
        made.append(Draw("one", nearest(dict.fromkeys(names, 1)), "normal"))
        empty = [name for name in names[:3] if nearest({name: 0})[name] == 0]
        made += [Draw("zero", {**odd, name: 0}, "normal") for name in empty]
    return [*made, Draw("large", large, "positive")]


def _tensors(types: Iterable[Any]) -> list[TensorType]:
    return [t for t in _flat(tuple(types)) if isinstance(t, TensorType)]


def smaller_sizes(types: Iterable[Any], fixed: set[int], smallest: int) -> dict[int, int]:
    """Odd sizes, from ``smallest`` up, that replace large ones; sizes in ``fixed`` are kept."""
    large = {d for t in _tensors(types) for d in t.shape if d.__class__ is int and d > SMALL}
    free = iter(range(smallest, 10_000, 2))
    return {d: next(n for n in free if n not in fixed) for d in sorted(large - fixed)}


def arrays(types: Mapping[Any, Any], draw: Draw, seed: int = 0) -> dict[Any, Any]:
    """An array for each type, under the same key; a tuple for a value that consists of several arrays."""
    generator = np.random.default_rng(seed)
    return {key: _value(type, draw, generator) for key, type in types.items()}


def _value(type: Any, draw: Draw, generator: np.random.Generator) -> Any:
    if isinstance(type, tuple):
        return tuple(_value(t, draw, generator) for t in type)
    concrete = draw.concrete(type)
    shape, dtype = concrete.shape, concrete.dtype
    if dtype.is_complex:
        parts = (_value(TensorType(shape, dtype.real), draw, generator) for _ in range(2))
        return complex_of(*parts)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return _integers(shape, dtype.numpy, draw, generator)
    if draw.values == "positive":
        return generator.uniform(0.1, 2.0, shape).astype(dtype.numpy)
    values = np.asarray(generator.standard_normal(shape))
    if draw.values == "special" and values.size:
        flat = values.reshape(-1)
        places = generator.permutation(flat.size)[: len(_SPECIAL)]
        flat[places] = _SPECIAL[: len(places)]
        values = flat.reshape(shape)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def _integers(shape: Any, dtype: Any, draw: Draw, generator: np.random.Generator) -> Array:
    if draw.positions:
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    limits = np.iinfo(dtype)
    values = np.asarray(generator.integers(max(limits.min, -9), 10, shape))
    wide = generator.integers(max(limits.min, -30_000), min(limits.max, 30_000), shape)
    values = np.where(generator.random(shape) < 0.75, values, wide).astype(dtype)
    if draw.values == "special" and values.size:
        flat = values.reshape(-1)
        flat[: min(2, flat.size)] = (limits.max, limits.min)[: flat.size]
        values = flat.reshape(shape)
    return values


# -- running ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Disagreement:
    """Inputs on which the two sides of a region differ, and where."""

    region: Region
    draw: Draw
    inputs: Mapping[Key, Any]
    pair: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """What running a region showed: a disagreement, or the ``reason`` why it could not be run; if
    neither is given, the sides agree. ``work`` is about the number of elements computed."""

    disagreement: Disagreement | None
    reason: str
    work: float

    @property
    def agrees(self) -> bool:
        return self.disagreement is None and not self.reason


#: What NumPy says of max and min over no elements. Expansions may take one where the op itself has
#: an answer (attention to no keys), so at size 0 this says nothing about the pass.
_EMPTY = "zero-size array to reduction operation"


class CannotRun(Exception):
    """These inputs prove nothing, because the program before the change does not run on them either."""


def check_region(
    before: Side, after: Side, region: Region, promise: Exactness, at_least: float, budget: float
) -> Outcome:
    """Run both sides on one draw after another until they disagree. A draw on which the side before
    raises proves nothing; one on which only the side after raises is a disagreement.

    The first draw may take ``at_least`` operations, all draws together ``budget``."""
    types = {key: node.type for key, node in region.inputs.items()}
    if not all(isinstance(t, TensorType) for type in types.values() for t in _flat(type)):
        return Outcome(None, "an input has no type", 0.0)
    for side, call in _calls(before, after, region):
        if call.op == "get_attr" and side.attribute(call.target) is None:
            return Outcome(None, f"there is no weight {call.target}", 0.0)
    fixed = _fixed_sizes(before, after, region)
    smaller = [s for least in (5, 15) if (s := smaller_sizes(types.values(), fixed, least))]
    done, spent, reason = False, 0.0, ""
    for draw in draws(types.values(), _names(before, after, region), promise.kind != "sqnr"):
        is_empty = 0 in draw.dims.values()
        if is_empty and not done:
            continue  # a result without elements proves nothing by itself
        allowed = budget if done else max(budget, at_least)
        found: Disagreement | None = None
        for attempt in _attempts(draw, smaller, types):
            if found is not None and attempt.instead:
                continue  # go on to the real sizes, which decide
            work = estimate(region, attempt, fixed)
            if spent + work > allowed:
                if found is None and not done:
                    reason = f"it takes about {work:.1g} operations, more than are left"
                break
            spent += work
            try:
                found = _run(before, after, region, attempt, types, promise)
            except CannotRun as error:
                reason = str(error)
                continue
            done = True
            if found is None or not attempt.instead:
                break
        if found is not None:
            return Outcome(found, "", spent)
    return Outcome(None, "" if done else reason, spent)


def _attempts(draw: Draw, smaller: Sequence[Mapping[int, int]], types: Mapping[Key, Any]) -> Iterator[Draw]:
    """A draw with smaller sizes first, then with the real ones; with arbitrary integers first, then
    with positions. (A wrong result with smaller sizes is confirmed with the real ones.)"""
    has_integers = any(t.dtype.is_integer for v in types.values() for t in _flat(v))
    for sizes in (*smaller, {}):
        for positions in (False, True) if has_integers else (False,):
            yield dataclasses.replace(draw, instead=sizes, positions=positions)


def _flat(type: Any) -> tuple[TensorType, ...]:
    return tuple(t for part in type for t in _flat(part)) if isinstance(type, tuple) else (type,)


def _calls(before: Side, after: Side, region: Region) -> Iterator[tuple[Side, AnyCall]]:
    """The calls of both sides."""
    for side, half in ((before, region.before), (after, region.after)):
        for node in half.nodes:
            yield side, side.call(node)


def _names(before: Side, after: Side, region: Region) -> set[str]:
    """The named dims of a region."""
    found: set[str] = set()
    for node in region.inputs.values():
        for type in _flat(node.type):
            if not type.is_concrete:
                found |= shapes.names(type.shape)
    for _, call in _calls(before, after, region):
        for value in call.kwargs.values():
            found |= shapes.names(value)
    return found


def _fixed_sizes(before: Side, after: Side, region: Region) -> set[int]:
    """Numbers that occur in attributes, arguments or shapes of weights."""
    found: set[int] = set()

    def collect(value: Any) -> None:
        if value.__class__ is int:
            found.add(value)
        elif isinstance(value, (tuple, list)):
            for v in value:
                collect(v)

    for side, call in _calls(before, after, region):
        if call.op == "get_attr":
            found.update(np.shape(side.attribute(call.target)))
        else:
            collect(call.args)
            collect(tuple(call.kwargs.values()))
    return found


#: What calling an op costs beside its elements.
_CALL = 1e5


def estimate(region: Region, draw: Draw, fixed: set[int]) -> float:
    """About how many elements are computed; matrix products count their multiply-adds."""
    smallest = min(draw.instead.values(), default=0)

    def count(type: TensorType) -> float:
        return float(math.prod(map(size, type.shape)))

    def size(dim: Any) -> int:
        if dim.__class__ is not int:
            return max(draw.dims.values(), default=6)
        if dim in draw.instead:
            return draw.instead[dim]
        # computed from a size that was made smaller
        return smallest if smallest and dim > SMALL and dim not in fixed else int(dim)

    total = 0.0
    for node in (*region.before.nodes, *region.after.nodes):
        if node.op != "get_attr":
            total += _CALL
            elements = sum(count(t) for t in _flat(node.type) if isinstance(t, TensorType))
            total += elements * _terms(node, count)
    return total


def _terms(node: Node, count: Callable[[TensorType], float]) -> float:
    """Multiply-adds per element of the result."""
    if node.op != "call_function" or node.target.kind not in ("contraction", "composite"):
        return 1.0
    second = node.args[1] if len(node.args) > 1 else None
    type = second.type if isinstance(second, Node) else None
    if not isinstance(type, TensorType) or type.rank < 2:
        return 4.0  # a composite of pointwise ops and reductions
    inner = type.shape[-2:-1] if node.target.name == "matmul" else type.shape[1:]
    return max(1.0, count(type.with_shape(inner)))


# -- one run ---------------------------------------------------------------------------------------
def _run(
    before: Side, after: Side, region: Region, draw: Draw, types: Mapping[Key, Any], promise: Exactness
) -> Disagreement | None:
    try:
        inputs = arrays(types, draw)
    except (ValueError, TypeError) as error:
        raise CannotRun(f"no inputs for {draw}: {error}") from None
    firsts, seconds = [p.before for p in region.pairs], [p.after for p in region.pairs]
    most = _ITERATIONS if _loops(region.before) == _loops(region.after) else None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = evaluate(before, region.before, inputs, firsts, draw.dims, most)
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else ""
            raise CannotRun(f"it does not run: {type(error).__name__}: {text}") from None
        try:
            actual = evaluate(after, region.after, inputs, seconds, draw.dims, most)
        except Exception as error:
            if _EMPTY in str(error) and 0 in draw.dims.values():
                raise CannotRun(str(error)) from None
            text = f"the program after the pass raises {type(error).__name__}: {error}"
            return Disagreement(region, draw, inputs, 0, text)
        for number, (e, a) in enumerate(zip(expected, actual, strict=True)):
            found = _compared(e, a, promise, region, draw)
            if not found.agrees:
                return Disagreement(region, draw, inputs, number, str(found))
    return None


def _compared(e: Any, a: Any, promise: Exactness, region: Region, draw: Draw) -> Agreement:
    """Compare within the error of few operations; if that fails, within that of as many as the side after has."""
    found = compare(e, a, promise)
    if found.agrees or promise.kind != "allclose" or promise.rtol is not None:
        return found
    return compare(e, a, promise, longest_chain(region.after.nodes, draw.dims).at_least(USUAL))


def evaluate(
    side: Side, half: Half, values: Mapping[Key, Any], roots: list[Node], dims: Mapping[str, int], most: int | None
) -> list[Any]:
    """Values of ``roots`` computed from the inputs; each loop runs ``most`` iterations, or all if it is None."""
    token = most_iterations.set(most)
    try:
        return _evaluate(side, half, values, roots, dims)
    finally:
        most_iterations.reset(token)


#: How many iterations of a loop are compared: one reads what another has written. Where a pass changes how many loops
#: there are, all of them run.
_ITERATIONS = 3


def _loops(half: Half) -> int:
    return sum(bool(bodies_of(node)) for node in half.nodes)


def _evaluate(
    side: Side, half: Half, values: Mapping[Key, Any], roots: list[Node], dims: Mapping[str, int]
) -> list[Any]:
    known: dict[Node, Any] = {node: values[key] for key, node in half.inputs.items()}
    for node in half.nodes:
        call = side.call(node)
        if call.op == "get_attr":
            known[node] = np.asarray(side.attribute(call.target))
            continue
        args = tuple([_argument(a, known) for a in call.args])
        if call.op == "call_module":
            kwargs = map_nodes(dict(call.kwargs), known.__getitem__)
            known[node] = side.attribute(call.target)(*args, **kwargs)
            continue
        kwargs = call.kwargs
        if dims and kwargs:
            kwargs = {k: shapes.substitute(v, dims) for k, v in kwargs.items()}
        bound = call.target.named_arguments(args, kwargs)
        if call.target.is_random:
            bound.setdefault("training", side.training)
        known[node] = call.target.evaluate(bound)
    return [known[node] for node in roots]


def _argument(value: Any, known: Mapping[Node, Any]) -> Any:
    if value.__class__ is Node:
        return known[value]
    if value.__class__ is tuple:
        return tuple([_argument(v, known) for v in value])
    return map_nodes(value, known.__getitem__) if isinstance(value, (tuple, list, dict)) else value
