"""merge_steps: one product for all steps of an unrolled loop, read in place in C, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from tests.codegen.compiling import emitted
from tests.graphs import ops_of
from tests.models import LstmCells
from tests.oracle import agree, compare


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_a_cell_in_a_loop() -> None:
    """In C the product of the inputs is one kernel, and no kernel copies a step of it."""
    model = LstmCells().eval()
    x = drawn(6, 3, 16)
    gm = fx.symbolic_trace(model, x="f32[6,B,16]")
    done = passes.merge_steps(passes.decompose(gm))
    assert ops_of(done).count("linear") == ops_of(passes.decompose(gm)).count("linear") - 5
    compare("merged", done(x), model(x))
    agree(model, x)
    groups = [call.group for call in emitted(model, x="f32[6,B,16]").calls]
    assert len([g for g in groups if any(n.name.endswith("_steps") for n in g.members)]) == 1
    assert not any(all(n.target.name == "select" for n in g.members) for g in groups)


class Parts(nn.Module):
    """Products of what `cut` takes of x, of which maxima are summed."""

    def __init__(self, cut: Any, count: int, use: str = "matmul") -> None:
        super().__init__()
        self.cut, self.count, self.use = cut, count, use
        self.weight = nn.Parameter(drawn(8, 5))
        self.turned, self.bias = nn.Parameter(drawn(5, 8)), nn.Parameter(drawn(5))

    def product(self, part: Any) -> Any:
        if self.use == "linear":
            return F.linear(part, self.turned, self.bias)
        return part @ self.weight

    def forward(self, x: Any) -> Any:
        found = [self.product(self.cut(x, t)) for t in range(self.count)]
        return sum(part.max(axis=-1).sum() for part in found)


@pytest.mark.parametrize("use", ["matmul", "linear"])
@pytest.mark.parametrize(
    ("cut", "count"),
    [
        (lambda x, t: x[t], 4),
        (lambda x, t: x[-1 - t], 4),
        (lambda x, t: x[:, t], 3),
        (lambda x, t: x[2 * t : 2 * t + 2], 2),
        (lambda x, t: x[: -1 if t == 0 else None] if t == 0 else x[-1:], 2),
    ],
)
def test_ways_to_cut(cut: Any, count: int, use: str) -> None:
    model = Parts(cut, count, use)
    x = drawn(4, 3, 8)
    done = passes.merge_steps(fx.symbolic_trace(model, x="f32[4,3,8]"))
    assert ops_of(done).count(use) == 1 and not passes.ledger(done)
    compare("merged", done(x), model(x))


@pytest.mark.parametrize(
    ("cut", "count", "reason"),
    [
        (lambda x, t: x[t], 3, "read 3 of 4 positions along axis 0 of x, not each of them once"),
        (lambda x, t: x[max(0, t - 1)], 5, "read 5 of 4 positions"),
        (lambda x, t: x[t : t + 3], 2, "read 6 of 4 positions"),
        (lambda x, t: x[:, :, 0:8] if t else x[0], 2, ""),  # along the summed axis
        (lambda x, t: x[::2] if t else x[1::2], 2, ""),
    ],
)
def test_parts_that_are_not_the_whole(cut: Any, count: int, reason: str) -> None:
    done = passes.merge_steps(fx.symbolic_trace(Parts(cut, count), x="f32[4,3,8]"))
    assert ops_of(done).count("matmul") == count
    refusals = passes.ledger(done)
    assert len(refusals) == bool(reason) and all(reason in r.reason for r in refusals)


class Finished(Parts):
    def forward(self, x: Any) -> Any:
        return sum(F.relu(self.product(x[t])) for t in range(4))


@pytest.mark.parametrize(("batch", "merged"), [("1", True), ("2", True), ("40", False), ("B", False)])
def test_large_batches_stay_as_they_are(batch: str, merged: bool) -> None:
    """relu is computed while the sums are in registers; few rows are worth less than the weight."""
    done = passes.merge_steps(fx.symbolic_trace(Finished(None, 0), x=f"f32[4,{batch},8]"))
    assert (ops_of(done).count("matmul") == 1) is merged
    if not merged:
        (refusal,) = passes.ledger(done)
        assert "relu is computed while the sums of matmul are in registers" in refusal.reason
        assert "would save reading 24 values for each column" in refusal.reason


def test_other_weights_and_other_values_do_not_mix() -> None:
    def program(x: Any, y: Any, a: Any, b: Any) -> Any:
        return (x[0] @ a) @ (x[1] @ b) + (x[1] @ a) @ (y[1] @ b)

    gm = fx.symbolic_trace(program, *["f32[2,3,3]"] * 2, *["f32[3,3]"] * 2)
    done = passes.merge_steps(gm)
    assert ops_of(gm).count("matmul") == 6 and ops_of(done).count("matmul") == 5
    arrays = [drawn(2, 3, 3), drawn(2, 3, 3)[::-1].copy(), drawn(3, 3), drawn(3, 3).T.copy()]
    compare("merged", done(*arrays), program(*arrays))
