"""How values become integers, as data: a :class:`Scheme` for a value, a :class:`QConfig` for an op,
and a :class:`Record` in the ``meta["quantized"]`` of a node that describes its conversion; and the
conversion to integers itself.

In: the names that a user gives. Out: frozen records with readable text, and the presets
``static_int8()``, ``dynamic_int8()``, ``weight_only_int8()``, ``weight_only_int4()``, ``fp16()``
and ``bf16()``. Invalid schemes are refused here, with the nearest names. Records are plain data
(numbers, text, named dims), which files store and from which the report is made.

In: ranges or arrays, and a scheme. Out: float32 scales, int32 zero points, int8 arrays. The
arithmetic is done in float64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fxlite.base.checked import checked, checked_methods
from fxlite.base.errors import FxliteError, did_you_mean
from fxlite.graph.graph import Node
from fxlite.ops.integer.quantized import SMALLEST_SCALE, pack_int4
from fxlite.types.shapes import Dim

#: Least and largest integer by (dtype, symmetric). Symmetric i8 and i4 leave out the lowest number,
#: so that -x can be held wherever x can.
RANGES = {("i8", True): (-127, 127), ("i8", False): (-128, 127), ("u8", False): (0, 255), ("i4", True): (-7, 7)}
GRANULARITIES = ("tensor", "channel", "token", "group")
#: How the range of a value is chosen (see :mod:`fxlite.passes.quantize.schemes.observers`).
OBSERVERS = ("minmax", "moving_average", "percentile", "mse", "entropy")
GROUP_SIZES = (32, 64, 128)


class QuantizationError(FxliteError, ValueError):
    """A model cannot be quantized as asked: the message says which value, where, and what to do."""


class QConfigError(FxliteError, ValueError):
    """A quantization config names something that does not exist, or contradicts itself."""


def unknown(what: str, given: object, known: Iterable[str]) -> QConfigError:
    """The error for a name that does not exist; it suggests the nearest ones."""
    names = sorted(set(known))
    hint = did_you_mean(str(given), names) or f"; there are {', '.join(names[:12])}"
    return QConfigError(f"there is no {what} {given!r}{hint}")


@checked_methods
@dataclass(frozen=True)
class Scheme:
    """How a value becomes integers ``q`` with ``value ≈ (q - zero_point) * scale``.

    ``dtype`` is "i8", "u8" or "i4"; a ``symmetric`` scheme has zero point 0 and as many integers on both
    sides. ``per`` says which numbers share a scale: those of the whole "tensor", of each output
    "channel", of each "token" (row of the last axis), or of each "group" of ``group_size`` numbers in a
    row. ``observer`` chooses the range: "minmax", "moving_average" (with weight ``averaging`` for a new
    batch), "percentile" (``percentile`` percent of the numbers lie inside), "mse" or "entropy".

    Raises QConfigError for names that do not exist and for invalid combinations."""

    dtype: str = "i8"
    symmetric: bool = True
    per: str = "tensor"
    group_size: int | None = None
    observer: str = "minmax"
    averaging: float = 0.01
    percentile: float = 99.99

    def __post_init__(self) -> None:
        if self.dtype not in ("i8", "u8", "i4"):
            raise unknown("integer type", self.dtype, ("i8", "u8", "i4"))
        if self.per not in GRANULARITIES:
            raise unknown("granularity", self.per, GRANULARITIES)
        if self.observer not in OBSERVERS:
            raise unknown("observer", self.observer, OBSERVERS)
        if (self.dtype, self.symmetric) not in RANGES:
            wanted = "affine (symmetric=False)" if self.dtype == "u8" else "symmetric"
            raise QConfigError(f"{self.dtype} must be {wanted}")
        if (self.per == "group") != (self.group_size is not None):
            raise QConfigError('per="group" and group_size go together')
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise QConfigError(f"group_size must be one of {GROUP_SIZES}, not {self.group_size!r}")
        if not isinstance(self.averaging, (int, float)) or not 0 < self.averaging <= 1:
            raise QConfigError(f"averaging must be in 0..1, not {self.averaging!r}")
        if not isinstance(self.percentile, (int, float)) or not 50 < self.percentile <= 100:
            raise QConfigError(f"percentile must be in 50..100, not {self.percentile!r}")

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest integer."""
        return RANGES[self.dtype, self.symmetric]

    @property
    def bits(self) -> int:
        """Bits of one integer."""
        return int(self.dtype[1:])

    def __str__(self) -> str:
        where = f"{self.per} of {self.group_size}" if self.group_size else self.per
        kind = "" if self.symmetric else " affine"
        return f"{self.dtype}{kind} per {where} ({self.observer})"


