"""Accuracy on real data: the digits classifier, calibrated on images it was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.passes import quantize as q
from tests.passes.quantize.helpers import everything
from tutorials import digits

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    return fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]")


@pytest.fixture(scope="module")
def training_images() -> Any:
    from sklearn.datasets import load_digits

    images = (load_digits().images / 16).astype(np.float32)[:, None]
    return images[np.arange(len(images)) % 5 != 4]


CONFIGS = [
    *(q.static_int8(observer) for observer in sorted(q.OBSERVERS)),
    q.static_int8(activation="i8"),
    q.dynamic_int8(),
    q.weight_only_int8(),
    q.weight_only_int4(),
    q.fp16(),
    q.bf16(),
]


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_accuracy_drops_by_half_a_point_at_most_and_with_int4_by_one(
    traced: fx.GraphModule, training_images: Any, config: q.QConfig
) -> None:
    images, labels = digits.held_out()
    prepared = q.prepare(traced, everything(config))
    for start in range(0, 512, 64):
        prepared(training_images[start : start + 64])
    quantized = q.convert(prepared)

    def accuracy(gm: fx.GraphModule) -> float:
        return float(np.mean(gm(images).argmax(axis=1) == labels))

    drop = 0.01 if config.name == "weight_only_int4" else 0.005
    assert accuracy(quantized) >= accuracy(traced) - drop
    if config.mode == "static":
        report = q.report(quantized)
        assert report.integer_share == 1 and report.bytes_after < 0.27 * report.bytes_before
