"""``passes.profile``: which rows there are, what they add up to, and what limits them.

No assertion is about seconds: times are compared with one another, or made up."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError
from fxlite.passes.costing.cost_report import flops_by_node
from fxlite.passes.profiling.profile import Setting, Times, node_row
from fxlite.passes.profiling.record import Part, Profile, Row
from fxlite.passes.profiling.tables import MOST_ROWS, blame_text, seconds_text
from fxlite.show.node_cost import Roof, Roofs, limits, node_cost, quantity_text
from fxlite.types import shapes
from tests import models
from tests.roofs import ROOFS


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return np.maximum(self.fc(x), 0) + x


class Net(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Any) -> Any:
        y = self.layers(x)
        return F.softmax(self.head(y), -1)


@pytest.fixture
def net() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x="f32[B,16]")


def measured(gm: fx.GraphModule, **options: Any) -> Profile:
    return passes.profile(gm, **{"roofs": ROOFS, "repeat": 3, **options})


def made_up(gm: fx.GraphModule, whole: float, seconds: float, plain: float = 1.0) -> Profile:
    """A profile in which each call of a graph takes the same time."""
    setting = Setting({"B": 2}, ROOFS, 2)
    calls = [n for n in gm.graph.nodes if n.op == "call_function"]
    rows = tuple(node_row(n, Times((seconds, seconds), i * seconds), setting) for i, n in enumerate(calls))
    return Profile("Net", "python", 2, {"B": 2}, rows, (whole, whole), (plain, plain), 1, ROOFS)


# -- rows ------------------------------------------------------------------------------------------
def test_python_rows_are_the_calls(net: fx.GraphModule) -> None:
    found = measured(net, sizes={"B": 8})
    calls = [n for n in net.graph.nodes if n.op == "call_function"]
    assert [row.node for row in found.rows] == calls
    assert found.dims == {"B": 8} and found.backend == "python"
    counts = flops_by_node(net)
    for row in found.rows:
        assert len(row.seconds) == len(found.whole_seconds) == len(found.plain_seconds) == 3
        assert row.flops == int(shapes.substitute(counts[row.node], {"B": 8}))
        assert row.bytes == int(shapes.substitute(node_cost(row.node).bytes, {"B": 8}))
        assert 0 < row.least <= row.median
        assert row.covers == row.node.target.name
    assert [row.module for row in found.rows if row.covers == "linear"] == ["layers.0.fc", "layers.1.fc", "head"]
    locations = [row.location for row in found.rows]
    assert all(place is not None and place.file == __file__ for place in locations)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_the_parts_make_up_the_whole(backend: str) -> None:
    """Within 10 %, for work that is not small against what surrounds it."""
    gm = fx.symbolic_trace(Net(256), x="f32[B,256]")
    found = measured(gm, sizes={"B": 4096}, backend=backend, threads=1, repeat=5)
    assert 0.9 < found.coverage <= 1.001
    assert found.rows_seconds > 0


#: Models, their input types and sizes that take some milliseconds.
WHOLE: dict[str, tuple[Any, tuple[str, ...], dict[str, int]]] = {
    "resnet": (
        lambda: nn.Sequential(models.BasicBlock(16, 16, 1), models.BasicBlock(16, 32, 2)),
        ("f32[B,16,32,32]",),
        {"B": 4},
    ),
    "bert": (lambda: models.Bert(1, 128), ("i64[B,T]", "i64[B,T]"), {"B": 2, "T": 64}),
    "lstm": (models.Tagger, ("i64[B,3]",), {"B": 64}),
}


@pytest.mark.parametrize("backend", ["python", "c"])
@pytest.mark.parametrize("name", WHOLE)
def test_the_parts_of_a_model_make_up_the_whole(name: str, backend: str) -> None:
    """Every call has a row, in order; rows follow one another without a gap, inside the call."""
    make, types, sizes = WHOLE[name]
    gm = fx.symbolic_trace(make().eval(), *types)
    found = measured(gm, sizes=sizes, backend=backend, threads=1)
    if backend == "python":
        calls = [node for node in gm.graph.nodes if node.op.startswith("call_")]
        assert [row.node for row in found.rows] == calls
    else:
        function = fx.compile(gm, backend="c", threads=1)
        assert [row.name for row in found.rows] == [kernel.name for kernel in function.kernels]
        calls = [n.name for n in function.optimized.graph.nodes if n.op.startswith("call_")]
        assert set(calls) <= {part.node.name for row in found.rows for part in row.parts}
        shown = [(row.start, row.seconds[found.shown]) for row in found.rows]
        for (start, seconds), (following, _) in pairwise(shown):
            assert following == pytest.approx(start + seconds, abs=2e-9)
    assert 0 < found.coverage <= 1.001


def test_inputs_as_to_the_program(net: fx.GraphModule) -> None:
    x = np.ones((5, 16), np.float32)
    assert measured(net, inputs={"x": x}).dims == {"B": 5}
    assert passes.profile(net, x, repeat=1, roofs=ROOFS).dims == {"B": 5}


def test_nested_inputs() -> None:
    def add(pair: Any) -> Any:
        return pair["a"] + pair["b"]

    pair = {"a": np.ones((3, 2), np.float32), "b": np.ones((3, 2), np.float32)}
    gm = fx.symbolic_trace(add, inputs={"pair": {"a": "f32[B,2]", "b": "f32[B,2]"}})
    for backend in ("python", "c"):
        found = passes.profile(gm, pair, repeat=1, roofs=ROOFS, backend=backend)
        assert [row.covers for row in found.rows] == ["add"] and found.dims == {"B": 3}


def test_drawn_positions_exist() -> None:
    table = nn.Embedding(7, 4)
    gm = fx.symbolic_trace(lambda index: table(index) * 2, index="i64[T]")
    assert measured(gm, sizes={"T": 100}).dims == {"T": 100}


def test_a_graph_without_types_has_times_only() -> None:
    gm = fx.symbolic_trace(Net())
    found = passes.profile(gm, np.ones((2, 16), np.float32), repeat=2, roofs=ROOFS)
    assert all(row.flops is None and row.limits is None and row.bound == "" for row in found.rows)
    assert "bound:" not in str(found) and "linear" in str(found)


def test_kernels_cover_the_optimized_graph(net: fx.GraphModule) -> None:
    found = measured(net, sizes={"B": 4}, backend="c")
    assert [row.covers for row in found.rows if "linear" in row.covers] == [
        "linear, relu, add",
        "linear, relu, add",
        "linear",
    ]
    for row in found.rows:
        assert sum(part.share for part in row.parts) == pytest.approx(1)
        assert row.flops == sum(part.flops or 0 for part in row.parts)
    first = found.rows[0]  # x, weight and bias are read, one array is written
    assert first.bytes == 4 * (4 * 16 + 16 * 16 + 16 + 4 * 16)
    assert first.parts[0].share > 0.9  # the product has nearly all the FLOPs


def test_a_look_up_reads_what_it_takes() -> None:
    table = nn.Embedding(1000, 8)
    gm = fx.symbolic_trace(lambda index: table(index) * 2, index="i64[T]")
    (row,) = measured(gm, sizes={"T": 5}, backend="c").rows
    assert row.bytes == 5 * 8 + 5 * 8 * 4 + 5 * 8 * 4  # positions, rows of the table, results


def test_a_node_in_two_kernels_has_the_time_of_both(net: fx.GraphModule) -> None:
    found = made_up(net, 1.0, 0.25)
    first, second = found.rows[:2]
    shared = replace(second, parts=(replace(second.parts[0], share=0.6), Part(first.node, 0, 0.4)))
    seconds = replace(found, rows=(first, shared)).node_seconds()
    assert seconds == {first.node: pytest.approx(0.35), second.node: pytest.approx(0.15)}


# -- limits ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("flops", "read", "written", "dtype", "seconds", "bound"),
    [
        (10**12, 10**9, 0, "f32", 1.0, "compute"),
        (10**12, 10**9, 0, "f64", 2.0, "compute"),
        (10**12, 10**9, 0, "i8", 0.25, "compute"),
        (10**9, 6 * 10**9, 4 * 10**9, "f32", 1.0, "memory"),
        (1000, 300_000, 200_000, "f32", 5e-6, "cache"),  # half of the cache
        (1000, 300_000, 200_001, "f32", 50.0001e-6, "memory"),
        (0, 0, 0, "f32", 0.0, ""),
    ],
)
def test_roofline(flops: int, read: int, written: int, dtype: str, seconds: float, bound: str) -> None:
    found = limits(ROOFS, flops, read, written, dtype, threads=2)
    assert found.seconds == pytest.approx(seconds) and found.bound == bound


def test_fewer_threads_have_lower_roofs() -> None:
    assert [ROOFS.rate("fma_f32", n) for n in (1, 2, 3)] == [5e11, 1e12, 1e12]
    many = Roofs("", 8, 0, {"read": Roof("read", "B/s", 10.0, 25.0, "")}, (), "")
    assert [many.rate("read", n) for n in (1, 2, 3, 8)] == [10.0, 20.0, 25.0, 25.0]


def test_efficiency_is_the_limit_by_the_time(net: fx.GraphModule) -> None:
    row = made_up(net, 1.0, 0.01).rows[0]
    assert row.limits is not None and row.flops is not None and row.bytes is not None
    assert row.efficiency == pytest.approx(row.limits.seconds / 0.01)
    assert row.flops_per_second == pytest.approx(row.flops / 0.01)
    assert row.bytes_per_second == pytest.approx(row.bytes / 0.01)


# -- sums ------------------------------------------------------------------------------------------
def test_coverage_and_overhead(net: fx.GraphModule) -> None:
    count = len(net.graph.find_nodes(op="call_function"))
    found = made_up(net, whole=0.01 * count / 0.8, seconds=0.01, plain=0.01 * count)
    assert found.coverage == pytest.approx(0.8)
    assert found.overhead == pytest.approx(0.25)
    assert found.parts_seconds == found.rows_seconds == pytest.approx(0.01 * count)
    assert "80.0% of the call\n       the rest" in str(found) and "measuring adds 25.0%" in str(found)


@pytest.mark.parametrize("backend", ["python", "c"])
def test_groups_keep_the_sum(net: fx.GraphModule, backend: str) -> None:
    found = measured(net, sizes={"B": 4}, backend=backend)
    total = pytest.approx(found.rows_seconds)
    assert sum(entry.seconds for entry in found.by_op()) == total
    assert sum(entry.seconds for entry in found.by_line()) == total
    assert sum(found.line_seconds().values()) == total
    modules = found.by_module()
    assert modules[0].seconds == total and modules[0].depth == 0
    assert sum(entry.own_seconds for entry in modules) == total
    flops = sum(row.flops or 0 for row in found.rows)
    assert sum(entry.flops or 0 for entry in found.by_op()) == modules[0].flops == flops


def test_modules_are_a_tree(net: fx.GraphModule) -> None:
    found = made_up(net, 1.0, 0.01)
    assert [(e.depth, e.label, e.nodes, round(100 * e.seconds)) for e in found.by_module()] == [
        (0, "Net", 8, 8),
        (1, "layers", 6, 6),
        (2, "0", 3, 3),
        (3, "fc", 1, 1),
        (2, "1", 3, 3),
        (3, "fc", 1, 1),
        (1, "head", 1, 1),
    ]
    ops = {e.label: e.nodes for e in found.by_op()}
    assert ops == {"linear": 3, "relu": 2, "add": 2, "softmax": 1}
    assert found.by_op()[0].label == "linear"  # the slowest first


# -- text and files --------------------------------------------------------------------------------
@pytest.mark.parametrize("by", ["kernel", "module", "op", "line"])
@pytest.mark.parametrize("width", [80, 100, 130])
def test_tables_fit(net: fx.GraphModule, by: str, width: int) -> None:
    text = plain_text(made_up(net, 1.0, 0.01).table(by, width), width)
    assert max(map(len, text.splitlines())) <= width
    wanted = {"kernel": "linear_1", "module": "      fc", "op": "softmax", "line": "test_profile.py:"}[by]
    assert wanted in text and "10.0 ms" in text.replace("80.0 ms", "10.0 ms")


def test_a_program_without_work_says_so() -> None:
    empty = fx.symbolic_trace(lambda x: x, x="f32[4]")
    text = str(passes.profile(empty, np.ones(4, np.float32), repeat=2, roofs=ROOFS))
    assert "no node runs: the results are inputs or weights" in text and "median  %" not in text


def test_many_rows_are_summed_up() -> None:
    def deep(x: Any) -> Any:
        for _ in range(MOST_ROWS + 5):
            x = np.tanh(x)
        return x

    found = made_up(fx.symbolic_trace(deep, x="f32[B]"), 1.0, 0.01)
    assert "5 more" in str(found) and "50.0 ms" in str(found)


def test_long_names_keep_their_ends(net: fx.GraphModule) -> None:
    for node in net.graph.find_nodes(op="call_function"):
        node.name = f"a_name_that_is_very_much_longer_than_a_terminal_is_wide_{node.name}_of_net"
    for width in (80, 100, 130):
        text = plain_text(made_up(net, 1.0, 0.01).table("kernel", width), width)
        assert max(map(len, text.splitlines())) <= width
        (line,) = [s for s in text.splitlines() if "softmax" in s and s.startswith("a_na…")]
        assert line.split()[0].endswith("_softmax_of_net") and "test_profile.py:" in line


def test_seconds_text() -> None:
    shown = [seconds_text(s) for s in (12.345, 0.012345, 9.9999e-4, 1.5e-7, 0.0)]
    assert shown == ["12.3 s", "12.3 ms", "1.00 ms", "0.150 µs", "0.00 µs"]


def test_chrome_trace_nests_modules(net: fx.GraphModule, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    made_up(net, 1.0, 0.01).to_chrome_trace(path)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    assert all(e["ph"] == "X" and e["dur"] >= 0 and {"ts", "pid", "tid"} <= e.keys() for e in events)
    modules = [e["name"] for e in events if e["cat"] == "module"]
    assert modules == ["Net", "layers", "layers.0", "layers.0.fc", "layers.1", "layers.1.fc", "head"]
    span = {e["name"]: (e["ts"], e["ts"] + e["dur"]) for e in events}
    pairs = [
        ("linear_1", "layers.1.fc"),
        ("layers.1.fc", "layers.1"),
        ("layers.1", "layers"),
        ("layers", "Net"),
        ("softmax", "Net"),
    ]
    for inner, outer in pairs:
        assert span[outer][0] <= span[inner][0] + 1e-6 and span[inner][1] <= span[outer][1] + 1e-6
    linear = next(e for e in events if e["name"] == "linear")
    assert linear["args"]["FLOPs"] == 2 * 2 * 16 * 16 + 2 * 16 and linear["args"]["line"]


def test_blame_paints_lines(net: fx.GraphModule) -> None:
    text = blame_text(made_up(net, 1.0, 0.01), __file__).plain
    (block,) = [s for s in text.splitlines() if s.endswith("return np.maximum(self.fc(x), 0) + x")]
    assert block.split()[:3] == ["60.0", "ms", "75.0%"]  # six nodes of eight, in both blocks
    assert "... " in text  # the rest of this file
    assert "test_profile.py" not in text
    elsewhere = blame_text(made_up(net, 1.0, 0.01), json.__file__).plain
    assert elsewhere.splitlines()[-1].split() == ["80.0", "ms", "100.0%", "in", "test_profile.py"]


def test_lines_of_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    functions = []
    for folder in ("a", "b"):
        file = tmp_path / folder / "same.py"
        file.parent.mkdir()
        file.write_text("def f(x):\n    return -x\n")
        space: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), space)
        functions.append(space["f"])
    gm = fx.symbolic_trace(lambda x: functions[0](functions[1](x)), x="f32[B]")
    assert [e.label for e in made_up(gm, 1.0, 0.01).by_line()] == ["same.py:2", "same.py:2"]


# -- errors ----------------------------------------------------------------------------------------
def test_errors(net: fx.GraphModule) -> None:
    x = np.ones((5, 16), np.float32)
    with pytest.raises(ArgumentError, match="sizes= is for random inputs"):
        passes.profile(net, x, sizes={"B": 3})
    with pytest.raises(ArgumentError, match="no named dim 'C'"):
        passes.profile(net, sizes={"C": 3})
    with pytest.raises(ArgumentError, match="repeat must be at least 1"):
        passes.profile(net, x, repeat=0)
    with pytest.raises(
        ArgumentError, match="the kernels of 'cuda' cannot be timed; choose the back end 'c' or 'python'"
    ):
        passes.profile(net, x, backend="cuda")
    with pytest.raises(ArgumentError, match="there is no back end 'fpga'"):
        passes.profile(net, x, backend="fpga")
    with pytest.raises(ArgumentError, match="none can be drawn for x"):
        passes.profile(fx.symbolic_trace(Net()))
    with pytest.raises(ArgumentError, match="grouped by kernel, module, op, line, not by 'node'"):
        made_up(net, 1.0, 0.01).table("node")


def test_a_row_without_work_has_no_rates(net: fx.GraphModule) -> None:
    node = net.graph.find_nodes(op="call_function")[0]
    row = Row("r", node, (Part(node, 0, 1.0),), (0.5,), 0.0, 0, 0, limits(ROOFS, 0, 0, 0, "f32", 1))
    assert row.flops_per_second is row.bytes_per_second is row.efficiency is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 B"), (1, "1 B"), (999.7, "1 kB"), (9_999.6, "10 kB"), (999_700, "1 MB"), (-1234, "-1.23 kB")],
)
def test_quantities_have_three_digits(value: float, shown: str) -> None:
    assert quantity_text(value, "B") == shown


def test_no_share_of_a_roof_is_more_than_all_of_it(net: fx.GraphModule) -> None:
    """A roof that was measured on a busy machine, or of a cache farther away, is lower than what is reached."""
    found = made_up(net, whole=0.9, seconds=1e-12)
    assert any(row.efficiency is not None and row.efficiency > 2 for row in found.rows)
    text = plain_text(found)
    assert ">100%" in text and "the machine was busy" in text and not re.search(r"[1-9]\d{3,}%|[2-9]\d\d%", text)
    assert "measuring adds no measurable time" in text
