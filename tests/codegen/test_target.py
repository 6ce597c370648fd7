"""The processor that code is made for: `$FXLITE_MARCH` decides flags, kernels, rates and keys of
the cache alike, and as each processor that this machine can stand for, programs agree with NumPy.
``python -m tests.tiers`` runs whole test files so."""

from __future__ import annotations

import platform
import re
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.runtime import roofs, toolchain
from fxlite.codegen.runtime.toolchain import find_compiler
from fxlite.passes import quantize as q
from tests.conftest import SUITE_FLAGS
from tests.oracle import compare
from tests.tiers import ROOT, TIERS, runs_here
from tests.zoo.registry import by_name

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="names are of x86-64")


@pytest.mark.parametrize(
    "march, sets, missing",
    [
        ("x86-64-v2", {"sse2", "sse41"}, {"avx", "avx2", "fma"}),
        ("haswell", {"avx2", "fma"}, {"avx512f", "avxvnni"}),
        ("skylake-avx512", {"avx512f", "avx512bw", "avx512dq"}, {"avx512vnni", "avx512bf16"}),
        ("cooperlake", {"avx512vnni", "avx512bf16"}, {"amxbf16"}),
        ("sapphirerapids", {"amxbf16", "amxint8", "avxvnni"}, set()),
    ],
)
def test_a_named_processor_has_its_instructions(
    march: str, sets: set[str], missing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FXLITE_MARCH", march)
    found = toolchain.instruction_sets()
    assert sets <= found and not missing & found
    assert f"-march={march}" in toolchain.compile_flags()
    assert toolchain.has_bf16_tiles() == ("amxbf16" in sets)
    assert toolchain.processor_name().endswith(f", used as {march}")
    named = toolchain.cpu_identity(), roofs._key()
    monkeypatch.delenv("FXLITE_MARCH")
    assert toolchain.cpu_identity() != named[0] and roofs._key() != named[1]


def test_this_machine_has_what_its_compiler_finds() -> None:
    """The sets that Linux lists are called as the compiler's macros are; the compiler may be older
    than the processor, and fxlite asks for no other sets than these."""
    macros = toolchain._compiled_for(find_compiler().command, "-march=native")
    asked = {"avx2", "fma", "avx512bw", "avx512dq", "avx512vnni", "avx512bf16", "amxbf16"}
    assert macros & asked <= toolchain.instruction_sets()
    assert {"sse2", "fxsr"} <= macros & toolchain.instruction_sets()


@pytest.mark.parametrize(
    "name, message",
    [
        ("pentium9", "FXLITE_MARCH='pentium9': .* knows no such processor"),
        ("haswell -O0", "FXLITE_MARCH='haswell -O0' is not the name of a processor"),
        ("-O0", "FXLITE_MARCH='-O0' is not the name of a processor"),
        ("a;b", "not the name of a processor; give one that the C compiler knows"),
    ],
)
def test_other_names_are_refused(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_MARCH", name)
    with pytest.raises(toolchain.UnknownProcessor, match=message):
        fx.compile(lambda x: x + 1, "f32[B]")


def test_one_place_asks_for_the_processor() -> None:
    """Whatever else named the machine's own processor would not follow the variable."""
    asks = re.compile(r"cpuinfo\"|=native\"|platform\.processor\(")
    folders = [ROOT / folder for folder in ("fxlite", "passes", "codegen", "tests")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    found = {path.name for path in files if asks.search(path.read_text())}
    assert found == {"toolchain.py", Path(__file__).name}


def test_folders_are_built_for_that_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXLITE_MARCH", "x86-64-v2")
    fx.compile(lambda x: x + 1, "f32[B]").save(tmp_path)
    assert "\nARCH ?= -march=x86-64-v2\n" in (tmp_path / "Makefile").read_text()


def _images(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((3, 3, 12, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def programs() -> list[tuple[fx.GraphModule, tuple[Any, ...]]]:
    """Convolutions, products, attention and a recurrence of floats; and a network of integers."""
    made = [by_name(n).make() for n in ("resnet_block", "transformer_block", "lstm")]
    names = [f"x{i}" for i in range(sum(len(types) for _, types, _ in made))]

    def call(*values: Any) -> Any:
        left = iter(values)
        return tuple(function(*islice(left, len(types))) for function, types, _ in made)

    space = {"call": call}
    exec(f"def floats({', '.join(names)}): return call({', '.join(names)})", space)
    types = [text for _, of_one, _ in made for text in of_one]
    floats = fx.symbolic_trace(space["floats"], *types)
    network, (text,), _ = by_name("cnn").make()
    mapping = q.QConfigMapping().set_global(q.static_int8())
    integers = q.quantize(fx.symbolic_trace(network, text), mapping, [_images(0)])
    return [(floats, tuple(x for _, _, xs in made for x in xs)), (integers, (_images(1),))]


@pytest.mark.parametrize("march", ["x86-64-v2", "haswell", "skylake-avx512", "cooperlake"])
def test_programs_agree_with_numpy(march: str, programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emitted, compiled and run as on each processor; `test_amx.py` adds the tiles of AMX."""
    if not runs_here(march):
        pytest.skip(f"this machine lacks instructions of {march}")
    monkeypatch.setenv("FXLITE_MARCH", march)
    for module, inputs in programs:
        function = fx.compile(module, backend="c")
        with np.errstate(all="ignore"):
            compare(march, function(*inputs), module(*inputs))


def test_the_suite_rounds_as_fxlite_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled with less optimization in tests. Products and sums are fused in the same places all the
    same, and loops add in the same order: with -O1 alone or -Og hundreds of these elements are others."""
    if not find_compiler().is_gcc:
        pytest.skip("the flags are those of GCC")

    def program(x: Any, y: Any, z: Any) -> Any:
        fused = x * y + z, x * y - z * z, np.sqrt(x * x + y * y), np.exp(x) * y + np.tanh(z)
        return *fused, x @ y.T, np.sum(x * y), np.mean(x, axis=0), np.cumsum(x, axis=1)

    inputs = [np.random.default_rng(n).normal(size=(37, 53)).astype(np.float32) for n in range(3)]
    found = []
    for flags in ("", SUITE_FLAGS):
        monkeypatch.setenv("FXLITE_CFLAGS", flags)
        found.append([value.tobytes() for value in fx.compile(program, *inputs, backend="c")(*inputs)])
    assert found[0] == found[1]


@pytest.mark.parametrize("march", ["skylake-avx512", "sapphirerapids", "x86-64-v4"])
def test_loops_take_whole_registers(march: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the halves that compilers prefer for Intel's processors."""
    monkeypatch.setenv("FXLITE_MARCH", march)
    monkeypatch.setenv("FXLITE_CFLAGS", "")
    source = tmp_path / "scaled.c"
    source.write_text("void scaled(float *x) { for (int i = 0; i < 4096; i++) x[i] *= 3; }")
    command = [*find_compiler().command, *toolchain.compile_flags(), "-S", str(source), "-o", "-"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "%zmm" in text and "%ymm" not in text


def test_flags_of_the_environment_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are part of what builds, programs and measurements are kept by."""
    monkeypatch.setenv("FXLITE_CFLAGS", "")
    measured = roofs._key()
    monkeypatch.setenv("FXLITE_CFLAGS", " -g  -Og")
    assert toolchain.compile_flags()[-2:] == ("-g", "-Og")
    assert roofs._key() != measured


@pytest.mark.parametrize("march", ["sandybridge", "knl", *TIERS])
def test_integer_products_build_everywhere(march: str, programs: Any, tmp_path: Path) -> None:
    """Also for processors with half of a set: AVX without AVX2, AVX-512 without bytes."""
    function = fx.compile(programs[1][0], backend="c")
    function.save(tmp_path)
    name = function.program.name
    command = [
        *find_compiler().command,
        f"-march={march}",
        "-std=gnu11",
        "-fsyntax-only",
        "-Wall",
        "-Werror",
        "-fopenmp",
        f"{name}.c",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if "bad value" in done.stderr:
        pytest.skip(f"the compiler does not know {march}")
    assert done.returncode == 0, done.stderr
