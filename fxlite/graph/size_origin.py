"""Traces the size of an axis back through the calls to the inputs and weights that determine it.

In: a node with a type, and an axis. Out: :class:`SizeOrigin`, the axes on the way with the lines of the
program. The method works for every op with a type rule: replace the size of one operand's axis by an
unknown, apply the rule again, and see whether the unknown occurs in the result. If the rule raises an
error because several operands share the size (``x + y``, ``weight`` and ``bias``), the unknown is put in
all of these places at once.

Answers are cached for each kind of call: among 100 000 nodes there are few different ones.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import FxliteError, GraphError, ShapeError
from fxlite.base.on_demand import is_expression, sympy
from fxlite.graph.node import Node, map_nodes
from fxlite.ops.op import Op
from fxlite.types import shapes
from fxlite.types.shapes import Dim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph

#: The place of an operand among the arguments of a call: ``(0,)``, or ``(0, 2)`` in a list of tensors.
Path = tuple[int, ...]
#: An axis of an operand; or an entry of an attribute, by name and position.
Slot = tuple[Path, int] | tuple[str, int]

#: The most ways to put one size into several places that are tried before a rule's refusal is believed.
_MOST_TRIALS = 500


@functools.cache
def _unknown() -> Any:
    """The symbol for the unknown size."""
    return sympy.Dummy("size", integer=True, positive=True)


# -- one call --------------------------------------------------------------------------------------
def operands(args: tuple[Any, ...]) -> Iterator[tuple[Path, TensorType]]:
    """The types among a call's arguments, which stand for its tensors, with their paths."""
    for position, value in enumerate(args):
        if isinstance(value, TensorType):
            yield (position,), value
        elif isinstance(value, tuple):
            for inner, part in enumerate(value):
                if isinstance(part, TensorType):
                    yield (position, inner), part


def with_sizes(
    args: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...], new: dict[Slot, Dim]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, with other sizes in the given places."""
    named = dict(attributes)
    changed: list[Any] = [list(v) if isinstance(v, tuple) else v for v in args]
    for (where, index), size in new.items():
        if isinstance(where, str):
            named[where] = _replaced(named[where], index, size)
        elif len(where) == 1:
            changed[where[0]] = _with_size(changed[where[0]], index, size)
        else:
            parts = changed[where[0]]
            parts[where[1]] = _with_size(parts[where[1]], index, size)
    return tuple(tuple(v) if isinstance(v, list) else v for v in changed), named


def _with_size(type: TensorType, axis: int, size: Dim) -> TensorType:
    return type.with_shape(_replaced(type.shape, axis, size))


def _replaced(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def result_type(op: Op, args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The result of the type rule for these types; None if it raises an error."""
    try:
        return op.result_type(op.named_arguments(args, attributes))
    except (FxliteError, TypeError, ValueError):  # a rule may not expect an unknown size
        return None


def call_key(args: tuple[Any, ...], kwargs: Any) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    """The arguments of a call, with types in place of nodes, as a hashable key."""

    def type_of(node: Node) -> Any:
        return node.type

    return map_nodes(tuple(args), type_of), tuple(kwargs.items())


@functools.lru_cache(maxsize=4096)
def size_sources(
    op: Op, args: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...], result: int, axis: int
) -> tuple[tuple[Path, int], ...]:
    """The operands' axes that determine the size of an axis of a call's result (``result`` is its number
    if there are several). Of axes that must be equal, only the first. Empty if the call itself gives the
    size."""

    def size(new: dict[Slot, Dim]) -> Dim | None:
        found = result_type(op, *with_sizes(args, attributes, new))
        if found is None:
            return None
        type = found[result] if isinstance(found, tuple) else found
        return type.shape[axis] if axis < type.rank else None

    def is_decided_by(slots: tuple[Slot, ...]) -> bool:
        found: Any = size(dict.fromkeys(slots, _unknown()))
        return is_expression(found) and bool(found.has(_unknown()))

    types = dict(operands(args))
    every = [(path, a) for path, type in types.items() for a in range(type.rank)]
    joins = op.moves_values and "Tensors" in op.tensor_kinds.values()  # operands of one type are alike
    known: dict[Any, bool] = {}
    single = []
    for path, a in every:
        key = (types[path], a) if joins else (path, a)
        if key not in known:
            known[key] = is_decided_by(((path, a),))
        if known[key]:
            single.append((path, a))
    if len(single) > 1:  # in a reshape, a factor of 1 determines nothing
        single = [(path, a) for path, a in single if types[path].shape[a] != 1] or single
    if single:
        return tuple(single)
    whole = result_type(op, *with_sizes(args, attributes, {}))
    if whole is None:
        return ()
    type = whole[result] if isinstance(whole, tuple) else whole
    for slots in itertools.islice(_shared(args, attributes, type, axis), _MOST_TRIALS):
        if is_decided_by(slots):
            return next(((path, a),) for path, a in slots if not isinstance(path, str))
    now = type.shape[axis]
    return tuple(  # the rule accepts no named size there, such as for the size of a kernel
        (path, a)
        for path, a in every
        if any(size({(path, a): n}) not in (None, now) for n in _others(types[path].shape[a]))
    )