@checked_methods
@dataclass(frozen=True)
class QConfig:
    """How an op is computed: with integer ``activation`` and ``weight``, where ranges of activations
    come from calibration or, if ``dynamic``, from each row at run time; with only an integer
    ``weight``; or, with ``cast``, in "f16" or "bf16". ``name`` is shown in tables.

    Raises QConfigError for combinations that no op computes."""

    name: str
    activation: Scheme | None = None
    weight: Scheme | None = None
    dynamic: bool = False
    cast: str | None = None

    def __post_init__(self) -> None:
        if self.cast is not None:
            if self.cast not in ("f16", "bf16"):
                raise unknown("type to cast to", self.cast, ("f16", "bf16"))
            if self.activation is not None or self.weight is not None:
                raise QConfigError(f"{self.name}: a cast has no integer activation or weight")
            return
        if self.weight is None:
            raise QConfigError(f"{self.name}: say how weights are quantized; None is float")
        if not self.weight.symmetric or self.weight.dtype == "u8":
            raise QConfigError(f"{self.name}: weights are symmetric i8 or i4, not {self.weight}")
        if self.weight.per == "token":
            raise QConfigError(f"{self.name}: a weight has no tokens; use per channel or group")
        if self.weight.observer not in ("minmax", "mse"):
            raise QConfigError(
                f"{self.name}: the range of a weight is its minmax or of least mse, not {self.weight.observer}"
            )
        activation = self.activation
        if activation is None:
            if self.dynamic:
                raise QConfigError(f"{self.name}: dynamic needs an activation")
            return
        if self.weight.per == "group" or self.weight.dtype == "i4":
            raise QConfigError(
                f"{self.name}: the sums of an integer product have one scale for each row: weights "
                f"of integer activations are i8 per channel or tensor, not {self.weight}"
            )
        if activation.dtype == "i4":
            raise QConfigError(f"{self.name}: activations are i8 or u8, not {activation}")
        wanted = "token" if self.dynamic else "tensor"
        if activation.per != wanted or (self.dynamic and not activation.symmetric):
            raise QConfigError(
                f"{self.name}: {'dynamic' if self.dynamic else 'static'} activations are "
                f"{'symmetric ' if self.dynamic else ''}per {wanted}, not {activation}"
            )

    @property
    def mode(self) -> str:
        """ "static", "dynamic", "weight_only" or "cast"."""
        if self.cast is not None:
            return "cast"
        if self.activation is None:
            return "weight_only"
        return "dynamic" if self.dynamic else "static"

    def __str__(self) -> str:
        parts = [f"activation {self.activation}"] if self.activation is not None else []
        parts += [f"weight {self.weight}"] if self.weight is not None else []
        return f"{self.name}: {', '.join(parts) or self.cast}"


@checked
def static_int8(
    observer: str = "mse",
    *,
    activation: str = "u8",
    weight_observer: str = "minmax",
    averaging: float = 0.01,
    percentile: float = 99.99,
) -> QConfig:
    """Integer activations and weights with ranges from calibration: activations per tensor (u8 and
    affine, or i8 and symmetric), weights i8 per output channel."""
    scheme = Scheme(activation, activation != "u8", observer=observer, averaging=averaging, percentile=percentile)
    return QConfig("static_int8", scheme, Scheme(per="channel", observer=weight_observer))


@checked
def dynamic_int8(*, weight_observer: str = "minmax") -> QConfig:
    """Products with integer weights; the scale of each row (of each image, for convolutions) is its
    largest magnitude over 127, found at run time. Needs no calibration.

    The scheme is symmetric: activations before linear layers are nearly always centred on 0, and without
    a zero point no sums of weights have to be subtracted."""
    weight = Scheme(per="channel", observer=weight_observer)
    return QConfig("dynamic_int8", Scheme(per="token"), weight, dynamic=True)


@checked
def weight_only_int8(*, weight_observer: str = "minmax") -> QConfig:
    """Weights i8 per output channel for linear layers and convolutions, and per row for embeddings;
    sums and activations are float32."""
    return QConfig("weight_only_int8", None, Scheme(per="channel", observer=weight_observer))


@checked
def weight_only_int4(group_size: int = 32, *, weight_observer: str = "mse") -> QConfig:
    """Weights of linear layers and convolutions int4 in groups of ``group_size`` along the row (32,
    64 or 128; the last group may be shorter), two per byte; sums and activations are float32.
    Embeddings are i8 per row."""
    scheme = Scheme("i4", per="group", group_size=group_size, observer=weight_observer)
    return QConfig("weight_only_int4", None, scheme)


