"""Values of a program that differ from branch to branch, or from round to round of a loop: which
leaves they have, and the one value that stands for them behind it.

In: two nested values. Out: the pairs of leaves in which they differ, with the kind that both can
have, and how the value is put together of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node
from fxlite.ops.op import lookup
from fxlite.tracing.capture.places import MISSING, Unavailable
from fxlite.tracing.control.carried import Kind, as_value, kind_of, number_kind
from fxlite.tracing.python_numbers import DTYPES
from fxlite.tracing.selections.masked import same_mask
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: In the place of a value that a way has not, and that nobody reads on it.
FILLER: Any = type("Filler", (), {"__repr__": lambda self: "nothing"})()

_ORDER = (bool, int, float)
_NUMBERS = (bool, int, float, np.generic, NamedDim)


def is_leaf(value: Any) -> bool:
    """Whether a value can come out of a branch: an array, or a number."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return is_traced(value) or isinstance(value, _NUMBERS)


def is_same(one: Any, other: Any) -> bool:
    """Whether the program cannot tell two values from each other."""
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(one, (*pytree.CONSTANTS, bytes)):
        return False
    return repr(one) == repr(other)


def joined(one: Kind, other: Kind) -> Kind | None:
    """The kind that both can have: of numbers as NumPy promotes them, of arrays the same; None
    where there is none."""
    if one == other:
        return one
    if one.number and other.number:
        return number_kind(max(one.number, other.number, key=_ORDER.index))
    if one.type.shape or other.type.shape:
        same = one.type.dtype is other.type.dtype
        same = same and shapes.shapes_equal(one.type.shape, other.type.shape)
        return one if same and not (one.number or other.number) else None
    try:
        operands = [k.number(1) if k.number else k.type.dtype for k in (one, other)]
        return Kind(TensorType((), dtypes.result_type(*operands)))
    except DTypeError:
        return None


def taken_on(before: Kind, after: Kind) -> Kind | None:
    """The kind that a value has in a loop from the start, if it is ``before`` at first and
    ``after`` after a round: a number of Python takes that of what it becomes, as in ``total = 0``
    and ``total = total + row``; None where that is another one for good."""
    if before.number is None:
        return before if joined(before, after) == before else None
    both = joined(before, after)
    if both is None and after.type.shape:
        fits = dtypes.result_type(after.type.dtype, before.number(1)) is after.type.dtype
        return after if fits else None
    return both


def as_kind(tracer: Tracer, value: Any, kind: Kind) -> Node:
    """A leaf as a node of its kind, where the tracer records now."""
    dtype = kind.type.dtype
    if value is FILLER:
        return lookup("full")(kind.type.shape, 0, dtype).node  # type: ignore[no-any-return]
    if isinstance(value, Node):
        return tracer.local(value)
    if isinstance(value, NamedDim):
        return tracer.local(tracer.size_as_tensor(value, dtype))
    if type(value) in DTYPES or (isinstance(value, np.generic) and dtype is not dtypes.bfloat16):
        number = value if type(value) in DTYPES else value.item()
        number = dtype.numpy.type(number).item()
        return lookup("full")(kind.type.shape, number, dtype).node  # type: ignore[no-any-return]
    if is_traced(value) and value.type.dtype is not dtype:
        value = lookup("cast")(value, dtype)
    if is_traced(value) and kind.type.shape and not value.type.shape:
        value = lookup("expand")(value, kind.type.shape)
    return tracer.create_arg(value)  # type: ignore[no-any-return]


