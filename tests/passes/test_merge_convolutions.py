"""merge_convolutions: right numbers for all placements of windows, sums of several branches, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from tests.graphs import ops_of
from tests.oracle import compare

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
RNG = np.random.default_rng(0)


def _weight(*shape: int, dtype: str = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def _merged(program: Callable[..., Any], *inputs: Any) -> Any:
    """The graph after the pass, which computes what the program does."""
    gm = fx.symbolic_trace(program, *inputs)
    done = passes.merge_convolutions(gm)
    done.graph.lint()
    compare("merged", done(*inputs), program(*inputs))
    folded = passes.dce(passes.const_fold(done))
    compare("folded", folded(*inputs), program(*inputs))
    return folded


def _convolutions(gm: Any) -> int:
    return sum(name.startswith("conv") for name in ops_of(gm))


@pytest.mark.parametrize(
    "rank, wide, narrow",
    [
        (2, {"size": 3, "padding": 1}, {"size": 1}),
        (2, {"size": 5, "padding": 2}, {"size": 3, "padding": 1}),
        (2, {"size": 7, "padding": 3}, {"size": 3, "padding": 2, "dilation": 2}),
        (2, {"size": 7, "padding": 3}, {"size": (1, 3), "padding": (0, 3), "dilation": (1, 3)}),
        (2, {"size": 3, "padding": 2, "dilation": 2}, {"size": 1}),
        (2, {"size": 3, "padding": 1, "stride": 2}, {"size": 1, "stride": 2}),
        (2, {"size": (2, 3), "padding": ((1, 0), (0, 2))}, {"size": 1}),
        (2, {"size": 3, "padding": "same"}, {"size": 1, "padding": "valid"}),
        (2, {"size": 3, "padding": 1, "layout": "NHWC"}, {"size": 1, "layout": "NHWC"}),
        (1, {"size": 5, "padding": 2}, {"size": 3, "padding": 1}),
        (3, {"size": 3, "padding": 1}, {"size": (1, 3, 1), "padding": (0, 1, 0)}),
    ],
)
@pytest.mark.parametrize("groups", [1, 2])
def test_windows_inside_of_another(rank: int, wide: dict[str, Any], narrow: dict[str, Any], groups: int) -> None:
    def layer(size: Any, **options: Any) -> Callable[[Any], Any]:
        taps = size if isinstance(size, tuple) else (size,) * rank
        weight, bias = _weight(6, 4 // groups, *taps), _weight(6)
        return lambda x: CONVOLUTIONS[rank](x, weight, bias, groups=groups, **options)

    a, b = layer(**wide), layer(**narrow)
    x = _weight(2, *[8] * rank, 4) if wide.get("layout") else _weight(2, 4, *[8] * rank)
    assert ops_of(_merged(lambda x: a(x) + b(x), x)) == [f"conv{rank}d"]
    assert ops_of(_merged(lambda x: b(x) + a(x), x)) == [f"conv{rank}d"]


@pytest.mark.parametrize(
    "wide, narrow",
    [
        ({"padding": 1}, {"size": (3, 1), "padding": (1, 0), "dilation": (2, 1)}),  # beyond the window
        ({"padding": 2, "dilation": 2}, {"size": 3, "padding": 1}),  # between its taps
        ({"padding": ((0, 2), (0, 2))}, {"size": 3, "padding": 1}),  # beside it
        ({"padding": 1, "stride": 2}, {"size": 1, "stride": 1, "x": np.s_[:, :, ::2, ::2]}),  # another image
    ],
)
def test_windows_that_differ_stay(wide: dict[str, Any], narrow: dict[str, Any]) -> None:
    w, v = _weight(4, 4, 3, 3), narrow.pop("size")
    v = _weight(4, 4, *(v if isinstance(v, tuple) else (v, v)))
    part = narrow.pop("x", np.s_[:])

    def program(x: Any) -> Any:
        a, b = F.conv2d(x, w, **wide), F.conv2d(x[part], v, **narrow)
        return a[:, :, :4, :4] + b[:, :, :4, :4] if a.shape != b.shape else a + b

    assert _convolutions(_merged(program, _weight(1, 4, 8, 8))) == 2


class _Block(nn.Module):
    """Branches of MobileOne and RepVGG: windows of three and one pixels, and the normalized image."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.wide = nn.Conv2d(4, 4, 3, padding=1, groups=groups, bias=False)
        self.narrow = nn.Conv2d(4, 4, 1, groups=groups)
        self.norm = nn.BatchNorm2d(4)
        self.norm.running_mean[...], self.norm.running_var[...] = np.arange(4), np.arange(1, 5)
        self.norm.weight[...], self.norm.bias[...] = np.arange(2, 6), np.arange(4) / 3


SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "windows first": lambda m, x: m.wide(x) + m.narrow(x) + m.norm(x),
    "image first": lambda m, x: m.norm(x) + m.narrow(x) + m.wide(x),
    "x twice": lambda m, x: x + m.wide(x) + x,
    "another term": lambda m, x: (m.wide(x) + np.exp(x)) + (m.norm(x) + m.narrow(x)),
    "a number": lambda m, x: m.wide(x) + 1 + m.narrow(x),
    "image twice": lambda m, x: m.wide(x) + m.narrow(x) + (lambda y: y + y)(m.norm(x)),
}


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("name", SUMS)
def test_sums_of_branches(name: str, groups: int) -> None:
    block = _Block(groups).eval()
    x = _weight(2, 4, 6, 6)
    done = _merged(lambda x: SUMS[name](block, x), x)
    assert _convolutions(done) == 1
    if groups == 4 and name not in ("another term", "a number"):
        assert ops_of(done) == ["conv2d"]
    if groups == 1:  # a dense convolution does not take the image
        assert ("batch_norm" in ops_of(done)) == (name not in ("x twice", "a number"))


def test_both_operands_are_the_same_convolution() -> None:
    w, v = _weight(4, 1, 3, 3), _weight(4, 1, 1, 1)

    def program(x: Any) -> Any:
        y = F.conv2d(x, w, padding=1, groups=4)
        return (y + y) + F.conv2d(x, v, groups=4) + F.conv2d(x, v * 2, groups=4)

    _merged(program, _weight(1, 4, 5, 5))


@pytest.mark.parametrize("shape, groups", [((4, 1, 3, 3), 4), ((4, 2, 3, 3), 2), ((4, 4, 1, 1), 1)])
def test_the_image_is_a_convolution_itself(shape: tuple[int, ...], groups: int) -> None:
    """As in DaViT and RepViT: a part of the sum is the image, and its own weight is none of the branches'."""
    first, w, v = _weight(*shape), _weight(4, 1, 3, 3), _weight(4, 1, 1, 1)

    def program(x: Any) -> Any:
        y = F.conv2d(x, first, padding=shape[-1] // 2, groups=groups)
        return F.conv2d(y, w, padding=1, groups=4) + F.conv2d(y, v, groups=4) + y

    assert ops_of(_merged(program, _weight(2, 4, 6, 6))) == ["conv2d", "conv2d"]


def test_sums_of_many_terms() -> None:
    """Far more than Python's functions may call each other."""
    w, v = _weight(4, 1, 3, 3), _weight(4, 1, 1, 1)
    gm = fx.symbolic_trace(lambda x: F.conv2d(x, w, padding=1, groups=4) + F.conv2d(x, v, groups=4), x="f32[1,4,5,5]")
    (output,) = gm.graph.find_nodes(op="output")
    total, (other,) = output.args[0], gm.graph.placeholders
    with gm.graph.inserting_before(output):
        number = gm.graph.call_function("exp", (other,))
        for _ in range(3000):
            total = gm.graph.call_function("add", (total, number))
    output.args = (total,)
    assert _convolutions(passes.merge_convolutions(gm)) == 1


def test_what_is_read_elsewhere_or_computed_stays() -> None:
    w, v = _weight(4, 4, 3, 3), _weight(4, 4, 1, 1)

    def read_twice(x: Any) -> Any:
        y = F.conv2d(x, v)
        return (F.conv2d(x, w, padding=1) + y) * y

    def computed(x: Any, v: Any) -> Any:
        return F.conv2d(x, w, padding=1) + F.conv2d(x, v)

    def training(x: Any) -> Any:
        mean, var = np.zeros(4, "f4"), np.ones(4, "f4")
        return F.conv2d(x, w[:, :1], padding=1, groups=4) + F.batch_norm(x, mean, var, training=True)

    x = _weight(2, 4, 5, 5)
    assert _convolutions(_merged(read_twice, x)) == 2
    assert _convolutions(_merged(computed, x, v)) == 2
    assert ops_of(_merged(training, x)) == ["conv2d", "batch_norm", "add"]


def test_half_types_stay_with_the_reason() -> None:
    w, v = _weight(4, 4, 3, 3, dtype="f2"), _weight(4, 4, 1, 1, dtype="f2")
    done = passes.merge_convolutions(
        fx.symbolic_trace(lambda x: F.conv2d(x, w, padding=1) + F.conv2d(x, v), x="f16[1,4,5,5]")
    )
    assert _convolutions(done) == 2
    (refusal,) = passes.ledger(done)
    assert "f16 is rounded before the sum" in refusal.reason


def test_compiled_programs_have_one_kernel() -> None:
    block = _Block(4).eval()
    x = _weight(2, 4, 6, 6)
    program = fx.compile(lambda x: np.maximum(SUMS["windows first"](block, x), 0), inputs={"x": "f32[B,4,H,W]"})
    compare("C", program(x), np.maximum(SUMS["windows first"](block, x), 0))
    assert len(program.kernels) == 1
