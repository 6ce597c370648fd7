"""Branches that are traced side by side: what a part of the program changes while it is traced, put
back afterwards, and told.

In: the ways that a program may go at a condition, as functions. Out: one ``cond`` of the graph,
whose results are all that the ways leave behind: variables, attributes and items that they set,
arrays that they write into, by whatever name, and what they were left by.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import FxliteError, TraceError
from fxlite.base.location import is_own_file
from fxlite.base.state import is_traced
from fxlite.graph.graph import Node, map_nodes
from fxlite.ops.op import lookup
from fxlite.tracing.capture.merging import FILLER, Merging, as_kind
from fxlite.tracing.capture.places import Place, Variable
from fxlite.tracing.control.bodies import Body
from fxlite.tracing.control.carried import Kind
from fxlite.tracing.control.functions import record_control
from fxlite.tracing.python_numbers import PythonNumber
from fxlite.tracing.writes.aliasing import replace_root
from fxlite.tracing.writes.shared_memory import View, root_of, view_of

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: Branches inside of branches.
_MOST_NESTED = 60
#: What a part of a construct may be left by.
JUMPS = ("BREAK", "CONTINUE", "RETURN")


@dataclass
class Outcome:
    """How a part was left: for each kind of jump whether by it, a bool that may be known only when
    the program runs; and the value that it returns then."""

    flags: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(JUMPS, False))
    value: Any = FILLER

    @property
    def is_known(self) -> bool:
        return all(type(flag) is bool for flag in self.flags.values())


class Region(Body):
    """A body that may change what is around it: ``places`` are those that it may set, with what
    they held, and ``roots`` the memory that it writes into, with the node of its value before."""

    def __init__(self, tracer: Tracer, what: str, places: Iterable[Place]) -> None:
        if len(tracer.bodies) >= _MOST_NESTED:
            raise tracer.error(
                f"more than {_MOST_NESTED} conditions stand inside of each other: the function "
                "calls itself until a value that is not known while tracing says that it is enough",
                "write a loop",
            )
        super().__init__(tracer, what)
        self.places: dict[Place, Any] = {place: place.get() for place in places}
        self.roots: dict[View, Node] = {}
        self.written: set[View] = set()
        self._made: dict[int, Any] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)

    def note(self, place: Place) -> None:
        """A place is about to be set."""
        if place not in self.places and id(place.owner) not in self._made:
            self.places[place] = place.get()

    def own_object(self, value: Any) -> None:
        """An object was made in here: what is done to it need not be put back."""
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
            self.tracer.known[found] = known
        return found

    def put_back(self) -> None:
        """What the region has changed is as it was before."""
        for place, value in self.places.items():
            place.set(value)
        for root, node in self.roots.items():
            root.node = node
        self.tracer.writes.count += 1

    @property
    def size(self) -> int:
        """Calls of ops in it, those in its own bodies included."""
        return sum(map(_calls, self.graph.nodes))


def _calls(node: Node) -> int:
    if node.op != "call_function":
        return 0
    bodies = (v for v in node.kwargs.values() if hasattr(v, "calls"))
    return 1 + sum(sum(map(_calls, body.calls)) for body in bodies)


@dataclass
class Way:
    """What a region has left behind."""

    region: Region
    outcome: Any
    values: dict[Place, Any]
    nodes: dict[View, Node]


def run(region: Region, part: Callable[[], Any]) -> Way:
    """Trace a part into a region, and put everything back."""
    try:
        with region:
            outcome = part()
            values = {place: place.get() for place in region.places}
            nodes = {root: root.node for root in region.roots}
        return Way(region, outcome, values, nodes)
    except FxliteError:
        raise
    except Exception as error:
        raise _raised(region, error) from error
    finally:
        region.put_back()


def _raised(region: Region, error: Exception) -> TraceError:
    frames = [f for f, _ in traceback.walk_tb(error.__traceback__)]
    own = [f for f in frames if not is_own_file(f.f_code.co_filename)]
    where = f" ({own[-1].f_code.co_filename}:{_line(error, own[-1])})" if own else ""
    return region.tracer.error(
        f"{region.what} raises {type(error).__name__}: {error}{where}; whether it does is not "
        "known while tracing, and a graph has no exceptions",
        "check it before tracing, or return a number that says so",
    )


def _line(error: Exception, frame: Any) -> int:
    lines = [n for f, n in traceback.walk_tb(error.__traceback__) if f is frame]
    return lines[-1]


# -- conditions ------------------------------------------------------------------------------------
def conditional(
    tracer: Tracer,
    pred: Any,
    ways: Sequence[Callable[[], Any]],
    places: Sequence[Place],
    names: tuple[str, str] = ("where the condition is true", "where it is false"),
) -> Any:
    """Go both ways; the outcome of them. ``pred`` is one traced bool."""
    found = [run(Region(tracer, "a branch", places), way) for way in ways]
    one, other = found
    merging = Merging(tracer, names)
    makers = {}
    for place in {**one.values, **other.values}:
        before = one.region.places.get(place, other.region.places.get(place))
        values = [way.values.get(place, before) for way in found]
        makers[place] = merging.merged(place.name, *values)
    roots = {}
    for root in {**one.nodes, **other.nodes}:
        nodes = [way.nodes.get(root, root.node) for way in found]
        kind = Kind(root.node.type)
        roots[root] = merging.leaf(root.node.name, nodes[0], nodes[1], kind)
    outcome = _merged_outcome(merging, *(as_outcome(way.outcome) for way in found))
    results = _recorded(tracer, pred, found, merging)
    for number, (pair, result) in enumerate(zip(merging.pairs, results)):
        for way, value in zip(found, pair):
            note_shared(way.region, value, result, merging.kinds[number])
    for place, maker in makers.items():
        assign(tracer, place, maker(results))
    for root, maker in roots.items():
        replace_root(tracer, root, maker(results)._node)
    return outcome(results)


def as_outcome(value: Any) -> Outcome:
    """What a part gives as an Outcome: None, BREAK, CONTINUE or a Returned."""
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
        with way.region:
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


#: Calls on numbers that both ways may have to be computed at once, and chosen from.
_MOST_CHEAP = 6


def _is_cheap(region: Region) -> bool:
    """Whether all that a way computes is a few numbers, of numbers, by ops that are defined for
    all."""
    calls = [node for node in region.graph.nodes if node.op == "call_function"]
    return len(calls) <= _MOST_CHEAP and all(map(is_total, calls))


def is_total(node: Node) -> bool:
    """Whether a call gives a number, whatever the numbers that it is given."""
    op = node.target
    plain = op.kind in ("pointwise", "creation")
    partial = op.symbol in ("//", "%", "**", "<<", ">>")  # by 0, by a negative number
    kinds = [n.type for n in (node, *node.all_input_nodes)]
    if partial and not any(getattr(k, "dtype", None) and k.dtype.is_float for k in kinds):
        divisor = node.args[1]
        partial = not (type(divisor) is int and divisor > 0)
    return plain and not partial and all(getattr(k, "shape", None) == () for k in kinds)


def _chosen(
    tracer: Tracer, pred: Any, found: Sequence[Way], nodes: Sequence[list[Node]], merging: Merging
) -> list[Any]:
    """Both ways computed, and ``where`` between them."""
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


# -- what comes out --------------------------------------------------------------------------------
def assign(tracer: Tracer, place: Place, value: Any) -> None:
    """Set a place, which the region around notes."""
    if place.get() is value:
        return
    if not isinstance(place, Variable):  # those of functions that the region calls are their own
        note(tracer, place)
    place.set(value)


def note(tracer: Tracer, place: Place) -> None:
    """A place is about to be set."""
    body = tracer.bodies[-1] if tracer.bodies else None
    if isinstance(body, Region):
        body.note(place)


def outer_root(region: Region, value: Any) -> View | None:
    """The memory around the region that an array shares."""
    if not is_traced(value) or isinstance(value, PythonNumber) or not value.type.shape:
        return None
    root = root_of(view_of(value))
    return None if root.home is region.graph else root


def note_shared(region: Region, value: Any, result: Any, kind: Kind) -> None:
    """The result of a region may be, or be a view of, an array around it, or not: what is written
    into one of them from now on leaves the other in doubt."""
    root = outer_root(region, value)
    if root is None or not kind.type.shape:
        return
    share(root, view_of(result), "or not: that depends on a value that is not known while tracing")


def is_callers(root: View) -> bool:
    """Whether memory belongs to who calls the program, who sees what is written there."""
    return root.made is not None and root.made.op == "placeholder" and not root.copied


def share(root: View, view: View, why: str) -> None:
    """Note that two values may share memory."""
    other, own = root.memory, view.memory
    assert other is not None and own is not None
    name = root.node.name
    if other.refusal or is_callers(root):
        own.refusal = own.refusal or f"may share memory with {name}, {why}"
    if not other.refusal:
        other.kin = (*other.kin, own)
        own.kin = (*own.kin, other)
