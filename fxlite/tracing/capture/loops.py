"""Loops that stay loops: ``while``, and ``for`` over elements that can be accessed by number.

In: the parts of a loop as functions, and facts about its variables. Out: one ``while_loop`` or ``fori_loop`` of the
graph. It *carries* the values that an iteration (also called a round) passes to the next one: variables, attributes
and items, and arrays that are written into. The body is traced repeatedly until these values and their types are
known; only the last attempt is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import FxliteError, TraceError
from fxlite.base.state import is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Graph, Node
from fxlite.ops.control import INDEX
from fxlite.ops.op import lookup
from fxlite.tracing.capture.bodies import Kind, as_value, kind_of, number_kind, put_together
from fxlite.tracing.capture.control import record_control
from fxlite.tracing.capture.flow_answers import Counted
from fxlite.tracing.capture.known import implied
from fxlite.tracing.capture.places import MISSING, Contents, OrNone, Place, Unavailable, or_none
from fxlite.tracing.capture.regions import (
    FILLER,
    Outcome,
    Region,
    Way,
    as_kind,
    as_outcome,
    assign,
    is_callers,
    is_leaf,
    is_mutable,
    is_same,
    run,
    share,
    shown,
    taken_on,
)
from fxlite.tracing.capture.texts import is_text, one_text
from fxlite.tracing.proxy import PythonNumber
from fxlite.tracing.selections.bounds import MOST_ROOM
from fxlite.tracing.selections.growing import Grows, Rows, with_rows
from fxlite.tracing.selections.magnitudes import after_rounds, largest
from fxlite.tracing.selections.masked import all_of, same_mask
from fxlite.tracing.writes.aliasing import replace_root
from fxlite.tracing.writes.shared_memory import Memory, View, is_number, leave_in_doubt, memory_of, root_of, view_of
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer


#: The most rounds of a loop that is unrolled because a list grows in it.
FEW_APPENDED = 64
#: How often a body is traced at most: each time, more is known of the values that it carries.
_MOST_ATTEMPTS = 12
_FLAG = number_kind(bool)
#: The kind of FILLER, which can have any.
ANY = Kind(TensorType((1,), dtypes.bool_))


class CannotKeep(TraceError):
    """A loop cannot stay a loop; unrolling it may be possible."""


@dataclass(frozen=True)
class Variables:
    """Facts about the variables that a loop sets: those that a round may read as the previous round left them, and
    those that are read after the loop."""

    places: Sequence[Place]
    exposed: frozenset[str]
    later: frozenset[str]


@dataclass
class _Entry:
    """The value that a place carries from round to round: leaves of these kinds."""

    structure: Any
    values: list[Any]
    kinds: list[Kind]
    inputs: list[Any] = field(default_factory=list)
    inner: Any = None  # the value at the start of a round

    def built(self, values: Iterable[Any]) -> Any:
        """A value of this form with other leaves."""
        return put_together(self.structure, values)


@dataclass
class Hint:
    """The facts that tracing a loop has shown, for the next time that it is traced."""

    roots: dict[View, None] = field(default_factory=dict)
    kinds: dict[Place, list[Kind]] = field(default_factory=dict)
    #: For each carried integer that may become large: its bounds before the loop, and in all rounds.
    magnitudes: dict[tuple[Place, int], tuple[float, float]] = field(default_factory=dict)
    whole: set[Place] = field(default_factory=set)
    texts: set[Place] = field(default_factory=set)  # places that are one of several texts
    or_none: dict[Place, Any] = field(default_factory=dict)  # places that may be None, with the form of their values
    selected: set[Place] = field(default_factory=set)  # places where a round leaves selected elements
    apart: set[Place] = field(default_factory=set)  # those of them with another selection than other places
    #: Why it stays a loop, or "", by the number of its rounds and what is around it.
    reasons: dict[tuple[Any, ...], str] = field(default_factory=dict)
    unrolls = False  # the loop must be unrolled
    refusal: FxliteError | None = None  # why, if it could not stay a loop
    settles = False  # it may stay a loop after its first round

    @staticmethod
    def of(tracer: Tracer, body: Callable[..., Any]) -> Hint:
        """The facts about the loop with this body."""
        found: Hint = tracer.loop_hints.setdefault(body.__code__, Hint())
        return found


class Loop:
    """A loop while it is traced. ``test`` is its condition, or ``over`` holds the values over which it iterates.
    ``runs``: it is known to have a first round. ``has_else``: the code after it depends on how it ends."""

    def __init__(
        self,
        tracer: Tracer,
        test: Callable[[], Any] | None,
        over: Counted | None,
        body: Callable[..., Any],
        variables: Variables,
        flow: Any,
        runs: bool,
        has_else: bool = False,
    ) -> None:
        self.tracer, self.test, self.over, self.body = tracer, test, over, body
        self.variables, self.flow, self.runs, self.has_else = variables, flow, runs, has_else
        self.what = "a while loop" if test is not None else "a for loop"
        self.hint = Hint.of(tracer, body)
        self.entries: dict[Place, _Entry] = {}
        self.sharing: dict[Place, Place] = {}  # a selection, and another one of the same positions
        self.extra: list[Place] = []  # attributes and items that the body sets
        self.fixed: dict[Place, Unavailable | None] = {}
        self.roots = [r for r in self.hint.roots if self._is_around(r)]
        self.doubts: dict[Memory, str] = {}  # memories around the loop that a round leaves in doubt, and why
        self.leaving: list[str] = []  # the jumps that may leave the loop
        self.changes = False  # whether a round changes the form, shape or dtype of a value

    def _is_around(self, root: View) -> bool:
        graphs: list[Graph] = [self.tracer.graph, *(b.outer for b in self.tracer.bodies)]
        return all(any(found is g for g in graphs) for found in (root.home, root.node.graph))

    # -- what is carried ---------------------------------------------------------------------------
    def _prepare(self) -> None:
        """Make entries for the places that rounds pass on to each other."""
        self.entries, self.sharing = {}, {}
        exposed = [p for p in self.variables.places if p.name in self.variables.exposed]
        for place in (*exposed, *self.extra):
            value = place.get()
            if value is MISSING or place in self.fixed or isinstance(value, Unavailable):
                continue
            if place in self.hint.selected and is_traced(value):
                value = all_of(value)
            if place in self.hint.texts:
                value = one_text(self.tracer, value)
            entry = self._entry(self._or_none(place, value), place.name)
            if (
                entry is None
                or (_has_rows(entry.structure) and not isinstance(place, Contents))
                or (place in self.hint.whole and (entry.structure is pytree.LEAF or _is_selected(entry)))
            ):
                self.fixed.setdefault(place, None)
                continue
            known = self.hint.kinds.get(place)
            if known is not None and len(known) == len(entry.kinds):
                both = [b if a is ANY else taken_on(a, b) for a, b in zip(entry.kinds, known)]
                if None not in both and (self._runs() or not _grow(entry.kinds, both)):
                    entry.kinds = both  # type: ignore[assignment]
            self.entries[place] = entry

    def _entry(self, value: Any, name: str) -> _Entry | None:
        """The entry for a value; None if it has leaves other than arrays and numbers."""
        found: list[Any] = []

        def leaf(part: Any, path: str, keys: tuple[Any, ...]) -> Any:
            if is_leaf(part) or part is FILLER:
                found.append(part)
                return pytree.LEAF
            raise TypeError

        try:
            structure = pytree.structure_of(or_none(self.tracer, value), name, leaf)
        except (TypeError, ValueError):
            return None
        kinds = [ANY if v is FILLER else kind_of(self.tracer, v, name) for v in found]
        return _Entry(structure, found, kinds)

    def _or_none(self, place: Place, value: Any) -> Any:
        """The value of a place that may be None as an OrNone; others unchanged."""
        form = self.hint.or_none.get(place)
        value = or_none(self.tracer, value) if form is not None else value
        if form is None or type(value) is OrNone or value is MISSING or isinstance(value, Unavailable):
            return value
        if value is not None:
            return OrNone(self.tracer, True, one_text(self.tracer, value))
        return OrNone(self.tracer, False, put_together(form, itertools.repeat(FILLER)))

    def _may_be_none(self, place: Place, before: Any, after: Any) -> bool:
        """Whether a place is None before a round or after it, and then or otherwise a value that can be carried. A
        value that the first round sets for certain is not: the loop may settle after it."""
        sure = after is not None and type(or_none(self.tracer, after)) is not OrNone
        if place in self.hint.or_none or (sure and self._runs() and not (self.over is not None and self.over.is_rest)):
            return False
        if before is not None and after is not None and sure:
            return False
        entry = self._entry(one_text(self.tracer, before if after is None else after), place.name)
        if entry is None or not entry.values:
            return False
        structure = entry.structure
        self.hint.or_none[place] = structure.children[1] if structure.kind == "or_none" else structure
        self.hint.kinds[place] = entry.kinds if structure.kind == "or_none" else [_FLAG, *entry.kinds]
        self.fixed.pop(place, None)
        return True

    def _runs(self) -> bool:
        """Whether the loop has a first round. If the number of rounds is a named size, this adds the condition that
        it has."""
        count = self.over.count if self.over is not None else None
        if not self.runs and isinstance(count, NamedDim):
            self.tracer.require(count.expr, ">=", 1)
            self.runs = True
        return self.runs

    @property
    def may_settle(self) -> bool:
        """Whether the obstacle to keeping the loop may disappear after its first round, which it is known to have."""
        return self.changes and self._runs()

    # -- one attempt -------------------------------------------------------------------------------
    def _region(self, index: bool) -> tuple[Region, Any]:
        """A region with inputs for all carried values."""
        tracer = self.tracer
        region = Region(tracer, self.what, [*self.variables.places, *self.entries, *self.fixed])
        region.maker = self
        region.is_open = self.test is not None or is_traced(self.over.count)  # type: ignore[union-attr]
        region.is_long = self.over is not None and is_long(tracer, self.over)
        number = None
        with region:
            if index:
                number = region.own("i", INDEX, number=True)
                tracer.ranges[number.node] = self.over.bounds  # type: ignore[union-attr]
                tracer.magnitudes[number.node] = largest(tracer, self.over.bounds[1])  # type: ignore[union-attr]
            self.left = [region.own(name.lower(), _FLAG.type, number=True) for name in self.leaving]
            for place, entry in self.entries.items():
                several = len(entry.kinds) > 1
                entry.inputs = [
                    self._input(region, f"{place.name}_{n}" if several else place.name, v, k)
                    for n, (v, k) in enumerate(zip(entry.values, entry.kinds))
                ]
                for n, (value, inner, kind) in enumerate(zip(entry.values, entry.inputs, entry.kinds)):
                    if kind.number is int:
                        tracer.magnitudes[inner.node] = max(
                            largest(tracer, value), *self.hint.magnitudes.get((place, n), (0.0,))
                        )
            for root in self.roots:
                region.roots[root] = root.node
                root.node = region.input(root.node.name, root.node.type)
            tracer.writes.count += 1
        return region, number

    def _input(self, region: Region, name: str, before: Any, kind: Kind) -> Any:
        """A leaf as a round sees it; with rank 0 it is an array or a number, whichever it was before the loop."""
        immutable = is_number(before) if is_traced(before) and not before.type.shape else True
        refusal = "is an input that may be an immutable number" if immutable is None else ""
        return region.own(name, kind.type, bool(kind.number), refusal, immutable)

    def _enter(self) -> None:
        """Replace the values from before the loop by the carried ones, so that the program sees these."""
        carried = set(self.entries)
        for place in self.variables.places:
            if place in carried or place in self.fixed:
                continue
            if place.name not in self.variables.exposed:
                place.set(MISSING)
            elif not isinstance(place.get(), Unavailable):
                place.set(self._before(place))
        for place, reason in self.fixed.items():
            if reason is not None:
                place.set(reason)
        for place, entry in self.entries.items():
            entry.inner = entry.built(self._with_shared_mask(place, entry.inputs, lambda e: e.inputs))
            if type(entry.inner) is list:
                self.tracer.bodies[-1].instead[id(entry.inner)] = entry.inner, place.get()  # type: ignore[attr-defined]
            place.set(entry.inner)
            for before, inner in zip(entry.values, entry.inputs):
                if is_traced(before) and before.type.shape:  # in the first round, writes to one show in the other
                    memory_of(inner).link(memory_of(before).family)
        for memory, why in self.doubts.items():
            leave_in_doubt(self.tracer, (memory,), why)

    def _with_shared_mask(self, place: Place, leaves: list[Any], of: Callable[[_Entry], list[Any]]) -> list[Any]:
        """The leaves of a place; for a selection, with the mask of another one that selects the same positions."""
        entry = self.entries[place]
        if entry.structure.kind != "masked" or place in self.hint.apart:
            return leaves
        for other, found in self.entries.items():
            if other == place:
                return leaves
            alike = found.structure.kind == "masked" and other not in self.hint.apart
            if alike and same_mask(found.values[1].node, entry.values[1].node):
                self.sharing[place] = other
                return [leaves[0], of(found)[1]]
        return leaves

    def _before(self, place: Place) -> Unavailable:
        return Unavailable(
            self.tracer,
            f"{self.what} may read {place.name} in a round before it has a value",
            f"give it a value before the loop: {place.name} = 0",
        )

    def _attempt(self) -> tuple[Way | None, Way]:
        """Trace the condition and the body with the values that are known to be carried."""
        condition = None
        if self.test is not None or self.leaving:
            region, number = self._region(index=self.over is not None)
            condition = run(region, lambda: self._asked(number))
            changed = [p for p, v in condition.values.items() if self._has_changed(region, p, v)]
            if changed or any(r not in self.roots for r in condition.nodes):
                if self.has_else:
                    raise self.tracer.error(
                        f"the condition of a while loop changes {changed[0].name if changed else 'an array'}, "
                        "and the loop has an else",
                        "change it in the body: while True: ... if not condition: break",
                    )
                self._ask_in_body()
                return self._attempt()
        region, number = self._region(index=self.over is not None)
        facts: list[tuple[Node, bool]] = []
        if condition is not None and self.tracer.flags:
            inner = dict(zip(condition.region.inputs, region.inputs))
            known = implied(self.tracer, condition.outcome, True)
            facts = [(inner.get(node, node), truth) for node, truth in known]
        return condition, run(region, lambda: self._round(number), facts)

    def _ask_in_body(self) -> None:
        """Turn the loop into ``while True: if not test: break`` if its condition changes something, by an assignment
        in it or with a Python integer that may become too large."""
        test, body = self.test, self.body
        assert test is not None

        def asked() -> Any:
            truth = self.flow.truth(test())
            if not is_traced(truth):
                return body() if truth else "BREAK"
            return self.flow.either(truth, (body, lambda: "BREAK"), self.variables.places)

        self.test, self.body = (lambda: True), asked

    def _asked(self, number: Any) -> Any:
        """The condition for another round."""
        self._enter()
        over, test = self.over, self.test

        code = self.tracer.raised.code

        def goes_on() -> Any:
            return number < over.bounds[1] if over is not None else self.flow.truth(test())  # type: ignore[misc]

        def ask() -> Any:  # the loop does not continue after an exception
            return goes_on() if type(code) is int else self.flow.and_(code == 0, goes_on)

        if not self.left:
            return self.flow.truth(ask())
        over_with = self.left[0] if len(self.left) == 1 else lookup("logical_or")(*self.left)
        return self.flow.truth(self.flow.and_(self.flow.not_(over_with), ask))

    def _round(self, number: Any) -> Any:
        self._enter()
        if self.over is None:
            return self.body()
        return self.body(number if self.over.is_range else self.over.item(number))

    def _has_changed(self, region: Region, place: Place, value: Any) -> bool:
        """Whether the condition changes the value of a place."""
        before = region.places[place]
        entry = self.entries.get(place)
        if entry is None:
            return value is not before and value is not MISSING and not isinstance(value, Unavailable)
        found = self._entry(value, place.name)
        if found is None or _is_written(entry, region):
            return True
        return value is not entry.inner and any(a is not b for a, b in zip(found.values, entry.inputs))

    def record(self) -> Outcome:
        """Trace the loop until the values that it carries are known, record it, and set the values that it leaves
        behind. Lists that it changes have rows from the attempt on that follows the one that shows it."""
        return with_rows(self.tracer, self._settled, self, self._forget)

    def _forget(self) -> None:
        """Start anew, because a list has rows from now on."""
        self.entries, self.sharing, self.extra, self.fixed, self.roots = {}, {}, [], {}, []
        self.doubts, self.leaving, self.changes = {}, [], False
        self.hint.roots.clear()

    def _settled(self) -> Outcome:
        rounds = self._known_rounds()
        for _ in range(_MOST_ATTEMPTS):
            self._prepare()
            before = self.tracer.added.copy()
            condition, way = self._attempt()
            each, self.tracer.added = self.tracer.added - before, before
            if self._learned(way) or self._overflows(way):
                continue
            self._check_held(way)
            added = {owner: number * (math.inf if rounds is None else rounds) for owner, number in each.items()}
            before.update(added)
            self._make_room(added)
            return self._recorded(condition, way)
        problem = f"the types of the values that {self.what} carries do not settle"
        raise CannotKeep(str(self.tracer.error(problem, "unroll it")))

    def _check_held(self, way: Way) -> None:
        """Raise TraceError if a round changes the list over which the loop goes."""
        for held in self.over.held_by if self.over is not None else ():
            if any(place.owner is held for place in way.values):
                problem = f"{self.what} changes the {type(held).__name__} over which it goes"
                raise self.tracer.error(problem, "go over a copy, [*values], or change it after the loop")

    def _known_rounds(self) -> int | None:
        return self.over.count if self.over is not None and type(self.over.count) is int else None

    def _make_room(self, added: Mapping[int, float]) -> None:
        """Start anew with enough room for the elements that a loop whose number of rounds is known adds to lists from
        outside of it, unless an outer loop or branch does so, or there is enough."""
        for place in self.entries:
            contents = place.get()
            if not isinstance(place, Contents) or type(contents[0]) is not Rows or place.owner is not contents[0].owner:
                continue
            rows, number = contents[0], added.get(id(place.owner), 0)
            around = [body for body in self.tracer.bodies if isinstance(body, Region)]
            if around and not around[-1].owns(place.owner):
                continue
            wanted = number + (rows.count if type(rows.count) is int else rows.room)
            if number and wanted <= MOST_ROOM and (not rows.suffices or wanted > rows.room):
                raise Grows(self, place.owner, None, False, int(wanted))

    # -- results of an attempt ---------------------------------------------------------------------
    def _learned(self, way: Way) -> bool:
        """Whether the attempt has shown that other values are carried than was assumed."""
        new_roots = [r for r in way.nodes if r not in self.roots]
        self.roots += new_roots
        self.hint.roots.update(dict.fromkeys(new_roots))
        flags = as_outcome(way.outcome).flags
        leaving = [name for name in ("BREAK", "RETURN") if flags[name] is not False]
        learned = bool(new_roots) or leaving != self.leaving
        self.leaving = leaving
        known = {*self.variables.places, *self.extra}
        for place in way.values:
            if place not in known:
                if isinstance(place, Contents) and not any(type(v) is Rows for v in way.region.places[place]):
                    raise self.tracer.error(
                        f"a list from outside of {self.what} is changed in it, which happens while tracing, and not "
                        "when the program runs",
                        "write into an array of the final size: out = np.zeros(n), out[i] = value",
                    )
                if way.region.places[place] is MISSING:
                    raise self.tracer.error(
                        f"{place.name} is set in {self.what}, and not before it", "give it a value before the loop"
                    )
                self.extra.append(place)
                learned = True
        fixed = list(self.fixed.items())  # those of this attempt
        for place in self.hint.texts & way.values.keys():
            way.values[place] = one_text(self.tracer, way.values[place])
        for place in self.hint.or_none.keys() & way.values.keys():
            way.values[place] = self._or_none(place, way.values[place])
        for place, entry in list(self.entries.items()):
            learned = self._compared(place, entry, way) or learned
        for place, reason in fixed:
            value = way.values.get(place, MISSING)
            before = way.region.places[place]
            if reason is None and isinstance(value, Unavailable):
                self.fixed[place], self.changes, learned = value, True, True
            elif reason is None and not is_same(value, before) and is_text(before) and is_text(value):
                self.hint.texts.add(place)
                del self.fixed[place]
                learned = True
            elif reason is None and not is_same(value, before) and self._may_be_none(place, before, value):
                learned = True
            elif reason is None and not is_same(value, before):
                learned = self._differs(place, *self._other_value(place, shown(before), shown(value)))
        found = {} if learned else {m: why for m, why in way.doubts.items() if self._is_around(m.root)}
        learned = learned or not found.keys() <= self.doubts.keys()  # the next round must not read there
        self.doubts = found
        return learned

    def _compared(self, place: Place, entry: _Entry, way: Way) -> bool:
        """Compare the values of a place before and after a round; returns whether they differ."""
        after = way.values[place]
        if isinstance(after, Unavailable):
            self.fixed[place] = after
            return True
        found = self._entry(after, place.name)
        becomes_part = found is not None and found.structure.kind == "masked" and entry.structure is pytree.LEAF
        if becomes_part and place not in self.hint.selected and entry.kinds[0].type.shape:
            self.hint.selected.add(place)
            return True
        if found is None or found.structure != entry.structure:
            turns = after is None or (found is not None and "or_none" in (found.structure.kind, entry.structure.kind))
            if turns and self._may_be_none(place, way.region.places[place], after):
                return True
            return self._differs(place, *self._other_form(place, entry, after))
        if entry.structure is pytree.LEAF and after is entry.inputs[0]:
            root = root_of(view_of(after))
            if root in way.region.written and is_number(after) is False:
                self.hint.whole.add(place)  # it is written into, but stays the same array
                self.fixed[place] = None
                return True
        is_other = any(a is not b for a, b in zip(found.values, entry.inputs))
        if _is_selected(entry) and after is entry.inner and (is_other or _is_written(entry, way.region)):
            self.hint.whole.add(place)  # it stays the same one, as with NumPy's +=
            self.fixed[place] = None
            return True
        if place in self.sharing:
            leader = way.values[self.sharing[place]]
            if not (hasattr(leader, "mask") and same_mask(leader.mask.node, after.mask.node)):
                self.hint.apart.add(place)
                return True
        kinds = []
        for before, new in zip(entry.kinds, found.kinds):
            both = before if new is ANY else taken_on(before, new)
            if both is None or (_grow([before], [both]) and not self._runs()):
                return self._differs(place, *self._other_type(place, before, new))
            kinds.append(both)
        if kinds == entry.kinds:
            return False
        self.hint.kinds[place] = kinds
        return True

    def _overflows(self, way: Way) -> bool:
        """Whether the attempt has shown that Python integers may become larger than it assumed."""
        carried: list[tuple[Node, Any, float]] = []
        keys = []
        for place, entry in self.entries.items():
            after = self._entry(way.values[place], place.name)
            leaves = zip(entry.values, entry.inputs, after.values, entry.kinds)  # type: ignore[union-attr]
            for n, (before, inner, last, kind) in enumerate(leaves):
                if kind.number is int:
                    carried.append((inner.node, getattr(last, "node", last), largest(self.tracer, before)))
                    keys.append((place, n))
        known = self.hint.magnitudes
        if all(key in known and start <= known[key][0] for key, (_, _, start) in zip(keys, carried)):
            return False
        count = self.over.count if self.over is not None and type(self.over.count) is int else None
        sizes = after_rounds(self.tracer, list(way.region.graph.nodes), carried, count)
        known.update({key: (start, size) for key, (_, _, start), size in zip(keys, carried, sizes or ())})
        return sizes is not None

    def _differs(self, place: Place, reason: str, advice: str) -> bool:
        """Handle a place with another form, shape or dtype after a round, which therefore cannot be carried."""
        self.fixed[place] = Unavailable(self.tracer, reason, advice)
        self.changes = True
        return True

    def _other_value(self, place: Place, before: str, after: str) -> tuple[str, str]:
        if before == after:
            return (
                f"{place.name} names another array after a round of {self.what} than before it, "
                "and the loop writes into one of them",
                f"copy it in the loop: {place.name} = ....copy()",
            )
        return (
            f"{place.name} is {before} before {self.what} and {after} after a round of it",
            "loops carry arrays and numbers: start with one of these",
        )

    def _other_form(self, place: Place, entry: _Entry, after: Any) -> tuple[str, str]:
        value = pytree.children_of(after)
        if value is not None and value[0] == "list":
            return (
                f"{place.name} is a list that has another length after a round of {self.what}",
                "write into an array of the final size: np.zeros(n), out[i] = value",
            )
        return (
            f"{place.name} is {shown(after)} after a round of {self.what}, and was not before",
            "keep its form in the loop",
        )

    def _other_type(self, place: Place, before: Kind, after: Kind) -> tuple[str, str]:
        if before.type.shape != after.type.shape:
            advice = "its shape must stay: start with an array of the final size and write into it"
        else:
            name = str(after.type.dtype.numpy)
            advice = f"start with {name}, or cast it in the loop: .astype({place.name}.dtype)"
        return (f"{place.name} is {before} before {self.what} and {after} after a round of it", advice)

    # -- the loop ----------------------------------------------------------------------------------
    def _recorded(self, condition: Way | None, way: Way) -> Outcome:
        given_away = check_memory(self.tracer, self.what, way.region, self._arrays(way))
        outcome = as_outcome(way.outcome)
        carried: list[_Carried] = [(False, outcome.flags[name], _FLAG) for name in self.leaving]
        for place, entry in self.entries.items():
            after = self._entry(way.values[place], place.name)
            assert after is not None
            carried += zip(entry.values, after.values, entry.kinds)
        carried += [(r.node, way.nodes[r], Kind(r.node.type)) for r in self.roots]
        kept = [k for k in (self._temporary(p, way) for p in (*self.variables.places, *self.extra)) if k]
        for _, before, entry in kept:
            carried += zip(before, entry.values, entry.kinds)
        returned = self._returned(outcome)
        if returned is not None:
            carried += [(FILLER, v, k) for v, k in zip(returned.values, returned.kinds)]
        if condition is not None and condition.outcome is True and not self.leaving:
            raise self.tracer.error(
                "a while loop has no end: its condition is always true, and nothing leaves it",
                "leave it with break or return",
            )
        nodes = self._record(condition, way, carried) if carried else []
        results = iter([as_value(self.tracer, n, k) for n, (_, _, k) in zip(nodes, carried)])
        found = Outcome(value=outcome.value)
        for name in self.leaving:
            found.flags[name] = next(results)
        values = self._leave(results, way, kept, returned)
        for memory, why in given_away:
            leave_in_doubt(self.tracer, (memory,), why)
        self.tracer.writes.count += bool(given_away)
        way.leave_doubts()
        if returned is not None:
            found.value = returned.built(values)
        if condition is not None and condition.outcome is True and len(self.leaving) == 1:
            found.flags[self.leaving[0]] = True  # it cannot end in any other way
        return found

    def _returned(self, outcome: Outcome) -> _Entry | None:
        if outcome.value is FILLER or outcome.value is None:
            return None
        found = self._entry(outcome.value, "the returned value")
        if found is None:
            raise self.tracer.error(
                f"{self.what} may be left by returning {shown(outcome.value)}, which is not known while tracing",
                "return arrays and numbers, or leave the loop with break",
            )
        return found

    def _temporary(self, place: Place, way: Way) -> tuple[Place, list[Any], _Entry] | None:
        """The entry for a variable that each round sets and that is read after the loop: its values before the loop
        and after a round. This also covers an attribute or item that no round reads before it sets it."""
        variables, after = self.variables, way.values[place]
        is_unread = isinstance(self.fixed.get(place), Unavailable) and not isinstance(after, Unavailable)
        if not is_unread and (place.name in variables.exposed or place.name not in variables.later):
            return None
        found = None if after is MISSING else self._entry(after, place.name)
        if found is None:
            return None
        if place.get() is None and (found.structure.kind == "or_none" or not self._runs()):
            if found.structure.kind != "or_none":
                found = self._entry(OrNone(self.tracer, True, after), place.name)
            assert found is not None
            return place, [False, *[FILLER] * (len(found.kinds) - 1)], found
        before = None if place.get() is MISSING else self._entry(place.get(), place.name)
        if before is not None and before.structure == found.structure:
            both = [taken_on(a, b) for a, b in zip(before.kinds, found.kinds)]
            if None not in both and not _grow(before.kinds, both):
                found.kinds = both  # type: ignore[assignment]
                return place, before.values, found
        return (place, [FILLER] * len(found.kinds), found) if self._runs() else None

    def _record(self, condition: Way | None, way: Way, carried: list[_Carried]) -> list[Node]:
        """Record the loop; returns the nodes of its results, without that for the number of the round."""
        tracer, over = self.tracer, self.over
        is_while, counts = condition is not None, over is not None
        region = way.region
        if is_while and counts:
            number = PythonNumber(region.inputs[0], tracer)
            with region:
                carried = [(over.bounds[0], number + 1, number_kind(int)), *carried]  # type: ignore[union-attr, operator]
        regions = [region] if condition is None else [condition.region, region]
        for one in regions:
            for _, _, kind in carried[len(one.inputs) - (counts and not is_while) :]:
                one.input("kept", kind.type)
        with way.at_its_end():
            after = [as_kind(tracer, v, k) for _, v, k in carried]
        before = tuple(as_kind(tracer, v, k) for v, _, k in carried)
        test: list[Node] = []
        if condition is not None:
            with condition.region:
                test = [as_kind(tracer, condition.outcome, _FLAG)]
        captured = list(dict.fromkeys(node for one in regions for node in one.captured))
        arguments: dict[str, Any] = {"carried": before, "captured": tuple(captured)}
        arguments["body_fn"] = region.finish(after, captured)
        if condition is not None:
            arguments["cond_fn"] = condition.region.finish(test, captured)
            nodes = record_control(tracer, lookup("while_loop"), arguments)
            return nodes[counts:]
        bounds = [b if type(b) is int else tracer.create_arg(b) for b in over.bounds]  # type: ignore[union-attr]
        arguments |= {"lower": bounds[0], "upper": bounds[1]}
        return record_control(tracer, lookup("fori_loop"), arguments)

    # -- values after the loop ---------------------------------------------------------------------
    def _arrays(self, way: Way) -> list[Array]:
        """The carried arrays, with the names under which they are carried."""
        found = []
        for place, entry in self.entries.items():
            after = self._entry(way.values[place], place.name)
            assert after is not None
            for before, inner, last in zip(entry.values, entry.inputs, after.values):
                if is_traced(last) and last.type.shape:
                    found.append((place.name, before, inner, last))
        return found

    def _leave(
        self, results: Any, way: Way, kept: Sequence[tuple[Place, list[Any], _Entry]], returned: _Entry | None
    ) -> list[Any]:
        """Set the places that the loop has set to its results. Returns the leaves of the returned value."""
        tracer, variables, done = self.tracer, self.variables, set[Place]()
        leaves: list[_Leaf] = []
        ends: dict[Place, list[Any]] = {}
        for place, entry in self.entries.items():
            after = self._entry(way.values[place], place.name)
            values = [next(results) for _ in entry.kinds]
            leaves += zip(entry.values, entry.inputs, after.values, values)  # type: ignore[union-attr]
            if isinstance(place, Contents) and _has_rows(entry.structure):
                values[-1] = self._count_of_rows(entry, after, values[-1])
            ends[place] = values
            shared = self.sharing.get(place)
            values = values if shared is None else [values[0], ends[shared][1]]
            assign(tracer, place, entry.built(values))
            done.add(place)
        for root in self.roots:
            replace_root(tracer, root, next(results)._node)
        for place, _, entry in kept:
            values = [next(results) for _ in entry.kinds]
            leaves += ((FILLER, None, last, result) for last, result in zip(entry.values, values))
            assign(tracer, place, entry.built(values))
            done.add(place)
        ended = [] if returned is None else [(FILLER, None, last, next(results)) for last in returned.values]
        self._note_shared(way, [*leaves, *ended])
        for place, reason in self.fixed.items():
            if reason is not None and place not in done:
                assign(tracer, place, reason)
            done.add(place)
        for place in variables.places:
            after = way.values[place]
            if place in done or after is MISSING:
                continue
            if place.get() is MISSING or place.name not in variables.exposed:
                unset = isinstance(after, Unavailable)
                assign(tracer, place, after if unset else self._unset(place))
        return [result for *_, result in ended]

    def _count_of_rows(self, entry: _Entry, after: Any, result: Any) -> Any:
        """The number of elements of a list after the loop, as an int if each round adds as many."""
        rounds, start = self._known_rounds(), entry.values[-1]
        if rounds is None or self.leaving or type(start) is not int:
            return result
        node, each = after.values[-1]._node, 0
        while node is not entry.inputs[-1]._node:
            if node.op != "call_function" or node.target is not lookup("add") or type(node.args[1]) is not int:
                return result
            node, each = node.args[0], each + node.args[1]
        return start + rounds * each

    def _note_shared(self, way: Way, leaves: Sequence[_Leaf]) -> None:
        """Record which other arrays those after the loop may be: the values that a round passes on under this name or,
        by way of another round, under another one."""
        arrays = [leaf for leaf in leaves if is_traced(leaf[2]) and is_mutable(leaf[3], (leaf[0], leaf[2]))]
        given = {memory_of(leaf[1]): leaf for leaf in arrays if leaf[1] is not None}
        found: list[tuple[Memory, set[Memory]]] = []
        for before, _, last, result in arrays:
            own, family, seen = memory_of(result), set[Memory](), set[Memory]()
            stack = [v for v in ((last,) if self.runs else (last, before)) if is_traced(v)]
            while stack:
                memory = memory_of(stack.pop())
                if memory in seen:
                    continue
                seen.add(memory)
                family |= memory.family
                for origin in memory.origins:
                    if origin in given:
                        stack += [v for v in (given[origin][0], given[origin][2]) if is_traced(v)]
                    else:
                        share(origin, own, "as the loop leaves it")
            found.append((own, family))
        ends, starts = ([memory_of(leaf[k]) for leaf in arrays if is_traced(leaf[k])] for k in (2, 0))
        apart = not any(b in a.family for all in (ends, starts) for a, b in itertools.combinations(all, 2))
        for number, (own, family) in enumerate(found):
            own.link(family)
            own.link(other for other, others in found[:number] if not apart and family & others)

    def _unset(self, place: Place) -> Unavailable:
        return Unavailable(
            self.tracer,
            f"{place.name} has no value if {self.what} runs no round, and whether it runs one "
            "is not known while tracing",
            f"give it a value of the same type before the loop: {place.name} = 0",
        )


def is_long(tracer: Tracer, over: Counted) -> bool:
    """Whether lists that a loop changes get rows, so that it can stay a loop though its number of rounds is known."""
    return tracer.keeps_lists and type(over.count) is int and (over.count > FEW_APPENDED or tracer.loops == "keep")


def _has_rows(structure: pytree.Structure) -> bool:
    """Whether a value is or holds a list with rows, which are carried with that list."""
    return structure.kind == "rows" or any(map(_has_rows, structure.children))


def _is_selected(entry: _Entry) -> bool:
    return getattr(entry.structure, "kind", "") == "masked"


def _is_written(entry: _Entry, region: Region) -> bool:
    """Whether a round writes into a carried value."""
    return any(root_of(view_of(leaf)) in region.written for leaf in entry.inputs if is_traced(leaf))


def _grow(before: Sequence[Kind], after: Sequence[Any]) -> bool:
    """Whether a number becomes an array."""
    return any(b.type.shape and not a.type.shape for a, b in zip(before, after))


_Carried = tuple[Any, Any, Kind]


#: A leaf before the loop, in a round, at its end, and after the loop.
_Leaf = tuple[Any, Any, Any, Any]
#: A carried array: its name, and the array before the loop, in a round, and after it.
Array = tuple[str, Any, Any, Any]


def check_memory(tracer: Tracer, what: str, region: Region, arrays: Sequence[Array]) -> list[tuple[Memory, str]]:
    """Check that carried arrays are independent: if a round writes into one, no other may share its memory. Raises
    TraceError if it does, or if that is not known. Returns the memories whose contents are not known after the
    loop, with the reasons."""
    given_away = []
    ends = [memory_of(last) for _, _, _, last in arrays]
    owners = [memory_of(inner) for _, _, inner, _ in arrays]
    starts = [memory_of(before) if is_traced(before) else None for _, before, _, _ in arrays]
    written = [root.memory.origins for root in region.written if root.memory is not None]
    around = [tracer.graph, *(body.outer for body in tracer.bodies)]
    for (name, before, _, last), end, owner, start in zip(arrays, ends, owners, starts):
        is_own = end is owner or not (end.refusal or any(m.root.home in around for m in end.origins))
        is_shared = not is_own or view_of(last).is_part or sum(end in m.family for m in ends) > 1
        if is_shared and any(owner in origins or end.origins & origins for origins in written):
            raise tracer.error(
                f"{name} shares memory with another array after a round of {what}, and the loop "
                "writes into one of them",
                f"copy it: {name} = ....copy()",
                last._node,
            )
        if start is None or not any(owner in origins for origins in written):
            continue
        if start.refusal or is_callers(start.root) or view_of(before).is_part or starts.count(start) > 1:
            raise tracer.error(
                f"{what} writes into {start.root.node.name} under the name {name}, which names another "
                "array in the next round",
                f"copy it before the loop: {name} = {name}.copy()",
                start.root.node,
            )
        given_away += [(m, f"{what} has written into it under the name {name}") for m in start.family]
    return given_away
