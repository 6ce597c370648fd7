"""Before and after a pipeline: what each pass should change by the costs, and what it does change
by the clock.

In: a GraphModule, passes and inputs. Out: :class:`BeforeAfter`. The program as it is after each
pass is run in turns with all others, so that they meet the same load; a pass's effect is the median
of the ratios of calls that stand side by side.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxlite.backend import Backend, find_backend, measured_backends
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, GraphError
from fxlite.base.facade import above
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.passes.base import Pass, as_pass
from fxlite.passes.costing.peak_memory import peak_memory
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.manager import PassManager
from fxlite.passes.profiling.effects import BeforeAfter, PassEffect, Rewrite, State, as_it_is, find_rewrites
from fxlite.passes.profiling.profile import Setting, Times, input_values, kernel_row, node_row, usable_threads
from fxlite.passes.profiling.record import Row
from fxlite.show.node_cost import Roofs

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
    """Measure what each pass of a pipeline brings::

        print(passes.before_after(gm, x, passes=[passes.fuse_conv_bn, my_fusion], backend="c"))

    Without ``passes`` the pipeline is that of :func:`fxlite.compile`. Inputs, ``sizes``,
    ``threads`` and ``roofs`` are those of :func:`fxlite.passes.profile`; ``repeat`` is the number
    of rounds. The passes are checked as their manager checks them (a list: fully; the standard
    ones: linted). With ``backend="c"`` the program after each pass is compiled, after passes of
    one's own with all standard passes on top, because that is what compiling it brings; after the
    standard ones with none but what code generation needs.

    Raises ArgumentError as :func:`fxlite.passes.profile` does, PassError where a pass fails or its
    check does, and what calling and compiling the program raise."""
    if repeat is not None and repeat < 1:
        raise ArgumentError(f"repeat must be at least 1, not {repeat}")
    target = find_backend(backend)
    if not target.is_measured:
        names = measured_backends()
        raise ArgumentError(f"passes are measured with {names}, not with {backend!r}")
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
    """What a pass made; the module it got where it edited nothing."""

    module: GraphModule
    rewrites: tuple[Rewrite, ...]
    refused: int


def _run_pass(item: Pass, given: GraphModule, manager: PassManager, setting: Setting) -> _Run:
    module = given.copy()
    graph = module.graph
    before, start = as_it_is(graph), len(graph.journal.records)
    made = manager.run_pass(item, module)
    refused = len(manager.report.steps[-1].refusals)
    if made.graph is not graph:  # one of the pass's own: nothing says what became of which node
        return _Run(made, (), refused)
    if len(graph.journal.records) == start:
        return _Run(given, (), refused)
    return _Run(made, find_rewrites(made, start, before, setting.number), refused)


# -- programs --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Program:
    """A module, how it is called, and what it has to do. Equal ``code`` takes equal time."""

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
    """Seconds of each call in each round. The rounds begin with another call each time, so that
    none of them always stands behind the same one."""
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
