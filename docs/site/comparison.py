"""The figures of docs/comparison.md, from the benchmark pages.

In: the tables of ``docs/benchmarks*.md``, which the benchmarks write. Out: for each peer how often it is better than
fxlite, and the geometric mean of fxlite's numbers divided by the peer's. ``python -m docs.site.comparison`` writes them
between the page's two markers; a test compares them.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "comparison.md"
_BLOCK = re.compile(r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.S)
_NUMBER = re.compile(r"-?[\d.]+")


def tables(page: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """The tables of a page: the heading above, their columns and their rows."""
    heading, lines = "", iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("|"):
            columns = _cells(line)
            next(lines)
            rows = []
            for row in lines:
                if not row.startswith("|"):
                    break
                rows.append(_cells(row))
            yield heading, columns, rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _ratios(columns: list[str], rows: list[list[str]], ours: str, theirs: str) -> list[float]:
    """fxlite's number by the peer's, of the rows that have both."""
    found = []
    for row in rows:
        mine, other = (_NUMBER.match(row[columns.index(name)]) for name in (ours, theirs))
        if mine and other and "constant" not in row:
            found.append(float(mine[0]) / float(other[0]))
    return found


#: What is compared: the page, the heading of its table, fxlite's column, the peers' columns, what stands before the
#: workloads, and what is said of it all.
COMPARED = (
    (
        "benchmarks.md",
        "Milliseconds of a call, 1 thread",
        "fxlite highest",
        ("torch", "ONNX Runtime", "OpenVINO f32", "jax.jit"),
        "models in float32, one thread",
    ),
    (
        "benchmarks.md",
        "Milliseconds of a call, 2 threads",
        "fxlite highest",
        ("torch", "ONNX Runtime", "OpenVINO f32", "jax.jit"),
        "models in float32, two threads",
    ),
    (
        "benchmarks.md",
        "First result",
        "fxlite highest",
        ("ONNX Runtime", "OpenVINO f32", "jax.jit"),
        "time to the first result, nothing cached",
    ),
    (
        "benchmarks.md",
        "Memory",
        "fxlite highest",
        ("torch", "ONNX Runtime", "OpenVINO f32", "jax.jit"),
        "memory, models in float32",
    ),
    (
        "benchmarks_quantized.md",
        "Milliseconds of a call, 1 thread",
        "fxlite static",
        ("torch static", "ONNX Runtime static", "OpenVINO NNCF"),
        "models in 8-bit integers (static), one thread",
    ),
    (
        "benchmarks_numpy.md",
        "NPBench's programs: fxlite beside NumPy, numba and jax",
        "fxlite ms",
        ("numpy ms", "numba ms", "jax ms", "hand C ms"),
        "NumPy programs of NPBench, sizes M and L, one and two threads",
    ),
    (
        "benchmarks_cuda.md",
        "Inference on a GPU: fxlite beside torch",
        "fxlite ms",
        ("torch ms", "torch compiled ms", "torch TF32 ms"),
        "models and products on a GPU, in float32",
    ),
    (
        "benchmarks_graph.md",
        "Benchmarks: the graph itself",
        "fxlite µs",
        ("torch.fx µs", "onnx-ir µs"),
        "work on graphs",
    ),
)


def figures() -> str:
    """The table of the page."""
    lines = ["| what | peer | cases | peer is better in | fxlite / peer (geometric mean) |", "|---|---|--:|--:|--:|"]
    for page, heading, ours, peers, about in COMPARED:
        ((columns, rows), *_) = [(c, r) for h, c, r in tables(page) if h == heading]
        for peer in peers:
            ratios = _ratios(columns, rows, ours, peer)
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            worse = sum(ratio > 1 for ratio in ratios)
            name = re.sub(r" (ms|µs)$", "", peer)
            lines.append(f"| [{about}]({page}) | {name} | {len(ratios)} | {worse} | {mean:.2f} |")
    return "\n".join(lines) + "\n"


def shown() -> str:
    """The table that stands on the page."""
    found = _BLOCK.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    return found[0]


def main() -> None:
    """Write the table."""
    PAGE.write_text(_BLOCK.sub(lambda _: figures(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
