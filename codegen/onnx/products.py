"""Matrix products, convolutions and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fxlite.codegen.onnx.builder import Builder, Value, exports, no, type_of
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import floordiv, product
from fxlite.types.tensor_type import TensorType


@exports("matmul")
def matmul(b: Builder, type: TensorType, x: Value, y: Value) -> str:
    wide = type.dtype
    if not wide.is_float and wide not in (dtypes.int32, dtypes.int64):
        wide = dtypes.int32 if wide.itemsize < 4 else dtypes.int64
    left, right = b.operand(x, wide), b.operand(y, wide)
    if y.type.rank == 1 and b.computed_by(left) == "Transpose":
        # ONNX Runtime (1.32) merges a Transpose into a MatMul, and then reads a vector on the right wrongly.
        found = b.op("MatMul", left, b.op("Unsqueeze", right, b.integers(1)))
        found = b.op("Squeeze", found, b.integers(type.rank))
    else:
        found = b.op("MatMul", left, right)
    return b.cast(found, wide, type.dtype)


@exports("linear", when=lambda a: type_of(a["x"]) is not None)
def linear(b: Builder, type: TensorType, x: Value, weight: Value, bias: Any) -> str:
    """Write Gemm for two axes, otherwise MatMul and Add, in which the weight keeps its name and layout."""
    held, own = b.operand(x, type.dtype), b.operand(weight, type.dtype)
    offset = None if bias is None else b.operand(bias, type.dtype)
    if x.type.rank == 2:
        return b.op("Gemm", held, own, offset, transB=1)
    found = b.op("MatMul", held, b.op("Transpose", own, perm=[1, 0]))
    return found if offset is None else b.op("Add", found, offset)


def _sums(bound: Mapping[str, Any]) -> bool:
    """Whether Einsum accepts an equation: each letter must have the same size everywhere."""
    known: dict[str, Any] = {}
    for value, letters in zip(bound["operands"], bound["equation"].split("->")[0].replace(" ", "").split(",")):
        type = type_of(value)
        if type is None or "." in letters or len(letters) != type.rank or not type.dtype.is_float:
            return False
        if type.dtype is dtypes.bfloat16 or any(
            known.setdefault(letter, size) != size for letter, size in zip(letters, type.shape)
        ):
            return False
    return True


@exports("einsum", when=_sums)
def einsum(b: Builder, type: TensorType, operands: Sequence[Value], equation: str) -> str:
    return b.op("Einsum", *(b.operand(v, type.dtype) for v in operands), equation=equation.replace(" ", ""))


# -- windows ---------------------------------------------------------------------------------------
def several(value: Any, count: int) -> list[int]:
    """An attribute as one number for each axis."""
    return [value] * count if isinstance(value, int) else [int(v) for v in value]


def floats(value: Any, count: int) -> list[float]:
    """A factor as one number for each axis."""
    return [float(value)] * count if isinstance(value, int | float) else [float(v) for v in value]


def pads(padding: Any, count: int) -> list[int]:
    """Paddings in ONNX's order: first all low ends, then all high ends."""
    if isinstance(padding, int):
        return [padding] * (2 * count)
    pairs = [(p, p) if isinstance(p, int) else tuple(p) for p in padding]
    return [int(low) for low, _ in pairs] + [int(high) for _, high in pairs]


def window(arguments: Mapping[str, Any], count: int, kernel: list[int]) -> dict[str, Any]:
    """ONNX's attributes of a window over ``count`` axes, from the arguments of a call."""
    stride = arguments["stride"]
    found = {"kernel_shape": kernel, "strides": kernel if stride is None else several(stride, count)}
    found["pads"] = pads(arguments["padding"], count)
    for name, own in (("dilations", "dilation"), ("output_padding", "output_padding")):
        if own in arguments:
            found[name] = several(arguments[own], count)
    flags = {n: int(arguments[n]) for n in ("ceil_mode", "count_include_pad") if n in arguments}
    return {**found, **flags, "group": arguments.get("groups")}


def numeric_padding(bound: Mapping[str, Any]) -> bool:
    """Whether the padding of a window consists of numbers, as it usually does."""
    return not isinstance(bound["padding"], str)


def computed(dtype: DType) -> DType:
    """The type in which convolutions and means are computed: bfloat16 is supported only later, integers never."""
    if dtype in (dtypes.float32, dtypes.float64, dtypes.float16):
        return dtype
    return dtypes.float32 if dtype.is_float else dtypes.float64