def _others(size: Dim) -> tuple[int, ...]:
    return (size + 1, size + 2, 2 * size) if isinstance(size, int) else ()


def _shared(
    args: tuple[Any, ...], attributes: tuple[tuple[str, Any], ...], result: TensorType, axis: int
) -> Iterator[tuple[Slot, ...]]:
    """Sets of places that may have to be equal to the result's axis. Sets whose places have the same
    position as that axis, counted from the last axis, come first."""
    size, behind = result.shape[axis], result.rank - axis
    choices: list[list[Any]] = []
    for path, type in operands(args):
        equal = [a for a, d in enumerate(type.shape) if shapes.equal(d, size)]
        equal.sort(key=lambda a: type.rank - a != behind)
        if equal:
            choices.append([(path, a) for a in equal])
    written = [
        (name, index)
        for name, value in attributes
        if isinstance(value, tuple)
        for index, entry in enumerate(value)
        if (isinstance(entry, int) or is_expression(entry)) and shapes.equal(entry, size)
    ]
    if not choices:
        return
    yield tuple(options[0] for options in choices)
    types = dict(operands(args))
    rest = shapes.product(result.shape[axis + 1 :])
    for option in itertools.chain.from_iterable(choices):  # in a reshape: equally many elements follow
        path, a = option
        if shapes.equal(shapes.product(types[path].shape[a + 1 :]), rest):
            yield from ((option, entry) for entry in written)
    for combination in itertools.product(*([*options, None] for options in choices)):
        slots = tuple(slot for slot in combination if slot is not None)
        if slots:
            yield slots
            yield from ((*slots, entry) for entry in written)


# -- the way back ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Place:
    """An axis of a node's value; ``result`` is the number of the value if the node has several."""

    node: Node
    axis: int
    result: int = 0

    @property
    def size(self) -> Dim:
        type = self.node.type
        return (type[self.result] if isinstance(type, tuple) else type).shape[self.axis]

    def __str__(self) -> str:
        return f"axis {self.axis} of {self.node.name}"


@dataclass(frozen=True)
class SizeStep:
    """A place and the places that determine its size; at the ends there are none."""

    place: Place
    sources: tuple[Place, ...]

    @property
    def is_passed_on(self) -> bool:
        """True if there is one source and its size is passed on unchanged."""
        return len(self.sources) == 1 and self.sources[0].size == self.place.size

    @property
    def title(self) -> str:
        """A description of this place for people who read the program."""
        node, axis = self.place.node, self.place.axis
        if node.op == "placeholder":
            return f"axis {axis} of the input {node.target}"
        if node.op == "get_attr":
            return f"axis {axis} of the weight {node.target}"
        what = node.target.name if isinstance(node.target, Op) else f"the module {node.target}"
        return f"{what}{_line(node)}"


def _line(node: Node) -> str:
    return f" at {node.loc.short}" if node.loc is not None else ""


