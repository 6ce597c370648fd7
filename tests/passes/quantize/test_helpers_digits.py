"""The accuracy helpers on the digits classifier: each does good or no harm, and all together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.passes import quantize as q
from tests.benchmarks.quantization_accuracy import prepared, training_images
from tests.passes.quantize.helpers import sqnr
from tutorials import digits

pytest.importorskip("sklearn")

#: Gain in SQNR, dB, that each helper has at least: negative where it may lose a little.
GAINS = {"equalize": -2.0, "smooth_quant": -0.5, "gptq": 3.0, "correct_bias": 3.0, "all": 5.0}
CONFIGS = [q.static_int8(), q.dynamic_int8(), q.weight_only_int8(), q.weight_only_int4()]


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    return fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_none_hurts(traced: fx.GraphModule, config: q.QConfig) -> None:
    images, labels = digits.held_out()
    batches = list(training_images()[0][:256].reshape(4, 64, 1, 8, 8))
    expected = traced(images)

    def measured(made: fx.GraphModule) -> tuple[float, float]:
        result = q.convert(made)(images)
        return sqnr(expected, result), float(np.mean(result.argmax(axis=1) == labels))

    def ready(gm: fx.GraphModule) -> fx.GraphModule:
        return prepared(gm, config, batches)

    plain = ready(traced)
    equalized, smooth = q.equalize(traced), q.smooth_quant(traced, batches)
    better = q.smooth_quant(equalized, batches)
    found: dict[str, Any] = {
        "equalize": ready(equalized),
        "smooth_quant": ready(smooth),
        "gptq": q.gptq(plain, batches),
        "correct_bias": q.correct_bias(plain, batches),
        "all": q.correct_bias(q.gptq(ready(better), batches), batches),
    }
    noise, right = measured(plain)
    for name, made in found.items():
        now, still_right = measured(made)
        assert now >= noise + GAINS[name], (name, now, noise)
        assert still_right >= right - 0.003, (name, still_right, right)