@checked
def fp16() -> QConfig:
    """float16 throughout: half the bytes, a significand of 11 bits, and 65504 as the largest number."""
    return QConfig("fp16", cast="f16")


@checked
def bf16() -> QConfig:
    """bfloat16 throughout: half the bytes, a significand of 8 bits, and the range of float32."""
    return QConfig("bf16", cast="bf16")


#: The presets by name, for plans that are text.
PRESETS: dict[str, Callable[..., QConfig]] = {
    f.__name__: f for f in (static_int8, dynamic_int8, weight_only_int8, weight_only_int4, fp16, bf16)
}


def as_qconfig(value: QConfig | str | None) -> QConfig | None:
    """A config, the name of a preset, or None (float). Raises QConfigError."""
    if value is None or isinstance(value, QConfig):
        return value
    if isinstance(value, str):
        if value not in PRESETS:
            raise unknown("preset", value, PRESETS)
        return PRESETS[value]()
    raise QConfigError(
        f"a config is a QConfig such as static_int8(), the name of a preset, or None for float, not {value!r}"
    )


def named_configs(schemes: Sequence[QConfig | str] | Mapping[str, QConfig | str]) -> dict[str, QConfig]:
    """Configs by name, from a list (under their own names) or a dict. Raises QConfigError if there are
    none, for equal names, and for casts, which apply only to whole programs."""
    pairs = list(schemes.items()) if isinstance(schemes, Mapping) else [("", s) for s in schemes]
    found: dict[str, QConfig] = {}
    for given, value in pairs:
        config = as_qconfig(value)
        if config is None:
            raise QConfigError("float is always a choice; schemes are configs or names of presets")
        name = given or config.name
        if config.cast is not None:
            raise QConfigError(f"{name} is a cast, of whole programs: the pass cast_floats")
        if name in (*found, "float"):
            raise QConfigError(f"two schemes are called {name!r}: give a dict of names and configs")
        found[name] = config
    if not found:
        raise QConfigError("there are no schemes to choose from")
    return found


# -- what a node of a quantized graph says about itself --------------------------------------------
KEY = "quantized"


@dataclass(frozen=True)
class Record:
    """``name`` and ``op`` are those of the float node, ``module`` is its path. ``integer`` says whether
    its multiply-adds are integer arithmetic; ``bits`` are those of the weight (or of the operands, for a
    product of activations). ``low..high`` is the range of the first operand, (0, 0) if it is not fixed.
    Bytes are those of the weight with its scales. ``sqnr`` is that of the weight in dB, or None if there
    is no weight."""

    name: str
    op: str
    module: str
    qconfig: str
    scheme: str
    integer: bool
    bits: int
    multiply_adds: Dim
    low: float = 0.0
    high: float = 0.0
    bytes_before: int = 0
    bytes_after: int = 0
    sqnr: float | None = None


@checked
def record_of(node: Node) -> Record | None:
    """The record of a node, None where it has none."""
    data: dict[str, Any] | None = (node._meta or {}).get(KEY)
    if data is None:
        return None
    return Record(**{f.name: data[f.name] for f in fields(Record)})


# -- scales, zero points and weights as integers ---------------------------------------------------
_SHRINKS = np.arange(1.0, 0.495, -0.0125)  # ranges tried for the least mse, as fractions of the whole


def parameters(low: Any, high: Any, scheme: Scheme) -> tuple[Any, Any]:
    """(scale f32, zero point i32) of ranges, given as numbers or arrays. The integers always represent
    zero exactly, so padding and relu cost nothing (Jacob et al., "Quantization and training of neural
    networks", 2018, section 2.1).

    A range that holds only zero gets the scale 1."""
    qmin, qmax = scheme.range
    low = np.minimum(np.asarray(low, np.float64), 0)
    high = np.maximum(np.asarray(high, np.float64), 0)
    if scheme.symmetric:
        width = np.maximum(-low, high)
        scale = _or_one(width, qmax)
        return scale, np.zeros(scale.shape, np.int32)
    scale = _or_one(high - low, qmax - qmin)
    exact = qmin - low / scale.astype(np.float64)
    return scale, np.clip(np.rint(exact), qmin, qmax).astype(np.int32)


def _or_one(width: Any, steps: int) -> Any:
    return np.where(width == 0, np.float32(1), _scale(width, steps))


def _scale(width: Any, steps: int) -> Any:
    return np.maximum(width / steps, SMALLEST_SCALE).astype(np.float32)