def pooled(dtype: DType) -> DType:
    """The type in which MaxPool computes: one that holds all numbers of ``dtype``."""
    return dtype if dtype in (dtypes.int8, dtypes.uint8) else computed(dtype)


def first(b: Builder, x: Value, layout: str) -> str:
    """The operand with channels before the window's axes."""
    if layout == "NCHW":
        return x.name
    rank = x.type.rank
    return b.op("Transpose", x, perm=[0, rank - 1, *range(1, rank - 1)])


def back(b: Builder, found: str, type: TensorType, layout: str) -> str:
    """The result, which has the channels before the window's axes, in its layout."""
    found = b.shaped(shape_before(type, layout), found)
    return found if layout == "NCHW" else b.op("Transpose", found, perm=[0, *range(2, type.rank), 1])


def shape_before(type: TensorType, layout: str) -> tuple[Any, ...]:
    """The shape of that result before it is brought into its layout."""
    return type.shape if layout == "NCHW" else (type.shape[0], type.shape[-1], *type.shape[1:-1])


def kernel_of(weight: Value) -> list[int]:
    """The sizes of a convolution's window."""
    return [int(k) for k in weight.type.shape[2:]]


def _by_rank(**kinds: str) -> dict[str, Any]:
    """Kinds by the names of ops over one, two and three axes."""
    return {f"{name}{count}d": kind for name, kind in kinds.items() for count in (1, 2, 3)}


@exports(when=numeric_padding, **_by_rank(conv="Conv"))
@exports(**_by_rank(conv_transpose="ConvTranspose"))
def conv(
    b: Builder, type: TensorType, x: Value, weight: Value, bias: Any, layout: str = "NCHW", **settings: Any
) -> str:
    wide = computed(type.dtype)
    held = Value(first(b, x, layout), x.type)
    given = [None if v is None else b.operand(v, wide) for v in (held, weight, bias)]
    found = b.op(b.kind, *given, **window(settings, type.rank - 2, kernel_of(weight)))
    return back(b, b.cast(found, wide, type.dtype), type, layout)


@exports(**_by_rank(max_pool="MaxPool", avg_pool="AveragePool"))
def pool(b: Builder, type: TensorType, x: Value, kernel_size: Any, layout: str = "NCHW", **settings: Any) -> str:
    wide = pooled(type.dtype) if b.kind == "MaxPool" else computed(type.dtype)
    held = b.cast(first(b, x, layout), x.type.dtype, wide)
    found = b.op(b.kind, held, **_pool_windows(type, x.type, kernel_size, settings, 2 if layout == "NCHW" else 1))
    return back(b, b.cast(found, wide, type.dtype), type, layout)


def _pool_windows(type: TensorType, of: TensorType, kernel_size: Any, settings: Mapping[str, Any], start: int) -> Any:
    """The attributes of a pool over axes from ``start`` on. If no window beyond the whole ones begins inside the input,
    the number of windows is not rounded up, because ONNX would count one more that lies outside."""
    count = type.rank - 2
    found = window(settings, count, several(kernel_size, count))
    own, more = found["pads"], found.get("dilations", [1] * count)
    whole = [
        shapes.equal(floordiv(n + own[i] + own[i + count] - more[i] * (k - 1) - 1, s) + 1, type.shape[start + i])
        for i, (n, k, s) in enumerate(zip(of.shape[start:], found["kernel_shape"], found["strides"]))
    ]
    return {**found, "ceil_mode": 0} if found.get("ceil_mode") and all(whole) else found


@exports("max_pool_positions")
def max_pool_positions(b: Builder, type: TensorType, x: Value, kernel_size: Any, **settings: Any) -> str:
    """Convert positions: ONNX counts them in the whole array, fxlite within the channel."""
    held = b.operand(x, pooled(x.type.dtype))
    found = b.results(2, "MaxPool", held, **_pool_windows(type, x.type, kernel_size, settings, 2))
    _, places = (b.shaped(type.shape, name) for name in found)
    return b.op("Mod", places, b.size(product(x.type.shape[2:])))


