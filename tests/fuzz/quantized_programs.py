"""Random programs of quantized values, and inputs that try their edges.

In: a NumPy generator. Out: a :class:`Program`, a function of arrays whose types have named sizes so
that one build serves many cases, and :func:`draw_inputs`, one case. What is drawn favours what
quantization can get wrong: halves, NaN, infinities, scales that are denormal, huge, zero or not a
number, accumulators that saturate or do not fit float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType, parse_type

Array = np.ndarray[Any, Any]

#: Sizes that named dims take: one, odd ones, and those around the lanes of vectors.
SIZES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 64, 65)

_INT32 = (-(2**31), 2**31 - 1)
_SCALES = (0.0, -0.0, np.inf, np.nan, 2.0**-149, 2.0**-127, 2.0**-126, 3.4e38, -0.5, 1.0)
_FLOATS = (0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-38)
_SUMS = (0, *_INT32, 2**24 - 1, 2**24 + 1, -(2**24) - 1, 2**24 + 3, 2**30 + 63, 2**30 + 65)


#: Of inputs, results expected and results: what is wrong, or None.
Compare = Callable[[Sequence[Array], Any, Any], str | None]


@dataclass(frozen=True)
class Program:
    """``function`` takes arrays of ``types``, in this order; ``text`` says what it computes.
    ``sizes`` are those that a named size takes, else :data:`SIZES`; with a ``tolerance`` numbers
    may differ by as much; ``compare`` says what is wrong with results that are not to be equal."""

    text: str
    function: Callable[..., Any]
    types: Mapping[str, TensorType]
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tolerance: float = 0.0
    compare: Compare | None = None


# -- inputs ----------------------------------------------------------------------------------------
def draw_inputs(rng: np.random.Generator, program: Program) -> list[Array]:
    """Arrays for one case: sizes, and the values that each input's name stands for."""
    names = sorted(shapes.names([t.shape for t in program.types.values()]))
    dims = {name: int(rng.choice(program.sizes.get(name, SIZES))) for name in names}
    size = float(10.0 ** rng.uniform(-3, 1) if rng.random() < 0.5 else 2.0 ** rng.integers(-9, 4))
    return [_draw(rng, n, t.substitute(dims), size) for n, t in program.types.items()]


def _draw(rng: np.random.Generator, name: str, type: TensorType, size: float) -> Array:
    shape, dtype = type.shape, type.dtype.numpy
    if name.startswith("extreme"):
        with np.errstate(over="ignore"):  # in f16
            return np.asarray(extremes(rng, shape, positive=name != "extreme")).astype(dtype)
    if name.startswith("scale"):
        return np.asarray(_scales(rng, shape, size)).astype(dtype)
    if name.startswith("whole"):
        return rng.integers(-8, 9, shape).astype(dtype)
    if name.startswith("small"):
        return rng.uniform(-1, 1, shape).astype(dtype)
    if type.dtype.is_float:
        with np.errstate(over="ignore"):  # in f16
            return np.asarray(_floats(rng, shape, size)).astype(dtype)
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    if name.startswith("zero"):
        low, high = max(low, -128), min(high, 255)
    elif type.dtype.name == "i32" and rng.random() < 0.5:
        low, high = -40000, 40000
    drawn = rng.integers(low, high, shape, endpoint=True)
    if type.dtype.name == "i32" and not name.startswith("zero"):
        drawn = _some(rng, drawn, _SUMS)
    elif rng.random() < 0.2:  # the longest sums
        drawn = np.full(shape, rng.choice((low, high)))
    return np.asarray(drawn).astype(dtype)


