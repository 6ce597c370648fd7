"""The promotion doctor: tracing warns, once and with the line, of NumPy's scalars that make float32
float64, and of nothing else."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.tracing.promotion import PromotionWarning, widenings


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.T / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


TYPES = dict.fromkeys("qkv", "f32[8,64]")


def test_it_names_line_cost_and_fix() -> None:
    with pytest.warns(PromotionWarning) as caught:
        module = fx.symbolic_trace(attention, **TYPES)
    (warning,) = caught
    assert warning.filename == __file__
    assert warning.lineno == attention.__code__.co_firstlineno + 1
    text = str(warning.message)
    assert "test_promotion.py:" in text and "`q @ k.T / np.sqrt(q.shape[-1])`" in text
    assert "makes f32 f64" in text and "math.sqrt in place of np.sqrt" in text
    (found,) = widenings(module.graph)
    wide = [n for n in module.graph.nodes if n.op == "call_function" and n.type.dtype is fx.dtypes.float64]
    assert set(found.values) == set(wide) and f"{len(wide)} values from there on are f64" in text
    total = sum(n.type.size for n in wide)
    assert f"({8 * total:,} bytes for {4 * total:,})" in text


def test_several_places_are_one_warning() -> None:
    with pytest.warns(PromotionWarning, match="1 more place like this one") as caught:
        fx.symbolic_trace(lambda x, y: (x * np.float64(2), y + np.sqrt(2)), x="f32[B]", y="f16[3]")
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("program", "types"),
    [
        (attention, dict.fromkeys("qkv", "f64[8,64]")),
        (lambda x: x / math.sqrt(8) + np.pi, {"x": "f32[4]"}),
        (lambda x: x / np.float32(8), {"x": "f32[4]"}),
        (lambda x: x * x.shape[0], {"x": "f32[B]"}),
        (lambda x: x.astype(np.float64) / np.sqrt(8), {"x": "f32[4]"}),
        (lambda x: x / np.sqrt(8), {"x": "i32[4]"}),
        (lambda x: x + np.ones(4), {"x": "f32[4]"}),
        (lambda x: np.float64(3) + x.sum(), {"x": "i64[4]"}),
        (lambda x, y: x * y + np.float64(1), {"x": "f32[4]", "y": "i64[4]"}),
    ],
)
def test_what_is_meant_or_not_widened(program: Any, types: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fx.symbolic_trace(program, **types)


def test_named_sizes_and_numbers_that_follow_from_constants() -> None:
    def program(x: Any) -> Any:
        scale = np.sqrt(np.float64(x.shape[-1])) * 2
        return x * scale

    with pytest.warns(PromotionWarning, match=r"this value is f64: 2 times the memory, and"):
        fx.symbolic_trace(program, x="f32[B,T]")
