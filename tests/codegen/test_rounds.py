"""Two rounds of a loop become one where one kernel computes both, and no other loops change."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.c.emit import emit
from tests.oracle import agree

X = np.random.default_rng(0).normal(size=(30, 30))


def shortest(x: Any) -> Any:
    """Floyd and Warshall's paths."""
    for k in range(x.shape[0]):
        x[:] = np.minimum(x, np.add.outer(x[:, k], x[k]))
    return x


def odd(x: Any) -> Any:
    for k in range(1, 24):
        x = np.maximum(x, x[:, k][:, None] * 0.5 + x[k])
    return x


def turned(x: Any) -> Any:
    for k in range(40):
        x = x[::-1] + k
    return x


def both(x: Any) -> Any:
    y = x * 0.5
    for k in range(16):
        x, y = np.maximum(x, y[::-1] + k), np.minimum(y, 3.0 - x[::-1])
    return x, y


def of_many_places(x: Any) -> Any:
    for _ in range(20):
        x = np.pad((x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) * 0.25, 1)
    return x


def counted(x: Any) -> Any:
    total = 0.0
    for k in range(20):
        x = x[::-1] + k
        total += x[0, k]
    return x * total


def looked_up(x: Any) -> Any:
    """An element of a round is looked up by several of the next one, at places that are computed."""
    places = (x[0] * 30).astype(np.int64) % len(x)
    for k in range(20):
        x = np.maximum(x, x[places] * 0.5 + k)
    return x


def in_place(x: Any) -> Any:
    for k in range(1, 20):
        x[k] = x[k - 1] + x[:, k]
    return x


def _rounds(program: Callable[..., Any], kind: str) -> list[int]:
    text = emit(passes.dce(fx.symbolic_trace(program, kind, loops="keep"))).functions
    found = re.findall(r"for \(int64_t (?:i|i_\d*|k) = (\d+); \w+ < (\d+);", text.partition("a loop that gives")[2])
    return [int(end) - int(start) for start, end in found if "_" in text and int(end) - int(start) != 30]


@pytest.mark.parametrize(("program", "rounds"), [(shortest, [15]), (odd, [11, 1]), (turned, [20])])
def test_two_rounds_are_one(program: Callable[..., Any], rounds: list[int]) -> None:
    agree(program, X, loops="keep")
    assert _rounds(program, "f64[30,30]")[: len(rounds)] == rounds


@pytest.mark.parametrize("program", [of_many_places, counted, in_place, both, looked_up])
def test_other_loops_stay(program: Callable[..., Any]) -> None:
    agree(program, X, loops="keep")
    assert _rounds(program, "f64[30,30]")[0] in (16, 19, 20)


def test_of_named_sizes() -> None:
    agree(odd, X, types=["f64[N,N]"], loops="keep")
    agree(turned, X.astype(np.float32), types=["f32[N,M]"], loops="keep")
