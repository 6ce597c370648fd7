"""ATen's ops that move, join, split and repeat values."""

from __future__ import annotations

from typing import Any

import numpy as np

import fxlite.nn.functional as F
from fxlite.base.errors import TraceError
from fxlite.base.state import is_traced
from fxlite.importing.torch.table import (
    NARROW,
    Call,
    along,
    aten,
    axis_of,
    bounded,
    cast,
    dtype_of_value,
    identity,
    is_number,
    op,
    rank_of,
    same,
    same_sizes,
    shape_of,
    sized,
)
from fxlite.tracing.selections.masked import Masked
from fxlite.types import dtypes, shapes
from fxlite.types.shapes import NamedDim


def _reshape(x: Any, shape: Any) -> Any:
    """A value reshaped to a shape, one size of which may be -1."""
    shape = tuple(shape)
    if same_sizes(shape, shape_of(x)):
        return x
    if isinstance(x, Masked):  # torch has checked that the number of elements is the same
        shape = tuple(-1 if is_traced(size) else size for size in shape)
    elif not hasattr(x, "node"):
        return np.asarray(x).reshape(shape)
    return op("reshape")(x, shape)


@aten("view.default", "reshape", "_unsafe_view", "view_copy.default", "_reshape_alias", "_reshape_copy")
def _view(c: Call, x: Any, size: Any, *_: Any) -> Any:
    return _reshape(x, size)


@aten("view.dtype")
def _view_dtype(c: Call, x: Any, dtype: Any) -> Any:
    for one in (dtype, c.node.args[0].meta["val"].dtype):
        if one in NARROW:
            raise c.refuse(f"the bits of {one} are not at hand, as its values are held in float32; use .to(...)")
    return x.view(c.dtype.numpy)


same("view_as reshape_as", lambda x, other: _reshape(x, shape_of(other)))


