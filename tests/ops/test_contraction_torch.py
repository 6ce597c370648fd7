"""Contractions, convolutions, pooling and resizing against torch, over grids of attributes.

Also: all spellings of an attribute give one node, and eager calls are refused as traced ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, FxliteError, ShapeError
from fxlite.graph.graph import Graph
from fxlite.ops.op import Op
from fxlite.types.tensor_type import parse_type
from tests.oracle import compare

torch = pytest.importorskip("torch")
F = torch.nn.functional


def random(*shape: int, dtype: Any = np.float32) -> Any:
    """A random array."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def against_torch(ours: Any, theirs: Any, *arrays: Any, **attributes: Any) -> None:
    """Compare an op with torch's function on the same arrays and attributes."""
    expected = theirs(*(None if a is None else torch.from_numpy(a) for a in arrays), **attributes)
    compare(ours.name if isinstance(ours, Op) else ours.__name__, ours(*arrays, **attributes), expected.numpy())


CONV2D = [
    {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    for stride, padding, dilation, groups in itertools.product((1, 2, (3, 1)), (0, (2, 1)), (1, (1, 2)), (1, 2))
]


@pytest.mark.parametrize("attributes", CONV2D)
def test_conv2d(attributes: dict[str, Any]) -> None:
    groups = attributes["groups"]
    for kernel in ((3, 2), (1, 1)):
        weight, bias = random(6, 4 // groups, *kernel), random(6)
        against_torch(ops.conv2d, F.conv2d, random(2, 4, 9, 8), weight, bias, **attributes)


@pytest.mark.parametrize("kernel", [(3, 3), (2, 4), (1, 5), (4, 2)])
@pytest.mark.parametrize("dilation", [1, (2, 3)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_conv2d_named_padding(kernel: Any, dilation: Any, padding: str) -> None:
    arrays = random(1, 2, 9, 13), random(3, 2, *kernel), None
    against_torch(ops.conv2d, F.conv2d, *arrays, dilation=dilation, padding=padding)


def test_conv2d_explicit_ends() -> None:
    x, weight = random(1, 2, 5, 6), random(3, 2, 3, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 2), (1, 3)))
    compare("ends", ops.conv2d(x, weight, padding=((0, 2), (1, 3))), ops.conv2d(padded, weight))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("padding", [0, 2, "same"])
def test_conv1d(groups: int, stride: int, padding: Any) -> None:
    if padding == "same" and stride != 1:
        with pytest.raises(FxliteError, match="needs stride 1"):
            ops.conv1d(random(2, 4, 11), random(8, 4, 4), stride=stride, padding=padding)
        return
    arrays = random(2, 4, 11), random(8, 4 // groups, 4), random(8)
    attributes = {"stride": stride, "padding": padding, "groups": groups, "dilation": 2}
    against_torch(ops.conv1d, F.conv1d, *arrays, **attributes)


TRANSPOSED = [
    {"stride": stride, "padding": padding, "output_padding": extra, "dilation": dilation, "groups": groups}
    for stride, padding, extra, dilation, groups in itertools.product(
        (1, 2, (3, 2)), (0, (1, 2)), (0, 1), (1, (2, 3)), (1, 2)
    )
    if not (extra and stride == 1 and dilation == 1)
]


@pytest.mark.parametrize("attributes", TRANSPOSED)
def test_conv_transpose2d(attributes: dict[str, Any]) -> None:
    weight, bias = random(4, 3, 3, 2), random(3 * attributes["groups"])
    arrays = random(2, 4, 5, 6), weight, bias
    against_torch(ops.conv_transpose2d, F.conv_transpose2d, *arrays, **attributes)


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize("dilation", [1, 3])
def test_conv_transpose1d(stride: int, dilation: int) -> None:
    attributes = {"stride": stride, "dilation": dilation, "padding": 1}
    arrays = random(2, 3, 6), random(3, 2, 4), random(2)
    against_torch(ops.conv_transpose1d, F.conv_transpose1d, *arrays, **attributes)


@pytest.mark.parametrize("stride", [1, (2, 1, 3)])
@pytest.mark.parametrize("padding", [0, (1, 0, 2)])
@pytest.mark.parametrize("groups", [1, 2])
def test_three_axes(stride: Any, padding: Any, groups: int) -> None:
    attributes = {"stride": stride, "padding": padding, "groups": groups, "dilation": (1, 2, 1)}
    x, bias = random(2, 4, 5, 6, 4), random(6)
    against_torch(ops.conv3d, F.conv3d, x, random(6, 4 // groups, 3, 2, 2), bias, **attributes)
    weight = random(4, 6 // groups, 3, 2, 5)
    against_torch(ops.conv_transpose3d, F.conv_transpose3d, x, weight, bias, **attributes)
    pooled = {"kernel_size": (2, 1, 4), "stride": stride, "padding": (1, 0, 2), "ceil_mode": groups == 2}
    against_torch(ops.max_pool3d, F.max_pool3d, x, **pooled)
    against_torch(ops.avg_pool3d, F.avg_pool3d, x, **pooled, count_include_pad=False)
    for name in ("adaptive_avg_pool3d", "adaptive_max_pool3d"):
        against_torch(getattr(ops, name), getattr(F, name), x, output_size=(3, 7, groups))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int8"])
def test_linear_and_matmul(dtype: str) -> None:
    x, weight, bias = ((5 * random(*shape)).astype(dtype) for shape in ((2, 3, 20), (5, 20), (5,)))
    against_torch(ops.linear, F.linear, x, weight, bias)
    against_torch(ops.matmul, torch.matmul, x, np.ascontiguousarray(weight.T))
    against_torch(ops.matmul, torch.matmul, x, np.ascontiguousarray(weight[0]))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))),
        ("i,j,k->kji", ((2,), (3,), (4,))),
        ("ij,jk,kl", ((2, 3), (3, 4), (4, 5))),
        ("ab,ab->", ((3, 4), (3, 4))),
        ("abc->cb", ((2, 3, 4),)),
        ("ba,ca", ((2, 3), (4, 3))),
    ],
)
def test_einsum(equation: str, shapes: Any) -> None:
    arrays = [random(*shape) for shape in shapes]
    expected = torch.einsum(equation, *(torch.from_numpy(a) for a in arrays)).numpy()
    compare("reference", ops.einsum(arrays, equation), expected)
    compare("expansion", ops.einsum.expand({"operands": arrays, "equation": equation}), expected)


POOL2D = [
    {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}
    for kernel, stride, padding, ceil_mode in itertools.product(
        (2, 3, (3, 2)), (None, 1, (2, 3), 4), (0, 1), (False, True)
    )
]


@pytest.mark.parametrize("attributes", POOL2D)
def test_pool2d(attributes: dict[str, Any]) -> None:
    for size in ((7, 8), (6, 5)):
        x = random(2, 3, *size)
        against_torch(ops.max_pool2d, F.max_pool2d, x, **attributes)
        for count in (True, False):
            against_torch(ops.avg_pool2d, F.avg_pool2d, x, **attributes, count_include_pad=count)
        against_torch(ops.max_pool2d, F.max_pool2d, random(1, 2, 9, 11), **attributes, dilation=(2, 3))


@pytest.mark.parametrize("kernel", [1, 2, 5])
@pytest.mark.parametrize("stride", [None, 1, 3])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pool1d(kernel: int, stride: Any, ceil_mode: bool) -> None:
    attributes = {"kernel_size": kernel, "stride": stride, "padding": kernel // 2, "ceil_mode": ceil_mode}
    x = random(2, 3, 11)
    against_torch(ops.max_pool1d, F.max_pool1d, x, **attributes)
    against_torch(ops.avg_pool1d, F.avg_pool1d, x, **attributes)
    against_torch(ops.avg_pool1d, F.avg_pool1d, x, **attributes, count_include_pad=False)


def test_max_pool_of_nan_and_infinity() -> None:
    x = random(1, 1, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 4, 4], x[0, 0, :2, 4:] = np.nan, np.inf, -np.inf
    against_torch(ops.max_pool2d, F.max_pool2d, x, kernel_size=2, padding=1)
    against_torch(ops.adaptive_max_pool2d, F.adaptive_max_pool2d, x, output_size=4)


@pytest.mark.parametrize("output_size", [1, 2, 3, (5, 7), (None, 2), (9, None), (8, 8), (1, 3)])
def test_adaptive_pool2d(output_size: Any) -> None:
    x = random(2, 3, 7, 8)
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        if name == "adaptive_max_pool2d" and isinstance(output_size, tuple) and None in output_size:
            continue  # torch's takes no None
        against_torch(getattr(ops, name), getattr(F, name), x, output_size=output_size)


@pytest.mark.parametrize("output_size", [1, 2, 3, 7, 12])
def test_adaptive_pool1d(output_size: int) -> None:
    x = random(2, 3, 7)
    against_torch(ops.adaptive_avg_pool1d, F.adaptive_avg_pool1d, x, output_size=output_size)
    against_torch(ops.adaptive_max_pool1d, F.adaptive_max_pool1d, x, output_size=output_size)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 13, 64, 100, 333])
