"""Samples: example arguments of ops, written as type text, from which tests, docs and fuzzing are
generated.

``S("f32[B,4]", axis=1, dims={"B": 3})`` is a call with a random float32 array of shape (3, 4);
the oracle traces it with the named dim ``B`` and runs it with 3. ``Bad(...)`` is a call that must
raise an error.

Records have most samples as text, which :func:`parsed` reads: ``;`` separates samples, blanks separate the
arguments of one, and the size of a named dim is written like an attribute::

    "f32[B,4] axis=1 B=3; f64[5](-1,1) 'nearest'; f32[9]!"

``(-1,1)`` after a type has the meaning of :func:`uniform`, and ``!`` that of :func:`special`.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from fxlite.scalar.functions import complex_of
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType, parse_type


@dataclass(frozen=True)
class Random:
    """A random array: normally distributed floats (uniform if ``low`` and ``high`` are given), or uniform
    integers in ``[low, high)``; both parts of complex numbers are such floats. ``special`` adds zeros, NaN
    and infinities. The type may be given as text, which is parsed on demand."""

    given: TensorType | str
    low: float | None = None
    high: float | None = None
    special: bool = False

    @functools.cached_property
    def type(self) -> TensorType:
        """The type of the array."""
        return parse_type(self.given) if isinstance(self.given, str) else self.given

    def make(self, rng: np.random.Generator, dims: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """The array, with sizes for named dims from ``dims``."""
        concrete = self.type.substitute(dims)
        shape, dtype = concrete.shape, concrete.dtype
        if dtype.is_complex:
            kind = TensorType(shape, dtype.real)
            real, imag = (Random(kind, self.low, self.high).make(rng, dims) for _ in range(2))
            if self.special:
                pairs = [*_SPECIAL_PARTS, *(pair[::-1] for pair in _SPECIAL_PARTS)]
                for part, chosen in zip((real, imag), np.transpose(pairs)):
                    part.reshape(-1)[: len(chosen)] = chosen[: part.size]
            return np.asarray(complex_of(real, imag))
        if dtype.is_bool:
            return np.asarray(rng.integers(0, 2, shape).astype(np.bool_))
        if dtype.is_integer:
            low = self.low if self.low is not None else (0 if dtype.is_unsigned else -5)
            high = self.high if self.high is not None else 6
            return np.asarray(rng.integers(int(low), int(high), shape)).astype(dtype.numpy)
        if self.low is not None or self.high is not None:
            low, high = self.low or 0.0, 1.0 if self.high is None else self.high
            values = np.asarray(rng.uniform(low, high, shape))
        else:
            values = np.asarray(rng.standard_normal(shape))
        if self.special and values.size:
            flat = values.reshape(-1)
            chosen = np.array([0.0, -0.0, np.nan, np.inf, -np.inf])
            flat[: len(chosen)] = chosen[: flat.size]
            values = flat.reshape(values.shape)
        return np.asarray(values).astype(dtype.numpy)


#: Real and imaginary parts of representative complex numbers.
_SPECIAL_PARTS = ((0.0, 0.0), (0.0, 1.5), (np.inf, 1.0), (np.nan, 1.0))


def uniform(text: str, low: float, high: float) -> Random:
    """A random array with values (or integers) in ``[low, high)``."""
    return Random(text, low, high)


def special(text: str) -> Random:
    """A random array that starts with 0, -0, NaN, +inf, -inf."""
    return Random(text, special=True)


@dataclass(frozen=True)
class Sample:
    """One call of an op. Type text and :class:`Random` stand for arrays; all other values are passed
    unchanged."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dims: Mapping[str, int] = field(default_factory=dict)

    def types(self) -> list[TensorType]:
        """The declared types of the arrays, in order of appearance."""
        return [leaf.type for leaf in self._leaves()]

    def arrays(self, seed: int = 0) -> list[np.ndarray[Any, Any]]:
        """The arrays, in order of appearance."""
        rng = np.random.default_rng(seed)
        return [leaf.make(rng, self.dims) for leaf in self._leaves()]

    def _leaves(self) -> list[Random]:
        found: list[Random] = []
        self._map(lambda leaf: found.append(leaf))
        return found

    def _map(self, function: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def visit(value: Any) -> Any:
            if isinstance(value, Random):
                return function(value)
            if isinstance(value, (tuple, list)):
                return type(value)(visit(v) for v in value)
            return value

        return tuple(visit(a) for a in self.args), {k: visit(v) for k, v in self.kwargs.items()}

    def call(self, function: Any, values: Any) -> Any:
        """Call ``function`` with the arrays (or proxies) ``values`` in place of the types."""
        iterator = iter(values)
        args, kwargs = self._map(lambda leaf: next(iterator))
        return function(*args, **kwargs)


@dataclass(frozen=True)
class BadSample:
    """A call that must raise an error whose message contains ``match``."""

    sample: Sample
    match: str


def _lift(value: Any) -> Any:
    if isinstance(value, str) and "[" in value:
        return Random(value)
    if isinstance(value, list):
        return [_lift(v) for v in value]
    return value


def S(*args: Any, dims: Mapping[str, int] | None = None, **kwargs: Any) -> Sample:
    """A sample; strings like ``"f32[3,4]"`` are random arrays of that type."""
    lifted = {k: _lift(v) for k, v in kwargs.items()}
    return Sample(tuple(_lift(a) for a in args), lifted, dims or {})


#: The samples of a record: samples, and rows of text that describe some.
Samples: TypeAlias = Iterable[Sample | str]


def parsed(rows: Samples) -> Iterator[Sample]:
    """The samples in ``rows``, whose texts are parsed."""
    for row in rows:
        if isinstance(row, str):
            yield from (_of_words(text.split()) for text in row.split(";"))
        else:
            yield row


_ARRAY = re.compile(r"(\w+\[[^\]]*\])(?:(!)|\(([^,]+),([^)]+)\))?")


def _of_words(words: list[str]) -> Sample:
    """A sample from the words for its arguments, attributes and named dims."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        if value:
            named[name] = _of_word(value)
        else:
            args.append(_of_word(word))
    dims = shapes.names([v.type.shape for v in (*args, *named.values()) if isinstance(v, Random)])
    return Sample(
        tuple(args),
        {name: value for name, value in named.items() if name not in dims},
        {name: value for name, value in named.items() if name in dims},
    )


def _of_word(word: str) -> Any:
    found = _ARRAY.fullmatch(word)
    if found is None:
        return ast.literal_eval(word)
    text, is_special, low, high = found.groups()
    if is_special:
        return special(text)
    return Random(text) if low is None else uniform(text, ast.literal_eval(low), ast.literal_eval(high))


def Bad(*args: Any, match: str, **kwargs: Any) -> BadSample:
    """A call that must raise an error whose message contains ``match``."""
    return BadSample(S(*args, **kwargs), match)