@dataclass(frozen=True)
class SizeOrigin:
    """How a size came about, from the place that was asked for back to its ends; meant to be printed.

    ``steps`` holds each place once, before its sources. ``is_whole`` is False if the walk was cut
    short."""

    steps: tuple[SizeStep, ...]
    is_whole: bool = True

    @property
    def ends(self) -> tuple[SizeStep, ...]:
        """The steps without sources: inputs, weights, and calls that state a size themselves."""
        return tuple(step for step in self.steps if not step.sources)

    @property
    def summary(self) -> str:
        """A phrase for messages: ``axis 0 of the weight proj.weight (linear at model.py:12)``."""
        readers: dict[Place, Node] = {}
        for step in self.steps:
            for source in step.sources:
                readers.setdefault(source, step.place.node)
        parts = []
        for step in self.ends[:2]:
            reader = readers.get(step.place)
            text = step.title
            if step.place.node.op == "get_attr" and reader is not None:
                name = reader.target.name if isinstance(reader.target, Op) else reader.target
                text += f" ({name}{_line(reader)})"
            parts.append(text)
        more = len(self.ends) - len(parts)
        text = " and ".join(parts) + (f" and {more} more" if more > 0 else "")
        by = next((s for s in self.steps if s.sources and not s.is_passed_on), None)
        if by is not None:
            text = f"{by.title}, computed from {text}"
        first = self.steps[0]
        if first.sources and first.title not in text:
            text = f"{first.title}, {text}"
        return text if self.is_whole else f"{text or self.steps[0].title} and further back"

    def __str__(self) -> str:
        first = self.steps[0].place
        lines = [f"{first} is {first.size}"]
        passed: list[str] = []
        for step in self.steps:
            if step.is_passed_on:
                passed.append(f"{step.place.node.name}{_line(step.place.node)}")
                continue
            if passed:
                lines.append(f"  passed on by {_listed(passed)}")
                passed = []
            lines.append(f"  {step.place.size}: {self._line_of(step)}")
        if passed:
            lines.append(f"  passed on by {_listed(passed)}")
        return "\n".join(lines if self.is_whole else [*lines, "  ..."])

    def _line_of(self, step: SizeStep) -> str:
        node = step.place.node
        quoted = f": {node.loc.expression}" if node.loc is not None and node.loc.expression else ""
        if step.sources:
            from_ = ", ".join(f"{s.size} ({s})" for s in step.sources[:4])
            return f"{step.title}{quoted}, from {from_}"
        if node.op in ("placeholder", "get_attr"):
            return f"{step.title}, {node.type}"
        return f"{step.title}{quoted}, which says the size itself"


def _listed(names: list[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def size_origin(node: Node, axis: int, result: int = 0, most: int | None = None) -> SizeOrigin:
    """Trace the size of ``axis`` back to its origin. ``result`` selects one of several values, and
    ``most`` limits the number of steps. Raises GraphError for a node without a type, and ShapeError for
    an axis that it does not have."""
    type = node.type[result] if isinstance(node.type, tuple) else node.type
    if not isinstance(type, TensorType):
        raise GraphError(f"{node.describe()} has no type; trace with input types")
    if not -type.rank <= axis < type.rank:
        raise ShapeError(f"axis {axis} is out of range for {node.describe()}")
    first = Place(node, axis % type.rank, result)
    steps: list[SizeStep] = []
    seen, waiting = {first}, [first]
    while waiting:
        if most is not None and len(steps) >= most:
            return SizeOrigin(tuple(steps), False)
        place = waiting.pop()
        sources = _sources(place)
        steps.append(SizeStep(place, sources))
        for source in reversed(sources):
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return SizeOrigin(tuple(steps))


def _sources(place: Place) -> tuple[Place, ...]:
    node = place.node
    if node.op != "call_function":
        return ()
    args, attributes = call_key(node._args, node._kwargs)
    found = size_sources(node.target, args, attributes, place.result, place.axis)
    if not found:
        return _declared(node.graph, place)
    return tuple(_place_of(node._args, path, axis) for path, axis in found)


def _place_of(args: tuple[Any, ...], path: Path, axis: int) -> Place:
    value = args[path[0]]
    if len(path) == 1:
        return Place(value, axis)
    if isinstance(value, tuple):
        return Place(value[path[1]], axis)
    return Place(value, axis, path[1])  # one of the results of a call that has several


def _declared(graph: Graph, place: Place) -> tuple[Place, ...]:
    """The axes of inputs whose named dims occur in a size that the call states, as in
    ``x.reshape(B, -1)``."""
    found: dict[str, Place] = {}
    wanted = shapes.names(place.size)
    for node in graph.placeholders if wanted else ():
        for axis, size in enumerate(getattr(node.type, "shape", ())):
            if getattr(size, "is_Symbol", False) and size.name in wanted:
                found.setdefault(size.name, Place(node, axis))
    return tuple(found.values())
