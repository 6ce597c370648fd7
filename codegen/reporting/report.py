"""A report on a model: the data that its page shows.

In: a GraphModule, perhaps inputs, and a back end. Out: :class:`ModelReport`: the traced graph and the
graph from which code is compiled, with costs, measured times, memory, the emitted kernels and what
each pass did; :meth:`~ModelReport.to_html` writes it as one page.

:class:`History` says what passes did to each node (created, replaced, rewired or removed it) as lines
of text by node of the traced and of the optimized graph. It is derived from the journal. A removed
node is taken to be replaced by the value that its readers read instead, and by the nodes that the same
pass created with the same place and module: passes give new nodes the origin of the nodes they come
from.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite import compiler
from fxlite.backend import DEFAULT, Backend, find_measured, silent
from fxlite.backend import Stage as Step
from fxlite.base.checked import checked
from fxlite.base.console import page_html, write_whole
from fxlite.base.errors import CodegenError, GraphError, number_of, sizes_text
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.program.program import memory_plan, optimize
from fxlite.codegen.runtime.toolchain import CompilerNotFound
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.graph.node_store import undo_assign, undo_erase
from fxlite.passes.costing.cost_report import CostReport, cost
from fxlite.passes.costing.timeline import MemoryTimeline, memory_timeline
from fxlite.passes.manager import Report
from fxlite.passes.profiling.profile import input_values, profile_alone
from fxlite.passes.profiling.record import Profile
from fxlite.passes.profiling.tables import seconds_text
from fxlite.show.comparison.graph_diff import GraphDiff, diff
from fxlite.show.node_cost import Roofs
from fxlite.show.text.pretty import value_text

# -- history ---------------------------------------------------------------------------------------
_MOST_NAMES = 8
_MOST_AT_ONE_PLACE = 50  # new nodes at one place, if it is not known what each comes from


@dataclass(frozen=True)
class History:
    """Lines of text by name of node, for the ``traced`` and the ``optimized`` graph. ``became`` has for
    each node of the traced graph the nodes of the optimized one that compute its value."""

    traced: Mapping[str, list[str]]
    optimized: Mapping[str, list[str]]
    became: Mapping[str, list[str]]


def history(traced: Graph, optimized: Graph, report: Report) -> History:
    """The history of all nodes. Nodes that no pass created are named as in the traced graph."""
    lines: dict[Node, list[str]] = {}
    refused: dict[str, list[str]] = {}
    became: dict[Node, list[Node]] = {}
    made: set[Node] = set()
    removed: dict[Node, None] = {}
    edits = [_edits(step.records) for step in report]
    _fill_in_reads(edits)
    for step, found in zip(report, edits):
        made.update(found.made)
        removed.update(found.removed)
        for node, text in _told(step.name, found, became):
            lines.setdefault(node, []).append(text)
        for entry in step.refusals:
            refused.setdefault(entry.node, []).append(f"{step.name}: left alone: {entry.reason}")
    names = {node.name for node in traced.nodes}
    kept = [n for n in (*optimized.nodes, *removed) if n not in made and n.name in names]

    def all_lines(node: Node) -> list[str]:
        return lines.get(node, []) + refused.get(node.name, [])

    return History(
        {node.name: all_lines(node) for node in kept},
        {node.name: all_lines(node) for node in optimized.nodes},
        {node.name: _alive(node, became) for node in kept},
    )


@dataclass
class _Edits:
    """What one pass did: the nodes it created and removed, and for each existing node whose arguments it
    changed the nodes it ``read`` before and ``reads`` now."""

    made: dict[Node, None] = field(default_factory=dict)
    removed: dict[Node, None] = field(default_factory=dict)
    read: dict[Node, list[Node]] = field(default_factory=dict)
    reads: dict[Node, list[Node]] = field(default_factory=dict)


def _edits(records: Iterable[Any]) -> _Edits:
    found = _Edits()
    for record in records:
        if record.__class__ is not tuple:
            found.made[record] = None
        elif record[0] is undo_erase:
            if record[1] in found.made:
                del found.made[record[1]]
            else:
                found.removed[record[1]] = None
        elif record[0] is undo_assign and record[1] not in found.made:
            found.read.setdefault(record[1], list(nodes_in(record[2:])))
    return found


def _fill_in_reads(edits: list[_Edits]) -> None:
    """What a node reads after one pass is what it reads before the next pass that changes it."""
    later: dict[Node, list[Node]] = {}
    for found in reversed(edits):
        for node, before in found.read.items():
            now = later.get(node)
            found.reads[node] = list(nodes_in((node.args, node.kwargs))) if now is None else now
            later[node] = before


def _told(name: str, edits: _Edits, became: dict[Node, list[Node]]) -> Iterable[tuple[Node, str]]:
    """Lines about a pass; also fills in ``became``."""
    in_place: dict[Node, Node] = {}
    for reader, now in edits.reads.items():
        was = edits.read[reader]
        if len(was) == len(now):
            in_place.update((old, new) for old, new in zip(was, now) if old is not new)
    made_at: dict[Hashable, list[Node]] = {}
    for node in edits.made:
        if node.op != "get_attr":
            made_at.setdefault(_origin(node), []).append(node)
    sources: dict[Node, list[str]] = {}
    ends = set(in_place.values())
    calls = [old for old in edits.removed if old.op != "get_attr"]
    removed_at = Counter(map(_origin, calls))
    for old in calls:
        origin, instead = _origin(old), in_place.get(old)
        candidates = made_at.get(origin, [])
        if removed_at[origin] == 1:
            new = list(candidates)
        elif instead is not None and instead in edits.made:
            new = _made_for(instead, edits.made, ends)  # only the part of the new nodes that computes it
        else:
            new = list(candidates) if len(candidates) <= _MOST_AT_ONE_PLACE else []
        if new:
            yield old, f"{name}: replaced by {_listed([node.name for node in new])}"
        elif instead is not None:
            yield old, f"{name}: removed; {instead.name} is read in its place"
        else:
            yield old, f"{name}: removed{'' if candidates else '; nothing reads it any more'}"
        if instead is not None and instead not in new:
            new.append(instead)
            yield instead, f"{name}: stands for {old.name}, too"
        became[old] = new
        for node in new:
            sources.setdefault(node, []).append(old.name)
    for node in edits.made:
        yield node, f"{name}: made{_from(name, node, sources.get(node, []))}"
    for node, now in edits.reads.items():
        text = _reads_text(edits.read[node], now)
        if text and node not in edits.removed:
            yield node, f"{name}: {text}"


def _made_for(end: Node, made: Mapping[Node, None], ends: set[Node]) -> list[Node]:
    """The nodes that a pass created to compute ``end``, in order: those that it depends on and that have
    the same origin, up to the ``ends`` of other replacements."""
    origin = _origin(end)
    found = {end: None}
    work = [end]
    while work:
        for read in work.pop().all_input_nodes:
            if read in made and read not in ends and read not in found and _origin(read) == origin:
                found[read] = None
                work.append(read)
    return list(found)[::-1]


def _reads_text(was: list[Node], now: list[Node]) -> str:
    """How operands changed, by name; empty if a value was merely computed anew under its old name."""
    was_names, now_names = (list(map(value_text, nodes)) for nodes in (was, now))
    new = [name for name in now_names if name not in was_names]
    gone = [name for name in was_names if name not in now_names]
    if new and gone:
        return f"reads {_listed(new)} in place of {_listed(gone)}"
    if new or gone:
        return f"reads {_listed(new)}, too" if new else f"no longer reads {_listed(gone)}"
    return ""


def _from(name: str, node: Node, sources: list[str]) -> str:
    chain = (node._meta or {}).get("from", ())
    if chain and chain[0][0] != name:
        rule, anchor = chain[0]
        return f" by the rule {rule} from {anchor}"
    return f" from {_listed(sources)}" if sources else ""


def _origin(node: Node) -> Hashable:
    return node.loc, node.scope


def _alive(node: Node, became: Mapping[Node, list[Node]]) -> list[str]:
    """Names of the nodes that finally replace a node."""
    found: dict[str, None] = {}
    seen = {node}
    work = [node]
    while work:
        current = work.pop()
        if not current._erased:
            found[current.name] = None
        fresh = [new for new in became.get(current, ()) if new not in seen]
        seen.update(fresh)
        work += reversed(fresh)
    return list(found)


def _listed(names: list[str]) -> str:
    shown = ", ".join(dict.fromkeys(names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"


# -- the report ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stage:
    """A graph of the report, ``traced`` or ``optimized``, with its ``costs`` at the report's sizes and its
    ``profile`` (None: not measured)."""

    title: str
    module: GraphModule
    costs: CostReport
    profile: Profile | None


@dataclass(frozen=True)
class ModelReport:
    """Everything about a model at sizes ``dims``. ``program`` is what ``backend`` emits (None for a
    program that cannot be compiled, and for a back end that emits no kernels); ``notes`` say what
    is missing and why; ``sqnr`` are signal-to-noise ratios in dB by module path, for colouring;
    ``inputs`` are the inputs that were run, by placeholder.
    """

    name: str
    dims: Mapping[str, int]
    traced: Stage
    optimized: Stage
    passes: Report
    backend: Backend
    program: CProgram | None
    roofs: Roofs | None
    notes: tuple[str, ...]
    sqnr: Mapping[str, float] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def history(self) -> History:
        """What each pass did to each node."""
        return history(self.traced.module.graph, self.optimized.module.graph, self.passes)

    @functools.cached_property
    def changes(self) -> GraphDiff:
        """The differences between the two graphs."""
        return diff(self.traced.module.graph, self.optimized.module.graph)

    def timelines(self) -> list[tuple[str, MemoryTimeline]]:
        """Memory over time, each with a title: of the traced graph run node by node, and of the arena of
        the compiled program. Empty for graphs with nodes of unknown size."""
        found = []
        try:
            run_by_node = memory_timeline(self.traced.module, self.dims)
            found.append(("The traced graph, run node by node as NumPy does", run_by_node))
        except GraphError:
            pass
        if self.program is not None:
            names = [call.name for call in self.program.calls]
            plan = memory_plan(self.program.program, names, self.dims)
            found.append((f"Compiled {self.backend.language}: the slots of its arena", plan))
        return found

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        return page_html(self.to_html(), 760, f"report of {self.name}")

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one self-contained HTML page. Returns its text, which is also written to ``path``
        if given."""
        from fxlite.codegen.reporting.page import page_text

        text = page_text(self)
        if path is not None:
            write_whole(path, text)
        return text

    def __str__(self) -> str:
        sizes = sizes_text(self.dims)
        nodes = [len(stage.module.graph) for stage in (self.traced, self.optimized)]
        kernels = f" in {number_of(len(self.program.calls), 'kernel')}" if self.program is not None else ""
        apart = "; composite ops were taken apart" if nodes[1] > nodes[0] else ""
        lines = [
            f"{self.name}: {number_of(nodes[0], 'node')} traced, {nodes[1]} after optimization{kernels}{apart}{sizes}"
        ]
        for stage in (self.traced, self.optimized):
            if stage.profile is not None:
                runner = stage.profile.target.runner
                least = seconds_text(min(stage.profile.plain_seconds))
                lines.append(f"{stage.title}: {least} in {runner}, the least of all calls")
        return "\n".join([*lines, *self.notes])

    __repr__ = __str__


