"""Every op on its own samples as compiled C. The programs of many samples are one source, since
starting a compiler costs more than compiling them; and they are compiled as they stand, for what is
tested is their text: the usual flags take three times as long."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.c.templates import claims
from fxlite.codegen.c.tiles.library import headers, includes
from fxlite.codegen.program.calls import restructure
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.ops.op import REGISTRY
from fxlite.types.agreement import Chain
from tests.graphs import traced_sample
from tests.oracle import Disagreement, compare

BUNDLES = 12


def make_case(name: str, number: int) -> tuple[Any, list[Any], fx.GraphModule, CProgram, Chain]:
    """Trace and emit one sample: program, inputs, module, C, and how long its chains are."""
    program, inputs, module, chain = traced_sample(name, number)
    emitted = emit(optimize(module, keep=claims)[0], f"{name}_sample_{number}")
    return program, inputs, module, emitted, chain


def apart(emitted: CProgram) -> str:
    """A program's functions, its static ones renamed so that many programs fit in one source."""
    return re.sub(r"\b(k\d+_\w+|layout)\b", rf"{emitted.name}_\1", emitted.functions)


@pytest.mark.parametrize("number", range(BUNDLES))
def test_samples_agree_in_c(number: int) -> None:
    names = sorted(REGISTRY)[number::BUNDLES]
    cases = [make_case(name, i) for name in names for i in range(len(REGISTRY[name].samples))]
    functions = "\n".join(apart(c[3]) for c in cases)
    files = {"samples.c": f"{includes()}{functions}", **headers(functions)}
    library = build(files, cases[0][3].entry, flags=["-Og"])
    problems = []
    for program, inputs, module, emitted, chain in cases:
        run = CompiledFunction(emitted.entry, library, emitted.weights, use_extension=False)
        rebuild = restructure(module) or (lambda flat: flat)
        with np.errstate(all="ignore"):
            expected = program(*inputs)
        try:
            compare("c", rebuild(run(*inputs)), expected, chain)
        except (Disagreement, RuntimeError, IndexError, ValueError) as error:
            problems.append(f"{emitted.name}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)