@dataclass
class Merging:
    """Collects the leaves in which two ways differ: ``pairs`` of values with their ``kinds``."""

    tracer: Tracer
    ways: tuple[str, str]
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)  # the numbers of those that select

    def leaf(self, path: str, one: Any, other: Any, kind: Kind) -> Callable[[Sequence[Any]], Any]:
        """A pair of leaves; how to take its result."""
        number = len(self.pairs)
        self.pairs.append((one, other))
        self.kinds.append(kind)
        self.paths.append(path)
        return lambda results: results[number]

    def mask(self, path: str, one: Any, other: Any) -> Callable[[Sequence[Any]], Any]:
        """The mask of a selection: one result for all those that select the same."""
        for place in self.masks:
            if all(same_mask(a.node, b.node) for a, b in zip(self.pairs[place], (one, other))):
                return lambda results: results[place]
        self.masks.append(len(self.pairs))
        return self.leaf(f"{path}.mask", one, other, kind_of(self.tracer, one, path))

    def merged(self, path: str, one: Any, other: Any) -> Callable[[Sequence[Any]], Any]:
        """How to make the value behind the ways of the results for its leaves. Where there can be
        none it is an error to read it."""
        if is_same(one, other):
            return lambda results: one
        for value in (one, other):
            if isinstance(value, Unavailable):
                return lambda results: value
        if one is FILLER or other is FILLER:
            return self._filled(path, other if one is FILLER else one, one is FILLER)
        if one is MISSING or other is MISSING:
            way = self.ways[one is MISSING]
            return self._unavailable(
                f"{path} has a value only {way}, which is not known while tracing",
                f"give it a value on both ways, or before: {path} = 0",
            )
        if is_leaf(one) and is_leaf(other):
            kinds = [kind_of(self.tracer, v, path) for v in (one, other)]
            both = joined(*kinds)
            if both is not None:
                return self.leaf(path, one, other, both)
            return self._unavailable(
                f"{path} is {kinds[0]} {self.ways[0]}, and {kinds[1]} {self.ways[1]}",
                "give both one type and shape: .astype, np.broadcast_to",
            )
        parts, more = pytree.children_of(one), pytree.children_of(other)
        if parts is not None and more is not None and type(one) is type(other):
            kind, keys, values = parts
            if kind == "masked" and one.after == other.after:
                makers = [self.merged(f"{path}.values", *(v.values for v in (one, other)))]
                makers.append(self.mask(path, one.mask, other.mask))
                return lambda results: one.__fx_rebuilt__([m(results) for m in makers])
            if tuple(keys) == tuple(more[1]):
                named = kind in ("dataclass", "namedtuple")
                makers = [
                    self.merged(f"{path}.{k}" if named else f"{path}[{k!r}]", v, w)
                    for k, v, w in zip(keys, values, more[2])
                ]
                return lambda results: _rebuilt(one, kind, keys, [m(results) for m in makers])
            sizes = f"{len(keys)} values {self.ways[0]}, and {len(more[1])} {self.ways[1]}"
            return self._unavailable(
                f"{path} is a {type(one).__name__} of {sizes}",
                "make it as long on both ways, or an array of the final size, written into",
            )
        return self._unavailable(
            f"{path} is {shown(one)} {self.ways[0]}, and {shown(other)} {self.ways[1]}",
            "graphs hold arrays and numbers: let both be one of these, of one type",
        )

    def _filled(self, path: str, value: Any, first: bool) -> Callable[[Sequence[Any]], Any]:
        """A value that one way has, and that is read only where it is that way."""
        if is_leaf(value):
            pair = (FILLER, value) if first else (value, FILLER)
            return self.leaf(path, *pair, kind_of(self.tracer, value, path))
        found = pytree.children_of(value)
        if found is None:
            return lambda results: value
        kind, keys, values = found
        makers = [self._filled(f"{path}[{k!r}]", v, first) for k, v in zip(keys, values)]
        return lambda results: _rebuilt(value, kind, keys, [m(results) for m in makers])

    def _unavailable(self, reason: str, advice: str) -> Callable[[Sequence[Any]], Any]:
        found = Unavailable(self.tracer, reason, advice)
        return lambda results: found

    def results(self, nodes: Sequence[Node]) -> list[Any]:
        """What the program sees of the nodes of the results."""
        return [as_value(self.tracer, n, k) for n, k in zip(nodes, self.kinds, strict=True)]


def _rebuilt(value: Any, kind: str, keys: Sequence[Any], parts: Sequence[Any]) -> Any:
    """A container of the same class with other values."""
    if hasattr(value, "__fx_rebuilt__"):
        return value.__fx_rebuilt__(parts)
    if kind == "dict":
        return type(value)(zip(keys, parts))
    if kind in ("tuple", "list"):
        return type(value)(parts)
    return type(value)(**dict(zip(keys, parts)))


def shown(value: Any) -> str:
    """A value in a message."""
    if value is MISSING:
        return "not set"
    if is_traced(value) and value.is_typed:
        return str(value.type)
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"
