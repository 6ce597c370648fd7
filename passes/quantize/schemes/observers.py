"""Observers: modules that let a value through and note its range.

In: values, one batch after the other. Out: a range, and from it scale and zero point. In a prepared
graph each observed value goes through one (``self.observers.relu(relu)``); values that must have
the same scale go through the same one. What an observer knows is in its buffers, so that it is
copied and shown with the module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ShapeError
from fxlite.nn.module import Module
from fxlite.passes.quantize.schemes.histogram import (
    BINS,
    entropy_range,
    mse_range,
    percentile_range,
)
from fxlite.passes.quantize.schemes.parameters import parameters
from fxlite.passes.quantize.schemes.scheme import QConfigError, QuantizationError, Scheme

_HALF = BINS // 2


class Observer(Module):
    """Base of all observers: counts what it sees and refuses what is no number.

    ``of`` says which value it observes and where that is computed, for messages. ``axis`` is the
    axis that keeps ranges of its own: for a scheme per channel (default 1 of three axes or more,
    else 0) or per token (-2, the rows of a matrix). A group is a piece of the last axis.

    Calling it returns its input and raises QuantizationError for NaN and infinities, leaving what
    it knows as it was. ``member`` is the number of the value among those of one scale that go
    through it. Empty arrays are let through and do not count. ``has_cell_states`` is for
    the states of an LSTM: the last row of an array [T + 2, B, H] does not count either."""

    leaf_advice = "it observes for calibration: convert the prepared module first, q.convert(...)"
    #: The name under which a Scheme knows the class.
    name = ""
    values: Any  # how many numbers were seen
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
        shape that broadcasts against the value: what fake_quantize reads while training."""
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
                f"{array.size} numbers); a range with it means nothing. Find it with "
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
        """The numbers in rows, one row for each range."""
        per, rank = self.scheme.per, array.ndim
        if per == "tensor" or rank == 0:
            return array.reshape(1, -1)
        if per == "group":
            size = self.scheme.group_size
            assert size is not None
            if array.shape[-1] % size:
                raise ShapeError(
                    f"calibration: the last axis of {self.of} is {array.shape[-1]}, no multiple of "
                    f"group_size {size}"
                )
            pieces = array.reshape(-1, array.shape[-1] // size, size)
            return np.moveaxis(pieces, 1, 0).reshape(array.shape[-1] // size, -1)
        axis = self.axis
        if axis is None:
            axis = -2 if per == "token" else (1 if rank > 2 else 0)
        return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        """Take in a batch [ranges, numbers] of a member, and its extremes."""
        raise NotImplementedError

    def range(self) -> tuple[Any, Any]:
        """The range to cover, one number for each slice. Raises QuantizationError before any
        data."""
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
            return f"{int(self.empty_batches)} empty batches"
        return "no data"

    def calculate_qparams(self) -> tuple[Any, Any]:
        """(scale f32, zero point i32), one for each slice; of per tensor, numbers of rank 0.

        Raises QuantizationError before any data."""
        low, high = self.range()
        scale, zero_point = parameters(low, high, self.scheme)
        if self.scheme.per == "tensor":
            return scale.reshape(()), zero_point.reshape(())
        return scale, zero_point

    def extra_repr(self) -> str:
        return f"{self.scheme}: {self.seen()}"


class MinMaxObserver(Observer):
    """All that was ever seen: the least and the largest number."""

    name = "minmax"

    def update(self, slices: Any, low: Any, high: Any, member: int) -> None:
        self.low = np.minimum(self.low, low) if self.values else low
        self.high = np.maximum(self.high, high) if self.values else high


class MovingAverageMinMaxObserver(Observer):
    """The extremes of batches, averaged with weight ``scheme.averaging`` for the new one: follows a
    model that is being trained (Jacob et al., 2018, section 3.1). Several values of one scale have
    averages of their own, and the range holds all of them."""

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
        """The averages [members, ranges] with a new batch of a member; NaN before its first one."""
        averages = np.full((max(len(known), member + 1), new.size), np.nan)
        if known.size:
            averages[: len(known)] = known
        before = averages[member]
        averages[member] = np.where(
            np.isnan(before), new, before + self.scheme.averaging * (new - before)
        )
        return averages


class HistogramObserver(Observer):
    """Counts in equal bins from -limit to limit, a row for each range. Where a number does not fit,
    the limit doubles and pairs of bins become one, so counts stay exact.

    The range is chosen when it is asked for: of least mse, of least divergence ("entropy"), or the
    percentile."""

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
        largest = np.maximum(-low, high)
        for row in range(rows):
            if limit[row] == 0:  # nothing but zeros so far, which are in the bin above zero
                limit[row] = largest[row]
            while largest[row] > limit[row]:
                limit[row] *= 2
                inner = counts[row].reshape(-1, 2).sum(axis=1)
                counts[row] = 0
                counts[row, _HALF // 2 : _HALF + _HALF // 2] = inner
            width = limit[row] / _HALF
            scaled = slices[row] / width if width else np.zeros(slices.shape[1])
            bins = np.clip(np.floor(scaled) + _HALF, 0, BINS - 1)
            counts[row] += np.bincount(bins.astype(np.int64), minlength=BINS)
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
    """The range of least Kullback-Leibler divergence."""

    name = "entropy"


#: By the name a Scheme has for them.
OBSERVERS: dict[str, type[Observer]] = {
    cls.name: cls
    for cls in (
        MinMaxObserver, MovingAverageMinMaxObserver, HistogramObserver, PercentileObserver,
        EntropyObserver,
    )
}  # fmt: skip


@checked
def make_observer(scheme: Scheme, of: str = "a value", axis: int | None = None) -> Observer:
    """The observer that a scheme asks for. Raises QConfigError for what is no Scheme."""
    if not isinstance(scheme, Scheme):
        raise QConfigError(
            f"an observer is for a Scheme, such as Scheme('u8', False), not {scheme!r}"
        )
    return OBSERVERS[scheme.observer](scheme, of, axis)
