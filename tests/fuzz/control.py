"""Programs with nested control flow, written at random: ``python -m tests.fuzz --control 1000``.

In: a seed. Out: a program as data, which :func:`run` performs with ``fx.cond``, ``fx.fori_loop``
and ``fx.while_loop``, on arrays or traced. It works on a state that its loops carry: arrays of
integers and floats, which are written into in parts, swapped, shifted and handed through, and
numbers. All numbers are integers or eighths of small size, so that every back end gives the same
bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite as fx
from tests.fuzz.results import exact_difference
from tests.oracle import RUNGS

#: Elements of the arrays, and loops inside of each other at most.
SIZE, DEEPEST = 6, 3


@dataclass(frozen=True)
class Block:
    """Statements: (kind, choices, blocks inside)."""

    statements: tuple[tuple[str, tuple[int, ...], tuple[Block, ...]], ...]


def written(choose: random.Random, depth: int = 0) -> Block:
    """A block of statements."""
    simple = tuple(SIMPLE)
    found = []
    for _ in range(choose.randint(1, 3)):
        nested = depth < DEEPEST and choose.random() < 0.5
        kind = choose.choice(("for", "while", "if", "if writes") if nested else simple)
        count = (1 + kind.startswith("if")) * nested
        blocks = tuple(written(choose, depth + 1) for _ in range(count))
        numbers = tuple(choose.randint(0, 99) for _ in range(6))
        found.append((kind, numbers, blocks))
    return Block(tuple(found))


#: What a program works on: names, and how each begins.
State = dict[str, Any]


def start(x: Any, k: Any, n: Any) -> State:
    """The state of a program from its inputs: f64[N], i64[N] and a number."""
    return {"x": x, "y": x * 0.5, "k": k, "m": np.zeros((3, 4)), "i": n, "s": 0.25, "c": 0}


# -- statements ------------------------------------------------------------------------------------
def _place(state: State, number: int, size: int) -> Any:
    """An index: a number, or one that is computed, from either end."""
    if number % 3 == 0:
        return number % size
    value = (state["i"] if number % 3 == 1 else state["c"]) % size
    return value if number % 2 else -1 - value


def _bounded(value: Any) -> Any:
    """Keeps numbers small, and eighths."""
    return np.clip(np.floor(value * 8) / 8, -64, 64)


def _write(state: State, a: Sequence[int]) -> None:
    state["x"][_place(state, a[0], SIZE)] = _bounded(state["y"][_place(state, a[1], SIZE)] + 0.125)


def _write_part(state: State, a: Sequence[int]) -> None:
    start = a[0] % 3
    state["y"][start : start + 3] = state["x"][_place(state, a[1], SIZE)] - state["y"][:3]
    state["y"] = _bounded(state["y"])


def _add_row(state: State, a: Sequence[int]) -> None:
    row = _place(state, a[0], 3)
    state["m"][row] += state["x"][1:5] * (a[1] % 3)
    state["m"][row, 1:3] -= state["m"][_place(state, a[2], 3), 2]
    state["m"] = _bounded(state["m"])


def _column(state: State, a: Sequence[int]) -> None:
    state["m"][:, _place(state, a[0], 4)] = state["k"][:3] % 16


def _swap(state: State, a: Sequence[int]) -> None:
    one, other = _place(state, a[0], SIZE), _place(state, a[1], SIZE)
    last = state["k"][one]
    state["k"][one] = state["k"][other]
    state["k"][other] = last + (a[2] % 2)


def _shift(state: State, a: Sequence[int]) -> None:
    state["x"] = np.concatenate([state["x"][1:], state["x"][:1]])


def _exchange(state: State, a: Sequence[int]) -> None:
    state["x"], state["y"] = state["y"], state["x"]


def _same(state: State, a: Sequence[int]) -> None:
    state["y"] = state["x"].copy() if a[0] % 2 else state["x"] * 1.0


def _whole(state: State, a: Sequence[int]) -> None:
    state["k"] = (state["k"] * (1 + a[0] % 5) + state["i"]) % 31
    state["y"] = _bounded(state["y"] * 0.5 + state["k"] * 0.125)


def _numbers(state: State, a: Sequence[int]) -> None:
    state["s"] = _bounded(state["s"] * 0.5 + state["x"][_place(state, a[0], SIZE)])
    state["c"] = (state["c"] * 3 + state["k"][_place(state, a[1], SIZE)] + 1) % 17


def _reduce(state: State, a: Sequence[int]) -> None:
    state["s"] = _bounded(np.abs(state["y"]).max() - state["x"].min() + state["m"].sum() / 64)


def _view(state: State, a: Sequence[int]) -> None:
    row = state["m"][_place(state, a[0], 3)]
    row[_place(state, a[1], 4)] = a[2] % 5
    state["m"][0, 0] = row[1]


SIMPLE: dict[str, Callable[[State, Sequence[int]], None]] = {
    "write": _write,
    "write part": _write_part,
    "add row": _add_row,
    "column": _column,
    "swap": _swap,
    "shift": _shift,
    "exchange": _exchange,
    "same": _same,
    "whole": _whole,
    "numbers": _numbers,
    "reduce": _reduce,
    "view": _view,
}


# -- running ---------------------------------------------------------------------------------------
def run(block: Block, x: Any, k: Any, n: Any) -> Any:
    """Perform a program; its state at the end."""
    state = _loop(1, lambda i, state: _perform(block, state), start(x, k, n))
    return state["x"], state["y"], state["k"], state["m"], state["s"], state["c"]


def _loop(count: Any, body: Callable[[Any, State], State], state: State) -> State:
    made: State = fx.fori_loop(0, count, body, state)
    return made


def _perform(block: Block, state: State) -> State:
    state = dict(state)
    for kind, numbers, blocks in block.statements:
        if kind in SIMPLE:
            SIMPLE[kind](state, numbers)
        elif kind == "for":
            state = _for(state, numbers, blocks[0])
        elif kind == "while":
            state = _while(state, numbers, blocks[0])
        else:
            state = _if(state, numbers, blocks, kind == "if writes")
    return state


def _for(state: State, a: Sequence[int], block: Block) -> State:
    around = state["i"]

    def body(i: Any, state: State) -> State:
        return _perform(block, {**state, "i": np.int64(1) * i}) | {"i": around}

    lower = a[0] % 2 if a[1] % 3 else state["c"] % 3
    upper = (a[2] % 3 + 1, state["i"] % 4, state["c"] % 4)[a[3] % 3]
    if a[4] % 4 == 0:  # only some of the values are carried
        kept = {name: state[name] for name in ("x", "c")}

        def few(i: Any, kept: State) -> State:
            done = _perform(block, {**_owned(state), **kept, "i": np.int64(1) * i})
            return {name: done[name] for name in kept}

        return {**state, **fx.fori_loop(lower, upper, few, kept)}
    return fx.fori_loop(lower, upper, body, state)  # type: ignore[no-any-return]


def _owned(state: State) -> State:
    """Values from around a body, which it must not write into, as copies."""
    return {n: v.copy() if getattr(v, "ndim", 0) else v for n, v in state.items()}


def _while(state: State, a: Sequence[int], block: Block) -> State:
    names = list(state)

    def more(*values: Any) -> Any:
        now = dict(zip([*names, "left"], values))
        return (now["left"] > 0) & (now["s"] < 40 + a[1])

    def step(*values: Any) -> Any:
        now = dict(zip(names, values))
        done = _perform(block, now)
        return (*(done[name] for name in names), values[-1] - 1)

    *found, _ = fx.while_loop(more, step, (*state.values(), a[0] % 4))
    return dict(zip(names, found))


def _if(state: State, a: Sequence[int], blocks: Sequence[Block], writes: bool) -> State:
    test = (state["s"] > a[0] % 5, state["k"][_place(state, a[1], SIZE)] > 9, (state["c"] % 2 == 0) & (state["i"] < 3))[
        a[2] % 3
    ]
    if writes:
        wanted = [name for name in ("x", "k", "m") if a[3] % 2 or name == "k"]
        one, other = (lambda block=block: tuple(_perform(block, _owned(state))[n] for n in wanted) for block in blocks)
        return {**state, **dict(zip(wanted, fx.cond(test, one, lambda: other())))}
    one, other = (lambda block=block: _perform(block, _owned(state)) for block in blocks)
    return fx.cond(test, one, other)  # type: ignore[no-any-return]


# -- comparing -------------------------------------------------------------------------------------
def check_control(seed: int, number: int, rungs: Sequence[str] = ("graph", "python", "c")) -> int:
    """Compare a program in all back ends with eager NumPy; how many nodes it has. Raises
    AssertionError."""
    choose = random.Random(f"{seed}.{number}")
    block = written(choose)

    def program(x: Any, k: Any, n: Any) -> Any:
        return run(block, x, k, n)

    rng = np.random.default_rng(number)
    types = ("f64[6]", "i64[6]", "i64[]")
    gm = fx.symbolic_trace(program, *types)
    gm.graph.lint(full=True)
    text = str(gm.graph)
    parsed = fx.parse(text)
    assert str(parsed) == text, f"{seed}.{number}: the text of the graph changes"
    used = [*rungs, *(["kernel"] if number % 4 == 0 else [])]
    for _ in range(2):
        given = (np.floor(rng.standard_normal(SIZE) * 16) / 8, rng.integers(0, 20, SIZE), np.int64(rng.integers(0, 5)))
        expected = program(*given)
        for rung in used:
            found = tuple(RUNGS[rung](gm, given))
            wrong = exact_difference(expected, found)
            assert wrong is None, f"{seed}.{number}, {rung}, {given}: {wrong}\n{text}"
    return len(text.splitlines())
