"""Models of torch's eager quantization: the graph computes what torch's packed layers compute, up to a step of the
result's scale where a sum is within a rounding error of the midpoint between two integers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ModelImportError
from fxlite.passes import quantize as q

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):  # type: ignore[name-defined,misc]
    """Layers and functions of quantized tensors of all kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2, padding_mode="reflect")
        self.back = nn.ConvTranspose2d(8, 8, 2, 2)
        self.swish, self.sigmoid = nn.Hardswish(), nn.Hardsigmoid()
        self.norm = nn.GroupNorm(2, 8)
        self.linear = nn.Linear(16, 5)
        for name in ("add", "mul", "cat", "add_relu"):
            setattr(self, f"f_{name}", torch.ao.nn.quantized.FloatFunctional())

    def forward(self, x: Any) -> Any:
        x = self.first(self.quant(x))
        y = self.f_add.add(self.second(x), x)
        y = self.f_mul.mul(y, self.sigmoid(nn.functional.adaptive_avg_pool2d(y, 1)))
        y = self.f_add_relu.add_relu(self.back(nn.functional.max_pool2d(self.swish(y), 2)), x)
        left, right = self.norm(y).chunk(2, dim=1)
        y = self.f_cat.cat([left.transpose(2, 3).contiguous(), right, y], dim=1)
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="nearest")[:, :, 1:, :5]
        y = nn.functional.adaptive_avg_pool2d(y, (4, 5)).mean(3).max(dim=2)[0]
        return self.dequant(self.linear(y.clamp(-0.5, 3.0)).relu())


def quantized(model: Any, x: Any, per_channel: bool = True) -> Any:
    """The model in torch's packed layers, calibrated with the examples."""
    model = model.eval()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if isinstance(model, Net):
            torch.ao.quantization.fuse_modules(model, [["first.0", "first.1", "first.2"]], inplace=True)
        by_tensor = torch.ao.quantization.get_default_qconfig("qnnpack")
        model.qconfig = torch.ao.quantization.get_default_qconfig("x86") if per_channel else by_tensor
        for module in model.modules():
            if isinstance(module, nn.ConvTranspose2d):
                module.qconfig = by_tensor
        model = torch.ao.quantization.prepare(model)
        model(x)
        return torch.ao.quantization.convert(model)


def steps(found: Any, expected: Any) -> Any:
    """How far results are apart, in steps of the scale: the smallest difference between two expected numbers."""
    levels = np.unique(expected)
    return np.round(np.abs(np.asarray(found) - expected) / np.diff(levels).min())


@pytest.mark.parametrize("per_channel", [True, False])
def test_layers_and_functions(per_channel: bool) -> None:
    torch.manual_seed(1)
    x = torch.randn(6, 3, 8, 8)
    model = quantized(Net(), x, per_channel)
    with torch.no_grad():
        expected = model(x).numpy()
    gm = fx.from_torch(model, "f32[B,3,8,8]")
    found = steps(gm(x.numpy()), expected)
    assert found.max() <= 1 and (found > 0).mean() < 0.1
    assert gm.get_attribute("first.0.weight").dtype == np.int8
    scopes = {(n.scope.path, n.scope.class_name) for n in gm.graph.nodes if n.scope}
    assert {("first.0", "ConvReLU2d"), ("second", "Conv2d"), ("linear", "Linear")} <= scopes
    integers = q.integer_products(gm)
    targets = {getattr(node.target, "name", "") for node in integers.graph.nodes}
    assert "int_conv2d" in targets
    assert steps(integers(x.numpy()), expected).max() <= 1
    assert steps(fx.compile(integers)(x.numpy()), expected).max() <= 1


def test_single_layers_are_exact() -> None:
    """Of 40,000 results hardly one is rounded the other way."""
    torch.manual_seed(0)
    x = torch.randn(8, 6, 12, 12)
    for layer in (nn.Conv2d(6, 32, 3), nn.Sequential(nn.Conv2d(6, 6, 3, 2, groups=6), nn.Conv2d(6, 48, 1))):
        stubs = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        model = quantized(nn.Sequential(stubs[0], layer, stubs[1]), x)
        with torch.no_grad():
            expected = model(x).numpy()
        assert (steps(fx.from_torch(model, x)(x.numpy()), expected) > 0).sum() <= 4


def test_dynamic_linear_layers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 4)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    x = torch.randn(7, 16)
    with torch.no_grad():
        expected = model(x).numpy()
    gm = fx.from_torch(model, "f32[B,16]")
    assert np.abs(gm(x.numpy()) - expected).max() < 1e-5
    assert np.abs(fx.compile(gm)(x.numpy()) - expected).max() < 1e-5


class Represented(nn.Module):  # type: ignore[name-defined,misc]
    """A program that reads the integers of a quantized tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()

    def forward(self, x: Any) -> Any:
        x = self.quant(x)
        return torch.sort(x)[0].int_repr() if x.is_quantized else x


def test_functions_without_a_counterpart_are_refused() -> None:
    x = torch.randn(3, 4)
    with pytest.raises(ModelImportError, match=r"int_repr of a quantized tensor; call it on x\.dequantize\(\)"):
        fx.from_torch(quantized(Represented(), x), x)
