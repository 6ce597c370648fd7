"""Why a workload takes the time it takes: what its kernels have to do beside what the machine can.

In: a prepared workload. Out: :class:`Explanation`: FLOPs, bytes and the least time of each kernel
by the roofs of the machine (:class:`~fxlite.show.node_cost.Roofs`), added up, and the kernel that
loses most.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import fxlite as fx
from fxlite import passes
from fxlite.base.errors import number_of
from fxlite.show import node_cost as cost
from fxlite.show.node_cost import Roofs
from tests.benchmarks.workloads import Job


@dataclass(frozen=True)
class Explanation:
    """Sums over fxlite's kernels. ``roof_seconds``: the least time by the roofs; ``bound``: what
    sets most of it (``compute``, ``memory``, ``cache``). Of the kernel that loses most, its name,
    the seconds lost and its efficiency; ``kernel_seconds``: measured, in kernels altogether."""

    flops: int
    bytes: int
    roof_seconds: float
    bound: str
    kernels: int
    kernel_seconds: float
    worst: str
    worst_lost: float
    worst_efficiency: float

    def text(self, seconds: float) -> str:
        """One line on a call that takes ``seconds``."""
        part = self.roof_seconds / seconds
        work = f"{cost.quantity_text(self.flops, 'FLOP')}, {cost.quantity_text(self.bytes, 'B')}"
        line = f"{self.bound}: {part:.0%} of the roof ({work} in {number_of(self.kernels, 'kernel')})"
        lost = seconds - self.roof_seconds
        outside = seconds - self.kernel_seconds
        if lost > 0 and outside > 0.5 * lost:
            return f"{line}; most is lost around the kernels: {outside * 1e6:.0f} µs a call"
        if lost <= 0:
            return line
        share = min(1.0, self.worst_lost / lost)
        return f"{line}; {share:.0%} of the loss in {self.worst} ({self.worst_efficiency:.0%})"


def explain(job: Job, threads: int, roofs: Roofs, module: fx.GraphModule | None = None) -> Explanation | None:
    """Profile the compiled kernels of the workload, or of another graph of it; None for a program
    without any."""
    inputs = job.inputs()
    if module is None:
        module = fx.symbolic_trace(job.model(), inputs=job.spec.types(inputs))
    found: Any = passes.profile(module, inputs=inputs, backend="c", threads=threads, roofs=roofs)
    rows = [row for row in found.rows if row.limits is not None]
    if not rows:
        return None
    by_bound: Counter[str] = Counter()
    for row in rows:
        by_bound[row.bound] += row.limits.seconds
    worst = max(rows, key=lambda row: row.median - row.limits.seconds)
    return Explanation(
        sum(row.flops or 0 for row in rows),
        sum(row.bytes or 0 for row in rows),
        sum(row.limits.seconds for row in rows),
        by_bound.most_common(1)[0][0],
        len(rows),
        found.rows_seconds,
        worst.name,
        worst.median - worst.limits.seconds,
        worst.efficiency or 0.0,
    )
