"""Compiling with a cache: what is built again and what is not, and every way a build can fail."""

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.tiles import library
from fxlite.codegen.runtime import build as build_module
from fxlite.codegen.runtime import toolchain
from fxlite.codegen.runtime.abi import ArgSpec, DimText, Entry
from fxlite.codegen.runtime.build import BuildError, build, build_executable
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.codegen.runtime.toolchain import CompilerNotFound, cache_folder, find_compiler

ENTRY = Entry("twice", (ArgSpec("x", "f32", (DimText("B"),)),), (ArgSpec("y", "f32", (DimText("B"),)),), ("B",))
HEADER = """\
#include <stdint.h>
#define FX_ERROR_DEFINED
typedef struct { int code; int64_t value; int64_t limit; int64_t where; } fx_error;
void kernel(const float *x, float *y, int64_t B);
"""
MAIN = """\
#include "twice.h"
int64_t twice_workspace_bytes(int64_t B, int n_threads) { return 0; }
int twice_run(const float *x, float *y, int64_t B, const void *weights, void *workspace,
              int n_threads, fx_error *error) {
    kernel(x, y, B);
    return 0;
}
"""
KERNEL = """\
#include "twice.h"
#ifndef FACTOR
#define FACTOR 2
#endif
void kernel(const float *x, float *y, int64_t B) {
    for (int64_t i = 0; i < B; i++) y[i] = FACTOR * x[i];
}
"""
FILES = {"twice.c": MAIN, "kernel.c": KERNEL, "twice.h": HEADER}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """An empty cache folder."""
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    build_module._spare_folder.cache_clear()
    yield tmp_path / "cache"
    build_module._spare_folder.cache_clear()


def call(library):
    return CompiledFunction(ENTRY, library)(np.array([1, 2], np.float32)).tolist()


