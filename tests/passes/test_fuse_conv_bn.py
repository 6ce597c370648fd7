"""fuse_conv_bn: right numbers, and refusals with their reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from tests.graphs import ops_of
from tests.oracle import compare
from tests.zoo import by_name


@pytest.mark.parametrize("name", ["cnn", "resnet_block", "unet_piece", "shared_conv", "normalized_linear"])
def test_fuse_conv_bn(name: str) -> None:
    gm, eager, inputs = by_name(name).trace()
    done = passes.fuse_conv_bn(gm)
    assert "batch_norm" in ops_of(gm) and "batch_norm" not in ops_of(done)
    assert not passes.ledger(done)
    compare("fused", done(*inputs), eager(*inputs))
    if name == "shared_conv":  # the weight both read is not altered: each has its own
        paths = {n.target for n in done.graph.find_nodes(op="get_attr")}
        assert len(paths) == 4
    layers = [n for n in done.graph.nodes if n.op == "call_function" and "weight" in n.arguments]
    assert all(n.arguments["bias"] is not None for n in layers)


@pytest.mark.parametrize("groups", [1, 2])
def test_fuse_transposed(groups: int) -> None:
    class Up(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(4, 6, 3, stride=2, groups=groups, bias=False)
            self.norm = nn.BatchNorm2d(6)
            self.norm.running_mean[...] = np.arange(6)
            self.norm.running_var[...] = np.arange(1, 7)
            self.norm.weight[...] = np.arange(2, 8)

        def forward(self, x: Any) -> Any:
            return self.norm(self.up(x))

    model = Up().eval()
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32)
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x))
    assert ops_of(done) == ["conv_transpose2d"]
    compare("fused", done(x), model(x))


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)


def _read_twice(model: Any, x: Any) -> Any:
    y = model.conv(x)
    return model.norm(y), y


def _computed_weight(model: Any, x: Any) -> Any:
    return model.norm(F.conv2d(x, model.conv.weight * 2, model.conv.bias))


REFUSED: dict[str, tuple[Any, str]] = {
    "conv read twice": (_read_twice, "conv2d is read by output too"),
    "computed weight": (_computed_weight, "weight of conv2d is computed in the graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_fuse_refuses_and_says_why(name: str) -> None:
    function, reason = REFUSED[name]
    model = _Refused().eval()
    model.forward = lambda x: function(model, x)
    gm = fx.symbolic_trace(model, x="f32[B,3,6,6]")
    done = passes.fuse_conv_bn(gm)
    (refusal,) = passes.ledger(done)
    assert reason in refusal.reason and "test_fuse_conv_bn.py" in str(refusal)
    assert done.graph == gm.graph
    assert passes.ledger(passes.dce(done)) == [refusal], "the ledger goes with the module"


def test_fuse_refuses_batch_statistics() -> None:
    model = _Refused().train()
    model.forward = lambda x: F.batch_norm(model.conv(x), None, None, training=True)
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[B,3,6,6]"))
    assert "batch's statistics" in passes.ledger(done)[0].reason and "batch_norm" in ops_of(done)


def test_fuse_refuses_linear_of_rank_3() -> None:
    fc, norm = nn.Linear(4, 5), nn.BatchNorm1d(7).eval()
    model = nn.Module()
    model.fc, model.norm = fc, norm
    model.forward = lambda x: norm(fc(x))
    done = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[B,7,4]"))
    assert "rank-2 linear only" in passes.ledger(done)[0].reason
