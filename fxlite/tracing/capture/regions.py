"""Branches that are traced side by side: the changes that each makes while it is traced are recorded and then
reverted, and values that differ between branches are merged into one.

In: the ways that a program may take at a condition, as functions. Out: one ``cond`` of the graph, whose results are
everything that the ways leave behind: variables, attributes and items that they set, arrays that they write into
(under any name), and the jumps by which they were left. For nested values, the results are the leaves in which the
ways differ, with a kind that both can have (:class:`Merging`).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import DTypeError, FxliteError, TraceError, number_of
from fxlite.base.location import is_own_file
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node, map_nodes
from fxlite.ops.op import lookup
from fxlite.tracing.capture.bodies import Body, Kind, as_value, joined, kind_of, number_kind
from fxlite.tracing.capture.control import record_control
from fxlite.tracing.capture.known import assuming, implied
from fxlite.tracing.capture.places import (
    MISSING,
    Contents,
    Item,
    Maybe,
    OrNone,
    Place,
    Unavailable,
    Variable,
    noted,
    or_none,
    with_what_is_known,
)
from fxlite.tracing.capture.texts import OneText, code_of, is_text, one_text
from fxlite.tracing.proxy import DTYPES, PythonNumber
from fxlite.tracing.selections.masked import same_mask
from fxlite.tracing.writes.aliasing import number_of_tie, replace_root
from fxlite.tracing.writes.shared_memory import (
    Memory,
    View,
    is_number,
    leave_in_doubt,
    memory_of,
    root_of,
    tie,
    view_of,
)
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


#: Replaces a value that one way does not have, and that is not read on it.
FILLER: Any = type("Filler", (), {"__repr__": lambda self: "nothing"})()

_NUMBERS = (bool, int, float, complex, np.generic, NamedDim)


def is_leaf(value: Any) -> bool:
    """Whether a value can be a result of a branch: an array or a number."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    return is_traced(value) or isinstance(value, _NUMBERS)


def is_same(one: Any, other: Any) -> bool:
    """Whether the program cannot distinguish two values."""
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(one, (*pytree.CONSTANTS, bytes)):
        return False
    return repr(one) == repr(other)


def kind_of_both(one: Kind, other: Kind) -> Kind | None:
    """The kind that both can have: for numbers, the promoted one as in NumPy; for arrays, the same one; None if there
    is none."""
    if one == other or (one.number and other.number):
        return joined(one, other)
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
    """The kind that a value has throughout a loop if it is ``before`` at first and ``after`` after a round: a Python
    number takes the later kind, as in ``total = 0`` and ``total = total + row``; None if the kinds are incompatible."""
    if before.number is None:
        return before if kind_of_both(before, after) == before else None
    both = kind_of_both(before, after)
    if both is None and after.type.shape:
        fits = dtypes.result_type(after.type.dtype, before.number(1)) is after.type.dtype
        return after if fits else None
    return both


def as_kind(tracer: Tracer, value: Any, kind: Kind) -> Node:
    """A leaf as a node of its kind, recorded at the tracer's current place."""
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
        value = lookup("cast")(tracer.proxy(value.node), dtype)
    if is_traced(value) and kind.type.shape and not value.type.shape:
        value = lookup("expand")(value, kind.type.shape)
    return tracer.create_arg(value)  # type: ignore[no-any-return]


#: The two ways at a condition, in messages.
_WAYS = ("where the condition is true", "where it is false")