def compiler_script(tmp_path, text):
    """The path of a compiler that runs `text`, a piece of shell, before the real one."""
    path = tmp_path / "compiler"
    real = " ".join(find_compiler().command)
    path.write_text(f'#!/bin/sh\n{text}\nexec {real} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_build_and_find_again(folder, monkeypatch):
    first = build(FILES, ENTRY)
    assert call(first) == [2, 4]
    assert first.path.parent.parent == folder
    assert {p.name for p in first.path.parent.iterdir()} >= {"twice.c", "kernel.c", "twice.h"}
    assert not list(folder.glob("work-*"))

    def refuse(*args, **kwargs):
        raise AssertionError("a second start runs no process")

    toolchain._find_compiler.cache_clear()
    monkeypatch.setattr(subprocess, "run", refuse)
    assert build(FILES, ENTRY) == first
    with pytest.raises(AssertionError, match="runs no process"):
        build({**FILES, "kernel.c": KERNEL + " "}, ENTRY)


def test_programs_share_the_objects_of_tiles(folder):
    """What a product has in common with all others is compiled once, in an object of its own."""

    def compiled(n):
        x = np.ones((9, n), np.float32)
        function = fx.compile(lambda x: x @ x.T, x, backend="c")
        np.testing.assert_array_equal(function(x), np.full((9, 9), n))
        return function.program

    def objects():
        return {path.name: path.stat().st_mtime_ns for path in folder.glob("*/*.o")}

    sources = compiled(3).sources
    before = objects()
    _, tiles = library.apart(sources)
    assert len(tiles) > 1 and {*tiles} <= {name.partition(".")[0] for name in before}
    assert compiled(5).sources != sources and objects() == before


def test_tiles_are_told_from_other_definitions():
    """All of them, the check of the processor, and what only these call move out of a program's text; they keep their
    guards."""
    begin = re.compile("^TILE_FUNCTION static", re.MULTILINE)
    named = {n for d in library.library() for n in d.names if begin.search(d.text)} | {"processor_fits"}
    assert len(named) > 1 and set(library._tiles()) == named
    everything = "\n\n".join(d.text for d in library.library())
    texts, sources = library.apart({"all.h": everything})
    text = texts["all.h"]
    assert "TILE_FUNCTION static" not in text and set(sources) == named
    assert library.apart(texts) == (texts, {})
    for name, source in sources.items():
        hidden = re.findall(
            r'^__attribute__\(\(visibility\("hidden"\)\)\) [^;{]*?\b(\w+)\([^;]*\{', source, re.MULTILINE
        )
        assert hidden == [name], "one definition, besides declarations"
    kept = [d for d in library.library() if d.names & named - {"processor_fits"} or d.text in text]
    for conditional in ("#if", "#endif"):
        assert text.count(conditional) == sum(d.text.count(conditional) for d in kept)


def test_what_only_tiles_call_is_left_out():
    """In turn, wherever it stands; and nothing that a program calls itself, or that is no function."""
    by_name = {name: d for d in library.library() for name in d.names}
    header = library.needed("processor_fits(); fx_floor_mod(a, b); PARALLEL_OPERATIONS")
    texts, sources = library.apart({"all.h": header, "run.c": "fx_floor_mod(a, b);"})
    assert [*sources] == ["processor_fits"] and "processor_has" not in texts["all.h"]
    assert "processor_has" in sources["processor_fits"] and texts["run.c"] == "fx_floor_mod(a, b);"
    assert all(by_name[name].text in texts["all.h"] for name in ("fx_floor_mod", "fx_floor_div", "PARALLEL_OPERATIONS"))
    also, _ = library.apart({"all.h": header, "run.c": "processor_has(0, 0, 0, 0);"})
    assert by_name["processor_has"].text in also["all.h"]


def test_programs_are_compiled_with_the_scalar_functions_that_they_reach(tmp_path):
    """And with all that these mention, also where a macro makes them."""
    whole = (Path(library.__file__).parents[1] / "fx_math.h").read_text()
    _, definitions = library._scalar_functions()
    names = {name for definition in definitions for name in definition.names}
    assert names >= {"fx_maximum_f32", "fx_pow_u16", "fx_mod_i8", "fx_nextafter_bf16", "fx_error", "FX_OUT_OF_MEMORY"}
    code = re.sub(r"(?s)/\*.*?\*/", "", library.scalar_functions(" ".join(names)))
    mentioned = re.findall(r"\bfx_\w*[^\W_]\b(?!##)", code)
    assert {*mentioned} <= names

    def compiled(text):
        """The names of the functions of a header."""
        source = tmp_path / "header.c"
        source.write_text(text)
        command = [*find_compiler().command, "-std=gnu11", "-w", "-O0", "-DFX_FN=", "-c", source]
        subprocess.run([*command, "-o", tmp_path / "header.o"], check=True)
        told = subprocess.run(["nm", tmp_path / "header.o"], check=True, capture_output=True, text=True)
        return {line.split()[-1] for line in told.stdout.splitlines() if " T " in line}

    functions = compiled(whole)
    assert len(functions) > 290 and compiled(library.scalar_functions(" ".join(names))) == functions
    assert compiled(library.scalar_functions("fx_mod_i8(x, y)")) == {
        *("fx_mod_i8", "fx_floordiv_i8", "fx_sub_i8", "fx_mul_i8")
    }
    assert len(library.scalar_functions("")) < 2000


def test_what_the_key_covers(monkeypatch):
    header = {**FILES, "twice.h": HEADER + "#define FACTOR 3\n"}
    found = {
        "plain": build(FILES, ENTRY),
        "header": build(header, ENTRY),
        "flags": build(FILES, ENTRY, flags=("-DFACTOR=4",)),
    }
    assert [call(library)[0] for library in found.values()] == [2, 3, 4]
    found["serial"] = build(FILES, ENTRY, openmp=False)
    assert not found["serial"].openmp
    monkeypatch.setattr(build_module, "cpu_identity", lambda: "another CPU")
    found["cpu"] = build(FILES, ENTRY)
    assert len({library.path.parent for library in found.values()}) == len(found)


def test_a_new_compiler_builds_anew(tmp_path, monkeypatch):
    script = compiler_script(tmp_path, "# one")
    monkeypatch.setenv("CC", f"{script} -DFACTOR=7")
    first = build(FILES, ENTRY)
    assert call(first) == [7, 14]
    monkeypatch.setenv("CC", script)
    assert call(build(FILES, ENTRY)) == [2, 4]
    Path(script).write_text(Path(script).read_text() + "# two\n")
    toolchain._find_compiler.cache_clear()
    assert build(FILES, ENTRY).path.parent != first.path.parent


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b[::-1]])
def test_damaged_files_are_built_again(damage):
    path = build(FILES, ENTRY).path
    good = path.read_bytes()
    path.write_bytes(damage(good))
    again = build(FILES, ENTRY)
    assert again.path.read_bytes() != damage(good)
    assert call(again) == [2, 4]
    assert len(list(path.parent.glob("*.so"))) == 1


