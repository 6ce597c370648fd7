"""``passes.before_after``: what passes change, predicted and measured.

No assertion is about seconds: changes of the time are those of made-up times."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.console import plain_text
from fxlite.base.errors import ArgumentError
from fxlite.passes.costing.costs import Costs
from fxlite.passes.profiling.effects import BeforeAfter, Change, PassEffect, Rewrite, State
from tests.roofs import ROOFS


class Net(nn.Module):
    """Two convolutions with batch norm, a silu by hand, and one value computed twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.bn1(self.conv1(x)), 0)
        y = np.tanh(self.bn2(self.conv2(y)))
        return y / (1 + np.exp(-y)) + y / (1 + np.exp(-y))


@passes.rule(exactness="allclose", register=False)
def silu(x: Any) -> Any:
    """x / (1 + exp(-x)) is silu(x)."""
    return x / (1 + np.exp(-x))


silu.replacement(F.silu)


@pytest.fixture
def net() -> fx.GraphModule:
    gm = fx.symbolic_trace(Net().eval(), x="f32[B,3,5,5]")
    gm.eval()
    return gm


def measured(gm: fx.GraphModule, **options: Any) -> BeforeAfter:
    return passes.before_after(gm, **{"roofs": ROOFS, "repeat": 3, "sizes": {"B": 2}, **options})


def changes(before: fx.GraphModule, after: fx.GraphModule) -> Costs:
    return (passes.cost(after, {"B": 2}) - passes.cost(before, {"B": 2})).change


# -- what is predicted -----------------------------------------------------------------------------
def test_counts_are_those_of_the_programs(net: fx.GraphModule) -> None:
    chosen = [passes.fuse_conv_bn, silu, "cse", "dce"]
    found = measured(net, passes=chosen)
    assert [step.name for step in found] == ["fuse_conv_bn", "silu", "cse", "dce"]
    assert found.dims == {"B": 2} and found.backend == "python"
    module = net
    for step, item in zip(found, chosen):
        after = passes.PassManager([item])(module)
        change = changes(module, after)
        assert step.after.flops is not None and step.before.flops is not None
        assert step.after.flops - step.before.flops == change.flops
        assert step.after.bytes is not None and step.before.bytes is not None
        assert step.after.bytes - step.before.bytes == change.bytes
        assert step.after.memory == passes.peak_memory(after.graph, {"B": 2})
        module = after


def test_rewrites_make_up_the_change(net: fx.GraphModule) -> None:
    found = measured(net, passes=[passes.fuse_conv_bn, silu, "cse"])
    for step in found:
        assert step.before.flops is not None and step.after.flops is not None
        assert sum(r.flops or 0 for r in step.rewrites) == step.after.flops - step.before.flops
        assert step.before.bytes is not None and step.after.bytes is not None
        assert sum(r.bytes or 0 for r in step.rewrites) == step.after.bytes - step.before.bytes
    folded, replaced, merged = (step.rewrites for step in found)
    assert [str(r) for r in folded] == ["batch_norm → conv2d (there already)"] * 2
    assert [str(r) for r in replaced] == ["neg, exp, add, div → silu"] * 2
    assert {r.rule for r in replaced} == {"silu"}
    lines = {r.origin.rpartition(":")[2] for r in folded}
    assert len(lines) == 2, "each is named by its own line"
    assert [str(r) for r in merged] == ["silu → silu (there already)"]


def test_a_chain_of_changes_is_one_rewrite() -> None:
    """An op turned into another one, whose operand is replaced, too."""

    @passes.graph_pass(exactness="allclose")
    def both(gm: fx.GraphModule) -> None:
        (exp,) = gm.graph.find_nodes(op="call_function", target="exp")
        (tanh,) = gm.graph.find_nodes(op="call_function", target="tanh")
        with gm.graph.inserting_before(exp):
            new = gm.graph.call_function(fx.ops.expm1, (exp.args[0],))
            plus = gm.graph.call_function(fx.ops.add, (new, 1))
        exp.replace_all_uses_with(plus)
        gm.graph.erase_node(exp)
        tanh.target = fx.ops.sinh

    try:
        gm = fx.symbolic_trace(lambda x: -np.tanh(np.exp(x)), x="f32[4]")
        manager = passes.PassManager([both], check=False)
        (step,) = measured(gm, passes=manager, sizes=None)
        assert [str(r) for r in step.rewrites] == ["exp, tanh → expm1, add, sinh"]
    finally:
        passes.PASSES.pop("both")


def test_a_pass_that_gives_another_graph(net: fx.GraphModule) -> None:
    def fresh(gm: fx.GraphModule) -> fx.GraphModule:
        return silu(gm)

    (step,) = measured(net, passes=[fresh])
    assert step.rewrites == () and not step.is_same and step.after.parts < step.before.parts


def test_prediction_is_by_the_roofs(net: fx.GraphModule) -> None:
    (step,) = measured(net, passes=["fuse_conv_bn"])
    rows = passes.profile(net, sizes={"B": 2}, roofs=ROOFS, repeat=1).rows
    least = sum(row.limits.seconds for row in rows if row.limits is not None)
    assert step.before.least_seconds == pytest.approx(least)
    assert step.predicted is not None and -1 < step.predicted < 0


def test_kernels(net: fx.GraphModule) -> None:
    found = measured(net, backend="c", threads=1, passes=[silu])
    assert found.threads == 1 and found.backend == "c"
    compiled = fx.compile(silu(net), threads=1)
    assert found.after.parts == len(compiled.kernels)
    assert found.after.memory == compiled.workspace_bytes({"B": 2})


