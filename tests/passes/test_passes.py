"""What dce, cse, const_fold and decompose do and, as important, what they must leave alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.passes.base import PassError
from fxlite.passes.rules.decompose import Recorder
from tests.graphs import ops_of, trace
from tests.oracle import compare
from tests.zoo import by_name


# -- dce -------------------------------------------------------------------------------------------
def test_dce_keeps_effects_and_inputs() -> None:
    def program(x: Any, y: Any) -> Any:
        np.exp(x)
        F.dropout(x, 0.5, True)
        return x + 1

    done = passes.dce(trace(program, "f32[3]", "f32[4]"))
    assert ops_of(done) == ["dropout", "add"] and len(done.graph.placeholders) == 2


def unread_in_while(x: Any) -> Any:
    n, total, unread, other = 0, x.sum(), x * 2, x
    while total < 100:
        n += 1
        total, unread, other = total + x.sum() + n, unread + other, unread * 3
    return total


def unread_in_cond(x: Any) -> Any:
    if x.sum() > 0:
        a, _ = x + 1, np.exp(x)
    else:
        a, _ = x - 1, np.log(np.abs(x))
    return a


def unread_in_nest(x: Any) -> Any:
    out, z = np.zeros_like(x), x
    for i in range(x.shape[0]):
        m, k = 0.0, 0.0
        for j in range(i, x.shape[0]):
            m, k = m + x[j], k * x[j] + 1  # k and z are of each other alone
            z = z * k
        out[i] = m
    return out


@pytest.mark.parametrize(
    ("program", "results"), [(unread_in_while, [2]), (unread_in_cond, [1]), (unread_in_nest, [1, 1])]
)
def test_dce_drops_results_of_loops_and_conditions(program: Any, results: list[int]) -> None:
    """With what a loop carries for these alone; what a test or a result that is read depends on stays."""
    x = np.linspace(0.5, 2, 7)
    gm = fx.symbolic_trace(program, "f64[7]", loops="keep")
    done = passes.dce(gm)
    done.graph.lint()
    compare("dce", done(x), program(x))
    kept = [n for n in done.graph.nodes if n.op == "call_function" and n.target.kind == "control"]
    inner = (
        [c for n in kept for c in n.kwargs["body_fn"].calls if c.target.kind == "control"] if len(results) > 1 else []
    )
    assert [len(n.type) for n in [*kept, *inner]] == results
    names = [n.name for n in gm.graph.nodes]
    assert all(n.name in names for n in kept)


def test_dce_keeps_what_effects_in_a_loop_read() -> None:
    def program(x: Any) -> Any:
        y, z = x, x
        for _ in range(3):
            y = F.dropout(y, 0.5, True) * 2
            z = z + 1
        return z

    done = passes.dce(fx.symbolic_trace(program, "f64[7]", loops="keep"))
    assert len(next(n for n in done.graph.nodes if "body_fn" in n.kwargs).type) == 2


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


# -- cse -------------------------------------------------------------------------------------------
def test_cse_merges() -> None:
    def program(x: Any) -> Any:
        one = np.float32([1, 2, 3, 4])
        return (x + one) * (np.float32([1, 2, 3, 4]) + x), ops.softmax(x, 1) + ops.softmax(x, axis=-1)

    done = passes.cse(trace(program))
    assert Counter(ops_of(done)) == Counter({"add": 2, "mul": 1, "softmax": 2})
    assert len(done.graph.find_nodes(op="get_attr")) == 1


def test_cse_leaves_what_differs() -> None:
    def program(x: Any, n: Any) -> Any:
        pairs = ((x - 1, 1 - x), (x * 0.0, x * -0.0), (n + 1, n + True), (x.sum(axis=0), x.sum(axis=1)))
        random = F.dropout(x, 0.5, True), F.dropout(x, 0.5, True)
        return pairs, random, (n / 1, n / 1.0)

    gm = trace(program, "f32[3,4]", "i32[3]")
    assert passes.cse(gm).graph == gm.graph


# -- const_fold ------------------------------------------------------------------------------------
def test_const_fold_names_origin_and_limits() -> None:
    gm, eager, inputs = by_name("constants").trace()
    done = passes.const_fold(gm)
    paths = [n.target for n in done.graph.find_nodes(op="get_attr")]
    assert "weight_permuted" in paths and "mask_where" in paths
    node = done.graph.find_nodes(op="get_attr", target="weight_permuted")[0]
    assert node.loc is not None and "self.weight.T" in node.loc.expression
    compare("folded", done(*inputs), eager(*inputs))
    done.weight_permuted[...] = 0  # a copy: the program's weight stays
    assert gm.weight.any()


def _with_weight(function: Any) -> fx.GraphModule:
    """``function(x, w)`` with a weight w of the model."""
    model = nn.Module()
    model.w = nn.Parameter(np.float32([1, 2, 3, 4]))
    model.forward = lambda x: function(x, model.w)
    return fx.symbolic_trace(model, x="f32[B,4]")


def test_const_fold_has_a_limit_for_what_is_larger_than_its_weights() -> None:
    gm = _with_weight(lambda x, w: (x @ np.reshape(w, (2, 2)).T.reshape(4), x[0] + w[:, None] * w))
    small = passes.const_fold(gm, limit=8)
    assert Counter(ops_of(small)) == Counter({"matmul": 1, "select": 1, "mul": 1, "add": 1})
    assert any("64 bytes, more than 32" in str(r) for r in passes.ledger(small))


def test_const_fold_stores_no_repeated_value() -> None:
    gm = _with_weight(lambda x, w: (x.sum() + np.broadcast_to(np.exp(w), (1000, 1000, 4)), x))
    done = passes.const_fold(gm)
    assert ops_of(done) == ["sum", "expand", "add"]
    assert {n.target: str(n.type) for n in done.graph.find_nodes(op="get_attr")} == {"w_exp": "f32[4]"}


def test_const_fold_stores_a_repeated_weight_for_products_alone() -> None:
    """A large view of a small array is made where elementwise ops read it; a product's weight is packed once."""
    for function, size in (
        (lambda x, w: x.sum() + np.repeat(np.exp(w), 4096), 4),
        (lambda x, w: x @ np.repeat(np.exp(w), 4096).reshape(4, 4096), 4 * 4096),
    ):
        gm = _with_weight(function)
        done = passes.const_fold(gm)
        assert max(value.size for value in done.state_dict().values()) == size, str(done.graph)
        x = np.ones((2, 4), np.float32)
        compare("folded", done(x), gm(x))


