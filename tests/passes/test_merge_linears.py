"""merge_linears: one product instead of several, read in place in C, and refusals with reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes.rules.merge_linears import merged_name
from tests.codegen.compiling import emitted
from tests.graphs import ops_of
from tests.oracle import agree, compare


class Attention(nn.Module):
    """Queries, keys and values of one input; keys have no bias."""

    def __init__(self, inputs: int = 12, width: int = 5, key_bias: bool = True) -> None:
        super().__init__()
        self.query = nn.Linear(inputs, width)
        self.key = nn.Linear(inputs, width, bias=key_bias)
        self.value = nn.Linear(inputs, width + 2)

    def forward(self, x: Any) -> Any:
        q, k, v = self.query(x), self.key(x), self.value(x)
        return F.softmax(q @ k.swapaxes(-1, -2), axis=-1) @ v


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_query_key_value_are_one_product() -> None:
    model = Attention()
    gm = fx.symbolic_trace(model, x="f32[B,T,12]")
    done = passes.merge_linears(gm)
    assert ops_of(gm).count("linear") == 3 and ops_of(done).count("linear") == 1
    assert not passes.ledger(done)
    weights = {n.target: n.type.shape for n in done.graph.find_nodes(op="get_attr")}
    assert weights == {"query_key_value_weight": (17, 12), "query_key_value_bias": (17,)}
    (product,) = done.graph.find_nodes(op="call_function", target="linear")
    assert product.name == "query_key_value"
    assert [n.type.shape[-1] for n in product.users] == [5, 5, 7]
    x = drawn(2, 9, 12)
    compare("merged", done(x), model(x))


@pytest.mark.parametrize("sizes", [(1, 1), (2, 7), (0, 4), (3, 130)])
def test_slices_are_read_in_place(sizes: tuple[int, int]) -> None:
    """In C no kernel copies a part of the merged product; sizes off tiles, 0 and 1."""
    model = Attention(inputs=33, width=37)
    calls = emitted(model, x="f32[B,T,33]").calls
    assert calls[0].name.endswith("query_key_value")
    assert not any(all(n.target.kind == "view" for n in call.group.members) for call in calls)
    agree(model, drawn(*sizes, 33))


def test_layers_without_bias_merge_among_themselves() -> None:
    done = passes.merge_linears(fx.symbolic_trace(Attention(key_bias=False), x="f32[B,T,12]"))
    assert sorted(n.name for n in done.graph.find_nodes(op="call_function", target="linear")) == [
        "linear_1",
        "query_value",
    ]


def test_matmuls_with_weights() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = (nn.Parameter(drawn(6, n)) for n in (3, 11))

        def forward(self, x: Any) -> Any:
            return (x @ self.left).sum(-1) + (x @ self.right).max(-1)

    model = Product()
    done = passes.merge_linears(fx.symbolic_trace(model, x="f32[B,6]"))
    assert ops_of(done).count("matmul") == 1
    compare("merged", done(drawn(4, 6)), model(drawn(4, 6)))


class Results(Attention):
    def forward(self, x: Any) -> Any:
        return self.query(x), self.key(x)


class Gate(Attention):
    def forward(self, x: Any) -> Any:
        return F.silu(self.query(x)) * self.key(x)


class Tied(Attention):
    def forward(self, x: Any) -> Any:
        return self.query(x).sum() + self.key(x).sum() + self.key(x + 1).max()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Results, "linear is a result of the program"),
        (Gate, "is computed while the sums of linear are in registers"),
        (Tied, "key.weight is read 2 times"),
    ],
)
def test_refused(model: type[Attention], reason: str) -> None:
    gm = passes.decompose(fx.symbolic_trace(model(inputs=8), x="f32[B,8]"))
    done = passes.merge_linears(gm)
    assert ops_of(done) == ops_of(gm)
    (refusal,) = passes.ledger(done)
    assert refusal.pass_name == "merge_linears" and reason in refusal.reason


def test_a_narrow_result_may_be_written_twice() -> None:
    """Reading 100 inputs again would cost more than storing the narrow results."""
    done = passes.merge_linears(fx.symbolic_trace(Results(inputs=100), x="f32[B,100]"))
    assert ops_of(done).count("linear") == 1


@pytest.mark.parametrize(
    ("paths", "name"),
    [
        (["a.query.weight", "a.key.weight"], "a.query_key"),
        (["wq", "wk"], "wq_wk"),
        ([f"m.{i}.weight" for i in range(6)], "m.0_to_5"),
    ],
)
def test_names(paths: list[str], name: str) -> None:
    assert merged_name(paths) == name
