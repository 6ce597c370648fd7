"""What each pass does and, as important, what it must leave alone; the manager; the ledger."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.dtypes import ALL
from fxlite.passes.base import PassError, changes
from fxlite.passes.exact_casts import cast_of_cast, keeps_every_value
from fxlite.passes.simplify import RULES
from tests.oracle import compare
from tests.zoo import by_name


def trace(program: Any, *types: str) -> fx.GraphModule:
    return fx.symbolic_trace(program, *(types or ("f32[3,4]",)))


def calls(gm: fx.GraphModule) -> list[str]:
    return [n.target.name for n in gm.graph.nodes if n.op == "call_function"]


# -- the manager -------------------------------------------------------------------------------------
def test_registry_and_documentation() -> None:
    assert {"dce", "cse", "const_fold", "simplify", "decompose", "fuse_conv_bn"} <= set(
        passes.PASSES
    )
    for name, found in passes.PASSES.items():
        assert found.name == name and len(found.summary) > 20 and name in repr(found)


def test_manager_takes_names_passes_and_functions() -> None:
    def drop_neg(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="neg"):
            node.replace_all_uses_with(node.args[0])

    gm = trace(lambda x: -np.exp(x) + np.exp(x))
    before = str(gm.graph)
    manager = passes.PassManager(["cse", drop_neg, passes.dce])
    done = manager(gm)
    assert calls(done) == ["exp", "add"] and str(gm.graph) == before
    assert [s.name for s in manager.report] == ["cse", "drop_neg", "dce"]
    assert (manager.report[0].before, manager.report[0].after) == (6, 5)
    assert manager.report[0].changes == "exp -1" and calls(manager.report[0].module) == [
        "exp",
        "neg",
        "add",
    ]
    assert re.search(r"^cse +6 → 5 +exp -1", str(manager.report), re.M)
    with pytest.raises(PassError, match="there is no pass 'csee'; did you mean cse"):
        passes.PassManager(["csee"])


def test_failing_pass_names_pass_node_and_line() -> None:
    @passes.graph_pass(name="breaks_half_way")
    def breaks(gm: fx.GraphModule) -> None:
        """Erases what is still read, after it has changed something."""
        for node in gm.graph.find_nodes(op="call_function"):
            if node.target.name == "neg":
                node.replace_all_uses_with(node.args[0])
            if node.target.name == "exp":
                gm.graph.erase_node(node)

    try:
        gm = trace(lambda x: np.exp(-x) + 1)
        before = str(gm.graph)
        with pytest.raises(PassError) as caught:
            passes.PassManager(["dce", "breaks_half_way"])(gm)
        message = str(caught.value)
        assert "pass breaks_half_way failed" in message and "cannot erase exp" in message
        assert "at node exp: f32[3,4]" in message and "test_passes.py:" in message
        assert "np.exp(-x)" in message
        assert str(gm.graph) == before
        gm.graph.lint()
    finally:
        del passes.PASSES["breaks_half_way"]


def test_pass_that_leaves_an_invalid_graph_is_named() -> None:
    def two_outputs(gm: fx.GraphModule) -> None:
        gm.graph.output(gm.graph.placeholders[0])

    with pytest.raises(PassError, match="pass two_outputs left an invalid graph"):
        passes.PassManager([two_outputs])(trace(lambda x: x + 1))
    with pytest.raises(PassError, match="a pass returns a GraphModule or None, not int"):
        passes.PassManager([lambda gm: 3])(trace(lambda x: x + 1))


def test_changes() -> None:
    assert changes(trace(lambda x: -x).graph, trace(lambda x: -x).graph) == "-"
    assert changes(trace(lambda x: -x).graph, trace(lambda x: np.exp(x)).graph) == (
        "exp +1, neg -1"
    )


# -- dce ---------------------------------------------------------------------------------------------
def test_dce_keeps_effects_and_inputs() -> None:
    def program(x: Any, y: Any) -> Any:
        np.exp(x)
        F.dropout(x, 0.5, True)
        return x + 1

    done = passes.dce(trace(program, "f32[3]", "f32[4]"))
    assert calls(done) == ["dropout", "add"] and len(done.graph.placeholders) == 2


def test_dce_drops_weights_but_not_those_of_the_program() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    gm = fx.symbolic_trace(model, leaf=["0"])
    gm.graph.output_node().args = (gm.graph.placeholders[0],)
    gm.graph.erase_node(gm.graph.find_nodes(op="call_function")[0])
    gm.graph.erase_node(gm.graph.find_nodes(op="call_module")[0])
    done = passes.dce(gm)
    assert not done.state_dict() and len(model.state_dict()) == 2
    gm.delete_all_unused_submodules()
    assert len(model.state_dict()) == 2, "a leaf module of the program was emptied"


# -- cse ---------------------------------------------------------------------------------------------
def test_cse_merges() -> None:
    def program(x: Any) -> Any:
        one = np.float32([1, 2, 3, 4])
        return (x + one) * (np.float32([1, 2, 3, 4]) + x), ops.softmax(x, 1) + ops.softmax(
            x, axis=-1
        )

    done = passes.cse(trace(program))
    assert Counter(calls(done)) == Counter({"add": 2, "mul": 1, "softmax": 2})
    assert len(done.graph.find_nodes(op="get_attr")) == 1


def test_cse_leaves_what_differs() -> None:
    def program(x: Any, n: Any) -> Any:
        pairs = (
            (x - 1, 1 - x),
            (x * 0.0, x * -0.0),
            (n + 1, n + True),
            (x.sum(axis=0), x.sum(axis=1)),
        )
        random = F.dropout(x, 0.5, True), F.dropout(x, 0.5, True)
        return pairs, random, (n / 1, n / 1.0)

    gm = trace(program, "f32[3,4]", "i32[3]")
    assert passes.cse(gm).graph == gm.graph


# -- const_fold ----------------------------------------------------------------------------------------
def test_const_fold_names_origin_and_limits() -> None:
    gm, eager, inputs = by_name("constants").trace()
    done = passes.const_fold(gm)
    paths = [n.target for n in done.graph.find_nodes(op="get_attr")]
    assert "weight_permuted" in paths and "mask_where" in paths
    node = done.graph.find_nodes(op="get_attr", target="weight_permuted")[0]
    assert node.loc is not None and "self.weight.T" in node.loc.expression
    compare("folded", done(*inputs), eager(*inputs))
    small = passes.const_fold(gm, limit=20)
    assert Counter(calls(small))["permute"] == 2
    assert any("48 bytes, more than 20" in str(r) for r in passes.ledger(small))
    done.weight_permuted[...] = 0  # a copy: the program's weight stays
    assert gm.weight.any()


def _with_weight(function: Any) -> fx.GraphModule:
    """``function(x, w)`` with a weight w of the model."""
    model = nn.Module()
    model.w = nn.Parameter(np.float32([1, 2, 3, 4]))
    model.forward = lambda x: function(x, model.w)
    return fx.symbolic_trace(model, x="f32[B,4]")


def test_const_fold_stores_no_repeated_value() -> None:
    gm = _with_weight(lambda x, w: (x.sum() + np.broadcast_to(np.exp(w), (1000, 1000, 4)), x))
    done = passes.const_fold(gm)
    assert calls(done) == ["sum", "expand", "add"]
    assert {n.target: str(n.type) for n in done.graph.find_nodes(op="get_attr")} == {
        "w_exp": "f32[4]"
    }


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x + F.dropout(w, 0.5, True),
        lambda x, w: x + ops.expand(w, (x.shape[0], 4)),
        lambda x, w: x + ops.full((4,), 1.0),
    ],
)
def test_const_fold_leaves_random_named_and_creation(function: Any) -> None:
    gm = _with_weight(function)
    assert calls(passes.const_fold(gm)) == calls(gm)


# -- simplify ------------------------------------------------------------------------------------------
SIMPLIFIED: dict[str, tuple[Any, list[str]]] = {
    "x * 1": (lambda x: 1 * (x * 1.0), []),
    "x / 1 ** 1 - 0": (lambda x: (x / 1) ** 1 - 0, []),
    "x + -0.0": (lambda x: x + -0.0, []),
    "neg neg neg": (lambda x: -(-(-x)), ["neg"]),
    "relu relu": (lambda x: F.relu(F.relu(x)), ["relu"]),
    "abs neg": (lambda x: np.abs(-x), ["abs"]),
    "relu exp": (lambda x: F.relu(np.exp(x)), ["exp"]),
    "clip clip": (lambda x: x.clip(-2, 3).clip(-1, 5), ["clip"]),
    "cast": (lambda x: x.astype(np.float64).astype(np.float32), []),
    "casts": (lambda x: x.astype(np.float64).astype(np.float16), ["cast"]),
    "reshapes": (lambda x: x.reshape(2, 6).reshape(12).reshape(6, 2), ["reshape"]),
    "reshape back": (lambda x: x.reshape(2, 6)[None].reshape(3, 4), []),
    "squeeze": (lambda x: np.squeeze(x[:, None], 1), []),
    "permute": (lambda x: x.T.T, []),
    "permutes": (lambda x: x.reshape(3, 2, 2).transpose(1, 2, 0).transpose(1, 2, 0), ["reshape", "permute"]),
    "expand": (lambda x: np.broadcast_to(np.broadcast_to(x, (2, 3, 4)), (2, 3, 4)), ["expand"]),
    "slice": (lambda x: ops.slice(ops.slice(x, 1, 0, 9), 0, -3), []),
    "concat": (lambda x: np.concatenate([x]), []),
    "pad": (lambda x: np.pad(x, 0), []),
    "flip": (lambda x: x[::-1][::-1], []),
    "where": (lambda x: np.where(x > 0, x, x), []),
    "maximum": (lambda x: np.maximum(x, x), []),
    "dropout": (lambda x: ops.dropout(ops.dropout(x, 0.5, False), 0), []),
    "split": (lambda x: np.split(x, 1)[0], []),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMPLIFIED)
def test_simplify(name: str) -> None:
    program, left = SIMPLIFIED[name]
    gm = trace(program)
    done = passes.dce(passes.simplify(gm))
    assert calls(done) == left and len(calls(gm)) > len(left)
    x = np.float32([[-0.0, 0.0, np.nan, np.inf], [-np.inf, 1e-45, -3.5, 7], [1, -1, 0.5, 2.5]])
    assert done(x).tobytes() == gm(x).tobytes() and done(x).dtype == gm(x).dtype


LEFT: dict[str, Any] = {
    "x + 0 turns -0.0 into 0.0": lambda x: x + 0,
    "x - -0.0": lambda x: x - -0.0,
    "x * 1 changes the dtype": lambda x: x.astype(np.int32) * 1.0,
    "x / 1 of integers": lambda x: x.astype(np.int32) / 1,
    "relu of a square can overflow": lambda x: F.relu(np.square(x.astype(np.int32))),
    "casts that lose": lambda x: x.astype(np.float16).astype(np.float32),
    "casts out of range": lambda x: x.astype(np.float64).astype(np.int8),
    "relu and clip differ on -0.0": lambda x: F.relu(x).clip(None, 6),
    "clips that do not meet": lambda x: x.clip(2, 3).clip(-1, 1),
    "a permute": lambda x: x.transpose(1, 0),
    "a reversed slice": lambda x: x[::-1],
    "part of a slice": lambda x: x[:, 1:],
    "broadcast where": lambda x: np.where(x[0] > 0, x[:, :1], x[:, :1]),
    "dropout in training": lambda x: F.dropout(x, 0.5, True),
}


@pytest.mark.parametrize("name", LEFT)
def test_simplify_leaves(name: str) -> None:
    gm = trace(LEFT[name])
    assert calls(passes.simplify(gm)) == calls(gm)


def test_every_rule_says_what_it_does() -> None:
    for rules in RULES.values():
        assert all(r.__doc__ for r in rules)


def test_simplify_integers_and_untyped() -> None:
    gm = trace(lambda n: ((n + 0) // 1 | 0) << 0, "i32[3]")
    assert calls(passes.simplify(gm)) == []
    untyped = fx.symbolic_trace(lambda x: F.relu(F.relu(-(-x))) * 1 + 0)
    assert calls(passes.simplify(untyped)) == ["relu", "add"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_exact_casts_table() -> None:
    """Against NumPy: every value of the 8- and 16-bit dtypes, and chosen ones of the rest."""
    rng = np.random.default_rng(0)
    checked = 0
    for source in ALL:
        if source.itemsize <= 2:
            codes = np.arange(2 if source.is_bool else 1 << 8 * source.itemsize)
            values = codes.astype(f"u{source.itemsize}").view(source.numpy)
        elif source.is_float:
            values = rng.standard_normal(999).astype(source.numpy) * np.logspace(-40, 30, 999)
            values = np.r_[
                values.astype(source.numpy), np.array([np.nan, np.inf, -0.0], source.numpy)
            ]
        else:
            bits = rng.integers(0, 63, 999)
            values = (rng.integers(-(2**62), 2**62, 999) >> bits).astype(source.numpy)
        for between in ALL:
            there = values.astype(between.numpy)
            if keeps_every_value(source, between):
                back = there.astype(source.numpy)
                both_nan = (values != values) & (back != back)
                assert ((back == values) | both_nan).all(), (source, between)
            for target in ALL:
                if cast_of_cast(source, between, target):
                    direct, chained = values.astype(target.numpy), there.astype(target.numpy)
                    assert ((direct == chained) | (direct != direct)).all(), (
                        source,
                        between,
                        target,
                    )
                    checked += 1
    assert checked > 100
    assert not keeps_every_value(fx.float16, fx.bfloat16) and not keeps_every_value(
        fx.int64, fx.float64
    )


# -- decompose -----------------------------------------------------------------------------------------
def test_decompose_keeps_names_places_and_kept_ops() -> None:
    gm, eager, inputs = by_name("transformer_block").trace()
    done = passes.decompose(gm, keep={"softmax", "layer_norm"})
    assert {"softmax", "layer_norm"} <= set(calls(done)) and "gelu" not in calls(done)
    named = {n.name: n for n in gm.graph.nodes}
    gelu = next(n for n in done.graph.nodes if n.name == "gelu")
    assert gelu.target.name == "mul" and gelu.loc == named["gelu"].loc
    inner = [n for n in done.graph.nodes if n.name.startswith("gelu_")]
    assert inner and all(
        (n.scope, n.loc) == (named["gelu"].scope, named["gelu"].loc) for n in inner
    )
    compare("decomposed", done(*inputs), eager(*inputs))
    by_predicate = passes.decompose(gm, keep=lambda node: node.name == "gelu")
    assert calls(by_predicate).count("gelu") == 1 and "softmax" not in calls(by_predicate)


def test_decompose_without_types_refuses_what_needs_them() -> None:
    gm = fx.symbolic_trace(lambda x: F.silu(F.group_norm(x, 2)))
    done = passes.decompose(gm)
    assert "group_norm" in calls(done) and "silu" not in calls(done)
    (refusal,) = passes.ledger(done)
    assert refusal.node == "group_norm" and "needs input types" in refusal.reason


def test_expansion_that_does_not_end_is_an_error() -> None:
    from fxlite.op import REGISTRY

    record = REGISTRY["silu"]
    old = record._expansion
    try:
        record.expansion(lambda x: ops.silu(x))
        with pytest.raises(PassError, match="the expansion of silu does not end"):
            passes.decompose(trace(lambda x: F.silu(x)))
        record.expansion(lambda x: ops.sum(x))
        with pytest.raises(PassError, match="the expansion of silu gives f32, its type rule"):
            passes.decompose(trace(lambda x: F.silu(x)))
    finally:
        assert old is not None
        record.expansion(old)


# -- fuse_conv_bn --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["cnn", "resnet_block", "unet_piece", "shared_conv", "normalized_linear"]
)
def test_fuse_conv_bn(name: str) -> None:
    gm, eager, inputs = by_name(name).trace()
    done = passes.fuse_conv_bn(gm)
    assert "batch_norm" in calls(gm) and "batch_norm" not in calls(done)
    assert not passes.ledger(done)
    compare("fused", done(*inputs), eager(*inputs))
    if name == "shared_conv":  # the weight both read is not altered: each has its own
        paths = {n.target for n in done.graph.find_nodes(op="get_attr")}
        assert len(paths) == 4
    layers = [n for n in done.graph.nodes if n.op == "call_function" and "weight" in n.arguments]
    assert all(n.arguments["bias"] is not None for n in layers)


@pytest.mark.parametrize("groups", [1, 2])
def test_fuse_transposed(groups: int) -> None:
    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=groups, bias=False)
            self.norm = nn.BatchNorm2d(6)
            self.norm.running_mean[...] = np.arange(6)
            self.norm.running_var[...] = np.arange(1, 7)
            self.norm.weight[...] = np.arange(2, 8)

        def forward(self, x: Any) -> Any:
            return self.norm(self.up(x))

    model = Up().eval()
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32)
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x))
    assert calls(done) == ["conv_transpose2d"]
    compare("fused", done(x), model(x))


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)


def _read_twice(model: Any, x: Any) -> Any:
    y = model.conv(x)
    return model.norm(y), y


def _computed_weight(model: Any, x: Any) -> Any:
    return model.norm(F.conv2d(x, model.conv.weight * 2, model.conv.bias))


REFUSED: dict[str, tuple[Any, str]] = {
    "conv read twice": (_read_twice, "conv2d is read by output too"),
    "computed weight": (_computed_weight, "weight of conv2d is computed in the graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_fuse_refuses_and_says_why(name: str) -> None:
    function, reason = REFUSED[name]
    model = _Refused().eval()
    model.forward = lambda x: function(model, x)
    gm = fx.symbolic_trace(model, x="f32[B,3,6,6]")
    done = passes.fuse_conv_bn(gm)
    (refusal,) = passes.ledger(done)
    assert reason in refusal.reason and "test_passes.py" in str(refusal)
    assert done.graph == gm.graph
    assert passes.ledger(passes.dce(done)) == [refusal], "the ledger goes with the module"


def test_fuse_refuses_batch_statistics() -> None:
    model = _Refused().train()
    model.forward = lambda x: F.batch_norm(model.conv(x), None, None, training=True)
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[B,3,6,6]"))
    assert "batch's statistics" in passes.ledger(done)[0].reason and "batch_norm" in calls(done)


def test_fuse_refuses_linear_of_rank_3() -> None:
    fc, norm = nn.Linear(4, 5), nn.BatchNorm1d(7).eval()
    model = nn.Module()
    model.fc, model.norm = fc, norm
    model.forward = lambda x: norm(fc(x))
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[B,7,4]"))
    assert "rank-2 linear only" in passes.ledger(done)[0].reason