@checked
def report(
    gm: GraphModule,
    *args: Any,
    inputs: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str | None = None,
    profile: bool = True,
    repeat: int | None = None,
    threads: int | None = None,
    roofs: Roofs | None = None,
    sqnr: Mapping[str, float] | None = None,
    stage: Step = silent,
) -> ModelReport:
    """Make a report on a program: ``fx.report(gm, sizes={"B": 8}).to_html("report.html")``.

    Inputs, ``sizes``, ``repeat``, ``threads`` and ``roofs`` are those of
    :func:`fxlite.passes.profile`; without inputs random ones are drawn. The traced graph is timed
    node by node in NumPy. The optimized graph is compiled and timed kernel by kernel with
    ``backend="c"``, and timed node by node with ``"python"``. The default is C if that is possible;
    ``notes`` say what was not. Few calls are measured, and none without counters:
    :func:`fxlite.passes.profile` measures more. ``stage`` is told about each step of the work.
    ``profile=False`` measures nothing and needs no compiler. With ``sqnr``, in dB by module path as
    from ``q.sensitivity``, graphs can be coloured by it.

    Raises ArgumentError for other back ends, for inputs and sizes that do not fit, and for inputs
    without types; with ``backend="c"`` also CodegenError for a program that cannot be compiled, and
    CompilerNotFound if it should be measured."""
    target = find_measured(backend or DEFAULT)
    values = input_values(gm, args, inputs, sizes)
    dims = check_inputs(gm.name, gm.graph.placeholders, values)
    notes: list[str] = []
    is_compiled = profile and target.part == "kernel"
    if is_compiled and backend is None:
        try:
            target.require()
        except CompilerNotFound:
            is_compiled = False
            notes.append(
                f"There is no {target.language} compiler: both graphs were timed in "
                "NumPy, and the machine's roofs are not known."
            )
    if not profile:
        notes.append("Nothing was measured, as requested.")
    made = None
    try:
        if is_compiled:
            given = target.checked({"profile": True, "threads": threads})
            made = target.compile(gm, **({} if stage is silent else {"stage": stage}), **given)
            optimized, manager, program = made.optimized, made.passes, made.program
        else:
            with stage("optimize"):
                optimized, manager = optimize(gm)
                program = target.emit(optimized)
    except CodegenError as error:
        if backend is not None:
            raise
        optimized, manager = optimize(gm)
        made, program = None, None
        notes.insert(0, f"No {target.language} could be generated from it, both graphs were timed in NumPy: {error}")
    known, before, after = roofs, None, None
    if profile:
        with stage("roofs"):
            known = compiler.machine_roofs() if roofs is None else roofs
        with stage("NumPy"):
            before = profile_alone(gm, values, known, repeat, threads)
        with stage(target.language if made is not None else "NumPy"):
            if made is not None:
                after = profile_alone(gm, values, known, repeat, threads, target.name, made)
            else:
                after = profile_alone(optimized, values, known, repeat, threads)
    with stage("costs"):
        costs = cost(gm, dims), cost(optimized, dims)
    return ModelReport(
        gm.name,
        dims,
        Stage("traced", gm, costs[0], before),
        Stage("optimized", optimized, costs[1], after),
        manager.report,
        target,
        program,
        known,
        tuple(notes),
        dict(sqnr or {}),
        values,
    )
