"""Before and after a pipeline: the change that costs predict for each pass, the change that is
measured, and the rewrites that the pass made.

In: a GraphModule, passes and inputs. Out: :class:`BeforeAfter`, which prints as a table with a row
for each pass and, below it, one for each kind of rewrite. The programs before and after each pass run
in turns, so that all meet the same load; a pass's effect is the median of the ratios of neighbouring
calls.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from fxlite.backend import Backend, find_backend, find_measured
from fxlite.base.checked import checked
from fxlite.base.console import Printed
from fxlite.base.errors import ArgumentError, GraphError, number_of, sizes_text
from fxlite.base.facade import above
from fxlite.graph.disjoint import DisjointSets
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.passes.base import Pass, as_pass
from fxlite.passes.checking.changed_region import Edits, changed_places
from fxlite.passes.costing.timeline import peak_memory
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.manager import PassManager
from fxlite.passes.profiling.profile import Setting, Times, input_values, kernel_row, node_row, usable_threads
from fxlite.passes.profiling.record import Row
from fxlite.passes.profiling.tables import seconds_text
from fxlite.show.node_cost import Cost, Roofs, node_cost, short_text
from fxlite.types.shapes import Dim


# -- rewrites --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rewrite:
    """One place that a pass changed: the names of the ops ``before`` and ``after``, or the op
    ``instead`` that existed already and is now read; the ``rule`` that made it (empty for a pass
    without rules), its ``origin`` in the user's program, and the change in FLOPs and bytes of the
    whole program (negative: fewer; None: unknown), with each node counted as if run by itself."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    instead: str
    rule: str
    origin: str
    flops: int | None
    bytes: int | None

    def __str__(self) -> str:
        made = _counted(self.after) or (self.instead and f"{self.instead} (there already)")
        return f"{_counted(self.before) or 'nothing'} → {made or 'nothing'}"


@dataclass(frozen=True)
class Was:
    """A snapshot of a node: its op, cost and operands."""

    op: str
    cost: Cost
    inputs: tuple[Node, ...]


def as_it_is(graph: Graph) -> dict[Node, Was]:
    """A snapshot of each call of a graph, to compare with after a pass."""
    return {n: _now(n) for n in graph.nodes if n.op.startswith("call_")}


def find_rewrites(
    gm: GraphModule, start: int, before: Mapping[Node, Was], number: Callable[[Dim | None], int | None]
) -> tuple[Rewrite, ...]:
    """The rewrites since position ``start`` of the module's journal, in the order of the program.

    ``number`` evaluates costs at the sizes of the named dims."""
    edits = Edits(gm, start)
    places = {n: changed_places(old, n, edits.changed) for n, old in edits.original.items()}
    gone = {n for n in before if n in edits.erased or (n in places and places[n] is None)}
    new = {n for n in (*edits.created, *places) if _is_call(n) and not n._erased}
    new -= {n for n in places if places[n] is not None}
    groups = DisjointSets()
    for node in gone:
        groups.join(node, (n for n in before[node].inputs if n in gone))
    for node in new:
        groups.join(node, (n for n in node.all_input_nodes if n in new))
    instead: dict[Node, Node] = {}
    for pair in itertools.chain(*(pairs or () for pairs in places.values())):
        if pair.before in gone and pair.after in new:
            groups.join(pair.before, [pair.after])
        elif pair.before in gone and _is_call(pair.after):
            instead[pair.before] = pair.after
    members: dict[Node, tuple[list[Node], list[Node]]] = {}
    for node in before:
        if node in gone:
            members.setdefault(groups.find(node), ([], []))[0].append(node)
    for node in gm.graph.nodes if new else ():
        if node in new:
            members.setdefault(groups.find(node), ([], []))[1].append(node)
    return tuple(_rewrite(old, made, instead, before, number) for old, made in members.values())


def _is_call(node: Node) -> bool:
    return node.op.startswith("call_")


def _now(node: Node) -> Was:
    op = node.target.name if node.op == "call_function" else node.op
    return Was(op, node_cost(node), tuple(node.all_input_nodes))


