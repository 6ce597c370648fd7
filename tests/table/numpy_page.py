"""docs/numpy.md: every public name of NumPy, and what it is here.

In: ``numpy_calls.txt``, which has a call of each name over the arrays of :data:`ARRAYS`, or why
there is none. Out: the page, made of the ops that each call becomes. ``python -m
tests.table.numpy_page`` writes it; tests/test_numpy_page.py runs every call beside NumPy.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx

PAGE = Path(__file__).resolve().parents[2] / "docs" / "numpy.md"
_CALLS = Path(__file__).with_name("numpy_calls.txt")

#: Why a name has no call.
REASONS = {
    "complex": "complex numbers",
    "data": "the size of the result depends on values; `np.where(mask, x, 0)` keeps it",
    "eig": "eigenvalues of a general matrix are complex",
    "file": "reads or writes files",
    "iterator": "an iterator; write it for all elements at once",
    "memory": "is about how an array lies in memory",
    "old": "an old name",
    "own": "makes arrays of what cannot be traced",
    "plain": "is about dtypes, and answered while tracing",
    "python": "calls a Python function for each element",
    "random": "draws from a hidden state, which no graph has; `fx.random` draws for a key, which is an input",
    "state": "changes how NumPy behaves",
    "text": "is about text",
    "time": "dates",
    "value": "needs values while the program is traced",
}


@dataclass(frozen=True)
class Name:
    """A public name; ``call`` is an expression, or "" where ``reason`` says why there is none."""

    room: str
    name: str
    call: str = ""
    reason: str = ""


def _arrays() -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    normal = rng.standard_normal
    holes = normal((3, 4))
    holes[0, 1] = holes[2, 3] = np.nan
    regular = normal((4, 4)) + 4 * np.eye(4)
    return {
        "x": normal((3, 4)),
        "y": normal((3, 4)),
        "e": np.abs(normal((3, 4))) + 0.1,
        "h": holes,
        "v": normal(7),
        "w": normal(7),
        "p": rng.uniform(0.1, 0.9, 7),
        "q": np.sort(normal(7)),
        "m": regular,
        "s": regular @ regular.T,
        "t": normal((2, 3, 4)),
        "i": rng.integers(0, 7, 7),
        "j": rng.integers(0, 20, 7),
        "n": rng.integers(0, 9, (3, 4)),
        "b": normal(7) > 0,
        "z": normal((3, 4)) > 0,
        "u": rng.integers(0, 255, 3).astype(np.uint8),
    }


#: What calls are made of, by name: numbers of both signs, positive ones (e, p), with NaN (h),
#: ascending (q), a regular matrix (m), a positive definite one (s), integers, bools, bytes.
ARRAYS = _arrays()


@cache
def names() -> tuple[Name, ...]:
    """All names, in the order of the file."""
    found, room = [], ""
    for line in _CALLS.read_text().splitlines():
        if line.startswith("# "):
            room = line[2:]
            continue
        name, _, rest = line.partition(" | ")
        if rest.startswith("no: "):
            found.append(Name(room, name, reason=REASONS[rest[4:]]))
        else:
            found.append(Name(room, name, rest))
    return tuple(found)


def public() -> dict[str, set[str]]:
    """The names that NumPy has: functions of its rooms, and what an array has."""

    def functions(module: Any) -> set[str]:
        found = ((n, getattr(module, n)) for n in dir(module) if not n.startswith("_"))
        return {n for n, value in found if callable(value) and not isinstance(value, type)}

    rooms = (np, np.linalg, np.fft, np.random)
    return {
        **{room.__name__: functions(room) for room in rooms},
        "ndarray": {n for n in dir(np.ndarray) if not n.startswith("_")},
    }


def program(call: str) -> tuple[Callable[..., Any], list[np.ndarray[Any, Any]]]:
    """A call as a function, and the arrays it takes."""
    tree = ast.parse(call, mode="eval")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    taken = sorted(used & ARRAYS.keys())
    return function_of(taken, call, np=np), [ARRAYS[n].copy() for n in taken]


def function_of(parameters: Sequence[str], expression: str, **space: Any) -> Callable[..., Any]:
    """A function that has its source, as functions of programs have."""
    source = f"def program({', '.join(parameters)}):\n    return {expression}\n"
    file = f"<numpy page: {expression}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    exec(compile(source, file, "exec"), space)
    return space["program"]  # type: ignore[no-any-return]


def _line(name: Name) -> str:
    if not name.call:
        return f"| `{name.name}` | no: {name.reason} |"
    function, inputs = program(name.call)
    module = fx.symbolic_trace(function, *inputs)
    found = Counter(n.target.name for n in module.graph.nodes if n.op == "call_function")
    made = ", ".join(f"`{op}`" if count == 1 else f"`{op}` x{count}" for op, count in found.items())
    shown = name.call.replace("|", "\\|")
    return f"| `{name.name}` | `{shown}`: {made or 'known while tracing'} |"


_HEAD = """\
# NumPy's names

This page lists every public name of NumPy {version}. For each it gives a call and the ops that the call becomes
in a graph, or the reason why it cannot be traced. `python -m tests.table.numpy_page` writes the page, and a test
compares every call with NumPy, in the graph, as regenerated Python, and compiled.

In the calls, `x`, `y` and `t` are arrays of numbers, and `v` and `w` are vectors. `e` and `p` are positive, `h`
contains NaN, and `q` is sorted. `m` is an invertible matrix and `s` a positive definite one. `i`, `j` and `n`
are integers, `b` and `z` are bools, and `u` holds bytes.

- Where NumPy raises an error because of values (a singular matrix, an index out of range), the graph and
  compiled C do so, too. On CUDA, a matrix that cannot be factored gives NaN or infinities, and matrices may
  have up to 64 columns.
- `np.bincount` needs `minlength=`, which must be larger than all the numbers, unless the program itself bounds them
  (`x % n`, `np.argmin(d, axis=1)`, bytes); in `fx.jit` it does not. `np.partition` sorts.
- A reduction or scan by a ufunc that has no op (`np.subtract.reduce`) is a loop, which is unrolled for up to 64
  elements.
"""


def page() -> str:
    """The text of docs/numpy.md."""
    version = ".".join(np.__version__.split(".")[:2])
    parts = [_HEAD.replace("{version}", version)]
    rooms: dict[str, list[Name]] = {}
    for name in names():
        rooms.setdefault(name.room, []).append(name)
    for room, found in rooms.items():
        traced = sum(bool(n.call) for n in found)
        parts.append(f"## {room}: {traced} of {len(found)}\n")
        parts.append("\n".join(["| name | here |", "| --- | --- |", *map(_line, found)]) + "\n")
    return "\n".join(parts)


def calls() -> Iterator[Name]:
    """The names that have a call."""
    return (name for name in names() if name.call)


if __name__ == "__main__":
    PAGE.write_text(page())
