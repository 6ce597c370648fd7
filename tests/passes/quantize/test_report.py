"""The report: what it counts and how it prints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import draw, everything, quantized

STATIC = q.static_int8("minmax")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 32), nn.Linear(32, 32)
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.a(x), 0)
        return F.scaled_dot_product_attention(self.norm(self.b(y)), y, y)


def made() -> fx.GraphModule:
    mapping = everything(STATIC).set_object_type("scaled_dot_product_attention", None)
    return quantized(fx.symbolic_trace(Net().eval(), x="f32[T,64]"), mapping, draw((6, 64)))


def test_share_depends_on_the_sizes() -> None:
    gm = made()
    linears, per_token = 64 * 32 + 32 * 32, 2 * 32
    assert q.report(gm).integer_share == linears / (linears + per_token)
    assert q.report(gm, {"T": 10}).integer_share == linears / (linears + 10 * per_token)


def test_rows() -> None:
    report = q.report(made())
    a, b = report.rows
    assert (a.name, a.op, a.module, a.bits, a.integer) == ("linear", "linear", "a", 8, True)
    assert a.bytes_before == 4 * 64 * 32 and a.bytes_after == 64 * 32 + 4 * 32
    assert a.low < draw((6, 64)).min() * 0.9 and b.low == 0 < b.high
    assert a.sqnr is not None and a.sqnr > 35
    weights = sum(p.nbytes for p in Net().parameters())
    assert report.bytes_before == weights and report.bytes_after < 0.4 * weights
    (kept,) = report.kept
    assert kept.op == "scaled_dot_product_attention"
    assert kept.reason == "object type 'scaled_dot_product_attention' keeps it in float"
    assert report.others == {"layer_norm": 1}


def test_it_prints() -> None:
    text = str(q.report(made(), {"T": 10}, sqnr={"linear": 12.34}))
    for part in (
        "linear (a)",
        "u8 × i8",
        "12.3",
        "20.5k",
        "scheme: activation × weight; weights i8 per channel; MACs for T=10",
        "of the multiply-adds are integer arithmetic; weights",
        "float, no products: layer_norm",
        "float: scaled_dot_product_attention: object type",
    ):
        assert part in text


def test_what_stays_float_is_in_the_ledger() -> None:
    (entry,) = [e for e in passes.ledger(made()) if e.pass_name == "quantize"]
    assert entry.node == "scaled_dot_product_attention" and "keeps it in float" in entry.reason


def test_a_float_module_has_no_report() -> None:
    with pytest.raises(q.QuantizationError, match="takes what convert returned"):
        q.report(fx.symbolic_trace(Net().eval(), x="f32[T,64]"))
