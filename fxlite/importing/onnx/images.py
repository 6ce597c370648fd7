"""ONNX's ops that resample images: resizing, sampling at positions, regions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.state import is_traced
from fxlite.importing.narrow import cast
from fxlite.importing.onnx.products import window
from fxlite.importing.onnx.registry import Call, axis_of, onnx_op, rank, shape
from fxlite.types.shapes import NamedDim


@onnx_op("Resize", sizes=(1, 2, 3))
def resize(n: Call, x: Any, *given: Any) -> Any:
    """Axes are resized one after another. Before opset 11 the scales are the second input, and positions are
    asymmetric; the nearest element is the previous one, or for an axis that shrinks, the next one."""
    padded = [*given, None, None, None]
    if n.opset < 11:
        return _resized(n, x, padded[0], None, "asymmetric", "", list(range(rank(x))))
    roi, scales, sizes = padded[:3]
    along = [axis_of(a, rank(x)) for a in n["axes"]] if n["axes"] else list(range(rank(x)))
    coordinates = n["coordinate_transformation_mode"]
    if coordinates == "tf_crop_and_resize":
        return _cropped(n, x, n.known(roi, "roi").reshape(-1), _none(scales), _none(sizes), along)
    return _resized(n, x, _none(scales), _none(sizes), coordinates, n["nearest_mode"], along)


def _none(value: Any) -> Any:
    """None for an input that is left out, or empty, which means the same."""
    return None if value is None or (not is_traced(value) and not np.asarray(value).size) else value


@onnx_op("Upsample", sizes=(1,))
def upsample(n: Call, x: Any, scales: Any = None) -> Any:
    held = np.asarray(n["scales"], np.float32) if scales is None else scales
    return _resized(n, x, held, None, "asymmetric", "floor", list(range(rank(x))))


def _resized(n: Call, x: Any, scales: Any, sizes: Any, coordinates: str, rounding: str, along: Sequence[int]) -> Any:
    mode = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}[n["mode"] or "nearest"]
    known = shape(x)
    if sizes is not None:
        wanted = n.sizes(sizes, "the sizes")
        factors: list[Any] = [None] * len(wanted)
        policy = n["keep_aspect_ratio_policy"] or "stretch"
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
            factor = pick(w / known[a] for w, a in zip(wanted, along))
            wanted = [math.floor(known[a] * factor + 0.5) for a in along]
            factors = [factor] * len(wanted)
    else:
        factors = [float(f) for f in n.known(scales, "the scales").reshape(-1)]
        wanted = [_scaled(n, known[a], f) for a, f in zip(along, factors)]
    whole = np.dtype(x.dtype).kind in "iub" and mode != "nearest"
    kind = x.dtype
    x = cast(x, np.float32) if whole else x
    (x,) = n.proxies((x,))
    options: dict[str, Any] = {"mode": mode, "coordinates": coordinates, "rounding": rounding}
    if mode == "cubic":
        options["coefficient"] = -0.75 if n["cubic_coeff_a"] is None else n["cubic_coeff_a"]
    options["antialias"] = bool(n["antialias"]) and mode != "nearest"
    options["exclude_outside"] = bool(n["exclude_outside"])
    for axis, size, factor in zip(along, wanted, factors):
        same = type(size) is type(known[axis]) and str(size) == str(known[axis])
        if same and factor in (None, 1):
            continue
        own = options if rounding else {**options, "rounding": "ceil" if factor < 1 else "floor"}
        if (
            coordinates == "align_corners"
            and factor is not None
            and size != known[axis] * factor
            and n.walk.producer != "pytorch"
        ):
            # according to ONNX, the corners are those of the size before rounding; torch's exporter and ONNX Runtime
            # use those of the result
            own, factor = {**options, "coordinates": "asymmetric"}, (factor * known[axis] - 1) / (known[axis] - 1)
        x = ops.resize(x, size, axis, scale=factor, **own)
    return cast(np.round(x), kind) if whole else x


#: Whether the upper of two elements is the nearest to a position between them.
_UP: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda weight: weight > 0.5,
    "round_prefer_ceil": lambda weight: weight >= 0.5,
    "floor": np.zeros_like,
    "ceil": lambda weight: weight > 0,
}


def _cropped(n: Call, x: Any, roi: Any, scales: Any, sizes: Any, along: Sequence[int]) -> Any:
    """The region ``roi`` of the image (starts, then ends, as fractions of the axes), resized; points outside of the
    image have the ``extrapolation_value``."""
    if n["mode"] == "cubic":
        raise n.refuse("tf_crop_and_resize is not supported with mode cubic")
    if sizes is None:
        factors = n.known(scales, "the scales").reshape(-1)
        wanted = [math.floor(shape(x)[a] * (e - s) * f) for a, s, e, f in zip(along, roi, roi[len(along) :], factors)]
    else:
        wanted = n.numbers(sizes, "the sizes")
    (x,) = n.proxies((x,))
    for number, (axis, size) in enumerate(zip(along, wanted)):
        start, end, length = float(roi[number]), float(roi[number + len(along)]), shape(x)[axis]
        if isinstance(length, NamedDim):
            raise n.refuse(f"tf_crop_and_resize needs the size {length} as a number; give it in sizes=")
        if (start, end, size) == (0.0, 1.0, length):
            continue
        at = np.full(1, 0.5 * (start + end) * (length - 1))
        if size > 1:
            at = start * (length - 1) + np.arange(size) * (end - start) * (length - 1) / (size - 1)
        inside = ((at >= 0) & (at <= length - 1)).reshape(tuple(-1 if a == axis else 1 for a in range(rank(x))))
        held = np.clip(at, 0, length - 1)
        low = np.floor(held).astype(np.int64)
        weight = (held - low).astype(x.dtype).reshape(inside.shape)
        if n["mode"] == "nearest":
            weight = _UP[n["nearest_mode"]](weight).astype(x.dtype)
        lower, upper = np.take(x, low, axis=axis), np.take(x, np.minimum(low + 1, length - 1), axis=axis)
        found = lower * (1 - weight) + upper * weight
        x = np.where(inside, found, np.asarray(n["extrapolation_value"] or 0.0, x.dtype))
    return x


def _scaled(n: Call, size: Any, factor: float) -> Any:
    if isinstance(size, NamedDim):
        if factor == int(factor):
            return size * int(factor)
        if (1 / factor).is_integer():
            return size // int(1 / factor)
        raise n.refuse(f"the size {size} times {factor} has no name; give it as a number in sizes=")
    return math.floor(size * factor)


@onnx_op("GridSample")
def grid_sample(n: Call, x: Any, grid: Any) -> Any:
    modes = {"linear": "bilinear", "cubic": "bicubic", "bilinear": "bilinear", "bicubic": "bicubic"}
    mode = modes.get(n["mode"] or "linear", "nearest")
    options = {"padding_mode": n["padding_mode"], "align_corners": bool(n["align_corners"])}
    x, grid = n.proxies((x, grid))
    return ops.grid_sample(x, cast(grid, x.dtype), mode, **options)


@onnx_op("RoiAlign")
def roi_align(n: Call, x: Any, rois: Any, batches: Any) -> Any:
    """The mean (or largest) of bilinear samples in each cell of each region. The number of samples must be an
    attribute; it cannot depend on the regions."""
    ratio, rows, columns = n["sampling_ratio"], n["output_height"], n["output_width"]
    x, rois, batches = n.proxies((x, rois, batches))
    height, width = shape(x)[2:]
    half = n["coordinate_transformation_mode"] != "output_half_pixel" and n.opset >= 16
    if ratio <= 0:
        raise n.refuse("sampling_ratio 0 makes the number of samples depend on the regions; give a number")
    shift = 0.5 if half else 0.0
    ends = rois * n["spatial_scale"] - shift
    x0, y0, x1, y1 = (ends[:, k] for k in range(4))
    wide, tall = x1 - x0, y1 - y0
    if not half:
        wide, tall = np.maximum(wide, np.float32(1)), np.maximum(tall, np.float32(1))

    def positions(start: Any, extent: Any, cells: int) -> Any:
        steps = (np.arange(cells * ratio, dtype=np.float32) + np.float32(0.5)) / np.float32(ratio * cells)
        return np.expand_dims(start, 1) + np.expand_dims(extent, 1) * steps

    ys, xs = positions(y0, tall, rows), positions(x0, wide, columns)
    planes = np.take(x, batches.astype(np.int64), axis=0)
    low_y, high_y, wy = _corners(ys, height)
    low_x, high_x, wx = _corners(xs, width)

    def at(iy: Any, ix: Any) -> Any:
        count, channels = shape(rois)[0], shape(x)[1]
        flat = planes.reshape((count, channels, height * width))
        index = (np.expand_dims(iy, 2) * width + np.expand_dims(ix, 1)).reshape((count, 1, -1))
        found = ops.gather(flat, np.broadcast_to(index, (count, channels, shape(index)[2])), 2)
        return found.reshape((count, channels, rows * ratio, columns * ratio))

    def weight(one: Any, other: Any) -> Any:
        return np.expand_dims(np.expand_dims(one, 2) * np.expand_dims(other, 1), 1)

    parts = [
        weight(1 - wy[0], 1 - wx[0]) * at(low_y, low_x),
        weight(1 - wy[0], wx[0]) * at(low_y, high_x),
        weight(wy[0], 1 - wx[0]) * at(high_y, low_x),
        weight(wy[0], wx[0]) * at(high_y, high_x),
    ]
    inside = weight(wy[1], wx[1])
    shaped = (shape(rois)[0], shape(x)[1], rows, ratio, columns, ratio)
    if n["mode"] == "max":
        best = parts[0]
        for part in parts[1:]:
            best = np.maximum(best, part)
        return np.max((best * inside).reshape(shaped), axis=(3, 5))
    return np.mean(((parts[0] + parts[1] + parts[2] + parts[3]) * inside).reshape(shaped), axis=(3, 5))


def _corners(positions: Any, size: Any) -> tuple[Any, Any, tuple[Any, Any]]:
    """The elements around positions, with the weight of the upper one, and 1 where they are inside."""
    outside = np.logical_or(
        np.less(positions, np.float32(-1)), np.greater(positions, cast(np.asarray(size), np.float32))
    )
    held = np.maximum(positions, np.float32(0))
    low = np.minimum(np.floor(held).astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    ratio = np.where(np.greater_equal(low, size - 1), np.float32(0), held - low.astype(np.float32))
    return low, high, (ratio, cast(np.logical_not(outside), np.float32))


@onnx_op("DeformConv", traced=True)
def deform_conv(n: Call, x: Any, weight: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A convolution that reads each element of a window at its own position: samples of the image, followed by one
    product."""
    batch, channels, height, width = shape(x)
    outs, per_group, kh, kw = shape(weight)
    strides, dilations, pads = window(n, x, [kh, kw])
    rows, columns = shape(offset)[2:]
    groups, offset_groups = n["group"] or 1, n["offset_group"] or 1
    moved = offset.reshape((batch, offset_groups, kh * kw, 2, rows, columns))
    ky, kx = np.repeat(np.arange(kh), kw) * dilations[0], np.tile(np.arange(kw), kh) * dilations[1]
    base_y = (np.arange(rows) * strides[0] - pads[0][0]).reshape((1, rows, 1)) + ky.reshape((-1, 1, 1))
    base_x = (np.arange(columns) * strides[1] - pads[1][0]).reshape((1, 1, columns)) + kx.reshape((-1, 1, 1))
    y, at_x = moved[:, :, :, 0] + base_y.astype(np.float32), moved[:, :, :, 1] + base_x.astype(np.float32)
    grid = np.stack([at_x * np.float32(2 / max(width - 1, 1)) - 1, y * np.float32(2 / max(height - 1, 1)) - 1], axis=-1)
    each = channels // offset_groups
    image = x.reshape((batch * offset_groups, each, height, width))
    grid = grid.reshape((batch * offset_groups, kh * kw * rows, columns, 2))
    samples = ops.grid_sample(image, grid, "bilinear", align_corners=True)
    samples = samples.reshape((batch, offset_groups, each, kh * kw, rows, columns))
    if mask is not None:
        samples = samples * mask.reshape((batch, offset_groups, 1, kh * kw, rows, columns))
    samples = samples.reshape((batch, groups, per_group * kh * kw, rows * columns))
    kernel = weight.reshape((1, groups, outs // groups, per_group * kh * kw))
    found = np.matmul(kernel, samples).reshape((batch, outs, rows, columns))
    return found if bias is None else found + bias.reshape((-1, 1, 1))


@onnx_op(
    "NonMaxSuppression", partly="boxes and scores must be known while importing: the result's size follows from them"
)
def non_max_suppression(
    n: Call, boxes: Any, scores: Any, most: Any = None, overlap: Any = None, lowest: Any = None
) -> Any:
    held, rating = n.known(boxes, "the boxes"), n.known(scores, "the scores")
    limit = 0 if most is None else n.numbers(most, "the number of boxes")[0]
    threshold = 0.0 if overlap is None else float(n.known(overlap, "the overlap").reshape(-1)[0])
    least = None if lowest is None else float(n.known(lowest, "the lowest score").reshape(-1)[0])
    if n["center_point_box"]:
        centre, size = held[..., :2], held[..., 2:]
        held = np.concatenate([centre - size / 2, centre + size / 2], axis=-1)
    low = np.minimum(held[..., :2], held[..., 2:])
    high = np.maximum(held[..., :2], held[..., 2:])
    found: list[tuple[int, int, int]] = []
    for b in range(rating.shape[0]):
        area = np.prod(high[b] - low[b], axis=-1)
        for c in range(rating.shape[1]):
            kept: list[int] = []
            for i in np.argsort(-rating[b, c], kind="stable"):
                if len(kept) >= limit or (least is not None and rating[b, c, i] <= least):
                    break
                size = np.minimum(high[b, i], high[b, kept]) - np.maximum(low[b, i], low[b, kept])
                shared = np.prod(np.maximum(size, 0), axis=-1)
                if not (shared > threshold * (area[i] + area[kept] - shared)).any():
                    kept.append(int(i))
            found += [(b, c, i) for i in kept]
    return np.asarray(found, np.int64).reshape((-1, 3))


@onnx_op("AffineGrid", sizes=(1,))
def affine_grid(n: Call, theta: Any, size: Any) -> Any:
    """The positions of the elements of images, transformed by a matrix for each image. (ONNX's own definition of the op
    fails for a single image.)"""
    sizes = n.sizes(size, "the image's shape")[2:]
    if any(isinstance(length, NamedDim) for length in sizes):
        return NotImplemented
    steps = [np.arange(length) * 2.0 for length in sizes]
    places = [s / max(len(s) - 1, 1) - 1 if n["align_corners"] else (s + 1) / len(s) - 1 for s in steps]
    whole = np.stack([*np.meshgrid(*places, indexing="ij")[::-1], np.ones(sizes)], axis=-1)
    flat = whole.reshape(-1, len(sizes) + 1).astype(theta.dtype)
    (theta,) = n.proxies((theta,))
    return np.matmul(n.proxy(flat), np.swapaxes(theta, -1, -2)).reshape((shape(theta)[0], *sizes, len(sizes)))
