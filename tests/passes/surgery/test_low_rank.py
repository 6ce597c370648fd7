"""Low rank and adapters: exact where the rank suffices, and taken back by their inverses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((3, 12)).astype(np.float32)


class Net(nn.Module):
    """Two linear layers, and one that shares a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(12, 20), nn.Linear(20, 12)
        self.tied = nn.Linear(12, 12, bias=False)

    def forward(self, x: Any) -> Any:
        x = self.down(fx.ops.gelu(self.up(x)))
        return self.tied(self.tied(x))


@pytest.fixture
def gm() -> fx.GraphModule:
    return fx.symbolic_trace(Net(), x="f32[B,12]")


def test_low_rank_of_a_weight_of_that_rank(gm: fx.GraphModule) -> None:
    """Nothing is lost where the weight has the rank; of others it is the nearest."""
    up = np.asarray(gm.get_attribute("up.weight"))
    left, values, right = np.linalg.svd(up, full_matrices=False)
    up[:] = (left[:, :3] * values[:3]) @ right[:3]
    made = passes.low_rank(gm, where="#linear", rank=3)
    assert made.get_attribute("up.low_rank_in.weight").shape == (3, 12)
    assert "up.weight" not in made.state_dict() and "up.bias" in made.state_dict()
    np.testing.assert_allclose(made(X), gm(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fx.compile(made, backend="c")(X), made(X), rtol=1e-4, atol=1e-5)
    product = passes.low_rank(gm, where="#linear_1", rank=2)
    a, b = (product.get_attribute(f"down.low_rank_{s}.weight") for s in ("out", "in"))
    lost = np.linalg.svd(np.asarray(gm.get_attribute("down.weight")), compute_uv=False)[2:]
    error = np.linalg.norm(np.asarray(gm.get_attribute("down.weight")) - np.asarray(a) @ b)
    assert error == pytest.approx(np.linalg.norm(lost), rel=1e-4)
    assert "rank 6 takes 144 numbers" in str(passes.ledger(passes.low_rank(gm, rank=6)))
    passes.PassManager([passes.low_rank.with_options(rank=2), "cse"])(gm)


def test_lora_and_its_inverses(gm: fx.GraphModule) -> None:
    where = ["#linear", "#linear_1"]
    made = passes.add_lora(gm, where, rank=2, alpha=8)
    np.testing.assert_array_equal(made(X), gm(X))
    new = made.state_dict().keys() - gm.state_dict().keys()
    assert new == {f"{n}.lora_{s}.weight" for n in ("up", "down") for s in "AB"}
    removed = passes.remove_lora(made)
    assert removed.graph == gm.graph and removed.state_dict().keys() == gm.state_dict().keys()
    b = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)
    made.set_attribute("up.lora_B.weight", nn.Parameter(b))
    merged = passes.merge_lora(made)
    assert merged.graph == gm.graph
    np.testing.assert_allclose(merged(X), made(X), rtol=1e-4, atol=1e-5)
    a = np.asarray(made.get_attribute("up.lora_A.weight"))
    difference = merged.get_attribute("up.weight") - np.asarray(gm.get_attribute("up.weight"))
    np.testing.assert_allclose(difference, b @ a * 4, rtol=1e-3, atol=1e-5)
    assert np.abs(made(X) - gm(X)).max() > 0.01
    one = passes.remove_lora(made, "#linear")
    assert "up.lora_A.weight" not in one.state_dict()
    assert "down.lora_A.weight" in one.state_dict()
    made.undo()


def test_wrong_requests(gm: fx.GraphModule) -> None:
    adapted = passes.add_lora(gm, "#linear", rank=2)
    shared = passes.add_lora(gm, "#linear_2", rank=2)
    for call, text in (
        (lambda: passes.add_lora(gm, "gelu"), "not a linear layer"),
        (lambda: passes.add_lora(gm, rank=0), "at least 1"),
        (lambda: passes.add_lora(adapted, "#linear"), "has an adapter"),
        (lambda: passes.merge_lora(gm), "has no adapters"),
        (lambda: passes.remove_lora(adapted, "#linear_1"), "has no adapter"),
        (lambda: passes.merge_lora(shared), r"tied.weight is read by linear_2, linear_3"),
    ):
        with pytest.raises(ArgumentError, match=text):
            call()
