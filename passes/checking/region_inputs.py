"""Inputs on which a region is run: sizes and arrays, the same in every run.

In: the types of a region's inputs and the numbers that its attributes and weights fix. Out: a list
of :class:`Draw`, each a choice of sizes and of values, and the arrays of one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.types import shapes
from fxlite.types.symbols import fact_symbols
from fxlite.types.tensor_type import TensorType

Array = np.ndarray[Any, Any]

#: Fixed sizes up to this are not made smaller.
SMALL = 12
#: The most telling first: a small array has room for some of them.
_SPECIAL = (np.nan, -np.inf, -0.0, np.inf, 0.0, 1e-40, -1e-310)


@dataclass(frozen=True)
class Draw:
    """Sizes of the named dims (of a sort: "odd", "large", "one", "zero"), smaller sizes to put in
    place of large fixed ones, and the sort of values: "normal", "positive", or "special" (NaN,
    infinities, zeros of both signs and denormal numbers among normal ones). ``positions``:
    integers are small and not negative, as positions are."""

    sort: str
    dims: Mapping[str, int]
    values: str
    instead: Mapping[int, int] = field(default_factory=dict)
    positions: bool = False

    def concrete(self, type: TensorType) -> TensorType:
        """The type with these sizes."""
        shape = [
            self.instead.get(d, d) if d.__class__ is int else shapes.substitute(d, self.dims)
            for d in type.shape
        ]
        return TensorType(tuple(shape), type.dtype)

    def is_like(self, other: Draw) -> bool:
        """Whether both are of one sort of sizes and values."""
        return (self.sort, self.values) == (other.sort, other.values)

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.dims.items())
        smaller = ", ".join(f"{new} for {old}" for old, new in self.instead.items())
        parts = [sizes, f"sizes {smaller}" if smaller else ""]
        parts.append("" if self.values == "normal" else f"{self.values} values")
        return "; ".join(p for p in parts if p)


def draws(types: Collection[Any], names: Iterable[str], special: bool) -> list[Draw]:
    """What a region is tried with, the most telling first: named dims odd and different; NaN and
    infinities, the limits of integers if ``special``; all dims 1; one of the first three 0; large
    and different. Where the facts of a dim exclude such a size, the nearest one is taken."""
    names = sorted(names)
    known = {s.name: s.facts for t in _flat(types) for s in fact_symbols(t.shape)}

    def nearest(sizes: Mapping[str, int]) -> dict[str, int]:
        return {n: known[n].nearest(size) if n in known else size for n, size in sizes.items()}

    odd = nearest({name: 3 + 2 * i for i, name in enumerate(names)})
    large = nearest({name: 10 + 3 * i for i, name in enumerate(names)})
    made = [Draw("odd", odd, "normal")]
    if special and any(not t.dtype.is_bool for t in _flat(types)):
        made.append(Draw("large", large, "special"))
    if names:
        made.append(Draw("one", nearest(dict.fromkeys(names, 1)), "normal"))
        empty = [name for name in names[:3] if nearest({name: 0})[name] == 0]
        made += [Draw("zero", {**odd, name: 0}, "normal") for name in empty]
    return [*made, Draw("large", large, "positive")]


def _flat(types: Iterable[Any]) -> Iterable[TensorType]:
    for type in types:
        if isinstance(type, TensorType):
            yield type
        elif isinstance(type, tuple):
            yield from _flat(type)


def smaller_sizes(types: Iterable[Any], fixed: set[int], smallest: int) -> dict[int, int]:
    """Odd sizes from ``smallest`` on to put in place of large ones, except those in ``fixed``."""
    large = {d for t in _flat(types) for d in t.shape if d.__class__ is int and d > SMALL}
    free = iter(range(smallest, 10_000, 2))
    return {d: next(n for n in free if n not in fixed) for d in sorted(large - fixed)}


def arrays(types: Mapping[Any, Any], draw: Draw, seed: int = 0) -> dict[Any, Any]:
    """A value for each type, by the same key; tuples for values that are several arrays."""
    generator = np.random.default_rng(seed)
    return {key: _value(type, draw, generator) for key, type in types.items()}


def _value(type: Any, draw: Draw, generator: np.random.Generator) -> Any:
    if isinstance(type, tuple):
        return tuple(_value(t, draw, generator) for t in type)
    concrete = draw.concrete(type)
    shape, dtype = concrete.shape, concrete.dtype
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        return _integers(shape, dtype.numpy, draw, generator)
    if draw.values == "positive":
        return generator.uniform(0.1, 2.0, shape).astype(dtype.numpy)
    values = np.asarray(generator.standard_normal(shape))
    if draw.values == "special" and values.size:
        flat = values.reshape(-1)
        places = generator.permutation(flat.size)[: len(_SPECIAL)]
        flat[places] = _SPECIAL[: len(places)]
        values = flat.reshape(shape)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def _integers(shape: Any, dtype: Any, draw: Draw, generator: np.random.Generator) -> Array:
    if draw.positions:
        return np.asarray(generator.integers(0, 2, shape)).astype(dtype)
    limits = np.iinfo(dtype)
    values = np.asarray(generator.integers(max(limits.min, -9), 10, shape))
    wide = generator.integers(max(limits.min, -30_000), min(limits.max, 30_000), shape)
    values = np.where(generator.random(shape) < 0.75, values, wide).astype(dtype)
    if draw.values == "special" and values.size:
        flat = values.reshape(-1)
        flat[: min(2, flat.size)] = (limits.max, limits.min)[: flat.size]
        values = flat.reshape(shape)
    return values
