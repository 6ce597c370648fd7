"""Step through the rewrites of a run of passes one by one, forward and backward.

In: the program that passes ran on and the :class:`~fxlite.passes.manager.Report` of their run. Out:
:class:`Rewrites`, a list of the places where they changed it, with the program before and after
each. No pass runs again: the graph's journal holds every edit with its inverse, so intermediate
programs are made by undoing and redoing edits.

The journal also tells where one rewrite ends. Edits that replace one value by another are one
rewrite, however many readers there are; nodes created before them and nodes erased after them belong
to it. Edits between which the graph is not valid (a weight is smaller already, its reader is not yet
adapted) are one rewrite. Nodes that a pass has created and that nothing reads yet, and those that it
is about to erase and that nothing reads any more, are not shown.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError
from fxlite.graph.graph import Graph, Node, map_nodes, nodes_in
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.interpreter import Interpreter
from fxlite.graph.node_store import undo_assign, undo_erase, undo_set_field
from fxlite.graph.subgraph import bodies_of
from fxlite.passes.checking.verify import module_at
from fxlite.passes.manager import Report, Step
from fxlite.passes.rewrite.rewire import needed_by
from fxlite.show.comparison.graph_diff import GraphDiff, diff
from fxlite.show.text.pretty import type_text
from fxlite.types.agreement import leaves
from fxlite.types.tensor_type import type_of

_WEIGHTS = (GraphModule._restore_entry, GraphModule._restore_groups)
_NEAR = 4  # programs that are kept for the next steps


@dataclass(frozen=True)
class Rewrite:
    """One place where a pass changed the program: number ``number`` of ``count`` for that pass,
    counted from 1. ``before`` and ``after`` are the whole program."""

    pass_name: str
    number: int
    count: int
    before: GraphModule
    after: GraphModule
    _runs: _Runs = field(default_factory=lambda: _Runs(), compare=False, repr=False)

    @functools.cached_property
    def diff(self) -> GraphDiff:
        """The difference between ``before`` and ``after``."""
        return diff(self.before, self.after)

    @property
    def removed(self) -> list[str]:
        """The nodes that it removed or changed, by their names in ``before``."""
        return [c.old.name for c in (*self.diff.removed, *self.diff.changed) if c.old is not None]

    @property
    def made(self) -> list[str]:
        """The nodes that it changed or created, by their names in ``after``."""
        return [c.new.name for c in (*self.diff.changed, *self.diff.added) if c.new is not None]

    def values(self, inputs: Mapping[str, Any], with_results: bool = True) -> RewriteValues:
        """The values of the removed and the created nodes, for ``inputs`` by placeholder name. With
        ``with_results=False`` only what these nodes depend on runs, and the results are not compared.
        Raises whatever running the two programs raises."""
        sides = (self.before, self.removed), (self.after, self.made)
        (env, was), (new_env, now) = (
            self._runs.run(program, inputs, None if with_results else names) for program, names in sides
        )
        named = [("-", n, env) for n in self.removed] + [("+", n, new_env) for n in self.made]
        rows = [
            (mark, name, *_told(np.asarray(found[name])))
            for mark, name, found in named
            if isinstance(found.get(name), (np.ndarray, np.generic))
        ]
        return RewriteValues(rows, _difference(was, now) if with_results else "")


#: What the columns of :attr:`RewriteValues.rows` are.
HEADINGS = ("", "node", "type", "min", "max", "mean", "first numbers")


@dataclass(frozen=True)
class RewriteValues:
    """Rows of texts under :data:`HEADINGS`, removed nodes first, and how far the results of the
    program are from those before; empty if the results were not asked for."""

    rows: list[tuple[str, ...]]
    results: str


class Rewrites(Sequence[Rewrite]):
    """The rewrites of all passes of a report, in order: ``rewrites[3].diff``. Raises GraphError if
    the run has been undone."""

    def __init__(self, module: GraphModule, report: Report) -> None:
        self.module, self.report = module, report
        self._places: list[_Place] = []
        self._near: dict[int, GraphModule] = {}
        self._runs = _Runs()
        live = None
        for step in report:
            records, end = step.records, step._snapshot.position
            found = list(_walk(step, records, end - len(records))) if records else []
            is_other = not records and step._snapshot.live is not live  # the pass built a new graph
            if is_other and diff(self.program(len(self._places)), step.module):
                found = [_Place(step, end, frozenset())]
            self._places += [replace(place, number=i, count=len(found)) for i, place in enumerate(found, 1)]
            live = step._snapshot.live

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = self._places[index]
        index %= len(self)
        programs = self.program(index), self.program(index + 1)
        return Rewrite(place.step.name, place.number, place.count, *programs, self._runs)

    def count_of(self, step: Step) -> int:
        """How many of the rewrites belong to one pass."""
        return sum(place.step is step for place in self._places)

    def results(self, index: int, inputs: Mapping[str, Any]) -> str:
        """How far the program's results after the pass of rewrite ``index`` are from those before that pass."""
        place = self._places[index]
        first = index % len(self) - place.number + 1
        was, now = (self._runs.run(self.program(i), inputs)[1] for i in (first, first + place.count))
        return _difference(was, now)

    def starts(self) -> list[int]:
        """The index of the first rewrite of each pass that has any."""
        return [i for i, place in enumerate(self._places) if place.number == 1]

    def program(self, index: int) -> GraphModule:
        """The program after the first ``index`` rewrites: 0 gives the original program."""
        if index not in self._near:
            while len(self._near) >= _NEAR:
                del self._near[next(iter(self._near))]
            made = self.module if index == 0 else self._places[index - 1].program()
            self._near[index] = made
        return self._near[index]


