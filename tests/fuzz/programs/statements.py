"""Statements: writes in place through views, augmented assignments, loops, functions, branches that
are decided while tracing. Each takes a Writer and gives text, or None where no variable fits.
"""

from __future__ import annotations

import numpy as np

from tests.fuzz.programs.expressions import PHRASES_OF_NUMPY, SCALARS, basic, operand
from tests.fuzz.programs.layers import LAYERS
from tests.fuzz.programs.program import Program
from tests.fuzz.programs.writer import Phrase, Writer

AUGMENTED = ("+=", "-=", "*=", "+=", "*=", "/=", "//=")


def copied(w: Writer) -> str | None:
    """A value whose memory is the program's own."""
    x = w.variable(lambda v: v.ndim > 0)
    name = w.new_name()
    return x and f"{name} = " + w.choose(
        (
            f"{x}.copy()",
            f"np.zeros_like({x})",
            f"np.copy({x})",
            f"np.ones_like({x})",
            f"np.full_like({x}, 2)",
            f"{x} + 0",
        )
    )


def written(w: Writer) -> str | None:
    """A write into a part of a value."""
    y = w.owned()
    if y is None:
        return copied(w)
    index = basic(w, y)
    kind = w.number(0, 7)
    if kind == 0:
        other = operand(w, y)
        return f"{y}[{y} {w.choose(('<', '>', '!='))} {other}] = {w.choose(SCALARS)}"
    if kind == 1:
        return f"{y}[{w.choose(('[0, 1]', '[-1]', '[1, 0]'))}] = {w.choose(SCALARS)}"
    if kind == 2:
        return f"{y}[{index}] {w.choose(AUGMENTED)} {w.choose(SCALARS)}"
    if kind == 3:
        return f"{y}[{index}] = {y}[{index}] * {w.choose(SCALARS)}"
    part = w.evaluated(f"{y}[{index}]") if kind > 4 else None
    source = w.like(part.shape) if part is not None else None
    return f"{y}[{index}] = {source or w.choose(SCALARS)}"


def augmented(w: Writer) -> str | None:
    """An augmented assignment of a whole value."""
    y = w.owned()
    if y is None:
        return copied(w)
    x = operand(w, y)
    return str(
        w.choose(
            (
                f"{y} {w.choose(AUGMENTED)} {x}",
                f"{y} {w.choose(AUGMENTED)} {x}",
                f"np.add({y}, {x}, out={y})",
                f"np.multiply({y}, {x}, out={y})",
                f"{y}.fill({w.choose(SCALARS)})",
                f"np.copyto({y}, {x})",
                f"np.maximum({y}, {x}, out={y})",
                f"{y}[...] = {x}",
            )
        )
    )


def through_view(w: Writer) -> str | None:
    """A view by a name of its own, and a write through it."""
    y = w.owned()
    if y is None:
        return copied(w)
    name, rank = w.new_name(), w.values[y].ndim
    view = w.choose(
        (
            f"{y}[{basic(w, y)}]",
            f"{y}.T",
            f"{y}.reshape(-1)",
            f"{y}[::-1]",
            f"{y}[..., None]",
            f"{y}.swapaxes(0, {rank - 1})",
            f"{y}.ravel()",
            f"{y}.T[1:]",
        )
    )
    change, number = w.choose(AUGMENTED), w.choose(SCALARS)
    write = w.choose(
        (
            f"{name} {change} {number}",
            f"{name}[...] = {number}",
            f"{name}[1:] {change} {number}",
            f"{name}[::2] = {number}",
            f"{name} += {name}",
        )
    )
    return f"{name} = {view}\n{write}"


