"""Plans: they keep their budgets, on real data and where one layer suffers, and say so if not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import compiler, nn
from fxlite.passes import quantize as q
from tests import models
from tests.passes.quantize.helpers import draw
from tests.roofs import ROOFS
from tests.zoo.registry import fill
from tutorials import digits


class Chain(nn.Module):
    """Equal layers, but the one in the middle has weights of very different size in each row, which
    one scale for a row does not fit."""

    def __init__(self, layers: int = 5) -> None:
        super().__init__()
        generator = np.random.default_rng(0)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(layers))
        for layer in self.layers:
            layer.weight[:] = generator.normal(0, 0.1, (64, 64))
            layer.bias[:] = 0
        self.layers[layers // 2].weight[:, 0] = 30.0

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = np.tanh(layer(x))
        return x


DATA = [0.2 * draw((32, 64), seed) for seed in (1, 2)]
HARD = "layers.2"


@pytest.fixture(scope="module")
def chain() -> fx.GraphModule:
    return fx.symbolic_trace(Chain().eval(), x="f32[B,64]")


@pytest.fixture(scope="module")
def found(chain: fx.GraphModule) -> q.Sensitivity:
    return q.sensitivity(chain, DATA, ("static_int8", "weight_only_int4"), roofs=ROOFS)


def schemes(plan: q.Plan) -> dict[str, str]:
    return {layer.path: layer.scheme for layer in plan.layers}


def test_the_layer_that_suffers_stays_float(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    ratios = found.sqnr("static_int8")
    assert min(ratios, key=ratios.__getitem__) == HARD
    plan = q.plan(chain, DATA, min_sqnr=29, sensitivities=found)
    assert {path for path, scheme in schemes(plan).items() if scheme == "float"} == {HARD}
    assert plan.measured is not None and plan.measured.sqnr >= 29
    made = q.quantize(chain, plan.qconfig_mapping(), DATA)
    assert q.results_sqnr(chain, made, DATA) == plan.measured.sqnr
    assert q.report(made).bytes_after == plan.measured.bytes


def test_more_quality_is_fewer_integers(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    plans = [q.plan(chain, DATA, min_sqnr=least, sensitivities=found) for least in (5, 29, 38, 90)]
    counts = [sum(s != "float" for s in schemes(plan).values()) for plan in plans]
    assert counts[0] == 5 and counts[-1] == 0 and sorted(counts, reverse=True) == counts
    assert len(set(counts)) > 2
    assert plans[-1].elsewhere.scheme == "float" and plans[0].elsewhere.scheme == "static_int8"


def test_bytes(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    """The largest layers of least loss first; half a byte for a weight only where it must be."""
    ratios = []
    for budget in (90_000, 40_000, 22_000, 14_080):
        plan = q.plan(chain, DATA, max_bytes=budget, sensitivities=found)
        assert plan.measured is not None and plan.measured.bytes <= budget
        ratios.append(plan.measured.sqnr)
    assert sorted(ratios, reverse=True) == ratios and ratios[0] > 100
    assert set(schemes(plan).values()) == {"weight_only_int4"}
    with pytest.raises(q.PlanError, match=r"the fewest bytes are 14,080 \(max_bytes 14,079\)"):
        q.plan(chain, DATA, max_bytes=14_079, sensitivities=found)


def test_time(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    float_seconds, least = found.seconds(), found.seconds("static_int8")
    assert float_seconds is not None and least is not None
    plan = q.plan(chain, DATA, max_latency=0.6 * float_seconds, sensitivities=found)
    taken = [layer.chosen.seconds for layer in plan.layers if layer.chosen is not None]
    assert sum(s for s in taken if s is not None) <= 0.6 * float_seconds
    assert schemes(plan)[HARD] == "float"
    with pytest.raises(q.PlanError, match="the least time, as estimated, is"):
        q.plan(chain, DATA, max_latency=0.99 * least, sensitivities=found)


def test_size_and_quality(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    plan = q.plan(chain, DATA, max_bytes=40_000, min_sqnr=29, sensitivities=found)
    assert schemes(plan)[HARD] == "float"
    with pytest.raises(q.PlanError) as error:
        q.plan(chain, DATA, max_bytes=22_000, min_sqnr=35, sensitivities=found)
    assert str(error.value) == BOTH


BOTH = (
    "no plan keeps both budgets: "
    "the one of least loss that is small enough has SQNR 28.4 dB (min_sqnr 35.0 dB)"
    "; with that quality a plan takes 47,104 bytes"
)


def test_a_metric(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    """Any number that is higher for better: here of agreement with the float results. It is asked
    once for the float model and a few times for others."""
    exact = [chain(batch) for batch in DATA]
    asked = []

    def agreement(module: fx.GraphModule) -> float:
        asked.append(module)
        return -max(float(np.abs(module(b) - e).max()) for b, e in zip(DATA, exact, strict=True))

    plan = q.plan(chain, DATA, metric=agreement, max_accuracy_drop=0.05, sensitivities=found)
    assert plan.measured is not None and plan.measured.metric_float == 0
    assert plan.measured.drop is not None and 0 < plan.measured.drop <= 0.05
    assert asked[1] is chain or asked[0] is chain
    assert len(asked) <= 6
    with pytest.raises(q.PlanError, match="the metric is 'good'; it must be a number"):
        q.plan(chain, DATA, metric=lambda m: "good", min_sqnr=1, sensitivities=found)  # type: ignore
    with pytest.raises(q.PlanError, match="the metric is nan"):
        q.plan(chain, DATA, metric=lambda m: float("nan"), min_sqnr=1, sensitivities=found)


def test_digits() -> None:
    """Trained weights, real images: all layers become integers within half a point."""
    pytest.importorskip("sklearn")
    images, labels = digits.held_out()
    gm = fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]")
    batches = [images[:64], images[64:128]]

    def accuracy(module: fx.GraphModule) -> float:
        return float(np.mean(module(images).argmax(axis=1) == labels))

    found = q.sensitivity(gm, batches, roofs=ROOFS)
    plan = q.plan(gm, batches, metric=accuracy, max_accuracy_drop=0.005, sensitivities=found)
    assert "float" not in schemes(plan).values()
    assert plan.measured is not None and plan.measured.drop is not None
    assert plan.measured.drop <= 0.005 and plan.measured.bytes < 0.27 * plan.measured.bytes_float


def test_a_transformer() -> None:
    gm = fx.symbolic_trace(fill(models.Bert(1, 32, 2)), tokens="i64[B,T]", mask="i64[B,T]")
    tokens = np.random.default_rng(0).integers(0, 1000, (4, 9))
    batches = [{"tokens": tokens, "mask": np.ones((4, 9), np.int64)}]
    found = q.sensitivity(gm, batches, roofs=ROOFS)
    plan = q.plan(gm, batches, min_sqnr=25, minimize="bytes", sensitivities=found)
    assert plan.measured is not None and plan.measured.sqnr >= 25
    assert plan.measured.bytes < 0.4 * plan.measured.bytes_float
    assert len(set(schemes(plan).values())) > 1


def test_the_models_own_forward() -> None:
    """Its products go by "elsewhere"."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(32, 32)
            self.table = nn.Parameter(draw((32, 8), 3))
            self.fc.weight[:], self.fc.bias[:] = draw((32, 32), 4), 0

        def forward(self, x: Any) -> Any:
            return self.fc(x) @ self.table

    gm = fx.symbolic_trace(Root().eval(), x="f32[B,32]")
    found = q.sensitivity(gm, DATA32, ("dynamic_int8",), roofs=ROOFS)
    plan = q.plan(gm, DATA32, min_sqnr=20, sensitivities=found)
    assert schemes(plan) == {"fc": "dynamic_int8"} and plan.elsewhere.scheme == "dynamic_int8"
    assert q.report(q.quantize(gm, plan.qconfig_mapping(), DATA32)).integer_share == 1