def _rewrite(
    old: list[Node],
    made: list[Node],
    instead: Mapping[Node, Node],
    before: Mapping[Node, Was],
    number: Callable[[Dim | None], int | None],
) -> Rewrite:
    was, now = [before[n] for n in old], [_now(n) for n in made]
    chains = (n.meta.get("from") for n in made if n not in before)
    rule = next((chain[0][0] for chain in chains if chain), "")
    flops, moved = (
        _difference([number(getattr(w.cost, what)) for w in now], [number(getattr(w.cost, what)) for w in was])
        for what in ("flops", "bytes")
    )
    origin = next((n.origin for n in (*old, *made) if n.origin), "")
    there = "" if made else next((_now(instead[n]).op for n in old if n in instead), "")
    ops, made_ops = tuple(w.op for w in was), tuple(w.op for w in now)
    return Rewrite(ops, made_ops, there, rule, origin, flops, moved)


def _difference(after: list[int | None], before: list[int | None]) -> int | None:
    total = 0
    for sign, values in ((1, after), (-1, before)):
        for value in values:
            if value is None:
                return None
            total += sign * value
    return total


def _counted(ops: tuple[str, ...]) -> str:
    """``conv2d, 2 relu``"""
    return ", ".join(op if n == 1 else f"{n} {op}" for op, n in Counter(ops).items())


def relative(before: float | None, after: float | None) -> float | None:
    """``after / before - 1``; None if one is unknown or ``before`` is zero."""
    if before is None or after is None or not before:
        return None
    return after / before - 1


# -- states and changes ----------------------------------------------------------------------------
@dataclass(frozen=True)
class State:
    """A program at one point of a pipeline: its ``parts`` (nodes that compute, or kernels of compiled
    code), their FLOPs and bytes, ``memory`` (the most bytes of values held at once, or the workspace
    of compiled code), ``least_seconds`` that the machine's roofs allow for all parts one after
    another, and the ``seconds`` of a call in each round. None means unknown."""

    parts: int
    flops: int | None
    bytes: int | None
    memory: int | None
    least_seconds: float | None
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median seconds of a call."""
        return statistics.median(self.seconds)


#: Width of an interval from which on a change is not shown.
_WIDEST_INTERVAL = 1.5


@dataclass(frozen=True)
class Change:
    """A relative change of the time: -0.25 is a quarter less. With a probability of 95 % it lies
    between ``low`` and ``high``."""

    value: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """True if the interval includes no change at all."""
        return self.low <= 0 <= self.high

    @property
    def is_known(self) -> bool:
        """False if the times varied so much that the interval means nothing, because it is wider than
        the range from half the time to twice the time."""
        return self.high - self.low <= _WIDEST_INTERVAL

    def __str__(self) -> str:
        if not self.is_known:
            return "unclear: times vary"
        return f"{100 * self.value:+.1f}% ±{50 * (self.high - self.low):.1f}"


@dataclass(frozen=True)
class PassEffect:
    """The effect of one pass. ``is_same``: it changed nothing, or nothing in the compiled code, which
    then was not measured again. ``refused``: how many places it looked at and left alone."""

    name: str
    before: State
    after: State
    rewrites: tuple[Rewrite, ...]
    refused: int
    is_same: bool

    @property
    def predicted(self) -> float | None:
        """Relative change of the least time that the roofs allow; None if it is unknown."""
        return predicted_change(self.before, self.after)

    @property
    def measured(self) -> Change:
        """Relative change of the time of a call."""
        return measured_change(self.before, self.after)


@dataclass(frozen=True, repr=False)
class BeforeAfter(Printed):
    """A pipeline measured: the state ``before`` all passes, then a step for each pass; ``dims`` are
    the sizes of the named dims."""

    name: str
    backend: str
    threads: int
    dims: Mapping[str, int]
    before: State
    steps: tuple[PassEffect, ...]
    roofs: Roofs | None

    @property
    def about(self) -> str:
        return f"{number_of(len(self.steps), 'pass')} on {self.name} in {self.target.language}"

    @property
    def target(self) -> Backend:
        """The back end that ran it."""
        return find_backend(self.backend)

    @property
    def after(self) -> State:
        """The state after the last pass."""
        return self.steps[-1].after if self.steps else self.before

    @property
    def predicted(self) -> float | None:
        """Predicted relative change by all passes together; None if it is unknown."""
        return predicted_change(self.before, self.after)

    @property
    def measured(self) -> Change:
        """Measured relative change by all passes together."""
        return measured_change(self.before, self.after)

    def __iter__(self) -> Iterator[PassEffect]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> PassEffect:
        """The first step of a pass, by its name. Raises KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"{name!r} is not one of the passes: {', '.join(s.name for s in self.steps)}")

    def __rich_console__(self, console: Any, options: Any) -> Iterable[Any]:
        yield from effects_parts(self, options.max_width)


