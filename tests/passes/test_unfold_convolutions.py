"""unfold_convolutions: convolutions of all arguments as ones over two axes or as products, interpreted and as C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import ops, passes
from fxlite.codegen.c import templates
from tests.graphs import ops_of
from tests.oracle import agree, compare

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 6, 7), (5, 3, 3, 3), {}),
    "padding": ((2, 3, 6, 7), (5, 3, 3, 2), {"padding": (2, 1)}),
    "two ends": ((2, 3, 6, 7), (5, 3, 3, 2), {"padding": ((2, 0), (1, 3))}),
    "stride and dilation": ((2, 3, 9, 9), (5, 3, 2, 3), {"stride": (2, 3), "dilation": (3, 2), "padding": 1}),
    "groups": ((2, 6, 6, 7), (8, 3, 3, 3), {"groups": 2, "padding": "same"}),
    "one pixel": ((2, 3, 3, 3), (5, 3, 3, 3), {}),
    "1x1": ((2, 3, 6, 7), (5, 3, 1, 1), {"stride": 2}),
    "one axis": ((2, 3, 9), (5, 3, 4), {"dilation": 2, "padding": 3}),
    "three axes": ((2, 2, 4, 5, 6), (3, 2, 2, 3, 3), {"padding": 1, "stride": (1, 2, 1)}),
    "three axes, groups": ((1, 4, 4, 5, 6), (8, 2, 2, 1, 3), {"groups": 2, "dilation": (1, 2, 2)}),
    "three axes, two ends": ((2, 2, 5, 4, 6), (5, 2, 3, 2, 2), {"padding": ((2, 0), (0, 1), (1, 3)), "dilation": 2}),
    "three axes, the last two joined": ((2, 3, 6, 5, 4), (5, 3, 3, 1, 1), {"padding": (1, 0, 0), "stride": (2, 1, 1)}),
    "three axes, the first two joined": ((2, 3, 6, 5, 4), (5, 3, 1, 1, 3), {"padding": (0, 0, 1)}),
    "three axes, 1x1x1": ((2, 3, 4, 5, 6), (5, 3, 1, 1, 1), {}),
}


def arrays(*shapes: tuple[int, ...], dtype: str = "f4") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def named(shape: tuple[int, ...]) -> str:
    """A type with a named batch and a named last axis."""
    return f"f32[B,{','.join(map(str, shape[1:-1]))},L]"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("has_names", [False, True])
def test_all_arguments(case: str, has_names: bool) -> None:
    image, weight, options = CASES[case]
    x, w, b = arrays(image, weight, weight[:1])
    op = getattr(ops, f"conv{len(image) - 2}d")

    def program(x: Any, w: Any, b: Any) -> Any:
        return F.relu(op(x, w, b, **options))

    module = agree(program, x, w, b)
    if has_names:
        module = fx.symbolic_trace(program, named(image), *(f"f32[{','.join(map(str, v.shape))}]" for v in (w, b)))
    after = passes.unfold_convolutions(module)
    after.graph.lint()
    assert not any(n.target.is_convolution for n in after.graph.find_nodes(op="call_function"))
    compare("graph", fx.Interpreter(after).run(x, w, b), program(x, w, b))
    compare("C", fx.compile(module)(x, w, b), program(x, w, b))


def test_channels_last_and_doubles() -> None:
    x, w = arrays((2, 6, 7, 3), (5, 3, 3, 3), dtype="f8")
    after = passes.unfold_convolutions(agree(lambda x, w: ops.conv2d(x, w, padding=1, layout="NHWC"), x, w))
    assert ops_of(after).count("matmul") == 1


def test_what_has_a_kernel_stays() -> None:
    """The template has its own way, whether the weight is a constant or not."""
    x, w = arrays((2, 3, 6, 7), (5, 3, 3, 3))
    for program, given in ((lambda x: F.conv2d(x, w), (x,)), (lambda x, w: F.conv2d(x, w), (x, w))):
        found = fx.compile(agree(program, *given)).kernels
        assert [k.anchor.target.name for k in found if k.anchor is not None] == ["conv2d"]
    gm = fx.symbolic_trace(lambda x: F.conv2d(x, w), "f32[2,3,6,7]")
    kept = passes.unfold_convolutions(passes.const_fold(gm), keep=templates.claims)
    assert any(n.target.is_convolution for n in kept.graph.find_nodes(op="call_function"))


@pytest.mark.parametrize(
    ("image", "weight", "groups", "reason"),
    [
        ("f32[2,4,6,6]", "f32[4,1,3,3]", 4, "outputs of a group, 1, are too few"),
        ("f32[2,1,6,6]", "f32[4,1,1,1]", 1, "single pixels"),
        ("f32[64,64,256,256]", "f32[64,64,3,3]", 1, "would take"),
    ],
)
def test_what_would_not_pay_is_left_alone(image: str, weight: str, groups: int, reason: str) -> None:
    gm = fx.symbolic_trace(lambda x, w: F.conv2d(x, w, groups=groups), image, weight)
    after = passes.unfold_convolutions(gm)
    assert any(n.target.is_convolution for n in after.graph.find_nodes(op="call_function"))
    (entry,) = passes.ledger(after)
    assert reason in entry.reason


def test_integers_and_mixed_types_are_left_alone() -> None:
    for types in (("i32[1,2,5,5]", "i32[4,2,3,3]"), ("f64[1,2,5,5]", "f32[4,2,3,3]")):
        after = passes.unfold_convolutions(fx.symbolic_trace(lambda x, w: F.conv2d(x, w), *types))
        assert any(n.target.is_convolution for n in after.graph.find_nodes(op="call_function"))
