"""Rewrites one by one: every program in between is whole, and computes what it should."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.compiler import standard_passes
from fxlite.ops.op import Op
from fxlite.passes.stepper import Rewrites
from fxlite.types.agreement import Exactness, compare, leaves
from tests.zoo import ZOO
from tests.zoo.registry import by_name


def run(gm: fx.GraphModule, inputs: Any) -> list[Any]:
    return leaves(gm(*[np.array(x) for x in inputs]))


@pytest.mark.parametrize("entry", ZOO, ids=lambda p: p.name)
def test_every_state_computes_the_same(entry: Any) -> None:
    """The first is the program that was given, the last what the passes made; the journal of the
    live module is as it was afterwards."""
    gm, _, inputs = entry.trace()
    manager = passes.PassManager([*standard_passes(), "dce"], check="lint")
    made = manager(gm)
    version, text = made.graph.journal.version, made.graph.text(full=True)
    found = Rewrites(gm, manager.report)
    expected = run(gm, inputs)
    assert found.program(0) is gm
    for index, rewrite in enumerate(found):
        after = found.program(index + 1)
        after.graph.lint(full=True)
        assert rewrite.before.graph != after.graph or rewrite.diff
        with np.errstate(all="ignore"):
            assert compare(expected, run(after, inputs), Exactness("allclose")).agrees
    assert found.program(len(found)).graph == made.graph
    assert made.graph.text(full=True) == text and len(made.graph.journal.records) == version[1]
    assert sum(found.count_of(step) for step in manager.report) == len(found)


def rewrites_of(program: Any, *names: Any, **types: str) -> Rewrites:
    gm = fx.symbolic_trace(program, **types)
    manager = passes.PassManager(names, check="lint")
    manager(gm)
    return Rewrites(gm, manager.report)


def test_one_rewrite_for_each_place() -> None:
    """A layer with its norm is one, weights included; three readers of a value are one."""
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    found = rewrites_of(net.eval(), "fuse_conv_bn", "dce", x="f32[B,3,4,4]")
    assert [(r.pass_name, r.number, r.count) for r in found] == [("fuse_conv_bn", 1, 2), ("fuse_conv_bn", 2, 2)]
    assert "batch_norm" in found[0].removed and "batch_norm_1" in found[1].removed
    assert found.starts() == [0] and found[-1].number == 2 and len(found[:]) == 2

    def many(x: Any) -> Any:
        y = x * 1
        return np.exp(y) + np.sin(y) + np.cos(y)

    (rewrite,) = rewrites_of(many, "simplify", x="f32[4]")
    assert rewrite.removed == ["mul"] and not rewrite.made
    values = rewrite.values({"x": np.ones(4, np.float32)})
    assert values.rows[0][:3] == ("-", "mul", "f32[4]") and "same" in values.results


def test_smaller_weights_are_one_rewrite() -> None:
    """In between nothing fits."""
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    prune = passes.prune_channels.with_options(amount=0.5)
    (rewrite,) = rewrites_of(net, prune, x="f32[B,3,4,4]")
    assert rewrite.after.get_attribute("0.weight").shape == (4, 3, 1, 1)
    assert rewrite.before.get_attribute("0.weight").shape == (8, 3, 1, 1)
    assert "apart" in rewrite.values({"x": np.ones((1, 3, 4, 4), np.float32)}).results


def test_passes_that_change_nothing_or_return_another() -> None:
    def idle(gm: fx.GraphModule) -> None:
        pass

    def same(gm: fx.GraphModule) -> fx.GraphModule:
        return gm.copy()

    def other(gm: fx.GraphModule) -> fx.GraphModule:
        made = gm.copy()
        (node,) = made.graph.find("exp")
        node.last.target = "sin"
        return made

    found = rewrites_of(lambda x: np.exp(x * 1), idle, same, other, "simplify", x="f32[4]")
    assert [r.pass_name for r in found] == ["other", "simplify"]
    assert found[0].made == ["exp"] and found.program(2).graph.find("sin")
    assert not rewrites_of(lambda x: np.exp(x), "cse", "dce", x="f32[4]")
    with pytest.raises(IndexError):
        found[2]


def test_what_was_undone_cannot_be_walked() -> None:
    gm = by_name("mlp").trace()[0]
    manager = passes.PassManager(["simplify", "cse"], check="lint")
    made = manager(fx.symbolic_trace(lambda x: np.exp(x * 1), x="f32[4]"))
    made.undo()
    with pytest.raises(fx.errors.GraphError, match="undone"):
        Rewrites(gm, manager.report)


def test_what_rewrites_leave_alone_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    evaluate = Op.evaluate

    def counted(self: Op, *args: Any, **kwargs: Any) -> Any:
        calls.append(self.name)
        return evaluate(self, *args, **kwargs)

    def program(x: Any) -> Any:
        for _ in range(6):
            x = np.tanh(np.abs(np.maximum(x, 0)))
        return x

    gm = fx.symbolic_trace(program, x="f32[4]")
    manager = passes.PassManager(["simplify"])
    manager(gm)
    rewrites = Rewrites(gm, manager.report)
    given = {"x": np.ones(4, np.float32)}
    expected = [rewrite.values(given) for rewrite in rewrites]
    assert len(expected) == 6 and all("same" in found.results for found in expected)
    again = Rewrites(gm, manager.report)
    monkeypatch.setattr(Op, "evaluate", counted)
    assert [rewrite.values(given) for rewrite in again] == expected
    # the first program whole; then for each rewrite what reads the value that changed, and that is the same number
    assert len(calls) < 18 + 6 * 18 / 2 + 6
    # without the results, what lies behind a rewrite waits for the next one: the program once, and what each changed
    calls.clear()
    third = Rewrites(gm, manager.report)
    assert [rewrite.values(given, with_results=False).rows for rewrite in third] == [found.rows for found in expected]
    assert len(calls) <= 24 + 6
    assert third.results(-1, given) == "the same, bit by bit"
