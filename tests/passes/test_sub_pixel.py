"""sub_pixel: transposed convolutions of all arguments as ordinary ones, interpreted and as C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from tests.oracle import agree, compare

CASES: dict[str, tuple[tuple[int, int], tuple[int, int], dict[str, Any]]] = {
    "no overlap": ((2, 2), (5, 6), {"stride": 2}),
    "no overlap, padding": ((2, 3), (5, 6), {"stride": (2, 3), "padding": (1, 2)}),
    "overlap by halves": ((4, 4), (5, 6), {"stride": 2, "padding": 1}),
    "two kernels an axis": ((3, 3), (5, 6), {"stride": 2, "padding": 1, "output_padding": 1}),
    "five by three": ((5, 5), (4, 7), {"stride": 3, "padding": (0, 4), "groups": 2}),
    "gaps": ((1, 2), (5, 6), {"stride": 3, "output_padding": 2}),
    "stride 1": ((3, 2), (5, 6), {"padding": (2, 0)}),
    "more padding than kernel": ((2, 3), (5, 6), {"padding": (2, 3)}),
    "much padding": ((3, 3), (9, 9), {"stride": 2, "padding": 5}),
    "dilation": ((3, 2), (5, 6), {"dilation": (2, 3), "padding": 1}),
    "dilation and stride": ((3, 4), (5, 6), {"stride": (2, 3), "dilation": (3, 2), "padding": 2}),
    "common divisor": ((3, 3), (5, 6), {"stride": (4, 2), "dilation": (6, 2), "padding": (3, 0)}),
    "more padding, dilation": ((3, 2), (6, 7), {"stride": 2, "dilation": 3, "padding": 6, "output_padding": 2}),
    "depthwise": ((4, 4), (5, 6), {"stride": 2, "padding": 1, "groups": 4}),
}


class Up(nn.Module):
    """A transposed convolution, with what follows one."""

    def __init__(self, kernel: tuple[int, ...], bias: bool = True, **options: Any) -> None:
        super().__init__()
        kind = nn.ConvTranspose2d if len(kernel) == 2 else nn.ConvTranspose1d
        self.up = kind(4, 8, kernel, bias=bias, **options)

    def forward(self, x: Any) -> Any:
        return F.relu(self.up(x)) + np.float32(1)


def changed(model: nn.Module, x: np.ndarray, type: str) -> fx.GraphModule:
    """The pass's result, compared with the model, interpreted and as C."""
    after = passes.sub_pixel(fx.symbolic_trace(model.eval(), type))
    after.graph.lint()
    assert not any("transpose" in n.target.name for n in calls(after))
    compare("graph", fx.Interpreter(after).run(x), model(x))
    compare("C", fx.compile(passes.const_fold(after), optimize=False)(x), model(x))
    return after


def calls(gm: fx.GraphModule) -> list[Any]:
    return gm.graph.find_nodes(op="call_function")


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", ["f32[B,4,H,W]", ""])
def test_all_arguments(case: str, sizes: str) -> None:
    kernel, size, options = CASES[case]
    x = image(2, 4, *size)
    after = changed(Up(kernel, **options), x, sizes or f"f32[2,4,{size[0]},{size[1]}]")
    assert after.graph.output_node().args[0].type.shape[1] == 8


@pytest.mark.parametrize("kernel, stride, padding", [(2, 2, 0), (5, 2, 3), (1, 2, 0)])
def test_one_axis(kernel: int, stride: int, padding: int) -> None:
    model = Up((kernel,), bias=kernel != 1, stride=stride, padding=padding)
    changed(model, image(3, 4, 7), "f32[B,4,L]")


@pytest.mark.parametrize("kernel, convolutions", [(2, 1), (4, 1), (3, 4), (1, 1)])
def test_no_product_is_added(kernel: int, convolutions: int) -> None:
    """As many multiplications as the definition has kernel positions: a NaN spreads no further."""
    model = Up((kernel, kernel), stride=2)
    after = passes.sub_pixel(fx.symbolic_trace(model, "f32[1,4,6,6]"))
    found = [n for n in calls(after) if n.target.name == "conv2d"]
    assert len(found) == convolutions
    weights = sum(int(np.prod(n.args[1].type.shape)) for n in found)
    assert weights == 4 * 8 * kernel * kernel
    x = image(1, 4, 6, 6)
    x[0, 1, 2, 3] = np.nan
    np.testing.assert_array_equal(np.isnan(fx.Interpreter(after).run(x)), np.isnan(model(x)))


def test_pixels_that_do_not_overlap_are_woven_afterwards() -> None:
    """Two kernels: a product that stores its rows, and a loop that stores those side by side, with relu."""
    fn = fx.compile(Up((2, 2), stride=2), "f32[B,4,H,W]")
    x = image(2, 4, 5, 7)
    compare("C", fn(x), fn.graph_module(x))
    product, woven = fn.kernels
    assert [n.target.name for n in product.nodes] == ["conv2d"]
    assert woven.anchor is None


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("types", [("f32[3,4,7,9]", "f32[4,6,2,2]"), ("f32[B,4,H,W]", "f32[4,6,2,2]"), ()])
@pytest.mark.parametrize("bias", [False, True])
def test_pixels_that_no_weight_reaches_are_not_asked_for(types: tuple[str, ...], padding: int, bias: bool) -> None:
    """With a stride larger than the kernel: rows of zeros are filled, and others ask nothing for an element."""

    def program(x: Any, w: Any) -> Any:
        return F.conv_transpose2d(x, w, np.arange(6, dtype=x.dtype) if bias else None, stride=3, padding=padding)

    dtype = "f4" if types else "f8"
    for size in ((3, 4, 7, 9), (1, 4, 2, 2)):
        x, w = image(*size).astype(dtype), image(4, 6, 2, 2).astype(dtype)
        if size[0] == 3 or "B" in "".join(types):
            function = fx.compile(program, *types) if types else fx.compile(program, x, w)
            compare("C", function(x, w), program(x, w))
            text = "".join(t for name, t in function.sources.items() if name.endswith(".c"))
            assert " ? conv" not in text


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("names", [False, True])
def test_a_weight_that_the_program_computes(kernel: int, names: bool) -> None:
    """It is taken apart in each call, whatever its channels are called."""
    x, w, b = image(2, 4, 5, 3), image(4, 3, kernel, kernel), image(6)

    def program(x: Any, w: Any, b: Any) -> Any:
        return F.relu(F.conv_transpose2d(x, w, b, stride=2, padding=kernel // 2, groups=2))

    module = agree(program, x, w, b)
    if names:
        types = ["f32[B,2*C,5,W]", f"f32[2*C,K,{kernel},{kernel}]", "f32[2*K]"]
        module = fx.symbolic_trace(program, *types)
    after = passes.sub_pixel(module)
    assert not any(n.target.transposes for n in calls(after))
    compare("graph", fx.Interpreter(after).run(x, w, b), program(x, w, b))
    compare("C", fx.compile(module)(x, w, b), program(x, w, b))


def test_groups_of_channels_that_may_not_divide_are_left_alone() -> None:
    gm = fx.symbolic_trace(lambda x, w: F.conv_transpose2d(x, w, groups=2), "f32[1,C,3,3]", "f32[C,2,2,2]")
    after = passes.sub_pixel(gm)
    assert [n.target.name for n in calls(after)] == ["conv_transpose2d"]
    (entry,) = passes.ledger(after)
    assert "may not divide" in entry.reason
