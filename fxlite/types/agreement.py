"""Whether two results agree: the only comparison in the project, with its only tolerances.

In: the expected and the actual result, what may differ (:class:`Exactness`), and how many operations
produced the numbers (:class:`Chain`). Out: an :class:`Agreement`, which gives the place with the largest
error, the expected and the actual value there, the error and the bound, as text and as data.

The comparison covers, in this order: nesting, shapes and dtypes, places of NaN and infinities, values.
A float may differ by :func:`bound` times the largest finite number that is expected in its array: the
terms of a sum can be as large as that, even where they cancel. docs/numerics.md derives the bound. A
complex number is compared as two floats, its parts; the largest number is taken among all parts.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, number_of
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

Array = np.ndarray[Any, Any]

#: The largest relative error of one rounding.
UNIT = {d.name: float(ml_dtypes.finfo(d.numpy).eps) / 2 for d in dtypes.FLOATS}
#: The least number above zero; near it, the error of a rounding is up to half of it.
LEAST = {d.name: float(ml_dtypes.finfo(d.numpy).smallest_subnormal) for d in dtypes.FLOATS}
#: The largest relative error of an operand of a product, by how products are computed: "medium"
#: rounds operands to bf16, "high" splits them in two, "int8" rounds to one of 255 integers.
OPERAND = {"highest": 0.0, "high": 2.0**-16, "medium": 2.0**-8, "int8": 2.0**-8}
#: Units by which one operation may be off: elementary functions, those of NumPy and of compiled
#: code, are within 4 ulp (docs/numerics.md), and an ulp is up to two units.
OPERATION = 8
#: The errors of n roundings, as independent numbers of mean 0 and at most one unit, add up to more than
#: CONFIDENCE * sqrt(n) units with a probability of at most 2 exp(-CONFIDENCE**2 / 2) (N. J. Higham,
#: T. Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5),
#: 2019, theorem 2.4). For errors that are uniform over the unit, this is seven standard deviations.
CONFIDENCE = 4.0


@dataclass(frozen=True)
class Chain:
    """The longest path from an input to a result: the number of ``operations`` that round, the number of
    ``terms`` in all their sums and products, and the number of matrix ``products`` among them, which are
    computed with a ``precision`` of :data:`OPERAND`. :func:`fxlite.show.node_cost.longest_chain` counts
    them."""

    operations: int = 0
    terms: int = 0
    products: int = 0
    precision: str = "highest"

    def then(self, other: Chain) -> Chain:
        """This chain followed by the other one."""
        return self._with(other, operator.add)

    def at_least(self, other: Chain) -> Chain:
        """The larger of both, count by count."""
        return self._with(other, max)

    def _with(self, other: Chain, combined: Callable[[int, int], int]) -> Chain:
        names = ("operations", "terms", "products")
        counts: dict[str, Any] = {n: combined(getattr(self, n), getattr(other, n)) for n in names}
        return replace(self, **counts)


#: The chain that is assumed if nothing is known: a sum as long as one accumulator of a product takes
#: (docs/numerics.md), and operations before and after it. Programs of users are allowed no less: functions
#: such as exp multiply earlier errors by up to 88 (|x| in float32).
USUAL = Chain(operations=3, terms=512, products=1)


def bound(dtype: Any, chain: Chain = USUAL) -> float:
    """How much two results may differ, relative to the largest number, given that both are rounded in
    every operation. Half types are computed in float32 and rounded once for each operation. The bound is
    0 for integers; for complex numbers it is that of their parts."""
    kind = dtypes.dtype(dtype).real
    name = kind.name
    if not kind.is_float:
        return 0.0
    roundings = OPERATION * chain.operations + chain.terms
    allowed = _grown(UNIT[kind.compute.name], 2 * roundings)
    if kind.is_half:
        allowed += _grown(UNIT[name], 2 * chain.operations)
    if kind.compute is dtypes.float32 and chain.precision != "highest":
        # one of the two results comes from products whose operands are both rounded
        allowed += _grown(OPERAND[chain.precision], 2 * max(chain.products, 1))
    return allowed


def _grown(unit: float, roundings: int) -> float:
    """The error of that many roundings: their sum, or the likely error if there are many."""
    return unit * min(float(roundings), CONFIDENCE * math.sqrt(roundings))


# -- what may differ -------------------------------------------------------------------------------
KINDS = ("exact", "allclose", "sqnr", "changes")
DEFAULT_DB = 30.0


@dataclass(frozen=True)
class Exactness:
    """How two results, or the results of a program before and after a pass, may differ.

    - ``exact``: not at all. NaN stays NaN, and the sign of zeros counts (the bits inside a NaN do not).
    - ``allclose``: by rounding. Numbers differ by at most ``atol + rtol * (largest expected finite
      number)``; without ``rtol``, the :func:`bound` of the dtype is used. Finite numbers stay finite,
      and NaN and infinities do not become finite. An infinity may become a NaN, because
      ``inf * (2 - 1)`` and ``2 * inf - inf`` differ, unless ``same_program`` says that one program was
      computed twice.
    - ``sqnr``: by quantization. Ten times the decimal logarithm of (power of the result) / (power of
      the error) is at least ``db``. Finite numbers stay finite; float dtypes may differ.
    - ``changes``: as a pass intends that changes results, such as pruning. Structure, shapes and dtypes
      stay. ``metric``, a function of a module that is larger for a better one, may decrease by at most
      ``drop``.

    Integers and bools must be equal, except with ``sqnr``, which treats integers as numbers."""

    kind: str
    rtol: float | None = None
    atol: float | None = None
    db: float | None = None
    same_program: bool = False
    metric: Callable[[Any], float] | None = None
    drop: float = 0.0

    def __str__(self) -> str:
        if self.kind == "sqnr":
            return f"sqnr({self.db:g} dB)"
        if self.metric is not None:
            named = getattr(self.metric, "__name__", type(self.metric).__name__)
            return f"changes({named}, drop={self.drop:g})"
        given = [f"{n}={v:g}" for n, v in (("rtol", self.rtol), ("atol", self.atol)) if v is not None]
        return f"{self.kind}({', '.join(given)})" if given else self.kind


exact = Exactness("exact")
#: One program computed in two ways: rounding may differ, NaN and infinities may not.
computed = Exactness("allclose", same_program=True)


@checked
def allclose(rtol: float | None = None, atol: float | None = None) -> Exactness:
    """Results may differ by rounding, see :class:`Exactness`; without ``rtol``, by as much as the dtype and
    the number of operations explain."""
    return Exactness("allclose", rtol, atol)


@checked
def sqnr(db: float = DEFAULT_DB) -> Exactness:
    """The result has a signal-to-noise ratio of at least ``db`` decibels, see :class:`Exactness`."""
    return Exactness("sqnr", db=db)


@checked
def changes(metric: Callable[[Any], float] | None = None, drop: float = 0.0) -> Exactness:
    """The results may change, see :class:`Exactness`. ``metric(module)``, such as the accuracy on your
    data, may decrease by at most ``drop``."""
    return Exactness("changes", metric=metric, drop=drop)


def as_exactness(value: Exactness | str) -> Exactness:
    """An Exactness unchanged, or the one named "exact", "allclose", "sqnr" or "changes". Raises
    ArgumentError for any other value."""
    if isinstance(value, Exactness):
        return value
    if value not in KINDS:
        raise ArgumentError(
            f"exactness must be one of {', '.join(KINDS)}, allclose(...), sqnr(...) or changes(...), not {value!r}"
        )
    return sqnr() if value == "sqnr" else Exactness(value)


# -- what was found --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Agreement:
    """The outcome of a comparison, for the first array that disagrees or, if all agree, for the array with
    the largest error.

    ``problem`` is "" if they agree, else "structure", "type", "value" or "noise". ``result`` is the
    number of the array in a nested result; None for a single array. ``place`` is the index of the element
    with the largest error or, if every bit counts, of the first wrong element. ``expected`` and
    ``actual`` are the values there, or describe results that cannot be compared. ``error`` is the largest
    error and ``bound`` the allowed one, both relative to the largest expected number; for ``sqnr`` they
    are in decibels. ``wrong`` of ``size`` elements exceed the bound."""

    problem: str = ""
    result: int | None = None
    place: tuple[int, ...] | None = None
    expected: Any = None
    actual: Any = None
    error: float = 0.0
    bound: float = 0.0
    wrong: int = 0
    size: int = 0

    @property
    def agrees(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        head = "" if self.result is None else f"result {self.result}: "
        return head + self._text()

    def _text(self) -> str:
        if self.agrees:
            return f"the largest error is {self.error:.3g}, allowed are {self.bound:.3g}"
        if self.problem == "noise":
            if self.wrong:
                return "a finite number became NaN or infinite"
            return f"the signal-to-noise ratio is {self.error:.1f} dB, promised are {self.bound:g} dB"
        text = f"expected {self.expected}, got {self.actual}"
        if self.problem != "value":
            return text
        text += f" at {list(self.place)}" if self.place else ""
        text += f"; {self.wrong:,} of {number_of(self.size, 'element')} differ"
        if self.bound and math.isfinite(self.error):
            text += f" by more than {self.bound:.2g} of the largest number, up to {self.error:.3g}"
        return text

    def data(self) -> dict[str, Any]:
        """The fields as a dict of numbers and texts."""
        found = dict(vars(self))
        found["place"] = None if self.place is None else list(self.place)
        for name in ("expected", "actual"):
            found[name] = None if found[name] is None else str(found[name])
        return found


def leaves(value: Any) -> list[Array]:
    """The arrays of a nested result, in order, with None for each part that is not an array."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [a for v in value.values() for a in leaves(v)]
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in leaves(v)]
    return [np.asarray(value)]