@dataclass(frozen=True)
class _Place:
    """Where a rewrite ends: a position in the pass's part of the journal, and the names of nodes
    that are not shown there."""

    step: Step
    position: int
    hidden: frozenset[str]
    number: int = 0
    count: int = 0

    def program(self) -> GraphModule:
        made = module_at(self.step._snapshot.live, self.position)
        for node in reversed(list(made.graph.nodes)):
            if node.name in self.hidden and not node.users:
                made.graph.erase_node(node)
        return made


def _walk(step: Step, records: list[Any], start: int) -> Iterator[_Place]:
    """Undo the pass, and redo it from one boundary to the next."""
    gm = step._snapshot.live
    journal = gm.graph.journal
    later = journal.take_back(start + len(records))  # what later passes did
    left = set(gm.graph.nodes) - _alive(gm.graph)  # nodes that the pass keeps though nothing reads them
    created = {r for r in records if isinstance(r, Node)} - left
    erased = {r[1] for r in records if isinstance(r, tuple) and r[0] is undo_erase}
    stops = [start, *(start + offset for offset in _boundaries(records)), start + len(records)]
    pieces = [journal.take_back(position) for position in reversed(stops[:-1])]
    try:
        living = _alive(gm.graph)
        going = created | (erased & living)
        known = _view(gm, living, going)
        for position in stops[1:]:
            journal.replay(pieces.pop())
            is_last = position == stops[-1]
            if not is_last and not _is_valid(gm.graph):
                continue
            living = _alive(gm.graph)
            now = _view(gm, living, going)
            is_other = now != known and _by_number(now) != _by_number(known)
            known = now
            if is_other:
                yield _Place(step, position, frozenset(n.name for n in going - living))
    finally:
        while pieces:
            journal.replay(pieces.pop())
        journal.replay(later)


def _boundaries(records: list[Any]) -> Iterator[int]:
    """Positions at which a rewrite may begin."""
    later: dict[Node, Any] = {}  # what a node reads after one edit is what it reads before the next
    pairs: dict[int, set[tuple[Node, Any]]] = {}
    for offset in reversed(range(len(records))):
        record = records[offset]
        if isinstance(record, tuple) and record[0] is undo_assign:
            node = record[1]
            was = list(nodes_in(record[2:]))
            now = later.get(node, list(nodes_in((node._args, node._kwargs))))
            later[node] = was
            changed = {(a, b) for a, b in zip(was, now) if a is not b}
            pairs[offset] = changed if len(was) == len(now) and changed else {(node, None)}
    replaced: set[tuple[Node, Any]] = set()
    touched: set[Any] = set()  # created or changed by this rewrite
    has_effect, subject = False, None
    for offset, record in enumerate(records):
        own: set[tuple[Node, Any]] = set()
        is_edit = False
        if not isinstance(record, tuple):
            begins, about = has_effect, record
        elif record[0] in _WEIGHTS:
            begins, about = has_effect, None
        elif record[0] is undo_assign or (record[0] is undo_set_field and record[2] in ("op", "target")):
            own = pairs.get(offset, {(record[1], None)})
            about, is_edit = record[1], True
            belongs = about is subject or not replaced.isdisjoint(own) or any(new in touched for _, new in own)
            begins = has_effect and not belongs
        elif record[0] is undo_erase:
            has_effect = True
            continue
        else:
            continue
        if begins and offset:
            yield offset
            replaced, touched, has_effect = set(), set(), False
        replaced |= own
        touched.add(about)
        if is_edit:
            has_effect, subject = True, about


def _alive(graph: Graph) -> set[Node]:
    """The nodes that the result or an effect depends on, and the inputs."""
    return needed_by(n for n in graph.nodes if n.op in ("placeholder", "output") or n.is_impure())


