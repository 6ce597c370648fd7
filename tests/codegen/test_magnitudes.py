"""Normalizations and attention of numbers near the ends of float32: finite where NumPy's are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import ops

MAGNITUDES = (1.0, 1e37, 1e30, 1e19, 1e-20, 1e-38, 1e-42)
OF_WEIGHTS = (1.0, 1e37, 1e-38)
OF_VARIANCES = (1.0, 1e37, 1e-38, 0.0)


def program(x: Any, weight: Any, mean: Any, variance: Any) -> tuple[Any, ...]:
    image, rows = x.reshape(4, 16, 8), x.reshape(4, 8, 16)
    return (
        F.layer_norm(x, (128,)),
        F.layer_norm(rows, (16,), weight),
        F.rms_norm(x, (128,)),
        F.batch_norm(image, mean, variance, weight),
        F.group_norm(image, 4, weight),
        F.batch_norm(image, None, None, weight, training=True),
        F.instance_norm(image),
        F.softmax(x, -1),
        F.log_softmax(x, -1),
        F.normalize(x, dim=-1),
        ops.logsumexp(x, -1),
        F.cosine_similarity(x, x[::-1], dim=-1),
        x.mean(-1),
        x.var(-1),
        F.scaled_dot_product_attention(image * 1e-20, image * 1e-18, image),
    )


def test_finite_where_numpy_is() -> None:
    function = fx.compile(program, "f32[4,128]", *["f32[16]"] * 3)
    rng = np.random.default_rng(0)
    for large, of_weights, of_variances in itertools.product(MAGNITUDES, OF_WEIGHTS, OF_VARIANCES):
        factors = (large, of_weights, large, of_variances)
        arrays = [rng.standard_normal((4, 128)), *(rng.uniform(0.5, 1.5, 16) for _ in range(3))]
        inputs = [(a * f).astype(np.float32) for a, f in zip(arrays, factors, strict=True)]
        with np.errstate(all="ignore"):
            expected = program(*inputs)
        for number, (got, want) in enumerate(zip(function(*inputs), expected, strict=True)):
            assert np.isfinite(got[np.isfinite(want)]).all(), (number, factors)
