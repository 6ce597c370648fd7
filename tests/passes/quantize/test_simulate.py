"""The simulated run has the values of the converted module, in float."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.passes import quantize as q
from fxlite.passes.quantize.conversion.error_correction import simulate
from fxlite.passes.quantize.conversion.prepare import arguments_of
from tests.passes.quantize.helpers import draw, everything, sqnr


class Words(nn.Module):
    """A table, attention over its rows, a residual, a norm and a matmul with a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.table.weight[:] = draw((50, 32), 5)
        self.query, self.key = nn.Linear(32, 32), nn.Linear(32, 32)
        for seed, layer in enumerate((self.query, self.key)):
            layer.weight[:] = draw(layer.weight.shape, seed) / 6
            layer.bias[:] = draw(layer.bias.shape, seed)
        self.out = nn.Parameter(draw((32, 8), 6))

    def forward(self, ids: Any) -> Any:
        x = self.table(ids)
        y = F.scaled_dot_product_attention(self.query(x), self.key(x), x)
        return self.norm(x + y) @ self.out


class Images(nn.Module):
    """A residual block, pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.fc = nn.Linear(32, 5)
        for seed, layer in enumerate((self.a, self.b, self.fc)):
            layer.weight[:] = draw(layer.weight.shape, seed)
            layer.bias[:] = draw(layer.bias.shape, seed)

    def forward(self, ids: Any) -> Any:
        x = np.maximum(self.a(fx.ops.take(draw((50, 3, 4, 4), 1), ids, axis=0)), 0)
        x = F.max_pool2d(np.maximum(self.b(x) + x, 0), 2)
        return self.fc(x.reshape(-1, 32))


MODELS = {"words": (Words, "i64[B,T]", (3, 7)), "images": (Images, "i64[B]", (9,))}
CONFIGS = [q.static_int8("minmax"), q.dynamic_int8(), q.weight_only_int8(), q.weight_only_int4(32)]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_convert(name: str, config: q.QConfig) -> None:
    model, type, shape = MODELS[name]
    gm = fx.symbolic_trace(model().eval(), ids=type)
    rng = np.random.default_rng(0)
    batches = [rng.integers(0, 50, shape), rng.integers(0, 50, (2, *shape[1:]))]
    prepared = q.prepare(gm, everything(config))
    for batch in batches:
        prepared(batch)
    seen = {path: np.array(value) for path, value in prepared.state_dict().items()}
    products = list(simulate(prepared, iter(batches)))
    decided = [n for n in prepared.graph.nodes if getattr(n.meta.get("quantize"), "role", "") == "product"]
    assert [p.node for p in products] == decided
    converted = q.convert(prepared)
    for path, value in prepared.state_dict().items():  # observers have learned nothing
        np.testing.assert_array_equal(value, seen[path])
    for batch, result in zip(batches, products[-1].results(), strict=True):
        # a number within rounding of a half may become the one integer here, the other there
        assert sqnr(converted(batch), result) > sqnr(gm(batch), result) + 10 > 25


def test_float_values_without_rounding() -> None:
    gm = fx.symbolic_trace(Words().eval(), ids="i64[B,T]")
    ids = np.arange(10).reshape(2, 5)
    *_, last = simulate(q.prepare(gm, everything(q.static_int8())), [ids], is_rounded=False)
    np.testing.assert_allclose(last.results()[0], gm(ids), rtol=1e-5, atol=1e-5)


def test_what_is_exchanged_is_seen_further_on() -> None:
    gm = fx.symbolic_trace(Images().eval(), ids="i64[B]")
    prepared = q.prepare(gm, everything(q.weight_only_int8()))  # of the linear layer alone
    for product in simulate(prepared, [np.arange(4)]):
        product.shift = np.float32(3)
        before = product.results()[0]
    prepared = q.prepare(gm, everything(q.dynamic_int8()))
    products = []
    for product in simulate(prepared, [np.arange(4)]):
        products.append(product)
        if len(products) == 1:
            product.shift = np.float32(100)
    assert np.abs(products[-1].results()[0] - before).max() > 10


def test_batches() -> None:
    x = draw((2, 3))
    assert arguments_of(x) == ((x,), {})
    assert arguments_of((x, 1)) == ((x, 1), {})
    assert arguments_of({"x": x}) == ((), {"x": x})


def test_dict_batches_and_several_inputs() -> None:
    layer = nn.Linear(8, 4, bias=False)
    layer.weight[:] = draw((4, 8))
    gm = fx.symbolic_trace(lambda x, y: F.linear(x + y, layer.weight), x="f32[B,8]", y="f32[8]")
    prepared = q.prepare(gm, everything(q.weight_only_int8()))
    batch = {"y": draw((8,)), "x": np.abs(draw((5, 8)))}
    for corrected in (q.correct_bias(prepared, [batch]), q.correct_bias(prepared, [(batch["x"], batch["y"])])):
        made = q.convert(corrected)
        error = made(**batch) - gm(**batch)
        assert np.abs(error.mean(axis=0)).max() < 1e-6 < np.abs(error).max()
