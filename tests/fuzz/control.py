"""Programs with nested control flow, written at random: ``python -m tests.fuzz --control 1000``.

In: a seed. Out: a program as data, which :func:`run` performs with ``fx.cond``, ``fx.fori_loop``
and ``fx.while_loop``, on arrays or traced, or, ``plain``, with Python's own ``if``, ``for`` and
``while``. It works on a state that its loops carry: arrays of integers and floats of several widths
and of bools, which are written into in parts, in place, under masks and through views, swapped,
shifted and handed through, and numbers. All numbers are integers or eighths of small size, so that
every back end gives the same bits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.fuzz.results import exact_difference
from tests.oracle import RUNGS

#: Elements of the arrays, and how many loops are inside of each other at most.
SIZE, DEEPEST = 6, (1, 2, 2, 3)


@dataclass(frozen=True)
class Block:
    """Statements: (kind, choices, blocks inside)."""

    statements: tuple[tuple[str, tuple[int, ...], tuple[Block, ...]], ...]


def written(choose: random.Random, deepest: int) -> Block:
    """A block of statements, with loops and conditions so many times inside of each other."""
    simple = tuple(SIMPLE)
    found = []
    for _ in range(choose.randint(1, 3)):
        nested = deepest and choose.random() < 0.5
        kind = choose.choice(("for", "while", "if", "if writes") if nested else simple)
        count = (1 + kind.startswith("if")) * nested
        blocks = tuple(written(choose, deepest - 1) for _ in range(count))
        numbers = tuple(choose.randint(0, 99) for _ in range(6))
        found.append((kind, numbers, blocks))
    return Block(tuple(found))


#: What a program works on: names, and how each begins.
State = dict[str, Any]


def start(x: Any, k: Any, n: Any) -> State:
    """The state of a program from its inputs: f64[N], i64[N] and a number."""
    small = {"f": x.astype(np.float32), "u": k.astype(np.uint8), "h": (k - 9).astype(np.int16), "b": x > 0}
    return {"x": x, "y": x * 0.5, "k": k, "m": np.zeros((3, 4)), "i": n, "s": 0.25, "c": 0, **small}


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


def _narrow(state: State, a: Sequence[int]) -> None:
    """Numbers of other types are written: they are cast, and integers wrap around."""
    state["f"][_place(state, a[0], SIZE)] = state["x"][_place(state, a[1], SIZE)] * 0.5
    state["u"][_place(state, a[2], SIZE)] = state["k"][_place(state, a[3], SIZE)] + 250
    state["h"][1:4] = state["k"][_place(state, a[4], SIZE)] * np.int64(500)
    state["f"] = _bounded(state["f"])


def _mixed(state: State, a: Sequence[int]) -> None:
    """Types promote as NumPy's do, and results are cast back."""
    mixed = (state["u"] + state["h"], state["h"] * state["f"], state["u"] - state["b"], state["f"] + state["k"])
    state["y"] = _bounded(mixed[a[0] % 4].astype(np.float64) + state["s"])
    state["f"] = _bounded(state["f"] * state["b"] + np.float32(0.5)) * (1 + a[1] % 2)
    state["f"] = _bounded(state["f"])


def _in_place(state: State, a: Sequence[int]) -> None:
    state["u"] += np.uint8(a[0])
    state["h"] //= 1 + a[1] % 3
    state["f"][a[2] % 3 :] -= state["f"][: SIZE - a[2] % 3].copy()
    state["x"] *= 0.5
    state["b"] ^= state["u"] > a[3]
    state["x"], state["f"] = _bounded(state["x"]), _bounded(state["f"])


def _masked(state: State, a: Sequence[int]) -> None:
    state["x"][state["b"]] = a[0] % 4
    state["h"][state["k"] > a[1] % 20] += 3
    state["y"] = np.where(state["b"], state["y"], state["f"])
    state["b"][_place(state, a[2], SIZE)] = state["s"] > 1


def _view_of_view(state: State, a: Sequence[int]) -> None:
    turned = state["m"].T[a[0] % 3 :]
    turned[0, _place(state, a[1], 3)] += 1
    state["m"][1:][0, a[2] % 3 :] -= state["s"]
    backwards = state["x"][::-1][a[3] % 3 :: 2]
    backwards[_place(state, a[4], 2)] = turned[0, 1]
    backwards += 0.125
    state["m"], state["x"] = _bounded(state["m"]), _bounded(state["x"])


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
    "narrow": _narrow,
    "mixed": _mixed,
    "in place": _in_place,
    "masked": _masked,
    "view of view": _view_of_view,
}