def _view(gm: GraphModule, living: set[Node], going: set[Node]) -> list[Any]:
    """What is shown of a graph, in a form that can be compared."""
    return [
        (n, n.op, n.target, n._args, n._kwargs, n.type, id(gm.get_attribute(n.target)) if n.op == "get_attr" else 0)
        for n in gm.graph.nodes
        if n in living or n not in going
    ]


def _by_number(view: list[Any]) -> list[Any]:
    """The same view with nodes numbered, so that replacing a node by an equal one is no change."""
    number = {entry[0]: i for i, entry in enumerate(view)}
    return [
        (op, target, map_nodes(args, number.get), map_nodes(kwargs, number.get), *rest)
        for _, op, target, args, kwargs, *rest in view
    ]


def _is_valid(graph: Graph) -> bool:
    try:
        graph.lint(full=True)
    except (FxliteError, AttributeError):
        return False
    return True


# -- values ----------------------------------------------------------------------------------------
class _Runs:
    """Runs programs that have most of their nodes in common, such as those before and after each
    rewrite: what the last two programs computed is not computed again.

    Calls of the same op with the same attributes and weights on operands with the same numbers share
    a number. Each random or impure call has a number of its own."""

    def __init__(self) -> None:
        self._inputs: Mapping[str, Any] | None = None
        self._numbers: dict[Any, int] = {}
        self._held: list[Any] = []  # keeps weights alive, because their addresses are part of the numbers
        self._last: dict[int, Any] = {}
        self._before: dict[int, Any] = {}

    def run(
        self, module: GraphModule, inputs: Mapping[str, Any], names: Collection[str] | None = None
    ) -> tuple[dict[str, Any], Any]:
        """The value of each node by name, and the result; with ``names``, only those nodes and their dependencies."""
        if inputs is not self._inputs:
            self.__init__()  # type: ignore[misc]
            self._inputs = inputs
        runner = Interpreter(module, garbage_collect_values=False)
        runner.start(*[inputs[n.target] for n in module.graph.placeholders])
        known = {**self._before, **self._last}
        found: dict[int, Any] = {}
        numbers: dict[Node, int] = {}
        result = None
        nodes = list(module.graph.nodes)
        if names is not None:
            needed = needed_by(n for n in nodes if n.name in names or (n.op != "output" and n.is_impure()))
            nodes = [n for n in nodes if n in needed]
        with np.errstate(all="ignore"):
            for node in nodes:
                number = numbers[node] = self._number(module, node, numbers)
                if node.op in ("placeholder", "output") or number not in known:
                    found[number] = runner.run_node(node)
                else:
                    found[number] = known[number]
                runner.env[node] = found[number]
                if node.op == "output":
                    result = runner.env[node]
        self._before, self._last = self._last, found
        return {node.name: value for node, value in runner.env.items()}, result

    def _number(self, module: GraphModule, node: Node, numbers: Mapping[Node, int]) -> int:
        key: Any = object()
        if node.op == "get_attr":
            array = module.get_attribute(node.target)
            self._held.append(array)
            key = "weight", id(array)
        elif node.op == "placeholder":
            key = "input", node.target
        elif node.op == "call_function" and not (node.is_impure() or node.target.is_random or bodies_of(node)):
            marked = map_nodes((node.args, dict(node.kwargs)), lambda read: _Number(numbers[read]))
            key = node.target.name, id(node.target), repr(marked)
        return self._numbers.setdefault(key, len(self._numbers))


class _Number(int):
    """The number of an operand; its text differs from that of every plain number."""

    def __repr__(self) -> str:
        return f"%{int(self)}"


def _told(value: np.ndarray[Any, Any]) -> tuple[str, ...]:
    """Type, range and first numbers of an array."""
    numbers, type = value.reshape(-1), type_text(type_of(value))
    if not numbers.size:
        return type, "", "", "", ""
    first = " ".join(f"{n.item():.4g}" for n in numbers[:3]) + (" …" if numbers.size > 3 else "")
    with np.errstate(all="ignore"):
        found = np.min(numbers), np.max(numbers), np.mean(numbers, dtype=np.result_type(numbers, np.float64))
        ranges = [f"{n.item():.4g}" for n in found]
    return type, *ranges, first


def _difference(before: Any, after: Any) -> str:
    """How far apart two results are, as text."""
    pairs = list(zip(leaves(before), leaves(after)))
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in pairs):
        return "of other types than before"
    if all(a.tobytes() == b.tobytes() for a, b in pairs):
        return "the same, bit by bit"
    with np.errstate(all="ignore"):
        apart = [np.abs(a.astype(np.float64) - b.astype(np.float64)) for a, b in pairs]
    most = max((float(d[np.isfinite(d)].max(initial=0)) for d in apart), default=0.0)
    return f"at most {most:.3g} apart"
