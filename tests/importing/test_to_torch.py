"""``fx.to_torch`` and ``fx.to_torch_fx``: a model that came from PyTorch, or a program of NumPy, goes there,
computes the same, with the weights' names and memory, and comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")


def convolutions() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(4 * 36, 5)).eval()


def test_there_and_back() -> None:
    model, x = convolutions(), torch.randn(2, 3, 8, 8)
    gm = fx.from_torch(model, "f32[B,3,8,8]")
    expected = model(x).detach()
    there, graph = fx.to_torch(gm), fx.to_torch_fx(gm)
    assert isinstance(there, torch.nn.Module) and not there.training
    assert sorted(there.state_dict()) == sorted(model.state_dict())
    assert there.state_dict()["0.weight"].data_ptr() == model[0].weight.data_ptr()
    assert isinstance(graph, torch.fx.GraphModule)
    assert [n.target for n in graph.graph.nodes if n.op == "call_module"] == ["0", "1", "2", "3", "4"]
    exported = torch.export.export(there, (x,))
    for made in (there, graph, exported.module()):
        torch.testing.assert_close(made(x), expected)
    for made in (there, graph):
        back = fx.from_torch(made, "f32[B,3,8,8]")
        np.testing.assert_allclose(back(x.numpy()), expected, 1e-4, 1e-5)
        names = [[n.target.name for n in g.graph.nodes if n.op == "call_function"] for g in (gm, back)]
        assert names[0] == names[1]


def test_passes_between() -> None:
    model, x = convolutions(), torch.randn(2, 3, 8, 8)
    folded = passes.fuse_conv_bn(fx.from_torch(model, "f32[2,3,8,8]"))
    there = fx.to_torch(folded)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in there.modules())
    torch.testing.assert_close(there(x), model(x).detach(), rtol=1e-4, atol=1e-5)


def test_a_program_of_numpy() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            y = np.tanh(self.layer(x))
            return {"y": y, "mean": y.mean(-1)}

    model = Net()
    gm = fx.symbolic_trace(model, x="f32[B,4]")
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    expected, found = model(x), fx.to_torch(gm)(torch.from_numpy(x))
    assert sorted(found) == ["mean", "y"]
    for name in found:
        np.testing.assert_allclose(found[name].detach().numpy(), expected[name], 1e-5, 1e-6)


def test_complex_numbers_come_back_as_their_parts() -> None:
    class Spectral(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 4, 3, dtype=torch.cfloat))

        def forward(self, x: Any) -> Any:
            modes = torch.einsum("bik,iok->bok", torch.fft.rfft(x)[..., :3], self.weight)
            return torch.fft.irfft(torch.nn.functional.pad(modes, (0, 2)), n=8)

    torch.manual_seed(0)
    model, x = Spectral().eval(), torch.randn(2, 3, 8)
    back = fx.to_torch(fx.from_torch(model, x))
    with torch.no_grad():
        torch.testing.assert_close(back(x), model(x), rtol=1e-4, atol=1e-5)