def test_const_fold_of_a_part_of_a_weight() -> None:
    gm = _with_weight(lambda x, w: x + np.split(w, 2)[1].sum())
    done = passes.const_fold(gm)
    assert ops_of(done) == ["add"]
    x = np.ones((2, 4), np.float32)
    compare("folded", done(x), gm(x))


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
    assert ops_of(passes.const_fold(gm)) == ops_of(gm)


# -- decompose -------------------------------------------------------------------------------------
def test_decompose_keeps_names_places_and_kept_ops() -> None:
    gm, eager, inputs = by_name("transformer_block").trace()
    done = passes.decompose(gm, keep={"softmax", "layer_norm"})
    assert {"softmax", "layer_norm"} <= set(ops_of(done)) and "gelu" not in ops_of(done)
    named = {n.name: n for n in gm.graph.nodes}
    gelu = next(n for n in done.graph.nodes if n.name == "gelu")
    assert gelu.target.name == "mul" and gelu.loc == named["gelu"].loc
    inner = [n for n in done.graph.nodes if n.name.startswith("gelu_")]
    assert inner and all((n.scope, n.loc) == (named["gelu"].scope, named["gelu"].loc) for n in inner)
    compare("decomposed", done(*inputs), eager(*inputs))
    by_predicate = passes.decompose(gm, keep=lambda node: node.name == "gelu")
    assert ops_of(by_predicate).count("gelu") == 1 and "softmax" not in ops_of(by_predicate)


def test_decompose_without_types_refuses_what_needs_them() -> None:
    gm = fx.symbolic_trace(lambda x: F.silu(F.group_norm(x, 2)))
    done = passes.decompose(gm)
    assert "group_norm" in ops_of(done) and "silu" not in ops_of(done)
    (refusal,) = passes.ledger(done)
    assert refusal.node == "group_norm" and "needs input types" in refusal.reason


def test_expansion_that_does_not_end_is_an_error() -> None:
    from fxlite.ops.op import REGISTRY

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


def test_a_constant_made_while_an_expansion_is_recorded_belongs_to_the_module() -> None:
    gm = trace(lambda x: np.exp(x)).copy()
    (exp,) = gm.graph.find_nodes(op="call_function", target="exp")
    table = np.arange(4, dtype=np.float32)
    new = Recorder(gm).run(exp, lambda arguments: arguments["x"] * table)
    exp.replace_all_uses_with(new)
    gm.graph.erase_node(exp)
    gm.graph.lint(full=True)
    x = np.ones((3, 4), np.float32)
    assert np.array_equal(gm(x), x * table)
    gm.undo()
    assert ops_of(gm) == ["exp"] and not gm.state_dict()


def test_const_fold_chooses_by_a_known_condition() -> None:
    gm = fx.symbolic_trace(lambda x, y: np.where(np.ones(3).sum() > 2, x, y), "f32[4]", "f32[4]")
    (result,) = passes.const_fold(gm).graph.output_node().args
    assert result.name == "x"
    other = fx.symbolic_trace(lambda x: np.where(np.ones(3).sum() > 2, x, np.arange(4.0)), "f32[4]")
    assert "where" in str(passes.const_fold(other).graph), "the result has another dtype"
