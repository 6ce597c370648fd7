"""Random programs in which a few names are bound, exchanged, viewed and written into, in branches and loops.

What a name stands for behind a branch or loop is one of several arrays, and a write there may reach any of them: each
program agrees with NumPy or is refused. The programs start with arrays, with what a mask selects, with an input that
they write into, or with the rows of a matrix. Their names are those of variables, of attributes, or of items of lists
and dicts, and in a third of the programs an inner function sets them."""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import flatten, written

NAMES = "abcd"
_MARKED = [f"@{name}" for name in NAMES]
INPUTS = ([1.0, 4.0, 2.0, 3.0], [-0.5, 0.0, 6.0, 2.5], [3.0, -0.25, 5.0, 1.0], [7.0, 8.0, -0.5, 1.25])

_HEAD = """import numpy as np


class Held:
    pass


def put(v, w, p):
    v[p] = w[-1] + 1


def pick(v, w):
    if v[0] > w[0]:
        return v
    return w


def turned(v, w):
    v *= 0.5
    return w, v


def program(x):
"""
#: The values of the four names at first: of a, b, c and d.
_STARTS = (
    ("x * 1", "x + 1", "@a", "@b[::-1]"),
    ("x[x > -1] * 1", "x[x > -1] + 1", "@a", "@b[::-1]"),
    ("x", "x[::-1]", "x * 2", "@a"),
    ("y[0]", "y[1]", "y[1:].reshape(4)", "y.T.copy()[:, 0]"),
)
#: Where the four values are held.
_HOLDERS = (
    ("a", "b", "c", "d"),
    ("o.a", "o.b", "o.c", "o.d"),
    ("q[0]", "q[1]", "q[2]", "q[3]"),
    ("m['a']", "m['b']", "m['c']", "m['d']"),
    ("a", "o.b", "q[2]", "m['d']"),
)


