"""A report on a model: what a page about it shows, gathered.

In: a GraphModule, maybe inputs, and a back end. Out: :class:`ModelReport`: the traced graph and the
one that compiled code is made from, with costs, measured times, memory, the emitted kernels and
what each pass did; :meth:`~ModelReport.to_html` writes it as one page.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite import compiler
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, CodegenError, GraphError
from fxlite.base.whole import write_whole
from fxlite.codegen.c.emit import CProgram
from fxlite.codegen.program.memory_plan import memory_plan
from fxlite.codegen.program.optimize import optimize
from fxlite.codegen.reporting.history import History, history
from fxlite.codegen.runtime.toolchain import CompilerNotFound
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.passes.costing.cost import cost
from fxlite.passes.costing.cost_report import CostReport
from fxlite.passes.costing.timeline import MemoryTimeline, memory_timeline
from fxlite.passes.manager import Report as PassReport
from fxlite.passes.profiling.profile import input_values
from fxlite.passes.profiling.profile import profile as measure
from fxlite.passes.profiling.record import Profile
from fxlite.passes.profiling.tables import seconds_text
from fxlite.show.comparison.graph_diff import GraphDiff, diff
from fxlite.show.roofs import Roofs


@dataclass(frozen=True)
class Stage:
    """A graph of the report: ``traced`` or ``optimized``; its ``costs`` at the report's sizes, and
    its ``profile`` (None: not measured)."""

    title: str
    module: GraphModule
    costs: CostReport
    profile: Profile | None


@dataclass(frozen=True)
class ModelReport:
    """Everything about a model at sizes ``dims``. ``program`` is what ``backend`` emits (None for a
    program that cannot be compiled, and for a back end that emits no kernels); ``notes`` say what
    is missing and why; ``sqnr`` are signal-to-noise ratios in dB by module path, to colour by.
    """

    name: str
    dims: Mapping[str, int]
    traced: Stage
    optimized: Stage
    passes: PassReport
    backend: compiler.Backend
    program: CProgram | None
    roofs: Roofs | None
    notes: tuple[str, ...]
    sqnr: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def history(self) -> History:
        """What each pass did to each node."""
        return history(self.traced.module.graph, self.optimized.module.graph, self.passes)

    @functools.cached_property
    def changes(self) -> GraphDiff:
        """What differs between the two graphs."""
        return diff(self.traced.module.graph, self.optimized.module.graph)

    def timelines(self) -> list[tuple[str, MemoryTimeline]]:
        """Memory over time, with what it is that of: the traced graph run node by node, and the
        arena of the compiled program. Nothing for graphs with nodes of unknown size."""
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

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One page that loads nothing from anywhere; written to ``path`` if there is one. Returns
        it."""
        from fxlite.codegen.reporting.page import page_text

        text = page_text(self)
        if path is not None:
            write_whole(path, text)
        return text

    def __str__(self) -> str:
        sizes = "".join(f", {name}={size}" for name, size in self.dims.items())
        nodes = [len(stage.module.graph) for stage in (self.traced, self.optimized)]
        lines = [f"{self.name}: {nodes[0]} nodes, {nodes[1]} after optimization{sizes}"]
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
) -> ModelReport:
    """A report on a program, to look at: ``fx.report(gm, sizes={"B": 8}).to_html("report.html")``.

    Inputs, ``sizes``, ``repeat``, ``threads`` and ``roofs`` are those of
    :func:`fxlite.passes.profile`; without inputs random ones are drawn. The traced graph is timed
    node by node in NumPy. With ``backend="c"`` the optimized one is compiled and timed kernel by
    kernel, with ``"python"`` node by node, too. By default it is C where that is possible; what was
    not is said in ``notes``. ``profile=False`` measures nothing and needs no compiler. With
    ``sqnr``, dB by module path as ``q.sensitivity`` finds them, graphs can be coloured by it.

    Raises ArgumentError for other back ends, for inputs and sizes that do not fit, and for inputs
    without types; with ``backend="c"`` CodegenError for what cannot be compiled, and
    CompilerNotFound where it is to be measured."""
    target = compiler.find_backend(backend or compiler.DEFAULT)
    if not target.is_measured:
        raise ArgumentError(
            f"a report is made for {compiler.measured_backends()}, not for {backend!r}"
        )
    values = input_values(gm, args, inputs, sizes)
    dims = check_inputs(gm.name, gm.graph.placeholders, values)
    optimized, manager = optimize(gm)
    program, notes = None, []
    is_compiled = profile and target.part == "kernel"
    try:
        program = target.emit(optimized)
    except CodegenError as error:
        if backend is not None:
            raise
        is_compiled = False
        notes.append(
            f"No {target.language} could be made of it, both graphs were timed in NumPy: {error}"
        )
    if not profile:
        notes.append("Nothing was measured, as asked for.")
    if is_compiled and backend is None:
        try:
            target.require()
        except CompilerNotFound:
            is_compiled = False
            notes.append(f"There is no {target.language} compiler: both graphs were timed in "
                         "NumPy, and the machine's roofs are not known.")  # fmt: skip
    known = compiler.machine_roofs() if roofs is None and profile else roofs

    def timed(module: GraphModule, **chosen: Any) -> Profile | None:
        if not profile:
            return None
        return measure(module, inputs=values, repeat=repeat, threads=threads, roofs=known, **chosen)

    before = timed(gm)
    after = timed(gm, backend=target.name) if is_compiled else timed(optimized)
    return ModelReport(
        gm.name, dims, Stage("traced", gm, cost(gm, dims), before),
        Stage("optimized", optimized, cost(optimized, dims), after),
        manager.report, target, program, known, tuple(notes), dict(sqnr or {}),
    )  # fmt: skip
