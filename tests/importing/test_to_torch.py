"""``fx.to_torch`` and ``fx.to_torch_fx``: a model that came from PyTorch, or a program of NumPy, goes there,
computes the same, with the weights' names and memory, and comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.base.errors import CodegenError
from tests.graphs import ops_of

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
        names = [ops_of(g) for g in (gm, back)]
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


def test_complex_inputs_and_results_are_complex_tensors() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, z: Any, x: Any) -> Any:
            spectrum = torch.fft.fft(z) * (x + 1j)
            return {"spectrum": spectrum, "same": z, "parts": (z.real + z.imag, spectrum.abs()), "power": z**-2 / z}

    z, x = torch.randn(3, 8, dtype=torch.cfloat), torch.randn(8)
    gm = fx.from_torch(Mixed(), z, x)
    back = fx.to_torch(gm)
    again = fx.from_torch(back, z, x)
    for made in (back(z, x), fx.to_torch_fx(gm)(z, x), again(z.numpy(), x.numpy())):
        torch.testing.assert_close(
            torch.utils._pytree.tree_map(torch.as_tensor, made), Mixed()(z, x), rtol=1e-4, atol=1e-5
        )


def test_what_torch_fx_cannot_follow_says_what_can_be_done() -> None:
    def writes(x: Any) -> Any:
        x[0] = 3.0
        return x.sum()

    gm = fx.symbolic_trace(writes, x="f32[3]")
    assert fx.to_torch(gm)(torch.ones(3)).sum() > 2
    with pytest.raises(CodegenError, match=r"(?s)torch\.fx cannot follow.*instead: fx\.to_torch"):
        fx.to_torch_fx(gm)


class Controlled(torch.nn.Module):
    """A loop with a condition in it, one whose length is a value, and one over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.cell = torch.nn.Linear(4, 4), torch.nn.GRUCell(4, 4)

    def forward(self, x: Any, n: Any, rows: Any) -> Any:
        from torch._higher_order_ops.scan import scan
        from torch._higher_order_ops.while_loop import while_loop

        def step(i: Any, x: Any) -> Any:
            y = torch.cond(x.sum() > 0, lambda x: self.layer(x).tanh(), lambda x: x + 1, (x,))
            return i + 1, y

        def over(h: Any, row: Any) -> Any:
            h = self.cell(row, h)
            return h, (h.sum(-1), h * 2)

        count, x = while_loop(lambda i, x: i < n, step, (torch.zeros((), dtype=torch.int64), x))
        last, (sums, doubled) = scan(over, torch.zeros(2, 4), rows)
        return {"count": count, "last": last + x, "rows": (sums, doubled)}


def _leaves(value: Any) -> list[Any]:
    return [torch.as_tensor(v) for v in torch.utils._pytree.tree_leaves(value)]


def test_loops_and_conditions() -> None:
    torch.manual_seed(0)
    model, given = Controlled().eval(), (torch.randn(2, 4), torch.tensor(3), torch.randn(5, 2, 4))
    calls = [given, (torch.randn(2, 4), torch.tensor(0), torch.randn(5, 2, 4))]
    gm = fx.from_torch(model, *given)
    there, graph = fx.to_torch(gm), fx.to_torch_fx(gm)
    assert {*model.state_dict()} <= {*there.state_dict()}  # which has constants, too
    exported = torch.export.export(there, given)
    assert {"cond", "while_loop"} <= {
        str(n.target) for m in exported.graph_module.modules() for n in getattr(m, "graph", torch.fx.Graph()).nodes
    }
    with torch.no_grad():
        for made in (there, graph, exported.module()):
            for call in calls:
                torch.testing.assert_close(_leaves(made(*call)), _leaves(model(*call)), rtol=1e-4, atol=1e-5)
    for made in (there, graph):
        found = fx.from_torch(made, *given)(*(v.numpy() for v in given))
        torch.testing.assert_close(_leaves(found), _leaves(model(*given)), rtol=1e-4, atol=1e-5)


def test_a_loop_of_numpy() -> None:
    """The last place of an array, a negative one, and an array that is filled."""

    def running(x: Any) -> Any:
        y = np.zeros_like(x)
        total = np.float32(0)
        i = 0
        while total < 2 and i < 4:
            total = total + np.abs(x[i - 1])
            y[i] = total
            i = i + 1
        return y, i

    gm = fx.symbolic_trace(running, x="f32[4]")
    for x in (np.ones(4, np.float32), np.full(4, 0.1, np.float32)):
        found = fx.to_torch(gm)(torch.from_numpy(x))
        for one, other in zip(found, running(x)):
            np.testing.assert_allclose(np.asarray(one), other, 1e-6)


def test_functions_that_torch_fx_cannot_follow_are_nodes() -> None:
    """They look at types, loop over positions, or count what is selected."""

    def program(x: Any) -> Any:
        return np.fmod(x, 2.0), ops.max_pool_positions(x, 2, 2, 1), x[x > 0]

    gm = fx.symbolic_trace(program, "f32[2,3,6,6]")
    graph = fx.to_torch_fx(gm)
    assert any(n.op == "call_function" and n.target.__name__ == "fmod" for n in graph.graph.nodes)
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 6)).astype(np.float32)
    back = fx.from_torch(graph, torch.from_numpy(x))
    for found, again, expected in zip(graph(torch.from_numpy(x)), back(x), gm(x), strict=True):
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(again, expected)


def test_checks_of_sizes_are_nodes() -> None:
    """Which no pass that removes unused nodes takes away."""
    gm = fx.from_torch(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AvgPool2d(2)).eval(), "f32[B,3,H,W]")
    graph = fx.to_torch_fx(gm)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    x = torch.randn(2, 3, 9, 8)
    np.testing.assert_allclose(graph(x).detach(), gm(x.numpy()), 1e-5, 1e-5)
    with pytest.raises(ValueError, match=r"H.* is required"):
        graph(x[:, :, :2])
    back = fx.from_torch(graph, "f32[B,3,H,W]")
    np.testing.assert_allclose(back(x.numpy()), gm(x.numpy()), 1e-5, 1e-5)
