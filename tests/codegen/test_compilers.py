"""What a saved C folder promises to C compilers: strict C99 without warnings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import fxlite as fx
from fxlite.codegen.c import emit as c
from fxlite.codegen.c import templates
from fxlite.codegen.c.selftest import selftest_source
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.program.program import optimize
from tests.codegen.golden_cases import CASES
from tests.zoo import ZOO

WARNINGS = (
    "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-pedantic", "-Werror",
)  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of folders: the C of every golden program and of the zoo, and some self-tests."""
    programs = [
        (f"golden_{case.name}", case.module(), case.types, case.precision, case.profile)
        for case in CASES
        if "c" in case.targets
    ]
    programs += [(f"zoo_{e.name}", *e.make()[:2], "highest", False) for e in ZOO]
    root = tmp_path_factory.mktemp("sources")
    for number, (label, program, types, precision, profile) in enumerate(programs):
        module = fx.symbolic_trace(program, *types)
        optimized, _ = optimize(module, False, templates.claims, precision)
        made = c.emit(optimized, profile=profile, matmul_precision=precision)
        (root / label).mkdir()
        for file, text in made.sources.items():
            (root / label / file).write_text(text)
        if number % 10 == 0:
            text = selftest_source(made, make_cases(module)[-2:])
            (root / label / f"{made.name}_selftest.c").write_text(text)
    return root


def check(compiler: str, flags: tuple[str, ...], files: list[Path]) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [compiler, *WARNINGS, *flags, "-fsyntax-only", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:8000]


@pytest.mark.slow
@pytest.mark.parametrize("compiler, flags", [("gcc", ("-fopenmp",)), ("clang", ())])
def test_no_warnings(compiler: str, flags: tuple[str, ...], sources: Path) -> None:
    check(compiler, flags, sorted(sources.glob("*/*.c")))


@pytest.mark.parametrize(
    "compiler, flag",
    [
        ("gcc", "-march=x86-64-v3"),
        ("gcc", "-march=sapphirerapids"),
        ("gcc", "-DVECTOR_BYTES=4"),
        ("clang", "-march=x86-64-v3"),
        ("clang", "-DVECTOR_BYTES=4"),
    ],
)
def test_no_warnings_with_other_instructions(compiler: str, flag: str, sources: Path) -> None:
    """Where there are several ways to compute a thing, all of them: in as many programs as reach
    all tiles."""
    known: set[str] = set()
    found: list[Path] = []
    for tiles in sorted(sources.glob("*/*_tiles.h"), key=lambda path: -path.stat().st_size):
        text = tiles.read_text()
        defined = set(re.findall(r"^(?:TILE_FUNCTION )?static .*?(\w+)\(", text, re.MULTILINE))
        if "VECTOR" in text and not defined <= known:
            known |= defined
            found += tiles.parent.glob("*.c")
    assert len(known) > 150 and len(found) < 50
    check(compiler, (flag,), found)