def source(seed: int, number: int, is_held: bool) -> str:
    """The text of a program, in which the arrays are variables, or are held in other places, too."""
    choose = random.Random(f"{seed}.{number}")
    held = dict(zip(NAMES, _HOLDERS[number // 4 % 5 if is_held else 0]))
    lines = ["o, q, m, y = Held(), [0, 0, 0, 0], {}, np.array([x, x[::-1] - 1])"]
    lines += [f"@{name} = {first}" for name, first in zip(NAMES, _STARTS[number % (4 if is_held else 2)])]
    lines += ["i, k, s = 0, 3, 0.5"]
    body = [line for _ in range(3) for line in _statement(choose, 2, False, is_held)]
    if is_held and number % 3 == 0:
        own = [name for name in (*held.values(), "i", "k", "s") if name.isalpha()]
        body = ["def part():", *(f"    {line}" for line in (f"nonlocal {', '.join(own)}", *body)), "part()"]
    lines += [*body, "return @a, @b, @c, @d, y, s, k"]
    return _HEAD + "".join(f"    {re.sub('@([abcd])', lambda m: held[m[1]], line)}\n" for line in lines)


def _place(choose: random.Random) -> str:
    return choose.choice(["0", "1", "-1", "i % 4", "k % 4", "int(abs(x[0])) % 4"])


def _bound(choose: random.Random, name: str) -> str:
    other = choose.choice(_MARKED)
    made = [f"{name} * 2", f"{name}.copy()", name, name, f"{name}[::-1]", f"np.sort({name})", f"{other} - {name}"]
    return choose.choice([*made, f"np.where({name} > 2, {name}, 1.0)", f"np.roll({name}, 1)"])


def _statement(choose: random.Random, depth: int, in_loop: bool, is_held: bool) -> list[str]:
    """The lines of a statement; compound ones to a depth."""
    name, other, place, place_2 = *choose.choices(_MARKED, k=2), _place(choose), _place(choose)
    weight = choose.random()
    if depth and weight < 0.4:
        return _compound(choose, depth, in_loop, is_held)
    if in_loop and weight < 0.46:
        return [f"if {name}[{place}] > {choose.randint(0, 30)}:", f"    {choose.choice(['break', 'continue'])}"]
    simple = [
        [f"{choose.choice(_MARKED)} = {_bound(choose, name)}"],
        [f"{choose.choice(_MARKED)} = {_bound(choose, name)}"],
        [f"{name} = {other}"],
        [f"{name}, {other} = {other}, {name}"],
        [f"{name} = {other} if s > {choose.randint(0, 9)} else {choose.choice(_MARKED)}"],
        [f"{name}[{place}] = {other}[{place_2}] + 1"],
        [f"{name}[{place}], {name}[{place_2}] = {name}[{place_2}], {other}[{place}]"],
        [f"{name}[1:3] = {other}[:2] * 0.5"],
        [f"{name}[{name} > 3] = 0"],
        [f"{name} += 1"],
        [f"{name}[{place}] -= {other}[{place_2}]", f"np.clip({name}, -50, 50, out={name})"],
        [f"v = {name}[1:]", f"v[{choose.choice(['0', '-1'])}] = s", f"{other}[0] = v[1]"],
        [f"s = s * 0.5 + {name}[{place}]"],
        ["k = (k * 3 + 1) % 7"],
    ]
    if is_held:
        third, test = choose.choice(_MARKED), f"{name}[{place}] > {choose.randint(-3, 9)}"
        simple += [
            [f"put({name}, {other}, {place})"],
            [f"{third} = pick({name}, {other})"],
            [f"{third}, {name} = turned({name}, {other})"],
            [f"{third} = max({name}, {other}, key=np.sum)"],
            [f"{third} = ({name} if {test} else {other}) if s > 1 else {third}[::-1]"],
            [f"np.copyto({name}, {other})"],
            [f"{name}[:] = {other}"],
            [f"np.add({name}, {other}, out={third})", f"{third} *= 0.25"],
            [f"{name}.sort()"],
            [f"np.put({name}, [0, 2], {other}[1])"],
            [f"np.add.at({name}, [1, 1, 3], {other}[0])"],
            [f"{third} = {name}.reshape(2, 2).T.ravel()"],
            [f"{third} = {name}.reshape(2, 2).reshape(4)"],
            [f"{name}.reshape(2, 2)[0, 1] = s"],
            [f"y[{choose.choice(['0', '1', 'k % 2', ':, 0', ':, k % 4'])}] += s"],
            [f"{third} = y[{choose.choice(['0', '1', 'k % 2', '-1'])}]"],
            ["y[[0, 1]] = y[[1, 0]]"],
            [f"if (v := {name})[0] > {choose.randint(-3, 9)}:", "    v[1] = s"],
            [f"for v in ({name}, {other}):", f"    v[{place}] += 1"],
            [f"{third} = {name} if ({test}) and {other}[0] > 0 else {other}"],
        ]
    return choose.choice(simple)


def _compound(choose: random.Random, depth: int, in_loop: bool, is_held: bool) -> list[str]:
    name, other = choose.choices(_MARKED, k=2)
    tests = [f"{name}[{_place(choose)}] > {choose.randint(-3, 5)}", f"{name}.sum() > {other}.sum()", "k % 2 == 0"]
    kind = choose.choice(["if", "else", "else", "for", "while"])
    if kind in ("for", "while"):
        head = [f"for i in range({choose.choice(['3', '25', 'k % 4'])}):"]
        if kind == "while":
            count = f"w{depth}"
            head = [f"{count} = k % 5", f"while {count} < {choose.randint(6, 9)}:", f"    {count} += 1"]
        lines = [*head, *_block(choose, depth, True, is_held)]
        return lines if not is_held or choose.random() < 0.7 else [*lines, "else:", f"    {name}[0] = 3"]
    lines = [f"if {choose.choice(tests)}:", *_block(choose, depth, in_loop, is_held)]
    return [*lines, "else:", *_block(choose, depth, in_loop, is_held)] if kind == "else" else lines


def _block(choose: random.Random, depth: int, in_loop: bool, is_held: bool) -> list[str]:
    statements = [_statement(choose, depth - 1, in_loop, is_held) for _ in range(choose.randint(1, 3))]
    return [f"    {line}" for lines in statements for line in lines]


def _program(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program  # type: ignore[no-any-return]


#: Of so many programs, one is compiled, too: arrays that are written into lie in the memory of others there.
_COMPILED = 8


def check_bindings(folder: Path, seed: int, number: int, is_held: bool = False) -> bool | None:
    """Compare a program with NumPy: True if its graph agrees, and C for some, False if it is refused, None if NumPy
    raises an error itself. Raises AssertionError with the text of a program that is wrong."""
    path = folder / f"bindings_{seed}_{number}.py"
    path.write_text(source(seed, number, is_held))
    program = _program(path)
    given = [np.array(x) for x in INPUTS]
    try:
        with np.errstate(all="ignore"):
            expected = [program(x) for x in given]
    except (IndexError, ValueError):
        return None
    try:
        gm = fx.symbolic_trace(program, "f64[4]")
    except TraceError:
        return False
    calls = [gm, fx.compile(gm, backend="c")] if number % _COMPILED == 0 else [gm]
    with np.errstate(all="ignore"):
        for x, after, results in zip(INPUTS, given, expected):
            for call in calls:
                found = flatten(written(gm, call, (np.array(x),)))
                for one, other in zip((*results, after), found):
                    same = np.shape(one) == np.shape(other) and np.allclose(one, other, equal_nan=True)
                    assert same, f"{seed}.{number} of {x} ({call!r}): {one} is {other}\n{path.read_text()}"
    return True