def extremes(rng: np.random.Generator, shape: Any, special: bool = True, positive: bool = False) -> Array:
    """Values at the ends of float32: all zero, all subnormal, all huge, of all magnitudes, one that
    is larger than all others, and with ``special`` NaN and infinities among them."""
    kind = rng.random()
    size = rng.choice((38.0, 37.0, 30.0, 0.0, -30.0, -37.0, -38.0, -40.0, -44.0), ())
    if kind < 0.15:
        values = np.zeros(shape)
    elif kind < 0.5:
        values = rng.uniform(-3, 3, shape) * 10.0**size
    elif kind < 0.65:
        values = rng.uniform(-9, 9, shape) * 10.0 ** rng.uniform(-44, 37, shape)
    else:
        values = rng.standard_normal(shape) * 10.0 ** (size - 20)
        if values.size:
            values.flat[rng.integers(values.size)] = 3.4 * 10.0**size * rng.choice((-1, 1))
    values = np.asarray(np.clip(values, -3.4028235e38, 3.4028235e38))
    if special and rng.random() < 0.3 and values.size:
        chosen = rng.integers(values.size, size=1 + values.size // 50)
        values.flat[chosen] = rng.choice((np.nan, np.inf, -np.inf, -0.0, 1e-45), chosen.shape)
    return (np.abs(values) if positive else values).astype(np.float32)


def _scales(rng: np.random.Generator, shape: Any, size: float) -> Array:
    kind = rng.random()
    if kind < 0.3:  # with a power of two, halves are halves in float32
        return np.full(shape, size)
    if kind < 0.7:
        return np.asarray(size * rng.uniform(0.5, 2, shape))
    if kind < 0.9:
        return np.asarray(2.0 ** rng.uniform(-149, 128, shape))
    return np.asarray(rng.choice(_SCALES, shape))


def _floats(rng: np.random.Generator, shape: Any, size: float) -> Array:
    if rng.random() < 0.5:  # near and at the halves between integers
        values = (rng.integers(-150, 150, shape) + 0.5) * np.float32(size)
    else:
        values = rng.standard_normal(shape) * size * 10.0 ** rng.uniform(-1, 3)
    return _some(rng, values, _FLOATS)


def _some(rng: np.random.Generator, values: Any, edges: Any) -> Array:
    """A few of the values replaced by edges."""
    values = np.asarray(values)
    chosen = rng.random(values.shape) < rng.choice((0.0, 0.1, 0.5))
    return np.where(chosen, rng.choice(edges, values.shape), values)


# -- programs --------------------------------------------------------------------------------------
def typed(
    text: str,
    function: Callable[..., Any],
    sizes: Mapping[str, Sequence[int]] | None = None,
    tolerance: float = 0.0,
    compare: Compare | None = None,
    **types: str | None,
) -> Program:
    """A program of inputs whose ``types`` are given as text; those that are None are left out."""
    given = {n: parse_type(t) for n, t in types.items() if t is not None}
    text = f"{text}  ({', '.join(f'{n}: {t}' for n, t in given.items())})"
    return Program(text, function, given, sizes or {}, tolerance, compare)


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    """One of the choices."""
    return choices[int(rng.integers(len(choices)))]


def rounding(rng: np.random.Generator) -> dict[str, Any]:
    """Attributes of quantize and requantize."""
    dtype = pick(rng, "i8", "u8")
    low, high = (-128, 127) if dtype == "i8" else (0, 255)
    kind = rng.random()
    if kind < 0.5:
        return {"dtype": dtype}
    if kind < 0.7:
        return {"dtype": dtype, "qmin": low + 1}
    least = int(rng.integers(low, high))
    return {"dtype": dtype, "qmin": least, "qmax": int(rng.integers(least + 1, high + 1))}


#: Shapes of a value, and of scales and zero points that broadcast to it.
_SHAPES = {
    "[B]": ("[]", "[B]"),
    "[B,C]": ("[]", "[C]", "[B,1]", "[B,C]"),
    "[B,T,C]": ("[]", "[C]", "[B,T,1]", "[T,1]"),
    "[2,3,B,C]": ("[]", "[3,1,1]", "[2,3,1,1]", "[C]"),
}


def _forms(rng: np.random.Generator) -> tuple[str, str, str | None, int | None]:
    """Shapes of a value and of its scale, the type of a zero point or its number."""
    shape = pick(rng, *_SHAPES)
    scale = pick(rng, *_SHAPES[shape])
    kind = rng.random()
    if kind < 0.3:
        return shape, scale, None, None
    if kind < 0.6:
        return shape, scale, None, int(rng.integers(-128, 256))
    return shape, scale, pick(rng, "i32", "i8", "u8") + pick(rng, *_SHAPES[shape]), None


def _quantize(rng: np.random.Generator) -> Program:
    shape, scale_shape, zero_type, number = _forms(rng)
    attributes = rounding(rng)

    def program(x: Any, scale: Any, zero: Any = number) -> Any:
        return ops.quantize(x, scale, zero, **attributes)

    return typed(
        f"quantize(x, scale, {'zero' if zero_type else number}, {attributes})",
        program,
        x=pick(rng, "f32", "f32", "f16", "bf16") + shape,
        scale=f"f32{scale_shape}",
        zero=zero_type,
    )


def _dequantize(rng: np.random.Generator) -> Program:
    shape, scale_shape, zero_type, number = _forms(rng)

    def program(q: Any, scale: Any, zero: Any = number) -> Any:
        return ops.dequantize(q, scale, zero)

    return typed(
        f"dequantize(q, scale, {'zero' if zero_type else number})",
        program,
        q=pick(rng, "i8", "u8", "i32") + shape,
        scale=f"f32{scale_shape}",
        zero=zero_type,
    )


def _requantize(rng: np.random.Generator) -> Program:
    shape, scale_shape, zero_type, number = _forms(rng)
    attributes = rounding(rng)

    def program(sums: Any, scale: Any, zero: Any = number) -> Any:
        return ops.requantize(sums, scale, zero, **attributes)

    return typed(
        f"requantize(sums, scale, {'zero' if zero_type else number}, {attributes})",
        program,
        sums=f"i32{shape}",
        scale=f"f32{scale_shape}",
        zero=zero_type,
    )


def _residual(rng: np.random.Generator) -> Program:
    """Two values of different scales added, with a relu or a bias, and quantized again: the place
    where a fused multiply-add would show."""
    attributes, first, second = rounding(rng), int(rng.integers(-9, 9)), int(rng.integers(0, 99))
    relu = bool(rng.integers(2))

    def program(a: Any, b: Any, scale_a: Any, scale_b: Any, scale: Any) -> Any:
        total = ops.dequantize(a, scale_a, first) + ops.dequantize(b, scale_b, second)
        total = ops.relu(total) if relu else total
        return total, ops.quantize(total, scale, 3, **attributes)

    return typed(
        f"quantize(dequantize(a) + dequantize(b), {attributes}), relu={relu}",
        program,
        a=f"{pick(rng, 'i8', 'u8', 'i32')}[B,C]",
        b="u8[B,C]",
        scale_a="f32[C]",
        scale_b="f32[]",
        scale="f32[]",
    )


def _passing(rng: np.random.Generator) -> Program:
    """Ops that move or choose integers as they are."""
    kind = int(rng.integers(4))
    names = ("max_pool2d", "pad and relu", "concat and permute", "clip and reshape")

    def program(x: Any, scale: Any) -> Any:
        q = ops.quantize(x, scale, 5)
        if kind == 0:
            q = ops.max_pool2d(q, kernel_size=2, stride=1, padding=1)
        elif kind == 1:
            q = ops.relu(ops.pad(q, ((0, 0), (0, 0), (1, 2), (0, 3)), value=5))
        elif kind == 2:
            q = ops.permute(ops.concat((q, ops.clip(q, -9, 100)), axis=1), (0, 2, 3, 1))
        else:
            q = ops.reshape(ops.clip(q, 5, 90), (2, -1))
        return q, ops.dequantize(q, scale, 5)

    return typed(f"{names[kind]} of integers", program, x="f32[2,3,B,C]", scale="f32[]")


def _int4(rng: np.random.Generator) -> Program:
    def program(q: Any, scale: Any) -> Any:
        packed = ops.pack_int4(q)
        return packed, ops.dequantize(ops.unpack_int4(packed), scale)

    return typed(
        "dequantize(unpack_int4(pack_int4(q)))",
        program,
        q=pick(rng, "i8[B,2*C]", "i8[B,6]", "i8[3,B,16]"),
        scale="f32[]",
    )


def _after(rng: np.random.Generator) -> tuple[str, Callable[..., Any]]:
    """What is done with sums."""
    attributes, zero = rounding(rng), int(rng.integers(-128, 256))
    kind = int(rng.integers(4))
    if kind == 0:
        return "sums", lambda sums, scale: sums
    if kind == 1:
        return f"requantize(zero {zero}, {attributes})", (
            lambda sums, scale: ops.requantize(sums, scale, zero, **attributes)
        )
    if kind == 2:
        return "relu(dequantize(sums) + 0.3)", (
            lambda sums, scale: ops.relu(ops.dequantize(sums, scale) + np.float32(0.3))
        )
    return f"quantize(dequantize(sums) - 1.7, {attributes})", (
        lambda sums, scale: ops.quantize(ops.dequantize(sums, scale) - np.float32(1.7), 0.11, zero, **attributes)
    )


def operand(rng: np.random.Generator) -> tuple[str, int]:
    """Type and zero point of activations."""
    dtype = pick(rng, "i8", "u8")
    low, high = (-128, 127) if dtype == "i8" else (0, 255)
    return dtype, int(pick(rng, 0, low, high, 128 + low, rng.integers(low, high)))


def _linear(rng: np.random.Generator) -> Program:
    dtype, zero = operand(rng)
    text, after = _after(rng)
    depth, columns = (int(rng.choice((*SIZES, 300))) for _ in range(2))
    weight = rng.integers(-128, 128, (columns, depth)).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, columns).astype(np.int32) if rng.random() < 0.5 else None
    shape = pick(rng, "", "1,", "B,", "2,B,")

    def program(x: Any, scale: Any) -> Any:
        return after(ops.int_linear(x, weight, bias, x_zero_point=zero), scale)

    return typed(
        f"int_linear(x, weight[{columns},{depth}], zero {zero}), {text}",
        program,
        x=f"{dtype}[{shape}{depth}]",
        scale="f32" + pick(rng, "[]", f"[{columns}]"),
    )