def test_nearest_positions(n: int) -> None:
    """Every source index, for many target sizes: positions are read off a ramp."""
    ramp = np.arange(n, dtype=np.float32).reshape(1, 1, n)
    for m in [*range(1, 130), 41 * n, 47 * n, 55 * n, 61 * n, 1000]:
        against_torch(ops.interpolate, F.interpolate, ramp, size=m)


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.7, 1.1, 1.5, 2, 2.1, 3, 4.7, 41, 47.0])
def test_interpolate_by_factor(factor: float) -> None:
    for n in (4, 7, 10, 29):
        x = random(1, 2, n)
        image = random(1, 2, n, 5)
        against_torch(ops.interpolate, F.interpolate, x, scale_factor=factor)
        against_torch(ops.interpolate, F.interpolate, image, scale_factor=factor)
        for corners in (False, True):
            attributes = {"scale_factor": factor, "align_corners": corners}
            against_torch(ops.interpolate, F.interpolate, x, mode="linear", **attributes)
            against_torch(ops.interpolate, F.interpolate, image, mode="bilinear", **attributes)


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        *((mode, (1, 2, 7, 9)) for mode in ("bicubic", "bilinear", "nearest-exact", "area")),
        *((mode, (1, 2, 5, 6, 7)) for mode in ("trilinear", "nearest", "nearest-exact", "area")),
        *((mode, (1, 2, 11)) for mode in ("nearest-exact", "area", "linear")),
    ],
)
def test_interpolate_axis_by_axis(mode: str, shape: tuple[int, ...]) -> None:
    """What is resized one axis after the other: all modes of torch, by size and factor."""
    x, rank = random(*shape), len(shape) - 2
    calls: list[dict[str, Any]] = [{"size": s[:rank]} for s in ((4, 5, 6), (10, 13, 8), (1, 2, 3), (7, 9, 11))]
    if mode != "area":
        factors: list[dict[str, Any]] = [{"scale_factor": f} for f in (2, 0.5, 1.7, 0.6)]
        calls += factors + [{**c, "recompute_scale_factor": True} for c in factors]
    if mode in ("bicubic", "bilinear"):
        calls += [{**c, "antialias": True} for c in calls]
    if "linear" in mode or mode == "bicubic":
        calls += [{**c, "align_corners": True} for c in calls if "antialias" not in c]
    for call in calls:
        against_torch(nn.functional.interpolate, F.interpolate, x, mode=mode, **call)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode: str, padding: str) -> None:
    for shape, places in (((2, 3, 7, 6), (5, 4)), ((1, 2, 1, 1), (5, 5)), ((2, 3, 4, 7, 6), (3, 4, 2))):
        if mode == "bicubic" and len(places) == 3:
            continue
        grid = 1.5 * random(shape[0], *places, len(places))
        for corners in (False, True):
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
            against_torch(ops.grid_sample, F.grid_sample, random(*shape), grid, **attributes)