def predicted_change(before: State, after: State) -> float | None:
    """Relative change of the least seconds."""
    return relative(before.least_seconds, after.least_seconds)


def measured_change(before: State, after: State) -> Change:
    """The median of the ratios, round by round, and its 95 % interval. The interval lies between two
    order statistics, ranks n/2 ± 0.98 √n, and assumes nothing about the distribution (Conover,
    "Practical Nonparametric Statistics")."""
    ratios = sorted(b / a for a, b in zip(before.seconds, after.seconds))
    count = len(ratios)
    low = max(math.floor(count / 2 - 0.98 * math.sqrt(count)), 0)
    high = min(math.ceil(count / 2 + 0.98 * math.sqrt(count)), count - 1)
    return Change(statistics.median(ratios) - 1, ratios[low] - 1, ratios[high] - 1)


# -- text ------------------------------------------------------------------------------------------
#: Kinds of rewrites that are listed for each pass.
MOST_KINDS = 6


def effects_parts(found: BeforeAfter, width: int) -> Iterator[Any]:
    """The heading, the table, and what its columns mean."""
    sizes = sizes_text(found.dims)
    passes, threads = number_of(len(found), "pass"), number_of(found.threads, "thread")
    language = found.target.language
    yield Text(f"{found.name}: {passes}, {language}, {threads}{sizes}", style="bold")
    yield ""
    yield _table(found)
    yield Text("\n".join(_legend(found)), style="dim")