@aten("flatten")
def _flatten(c: Call, x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return op("flatten")(x, start_dim, end_dim) if rank_of(x) else x.reshape(1)


same("ravel", lambda x: _reshape(x, (-1,)))


@aten("unflatten")
def _unflatten(c: Call, x: Any, dim: int, sizes: Any, *_: Any) -> Any:
    return F.unflatten(x, axis_of(x, dim), tuple(sizes))


@aten("permute", "permute_copy")
def _permute(c: Call, x: Any, dims: Any) -> Any:
    return op("permute")(x, tuple(d % max(rank_of(x), 1) for d in dims))


@aten("transpose", "transpose_copy", "swapaxes", "swapdims")
def _transpose(c: Call, x: Any, first: int, second: int) -> Any:
    if not rank_of(x):
        return x
    axes = list(range(rank_of(x)))
    one, other = axis_of(x, first), axis_of(x, second)
    axes[one], axes[other] = other, one
    return op("permute")(x, tuple(axes))


@aten("t", "t_copy", "numpy_T", "mT", "mH", "matrix_H", "adjoint")
def _transposed(c: Call, x: Any) -> Any:
    if c.name in ("mH", "matrix_H", "adjoint") and dtype_of_value(x).is_complex:
        x = op("conj")(x)
    if rank_of(x) < 2:
        return x
    return _transpose(c, x, -2, -1) if "numpy" not in c.name else _permute(c, x, range(rank_of(x))[::-1])


same("movedim moveaxis", np.moveaxis)


@aten("unsqueeze", "unsqueeze_copy")
def _unsqueeze(c: Call, x: Any, dim: int) -> Any:
    return op("unsqueeze")(x, dim % (rank_of(x) + 1))


@aten("squeeze", "squeeze_copy")
def _squeeze(c: Call, x: Any, dim: Any = None) -> Any:
    dims = range(rank_of(x)) if dim is None else [dim] if isinstance(dim, int) else dim
    for axis in sorted({axis_of(x, d) for d in dims}, reverse=True):
        if rank_of(x) and type(shape_of(x)[axis]) is int and shape_of(x)[axis] == 1:
            x = op("squeeze")(x, axis)
    return x


@aten("expand", "expand_copy", "broadcast_to")
def _expand(c: Call, x: Any, size: Any, *, implicit: bool = False) -> Any:
    own = (None,) * (len(size) - rank_of(x)) + shape_of(x)
    shape = tuple(o if type(s) is int and s == -1 else s for s, o in zip(size, own))
    if same_sizes(shape, shape_of(x)):
        return x
    return op("expand")(x, shape) if isinstance(x, Masked) else sized(shape, lambda sizes: op("expand")(x, sizes))


same("expand_as", lambda x, other: op("expand")(x, shape_of(other)))
same("broadcast_tensors", lambda tensors: list(np.broadcast_arrays(*tensors)))


@aten("atleast_1d", "atleast_2d", "atleast_3d")
def _atleast(c: Call, x: Any) -> Any:
    return getattr(np, c.name)(x)


# -- parts -----------------------------------------------------------------------------------------
@aten("slice", "slice_copy")
def _slice(c: Call, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Bounds are clipped to the axis, as in Python; the largest int stands for its end."""
    if type(end) is int and end >= 1 << 62:
        end = None
    if (start is None or (type(start) is int and start == 0)) and end is None and step == 1:
        return x
    named = any(isinstance(bound, NamedDim) for bound in (start, end))
    x = c.run.importer.as_proxy(x) if named else x
    return x[along(x, dim, slice(start, end, step))]


@aten("select", "select_copy")
def _select(c: Call, x: Any, dim: int, index: Any) -> Any:
    return x[along(x, dim, index)]


@aten("narrow", "narrow_copy")
def _narrow(c: Call, x: Any, dim: int, start: Any, length: Any) -> Any:
    return x[along(x, dim, slice(start, start + length))]


@aten("split", "split_copy", "unsafe_split", "split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes")
def _split(c: Call, x: Any, size: Any, dim: int = 0) -> Any:
    axis = axis_of(x, dim)
    if isinstance(size, (list, tuple)):
        sizes = list(size)
    else:
        whole = shape_of(x)[axis]
        count = len(c.value)
        sizes = [size] * (count - 1)
        sizes.append(whole - size * (count - 1))
    if all(type(s) is int for s in sizes):
        return list(op("split")(x, tuple(sizes), axis))
    parts, start = [], 0
    for length in sizes:
        parts.append(_narrow(c, x, axis, start, length))
        start = start + length
    return parts


@aten("chunk", "unsafe_chunk", "tensor_split")
def _chunk(c: Call, x: Any, chunks: Any, dim: int = 0) -> Any:
    axis = axis_of(x, dim)
    whole = shape_of(x)[axis]
    is_named = isinstance(chunks, int) and isinstance(whole, NamedDim)
    if is_named and shapes.remainder(shapes.normalize(whole), chunks) == 0:
        return list(op("split")(x, (whole // chunks,) * chunks, axis))
    return _split(c, x, [c.run.size(v.shape[axis]) for v in c.value], axis)


@aten("hsplit", "vsplit", "dsplit")
def _hsplit(c: Call, x: Any, parts: Any) -> Any:
    axis = "vhd".index(c.name[0]) if rank_of(x) > 1 else 0
    return list(op("split")(x, tuple(int(v.shape[axis]) for v in c.value), axis))


@aten("unbind", "unbind_copy")
def _unbind(c: Call, x: Any, dim: int = 0) -> Any:
    return [_select(c, x, dim, i) for i in range(shape_of(x)[axis_of(x, dim)])]


same("diagonal diagonal_copy", lambda x, offset=0, dim1=0, dim2=1: np.diagonal(x, offset, dim1, dim2))
same("linalg_diagonal", lambda x, offset=0, dim1=-2, dim2=-1: np.diagonal(x, offset, dim1, dim2))
same("kron", np.kron)
same("diag", lambda x, diagonal=0: np.diag(x, diagonal))


@aten("diag_embed")
def _diag_embed(c: Call, x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    if (offset, dim1, dim2) != (0, -2, -1):
        raise c.refuse("an offset, or other axes than the last")
    size = shape_of(x)[-1]
    return op("where")(identity((size, size), dtypes.bool_), x[..., None], op("cast")(np.zeros((), np.int8), c.dtype))


@aten("tril", "triu")
def _tril(c: Call, x: Any, diagonal: int = 0) -> Any:
    return op(c.name)(x, diagonal)


@aten("unfold", "unfold_copy")
def _unfold(c: Call, x: Any, dimension: int, size: int, step: int) -> Any:
    return op("unfold")(x, axis_of(x, dimension), size, step)


# -- joined and repeated ---------------------------------------------------------------------------
@aten("cat", "concat", "concatenate")
def _cat(c: Call, tensors: Any, dim: int = 0) -> Any:
    kept = [cast(v, c.dtype) for v in tensors if not same_sizes(shape_of(v), (0,)) or c.rank == 1]
    return op("concat")(kept, dim % c.rank) if len(kept) > 1 else kept[0]


@aten("stack", "_stack")
def _stack_of(c: Call, tensors: Any, dim: int = 0) -> Any:
    return op("stack")([cast(v, c.dtype) for v in tensors], dim % c.rank)


@aten("hstack", "vstack", "dstack", "column_stack")
def _hstack(c: Call, tensors: Any) -> Any:
    return getattr(np, c.name)([cast(v, c.dtype) for v in tensors])


@aten("repeat", "tile")
def _repeat(c: Call, x: Any, repeats: Any) -> Any:
    if all(type(r) is int and r == 1 for r in repeats) and len(repeats) <= rank_of(x):
        return x
    shape, wide = (1,) * (len(repeats) - rank_of(x)) + shape_of(x), len(repeats)
    repeats = (1,) * (len(shape) - wide) + tuple(repeats)
    apart = [s for r, size in zip(repeats, shape) for s in (1, size)]
    full = [s for r, size in zip(repeats, shape) for s in (r, size)]
    repeated = op("expand")(_reshape(x, apart), tuple(full))
    return _reshape(repeated, [r * size for r, size in zip(repeats, shape)])


@aten("repeat_interleave.self_int")
def _repeat_interleave(c: Call, x: Any, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Any:
    if dim is None:
        x, dim = _reshape(x, (-1,)), 0
    axis, shape = axis_of(x, dim), shape_of(x)
    wide = op("expand")(op("unsqueeze")(x, axis + 1), (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return _reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


@aten("repeat_interleave.Tensor")
def _repeat_numbers(c: Call, repeats: Any, *, output_size: int | None = None) -> Any:
    """The numbers from 0 on, each repeated as often as its element of ``repeats`` tells."""
    if output_size is not None and not is_traced(output_size):
        return op("searchsorted")(op("cumsum")(repeats, 0), np.arange(output_size), "right")
    if c.bounds[1] is not None:
        total = bounded(op("sum")(cast(repeats, dtypes.int64)), c.bounds)
        return sized((total,), lambda n: op("searchsorted")(op("cumsum")(repeats, 0), np.arange(*n), "right"))
    numbers = c.run.importer.as_proxy(op("arange")(0, shape_of(repeats)[0], 1, dtypes.int64))
    try:
        return np.repeat(numbers, repeats, axis=0)
    except TraceError as error:
        raise c.refuse(
            "how many elements there can be is not known: give counts with a bound, counts.clamp(max=4), or check "
            "their number in the model, torch._check(result.shape[0] <= 100)"
        ) from error


@aten("flip")
def _flip(c: Call, x: Any, dims: Any) -> Any:
    for dim in dims:
        x = op("flip")(x, axis_of(x, dim))
    return x


@aten("fliplr", "flipud")
def _fliplr(c: Call, x: Any) -> Any:
    return op("flip")(x, 1 if "lr" in c.name else 0)


@aten("rot90")
def _rot90(c: Call, x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    return np.rot90(x, k, tuple(dims))


@aten("roll")
def _roll(c: Call, x: Any, shifts: Any, dims: Any = ()) -> Any:
    shifts = [shifts] if is_number(shifts) else list(shifts)
    if not dims and dims != 0:
        return _reshape(op("roll")(_reshape(x, (-1,)), shifts[0], 0), shape_of(x))
    for shift, dim in zip(shifts, [dims] if is_number(dims) else dims):
        x = op("roll")(x, shift, axis_of(x, dim))
    return x


# -- padding ---------------------------------------------------------------------------------------
@aten("pad")
def _padded(c: Call, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """``pad`` has pairs for the last axis first; negative paddings crop."""
    pairs = [(0, 0)] * (rank_of(x) - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    for axis, (low, high) in enumerate(pairs):
        below, above = type(low) is int and low < 0, type(high) is int and high < 0
        if below or above:
            index = slice(-low if below else None, high if above else None)
            x = x[along(x, axis, index)]
            pairs[axis] = (0 if below else low, 0 if above else high)
    if all(type(n) is int and n == 0 for p in pairs for n in p):
        return x
    if mode == "constant":
        return op("pad")(x, tuple(pairs), 0 if value is None else value)
    names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in names:
        raise c.refuse(f"the mode {mode}")
    return np.pad(x, pairs, mode=names[mode])  # type: ignore[call-overload]


aten("constant_pad_nd")(lambda c, x, pad, value=0: _padded(c, x, pad, "constant", value))
aten("_pad_circular")(lambda c, x, pad: _padded(c, x, pad, "circular"))
for _name, _mode in (("reflection", "reflect"), ("replication", "replicate")):
    for _dims in (1, 2, 3):
        aten(f"{_name}_pad{_dims}d")(lambda c, x, pad, _mode=_mode: _padded(c, x, pad, _mode))


# -- pixels ----------------------------------------------------------------------------------------
same("pixel_shuffle", F.pixel_shuffle)


@aten("pixel_unshuffle")
def _pixel_unshuffle(c: Call, x: Any, factor: int) -> Any:
    *lead, channels, height, width = shape_of(x)
    apart = _reshape(x, (*lead, channels, height // factor, factor, width // factor, factor))
    n = len(lead)
    moved = op("permute")(apart, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return _reshape(moved, (*lead, channels * factor * factor, height // factor, width // factor))


@aten("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(c: Call, x: Any, groups: int) -> Any:
    batch, channels, *rest = shape_of(x)
    apart = _reshape(x, (batch, groups, channels // groups, *rest))
    moved = op("permute")(apart, (0, 2, 1, *range(3, rank_of(apart))))
    return _reshape(moved, shape_of(x))


@aten("im2col")
def _im2col(c: Call, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The windows of an image as columns [B, C * kh * kw, L]."""
    x = _padded(c, x, (padding[1], padding[1], padding[0], padding[0]))
    *lead, channels, height, width = shape_of(x)
    rows = (height - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    parts = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            across = slice(left, left + (columns - 1) * stride[1] + 1, stride[1])
            parts.append(x[..., top : top + (rows - 1) * stride[0] + 1 : stride[0], across])
    joined = op("stack")(parts, len(lead) + 1)
    return _reshape(joined, (*lead, channels * len(parts), rows * columns))


@aten("col2im")
def _col2im(c: Call, x: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """The sum of columns [B, C * kh * kw, L] at the places of their windows in an image [B, C, H, W]."""
    lead, (joined, _) = shape_of(x)[:-2], shape_of(x)[-2:]
    wide = [n + 2 * p for n, p in zip(size, padding)]
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(wide, kernel, dilation, stride)]
    channels, (rows, columns) = joined // (kernel[0] * kernel[1]), counts
    apart = _reshape(x, (*lead, channels, kernel[0], kernel[1], rows, columns))
    total: Any = None
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = apart[..., i, j, :, :]
            for axis, first, step in ((-2, i * dilation[0], stride[0]), (-1, j * dilation[1], stride[1])):
                part = _spread(part, rank_of(part) + axis, first, step, wide[axis])
            total = part if total is None else total + part
    return total[..., padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]


def _spread(x: Any, axis: int, first: int, step: int, size: int) -> Any:
    """An axis of ``size`` elements, of which every ``step``-th one from ``first`` on is an element of x, and the
    others are 0."""
    shape = list(shape_of(x))
    pairs = [(0, 0)] * len(shape)
    if step > 1:
        apart = op("pad")(op("unsqueeze")(x, axis + 1), (*pairs[: axis + 1], (0, step - 1), *pairs[axis + 1 :]))
        x = _reshape(apart, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
        end = shape[axis] * step - (step - 1)
        x = x[(slice(None),) * axis + (slice(0, end),)]
        shape[axis] = end
    pairs[axis] = (first, size - first - shape[axis])
    return op("pad")(x, tuple(pairs))


# -- complex numbers -------------------------------------------------------------------------------
same("view_as_real view_as_real_copy", lambda x: op("stack")([op("real")(x), op("imag")(x)], rank_of(x)))
same("view_as_complex view_as_complex_copy", lambda x: op("complex")(x[..., 0], x[..., 1]))
same("polar", lambda x, angle: op("complex")(x * op("cos")(angle), x * op("sin")(angle)))


@aten("fft_rfft", "fft_irfft", "fft_fft", "fft_ifft")
def _fft(c: Call, x: Any, n: Any = None, dim: int = -1, norm: Any = None) -> Any:
    name = c.name.removeprefix("fft_")
    return cast(getattr(np.fft, name)(x, n, dim, norm), c.dtype)


@aten("fft_rfft2", "fft_irfft2", "fft_fft2", "fft_ifft2", "fft_rfftn", "fft_irfftn", "fft_fftn", "fft_ifftn")
def _fft2(c: Call, x: Any, s: Any = None, dim: Any = None, norm: Any = None) -> Any:
    name = c.name.removeprefix("fft_")
    axes = tuple(dim) if dim is not None else (-2, -1) if name.endswith("2") else None
    return cast(getattr(np.fft, name)(x, None if s is None else tuple(s), axes, norm), c.dtype)


_NORMS: Any = ("backward", "ortho", "forward")


@aten("_fft_r2c", "_fft_c2c")
def _fft_parts(c: Call, x: Any, dim: Any, norm: int, forward: bool = True) -> Any:
    """For _fft_r2c, ``forward`` means that the redundant half is left out."""
    if c.name == "_fft_r2c":
        transform = np.fft.rfftn if forward else np.fft.fftn
    else:
        transform, norm = (np.fft.fftn, norm) if forward else (np.fft.ifftn, 2 - norm)
    return cast(transform(x, None, tuple(dim), _NORMS[norm]), c.dtype)


@aten("_fft_c2r")
def _fft_c2r(c: Call, x: Any, dim: Any, norm: int, last: Any) -> Any:
    sizes = [shape_of(x)[axis] for axis in dim[:-1]]
    return cast(np.fft.irfftn(x, (*sizes, last), tuple(dim), _NORMS[2 - norm]), c.dtype)


@aten("cartesian_prod")
def _cartesian_prod(c: Call, tensors: Any) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    return np.stack([v.reshape(-1) for v in np.meshgrid(*tensors, indexing="ij")], -1)


@aten("fft_fftshift", "fft_ifftshift")
def _fftshift(c: Call, x: Any, dim: Any = None) -> Any:
    return getattr(np.fft, c.name.removeprefix("fft_"))(x, dim)