def test_a_damaged_note_about_the_compiler(folder):
    compiler = find_compiler()
    (note,) = (folder / "compilers").iterdir()
    known = json.loads(note.read_text())
    assert known == {"version": compiler.version, "openmp": compiler.openmp}
    for text in ("", "[]", '{"version": 1}'):
        note.write_text(text)
        toolchain._find_compiler.cache_clear()
        assert find_compiler() == compiler
        assert json.loads(note.read_text()) == known


SCRIPT = """
import json, sys
import numpy as np
from fxlite.codegen.runtime.abi import ArgSpec, DimText, Entry
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
B = DimText("B")
entry = Entry("twice", (ArgSpec("x", "f32", (B,)),), (ArgSpec("y", "f32", (B,)),), ("B",))
sys.stdin.readline()
library = build(json.loads(sys.argv[1]), entry)
print(CompiledFunction(entry, library)(np.ones(1, np.float32)).tolist())
"""


def start(**environment):
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(FILES)],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_build_the_same_at_once(folder):
    processes = [start(), start()]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.communicate() == ("[2.0]\n", "")
    assert not list(folder.glob("work-*"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "_make", None)  # the cache has it now
        assert call(build(FILES, ENTRY)) == [2, 4]


def test_a_killed_build_leaves_nothing_that_counts(folder, tmp_path):
    # the other file's compiler must not outlive the build and write into its folder later on
    kill = """
        case "$KILL $*" in
        "yes "*" -c kernel.c "*) kill -9 $PPID; exit 1;;
        "yes "*" -c "*".c -o "*) exit 1;;
        esac"""
    script = compiler_script(tmp_path, kill)
    killed = start(CC=script, KILL="yes")
    killed.communicate("go\n")
    assert killed.returncode == -9
    assert not list(folder.rglob("*.so"))
    abandoned = [*folder.glob("work-*")]
    assert abandoned
    for left in abandoned:
        os.utime(left, (0, 0))
    assert start(CC=script, KILL="no").communicate("go\n") == ("[2.0]\n", "")
    assert not any(left.exists() for left in abandoned)


def test_code_that_does_not_compile(folder):
    wrong = {**FILES, "kernel.c": KERNEL.replace("2", "two")}
    with pytest.raises(BuildError) as caught:
        build(wrong, ENTRY)
    message = str(caught.value)
    assert message.startswith("the C compiler failed on kernel.c (exit status 1)\n")
    assert "error: 'two' undeclared" in message and "-c kernel.c" in message
    (kept,) = (folder / "failed").iterdir()
    assert str(kept) in message
    assert (kept / "kernel.c").read_text() == wrong["kernel.c"]
    assert "'two' undeclared" in (kept / "log.txt").read_text()
    assert not list(folder.glob("work-*"))
    with pytest.raises(BuildError):
        build(wrong, ENTRY)


def test_code_that_does_not_link():
    missing = {"main.c": "int other(void);\nint main(void) { return other(); }\n"}
    with pytest.raises(BuildError, match=r"failed on program[^$]*undefined reference to `other'"):
        build_executable(missing)


@pytest.mark.parametrize("files", [{}, {"twice.h": HEADER}, {"../twice.c": MAIN}, {"a/b.c": MAIN}])
def test_files_that_cannot_be_built(files):
    with pytest.raises(ValueError, match=r"no \.c file|not a plain file name"):
        build(files, ENTRY)


def test_a_cache_folder_that_cannot_be_made(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("FXLITE_CACHE", str(file / "cache"))
    with pytest.warns(UserWarning, match="cannot write to the cache folder") as caught:
        library = build(FILES, ENTRY)
    assert str(file / "cache") in str(caught[0].message)
    assert "Not a directory" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert call(library) == [2, 4]
    assert file not in library.path.parents
    with pytest.warns(UserWarning, match="cannot write"):
        assert build(FILES, ENTRY) == library  # found there, for as long as the process lives

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    build_module._spare_folder.cache_clear()
    monkeypatch.setattr(build_module.tempfile, "mkdtemp", full)
    with pytest.raises(BuildError, match=r"no place for compiled code.*No space left on device"):
        build(FILES, ENTRY)


def test_a_disk_that_fills_up_while_compiling(folder, tmp_path, monkeypatch):
    full = f"""case "$PWD" in {folder}*)
        echo "fatal error: error writing to kernel.c.o: No space left on device" >&2; exit 1;;
    esac"""
    monkeypatch.setenv("CC", compiler_script(tmp_path, full))
    with pytest.warns(UserWarning, match="No space left on device"):
        library = build(FILES, ENTRY)
    assert call(library) == [2, 4]
    assert folder not in library.path.parents
    assert not list(folder.glob("work-*"))


def test_a_warm_cache_may_be_read_only(folder, monkeypatch):
    library = build(FILES, ENTRY)

    def refuse(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(build_module.Path, "mkdir", refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(FILES, ENTRY) == library


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerNotFound) as caught:
        build(FILES, ENTRY)
    for advice in ("install gcc or clang", "pip install ziglang", "set CC", 'backend="python"'):
        assert advice in str(caught.value)


@pytest.mark.parametrize("named", ["no-such-compiler -O1", "false"])
def test_a_named_compiler_that_does_not_run(monkeypatch, named):
    monkeypatch.setenv("CC", named)
    with pytest.raises(CompilerNotFound, match=f"CC='{named}' does not run"):
        find_compiler()


def test_a_compiler_that_does_not_run_is_passed_over(tmp_path, monkeypatch):
    working = find_compiler()
    for name, text in (("gcc", "exit 1"), ("clang", f'exec {working.command[0]} "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert find_compiler().command == (str(tmp_path / "clang"),)


def test_without_openmp(tmp_path, monkeypatch):
    script = compiler_script(tmp_path, 'case "$*" in *-fopenmp*) exit 1;; esac')
    monkeypatch.setenv("CC", script)
    library = build(FILES, ENTRY)
    assert not find_compiler().openmp and not library.openmp
    function = CompiledFunction(ENTRY, library, n_threads=4)
    assert function.n_threads == 1 and call(library) == [2, 4]


def test_without_python_headers(monkeypatch):
    monkeypatch.setattr(build_module, "_python_headers", lambda: None)
    library = build(FILES, ENTRY)
    assert CompiledFunction(ENTRY, library).interface == "ctypes"
    assert call(library) == [2, 4]


@pytest.mark.skipif(build_module._python_headers() is None, reason="no Python.h")
def test_an_extension_that_does_not_compile(monkeypatch):
    assert CompiledFunction(ENTRY, build(FILES, ENTRY)).interface == "extension"
    monkeypatch.setattr(build_module, "extension_source", lambda: "#error broken headers\n")
    with pytest.warns(UserWarning, match=r"calls go through ctypes[^$]*broken headers") as caught:
        library = build(FILES, ENTRY)
    assert caught[0].filename == __file__
    assert CompiledFunction(ENTRY, library).interface == "ctypes"
    assert call(library) == [2, 4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build(FILES, ENTRY) == library


def test_the_cache_folder(monkeypatch):
    monkeypatch.setenv("FXLITE_CACHE", "/one")
    assert cache_folder() == Path("/one")
    monkeypatch.delenv("FXLITE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/two")
    assert cache_folder() == Path("/two/fxlite")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/three")
    assert cache_folder() == Path("/three/.cache/fxlite")


READS_BEYOND = """\
#include <stdlib.h>
int main(int count, char **arguments) {
    int *values = calloc(4, sizeof *values);
    int result = values[count > 1 ? atoi(arguments[1]) : 0];
    free(values);
    return result;
}
"""


@pytest.mark.parametrize(
    ("sanitizers", "report"),
    [("address", "heap-buffer-overflow"), ("address,undefined", "runtime error: load of address")],
)
def test_sanitizers_work_in_executables(sanitizers, report):
    flags = ("-O1", "-g1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover")
    program = build_executable({"main.c": READS_BEYOND}, flags=flags, openmp=False)
    assert build_executable({"main.c": READS_BEYOND}, flags=flags, openmp=False) == program
    assert subprocess.run([program]).returncode == 0
    bad = subprocess.run([program, "4"], capture_output=True, text=True)
    assert bad.returncode != 0 and report in bad.stderr


def test_symbols_of_the_model_are_its_own():
    """A model may have a function called as one in libc, and it is the one that runs."""
    own = {
        "twice.c": MAIN.replace("kernel(", "index("),
        "kernel.c": KERNEL.replace("kernel(", "index("),
        "twice.h": HEADER.replace("kernel(", "index("),
    }
    assert call(build(own, ENTRY, flags=("-fno-builtin",))) == [2, 4]


def test_cache_sizes(tmp_path: Path) -> None:
    caches = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M\n")]
    for number, facts in enumerate([*caches, ("3", "Unified", "plenty")]):
        folder = tmp_path / f"index{number}"
        folder.mkdir()
        for name, text in zip(("level", "type", "size"), facts):
            (folder / name).write_text(text)
    assert toolchain.cache_sizes(tmp_path) == {1: 48 << 10, 2: 2 << 20}
    assert toolchain.cache_sizes(tmp_path / "none") == {}