# -- running ---------------------------------------------------------------------------------------
def run(block: Block, x: Any, k: Any, n: Any, plain: bool = False, binds: bool = False) -> Any:
    """Perform a program; its state at the end."""
    if plain:
        state = start(x.copy(), k.copy(), n)
        _plainly(block, state, binds)
    else:
        state = _loop(1, lambda i, state: _perform(block, state), start(x, k, n))
    return tuple(state[name] for name in ("x", "y", "k", "m", "s", "c", "f", "u", "h", "b"))


def _plainly(block: Block, state: State, binds: bool) -> None:
    """Perform statements with Python's own. Unless it ``binds``, an array that a statement makes anew is written into
    the one that was there, because a loop that writes into arrays may not exchange them."""
    for kind, a, blocks in block.statements:
        if kind in SIMPLE:
            before = dict(state)
            SIMPLE[kind](state, a)
            for name, value in before.items():
                if not binds and getattr(value, "ndim", 0) and state[name] is not value:
                    value[...] = state[name]
                    state[name] = value
        elif kind == "for":
            around = state["i"]
            lower = a[0] % 2 if a[1] % 3 else state["c"] % 3
            for i in range(lower, (a[2] % 3 + 1, state["i"] % 4, state["c"] % 4)[a[3] % 3]):
                state["i"] = np.int64(1) * i
                if a[4] % 4 == 0 and state["s"] > a[5] % 30:
                    break
                _plainly(blocks[0], state, binds)
            state["i"] = around
        elif kind == "while":
            left = a[0] % 4
            while left > 0 and state["s"] < 40 + a[1]:
                left -= 1
                if a[2] % 4 == 0 and state["c"] % 3 == 1:
                    continue
                _plainly(blocks[0], state, binds)
        elif _test(state, a):
            _plainly(blocks[0], state, binds)
        elif kind == "if":
            _plainly(blocks[1], state, binds)


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


def _test(state: State, a: Sequence[int]) -> Any:
    """A condition."""
    tests = (
        state["s"] > a[0] % 5,
        state["k"][_place(state, a[1], SIZE)] > 9,
        (state["c"] % 2 == 0) & (state["i"] < 3),
        state["b"].any(),
    )
    return tests[a[2] % 4]


def _if(state: State, a: Sequence[int], blocks: Sequence[Block], writes: bool) -> State:
    test = _test(state, a)
    if writes:
        wanted = [name for name in ("x", "k", "m", "u", "b") if a[3] % 2 or name == "k"]
        one, other = (lambda block=block: tuple(_perform(block, _owned(state))[n] for n in wanted) for block in blocks)
        return {**state, **dict(zip(wanted, fx.cond(test, one, lambda: other())))}
    one, other = (lambda block=block: _perform(block, _owned(state)) for block in blocks)
    return fx.cond(test, one, other)  # type: ignore[no-any-return]


# -- comparing -------------------------------------------------------------------------------------
def check_control(seed: int, number: int, rungs: Sequence[str] = ("graph", "python", "c")) -> int:
    """Compare a program in all back ends with eager NumPy; how many lines its graph has. Every third
    one is plain Python: 0 if it is refused with a TraceError. Raises AssertionError."""
    choose = random.Random(f"{seed}.{number}")
    block = written(choose, choose.choice(DEEPEST))
    plain, binds = number % 3 == 2, number % 6 == 5

    def program(x: Any, k: Any, n: Any) -> Any:
        return run(block, x, k, n, plain, binds)

    rng = np.random.default_rng(number)
    types = ("f64[6]", "i64[6]", "i64[]")
    try:
        gm = fx.symbolic_trace(program, *types)
    except TraceError:
        if plain:
            return 0
        raise
    gm.graph.lint(full=True)
    text = gm.graph.text(full=True)
    parsed = fx.parse(text)
    assert parsed.text(full=True) == text, f"{seed}.{number}: the text of the graph changes"
    used = {name: RUNGS[name](gm) for name in [*rungs, *(["kernel"] if number % 4 == 0 else [])]}
    for _ in range(2):
        given = (np.floor(rng.standard_normal(SIZE) * 16) / 8, rng.integers(0, 20, SIZE), np.int64(rng.integers(0, 5)))
        expected = program(*given)
        for rung, computed in used.items():
            found = tuple(computed(given))
            wrong = exact_difference(expected, found)
            assert wrong is None, f"{seed}.{number}, {rung}, {given}: {wrong}\n{text}"
    return len(text.splitlines())
