"""Writes random programs: NumPy decides, statement by statement, whether they make sense.

In: a seed. Out: a :class:`~tests.fuzz.programs.program.Program`. While it is written, the program
runs on arrays of probe sizes that nothing else has, so that shapes and dtypes of all variables are
known and broadcasting does not rest on coincidence; a statement that NumPy refuses is forgotten.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.types.dtypes import ALL
from tests.fuzz.programs.program import Array, Program, Sizes, draw

#: Sizes of the named dims while a program is written.
PROBE = {"B": 6, "T": 9, "N": 11}
#: Sizes they are run at; each program at a few combinations.
SMALL, ODD, LARGE = (0, 1, 2, 1, 3), (3, 5, 7, 8, 13, 17), (16, 31, 33, 65, 130)
#: What fxlite has a dtype for.
SUPPORTED = {d.numpy for d in ALL}
#: Elements of a value at most, at the probe sizes and at those that it runs at.
MOST_PROBED, MOST_RUN = 20_000, 300_000
DIMS = ("B", "T", "N", 1, 2, 3, 4, 4, 5, 7, 8, 16, 33)
DTYPES = ("f32",) * 10 + (
    "f64",
    "f64",
    "f64",
    "i64",
    "i64",
    "i32",
    "bool",
    "f16",
    "c64",
    "c128",
    "u8",
    "i8",
    "i16",
    "u16",
    "u32",
    "u64",
)
NAMES = tuple("abcdeghijklmnopqrstuvwyz")

Phrase = Callable[["Writer"], str | None]


class Writer:
    """A program under way: ``values`` are its variables, with NumPy's values for them; ``owned``
    those whose memory is the program's own, so that it may be written."""

    def __init__(self, seed: tuple[int, int]) -> None:
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.space: dict[str, Any] = {"np": np, "F": F, "fx": fx}
        self.inputs: list[tuple[str, str]] = []
        self.weights: list[str] = []
        self.statements: list[str] = []
        self.values: dict[str, Array] = {}
        self.hard = self.chance(0.12)
        for name in "xyzw"[: self.number(1, 3)]:
            self._input(name)
        self.callers = list(self.values.values())

    # -- choices -----------------------------------------------------------------------------------
    def chance(self, probability: float = 0.5) -> bool:
        """True that often."""
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``."""
        return int(self.rng.integers(low, high + 1))

    def choose(self, items: Sequence[Any]) -> Any:
        """One of them."""
        return items[self.number(0, len(items) - 1)]

    def variable(self, fits: Callable[[Array], bool] = lambda v: True) -> str | None:
        """A variable whose value fits, the later ones more often; None if there is none."""
        found = [name for name, value in self.values.items() if fits(value)]
        if not found:
            return None
        return found[-1 - int(len(found) * self.rng.random() ** 2)]

    def floating(self, rank: int = 0) -> str | None:
        """A variable of floats of at least this rank."""
        return self.variable(lambda v: v.dtype.kind == "f" and v.ndim >= rank)

    def like(self, shape: tuple[int, ...]) -> str | None:
        """A variable that broadcasts with a shape."""

        def fits(value: Array) -> bool:
            pairs = zip(reversed(value.shape), reversed(shape))
            return all(a == b or 1 in (a, b) for a, b in pairs)

        return self.variable(fits)

    def known(self, *sizes: int) -> bool:
        """Whether these are sizes that a constant may have: not those of named dims, and few."""
        return all(0 < size <= 40 and size not in PROBE.values() for size in sizes)

    def owned(self) -> str | None:
        """A variable whose memory the program may write."""
        return self.variable(
            lambda v: v.ndim > 0 and v.flags.writeable and not any(np.may_share_memory(v, c) for c in self.callers)
        )

    def weight(self, shape: Sequence[int], dtype: str = "f4") -> str:
        """A new constant of floats."""
        name, seed = f"W{len(self.weights)}", self.number(0, 99)
        drawn = f"np.random.default_rng({seed}).standard_normal({tuple(shape)!r})"
        text = f'{name} = {drawn}.astype("{dtype}")'
        exec(text, self.space)
        self.weights.append(text)
        self.callers.append(self.space[name])
        return name

    # -- writing -----------------------------------------------------------------------------------
    def _input(self, name: str) -> None:
        if self.values and self.chance(0.45):  # of the shape of another, or of its last axes
            first = self.inputs[-1][1].partition("[")[2].rstrip("]").split(",")
            dims = [d for d in first if d][self.number(0, 1) * self.chance(0.3) :]
        else:
            rank = self.choose((0, 1, 2, 2, 2, 3, 3, 4))
            dims = [str(self.choose(DIMS)) for _ in range(rank)]
        dtype = self.choose(DTYPES)
        text = f"{dtype}[{','.join(dims)}]" if dims else dtype
        self.inputs.append((name, text))
        value = draw(self.rng, text, PROBE)
        if value.size > MOST_PROBED:
            self.inputs.pop()
            self._input(name)
            return
        self.values[name] = self.space[name] = value

    def assign(self, expression: str) -> str | None:
        """``name = expression`` if NumPy accepts it; the name."""
        name = self.new_name()
        return name if self.execute(f"{name} = {expression}") else None

    def new_name(self) -> str:
        """A name that is free, or now and then one to be assigned again."""
        free = [n for n in NAMES if n not in self.space]
        taken = [n for n in self.values if n not in dict(self.inputs)]
        if not free or (taken and self.chance(0.05)):
            return str(self.choose(taken or list(self.values)))
        return free[0]

    def execute(self, text: str) -> bool:
        """Write a statement if NumPy accepts it and what it makes is an array that fxlite has a
        dtype for, of no great size."""
        space = dict(self.space)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                exec(text, space)
        except Exception:
            return False
        values = {n: v for n, v in space.items() if isinstance(v, (np.ndarray, np.generic))}
        for name, value in values.items():
            if value is self.space.get(name):
                continue
            if np.dtype(value.dtype) not in SUPPORTED or value.size > MOST_PROBED:
                return False
        self.space = space
        self.values = {n: np.asarray(v) for n, v in values.items() if not n.startswith("W")}
        self.statements.append(text)
        return True

    def evaluated(self, expression: str) -> Array | None:
        """The value of an expression; None where NumPy refuses it."""
        try:
            with np.errstate(all="ignore"):
                return np.asarray(eval(expression, dict(self.space)))
        except Exception:
            return None

    def result(self) -> str:
        """What is returned: what nothing reads, and now and then others."""
        unread = [n for n in self.values if n not in dict(self.inputs) and not self._is_read(n)]
        count = self.choose((1, 2, 3, 4))
        names = [*unread[::-1], self.choose(list(self.values))][:count]
        first, listed = names[0], ", ".join(names)
        keyed = ", ".join(f'"{key}": {n}' for key, n in zip(("out", "rest", "more", "last"), names))
        if len(names) == 1:
            return str(self.choose((first, first, first, f"({first},)", f"{{{keyed}}}")))
        return str(self.choose((listed, listed, f"[{listed}]", f"{{{keyed}}}")))

    def _is_read(self, name: str) -> bool:
        word = re.compile(rf"\b{name}\b(?! = )")
        return any(word.search(text) for text in self.statements)

    def sizes(self) -> tuple[Sizes, ...]:
        """Combinations to run at: an ordinary one, one with a 0 or 1, and one that is large."""
        named = sorted(n for n in PROBE if any(n in text[3:] for _, text in self.inputs))
        if not named:
            return ({},)
        found: list[Sizes] = [{n: self.choose(ODD) for n in named}]
        for kinds in (SMALL, LARGE):
            chosen = {n: self.choose(ODD) for n in named}
            chosen[self.choose(named)] = self.choose(kinds)
            if all(self._elements(value.shape, chosen) <= MOST_RUN for value in self.values.values()):
                found.append(chosen)
        return tuple(found)

    def _elements(self, shape: tuple[int, ...], sizes: Sizes) -> float:
        grown = {PROBE[n]: max(s / PROBE[n], 1) for n, s in sizes.items()}
        return float(np.prod([d * grown.get(d, 1) for d in shape]))

    def program(self) -> Program:
        """What was written."""
        return Program(
            self.seed,
            tuple(self.inputs),
            tuple(self.weights),
            tuple(self.statements),
            self.result(),
            self.sizes(),
            self.hard,
        )
