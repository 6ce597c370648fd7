"""NumPy's spellings in regenerated Python: each gives the node again, and the numbers of the op."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops, passes
from fxlite.codegen.python.source import python_program
from tests.oracle import compare
from tests.zoo import ZOO


def written(program: Any, *types: str) -> str:
    """The expression that is returned, after a check that it does the same."""
    gm = fx.symbolic_trace(program, *types)
    again = fx.symbolic_trace(python_program(gm), *types)
    fx.assert_same(passes.dce(gm), passes.dce(again))
    return gm.source().rpartition("return ")[2].partition("  #")[0].strip()


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (lambda x: x[0], "x[0]"),
        (lambda x: x[:, -1], "x[:, 5]"),
        (lambda x: x[..., 1:], "x[..., 1:]"),
        (lambda x: x[:, 1:5:2], "x[:, 1:5:2]"),
        (lambda x: x[:, None, 2, :3], "x[:, None, 2, :3]"),
        (lambda x: x[: x.shape[0] - 1], "x[: N - 1]"),
        (lambda x: np.concatenate([x, x], axis=1), "np.concatenate((x, x), axis=1)"),
        (lambda x: np.stack([x, x]), "np.stack((x, x))"),
        (lambda x: np.split(x, 3, axis=1)[1], "split_1"),
        (lambda x: x.mean(axis=(0, 2), keepdims=True), "x.mean(axis=(0, 2), keepdims=True)"),
        (lambda x: x.sum(), "x.sum()"),
        (lambda x: np.exp(-x), "np.exp(-x)"),
        (lambda x: np.where(x > 0, x, -np.inf), "np.where(x > 0, x, -np.inf)"),
        (lambda x: x.astype(np.float64), "x.astype(np.float64)"),
        (lambda x: x.astype(bool), "x.astype(bool)"),
        (lambda x: np.clip(x, -1.0, 1.0), "x.clip(-1.0, 1.0)"),
        (lambda x: np.clip(x, None, 1.0), "x.clip(max=1.0)"),
        (
            lambda x: np.einsum("nij,njk->nik", x, x.swapaxes(1, 2)),
            'np.einsum("nij,njk->nik", x, x.transpose(0, 2, 1))',
        ),
        (lambda x: np.tril(ops.ones((x.shape[0], 4), dtype="bool")), 'np.tril(ops.ones((N, 4), dtype="bool"))'),
        (lambda x: x + ops.full((3,), 2.5), 'x + ops.full((3,), 2.5, dtype="f64")'),
        (lambda x: np.broadcast_to(x[0], x.shape), "np.broadcast_to(x[0], (N, 6, 6))"),
        (lambda x: ops.expand(x, (-1, 6, 6)), "ops.expand(x, shape=(-1, 6, 6))"),  # NumPy has no -1
        (lambda x: x.var(axis=1, ddof=1), "x.var(axis=1, ddof=1)"),
        (lambda x: np.cumsum(x, axis=0), "x.cumsum(axis=0)"),
        (lambda x: x[np.array([0, 2])], "x[self.constant_0]"),
        (
            lambda x: np.pad(x, ((0, 0), (1, 0), (0, 1)), constant_values=2.0),
            "np.pad(x, ((0, 0), (1, 0), (0, 1)), constant_values=2.0)",
        ),
        (lambda x: ops.neg(-x), "np.negative(-x)"),
        (lambda x: (x > 0) < (x > 1), "(x > 0) < (x > 1)"),
        (lambda x: (x < 1) != (x > 2), "(x < 1) != (x > 2)"),
    ],
)
def test_as_people_write_it(program: Any, text: str) -> None:
    if "2.5" in text:
        assert written(program, "f64[3]") == text
    else:
        assert written(program, "f32[N,6,6]") == text


def test_what_numpy_does_otherwise_stays_an_op() -> None:
    """bfloat16 is no dtype of NumPy's own; an axis counted from the end is another node."""
    assert written(lambda x: ops.cast(x, "bf16"), "f32[3]") == 'ops.cast(x, dtype="bf16")'
    assert written(lambda x: ops.slice(x, -1, 1), "f32[3,3]").startswith("ops.slice(")


@pytest.mark.parametrize("seed", range(40))
def test_random_subscripts(seed: int) -> None:
    """Any row of subscripts, which is written as few, gives the same nodes and elements."""
    draw = random.Random(seed)

    def item(rank: int) -> Any:
        bounds = draw.choice([None, 0, 1, -1]), draw.choice([None, 2, -1, 3])
        return draw.choice([slice(*bounds), slice(*bounds, draw.choice([1, 2])), None, 0, -1])

    def program(x: Any) -> Any:
        for index in indices:
            x = x[index]
        return x * 2.0

    x = np.arange(4 * 5 * 6 * 4, dtype=np.float32).reshape(4, 5, 6, 4)
    indices: list[Any] = []
    while len(indices) < 3:
        index = tuple(item(x.ndim) for _ in range(draw.randrange(1, 4)))
        try:
            smaller = program(x)[index]
        except IndexError:
            continue
        if smaller.size:
            indices.append(index)
    gm = fx.symbolic_trace(program, x="f32[4,5,6,4]")
    again = python_program(gm)
    compare("regenerated", again(x), program(x))
    fx.assert_same(passes.dce(gm), passes.dce(fx.symbolic_trace(again, x="f32[4,5,6,4]")))
    assert "ops." not in gm.source()


def test_the_zoo_hardly_needs_ops() -> None:
    """What is left: arrays that modules are made with, and what NumPy has not."""
    found: list[str] = []
    for program in ZOO:
        found += re.findall(r"ops\.(?!zeros|ones|full)\w+", program.trace()[0].source())
    assert len(found) < 40, found
