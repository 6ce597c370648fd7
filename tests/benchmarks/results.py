"""What the inference benchmark found: rows of cells, ratios to the best peer, and what was wanted.

In: what :mod:`tests.benchmarks.inference` measured. Out: numbers and sentences for its page. A
ratio is fxlite's time by that of the fastest peer of the same accuracy class, the median over
rounds in which both ran; below 1 fxlite is faster.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.benchmarks.engines import find_engine
from tests.benchmarks.timing import Comparison
from tests.benchmarks.why import Explanation
from tests.benchmarks.worker import First
from tests.benchmarks.workloads import workloads

OURS = "fxlite highest"
#: Ratios: of the geometric mean over workloads, of each of them, and of those whose peers pay most
#: for their overhead.
WANTED_MEAN = {"fxlite highest": 0.80, "fxlite high": 0.50, "fxlite medium": 0.90}
WANTED_EACH = {"fxlite highest": 1.05, "fxlite high": 1.05, "fxlite medium": 0.90}
SMALL, WANTED_SMALL = ("mlp B=1", "lstm cell loop", "lstm layer"), 0.50
#: Parts of the roof: the matrix products with one thread and with more, and the pointwise chain.
WANTED_GEMM, WANTED_BANDWIDTH = (0.90, 0.85), 0.85
#: First result: a part of torch.compile's, and seconds with everything in the cache.
WANTED_FIRST, WANTED_CACHED = 1 / 3, 0.3
#: By accuracy class: results further from float64 than this are wrong, and their times not taken.
LARGEST_ERROR = {"f32": 1e-3, "bf16": 0.5, "int8": 0.5, "weights": 0.5}


@dataclass(frozen=True)
class Cell:
    """One engine on one workload: its first result (``cached_seconds``: that of a second process,
    which found the compiled program in the cache), megabytes, and why there are no times."""

    first: First | None = None
    cached_seconds: float | None = None
    memory: float = math.nan
    failed: str = ""


@dataclass(frozen=True)
class Row:
    """One workload with a number of threads; ``cold``: compilers' caches were empty before;
    ``explanation`` is that of the column ``ours``, ``unexplained``: why there is none."""

    workload: str
    threads: int
    cells: Mapping[str, Cell]
    comparison: Comparison = field(default_factory=lambda: Comparison({}, 1))
    explanation: Explanation | None = None
    cold: bool = True
    unexplained: str = "no roofs were measured"
    ours: str = OURS

    def ran(self, engine: str) -> bool:
        """Whether there are times of it."""
        return engine in self.comparison.engines

    def seconds(self, engine: str) -> float:
        """Median seconds of a call."""
        return self.comparison.seconds(engine)

    def precision(self, engine: str) -> str:
        """Its accuracy class."""
        first = self.cells[engine].first
        return first.precision if first is not None else ""

    def peers(self) -> list[str]:
        """The engines that ran and are not fxlite."""
        return [e for e in self.comparison.engines if not find_engine(e).is_ours]

    def best_peer(self, ours: str) -> str | None:
        """The fastest peer of the same accuracy class as one of fxlite's."""
        same = [e for e in self.peers() if self.precision(e) == self.precision(ours)]
        return min(same, key=self.seconds) if same else None

    def ratio(self, ours: str) -> float | None:
        """fxlite's time by that of the best peer; None where one of them is missing."""
        best = self.best_peer(ours) if self.ran(ours) else None
        return None if best is None else 1 / self.comparison.speedup(ours, best)

    def wanted(self, ours: str) -> float:
        """What the ratio should be at most."""
        if ours == OURS and self.workload in SMALL:
            return WANTED_SMALL
        return WANTED_EACH[ours]

    @property
    def roof_part(self) -> float | None:
        """The least time that the machine's roofs allow for fxlite's kernels, by its time."""
        if self.explanation is None or not self.ran(self.ours):
            return None
        return self.explanation.roof_seconds / self.seconds(self.ours)

    @property
    def why(self) -> str:
        """One line on which roof binds fxlite, how far it is from it, and the best peer."""
        if self.explanation is None or not self.ran(self.ours):
            return f"not explained: {self.cells[self.ours].failed or self.unexplained}"
        text = self.explanation.text(self.seconds(self.ours))
        best = self.best_peer(self.ours)
        if best is None or not self.explanation.roof_seconds:
            return text
        part = self.explanation.roof_seconds / self.seconds(best)
        return f"{text}; best peer: {best}, {part:.0%} of the same roof"


def threads_text(count: int) -> str:
    """``1 thread``, ``2 threads``."""
    return "1 thread" if count == 1 else f"{count} threads"


def mean_ratio(rows: Iterable[Row], ours: str) -> tuple[float, int] | None:
    """Geometric mean of the ratios over models, and how many there were; of "high" over those that
    arithmetic binds. None without any."""
    found = [
        ratio
        for row in rows
        if workloads()[row.workload].kind != "gemm" and (ratio := row.ratio(ours)) is not None
        if ours != "fxlite high" or (row.explanation and row.explanation.bound == "compute")
    ]
    return (statistics.geometric_mean(found), len(found)) if found else None


def shortfalls(rows: Sequence[Row], ours: Sequence[str]) -> list[str]:
    """Everything wanted that was not reached, one sentence each."""
    return [text for row in rows for text in (*_slow(row, ours), *_start(row), *_memory(row))]


def _slow(row: Row, ours: Sequence[str]) -> Iterable[str]:
    place = f"{row.workload}, {threads_text(row.threads)}"
    for engine in ours:
        ratio, wanted = row.ratio(engine), row.wanted(engine)
        if ratio is not None and ratio > wanted:
            yield (f"{place}: {engine} takes {ratio:.2f} of {row.best_peer(engine)}'s time, wanted ≤ {wanted:.2f}")
        elif not row.ran(engine):
            yield f"{place}: {engine} has no time: {row.cells[engine].failed}"
    kind, part = workloads()[row.workload].kind, row.roof_part
    wanted = WANTED_BANDWIDTH if kind == "bandwidth" else WANTED_GEMM[row.threads > 1]
    if kind != "model" and part is not None and part < wanted:
        yield f"{place}: {part:.0%} of the roof, wanted ≥ {wanted:.0%}"


def _start(row: Row) -> Iterable[str]:
    ours, theirs = row.cells[OURS], row.cells.get("torch.compile", Cell())
    if not row.cold:
        return
    if ours.first is not None and theirs.first is not None:
        part = ours.first.seconds / theirs.first.seconds
        if part > WANTED_FIRST:
            yield (
                f"{row.workload}: first result after {ours.first.seconds:.1f} s, {part:.2f} of "
                f"torch.compile's, wanted ≤ {WANTED_FIRST:.2f}"
            )
    if ours.cached_seconds is not None and ours.cached_seconds > WANTED_CACHED:
        yield (
            f"{row.workload}: first result from the cache after {ours.cached_seconds:.2f} s, wanted ≤ {WANTED_CACHED:g}"
        )


def _memory(row: Row) -> Iterable[str]:
    peers = {e: row.cells[e].memory for e in row.peers() if not math.isnan(row.cells[e].memory)}
    if not row.cold or not peers or not row.ran(OURS):
        return
    least = min(peers, key=lambda e: peers[e])
    if row.cells[OURS].memory > peers[least]:
        yield f"{row.workload}: {row.cells[OURS].memory:.0f} MB, {least} {peers[least]:.0f} MB"
