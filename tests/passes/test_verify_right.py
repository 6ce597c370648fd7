"""Checked passes: right rewrites raise no alarm, and the report says how they were checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.types.agreement import allclose, exact, sqnr
from tests.graphs import trace
from tests.passes.verification import call, checked, refused
from tests.zoo import ZOO, Program


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_REPRO_DIR", str(tmp_path))


# -- right rewrites --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(passes.PASSES))
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_no_false_alarm(program: Program, name: str) -> None:
    gm, _, _ = program.trace()
    item = passes.PASSES[name]
    for module in (gm, passes.decompose(gm)):
        report = checked(module, item.function, item.exactness)
        assert not report.unchecked and not report.sampled, report


def test_rewrite_that_relies_on_what_comes_before() -> None:
    def drop_relu(gm: fx.GraphModule) -> None:
        relu = call(gm, "relu")
        relu.replace_all_uses_with(relu.args[0])
        gm.graph.erase_node(relu)

    far = trace(lambda x: np.tanh(F.relu(np.sqrt(np.exp(np.abs(x)) + 1))), "f32[B,4]")
    assert checked(far, drop_relu).run == 1
    assert refused(trace(lambda x: np.tanh(F.relu(np.sin(x))), "f32[B]"), drop_relu).node == "relu"


def test_operands_in_another_order_and_merged_nodes_are_alike() -> None:
    def swap(gm: fx.GraphModule) -> None:
        call(gm, "add").args = call(gm, "add").args[::-1]

    gm = trace(lambda x: np.tanh(np.exp(x) + np.exp(x) * x), "f32[B,4]")
    assert checked(gm, swap).alike == 1
    report = checked(gm, passes.cse.function)
    assert (report.alike, report.run) == (1, 0)


def test_another_layout_inside_is_decided_by_the_results() -> None:
    def transpose_inside(gm: fx.GraphModule) -> None:
        """exp(x).sum(axis=1) -> exp(x.T).sum(axis=0)"""
        exp, total = call(gm, "exp"), call(gm, "sum")
        with gm.graph.inserting_before(exp):
            exp.args = (gm.graph.call_function("permute", (exp.args[0],), {"axes": (1, 0)}),)
        total.update_kwarg("axis", 0)

    report = checked(trace(lambda x: np.exp(x).sum(axis=1), "f32[B,4]"), transpose_inside, "allclose")
    assert not report.unchecked


def test_value_of_a_weight_may_matter() -> None:
    class Scaled(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = nn.Parameter(np.full(4, scale, np.float32))

        def forward(self, x: Any) -> Any:
            return np.tanh(x * self.scale)

    def drop(gm: fx.GraphModule) -> None:
        mul = call(gm, "mul")
        mul.replace_all_uses_with(mul.args[0])
        gm.graph.eliminate_dead_code()

    assert checked(trace(Scaled(1.0), "f32[B,4]"), drop).run == 1
    assert refused(trace(Scaled(2.0), "f32[B,4]"), drop).node == "mul"


def test_equal_rewrites_are_run_once() -> None:
    def chain(x: Any) -> Any:
        for _ in range(50):
            x = np.tanh(x * 1)
        return x

    report = checked(trace(chain, "f32[B,4]"), passes.simplify.function)
    assert (report.run, report.repeated) == (1, 49)
    assert report.summary == "1 run, 49 repeated" and report.rewrites == 50


def test_large_fixed_sizes_are_made_smaller() -> None:
    gm = trace(lambda x: np.tanh(x * 1) @ x.transpose(1, 0), "f32[5000,7000]")
    assert checked(gm, passes.simplify.function).run == 1


def test_untyped_graph_is_said_to_be_unchecked() -> None:
    gm = fx.symbolic_trace(lambda x: np.tanh(x * 1))
    report = checked(gm, passes.simplify.function)
    assert [reason for _, reason in report.unchecked] == ["an input has no type"]
    assert "unchecked: mul -> x" in str(report)


def test_rounding_and_noise() -> None:
    def to_half_and_back(gm: fx.GraphModule) -> None:
        exp = call(gm, "exp")
        with gm.graph.inserting_before(exp):
            half = gm.graph.call_function("cast", (exp.args[0],), {"dtype": "f16"})
            back = gm.graph.call_function("cast", (half,), {"dtype": "f32"})
        exp.args = (back,)

    gm = trace(lambda x: np.tanh(np.exp(x)), "f32[B,9]")
    for promise in (exact, allclose(), sqnr(90)):
        assert refused(gm, to_half_and_back, promise).node == "x"
    for promise in (allclose(rtol=1e-2), allclose(atol=1e-1), sqnr(40)):
        assert checked(gm, to_half_and_back, promise).run == 1
