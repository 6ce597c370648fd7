"""A program of the fuzzer: the text of a NumPy function, the types of its inputs, and its sizes.

In: what :mod:`.writer` wrote, or JSON. Out: the source as a script that stands alone, the function,
and arrays for its inputs, which are the same ones each time.
"""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.scalar.functions import complex_of
from fxlite.types import shapes
from fxlite.types.tensor_type import parse_type

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]

#: Floats that a few of the elements are, in a program with hard values.
HARD = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e15, -1e15, 1e-40, 65504.0, 2.0**24 + 1)


@dataclass(frozen=True, eq=False)
class Program:
    """``inputs`` are (name, type) pairs; ``weights`` assignments of constants; ``statements`` the
    body, each of one or more lines; ``result`` what is returned; ``sizes`` those to run at;
    ``hard``: some floats are NaN, infinite, denormal or zero."""

    seed: tuple[int, int]
    inputs: tuple[tuple[str, str], ...]
    weights: tuple[str, ...]
    statements: tuple[str, ...]
    result: str
    sizes: tuple[Sizes, ...]
    hard: bool = False

    @property
    def source(self) -> str:
        """The constants and the function."""
        names = ", ".join(name for name, _ in self.inputs)
        body = [line for text in (*self.statements, f"return {self.result}") for line in text.split("\n")]
        return "\n".join([*self.weights, f"def program({names}):", *("    " + t for t in body), ""])

    def function(self) -> Callable[..., Any]:
        """The function, compiled so that errors can quote its lines."""
        name = f"<program {self.seed[0]}.{self.seed[1]}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"np": np, "F": F, "fx": fx}
        exec(compile(self.source, name, "exec"), scope)
        return scope["program"]  # type: ignore[no-any-return]

    def types(self) -> dict[str, str]:
        """The inputs' types by name."""
        return dict(self.inputs)

    def arrays(self, sizes: Sizes) -> list[Array]:
        """Inputs at these sizes."""
        rng = np.random.default_rng(self.seed)
        return [draw(rng, text, sizes, self.hard) for _, text in self.inputs]

    def script(self, sizes: Sizes, check: str = "") -> str:
        """A file that stands alone: the program, its inputs, and what to run."""
        types = ", ".join(f'{n}="{t}"' for n, t in self.inputs)
        lines = [
            f"# python -m tests.fuzz --program {self.seed[0]}.{self.seed[1]}",
            "import numpy as np",
            "import fxlite as fx",
            "import fxlite.nn.functional as F",
            "from tests.fuzz.programs.program import draw",
            "",
            "",
            self.source,
            "",
            f"sizes, rng = {dict(sizes)!r}, np.random.default_rng({self.seed!r})",
            f"arrays = [draw(rng, t, sizes, {self.hard}) for t in {[t for _, t in self.inputs]!r}]",
            f'compiled = fx.compile(program, backend="c", {types})',
            "print(program(*arrays))",
            "print(compiled(*arrays))",
            check,
        ]
        return "\n".join(lines)

    def to_json(self) -> str:
        """One line of text."""
        return json.dumps(asdict(self))


def from_json(text: str) -> Program:
    """What :meth:`Program.to_json` wrote."""
    data = json.loads(text)
    data["inputs"] = tuple((n, t) for n, t in data["inputs"])
    for name in ("seed", "weights", "statements", "sizes"):
        data[name] = tuple(data[name])
    return Program(**data)


def draw(rng: np.random.Generator, text: str, sizes: Sizes, hard: bool = False) -> Array:
    """An array of a type at these sizes: floats of about 1, small integers; of integers now and
    then the extremes."""
    kind = parse_type(text)
    shape = tuple(int(d) for d in shapes.substitute(kind.shape, dict(sizes)))
    dtype = kind.dtype.numpy
    if kind.dtype.is_complex:
        parts = (rng.standard_normal(shape) * rng.choice((0.5, 1.0, 3.0)) for _ in range(2))
        return np.asarray(complex_of(*parts)).astype(dtype)
    if kind.dtype.is_float:
        values = rng.standard_normal(shape) * rng.choice((0.5, 1.0, 3.0))
        if hard:
            values = np.where(rng.random(shape) < 0.1, rng.choice(HARD, shape), values)
        with np.errstate(all="ignore"):
            return np.asarray(values).astype(dtype)
    if kind.dtype.is_bool:
        return np.asarray(rng.random(shape) < 0.6)
    info = np.iinfo(dtype)
    drawn = np.asarray(rng.integers(max(-9, int(info.min)), 10, shape))
    if hard:
        ends = rng.choice(np.array([info.min, info.max], dtype), shape)
        return np.asarray(np.where(rng.random(shape) < 0.1, ends, drawn.astype(dtype)))
    return drawn.astype(dtype)