def _matmul(rng: np.random.Generator) -> Program:
    (dtype, zero), (other, other_zero) = operand(rng), operand(rng)
    text, after = _after(rng)
    x_shape, y_shape = pick(rng, ("[B,C]", "[C,T]"), ("[2,B,C]", "[2,C,T]"), ("[B,C]", "[2,C,T]"))

    def program(x: Any, y: Any, scale: Any) -> Any:
        return after(ops.int_matmul(x, y, x_zero_point=zero, y_zero_point=other_zero), scale)

    return typed(
        f"int_matmul(x, y, zeros {zero}, {other_zero}), {text}",
        program,
        x=dtype + x_shape,
        y=other + y_shape,
        scale="f32" + pick(rng, "[]", "[T]"),
    )


def _conv(rng: np.random.Generator) -> Program:
    dtype, zero = operand(rng)
    text, after = _after(rng)
    groups = pick(rng, 1, 1, 2, 4)
    channels, columns = (4, 4) if groups == 4 else (2 * pick(rng, 1, 2, 5), 2 * pick(rng, 1, 3))
    kernel = pick(rng, 1, 3)
    weight = rng.integers(-128, 128, (columns, channels // groups, kernel, kernel)).astype(np.int8)
    bias = rng.integers(-(2**20), 2**20, columns).astype(np.int32) if rng.random() < 0.5 else None
    attributes = {"stride": pick(rng, 1, 2), "padding": kernel // 2, "groups": groups}

    def program(x: Any, scale: Any) -> Any:
        return after(ops.int_conv2d(x, weight, bias, x_zero_point=zero, **attributes), scale)

    return typed(
        f"int_conv2d(x, weight{list(weight.shape)}, zero {zero}, {attributes}), {text}",
        program,
        x=f"{dtype}[{pick(rng, 1, 2)},{channels},H,W]",
        scale="f32" + pick(rng, "[]", f"[{columns},1,1]"),
    )


def _dynamic(rng: np.random.Generator) -> Program:
    """A linear of floats, quantized per token while it runs."""
    depth, columns = (int(rng.choice(SIZES)) for _ in range(2))
    weight = rng.integers(-127, 128, (columns, depth)).astype(np.int8)
    bias = rng.standard_normal(columns).astype(np.float32)

    def program(x: Any, scale: Any) -> Any:
        largest = ops.max(ops.abs(x), axis=-1, keepdims=True)
        own = ops.maximum(largest, np.float32(1e-30)) * np.float32(1 / 127)
        sums = ops.int_linear(ops.quantize(x, own, qmin=-127), weight)
        return ops.dequantize(sums, own * scale) + bias

    return typed(f"dynamic linear, weight [{columns},{depth}]", program, x=f"f32[B,{depth}]", scale=f"f32[{columns}]")


def _recurrence(rng: np.random.Generator) -> Program:
    """A loop over time whose states are sums: those of tanh and sigmoid have a tolerance."""
    size, steps = int(rng.choice(SIZES[:11])), int(rng.integers(4))
    weight = rng.integers(-127, 128, (size, size)).astype(np.int8)
    bias = rng.standard_normal(size).astype(np.float32) if rng.random() < 0.5 else None
    attributes: dict[str, Any] = {"mode": "rnn_relu", "reverse": bool(rng.random() < 0.5)}
    if rng.random() < 0.6:
        attributes["state_scale"] = float(2.0 ** rng.uniform(-9, 4))
        if rng.random() < 0.6:
            attributes["state_zero_point"] = int(rng.integers(256))

    def program(gates: Any, scale: Any, state: Any) -> Any:
        return ops.int_recurrence(gates, weight, scale, state, None, bias, **attributes)

    return typed(
        f"int_recurrence(gates, weight[{size},{size}], {attributes})",
        program,
        gates=f"f32[{steps},B,{size}]",
        scale=f"f32[{size}]",
        state=f"f32[B,{size}]",
    )


def _stored_weight(rng: np.random.Generator) -> Program:
    """A weight of another product: i8 or int4, rows of any length in groups of any size."""
    shape = tuple(int(n) for n in rng.integers(1, (6, 5, 4, 4)))
    depth, bits = math.prod(shape[1:]), pick(rng, 8, 4)
    group = pick(rng, None, 2, 4, 5, 32)
    stored = f"i8[{shape[0]},{depth}]" if bits == 8 else f"u8[{shape[0]},{(depth + 1) // 2}]"
    scales = f"[{shape[0]}]" if group is None else f"[{shape[0]},{-(-depth // group)}]"

    def program(weight: Any, scale: Any) -> Any:
        return ops.dequantize_weight(weight, scale, shape, bits, group)

    return typed(
        f"dequantize_weight {shape}, {bits} bits, groups of {group}", program, weight=stored, scale=f"f32{scales}"
    )


PROGRAMS: tuple[Callable[[np.random.Generator], Program], ...] = (
    _quantize,
    _quantize,
    _dequantize,
    _requantize,
    _requantize,
    _residual,
    _passing,
    _int4,
    _linear,
    _linear,
    _matmul,
    _conv,
    _conv,
    _dynamic,
    _recurrence,
    _stored_weight,
)