# -- what is measured ------------------------------------------------------------------------------
def test_equal_code_is_measured_once(net: fx.GraphModule) -> None:
    found = measured(net, passes=["remove_dropout", "fuse_conv_bn", "dce"])
    assert [step.is_same for step in found] == [True, False, True]
    assert found.steps[0].before.seconds is found.steps[0].after.seconds
    assert found["fuse_conv_bn"].before.seconds is not found["fuse_conv_bn"].after.seconds
    assert all(len(s.after.seconds) == 3 for s in found)
    text = str(measured(net, passes=["remove_dropout"]))
    assert "the same\n" in text and "\nchange" not in text


@pytest.mark.parametrize("backend", ["python", "c"])
def test_the_standard_pipeline(net: fx.GraphModule, backend: str) -> None:
    found = measured(net, backend=backend)
    names = [step.name for step in fx.compile(net).passes.report]
    assert [step.name for step in found] == names
    assert found["fuse_conv_bn"].is_same is False
    if backend == "c":  # nothing is fused before the pass: other passes do not do its work
        assert found.before.flops is not None and found.after.flops is not None
        assert found.after.flops < found.before.flops


def made_up(before: list[float], after: list[float], **facts: Any) -> PassEffect:
    first, second = (State(10, 100, 1000, 500, least, tuple(times)) for least, times in ((1.0, before), (0.5, after)))
    return PassEffect("fuse", first, second, **{"rewrites": (), "refused": 0, "is_same": False, **facts})


def test_changes_are_medians_of_ratios() -> None:
    """Rounds under load count by their ratios, and do not move the result."""
    load = [1.0, 1.0, 9.0, 1.0, 30.0, 1.0, 1.0, 2.0, 1.0]
    step = made_up(load, [0.75 * each for each in load])
    assert step.measured.value == pytest.approx(-0.25)
    assert step.measured.high - step.measured.low == pytest.approx(0) and not step.measured.is_noise
    assert step.predicted == pytest.approx(-0.5)
    noisy = made_up([1.0] * 9, [0.9, 1.1, 0.8, 1.2, 1.0, 0.7, 1.3, 1.05, 0.95])
    assert noisy.measured.is_noise and noisy.measured.value == pytest.approx(0)


def test_the_interval_holds_the_median() -> None:
    """95 of 100 intervals hold the true median, whatever the distribution."""
    generator = np.random.default_rng(0)
    right = 0
    for _ in range(300):
        ratios = np.exp(generator.exponential(size=25) - np.log(2))  # their median is 1
        change = made_up([1.0] * 25, list(ratios)).measured
        right += change.low <= 0 <= change.high
    assert 0.92 < right / 300 < 0.995


# -- text ------------------------------------------------------------------------------------------
def test_table() -> None:
    rewrites = tuple(Rewrite(("mul", "add"), ("fma",), "", "", f"m.py:{i}", -5, -50) for i in range(3))
    rewrites += (Rewrite(("exp",), (), "", "drop", "", None, -10),)
    step = made_up([1.0] * 5, [0.75] * 5, rewrites=rewrites, refused=2)
    found = BeforeAfter("Net", "python", 2, {"B": 8}, step.before, (step,), ROOFS)
    lines = [line.split() for line in str(found).splitlines()]
    assert str(found).splitlines()[0] == "Net: 1 pass, Python, 2 threads, B=8"
    assert lines[2] == ["nodes", "FLOPs", "bytes", "memory", "predicted", "measured"]
    assert lines[3] == ["before", "10", "100", "1000", "500", "1.00", "s", "1.00", "s"]
    assert lines[4] == ["fuse,", "2", "refused", "10", "-50.0%", "-25.0%", "±0.0"]
    assert lines[5] == ["3", "×", "mul,", "add", "→", "fma", "-15.0%", "-15.0%"]
    assert lines[6] == ["1", "×", "drop:", "exp", "→", "nothing", "-1.0%"]
    assert lines[8] == ["change", "-50.0%", "-25.0%", "±0.0"]
    for width in (80, 100, 130):
        assert max(map(len, plain_text(found, width).splitlines())) <= width


def test_errors(net: fx.GraphModule) -> None:
    with pytest.raises(
        ArgumentError, match="the kernels of 'cuda' cannot be timed; choose the back end 'c' or 'python'"
    ):
        passes.before_after(net, backend="cuda", passes=["cse"])
    with pytest.raises(ArgumentError, match="repeat must be at least 1"):
        passes.before_after(net, repeat=0)
    with pytest.raises(ArgumentError, match="there is no back end 'fpga'"):
        passes.before_after(net, backend="fpga")
    with pytest.raises(ArgumentError, match="'python' has no option optimize; the c back end has it"):
        fx.compile(net, backend="python", optimize=False)
    with pytest.raises(KeyError, match="'dce' is not one of the passes: cse"):
        measured(net, passes=["cse"])["dce"]

    def wrong(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="tanh"):
            node.target = fx.ops.sinh

    with pytest.raises(passes.PassError, match="pass wrong is declared"):
        measured(net, passes=[wrong])


def test_a_graph_without_types_is_measured() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x) + np.exp(x))
    (step,) = passes.before_after(
        gm, np.ones(3, np.float32), passes=passes.PassManager(["cse"], check="lint"), repeat=3, roofs=ROOFS
    )
    assert step.predicted is None and step.after.flops is None and not step.is_same


def test_own_sizes_are_used(net: fx.GraphModule) -> None:
    """Also the one of which random inputs are made first anyway."""
    assert [measured(net, passes=["cse"], sizes={"B": b}).dims["B"] for b in (1, 3)] == [1, 3]


def test_changes_of_which_the_times_say_nothing_are_no_numbers() -> None:
    assert str(Change(-0.692, -1.0, 49.9)) == "unclear: times vary"
    assert str(Change(-0.25, -0.27, -0.23)) == "-25.0% ±2.0"
