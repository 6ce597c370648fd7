"""store_bf16: which activations it casts, and what that changes in a compiled program."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.codegen.c import templates
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.toolchain import has_bf16_tiles
from fxlite.passes.checking.verify import check_examples
from tests.codegen.compiling import QUICK, emitted, make_test


class Products(nn.Module):
    """Channels-last convolutions whose operands are rounded in any case: 1x1, strided, grouped, 1x1
    of stride 2; one of an odd number of channels, which reads float32; linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(24, 48, 1)
        self.half = nn.Conv2d(48, 70, 3)
        self.grouped = nn.Conv2d(70, 40, (3, 2), groups=5)
        self.step = nn.Conv2d(40, 35, 1)
        self.odd = nn.Conv2d(35, 40, 1)
        self.up, self.down = nn.Linear(40, 66), nn.Linear(66, 9)

    def forward(self, x: Any) -> Any:
        def conv(layer: Any, x: Any, **options: Any) -> Any:
            return ops.conv2d(x, layer.weight, layer.bias, layout="NHWC", **options)

        x = F.relu6(conv(self.half, F.relu6(conv(self.wide, x)), stride=2, padding=1))
        x = conv(self.step, F.silu(conv(self.grouped, x, padding=1, groups=5)), stride=2)
        x = conv(self.odd, F.relu(x)).mean(axis=(1, 2))
        return self.down(F.gelu(self.up(x)))


class Points(nn.Module):
    """Two convolutions of 3 x 3 and stride 1, for Winograd's algorithm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(24, 32, 3), nn.Conv2d(32, 24, 3)

    def forward(self, x: Any) -> Any:
        for layer in (self.first, self.second):
            x = F.relu(ops.conv2d(x, layer.weight, layer.bias, layout="NHWC", padding=1))
        return x


class Residual(nn.Module):
    """MobileNetV2's block: of its values two are read as bf16 alone, one is in a residual sum."""

    def __init__(self, channels: int = 16, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        wide = 4 * channels + 8
        self.first = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(channels, wide, 1)
        self.alone = nn.Conv2d(wide, wide, kernel, stride=stride, padding=kernel // 2, groups=wide, bias=False)
        self.narrow = nn.Conv2d(wide, channels, 1)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        y = self.narrow(F.relu6(self.alone(F.relu6(self.wide(x)))))
        return x + y if x.shape == y.shape else y


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def casts(gm: fx.GraphModule) -> list[Any]:
    return gm.graph.find_nodes(op="call_function", target="cast")


def optimized(model: nn.Module, shape: str) -> fx.GraphModule:
    """The graph that C is emitted for, but for the pass."""
    gm = optimize(fx.symbolic_trace(model.eval(), shape), False, templates.claims, "medium")[0]
    for cast in casts(gm):
        cast.replace_all_uses_with(cast.args[0])
        gm.graph.erase_node(cast)
    return gm


def compiled(gm: fx.GraphModule, threads: int = 1) -> Any:
    return fx.compile(gm, optimize=False, matmul_precision="medium", threads=threads)


@pytest.mark.parametrize("shape", ["f32[2,15,18,24]", "f32[B,H,W,24]"])
def test_casts_before_products_change_no_bit(shape: str) -> None:
    x = image(2, 15, 18, 24)
    x[0, 3, 4, 5], x[1, 0, 0, 0] = np.nan, np.inf
    x[1, 5] = 1e-38
    before = optimized(Products(), shape)
    after = passes.store_bf16(before)
    after.graph.lint()
    readers = [user.target.name for cast in casts(after) for user in cast.users]
    assert readers == ["conv2d", "conv2d", "conv2d", "linear"]
    expected = compiled(before)(x)
    for threads in (1, 3):
        np.testing.assert_array_equal(compiled(after, threads)(x), expected)


@pytest.mark.parametrize("kernel, stride, size", [(3, 1, 30), (5, 2, 23), (3, 1, 3)])
def test_depthwise_convolutions_read_bf16(kernel: int, stride: int, size: int) -> None:
    model, x = Residual(24, kernel, stride), image(1, 3, size, size + 4)
    shape = f"f32[1,3,{size},{size + 4}]"
    exact = fx.compile(model, x=shape)(x)
    one, three = (fx.compile(model, x=shape, matmul_precision="medium", threads=n) for n in (1, 3))
    stored = [cast.args[0].target.name for cast in casts(one.optimized)]
    assert stored[-2:] == ["clip", "clip"] and "add" not in stored
    assert "sum_depthwise_last_bf16(" in "".join(one.sources.values())
    got = one(x)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 1e-4 < error < 2e-2
    np.testing.assert_array_equal(three(x), got)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for x86-64")
def test_processors_without_bf16_compute_the_same(tmp_path: Path) -> None:
    """The portable text, of the least x86-64; its own self-test compares."""
    fn = fx.compile(Residual(24), x="f32[1,3,30,34]", matmul_precision="medium")
    assert casts(fn.optimized)
    fn.save(tmp_path / "out")
    done = make_test(tmp_path / "out", "OPENMP=", f"CFLAGS={QUICK} -march=x86-64")
    assert done.returncode == 0 and "OK:" in done.stdout, done.stdout + done.stderr


def test_tiles_take_pixels_where_winograd_rounds_points() -> None:
    """Kernels of 3 x 3 read bf16 where there are tiles (AMX): there the pass changes no bit."""
    before = optimized(Points(), "f32[2,15,18,24]")
    assert casts(passes.store_bf16(before)) == []
    after = passes.store_bf16.with_options(tiles=True)(before)
    (cast,) = casts(after)
    assert [user.target.name for user in cast.users] == ["conv2d"]
    if has_bf16_tiles():
        x = image(2, 15, 18, 24)
        np.testing.assert_array_equal(compiled(after)(x), compiled(before)(x))


def test_memory_of_activations_halves() -> None:
    before = optimized(Residual(64), "f32[1,3,64,64]")
    wide, narrow = compiled(before), compiled(passes.store_bf16(before))
    assert narrow.workspace_bytes({}) < 0.6 * wide.workspace_bytes({})


def test_the_ledger_says_who_reads_more() -> None:
    gm = passes.store_bf16(optimized(Residual(64), "f32[1,3,64,64]"))
    reasons = [e.reason for e in passes.ledger(gm) if e.pass_name == "store_bf16"]
    assert reasons and all("stays float32, since add" in reason for reason in reasons)


def test_other_precisions_have_no_casts() -> None:
    for precision in ("highest", "high"):
        model = Residual(16)
        made = emitted(model, x="f32[1,3,32,32]", matmul_precision=precision)
        assert casts(made.program.module) == []


def test_examples() -> None:
    check_examples(passes.store_bf16)
