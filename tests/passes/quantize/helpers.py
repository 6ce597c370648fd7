"""Shared by the tests of quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite as fx
from fxlite.passes import quantize as q
from fxlite.passes.quantize.schemes.scheme import signal_to_noise


def draw(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def everything(qconfig: q.QConfig | str | None) -> q.QConfigMapping:
    """A mapping with one rule for all."""
    return q.QConfigMapping().set_global(qconfig)


def quantized(gm: fx.GraphModule, mapping: Any, *inputs: Any) -> fx.GraphModule:
    """Prepared, calibrated on one batch and converted; the graph is checked in full."""
    if not isinstance(mapping, q.QConfigMapping):
        mapping = everything(mapping)
    prepared = q.prepare(gm, mapping)
    prepared(*inputs)
    made = q.convert(prepared)
    made.graph.lint(full=True)
    return made


def sqnr(expected: Any, actual: Any) -> float:
    """Signal over noise in dB, of the first result."""
    first = expected[0] if isinstance(expected, tuple) else expected
    other = actual[0] if isinstance(actual, tuple) else actual
    return signal_to_noise(np.asarray(first, np.float64), np.asarray(other, np.float64))
