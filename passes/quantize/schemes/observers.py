"""Observers: modules that pass a value through and record its range.

In: values, one batch after the other. Out: a range that includes zero, and from it scale and zero
point. In a prepared graph each observed value goes through an observer
(``self.observers.relu(relu)``); values that must have the same scale share one. An observer keeps its
state in buffers, so that it is copied and shown with the module. Some count values in equal bins from
-limit to limit, and derive the range from that histogram: a percentile, the least squared error, or
the least divergence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ShapeError, number_of
from fxlite.nn.module import Module
from fxlite.passes.quantize.schemes.scheme import QConfigError, QuantizationError, Scheme, parameters

# -- ranges from a histogram -----------------------------------------------------------------------
BINS = 4096  # half of them on each side of zero
_STEPS = 64  # ranges to try, from the whole range down to 1/64


def percentile_range(counts: Any, limit: float, low: float, high: float, percentile: float) -> tuple[float, float]:
    """The range that leaves (100 - ``percentile``) % of the values outside, half of them on each side if
    there are both signs; ``low`` and ``high`` are the exact extremes (Wu et al., "Integer quantization
    for deep learning inference", 2020)."""
    outside = counts.sum() * (1 - percentile / 100)
    two_sided = low < 0 < high
    share = outside / 2 if two_sided else outside
    edges = np.linspace(-limit, limit, BINS + 1)
    below = np.cumsum(counts)
    if low < 0:
        low = max(low, float(edges[np.searchsorted(below, share, side="right")]))
    if high > 0:
        above = np.cumsum(counts[::-1])
        position = int(np.searchsorted(above, share, side="right"))
        high = min(high, float(edges[BINS - position]))
    return min(low, 0.0), max(high, 0.0)


def count_in_bins(counts: Any, limit: float, values: Any) -> float:
    """Add finite numbers to counts in :data:`BINS` equal bins from -limit to limit; returns the new
    limit. If a number does not fit, the limit is doubled and pairs of bins are merged, so that counts
    stay exact."""
    half = BINS // 2
    largest = float(np.abs(values).max(initial=0.0))
    if limit == 0:  # only zeros so far, which are in the bin above zero
        limit = largest
    while largest > limit:
        limit *= 2
        inner = counts.reshape(-1, 2).sum(axis=1)
        counts[:] = 0
        counts[half // 2 : half + half // 2] = inner
    width = limit / half
    scaled = values / width if width else np.zeros(values.size)
    bins = np.clip(np.floor(scaled) + half, 0, BINS - 1)
    counts += np.bincount(bins.astype(np.int64), minlength=BINS)
    return limit


def mse_range(counts: Any, limit: float, low: float, high: float, scheme: Scheme) -> tuple[float, float]:
    """The range with the least total squared error of rounding and clipping, where the centre of each
    bin stands for its values (Nagel et al., "A white paper on neural network quantization", 2021,
    section 3.1).

    For an affine range both ends first shrink together, then each separately."""
    used = np.flatnonzero(counts)
    weights = counts[used].astype(np.float64)
    centres = (used + 0.5) * (2 * limit / BINS) - limit

    def error(ends: tuple[float, float]) -> float:
        scale, zero_point = parameters(ends[0], ends[1], scheme)
        qmin, qmax = scheme.range
        integers = np.clip(np.rint(centres / float(scale)) + int(zero_point), qmin, qmax)
        back = (integers - int(zero_point)) * float(scale)
        return float(np.dot(weights, (centres - back) ** 2))

    parts = np.arange(1, _STEPS + 1) / _STEPS
    best = min(((low * t, high * t) for t in parts[::-1]), key=error)
    if not scheme.symmetric and low < 0 < high:
        best = min(((low * t, best[1]) for t in parts[::-1]), key=error)
        best = min(((best[0], high * t) for t in parts[::-1]), key=error)
    return best


def entropy_range(counts: Any, limit: float, low: float, high: float, scheme: Scheme) -> tuple[float, float]:
    """The range whose quantized distribution is closest to the true one, by the Kullback-Leibler
    divergence of magnitudes (Migacz, "8-bit inference with TensorRT", 2017).

    The bin at zero gets the count of the next one: zeros are exact in any range, and after a relu they
    would outweigh all others."""
    half = BINS // 2
    magnitudes = (counts[half:] + counts[:half][::-1]).astype(np.float64)
    magnitudes[0] = magnitudes[1]
    qmin, qmax = scheme.range
    one_sided = not scheme.symmetric and not low < 0 < high
    levels = qmax - qmin + 1 if one_sided else (qmax - qmin + 1) // 2
    last = int(np.flatnonzero(magnitudes)[-1]) + 1 if magnitudes.any() else 0
    if last <= levels:  # the bins are as fine as the integers, so there is nothing to choose
        return low, high
    chosen, least = last, _divergence(magnitudes, last, levels)
    for stop in reversed(range(levels, last, 16)):
        divergence = _divergence(magnitudes, stop, levels)
        # of equal ranges the widest: a few distinct values look the same if clipped at one of them
        if divergence < least - 1e-12:
            chosen, least = stop, divergence
    cut = chosen * limit / half
    return max(low, -cut), min(high, cut)


def _divergence(magnitudes: Any, stop: int, levels: int) -> float:
    """KL divergence of the magnitudes, with those from ``stop`` on counted in the last bin, against the
    first ``stop`` bins reduced to ``levels`` steps."""
    inside = magnitudes[:stop]
    true = inside.copy()
    true[-1] += magnitudes[stop:].sum()
    step = np.arange(stop) * levels // stop
    nonzero = inside > 0
    sums = np.bincount(step, inside, levels)
    kinds = np.bincount(step, nonzero, levels)
    spread = np.where(nonzero, (sums / np.maximum(kinds, 1))[step], 0)
    if spread.sum() == 0:
        return np.inf
    p, q = true / true.sum(), spread / spread.sum()
    if np.any((p > 0) & (q == 0)):  # clipped values fall where no values were before
        q = np.maximum(q, 1e-12)
    shown = p > 0
    return float(np.sum(p[shown] * np.log(p[shown] / q[shown])))


# -- modules ---------------------------------------------------------------------------------------
class Observer(Module):
    """Base of all observers: counts the values it sees and refuses NaN and infinities.

    ``of`` says, for messages, which value it observes and where that is computed. ``axis`` is the axis
    whose positions have ranges of their own: for a scheme per channel (by default axis 1 of three axes
    or more, else 0) or per token (-2, the rows of a matrix). A group is a piece of the last axis.

    Calling it returns its input. It raises QuantizationError for NaN and infinities, in which case its
    state is unchanged. ``member`` is the number of the value among those that share the scale and go
    through this observer. Empty arrays are passed through and do not count. ``has_cell_states`` is for
    the states of an LSTM: the last row of an array [T + 2, B, H] does not count either."""

    leaf_advice = "it observes for calibration: convert the prepared module first, q.convert(...)"
    #: The name under which a Scheme knows the class.
    name = ""
    values: Any  # how many numbers have been seen
    empty_batches: Any
    low: Any
    high: Any

    def __init__(self, scheme: Scheme, of: str = "a value", axis: int | None = None) -> None:
        super().__init__()
        self.scheme = scheme
        self.of = of
        self.axis = axis
        self.register_buffer("values", np.zeros((), np.int64))
        self.register_buffer("empty_batches", np.zeros((), np.int64))
        self.register_buffer("low", np.zeros((), np.float64))
        self.register_buffer("high", np.zeros((), np.float64))
        self.followed: tuple[int, ...] | None = None
        self.has_cell_states = False

    def follow(self, shape: tuple[int, ...] = ()) -> None:
        """From now on keep scale and zero point in the buffers ``scale`` and ``zero_point``, in a
        shape that broadcasts against the value; fake_quantize reads them during training."""
        self.followed = shape
        self.register_buffer("scale", np.ones(shape, np.float32))
        self.register_buffer("zero_point", np.zeros(shape, np.int32))
        if self.values:
            self._publish()

    def _publish(self) -> None:
        scale, zero_point = self.calculate_qparams()
        self.scale = scale.reshape(self.followed)
        self.zero_point = zero_point.reshape(self.followed)

    def infer(self, x: Any, member: int = 0) -> Any:
        """The type of the result: that of the input."""
        return x

    def forward(self, x: Any, member: int = 0) -> Any:
        array = np.asarray(x)
        if self.has_cell_states and array.ndim == 3:
            array = array[:-1]
        if array.size == 0:
            self.empty_batches = self.empty_batches + 1
            return x
        slices = self._slices(array.astype(np.float64))
        if not np.isfinite(slices).all():
            kind = "NaN" if np.isnan(slices).any() else "an infinity"
            raise QuantizationError(
                f"calibration: {self.of} holds {kind} (in {np.sum(~np.isfinite(slices))} of "
                f"{array.size} numbers); a range computed from it is meaningless. Find it with "
                f"fx.Interpreter, or leave this part in float: set_module_name(name, None)"
            )
        low, high = slices.min(axis=1), slices.max(axis=1)
        if self.values and low.size != self.low.size:
            raise ShapeError(
                f"calibration: {self.of} has {low.size} ranges per {self.scheme.per}, before it "
                f"had {self.low.size}; use one scale per tensor"
            )
        self.update(slices, low, high, member)
        self.values = self.values + array.size
        if self.followed is not None:
            self._publish()
        return x

    def _slices(self, array: Any) -> Any:
        """The numbers as rows, one row for each range."""
        per, rank = self.scheme.per, array.ndim
        if per == "tensor" or rank == 0:
            return array.reshape(1, -1)
        if per == "group":
            size = self.scheme.group_size
            assert size is not None
            if array.shape[-1] % size:
                raise ShapeError(
                    f"calibration: the last axis of {self.of} is {array.shape[-1]}, no multiple of group_size {size}"
                )
            pieces = array.reshape(-1, array.shape[-1] // size, size)
            return np.moveaxis(pieces, 1, 0).reshape(array.shape[-1] // size, -1)
        axis = self.axis
        if axis is None:
            axis = -2 if per == "token" else (1 if rank > 2 else 0)
        return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        """Add a batch [ranges, numbers] of a member, and its extremes."""
        raise NotImplementedError

    def range(self) -> tuple[Any, Any]:
        """The range to cover, one number for each slice. Raises QuantizationError before any data."""
        self.require_data()
        return self.low, self.high

    def require_data(self) -> None:
        """Raise QuantizationError unless the observer has seen a number."""
        if not self.values:
            raise QuantizationError(f"not calibrated: {self.of} ({self.seen()})")

    def seen(self) -> str:
        """What the observer has seen, in words."""
        if self.values:
            low, high = np.min(self.low), np.max(self.high)
            return f"{int(self.values):,} values in {low:.4g}..{high:.4g}"
        if self.empty_batches:
            return number_of(int(self.empty_batches), "empty batch")
        return "no data"

    def calculate_qparams(self) -> tuple[Any, Any]:
        """(scale f32, zero point i32), one for each slice; for a scheme per tensor, numbers of rank 0.

        Raises QuantizationError before any data."""
        low, high = self.range()
        scale, zero_point = parameters(low, high, self.scheme)
        if self.scheme.per == "tensor":
            return scale.reshape(()), zero_point.reshape(())
        return scale, zero_point

    def extra_repr(self) -> str:
        return f"{self.scheme}: {self.seen()}"


class MinMaxObserver(Observer):
    """The range of everything seen: the least and the largest number."""

    name = "minmax"

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        self.low = np.minimum(self.low, low) if self.values else low
        self.high = np.maximum(self.high, high) if self.values else high


class MovingAverageMinMaxObserver(Observer):
    """The extremes of batches, averaged with weight ``scheme.averaging`` for the new batch, which follows
    a model that is being trained (Jacob et al., 2018, section 3.1). Values that share a scale have
    averages of their own, and the range covers all of them."""

    name = "moving_average"
    lows: Any
    highs: Any

    def __init__(self, scheme: Scheme, of: str = "a value", axis: int | None = None) -> None:
        super().__init__(scheme, of, axis)
        self.register_buffer("lows", np.zeros((0, 0), np.float64))  # by member
        self.register_buffer("highs", np.zeros((0, 0), np.float64))

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        self.lows = self._averaged(self.lows, low, member)
        self.highs = self._averaged(self.highs, high, member)
        self.low = np.nanmin(self.lows, axis=0)
        self.high = np.nanmax(self.highs, axis=0)

    def _averaged(self, known: Any, new: Any, member: int) -> Any:
        """The averages [members, ranges] with a new batch of a member; NaN before its first batch."""
        averages = np.full((max(len(known), member + 1), new.size), np.nan)
        if known.size:
            averages[: len(known)] = known
        before = averages[member]
        averages[member] = np.where(np.isnan(before), new, before + self.scheme.averaging * (new - before))
        return averages


class HistogramObserver(Observer):
    """Counts values in equal bins (:func:`count_in_bins`), with a row for each range.

    The range is chosen when it is requested: by least squared error ("mse"), by least divergence
    ("entropy"), or by percentile."""

    name = "mse"

    def __init__(self, scheme: Scheme, of: str = "a value", axis: int | None = None) -> None:
        super().__init__(scheme, of, axis)
        self.register_buffer("counts", np.zeros((0, BINS), np.int64))
        self.register_buffer("limit", np.zeros(0, np.float64))

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        rows = len(slices)
        if not self.values:
            self.low, self.high = low, high
            self.counts, self.limit = np.zeros((rows, BINS), np.int64), np.zeros(rows)
        counts, limit = self.counts.copy(), self.limit.copy()
        for row in range(rows):
            limit[row] = count_in_bins(counts[row], float(limit[row]), slices[row])
        self.counts, self.limit = counts, limit
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)

    def range(self) -> tuple[Any, Any]:
        self.require_data()
        ranges = [
            self._row_range(self.counts[row], float(self.limit[row]), float(low), float(high))
            for row, (low, high) in enumerate(zip(self.low, self.high, strict=True))
        ]
        return np.array([low for low, _ in ranges]), np.array([high for _, high in ranges])

    def _row_range(self, counts: Any, limit: float, low: float, high: float) -> tuple[float, float]:
        if low == high or limit == 0:
            return low, high
        if self.scheme.observer == "percentile":
            return percentile_range(counts, limit, low, high, self.scheme.percentile)
        choose = entropy_range if self.scheme.observer == "entropy" else mse_range
        return choose(counts, limit, low, high, self.scheme)


class PercentileObserver(HistogramObserver):
    """The range that holds ``scheme.percentile`` percent of the numbers."""

    name = "percentile"


class EntropyObserver(HistogramObserver):
    """The range with the least Kullback-Leibler divergence."""

    name = "entropy"


#: By the name a Scheme has for them.
OBSERVERS: dict[str, type[Observer]] = {
    cls.name: cls
    for cls in (MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver, PercentileObserver, EntropyObserver)
}


@checked
def make_observer(scheme: Scheme, of: str = "a value", axis: int | None = None) -> Observer:
    """The observer that a scheme names. Raises QConfigError for anything but a Scheme."""
    if not isinstance(scheme, Scheme):
        raise QConfigError(f"an observer is for a Scheme, such as Scheme('u8', False), not {scheme!r}")
    return OBSERVERS[scheme.observer](scheme, of, axis)