DATA32 = [draw((5, 32))]


def test_without_a_compiler(chain: fx.GraphModule, found: q.Sensitivity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "machine_roofs", lambda: None)
    unknown = q.sensitivity(chain, DATA, ("static_int8",))
    assert unknown.seconds() is None and "at least" not in str(unknown)
    with pytest.raises(q.PlanError, match="no C compiler to measure"):
        q.plan(chain, DATA, min_sqnr=29, sensitivities=unknown)
    plan = q.plan(chain, DATA, min_sqnr=29, minimize="bytes", sensitivities=unknown)
    assert schemes(plan)[HARD] == "float" and "estimated" not in str(plan)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give a budget"),
        ({"max_accuracy_drop": 0.1}, "needs metric="),
        ({"max_accuracy_drop": -1, "metric": lambda m: 1.0}, "0 or more, not -1"),
        ({"min_sqnr": 3, "minimize": "latenzy"}, "did you mean latency"),
    ],
)
def test_what_is_refused(chain: fx.GraphModule, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(q.QConfigError, match=message):
        q.plan(chain, DATA, **arguments)


def test_it_prints(chain: fx.GraphModule, found: q.Sensitivity) -> None:
    plan = q.plan(chain, DATA, min_sqnr=29, sensitivities=found)
    assert str(plan) == PRINTED
    assert str(replace(plan, measured=None)) == PRINTED.rpartition("\n")[0]


PRINTED = """\
layer        scheme          SQNR   bytes  in float       time  in float
layers.0     static_int8  40.0 dB   4,352    16,384  0.0845 µs  0.330 µs
layers.1     static_int8  40.4 dB   4,352    16,384  0.0845 µs  0.330 µs
layers.2     float                 16,384    16,384   0.330 µs  0.330 µs
layers.3     static_int8  44.8 dB   4,352    16,384  0.0845 µs  0.330 µs
layers.4     static_int8  43.6 dB   4,352    16,384  0.0845 µs  0.330 µs
(elsewhere)  static_int8
estimated: at least 1.65 µs → 0.668 µs
measured: SQNR of the results 30.0 dB, weights 83,200 → 35,072 bytes"""
