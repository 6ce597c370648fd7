"""Checked passes: wrong rewrites are caught and named, with a file that shows the difference."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes.base import read_only_weights
from fxlite.passes.checking.verify import VerificationError, verify
from fxlite.types.agreement import allclose, exact
from tests.graphs import trace
from tests.passes.verification import Edit, call, checked, refused, replace
from tests.zoo import by_name


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_REPRO_DIR", str(tmp_path))


# -- wrong rewrites --------------------------------------------------------------------------------
def wrong_axis(gm: fx.GraphModule) -> None:
    call(gm, "sum").update_kwarg("axis", 0)


def swapped_operands(gm: fx.GraphModule) -> None:
    call(gm, "sub").args = call(gm, "sub").args[::-1]


def lost_cast(gm: fx.GraphModule) -> None:
    inner, outer = gm.graph.find_nodes(op="call_function", target="cast")
    outer.replace_all_uses_with(inner.args[0])
    gm.graph.eliminate_dead_code()


def relu_by_where(gm: fx.GraphModule) -> None:
    old = call(gm, "relu")
    with gm.graph.inserting_before(old):
        positive = gm.graph.call_function("gt", (old.args[0], 0.0))
    replace(gm, old, "where", positive, old.args[0], 0.0)


def mean_of_nothing_is_zero(gm: fx.GraphModule) -> None:
    old = call(gm, "div")
    with gm.graph.inserting_before(old):
        at_least_one = gm.graph.call_function("maximum", (old.args[1], 1.0))
    old.update_arg(1, at_least_one)


def short_slice(gm: fx.GraphModule) -> None:
    call(gm, "slice").update_kwarg("stop", 3)
    call(gm, "slice", 1).update_kwarg("start", 3)


def other_epsilon(gm: fx.GraphModule) -> None:
    call(gm, "layer_norm").update_kwarg("eps", 1e-3)


def integer_division_by_shift(gm: fx.GraphModule) -> None:
    old = call(gm, "floor_divide")
    with gm.graph.inserting_before(old):
        positive = gm.graph.call_function("abs", (old.args[0],))
    replace(gm, old, "right_shift", positive, 1)


def sum_then_divide(x: Any) -> Any:
    return np.square(x).sum(axis=0) / np.ones_like(x).sum(axis=0)


def sample_variance(x: Any) -> Any:
    return np.square(x - x.mean(axis=0)).sum(axis=0) / (np.ones_like(x).sum(axis=0) - 1)


WRONG: dict[str, tuple[Any, str, Edit, Any, str, str]] = {
    "attribute": (lambda x: np.tanh(x.sum(axis=1)), "f32[4,4]", wrong_axis, allclose(), "sum", "elements differ"),
    "operands": (lambda x: np.tanh(np.exp(x) - x), "f32[B,4]", swapped_operands, allclose(), "sub", "B = 3"),
    "cast": (
        lambda x: np.tanh(x.astype(np.float16).astype(np.float32)),
        "f32[4]",
        lost_cast,
        exact,
        "cast_1",
        "expected",
    ),
    "nan": (lambda x: np.tanh(np.maximum(x, 0)), "f32[B]", relu_by_where, exact, "relu", "special values"),
    "nan, rounding": (
        lambda x: np.tanh(np.maximum(x, 0)),
        "f32[B]",
        relu_by_where,
        allclose(),
        "relu",
        "expected nan, got 0.0",
    ),
    "size 0": (sum_then_divide, "f32[B,3]", mean_of_nothing_is_zero, allclose(), "div", "B = 0"),
    "size 1": (sample_variance, "f32[B,3]", mean_of_nothing_is_zero, allclose(), "div", "B = 1"),
    "slice": (
        lambda x: (x[:, 0:4] * 2, np.exp(x[:, 4:8])),
        "f32[B,8]",
        short_slice,
        exact,
        "slice",
        "expected float32[3, 4], got float32[3, 3]",
    ),
    "epsilon": (
        lambda x: np.tanh(F.layer_norm(x, (4,))),
        "f32[B,4]",
        other_epsilon,
        allclose(),
        "layer_norm",
        "elements differ",
    ),
    "negative integers": (
        lambda x: np.tanh((x // 2).astype(np.float32)),
        "i32[B]",
        integer_division_by_shift,
        exact,
        "floor_divide",
        "elements differ",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rewrite_is_caught_and_named(name: str) -> None:
    program, type_text, edit, exactness, node, text = WRONG[name]
    error = refused(trace(program, type_text), edit, exactness)
    assert error.node == node, error
    assert error.pass_name == "edit" and text in str(error)
    assert "test_verify.py:" in str(error) and "before:" in str(error) and "after:" in str(error)
    assert error.repro is not None and error.repro.is_file()


def test_file_reproduces_the_difference() -> None:
    model = nn.Sequential(nn.Linear(80, 3), nn.Tanh()).eval()
    error = refused(trace(model, "f32[B,80]"), lambda gm: gm.set_attribute("0.weight", np.ones((3, 80), "f4")))
    assert error.repro is not None
    run = subprocess.run([sys.executable, error.repro], capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    assert "expected" in run.stdout and not run.stderr


def test_only_the_first_wrong_rewrite_is_named() -> None:
    def double_some(gm: fx.GraphModule) -> None:
        for number, node in enumerate(gm.graph.find_nodes(op="call_function", target="tanh")):
            if number in (3, 5):
                replace(gm, node, "sin", node.args[0])
            else:
                replace(gm, node, "tanh", node.args[0])

    def chain(x: Any) -> Any:
        for _ in range(8):
            x = np.tanh(x) + 1
        return x

    error = refused(trace(chain, "f32[B,4]"), double_some)
    assert error.node == "tanh_3"
    assert str(error).count("tanh") <= 8, "the region is the one rewrite"


def test_batch_norm_folded_with_a_wrong_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    from fxlite.passes import fuse_conv_bn as folding

    module = sys.modules["fxlite.passes.rules.fuse_conv_bn"]
    right = module.fold_batch_norm
    gm, _, _ = by_name("resnet_block").trace()
    assert checked(gm, folding.function, "allclose").run == 3

    def wrong(weight: Any, *others: Any, **options: Any) -> Any:
        made, bias = right(weight, *others, **options)
        return made * np.float32(2) if weight.shape[2] == 1 else made, bias

    monkeypatch.setattr(module, "fold_batch_norm", wrong)
    error = refused(gm, folding.function, "allclose")
    assert error.node == "batch_norm_2" and "down.0" in str(error)


def test_weight_that_another_node_reads() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4, bias=False)

        def forward(self, x: Any) -> Any:
            return np.tanh(self.fc(x)) * 2 + self.fc(np.exp(x))

    def fold_two(gm: fx.GraphModule) -> None:
        mul = call(gm, "mul")
        gm.set_attribute("fc.weight", gm.get_attribute("fc.weight") * np.float32(2))
        mul.replace_all_uses_with(mul.args[0])
        gm.graph.erase_node(mul)

    gm = trace(Tied().eval(), "f32[B,4]")
    weight = np.array(gm.get_attribute("fc.weight"))
    assert refused(gm, fold_two, "allclose").node in ("fc_weight", "mul")
    assert np.array_equal(gm.get_attribute("fc.weight"), weight)


def test_weights_are_read_only_while_a_pass_runs() -> None:
    gm = trace(nn.Linear(4, 4).eval(), "f32[B,4]")
    with read_only_weights(gm):
        with pytest.raises(ValueError, match="read-only"):
            gm.get_attribute("weight")[...] *= 2
        gm.set_attribute("bias", np.zeros(4, np.float32))
        gm.get_attribute("bias")[...] += 1
    gm.get_attribute("weight")[...] *= 2


def test_removed_effects() -> None:
    def drop(gm: fx.GraphModule) -> None:
        node = call(gm, "dropout")
        node.replace_all_uses_with(node.args[0])
        gm.graph.erase_node(node)

    def other_probability(gm: fx.GraphModule) -> None:
        call(gm, "dropout").update_kwarg("p", 0.25)

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    training = trace(model.train(), "f32[B,4]")
    error = refused(training, drop)
    assert error.node == "dropout" and "draws random numbers" in str(error)
    assert refused(training, other_probability).node == "dropout"
    training.eval()  # nothing is drawn
    assert checked(training, drop).run == 1


def test_removed_leaf_module() -> None:
    class Log(nn.Module):
        _is_impure = True

        def forward(self, x: Any) -> Any:
            return x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = Log()

        def forward(self, x: Any) -> Any:
            self.log(x)
            return np.tanh(x)

    def drop(gm: fx.GraphModule) -> None:
        gm.graph.erase_node(gm.graph.find_nodes(op="call_module")[0])

    gm = fx.symbolic_trace(Net(), "f32[B,4]", leaf=[Log])
    assert "calls a leaf module" in str(refused(gm, drop))


def test_changed_results() -> None:
    gm = trace(lambda x: (np.exp(x), np.tanh(x)), "f32[B]")

    def drop(gm: fx.GraphModule) -> None:
        output = gm.graph.output_node()
        output.args = (output.args[0][:1],)

    def swap(gm: fx.GraphModule) -> None:
        output = gm.graph.output_node()
        output.args = (output.args[0][::-1],)

    assert "return (exp, tanh)" in str(refused(gm, drop))
    assert refused(gm, swap).node in ("exp", "tanh")


def test_wrong_expansion_in_a_chain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(x: Any) -> Any:
        for axis in (-1, 0, -1):
            x = F.softmax(x, axis)
        return F.layer_norm(x, (4,))

    op = fx.ops.softmax
    right = op._expansion

    def wrong(**arguments: Any) -> Any:
        return right(**arguments) * (1.01 if arguments.get("axis") == 0 else 1.0)

    monkeypatch.setattr(op, "_expansion", wrong)
    error = refused(trace(chain, "f32[B,4]"), passes.decompose.function, "allclose")
    assert error.node == "softmax_1"


# -- two modules -----------------------------------------------------------------------------------
def test_verify_two_modules() -> None:
    gm, _, _ = by_name("transformer_block").trace()
    assert verify(gm, passes.decompose(gm)).run == 1
    other = gm.copy()
    other.set_attribute("up.bias", np.array(gm.get_attribute("up.bias")) + 1)
    with pytest.raises(VerificationError, match="expected"):
        verify(gm, other)
    training = trace(nn.Sequential(nn.Dropout(0.5), nn.Tanh()).train(), "f32[B,4]")
    assert verify(training, training.copy(), "exact").run == 1