@dataclass
class Merging:
    """Collects the leaves in which two ways differ: ``pairs`` of values with their ``kinds``."""

    tracer: Tracer
    found: Sequence[Way]
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)  # the numbers of the pairs that are masks of selections
    before: Any = None  # the value of a place before the ways
    inside: list[tuple[int, int]] = field(default_factory=list)  # the pairs of containers that are being merged

    def leaf(self, path: str, one: Any, other: Any, kind: Kind) -> Callable[[Sequence[Any]], Any]:
        """Add a pair of leaves; returns a function that takes its result."""
        number = len(self.pairs)
        self.pairs.append((one, other))
        self.kinds.append(kind)
        self.paths.append(path)
        return lambda results: results[number]

    def mask(self, path: str, one: Any, other: Any) -> Callable[[Sequence[Any]], Any]:
        """Add the masks of a selection, with one result for all selections of the same positions."""
        for place in self.masks:
            if all(same_mask(a.node, b.node) for a, b in zip(self.pairs[place], (one, other))):
                return lambda results: results[place]
        self.masks.append(len(self.pairs))
        return self.leaf(f"{path}.mask", one, other, kind_of(self.tracer, one, path))

    def merged(self, path: str, one: Any, other: Any) -> Callable[[Sequence[Any]], Any]:
        """A function that makes the value after the ways from the results for its leaves. If there is no such value,
        reading it raises an error."""
        if is_same(one, other):
            return lambda results: one
        for value in (one, other):
            if isinstance(value, Unavailable):
                return lambda results: value
        if all(value is not FILLER and value is not MISSING for value in (one, other)):
            one, other = or_none(self.tracer, one), or_none(self.tracer, other)
            if any(value is None or type(value) is OrNone for value in (one, other)):
                return self._none_or_not(path, one, other)
        return self._merged(path, one, other)

    def _merged(self, path: str, one: Any, other: Any) -> Callable[[Sequence[Any]], Any]:
        """The same for values that are not None."""
        if is_same(one, other):
            return lambda results: one
        if is_text(one) and is_text(other):
            codes = code_of(self.tracer, one), code_of(self.tracer, other)
            code = self.leaf(path, codes[0], codes[1], number_kind(int))
            return lambda results: OneText(self.tracer, code(results))
        if one is FILLER or other is FILLER:
            return self.filled(path, other if one is FILLER else one, one is FILLER)
        if one is MISSING or other is MISSING:
            way = _WAYS[one is MISSING]
            return self._unavailable(
                f"{path} has a value only {way}, which is not known while tracing",
                f"give it a value on both ways, or before: {path} = 0",
            )
        if is_leaf(one) and is_leaf(other):
            kinds = [kind_of(self.tracer, v, path) for v in (one, other)]
            both = kind_of_both(*kinds)
            if both is not None:
                return self.leaf(path, one, other, both)
            return self._unavailable(
                f"{path} is {kinds[0]} {_WAYS[0]}, and {kinds[1]} {_WAYS[1]}",
                "give both one type and shape: .astype, np.broadcast_to",
            )
        parts, more = pytree.children_of(one), pytree.children_of(other)
        if parts is not None and more is not None and type(one) is type(other):
            pair = id(one), id(other)
            if pair in self.inside:
                return self._unavailable(
                    f"{path} is an object that holds itself, or another one, and which is not known while tracing",
                    "keep the objects in a list, and their numbers in variables",
                )
            self.inside.append(pair)
            maker = self._container(path, one, other, parts, more)
            self.inside.pop()
            return self._in_place_of(one, other, maker) if pytree.is_changeable(one) else maker
        return self._differ(path, one, other)

    def _none_or_not(self, path: str, one: Any, other: Any) -> Callable[[Any], Any]:
        """Values of which at least one is or may be None."""
        flags = [v.is_there if type(v) is OrNone else v is not None for v in (one, other)]
        values = [v.value if type(v) is OrNone else v for v in (one, other)]
        if all(flag is False for flag in flags):
            return lambda results: None
        if any(flag is False for flag in flags):
            number = 0 if flags[0] is False else 1
            value = one_text(self.tracer, values[1 - number])
            if not _can_be_left_out(value):
                return self._differ(path, one, other)
            maker = self.filled(path, value, number == 0)
            if pytree.is_changeable(value):
                maker = self._in_place_of(values[0], values[1], maker)
        else:
            maker = self._merged(path, *values)
        if all(flag is True for flag in flags) or values[0] is values[1]:
            return maker
        is_there = self.leaf(path, flags[0], flags[1], number_kind(bool))
        return lambda results: noted(self.tracer, is_there(results), maker(results))

    def _differ(self, path: str, one: Any, other: Any) -> Callable[[Any], Any]:
        return self._unavailable(
            f"{path} is {shown(one)} {_WAYS[0]}, and {shown(other)} {_WAYS[1]}",
            "graphs hold arrays and numbers: let both be one of these, of one type",
        )

    def _in_place_of(self, one: Any, other: Any, maker: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A list or dict that stands for one of two. If a way has given it to another name, later changes to one of
        them would have to appear in both."""
        ways = zip((one, other), self.found)
        outer = [value for value, way in ways if value is not None and not way.region.owns(value)]

        def make(results: Any) -> Any:
            made = maker(results)
            for value in (made, *outer) if outer else ():
                self.tracer.one_of_several[id(value)] = value
            return made

        return make

    def _container(self, path: str, one: Any, other: Any, parts: Any, more: Any) -> Callable[[Any], Any]:
        """Containers of the same class."""
        kind, keys, values = parts
        if kind == "masked" and one.after == other.after:
            makers = [self.merged(f"{path}.values", *(v.values for v in (one, other)))]
            makers.append(self.mask(path, one.mask, other.mask))
            return lambda results: one.__fx_rebuilt__([m(results) for m in makers])
        if kind == "list" and (len(one) != len(other) or any(type(part) is Maybe for part in (*one, *other))):
            return self.lists(path, one, other)
        if tuple(keys) == tuple(more[1]) and (kind not in ("rows", "block") or one.__fx_form__ == other.__fx_form__):
            named = kind in pytree.NAMED
            makers = [
                self.merged(f"{path}.{k}" if named else f"{path}[{k!r}]", v, w)
                for k, v, w in zip(keys, values, more[2])
            ]
            return lambda results: pytree.rebuilt(one, [m(results) for m in makers])
        sizes = f"{number_of(len(keys), 'value')} {_WAYS[0]}, and {len(more[1])} {_WAYS[1]}"
        return self._unavailable(
            f"{path} is a {type(one).__name__} of {sizes}",
            "give it the same length both ways, or write into an array of the final size",
        )

    def lists(self, path: str, one: Sequence[Any], other: Sequence[Any]) -> Callable[[Any], list[Any]]:
        """The merged elements of two lists: first those at places that both have, then those that only one has."""
        both = 0
        for a, b in zip(one, other):
            if a is not b and Maybe in (type(a), type(b)):
                break
            both += 1
        makers = [self.merged(f"{path}[{k}]", one[k], other[k]) for k in range(both)]
        more: list[tuple[Any, Any]] = []
        for number, rest in enumerate((one[both:], other[both:])):
            is_there = self.leaf(path, number == 0, number == 1, number_kind(bool)) if rest else None
            for part in rest:
                truth, value = is_there, part
                if type(part) is Maybe:
                    truths = (part.truth, False) if number == 0 else (False, part.truth)
                    truth, value = self.leaf(path, truths[0], truths[1], number_kind(bool)), part.value
                more.append((truth, self.filled(path, value, number == 1)))

        def make(results: Any) -> list[Any]:
            return [*(m(results) for m in makers), *(Maybe(self.tracer, t(results), v(results)) for t, v in more)]

        return make

    def filled(self, path: str, value: Any, first: bool) -> Callable[[Sequence[Any]], Any]:
        """A value that only one way has, and that is read only if that way was taken."""
        return self._filled(path, or_none(self.tracer, value), first)

    def _filled(self, path: str, value: Any, first: bool) -> Callable[[Sequence[Any]], Any]:
        if type(value) is OrNone:
            makers = [self._filled(path, part, first) for part in (value.is_there, value.value)]
            return lambda results: noted(self.tracer, *(make(results) for make in makers))
        if is_leaf(value):
            pair = (FILLER, value) if first else (value, FILLER)
            return self.leaf(path, *pair, kind_of(self.tracer, value, path))
        found = pytree.children_of(value)
        if found is None:
            return lambda results: value
        makers = [self.filled(f"{path}[{k!r}]", v, first) for k, v in zip(*found[1:])]
        return lambda results: pytree.rebuilt(value, [m(results) for m in makers])

    def _unavailable(self, reason: str, advice: str) -> Callable[[Sequence[Any]], Any]:
        found = Unavailable(self.tracer, reason, advice)
        return lambda results: found

    def results(self, nodes: Sequence[Node]) -> list[Any]:
        """The values of the result nodes as the program sees them."""
        return [as_value(self.tracer, n, k) for n, k in zip(nodes, self.kinds, strict=True)]


def _can_be_left_out(value: Any) -> bool:
    """Whether a value consists of what a branch can give, so that None may stand in its place."""
    found = pytree.children_of(value)
    return is_leaf(value) or value is None or (found is not None and all(map(_can_be_left_out, found[2])))


def shown(value: Any) -> str:
    """A value in a message."""
    if value is MISSING:
        return "not set"
    if is_traced(value) and value.is_typed:
        return str(value.type)
    if type(value) in (tuple, list) and len(value) < 5:
        text = ", ".join(map(shown, value)) + "," * (type(value) is tuple and len(value) == 1)
        return f"({text})" if type(value) is tuple else f"[{text}]"
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


#: The deepest nesting of branches.
_MOST_NESTED = 60
#: The jumps by which a part of a construct may be left.
JUMPS = ("BREAK", "CONTINUE", "RETURN")


@dataclass
class Outcome:
    """How a part was left: for each kind of jump, whether it was that one (a bool that may be known only at run time),
    and the value that it returns."""

    flags: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(JUMPS, False))
    value: Any = FILLER

    @property
    def is_known(self) -> bool:
        return all(type(flag) is bool for flag in self.flags.values())


class Region(Body):
    """A body that may change things outside of it. ``places`` are those that it sets, with their previous values, and
    ``roots`` the memories into which it writes, with the nodes of their previous values."""

    def __init__(self, tracer: Tracer, what: str, places: Iterable[Place]) -> None:
        if len(tracer.bodies) >= _MOST_NESTED:
            raise tracer.error(
                f"more than {_MOST_NESTED} conditions are nested in each other: the function "
                "calls itself until a value that is not known while tracing stops it",
                "write a loop",
            )
        super().__init__(tracer, what)
        self.places: dict[Place, Any] = {place: place.get() for place in places}
        self.roots: dict[View, Node] = {}
        self.written: set[View] = set()
        self.doubts: dict[Memory, str] = {}
        self._made: dict[int, Any] = {}
        self.is_branch = what == "a branch"
        #: What traces it again if a list gets rows; and for a loop, whether its number of rounds is not known, or too
        #: large for it to be unrolled because of a list.
        self.maker: Any = None
        self.is_open: bool | None = None
        self.is_long = False
        #: The lists that a round sees in place of others, by their ids.
        self.instead: dict[int, tuple[Any, Any]] = {}

    def note(self, place: Place) -> None:
        """A place is about to be set."""
        if place not in self.places and id(place.owner) not in self._made:
            self.places[place] = place.get()

    def note_doubt(self, memory: Memory) -> None:
        self.doubts.setdefault(memory, memory.doubt)

    def own_object(self, value: Any) -> None:
        """Called when an object was made inside: changes to it need not be reverted."""
        self._made[id(value)] = value

    def owns(self, value: Any) -> bool:
        return id(value) in self._made

    def may_write(self, root: View) -> bool:
        if root.home is not self.graph:
            self.roots.setdefault(root, root.node)
        self.written.add(root)
        return True

    def lift(self, node: Node) -> Node:
        found = super().lift(node)
        known = self.tracer.known.get(node)
        if found is not node and known is not None:
            if node in self.tracer.assumed:
                self.tracer.assumed.setdefault(found, self.tracer.known.get(found))
            self.tracer.known[found] = known
        return found

    def put_back(self) -> None:
        """Revert everything that the region has changed."""
        for place, value in reversed(self.places.items()):  # an item of a list may be set before and after it grows
            place.set(value)
        for root, node in self.roots.items():
            root.node = node
        for memory, doubt in self.doubts.items():
            memory.doubt = doubt
        self.tracer.writes.count += 1

    @property
    def size(self) -> int:
        """The number of calls of ops in it, including those in its own bodies."""
        return sum(map(calls_in, self.graph.nodes))


def calls_in(node: Node) -> int:
    """The number of calls of ops that a node is, including those in its bodies."""
    if node.op != "call_function":
        return 0
    bodies = (v for v in node.kwargs.values() if hasattr(v, "calls"))
    return 1 + sum(sum(map(calls_in, body.calls)) for body in bodies)


@dataclass
class Way:
    """The effects that a region has left behind."""

    region: Region
    outcome: Any
    values: dict[Place, Any]
    nodes: dict[View, Node]
    doubts: dict[Memory, str]

    @contextmanager
    def at_its_end(self) -> Iterator[None]:
        """In the region, with what stands in memory as the region leaves it."""
        before = {root: root.node for root in self.nodes}, {memory: memory.doubt for memory in self.doubts}
        self._put(self.nodes, self.doubts)
        try:
            with self.region:
                yield
        finally:
            self._put(*before)

    def contents(self, place: Contents) -> tuple[Any, ...]:
        """What a list has in it at the end of the way, which may have changed some of its items only."""
        if place in self.values:
            return self.values[place]  # type: ignore[no-any-return]
        found = [*place.get()]
        for other, value in self.values.items():
            if isinstance(other, Item) and other.owner is place.owner:
                found[other.key] = value
        return tuple(found)

    def leave_doubts(self) -> None:
        """Mark what the region leaves in doubt as unknown after it, too."""
        tracer = self.region.tracer
        for memory, why in self.doubts.items():
            leave_in_doubt(tracer, (memory,), why)
        tracer.writes.count += bool(self.doubts)

    def _put(self, nodes: dict[View, Node], doubts: dict[Memory, str]) -> None:
        for root, node in nodes.items():
            root.node = node
        for memory, doubt in doubts.items():
            memory.doubt = doubt
        self.region.tracer.writes.count += 1


class WayRaises(TraceError):
    """The way with this ``number`` raises an exception of the program."""

    exception: Exception
    number = -1


def run(region: Region, part: Callable[[], Any], facts: Iterable[tuple[Node, bool]] = ()) -> Way:
    """Trace a part into a region, and revert its changes. ``facts``: what is known there (:func:`assuming`)."""
    try:
        with assuming(region.tracer, facts), region:
            outcome = part()
            if hasattr(outcome, "value"):
                outcome.value = with_what_is_known(region.tracer, outcome.value)
            values = {place: with_what_is_known(region.tracer, place.get()) for place in region.places}
            nodes = {root: root.node for root in region.roots}
        return Way(region, outcome, values, nodes, {memory: memory.doubt for memory in region.doubts})
    except FxliteError:
        raise
    except Exception as error:
        refused = _raised(region, error)
        made = WayRaises(*refused.args)
        made.__dict__.update(vars(refused), exception=error)
        raise made from error
    finally:
        region.put_back()


def _raised(region: Region, error: Exception) -> TraceError:
    frames = traceback.walk_tb(error.__traceback__)
    own = [(f.f_code.co_filename, line) for f, line in frames if not is_own_file(f.f_code.co_filename)]
    where = f" ({own[-1][0]}:{own[-1][1]})" if own else ""
    return region.tracer.error(
        f"{region.what} raises {type(error).__name__}: {error}{where}; whether it does is not "
        "known while tracing, and a graph has no exceptions",
        "check it before tracing, or return a number that says so",
    )


# -- conditions ------------------------------------------------------------------------------------
def conditional(
    tracer: Tracer, pred: Any, ways: Sequence[Callable[[], Any]], places: Sequence[Place], maker: Any = None
) -> Any:
    """Trace both ways; returns their outcome. ``pred`` is a single traced bool."""
    found: list[Way] = []
    for number, part in enumerate(ways):
        region = Region(tracer, "a branch", places)
        region.maker = maker
        try:
            found.append(run(region, part, implied(tracer, pred, number == 0)))
        except WayRaises as error:
            error.number = number
            raise
    one, other = found
    merging = Merging(tracer, found)
    makers = {}
    changed = {**one.values, **other.values}
    whole = {id(place.owner) for place in changed if isinstance(place, Contents)}
    for place in changed:
        if isinstance(place, Item) and id(place.owner) in whole:
            continue  # it is among the contents
        before = one.region.places.get(place, other.region.places.get(place))
        values = [way.values.get(place, before) for way in found]
        if isinstance(place, Contents):
            values = [way.contents(place) for way in found]
        merging.before = before
        makers[place] = place.merged(merging, *values)
    roots = {}
    for root in {**one.nodes, **other.nodes}:
        nodes = [way.nodes.get(root, root.node) for way in found]
        kind = Kind(root.node.type)
        roots[root] = merging.leaf(root.node.name, nodes[0], nodes[1], kind)
    outcome = _merged_outcome(merging, *(as_outcome(way.outcome) for way in found))
    handed_on = [HandedOn.of(merging, number) for number in range(len(merging.pairs))]
    results = _recorded(tracer, pred, found, merging)
    for root, maker in roots.items():
        replace_root(tracer, root, maker(results)._node)
    note_shared(tracer, pred, handed_on, results)
    for place, maker in makers.items():
        assign(tracer, place, maker(results))
    for way in found:
        way.leave_doubts()
    return outcome(results)


def as_outcome(value: Any) -> Outcome:
    """The result of a part (None, BREAK, CONTINUE or a Returned) as an Outcome."""
    if isinstance(value, Outcome):
        return value
    made = Outcome()
    if value is None:
        return made
    if isinstance(value, str):
        made.flags[value] = True
    else:
        made.flags["RETURN"], made.value = True, value.value
    return made


def _merged_outcome(merging: Merging, one: Outcome, other: Outcome) -> Callable[[Any], Any]:
    flags = {k: merging.merged("the outcome", one.flags[k], other.flags[k]) for k in JUMPS}
    value = merging.merged("the returned value", one.value, other.value)
    return lambda results: Outcome({k: f(results) for k, f in flags.items()}, value(results))


def _recorded(tracer: Tracer, pred: Any, found: Sequence[Way], merging: Merging) -> list[Any]:
    """The results for the pairs of leaves in which the ways differ."""
    if not merging.pairs:
        return []
    nodes = []
    for way, values in zip(found, zip(*merging.pairs)):
        with way.at_its_end():
            nodes.append([as_kind(tracer, v, k) for v, k in zip(values, merging.kinds)])
    if all(_is_cheap(way.region) for way in found) and not any(k.type.shape for k in merging.kinds):
        return _chosen(tracer, pred, found, nodes, merging)
    captured = list(dict.fromkeys(node for way in found for node in way.region.captured))
    bodies = [way.region.finish(n, captured) for way, n in zip(found, nodes)]
    parts = record_control(
        tracer,
        lookup("cond"),
        {"pred": tracer.create_arg(pred), "operands": tuple(captured), "true_fn": bodies[0], "false_fn": bodies[1]},
    )
    return merging.results(parts)


#: The most calls on numbers in each of two ways that are both computed, and then chosen from.
_MOST_CHEAP = 6


def _is_cheap(region: Region) -> bool:
    """Whether a way computes only a few numbers from numbers, with ops that are defined for all of them."""
    calls = [node for node in region.graph.nodes if node.op == "call_function"]
    return len(calls) <= _MOST_CHEAP and all(map(is_total, calls))


def is_total(node: Node) -> bool:
    """Whether a call returns a number for all operands."""
    op = node.target
    plain = op.kind in ("pointwise", "creation")
    partial = op.symbol in ("//", "%", "**", "<<", ">>")  # undefined for 0 or negative numbers
    kinds = [n.type for n in (node, *node.all_input_nodes)]
    if partial and not any(getattr(k, "dtype", None) and k.dtype.is_float for k in kinds):
        divisor = node.args[1]
        partial = not (type(divisor) is int and divisor > 0)
    return plain and not partial and all(getattr(k, "shape", None) == () for k in kinds)


def _chosen(
    tracer: Tracer, pred: Any, found: Sequence[Way], nodes: Sequence[list[Node]], merging: Merging
) -> list[Any]:
    """Both ways computed, with ``where`` to choose between them."""
    ends = []
    for way, results in zip(found, nodes):
        env = {inner: outer for outer, inner in way.region.captured.items()}
        for node in way.region.graph.nodes:
            if node.op == "call_function":
                args = map_nodes(node.args, env.__getitem__)
                tracer.origin = (node.scope, node.loc)
                env[node] = tracer.create_proxy(
                    "call_function", node.target, args, dict(node.kwargs), node.target.node_name
                ).node
                tracer.origin = None
        ends.append([env[node] for node in results])
    made = []
    for one, other in zip(*ends):
        arguments = (pred, tracer.proxy(one), tracer.proxy(other))
        made.append(tracer.proxy(one) if one is other else lookup("where")(*arguments))
    return merging.results([value.node for value in made])


# -- effects ---------------------------------------------------------------------------------------
def assign(tracer: Tracer, place: Place, value: Any) -> None:
    """Set a place, after the surrounding region has recorded it."""
    if place.get() is value:
        return
    if not isinstance(place, Variable):  # variables of functions that the region calls do not matter
        note(tracer, place)
    place.set(value)


def note(tracer: Tracer, place: Place) -> None:
    """A place is about to be set."""
    body = tracer.bodies[-1] if tracer.bodies else None
    if isinstance(body, Region):
        body.note(place)


@dataclass
class HandedOn:
    """What two ways give for one result: ``values``, of which ``known`` are arrays from before the condition, or one of
    several of these (:class:`Tie`). ``views`` numbers these arrays. ``chooser`` is the number of the result that tells
    which of them it is, or -1; without it, a way has one of the ``numbers``, or -1."""

    values: tuple[Any, ...]
    known: list[bool]
    views: dict[View, int]
    numbers: list[Any]
    is_complete: bool
    chooser: int | None

    @staticmethod
    def of(merging: Merging, number: int) -> HandedOn:
        """For the pair with this number; may add a pair for the chooser."""
        values = merging.pairs[number]
        views: dict[View, int] = {}
        codes: list[Any] = []
        complete = True
        for value, way in zip(values, merging.found):
            view = view_of(value) if is_array(value) else None
            own = way.region.graph
            alive = [own, merging.tracer.graph, *(body.outer for body in merging.tracer.bodies)]
            kin = memory_of(value).kin if view is not None else ()
            ties = view.ties if view is not None and not any(m.root.home is g for m in kin for g in alive) else ()
            is_outer = view is not None and view.home is not own
            is_any = bool(ties) and all(t.view.home is not own for t in ties)
            if merging.tracer.ties_all and is_any and not (is_outer and ties[-1].number is not None):
                places = [views.setdefault(tie.view, len(views)) for tie in ties]
                with way.at_its_end():
                    codes.append(number_of_tie(merging.tracer, ties, places))
                complete = complete and ties[-1].number is None
                continue
            merging.tracer.left_untied |= bool(ties)
            codes.append(views.setdefault(view, len(views)) if view is not None and is_outer else -1)
            complete = complete and is_outer
        chooser = None
        if any(isinstance(code, Node) for code in codes):
            chooser = len(merging.pairs)
            merging.leaf("the array", codes[0], codes[1], number_kind(int))
        return HandedOn(values, [code != -1 for code in codes], views, codes, complete, chooser)

    def tied(self, tracer: Tracer, pred: Any, results: Sequence[Any], result: Any) -> bool:
        """Tie the result to the arrays that it may be, if these are known."""
        unknown = [memory_of(v).family for v, known in zip(self.values, self.known) if is_array(v) and not known]
        if not self.views or any(root_of(view).memory in family for view in self.views for family in unknown):
            return False
        if self.chooser is not None:
            views = {number: view for view, number in self.views.items()}
            return tie(result, results[self.chooser].node, views, self.is_complete)
        views = {
            way: view for way, own in zip((1, 0), self.numbers) for view, number in self.views.items() if number == own
        }
        return tie(result, tracer.create_arg(pred), views, self.is_complete)


def note_shared(tracer: Tracer, pred: Any, found: Sequence[HandedOn], results: Sequence[Any]) -> None:
    """Record which memory the results of two ways may share. A result that is an array from before the condition is
    tied to it. If it may be another one that a way hands on, or a view of one, a write into one of them leaves the
    other in doubt."""
    arrays = []
    for handed_on, result in zip(found, results):
        if is_mutable(result, handed_on.values):
            memories = [memory_of(value) if is_array(value) else None for value in handed_on.values]
            is_tied = handed_on.tied(tracer, pred, results, result)
            ways = [(m, is_tied and known) if m else None for m, known in zip(memories, handed_on.known)]
            arrays.append((ways, memory_of(result)))
    families = [[m.family for m, is_tied in filter(None, ways) if not is_tied] for ways, _ in arrays]
    for number, ((ways, own), family) in enumerate(zip(arrays, families)):
        for memory, is_tied in filter(None, ways):
            for origin in memory.origins if not is_tied else ():
                share(origin, own, "or not: that depends on a value that is not known while tracing")
        own.link(set().union(*family))
        for others, other in arrays[:number]:
            both = [(a, b) for a, b in zip(ways, others) if a is not None and b is not None]
            if any(b[0] in a[0].family and not (a[1] and b[1]) for a, b in both):
                own.link((other,))


def is_array(value: Any) -> bool:
    """Whether a value is traced and has memory that may be written into, as arrays of rank 0 have, too."""
    return is_traced(value) and not isinstance(value, PythonNumber) and is_number(value) is False


def is_mutable(result: Any, values: Sequence[Any]) -> bool:
    """Whether the result of a branch or loop, which is one of these values, has memory that may be written into; that
    is noted for a result of rank 0."""
    found = [is_array(value) for value in values if is_traced(value) or is_leaf(value)]
    if isinstance(result, PythonNumber) or not any(found):
        return False
    if not result.type.shape:
        memory_of(result).is_number = False if all(is_number(v) is False for v in values if is_traced(v)) else None
    return True


def is_callers(root: View) -> bool:
    """Whether memory belongs to the caller of the program, who sees what is written there."""
    return root.made is not None and root.made.op == "placeholder" and not (root.copied or root.home.is_body)


def share(memory: Memory, own: Memory, why: str) -> None:
    """Record that a result, with memory of its ``own``, may be in another memory."""
    if memory.refusal or is_callers(memory.root):
        own.refusal = own.refusal or f"may share memory with {memory.root.node.name}, {why}"
    own.hand_on((memory,))
