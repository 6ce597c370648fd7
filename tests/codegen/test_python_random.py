"""Random programs of nested modules are regenerated as programs that do the same.

In: the number of a random program, whose text is written to a file, so that names, statements and
loops can be read from it. Variables are assigned to again and again, modules are shared, lists of
modules are called in a loop, expressions nest.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.codegen.python.source import python_program
from fxlite.files.serialize import from_bytes, to_bytes
from tests.oracle import compare

HEAD = """
import numpy as np

import fxlite.nn.functional as F
from fxlite import nn


class Leaf(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.fc = nn.Linear(4, 4)

    def forward(self, x, y):
        x = self.fc(x) * self.factor
        return x - y
"""
VARIABLES = "xyzabh"


class Writer:
    """Writes classes, each of which calls some of those before."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.text = HEAD
        self.classes = ["Leaf"]

    def value(self, known: list[str], held: list[str], depth: int = 0) -> str:
        pick = self.random.choice
        if depth > 2 or self.random.random() < 0.3:
            return pick(known)
        inner = [self.value(known, held, depth + 1) for _ in range(2)]
        return pick(
            [
                f"({inner[0]} {pick('+-*')} {inner[1]})",
                f"np.tanh({inner[0]})",
                f"-{inner[0]}",
                f"F.relu({inner[0]})",
                f"{inner[0]} / 2.0",
                f"self.{pick(held)}({', '.join(inner)})",
                f"np.maximum({inner[0]}, {inner[1]})",
                f"({inner[0]} - 1.5) ** 2",
            ]
        )

    def statement(self, known: list[str], held: list[str]) -> list[str]:
        name, kind = self.random.choice(VARIABLES), self.random.random()
        if kind < 0.2:
            carried, other = self.random.choice(known), self.random.choice(known)
            order = [carried, other] if self.random.random() < 0.7 else [other, carried]
            return ["for block in self.blocks:", f"    {carried} = block({', '.join(order)})"]
        if kind < 0.3 and name in known:
            return [f"{name} {self.random.choice('+-*')}= {self.value(known, held)}"]
        if kind < 0.4:
            return [f"# What {name} is.", f"{name} = {self.value(known, held)}"]
        return [f"{name} = {self.value(known, held)}"]

    def write(self, name: str, is_last: bool) -> None:
        held = ["first", "second"]
        pick, number = self.random.choice, self.random.random
        lines = ["", "", f"class {name}(nn.Module):", "    def __init__(self, factor=1.5):"]
        lines += ["        super().__init__()"]
        lines += [f"        self.{h} = {pick(self.classes)}({number():.2f})" for h in held]
        kind = pick(self.classes)
        same = f"[{kind}(0.5) for _ in range(3)]"
        mixed = f"[{kind}(0.25), {kind}(0.75), {pick(self.classes)}(0.5)]"
        lines += [f"        self.blocks = nn.ModuleList({pick([same, mixed])})"]
        lines += ["", "    def forward(self, x, y):", "        x, y = x * 1.0, y * 1.0"]
        known = ["x", "y"]
        for _ in range(self.random.randrange(2, 6)):
            written = self.statement(known, held)
            lines += [f"        {line}" for line in written]
            target = written[-1].split()[0]
            known += [target] if target not in known else []
        result = self.value(known, held)
        lines += [f"        return {result}" if not is_last else f"        return {result}, {known[-1]}"]
        self.text += "\n".join(lines) + "\n"
        self.classes.append(name)


TYPES = {"x": "f32[N,4]", "y": "f32[N,4]"}


def random_program(seed: int, folder: Path) -> fx.GraphModule:
    """The trace of the program of that number, whose text is written to the folder."""
    writer = Writer(seed)
    for number in range(3):
        writer.write(f"Part{number}", number == 2)
    path = folder / f"written_{seed}.py"
    path.write_text(writer.text)
    space: dict[str, Any] = {"__name__": path.stem}
    exec(compile(writer.text, str(path), "exec"), space)
    return fx.symbolic_trace(space["Part2"]().eval(), **TYPES)


@pytest.mark.parametrize("seed", range(30))
def test_random_modules(seed: int, tmp_path: Path) -> None:
    gm = random_program(seed, tmp_path)
    x, y = np.random.default_rng(seed).normal(size=(2, 3, 4)).astype(np.float32)
    with np.errstate(all="ignore"):
        for program in (gm, from_bytes(to_bytes(gm)), passes.cse(gm), passes.simplify(gm)):
            again = python_program(program)
            compare("regenerated", again(x, y), program(x, y))
            traced = fx.symbolic_trace(again, **TYPES)
            fx.assert_same(passes.dce(program), passes.dce(traced))
