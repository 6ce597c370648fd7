"""``np.pad`` in all its modes.

In: a traced value and the arguments of np.pad. Out: parts of the value (reversed, repeated or computed) that are
joined; if there would be many parts, or sizes are named, a ``take`` at known or computed positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxlite.base.state import is_traced
from fxlite.ops.op import lookup, normalize_axis
from fxlite.tracing.capture.known import as_known_number
from fxlite.tracing.numpy_functions import value_type
from fxlite.types import shapes

#: The most parts of a concatenation, which reads better than a table of positions.
_FEW = 8
#: Positions in the padded array from those in the result, where 0 is the first element of the former and n its
#: size: for NumPy's arrays and traced values alike.
POSITIONS: dict[str, Callable[[Any, Any], Any]] = {
    "edge": lambda i, n: np.clip(i, 0, n - 1),
    "wrap": lambda i, n: i % n,
    "symmetric": lambda i, n: _folded(i % (2 * n), 2 * n - 1),
    "reflect": lambda i, n: _folded(i % shapes.for_user(shapes.maximum(shapes.normalize(2 * n - 2), 1)), 2 * n - 2),
}
_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}
_OPTIONS = {
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
    **dict.fromkeys(_STATISTICS, ("stat_length",)),
}


def _folded(place: Any, last: Any) -> Any:
    return np.minimum(place, last - place)


def pad(x: Any, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """np.pad. Raises ValueError for negative widths, options that the mode does not have, and modes that are
    functions."""
    known = {*_OPTIONS, *POSITIONS, "empty"}
    if mode not in known:
        raise ValueError(f"the mode {mode!r} is not traced; it is one of {', '.join(sorted(known))}")
    wrong = [name for name in options if name not in _OPTIONS.get(mode, ())]
    if wrong:
        raise ValueError(f"the mode {mode!r} takes no {wrong[0]}")
    rank = value_type(x).rank
    widths = widths_of(pad_width, rank)
    if any(type(w) is int and w < 0 for pair in widths for w in pair):
        raise ValueError("widths are 0 or more")
    if mode in ("constant", "empty"):
        return _constant(x, widths, options.get("constant_values", 0))
    odd = options.get("reflect_type", "even") == "odd"
    lengths = _pairs(options.get("stat_length"), rank)
    ends = _pairs(options.get("end_values", 0), rank)
    for axis, pair in enumerate(widths):
        size = value_type(x).shape[axis]
        if pair == (0, 0):
            continue
        if size == 0:
            raise ValueError(f"axis {axis} is empty and has nothing to extend it with")
        if mode in _STATISTICS:
            x = _with_statistics(x, axis, pair, mode, lengths[axis])
        elif mode == "linear_ramp":
            x = _with_ramps(x, axis, pair, ends[axis])
        elif odd:
            x = _odd(x, axis, pair, mode)
        else:
            x = along(x, axis, _positions(mode, shapes.for_user(size), pair))
    return x


def widths_of(given: Any, rank: int) -> list[tuple[Any, Any]]:
    """The widths before and after each axis."""
    if isinstance(given, dict):
        found: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, width in given.items():
            pair = width if isinstance(width, (tuple, list)) else (width, width)
            found[normalize_axis(axis, rank)] = (pair[0], pair[-1])
        return found
    return [(_whole(before), _whole(after)) for before, after in _pairs(given, rank)]


def _whole(width: Any) -> Any:
    if isinstance(width, (float, np.floating)):
        raise ValueError(f"widths are integers, not {width}")
    return int(width) if isinstance(width, (int, np.integer)) else width


def _pairs(given: Any, rank: int) -> list[tuple[Any, Any]]:
    """A value for both sides of each axis, from one value, a pair, or a pair for each axis."""
    if is_traced(given):
        given = as_known_number(given) if not given.ndim else [*given]
    rows = given if isinstance(given, (tuple, list)) or np.ndim(given) else [given]
    rows = [[*map(as_known_number, row)] if isinstance(row, (tuple, list)) else as_known_number(row) for row in rows]
    numbers: list[Any] = []  # an array of NumPy must not ask for values

    def number_of(value: Any) -> Any:
        if isinstance(value, list):
            return [number_of(v) for v in value]
        numbers.append(value)
        return len(numbers) - 1

    places = np.broadcast_to(np.asarray(number_of(rows)), (rank, 2)).tolist()
    return [(numbers[a], numbers[b]) for a, b in places]


def _constant(x: Any, widths: list[tuple[Any, Any]], values: Any) -> Any:
    op, rank = lookup("pad"), len(widths)
    if is_traced(values) or not isinstance(values, (tuple, list, np.ndarray)):
        return op(x, tuple(widths), value=values)
    for axis, (pair, ends) in enumerate(zip(widths, _pairs(values, rank))):
        for side in (0, 1):  # the values of later axes are used in the corners
            width = [(0, 0)] * rank
            width[axis] = (pair[0], 0) if side == 0 else (0, pair[1])
            x = op(x, tuple(width), value=ends[side])
    return x


def _positions(mode: str, size: Any, pair: tuple[Any, Any]) -> Any:
    """The positions on the axis of the elements of the result."""
    before, after = pair
    if all(type(v) is int for v in (size, before, after)):
        return POSITIONS[mode](np.arange(-before, size + after), size)
    start, stop = shapes.normalize(-before), shapes.normalize(size + after)
    places = lookup("arange")(shapes.for_user(start), shapes.for_user(stop), 1, "i64")
    is_inside = (places >= 0) & (places < size)  # in C, a separate loop whose positions need no check
    return np.where(is_inside, places, POSITIONS[mode](places, size))


def along(x: Any, axis: int, positions: Any) -> Any:
    """The elements of ``x`` at known (or computed) positions of an axis, as parts if these are few."""
    take = lookup("take")
    if is_traced(positions):
        return take(x, positions, axis=axis)
    parts = list(itertools.islice(_runs([int(p) for p in positions]), _FEW + 1))
    if not 0 < len(parts) <= _FEW:
        return take(x, np.asarray(positions, np.int64), axis=axis)
    size = value_type(x).shape[axis]
    pieces = [_piece(x, axis, size, *part) for part in parts]
    return pieces[0] if len(pieces) == 1 else lookup("concat")(tuple(pieces), axis=axis)


def _runs(positions: Sequence[int]) -> Any:
    """(first, step, count) of runs of positions that increase or decrease by one, or stay the same."""
    start = 0
    while start < len(positions):
        end = start + 1
        step = positions[end] - positions[start] if end < len(positions) else 1
        step = step if step in (-1, 0, 1) else 1
        while end < len(positions) and positions[end] - positions[end - 1] == step:
            end += 1
        yield positions[start], step, end - start
        start = end


def _piece(x: Any, axis: int, size: Any, first: int, step: int, count: int) -> Any:
    if step == 1 and first == 0 and count == size:
        return x
    if step == 0:
        return _repeated(part_of(x, axis, first, first + 1), axis, count)
    if step == 1:
        return part_of(x, axis, first, first + count)
    return lookup("flip")(part_of(x, axis, first - count + 1, first + 1), axis=axis)


def part_of(x: Any, axis: int, start: Any, stop: Any) -> Any:
    """``x[start:stop]`` along an axis."""
    return lookup("slice")(x, axis=axis, start=start, stop=stop)


def _repeated(x: Any, axis: int, count: Any) -> Any:
    """A part of size 1, repeated ``count`` times."""
    shape = list(value_type(x).shape)
    shape[axis] = count
    return lookup("expand")(x, tuple(shape))


def _joined(x: Any, axis: int, before: Any, after: Any, pair: tuple[Any, Any]) -> Any:
    parts = [p for p, w in ((before, pair[0]), (x, 1), (after, pair[1])) if w != 0]
    dtype = value_type(x).dtype
    return lookup("concat")(tuple(lookup("cast")(p, dtype) for p in parts), axis=axis)


def _edges(x: Any, axis: int) -> tuple[Any, Any]:
    size = value_type(x).shape[axis]
    return part_of(x, axis, 0, 1), part_of(x, axis, shapes.normalize(size - 1), size)


def _with_statistics(x: Any, axis: int, pair: tuple[Any, Any], mode: str, lengths: tuple[Any, Any]) -> Any:
    kind, size = value_type(x).dtype, value_type(x).shape[axis]
    function = getattr(np, _STATISTICS[mode])
    found = []
    for side, length in enumerate(lengths):
        if length is not None and (type(length) is not int or length < 1):
            raise ValueError(f"stat_length must be 1 or more, not {length}")
        part = x
        if length is not None:
            count = shapes.minimum(length, size)
            start = 0 if side == 0 else shapes.normalize(size - count)
            part = part_of(x, axis, start, shapes.normalize(start + count))
        value = function(part, axis=axis, keepdims=True)
        if not kind.is_float and mode in ("mean", "median"):
            value = np.rint(value)
        found.append(_repeated(value, axis, pair[side]))
    return _joined(x, axis, found[0], found[1], pair)


def _with_ramps(x: Any, axis: int, pair: tuple[Any, Any], ends: tuple[Any, Any]) -> Any:
    """Linear ramps from the end values to the edges, computed as by np.linspace."""
    rank, kind = value_type(x).rank, value_type(x).dtype
    found = []
    for side, (width, end, edge) in enumerate(zip(pair, ends, _edges(x, axis))):
        if type(width) is not int:
            raise ValueError("ramps have a width that is a number")
        places = np.arange(width).reshape(-1, *[1] * (rank - 1 - axis))
        places = places if side == 0 else places[::-1]
        start = np.float64(end)
        line = places * ((lookup("cast")(edge, "f64") - start) / max(width, 1)) + start
        found.append(line if kind.is_float else np.floor(line))
    return _joined(x, axis, found[0], found[1], pair)


def _odd(x: Any, axis: int, pair: tuple[Any, Any], mode: str) -> Any:
    """The odd reflection at the edge: twice the edge value minus the even reflection."""
    size = value_type(x).shape[axis]
    most = size - 1 if mode == "reflect" else size
    if type(size) is not int or any(type(w) is not int or w > most for w in pair):
        raise ValueError(f"an odd reflection is traced for widths up to {most}")
    even = along(x, axis, _positions(mode, size, pair))
    before, after = (
        2 * edge - part_of(even, axis, start, start + width)
        for edge, start, width in zip(_edges(x, axis), (0, pair[0] + size), pair)
    )
    return _joined(x, axis, before, after, pair)
