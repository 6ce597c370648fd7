"""Emitted code as text: what is printed for the programs of `golden_cases` is what `golden/` holds.

Nothing is compiled, and nothing asks for the machine: the texts are the same everywhere. One that
changes is to be read; ``pytest tests/codegen/test_golden.py --update-golden`` writes them anew.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import fxlite as fx
from fxlite.codegen.c import emit as c
from fxlite.codegen.c import templates
from fxlite.codegen.cuda import emit as cuda
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime import toolchain as processor
from tests.codegen.golden_cases import CASES, Case
from tests.codegen.plain_loops import render_gemm_naive

GOLDEN = Path(__file__).with_name("golden")
ENDINGS = {"c": "c", "cuda": "cu", "header": "h"}
#: The sets of instructions by which emission chooses, of the processors of the cases.
SETS = {
    "haswell": frozenset({"avx2", "fma"}),
    "sapphirerapids": frozenset({"avx512f", "avx512vnni", "amxbf16", "amxint8"}),
}
TEXTS = {f"{case.name}.{ENDINGS[target]}": (case, target) for case in CASES for target in case.targets}


@pytest.fixture
def compile_for(monkeypatch: pytest.MonkeyPatch):
    """Makes the processor of a name the one that code is made for, without asking a compiler."""

    def chosen(march: str) -> None:
        monkeypatch.setenv("FXLITE_MARCH", march)
        monkeypatch.setattr(processor, "find_compiler", lambda: SimpleNamespace(command=()))
        monkeypatch.setattr(processor, "_compiled_for", lambda command, flag: SETS[march])

    return chosen


def emitted(case: Case, target: str) -> str:
    """What is compared: of C the kernels or all functions, both without the library that they call,
    the whole file, or its header; of CUDA the file, and the launches behind it."""
    module = fx.symbolic_trace(case.module(), *case.types)
    if target == "cuda":
        program = cuda.emit(optimize(module)[0])
        launches = "".join(f"// launch: {launch}\n" for launch in program.launches)
        return located(case, f"{program.source.rstrip()}\n\n{launches}")
    optimized, _ = optimize(module, False, templates.claims, case.precision)
    made = c.emit(optimized, profile=case.profile, matmul_precision=case.precision)
    if target == "header":
        return located(case, made.sources[f"{made.name}.h"])
    if case.shown == "file":
        return located(case, made.sources[f"{made.name}.c"])
    if case.shown == "functions":
        return located(case, made.functions)
    kernels = [f"{call.text.rstrip()}\n" for call in made.calls if call.is_first]
    return located(case, "\n".join(kernels))


def located(case: Case, text: str) -> str:
    """The text with places in the program counted from the first line of its body, so that they do
    not move when a case is added."""
    file, code = Path(case.program.__code__.co_filename).name, case.program.__code__
    before = min(n for *_, n in code.co_lines() if n and n > code.co_firstlineno) - 1
    place = re.compile(rf"{re.escape(file)}:(\d+)")
    return place.sub(lambda found: f"program.py:{int(found[1]) - before}", text)


@pytest.mark.parametrize("name", TEXTS)
def test_emitted_text(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, compile_for) -> None:
    case, target = TEXTS[name]
    compile_for(case.march)
    if case.naive:
        monkeypatch.setattr("fxlite.codegen.c.render.product_templates.render_gemm", render_gemm_naive)
    text, path = emitted(case, target), GOLDEN / name
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != kept:
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), f"golden/{name}", "emitted now", lineterm="")
        pytest.fail(
            "\n".join(lines) + "\n\nIf this is better, write it: pytest tests/codegen/test_golden.py --update-golden",
            pytrace=False,
        )


def test_each_text_has_a_case(request: pytest.FixtureRequest) -> None:
    left = {path.name for path in GOLDEN.iterdir()} - TEXTS.keys()
    if request.config.getoption("--update-golden"):
        for name in left:
            (GOLDEN / name).unlink()
        return
    assert not left, "texts without a case; --update-golden removes them"
    assert len(TEXTS) == sum(len(case.targets) for case in CASES), "names of cases are unique"
