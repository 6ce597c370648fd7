"""Quantized programs at the ends of float32, for :mod:`tests.fuzz.quantized`: scales found in all
zeros, in subnormal numbers, in 1e38, beside one huge outlier, in infinities and NaN; epilogues of
such scales; fake quantization; layers of integer weights; whole models that were quantized on such
data.

In: a NumPy generator. Out: a :class:`Program`. All but products in float are the same bits
everywhere; those are finite where NumPy's are, and near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn, ops
from fxlite.passes import quantize as q
from fxlite.types.agreement import leaves
from tests.fuzz.quantized_programs import Array, Compare, Program, extremes, pick, rounding, typed

#: Powers of ten that values are about.
MAGNITUDES = (38.0, 37.0, 30.0, 19.0, 0.0, -19.0, -30.0, -38.0, -40.0, -44.0)


def near(bounds: Callable[[Array], Array]) -> Compare:
    """What is wrong with sums in float. ``bounds`` says how large the sum of the magnitudes of all
    terms may be, of the input, with the result's axes or axes of size 1. Results are off by 1e-5 of
    it at most, and finite where it is; where no term is finite, results are finite in the same
    places; and where it overflows, terms do so in an order that is open."""

    def compare(inputs: Sequence[Array], expected: Any, actual: Any) -> str | None:
        with np.errstate(all="ignore"):
            bound = bounds(inputs[0].astype(np.float64))
            for e, a in zip(leaves(expected), leaves(actual), strict=True):
                if (e.shape, e.dtype) != (a.shape, a.dtype):
                    return f"{e.dtype}{e.shape} and {a.dtype}{a.shape}"
                wide = np.broadcast_to(bound, e.shape)
                off = np.abs(e.astype(np.float64) - a.astype(np.float64))
                wrong = (wide < 3e38) & ~(off <= 1e-5 * wide + 1e-44)
                wrong |= ~np.isfinite(wide) & (np.isfinite(e) != np.isfinite(a))
                if wrong.any():
                    return f"{e[wrong][:8]} and {a[wrong][:8]}, terms of {wide[wrong][:8]}"
        return None

    return compare


def _scale(rng: np.random.Generator) -> Program:
    """dynamic_scale, and what is quantized by it."""
    axis, qmax = pick(rng, -1, (0,), None, (0, 1)), pick(rng, 127, 255, 7)
    limits = {"dtype": "u8"} if qmax == 255 else {"qmin": -qmax, "qmax": qmax}

    def program(extreme: Any) -> Any:
        own = ops.dynamic_scale(extreme, axis=axis, keepdims=True, qmax=qmax)
        integers = ops.quantize(extreme, own, **limits)
        return own, integers, ops.dequantize(integers, own)

    kind = pick(rng, "f32", "f32", "f16", "bf16") + pick(rng, "[B,C]", "[B,5]")
    return typed(f"dynamic_scale axis {axis}, qmax {qmax}", program, extreme=kind)


def _fake(rng: np.random.Generator) -> Program:
    attributes, zero = rounding(rng), int(rng.integers(-9, 99))

    def program(extreme: Any, extreme_scale: Any) -> Any:
        return ops.fake_quantize(extreme, extreme_scale, zero, **attributes)

    return typed(
        f"fake_quantize zero {zero}, {attributes}",
        program,
        extreme="f32[B,C]",
        extreme_scale="f32" + pick(rng, "[]", "[C]"),
    )


def _requantize(rng: np.random.Generator) -> Program:
    attributes, zero = rounding(rng), int(rng.integers(-9, 99))
    relu = bool(rng.integers(2))

    def program(sums: Any, extreme_scale: Any, extreme_next: Any) -> Any:
        y = ops.dequantize(sums, extreme_scale)
        y = ops.relu(y) if relu else y
        again = ops.quantize(y, extreme_next, zero, **attributes)
        return y, ops.requantize(sums, extreme_scale, zero, **attributes), again

    return typed(
        f"requantize zero {zero}, {attributes}, relu={relu}",
        program,
        sums="i32[B,C]",
        extreme_scale="f32[C]",
        extreme_next="f32[]",
    )


def _layer(rng: np.random.Generator) -> Program:
    """Integer products between scales that are found, or given."""
    depth, columns = int(rng.choice((1, 3, 16, 33, 65))), int(rng.choice((1, 5, 16, 33)))
    weight = rng.integers(-127, 128, (columns, depth)).astype(np.int8)
    bias = extremes(rng, (columns,)) if rng.random() < 0.5 else None
    is_dynamic = bool(rng.integers(2))

    def program(extreme: Any, extreme_weights: Any, extreme_own: Any) -> Any:
        own = extreme_own
        if is_dynamic:
            own = ops.dynamic_scale(extreme, axis=-1, keepdims=True)
        sums = ops.int_linear(ops.quantize(extreme, own, qmin=-127), weight)
        y = ops.dequantize(sums, own * extreme_weights)
        return y if bias is None else y + bias

    return typed(
        f"int_linear [{columns},{depth}], dynamic={is_dynamic}, bias={bias is not None}",
        program,
        extreme=f"f32[B,{depth}]",
        extreme_weights=f"f32[{columns}]",
        extreme_own="f32[]",
    )


def _weight_only(rng: np.random.Generator) -> Program:
    """Integer weights beside numbers in float."""
    depth, columns = int(rng.choice((1, 3, 16, 33, 130))), int(rng.choice((1, 5, 16, 33)))
    bits, group = pick(rng, 8, 4), pick(rng, None, 32)
    half = 1 << (bits - 1)
    integers = rng.integers(1 - half, half, (columns, depth)).astype(np.int8)
    odd = np.pad(integers, ((0, 0), (0, depth % 2)))
    weight = integers if bits == 8 else np.asarray(ops.pack_int4(odd))
    groups = () if group is None else (-(-depth // group),)
    scale = np.clip(extremes(rng, (columns, *groups), special=False), -2.6e36, 2.6e36)

    def program(extreme: Any) -> Any:
        return ops.linear_weight_only(extreme, weight, scale, bits=bits, group_size=group)

    each = scale[:, None] if group is None else np.repeat(scale, group, axis=1)[:, :depth]
    sizes = np.abs(integers.astype(np.float64) * each).T
    return typed(
        f"linear_weight_only [{columns},{depth}], {bits} bits, groups of {group}",
        program,
        compare=near(lambda x: np.abs(x) @ sizes),
        extreme=f"f32[B,{depth}]",
    )


SCHEMES: dict[str, Callable[[], q.QConfig]] = {
    "static_int8": q.static_int8,
    "static minmax": lambda: q.static_int8("minmax"),
    "static i8": lambda: q.static_int8("minmax", activation="i8"),
    "dynamic_int8": q.dynamic_int8,
    "weight_only_int8": q.weight_only_int8,
    "weight_only_int4": q.weight_only_int4,
}


def _model(rng: np.random.Generator) -> Program:
    """A model whose weights and data are of any magnitude, quantized on finite data."""
    scheme = pick(rng, *SCHEMES)
    of_weights, of_data = (float(rng.choice(MAGNITUDES)) for _ in range(2))
    of_data = min(of_data, 36 - of_weights)  # what overflows has no range
    nn.init.manual_seed(int(rng.integers(2**31)))
    is_image = bool(rng.random() < 0.4)
    first: nn.Module = nn.Conv2d(3, 5, 3, padding=1) if is_image else nn.Linear(16, 24)
    second: nn.Module = nn.Conv2d(5, 4, 1) if is_image else nn.Linear(24, 7)
    model = nn.Sequential(first, nn.ReLU(), second).eval()
    shape = "3,6,6" if is_image else "16"
    sizes = tuple(int(n) for n in shape.split(","))
    with np.errstate(all="ignore"):
        for parameter in model.parameters():
            values = parameter.data * np.float32(10.0 ** (of_weights / 2))
            parameter.data[...] = np.nan_to_num(values)
        data = (rng.standard_normal((4, *sizes)) * 10.0**of_data).astype(np.float32)
        data = np.clip(data, -3.4e38, 3.4e38)
        mapping = q.QConfigMapping().set_global(SCHEMES[scheme]())
        traced = fx.symbolic_trace(model, f"f32[B,{shape}]")
        quantized = q.quantize(traced, mapping, [data])
    first_size, second_size = (
        np.abs(m.weight.data.astype(np.float64)).reshape(len(m.weight), -1).sum(1).max()
        + np.abs(m.bias.data.astype(np.float64)).max()
        for m in (first, second)
    )

    def bounds(x: Array) -> Array:
        largest = np.abs(x).max(axis=tuple(range(1, x.ndim)), keepdims=True, initial=1.0)
        inner = 1.2 * largest * first_size
        inner = np.where(inner < 3e38, inner, 3.3e38)  # also of what is not finite
        return np.maximum(inner, 1.2 * inner * second_size)

    text = f"{scheme}, weights of 1e{of_weights / 2}, data of 1e{of_data}, {model}"
    compare = near(bounds) if "weight_only" in scheme else None
    return typed(text, quantized, compare=compare, extreme=f"f32[B,{shape}]")


EXTREMES = (_scale, _fake, _requantize, _layer, _weight_only, _model)
