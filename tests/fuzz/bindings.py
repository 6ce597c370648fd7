"""Random programs in which a few names are bound, exchanged, viewed and written into, in branches and loops.

What a name stands for behind a branch or loop is one of several arrays, and a write there may reach any of them: each
program agrees with NumPy or is refused. Half of the programs start with arrays, half with what a mask selects."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import written

NAMES = "abcd"
INPUTS = ([1.0, 4.0, 2.0, 3.0], [-0.5, 0.0, 6.0, 2.5], [3.0, -0.25, 5.0, 1.0], [7.0, 8.0, -0.5, 1.25])


def source(seed: int, number: int) -> str:
    """The text of a program; every other one starts with selections."""
    choose = random.Random(f"{seed}.{number}")
    first = "x[x > -1]" if number % 2 else "x"
    lines = [f"a = {first} * 1", f"b = {first} + 1", "c = a", "d = b[::-1]", "i, k, s = 0, 3, 0.5"]
    for _ in range(3):
        lines += _statement(choose, 2, False)
    lines += ["return a, b, c, d, s, k"]
    return "import numpy as np\n\n\ndef program(x):\n" + "".join(f"    {line}\n" for line in lines)


def _place(choose: random.Random) -> str:
    return choose.choice(["0", "1", "-1", "i % 4", "k % 4", "int(abs(x[0])) % 4"])


def _bound(choose: random.Random, name: str) -> str:
    other = choose.choice(NAMES)
    made = [f"{name} * 2", f"{name}.copy()", name, name, f"{name}[::-1]", f"np.sort({name})", f"{other} - {name}"]
    return choose.choice([*made, f"np.where({name} > 2, {name}, 1.0)", f"np.roll({name}, 1)"])


def _statement(choose: random.Random, depth: int, in_loop: bool) -> list[str]:
    """The lines of a statement; compound ones to a depth."""
    name, other, place, place_2 = *choose.choices(NAMES, k=2), _place(choose), _place(choose)
    weight = choose.random()
    if depth and weight < 0.4:
        return _compound(choose, depth, in_loop)
    if in_loop and weight < 0.46:
        return [f"if {name}[{place}] > {choose.randint(0, 30)}:", f"    {choose.choice(['break', 'continue'])}"]
    simple = (
        [f"{choose.choice(NAMES)} = {_bound(choose, name)}"],
        [f"{choose.choice(NAMES)} = {_bound(choose, name)}"],
        [f"{name} = {other}"],
        [f"{name}, {other} = {other}, {name}"],
        [f"{name} = {other} if s > {choose.randint(0, 9)} else {choose.choice(NAMES)}"],
        [f"{name}[{place}] = {other}[{place_2}] + 1"],
        [f"{name}[{place}], {name}[{place_2}] = {name}[{place_2}], {other}[{place}]"],
        [f"{name}[1:3] = {other}[:2] * 0.5"],
        [f"{name}[{name} > 3] = 0"],
        [f"{name} += 1"],
        [f"{name}[{place}] -= {other}[{place_2}]", f"np.clip({name}, -50, 50, out={name})"],
        [f"v = {name}[1:]", f"v[{choose.choice(['0', '-1'])}] = s", f"{other}[0] = v[1]"],
        [f"s = s * 0.5 + {name}[{place}]"],
        ["k = (k * 3 + 1) % 7"],
    )
    return choose.choice(simple)


def _compound(choose: random.Random, depth: int, in_loop: bool) -> list[str]:
    name, other = choose.choices(NAMES, k=2)
    tests = [f"{name}[{_place(choose)}] > {choose.randint(-3, 5)}", f"{name}.sum() > {other}.sum()", "k % 2 == 0"]
    kind = choose.choice(["if", "else", "else", "for", "while"])
    if kind == "for":
        return [f"for i in range({choose.choice(['3', '25', 'k % 4'])}):", *_block(choose, depth, True)]
    if kind == "while":
        count = f"w{depth}"
        head = [f"{count} = k % 5", f"while {count} < {choose.randint(6, 9)}:", f"    {count} += 1"]
        return [*head, *_block(choose, depth, True)]
    lines = [f"if {choose.choice(tests)}:", *_block(choose, depth, in_loop)]
    return [*lines, "else:", *_block(choose, depth, in_loop)] if kind == "else" else lines


def _block(choose: random.Random, depth: int, in_loop: bool) -> list[str]:
    statements = [_statement(choose, depth - 1, in_loop) for _ in range(choose.randint(1, 3))]
    return [f"    {line}" for lines in statements for line in lines]


def _program(path: Path) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.program  # type: ignore[no-any-return]


def check_bindings(folder: Path, seed: int, number: int) -> bool | None:
    """Compare a program with NumPy: True if its graph agrees, False if it is refused, None if NumPy raises an error
    itself. Raises AssertionError with the text of a program that is wrong."""
    path = folder / f"bindings_{seed}_{number}.py"
    path.write_text(source(seed, number))
    program = _program(path)
    try:
        with np.errstate(all="ignore"):
            expected = [program(np.array(x)) for x in INPUTS]
    except (IndexError, ValueError):
        return None
    try:
        gm = fx.symbolic_trace(program, "f64[4]")
    except TraceError:
        return False
    with np.errstate(all="ignore"):
        for x, results in zip(INPUTS, expected):
            found = tuple(written(gm, gm, (np.array(x),)))
            for one, other in zip(results, found):
                same = np.shape(one) == np.shape(other) and np.allclose(one, other, equal_nan=True)
                assert same, f"{seed}.{number} of {x}: {one} is {other}\n{path.read_text()}"
    return True