@dataclass(frozen=True)
class QuantizedWeight:
    """The weight is ``integers`` (i8, in the weight's shape) times ``scale`` (f32), up to an error given
    by ``sqnr`` (signal over noise in dB). Axes of size 1 of the scale broadcast; with groups it has the
    shape [N, K/g], rounded up, where K is the size of all axes after the first."""

    integers: Any
    scale: Any
    sqnr: float


def quantize_weight(weight: Any, scheme: Scheme, axes: tuple[int, ...], least_scale: Any = 0.0) -> QuantizedWeight:
    """A weight as integers. ``axes`` are those over which a product sums; they share one scale per
    channel. With groups, the axes after the first are divided into pieces of ``scheme.group_size``
    numbers, of which the last may be shorter.

    ``least_scale`` (which broadcasts) is a lower bound of the scale, so that a bias fits into the
    accumulator. If all weights are zero, the scale is the least one possible. Ranges are the extremes,
    or with ``observer="mse"`` the part of them (50 to 100 %) with the least squared error."""
    array = np.asarray(weight).astype(np.float64)
    if scheme.per == "group":
        assert scheme.group_size is not None
        array = _in_groups(array, scheme.group_size)
        axes = (2,)
    elif scheme.per == "tensor":
        axes = tuple(range(array.ndim))
    qmin, qmax = scheme.range
    largest = np.abs(array).max(axis=axes, keepdims=True, initial=0)

    def rounded(scale: Any) -> Any:
        return np.clip(np.rint(array / scale), qmin, qmax)

    scale = np.maximum(_scale(largest, qmax), np.asarray(least_scale, np.float32))
    if scheme.observer == "mse":
        best = np.full(scale.shape, np.inf)
        for part in _SHRINKS:
            tried = np.maximum(_scale(largest * part, qmax), np.asarray(least_scale, np.float32))
            error = np.sum((rounded(tried) * tried - array) ** 2, axis=axes, keepdims=True)
            scale = np.where(error < best, tried, scale)
            best = np.minimum(error, best)
    integers = rounded(scale.astype(np.float64))
    sqnr = signal_to_noise(array, integers * scale)
    if scheme.per == "group":
        scale = scale[..., 0]
        rows = integers.reshape(len(weight), math.prod(integers.shape[1:]))
        integers = rows[:, : math.prod(weight.shape[1:])]
    return QuantizedWeight(integers.reshape(weight.shape).astype(np.int8), scale, sqnr)


def _in_groups(array: Any, size: int) -> Any:
    """Rows [N, ...] as [N, groups, size]; the last group is padded with zeros."""
    depth = math.prod(array.shape[1:])
    groups = -(-depth // size)
    filled = np.zeros((len(array), groups * size), array.dtype)
    filled[:, :depth] = array.reshape(len(array), depth)
    return filled.reshape(len(array), groups, size)


def require_finite(path: str, array: Any) -> None:
    """Raise QuantizationError if a weight has NaN or infinities."""
    if not np.isfinite(array).all():
        raise QuantizationError(
            f"the weight {path} holds {np.sum(~np.isfinite(array))} numbers that are NaN or "
            f"infinite; it cannot be quantized"
        )


def restored_weight(weight: QuantizedWeight, scheme: Scheme) -> Any:
    """The float32 numbers that the integers of a weight represent."""
    scale, shape = weight.scale, weight.integers.shape
    if scheme.per == "group":
        assert scheme.group_size is not None
        depth = math.prod(shape[1:])
        scale = np.repeat(scale, scheme.group_size, axis=1)[:, :depth].reshape(shape)
    return weight.integers.astype(np.float32) * scale


def packed_rows(weight: QuantizedWeight, scheme: Scheme) -> Any:
    """The integers of a weight in the layout of :func:`~fxlite.ops.linear_weight_only`: i8 [N, K], or
    u8 [N, K/2] (rounded up)."""
    shape = weight.integers.shape
    rows = weight.integers.reshape(shape[0], math.prod(shape[1:]))
    if scheme.dtype != "i4":
        return rows
    return np.asarray(pack_int4(np.pad(rows, ((0, 0), (0, rows.shape[1] % 2)))))


def packed_bytes(weight: QuantizedWeight, scheme: Scheme) -> int:
    """Bytes of :func:`packed_rows` and of the scales."""
    rows, *rest = weight.integers.shape
    return int(rows * -(-math.prod(rest) * scheme.bits // 8) + weight.scale.nbytes)


def signal_to_noise(signal: Any, approximation: Any) -> float:
    """10 log10(sum of squares of the signal / that of the error), in dB; infinite if they are equal."""
    noise = float(np.sum((signal - approximation) ** 2))
    power = float(np.sum(signal**2))
    if noise == 0:
        return float("inf")
    return float(10 * np.log10(power / noise)) if power else float("-inf")
