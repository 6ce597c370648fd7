"""Makes a failing program small: fewer statements, smaller sizes, less returned, simpler text.

In: the outcome of a program that failed. Out: that of a smaller one that fails in the same way, at
the same stage. Where the first one ended its process, each attempt has one of its own; what NumPy
refuses is no attempt.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.fuzz.programs.check import Outcome, check
from tests.fuzz.programs.program import Program
from tests.fuzz.programs.run import again

#: Seconds that one failure may take.
PATIENCE = 60.0


def shrunk(outcome: Outcome) -> Outcome:
    """The outcome of the smallest program found that fails in the same way."""
    best, start = outcome, time.monotonic()
    if outcome.sizes and len(outcome.program.sizes) > 1:
        best = attempt(replace(outcome.program, sizes=(outcome.sizes,)), outcome) or best
    smaller = True
    while smaller and time.monotonic() - start < PATIENCE:
        smaller = False
        for program in candidates(best.program):
            found = attempt(program, outcome)
            if found is not None:
                best, smaller = found, True
                break
            if time.monotonic() - start > PATIENCE:
                break
    return best


def attempt(program: Program, like: Outcome) -> Outcome | None:
    """How a candidate fails, if NumPy accepts it and it fails as ``like`` did."""
    if like.stage.endswith("does not raise") is accepted(program):
        return None
    found = again(program) if like.stage == "crash" else check([program])[0]
    same = (found.kind, found.stage) == (like.kind, like.stage)
    return found if same and first_word(found) == first_word(like) else None


def first_word(outcome: Outcome) -> str:
    """What tells failures of one stage apart: the class of an error."""
    return outcome.text.partition(":")[0] if "Error" in outcome.text[:40] else ""


def accepted(program: Program) -> bool:
    """Whether NumPy runs it."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run = program.function()
            for sizes in program.sizes:
                run(*program.arrays(sizes))
    except Exception:
        return False
    return True


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller, the boldest first."""
    statements = program.statements
    for size in (4, 2, 1):
        for first in range(len(statements), 0, -size):
            left = statements[: max(0, first - size)] + statements[first:]
            if len(left) < len(statements):
                yield replace(program, statements=left)
    for number, text in enumerate(statements):  # a second name for a value
        old, _, new = text.partition(" = ")
        if old.isidentifier() and new.isidentifier():
            texts = [re.sub(rf"\b{old}\b", new, t) for t in (*statements, program.result)]
            left = (*statements[:number], *texts[number + 1 : -1])
            yield replace(program, statements=left, result=texts[-1])
    names = [*re.findall(r"\b[a-z]\b", program.result), *(n for n, _ in program.inputs)]
    for name in names:
        own = name not in dict(program.inputs)
        if len(program.result) > 1 or (not own and program.result not in dict(program.inputs)):
            yield replace(program, result=name)
    for number, text in enumerate(statements):
        for inner in set(re.findall(r"\b[a-z]\b", text.partition(" = ")[2])):
            simple = f"{text.partition(' = ')[0]} = {inner}"
            if simple != text and "\n" not in text:
                yield replace(program, statements=(*statements[:number], simple, *statements[number + 1 :]))
    used = " ".join((*statements, program.result))
    kept = tuple(i for i in program.inputs if re.search(rf"\b{i[0]}\b", used))
    if 0 < len(kept) < len(program.inputs):
        yield replace(program, inputs=kept)
    weights = tuple(w for w in program.weights if re.search(rf"\b{w.split()[0]}\b", used))
    if len(weights) < len(program.weights):
        yield replace(program, weights=weights)
    for sizes in program.sizes:
        for name, value in sizes.items():
            for other in (1, 2, value // 2, value - 1):
                if 0 <= other < value:
                    yield replace(program, sizes=({**sizes, name: other},))
    if program.hard:
        yield replace(program, hard=False)