@exports(*(f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)))
def adaptive(b: Builder, type: TensorType, x: Value, output_size: Any) -> str:
    """Write a pool if all windows have the same size; otherwise gather each axis into windows."""
    kind = "Average" if "avg" in b.kind else "Max"
    sizes, wanted = x.type.shape[2:], type.shape[2:]
    if all(d == 1 for d in wanted):
        return b.op(f"Global{kind}Pool", x)
    if all(isinstance(s, int) and isinstance(d, int) and s % d == 0 for s, d in zip(sizes, wanted)):
        kernel = [int(s) // int(d) for s, d in zip(sizes, wanted)]
        return b.op(f"{kind}Pool", x, kernel_shape=kernel, strides=kernel)
    found = x.name
    for axis, (size, count) in enumerate(zip(sizes, wanted), 2):
        if size == count:
            continue
        if not isinstance(size, int) or not isinstance(count, int):
            raise no(f"an adaptive pool of a named size, {size}, into {count} windows")
        found = _windows(b, found, axis, size, count, type, kind == "Average")
    return found


def _windows(b: Builder, x: str, axis: int, size: int, count: int, type: TensorType, mean: bool) -> str:
    """Means or maxima of ``count`` windows of an axis, which overlap if that does not divide the size."""
    low = np.arange(count) * size // count
    lengths = -(-(np.arange(count) + 1) * size // count) - low
    steps = np.arange(lengths.max())
    places = low[:, None] + np.minimum(steps, lengths[:, None] - 1)
    found = b.op("Gather", x, b.constant(places), axis=axis)
    if mean:
        weights = ((steps < lengths[:, None]) / lengths[:, None]).astype(type.dtype.numpy)
        shape = (*weights.shape, *[1] * (type.rank - 1 - axis))
        found = b.op("Mul", found, b.constant(weights.reshape(shape)))
    return b.op("ReduceSum" if mean else "ReduceMax", found, b.integers(axis + 1), keepdims=0)


@exports("interpolate")
def interpolate(
    b: Builder, type: TensorType, x: Value, size: Any, scale_factor: Any, mode: str, align_corners: bool
) -> str:
    nearest = mode == "nearest"
    coordinates = "align_corners" if align_corners else "asymmetric" if nearest else "half_pixel"
    scales = sizes = None
    factors = [] if scale_factor is None else floats(scale_factor, type.rank - 2)
    exact = all(isinstance(s, int) and (s * f).is_integer() for s, f in zip(x.type.shape[2:], factors))
    if exact:
        sizes = b.sizes(type.shape)
    else:  # torch and ONNX compute positions from the factors, not from the sizes
        scales = b.constant(np.array([1, 1, *factors], np.float32))
    how = {"mode": "nearest" if nearest else "linear", "nearest_mode": "floor"}
    return b.op("Resize", x, None, scales, sizes, coordinate_transformation_mode=coordinates, **how)


def _factor(x: Any, size: Any, axis: int, scale: float) -> Any:
    """The float32 nearest to a factor, or the next larger one, for which the whole part of its product with the size is
    the output size; None if there is none."""
    length, near = x.type.shape[axis], np.float32(scale)
    if float(scale).is_integer() and shapes.normalize(length * int(scale)) == shapes.normalize(size):
        return near
    fits = (f for f in (near, np.nextafter(near, np.float32(np.inf))) if type(length) is int)
    return next((f for f in fits if int(length * float(f)) == size), None)


def _resizes(a: Mapping[str, Any]) -> bool:
    """Whether Resize computes it. With a factor, it aligns corners to the rounded size, fxlite to the exact product."""
    if a["antialias"] and a["mode"] == "nearest":
        return False
    by_factor = a["scale"] is not None
    corners = a["coordinates"] == "align_corners"
    return not by_factor or (not corners and _factor(a["x"], a["size"], a["axis"], a["scale"]) is not None)


@exports("resize", when=_resizes)
def resize(b: Builder, type: TensorType, x: Value, size: Any, axis: int, mode: str, scale: Any, **settings: Any) -> str:
    how = {"coordinate_transformation_mode": "coordinates", "nearest_mode": "rounding", "cubic_coeff_a": "coefficient"}
    given = {name: settings[own] for name, own in how.items()}
    given |= {name: int(settings[name]) for name in ("antialias", "exclude_outside")}
    by = (None, b.size(size)) if scale is None else (np.array([_factor(x, size, axis, scale)]), None)
    return b.op("Resize", x, None, *by, axes=[axis % type.rank], mode=mode, **given)


@exports("grid_sample", since=20, when=lambda a: a["x"].type.dtype is a["grid"].type.dtype)
def grid_sample(
    b: Builder, type: TensorType, x: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> str:
    kind = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return b.op("GridSample", x, grid, mode=kind, padding_mode=padding_mode, align_corners=int(align_corners))