def structure(value: Any) -> Any:
    """A nested result without its arrays, for comparisons."""
    if isinstance(value, dict):
        return [(key, structure(v)) for key, v in value.items()]
    if isinstance(value, (tuple, list)):
        return type(value), [structure(v) for v in value]
    return value is None


def compare(
    expected: Any,
    actual: Any,
    promise: Exactness = computed,
    chain: Chain = USUAL,
    spread: Sequence[Array] | None = None,
) -> Agreement:
    """Compare two nested results. ``spread`` holds, for each array, measured absolute errors of its
    elements, which are allowed in addition to the bound; infinity allows any value."""
    if structure(expected) != structure(actual):
        return Agreement("structure", None, None, _shown(expected), _shown(actual))
    arrays = leaves(expected)
    off_most = Agreement()
    for number, (e, a) in enumerate(zip(arrays, leaves(actual), strict=True)):
        room = None if spread is None else spread[number]
        found = _compare_arrays(e, a, promise, chain, room)
        if len(arrays) > 1:
            found = replace(found, result=number)
        if not found.agrees:
            return found
        if number == 0 or found.error > off_most.error:
            off_most = found
    return off_most


def _shown(value: Any) -> str:
    arrays = leaves(value)
    if isinstance(value, (tuple, list, dict)):
        return f"{type(value).__name__} of {number_of(len(arrays), 'result')}"
    return "nothing" if value is None else f"one result {_type_text(arrays[0])}"


