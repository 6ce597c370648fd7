"""From which size on a rewrite pays, against trying every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.base.errors import ArgumentError
from fxlite.passes.costing.cost_report import pays_when
from fxlite.passes.costing.costs import Costs, SizeRanges
from fxlite.types import shapes


def two_products(x: Any, a: Any, b: Any) -> Any:
    return x @ a @ b


def one_product(x: Any, a: Any, b: Any) -> Any:
    return x @ (a @ b)


def exp(x: Any) -> Any:
    return np.exp(x)


def trace(program: Any, *types: str) -> fx.GraphModule:
    return fx.symbolic_trace(program, *types)


TYPES = ("f32[B,T,64]", "f32[64,64]", "f32[64,64]")


def test_by_hand() -> None:
    """2*T*64*64 for one product of T rows; multiplying the weights first costs 2*64*64*64."""
    types = ("f32[T,64]", *TYPES[1:])
    two, one = trace(two_products, *types), trace(one_product, *types)
    found = pays_when(two, one, "T", by="flops")
    assert str(found) == "T > 64" and found.ranges == ((65, None),)
    assert 65 in found and 64 not in found
    assert str(pays_when(one, two, "T", by="flops")) == "T < 64"
    assert str(pays_when(two, one, "T", by="parameters")) == "never"
    assert str((passes.cost(one) - passes.cost(two)).pays_when("T", by="flops")) == "T > 64"
    assert not pays_when(one, one, "T")


def test_other_dims() -> None:
    """A dim that multiplies both sides does not matter; another one has to be given."""
    two, one = trace(two_products, *TYPES), trace(one_product, *TYPES)
    assert str(pays_when(two, one, "T", by="flops", B=4)) == "T > 16"
    with pytest.raises(ArgumentError, match=r"depends on B, too; give a size: B=8"):
        pays_when(two, one, "T", by="flops")
    wide, narrow = (trace(p, "f32[B,T,8]") for p in (lambda x: x @ x.swapaxes(1, 2), exp))
    # 2*8*T*T FLOPs for each of B against 8*T
    assert str(pays_when(wide, narrow, "T", by="flops")) == "always"
    assert str(pays_when(narrow, wide, "T", by="flops")) == "never"


def test_estimated_time() -> None:
    """Operations against bytes: from a certain size on recomputing costs more than reading."""
    two, one = (passes.cost(trace(p, *TYPES), {"B": 1}) for p in (two_products, one_product))

    def seconds(costs: Costs) -> Any:
        return costs.flops / 50e9 + costs.bytes / 20e9

    found = pays_when(two, one, "T", by=seconds)
    tried = [n for n in range(1, 300) if seconds(one.total.evaluate({"T": n})) < seconds(two.total.evaluate({"T": n}))]
    assert tried == [n for n in range(1, 300) if n in found] and found.ranges == ((tried[0], None),)


@pytest.mark.parametrize(
    ("gain", "text"),
    [
        ("T*T - 10*T + 21", "T < 3 or T > 7"),
        ("-T*T + 10*T - 21", "4 <= T <= 6"),
        ("T*T - 2", "T > 1"),
        ("T*T - 10*T + 25", "T < 5 or T > 5"),
        ("-(T - 5)*(T - 5) + 1", "T = 5"),
        ("B*T*(T - 512)", "T > 512"),
        ("7", "always"),
        ("0", "never"),
        ("Max(T, 100) - 2*T", "T < 50 (tried up to T = 65536)"),
        ("T//16 - 3", "T > 63 (tried up to T = 65536)"),
    ],
)
def test_ranges(gain: str, text: str) -> None:
    """Parabolas, double roots, a common factor, and what is no polynomial."""
    before = report_of(Costs(flops=shapes.parse(f"{gain} + 5*B*T*T*T")))
    after = report_of(Costs(flops=shapes.parse("5*B*T*T*T")))
    assert str(pays_when(before, after, "T", by="flops")) == text  # type: ignore[arg-type]


def report_of(total: Costs) -> Any:
    gm = trace(exp, "f32[B,T]")
    report = passes.cost(gm)
    return type(report)(gm, {}, {}, {"": total})


def test_against_all_sizes() -> None:
    generator = np.random.default_rng(5)
    for _ in range(60):
        factors = [int(n) for n in generator.integers(-40, 40, 4)]
        gain = " + ".join(f"({f})*T**{power}" for power, f in enumerate(factors))
        before = report_of(Costs(flops=shapes.parse(f"{gain} + 100*T**5")))
        after = report_of(Costs(flops=shapes.parse("100*T**5")))
        found = pays_when(before, after, "T", by="flops")
        expected = [n for n in range(1, 60) if sum(f * n**p for p, f in enumerate(factors)) > 0]
        assert [n for n in range(1, 60) if n in found] == expected


def test_bad_arguments() -> None:
    gm = trace(exp, "f32[B,T]")
    with pytest.raises(ArgumentError, match="do not depend on 'S'; they depend on: B, T"):
        pays_when(gm, gm, "S")
    with pytest.raises(ArgumentError, match="no cost 'speed'; known: flops"):
        pays_when(gm, gm, "T", by="speed")
    untyped = fx.symbolic_trace(exp)
    with pytest.raises(ArgumentError, match="unknown"):
        pays_when(gm, untyped, "T")


def test_text() -> None:
    assert str(SizeRanges("T", ((1, None),))) == "always"
    assert str(SizeRanges("T", ((1, 1), (4, 9)))) == "T = 1 or 4 <= T <= 9"