def test_affine_grid() -> None:
    for size, corners in itertools.product(((2, 3, 5, 4), (2, 3, 4, 2, 5)), (False, True)):
        rank = len(size) - 2
        theta = random(2, rank, rank + 1)
        against_torch(nn.functional.affine_grid, F.affine_grid, theta, size=size, align_corners=corners)


@pytest.mark.parametrize("size", [1, 3, (7, 4), (10, 12), (2, 31)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_interpolate_to_size(size: Any, dtype: str) -> None:
    x = random(2, 3, 5, 6, dtype=dtype)
    against_torch(ops.interpolate, F.interpolate, x, size=size)
    for corners in (False, True):
        attributes = {"size": size, "mode": "bilinear", "align_corners": corners}
        against_torch(ops.interpolate, F.interpolate, x, **attributes)


# -- one node for all spellings --------------------------------------------------------------------
SPELLINGS: list[tuple[str, list[str], list[dict[str, Any]], dict[str, Any]]] = [
    (
        "conv2d",
        ["f32[1,2,8,8]", "f32[3,2,3,3]"],
        [
            {"padding": 1},
            {"padding": (1, 1), "stride": (1, 1)},
            {"padding": ((1, 1), (1, 1))},
            {"padding": "same", "dilation": (1, 1)},
        ],
        {"padding": 1},
    ),
    (
        "conv2d",
        ["f32[1,2,8,8]", "f32[3,2,3,3]"],
        [{}, {"padding": "valid"}, {"padding": [0, 0], "stride": 1}, {"padding": ((0, 0), (0, 0))}],
        {},
    ),
    (
        "conv2d",
        ["f32[1,2,8,8]", "f32[3,2,2,3]"],
        [{"padding": "same"}, {"padding": ((0, 1), (1, 1))}],
        {"padding": ((0, 1), (1, 1))},
    ),
    ("conv1d", ["f32[1,2,8]", "f32[3,2,3]"], [{"stride": 2}, {"stride": (2,)}], {"stride": 2}),
    (
        "conv_transpose2d",
        ["f32[1,2,8,8]", "f32[2,3,3,3]"],
        [{"stride": 2, "padding": (1, 0)}, {"stride": (2, 2), "padding": (1, 0), "output_padding": (0, 0)}],
        {"stride": 2, "padding": (1, 0)},
    ),
    (
        "max_pool2d",
        ["f32[1,2,8,8]"],
        [{"kernel_size": 2}, {"kernel_size": (2, 2), "stride": 2}, {"kernel_size": 2, "stride": (2, 2)}],
        {"kernel_size": 2},
    ),
    (
        "avg_pool1d",
        ["f32[1,2,8]"],
        [{"kernel_size": (3,), "stride": (2,)}, {"kernel_size": 3, "stride": 2}],
        {"kernel_size": 3, "stride": 2},
    ),
    ("adaptive_avg_pool2d", ["f32[1,2,8,8]"], [{"output_size": 1}, {"output_size": (1, 1)}], {"output_size": 1}),
    (
        "interpolate",
        ["f32[1,2,8,8]"],
        [{"scale_factor": 2}, {"scale_factor": (2.0, 2.0)}, {"scale_factor": 2.0}],
        {"scale_factor": 2.0},
    ),
    ("interpolate", ["f32[1,2,8,8]"], [{"size": 4}, {"size": (4, 4)}], {"size": 4}),
]


@pytest.mark.parametrize(("name", "types", "spellings", "stored"), SPELLINGS)
def test_spellings_are_one_node(name: str, types: Any, spellings: Any, stored: Any) -> None:
    for attributes in spellings:
        graph = Graph()
        inputs = [graph.placeholder(f"x{n}", parse_type(t)) for n, t in enumerate(types)]
        node = graph.call_function(name, tuple(inputs), attributes)
        assert node.kwargs == stored


def test_einsum_equation_is_explicit() -> None:
    graph = Graph()
    inputs = tuple(graph.placeholder(name, parse_type("f32[3,3]")) for name in "xy")
    node = graph.call_function("einsum", (inputs,), {"equation": "ij, jk"})
    assert node.kwargs == {"equation": "ij,jk->ik"}


def test_same_padding_waits_for_types() -> None:
    graph = Graph()
    inputs = tuple(graph.placeholder(name) for name in "xw")
    assert graph.call_function("conv2d", inputs, {"padding": "same"}).kwargs == {"padding": "same"}


def test_eager_calls_are_refused_as_traced_ones() -> None:
    with pytest.raises(ShapeError, match=r"conv2d.*x has 3 channels, but weight takes 2"):
        ops.conv2d(random(1, 3, 8, 8), random(4, 2, 3, 3))
    with pytest.raises(ArgumentError, match="kernel_size must be"):
        ops.max_pool2d(random(1, 3, 8, 8), (2, 2, 2))
    with pytest.raises(ShapeError, match="but axis -2 of y is 5"):
        ops.matmul(random(3, 4), random(5, 6))