def _type_text(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _compare_arrays(e: Array, a: Array, promise: Exactness, chain: Chain, spread: Array | None) -> Agreement:
    if e.shape != a.shape or not _dtypes_fit(e.dtype, a.dtype, promise):
        return Agreement("type", None, None, _type_text(e), _type_text(a))
    if promise.kind == "changes":
        return Agreement(size=e.size)
    if e.dtype.kind == "c" or a.dtype.kind == "c":
        return _compare_parts(e, a, promise, chain, spread)
    if promise.kind == "sqnr" and e.dtype.kind != "b":
        return _signal(e, a, promise.db or 0.0)
    dtype = dtypes.dtype(e.dtype)
    if not dtype.is_float or promise.kind == "exact":
        return _equal(e, a, dtype.is_float, spread)
    return _close(e, a, dtype, promise, chain, spread)


def _compare_parts(e: Array, a: Array, promise: Exactness, chain: Chain, spread: Array | None) -> Agreement:
    """Compare complex numbers as twice as many real ones; the outcome refers to the complex numbers."""
    room = None if spread is None else np.stack([spread, spread], -1)
    found = _compare_arrays(_parts(e), _parts(a), promise, chain, room)
    if found.place is None:
        return replace(found, size=e.size)
    place = found.place[:-1]
    wrong = -(-found.wrong // 2)  # a lower bound
    return replace(found, place=place, expected=e[place], actual=a[place], wrong=wrong, size=e.size)


def _parts(array: Array) -> Array:
    return np.stack([array.real, array.imag], -1)


def _dtypes_fit(expected: Any, actual: Any, promise: Exactness) -> bool:
    if promise.kind != "sqnr":
        return bool(expected == actual)
    return all(d == expected or dtypes.dtype(d).is_inexact for d in (expected, actual))


def _equal(e: Array, a: Array, is_float: bool, spread: Array | None) -> Agreement:
    """Compare every element for equality; the sign of zeros counts for floats, and NaN equals NaN."""
    if e.tobytes() == a.tobytes():
        return Agreement(size=e.size)
    same = e == a
    if is_float:
        same = same & (np.signbit(e) == np.signbit(a)) | np.isnan(e) & np.isnan(a)
    wrong = np.asarray(~same if spread is None else ~same & np.isfinite(spread))
    if not wrong.any():
        return Agreement(size=e.size)
    return _at(e, a, wrong, int(np.argmax(wrong)), math.inf, 0.0)


def _at(e: Array, a: Array, wrong: Array, first: int, error: float, allowed: float) -> Agreement:
    place = tuple(int(i) for i in np.unravel_index(first, e.shape))
    count = int(np.count_nonzero(wrong))
    return Agreement("value", None, place, e[place], a[place], error, allowed, count, e.size)


def _close(e: Array, a: Array, dtype: DType, promise: Exactness, chain: Chain, spread: Array | None) -> Agreement:
    relative = bound(dtype, chain) if promise.rtol is None else promise.rtol
    if np.array_equal(e, a):
        return Agreement(bound=relative, size=e.size)
    x, y = e.astype(np.float64), a.astype(np.float64)
    with np.errstate(all="ignore"):
        errors = np.abs(x - y)
    largest = float(np.abs(x).max(initial=0.0))
    finite = np.isfinite(x)
    if not math.isfinite(largest):
        largest = float(np.abs(x, where=finite, out=np.zeros_like(x)).max(initial=0.0))
    room = relative * largest + relative / UNIT[dtype.name] * LEAST[dtype.name]
    room += promise.atol or 0.0
    worst = float(errors.max(initial=0.0))
    if not worst <= room:  # also true if it is NaN
        same = (x == y) | np.isnan(x) & np.isnan(y) if promise.same_program else ~np.isfinite(y)
        errors = np.where(finite & np.isfinite(y), errors, np.where(~finite & same, 0.0, np.inf))
        worst = float(errors.max(initial=0.0))
    error = worst / largest if largest else worst
    if worst <= room:
        return Agreement(error=error, bound=relative, size=e.size)
    excess = errors - room
    if spread is not None:
        measured = np.isfinite(spread)
        excess = np.where(measured, excess - np.where(measured, spread, 0), -np.inf)
    wrong = np.asarray(excess > 0)
    if not wrong.any():
        return Agreement(error=error, bound=relative, size=e.size)
    return _at(e, a, wrong, int(np.argmax(excess)), error, relative)


def _signal(e: Array, a: Array, db: float) -> Agreement:
    x, y = e.astype(np.float64), a.astype(np.float64)
    finite = np.isfinite(x)
    lost = int(np.count_nonzero(~np.isfinite(y[finite])))
    if lost:
        return Agreement("noise", wrong=lost, size=e.size, error=-math.inf, bound=db)
    unit = max(float(np.abs(v[finite]).max(initial=0)) for v in (x, y)) or 1.0  # squares must not overflow
    x, y = x[finite] / unit, y[finite] / unit
    signal, noise = float(np.square(x).sum()), float(np.square(x - y).sum())
    if noise == 0:
        return Agreement(error=math.inf, bound=db, size=e.size)
    ratio = 10 * (math.log10(signal) - math.log10(noise)) if signal else -math.inf
    return Agreement("" if ratio >= db else "noise", error=ratio, bound=db, size=e.size)