def _table(found: BeforeAfter) -> Table:
    is_python = found.target.part == "node"
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", min_width=12)  # shrinks if the table is too wide
    parts = "nodes" if is_python else "kernels"
    for heading in (parts, "FLOPs", "bytes", "memory", "predicted", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("before", *_state_cells(found.before), style="bold")
    for step in found:
        table.add_row(*_step_cells(step), style="dim" if step.is_same else "default")
        for label, *cells in _rewrite_rows(step, is_python):
            table.add_row(Text(label, no_wrap=True, overflow="ellipsis"), *cells, style="dim")
    table.add_row("after", *_state_cells(found.after), style="bold")
    if not all(step.is_same for step in found):
        changes = _change_cells(found.before, found.after)
        table.add_row("change", "", *changes, _percent(found.predicted), _measured(found.measured))
    return table


def _state_cells(state: State) -> list[str]:
    counts = (state.flops, state.bytes, state.memory)
    cells = ["?" if value is None else short_text(value) for value in counts]
    least = "" if state.least_seconds is None else seconds_text(state.least_seconds)
    return [str(state.parts), *cells, least, seconds_text(state.median)]


def _step_cells(step: PassEffect) -> list[Any]:
    name = f"{step.name}, {step.refused} refused" if step.refused else step.name
    if step.is_same:
        return [name, str(step.after.parts), "", "", "", "", "the same"]
    parts = f"{step.before.parts} → {step.after.parts}"
    if step.before.parts == step.after.parts:
        parts = str(step.after.parts)
    changes = _change_cells(step.before, step.after)
    return [name, parts, *changes, _percent(step.predicted), _measured(step.measured)]


def _change_cells(before: State, after: State) -> list[str]:
    return [_percent(relative(getattr(before, what), getattr(after, what))) for what in ("flops", "bytes", "memory")]


def _rewrite_rows(step: PassEffect, with_bytes: bool) -> Iterator[list[str]]:
    """The rewrites of a pass, with equal ones combined and the largest changes first. Bytes are left
    out for compiled code, where kernels and not nodes decide what is moved."""
    kinds: dict[tuple[Any, ...], list[Rewrite]] = {}
    for rewrite in step.rewrites:
        kinds.setdefault((rewrite.rule, str(rewrite)), []).append(rewrite)
    rows = [(group, _sum([r.flops for r in group]), _sum([r.bytes for r in group])) for group in kinds.values()]
    rows.sort(key=lambda row: (-abs(row[2] or 0), -abs(row[1] or 0)))
    for group, flops, moved in rows[:MOST_KINDS]:
        text = f"{group[0].rule}: {group[0]}" if group[0].rule != step.name else str(group[0])
        text = text.removeprefix(": ")
        label = f"  {len(group)} × {text}"
        shares = [_share(flops, step.before.flops)]
        shares.append(_share(moved, step.before.bytes) if with_bytes else "")
        yield [label, "", *shares, "", "", ""]
    if len(rows) > MOST_KINDS:
        yield [f"  and {number_of(len(rows) - MOST_KINDS, 'more kind')}", *[""] * 6]


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(v for v in values if v is not None)


def _share(change: int | None, whole: int | None) -> str:
    return _percent(change / whole) if change is not None and whole else ""


def _percent(change: float | None) -> str:
    """``-12.3%``; empty for no change, ``?`` if it is unknown."""
    if change is None:
        return "?"
    return f"{100 * change:+.1f}%" if change else ""


def _measured(change: Change) -> Text:
    style = "" if change.is_noise or not change.is_known else "green" if change.value < 0 else "red"
    return Text(str(change), style=style)


def _legend(found: BeforeAfter) -> Iterator[str]:
    rounds = len(found.before.seconds)
    yield "predicted: the least time that the machine's roofs allow, one part after another"
    yield f"measured: medians of {rounds} rounds in turns; ±: half the 95 % interval, in points"
    if found.target.part == "kernel":
        yield "memory: the workspace; below a pass: its rewrites, with the FLOPs of their nodes"
    else:
        yield "below a pass: its rewrites, with what they change of the whole"


# -- measuring -------------------------------------------------------------------------------------
#: Without ``repeat``: as many rounds as fit into so many seconds for each program, but some.
SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 0.4, 7, 300
_WARM_UP = 2
_UNTIMED = Times((), 0.0)
_Call = Callable[[Mapping[str, Any]], Any]


@checked
def before_after(
    gm: GraphModule,
    *args: Any,
    passes: PassManager | Iterable[Pass | str | Callable[..., Any]] | None = None,
    inputs: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str = "python",
    repeat: int | None = None,
    threads: int | None = None,
    roofs: Roofs | None = None,
) -> BeforeAfter:
    """Measure the effect of each pass of a pipeline::

        print(passes.before_after(gm, x, passes=[passes.fuse_conv_bn, my_fusion], backend="c"))

    Without ``passes`` the pipeline is that of :func:`fxlite.compile`. Inputs, ``sizes``,
    ``threads`` and ``roofs`` are those of :func:`fxlite.passes.profile`; ``repeat`` is the number
    of rounds. A list of passes is fully checked by the pass manager; the standard passes are only
    linted. With ``backend="c"`` the program after each pass is compiled. After your own passes all
    standard passes run as well, because that is the code you would get; after standard passes only
    those run that code generation needs.

    Raises ArgumentError as :func:`fxlite.passes.profile` does, PassError if a pass or its check
    fails, and whatever calling and compiling the program raise."""
    if repeat is not None and repeat < 1:
        raise ArgumentError(f"repeat must be at least 1, not {repeat}")
    target = find_measured(backend)
    manager = _manager(passes)
    values = input_values(gm, args, inputs, sizes)
    dims = check_inputs(gm.name, gm.graph.placeholders, values)
    known = above("machine_roofs")() if roofs is None else roofs
    is_compiled = target.part == "kernel"
    make = _compiler(target, threads, passes is not None) if is_compiled else _interpreted
    used = threads or usable_threads()
    setting = Setting(dims, known, used)
    programs = [make(flattened(gm), setting)]
    runs: list[_Run] = []
    for item in manager.passes:
        run = _run_pass(item, programs[-1].module, manager, setting)
        runs.append(run)
        made = programs[-1] if run.module is programs[-1].module else make(run.module, setting)
        same = made.code == programs[-1].code
        programs.append(dataclasses.replace(programs[-1], module=run.module) if same else made)
    distinct = list({id(p.call): p.call for p in programs}.values())
    with np.errstate(all="ignore"):
        times = _measure(distinct, values, repeat)
    seconds = dict(zip(map(id, distinct), times))
    states = [dataclasses.replace(p.state, seconds=seconds[id(p.call)]) for p in programs]
    steps = tuple(
        PassEffect(
            item.name, before, after, run.rewrites, run.refused, is_same=programs[i].call is programs[i + 1].call
        )
        for i, (item, run, before, after) in enumerate(zip(manager.passes, runs, states, states[1:]))
    )
    return BeforeAfter(gm.name, backend, programs[0].threads, dims, states[0], steps, known)


def _manager(passes: PassManager | Iterable[Pass | str | Callable[..., Any]] | None) -> PassManager:
    if passes is None:
        return PassManager(above("standard_passes")(), check="lint")
    if isinstance(passes, PassManager):
        return PassManager(passes.passes, passes.constraints, passes.steps, check=passes.check)
    return PassManager([as_pass(item) for item in passes])


@dataclass(frozen=True)
class _Run:
    """The result of a pass, or its input if it edited nothing."""

    module: GraphModule
    rewrites: tuple[Rewrite, ...]
    refused: int


def _run_pass(item: Pass, given: GraphModule, manager: PassManager, setting: Setting) -> _Run:
    module = given.copy()
    graph = module.graph
    before, start = as_it_is(graph), len(graph.journal.records)
    made = manager.run_pass(item, module)
    refused = len(manager.report.steps[-1].refusals)
    if made.graph is not graph:  # the pass built a new graph, so the fate of each node is unknown
        return _Run(made, (), refused)
    if len(graph.journal.records) == start:
        return _Run(given, (), refused)
    return _Run(made, find_rewrites(made, start, before, setting.number), refused)


# -- programs --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Program:
    """A module, how to call it, and the work it has to do. Equal ``code`` takes equal time."""

    module: GraphModule
    call: _Call
    state: State
    code: Any
    threads: int


def _interpreted(module: GraphModule, setting: Setting) -> _Program:
    calls = [node for node in module.graph.nodes if node.op.startswith("call_")]
    rows = [node_row(node, _UNTIMED, setting) for node in calls]
    memory = None
    with contextlib.suppress(GraphError):  # a graph without types
        memory = setting.number(peak_memory(module.graph, setting.dims))
    state = _state(rows, memory)
    return _Program(module, module.run_flat, state, module.code, setting.threads)


def _compiler(target: Backend, threads: int | None, optimize: bool) -> Callable[[GraphModule, Setting], _Program]:
    options = target.checked({"threads": threads, "optimize": optimize})

    def compiled(module: GraphModule, setting: Setting) -> _Program:
        made = target.compile(module, **options)
        used = dataclasses.replace(setting, threads=made.threads)
        rows = [kernel_row(kernel, _UNTIMED, used) for kernel in made.kernels]
        state = _state(rows, made.workspace_bytes(setting.dims))
        return _Program(module, made.run_flat, state, dict(made.sources), made.threads)

    return compiled


def _state(rows: list[Row], memory: int | None) -> State:
    flops, moved, least = 0, 0, 0.0
    for row in rows:
        if row.flops is None or row.bytes is None:
            return State(len(rows), None, None, memory, None, ())
        flops, moved = flops + row.flops, moved + row.bytes
        least += 0.0 if row.limits is None else row.limits.seconds
    known = all(row.limits is not None for row in rows)
    return State(len(rows), flops, moved, memory, least if known else None, ())


# -- the clock -------------------------------------------------------------------------------------
def _measure(calls: list[_Call], values: Mapping[str, Any], repeat: int | None) -> list[tuple[float, ...]]:
    """Seconds of each call in each round. Each round begins with another call, so that no call always
    follows the same one."""
    for _ in range(_WARM_UP):
        for call in calls:
            call(values)
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + SECONDS * len(calls)
    least, most = (LEAST_ROUNDS, MOST_ROUNDS) if repeat is None else (repeat, repeat)
    rounds = 0
    while rounds < least or (rounds < most and time.perf_counter() < end):
        for turn in range(len(calls)):
            number = (turn + rounds) % len(calls)
            start = time.perf_counter()
            calls[number](values)
            times[number].append(time.perf_counter() - start)
        rounds += 1
    return [tuple(each) for each in times]