def loop(w: Writer) -> str | None:
    """A loop over a known number of steps, over rows, or over a list of values."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    name, value = w.new_name(), w.values[x]
    step = w.choose(
        (
            f"{name} = {name} * 0.5 + np.roll({x}, i, 0)",
            f"{name} = np.maximum({name}, {x} - i)",
            f"{name} = {name} + {x} * (i + 1)",
            f"{name} = np.tanh({name}) + {x}",
        )
    )
    short = next((a for a, n in enumerate(value.shape) if n < 5), None)
    y, axis = operand(w, x), w.choose((0, -1))
    choices = [
        f"{name} = np.zeros_like({x})\nfor i in range({w.number(2, 4)}):\n    {step}",
        f"{name} = [{x} + i for i in range(3)]\n{name} = np.stack({name}, {axis})",
        f"{name} = sum([{x}, {x} * 2, {y}])",
        f"{name} = 0\nfor part in ({x}, {y}, {x}):\n    {name} = {name} + part",
    ]
    if short is not None:
        lead = ":, " * short
        own, size, part = f"{name} = {x}.copy()\n", f"{x}.shape[{short}]", f"{name}[{lead}i"
        parts = f"[{x}[{lead}i : i + 1] * i for i in range({size})]"
        choices += [
            f"{name} = {x}[{lead}0]\nfor i in range({size}):\n    {name} = {name} + {x}[{lead}i]",
            f"{name} = np.concatenate({parts}, {short})",
            f"{own}for i in range({size}):\n    {part}] *= i + 1",
            f"{own}for i in range(1, {size}):\n    {part}] += {part} - 1]",
        ] * 2
        if short == 0:
            choices.append(f"{name} = 0\nfor row in {x}:\n    {name} = {name} * 0.5 + row")
    return str(w.choose(choices))


def branch(w: Writer) -> str | None:
    """A branch on a rank, a known size, a dtype, or a Python number."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    name = w.new_name()
    rank = w.values[x].ndim
    condition = w.choose(
        (
            f"{x}.ndim > {w.number(0, 3)}",
            f"{x}.dtype == np.float32",
            f"len({x}.shape) == {rank}",
            f"{x}.shape[-1] == {w.values[x].shape[-1]}",
            f"{x}.shape[{rank - 1}] > 3",
            f"np.issubdtype({x}.dtype, np.floating)",
        )
    )
    first, second = operand(w, x), operand(w, x)
    if w.chance(0.4):
        return f"{name} = {x} + {first} if {condition} else {x} * {second}"
    return f"if {condition}:\n    {name} = {x} * {first}\nelse:\n    {name} = {x} - {second}"


def helper(w: Writer) -> str | None:
    """A function of its own, with an early return, a default or a closure, and its call."""
    x = w.variable(lambda v: v.ndim > 0)
    if x is None:
        return None
    name, y = w.new_name(), operand(w, x)
    f = f"helper{len(w.statements)}"
    body = w.choose(
        (
            "    if p.ndim > 2:\n        return p.mean(-1)\n    return p * 2",
            "    q = p.copy()\n    q[..., 0] = 1\n    return q",
            "    return p - p.mean(axis=-1, keepdims=True)",
            "    for i in range(2):\n        p = p * 0.5 + i\n    return p",
            f"    return np.where(p > 0, p, {y})",
        )
    )
    call = w.choose((f"{f}({x})", f"{f}({f}({x}))", f"{f}({x}) + {f}({x} * 2)", f"{f}({x}.T)"))
    return f"def {f}(p):\n{body}\n{name} = {call}"


PHRASES: tuple[tuple[Phrase, int], ...] = (*PHRASES_OF_NUMPY, *LAYERS)
"""Expressions, which are assigned to a name; and how often each is written."""
STATEMENTS: tuple[tuple[Phrase, int], ...] = (
    (copied, 2),
    (written, 7),
    (augmented, 5),
    (through_view, 4),
    (loop, 4),
    (branch, 2),
    (helper, 2),
)
"""Statements; and how often each is written."""


def write(seed: tuple[int, int]) -> Program:
    """The program of a seed."""
    w = Writer(seed)
    wanted = w.choose((2, 3, 4, 5, 6, 8, 10))
    weights = np.array([weight for _, weight in (*PHRASES, *STATEMENTS)], float)
    kinds = [kind for kind, _ in (*PHRASES, *STATEMENTS)]
    for _ in range(12 * wanted):
        kind = kinds[int(w.rng.choice(len(kinds), p=weights / weights.sum()))]
        text = kind(w)
        if text is not None:
            (w.assign if kind in dict(PHRASES) else w.execute)(text)
        if len(w.statements) >= wanted:
            break
    return w.program()
