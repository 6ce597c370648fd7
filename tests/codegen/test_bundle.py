"""The C bundle: builds and passes its own test with nothing but a compiler and make."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.backend import Case
from fxlite.codegen import folder as folder_module
from fxlite.codegen.c.header import result_places
from fxlite.codegen.c.selftest import selftest_source
from fxlite.codegen.c.weights import FACTOR, digest_of
from fxlite.codegen.folder import MANIFEST, FolderError, check_writable, write_folder
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.runtime.toolchain import find_compiler
from tests.codegen.compiling import emitted, make_test

needs_tools = pytest.mark.skipif(not (shutil.which("make") and shutil.which("cc")), reason="needs make and cc")


#: An environment that has nothing but the usual programs.
USUAL = {"PATH": "/usr/bin:/bin"}


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=folder, env=USUAL, capture_output=True, text=True)


def small() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3)).eval()


def test_sources_of_two_models_may_lie_in_one_folder() -> None:
    """Whose functions need different tiles: what has one name is one and the same."""
    linear, conv = nn.Linear(4, 8).eval(), nn.Conv2d(3, 4, 3).eval()
    one, two = fx.compile(linear, x="f32[B,4]"), fx.compile(conv, x="f32[B,3,8,8]")
    assert set(one.sources) & set(two.sources) == {"fx_math.h"}
    assert one.sources["fx_math.h"] == two.sources["fx_math.h"]


@needs_tools
def test_builds_and_passes(tmp_path: Path) -> None:
    fn = fx.compile(small(), x="f32[B,4]")
    fn.save(tmp_path / "out")
    name = fn.program.name
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {
        f"{name}.c",
        f"{name}.h",
        "fx_math.h",
        f"{name}_tiles.h",
        f"{name}_weights.bin",
        f"{name}_weights.h",
        f"{name}_selftest.c",
        "Makefile",
        "README.txt",
        "selftest",
        MANIFEST,
        f"{name}_portable.c",
        f"{name}_embedded.c",
        f"{name}.pc.in",
        "CMakeLists.txt",
    }
    done = make(tmp_path / "out", "test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: 2 of 2 cases agree with NumPy" in done.stdout
    assert not done.stderr, "no warnings"
    assert make(tmp_path / "out", "shared").returncode == 0
    assert make(tmp_path / "out", "clean").returncode == 0
    assert {p.name for p in (tmp_path / "out").iterdir()} == files


@needs_tools
def test_self_test_can_fail(tmp_path: Path) -> None:
    """A wrong number, a NaN, a missing and a short file are found."""
    fn = fx.compile(small(), x="f32[B,4]")
    fn.save(tmp_path / "out")
    out = tmp_path / "out"
    assert make_test(out, environment=USUAL).returncode == 0
    (stored,) = (out / "selftest").glob("2_out_*.bin")
    good = stored.read_bytes()
    for index, value in ((3, 100.0), (0, np.nan), (5, np.inf)):
        wrong = np.frombuffer(good, np.float32).copy()
        wrong[index] = value
        stored.write_bytes(wrong.tobytes())
        done = make(out, "test")
        assert done.returncode != 0 and "FAILED: 1 of 2 cases" in done.stdout, done.stdout
    stored.write_bytes(good[:-4])
    assert "it is too short" in make(out, "test").stderr
    stored.write_bytes(good + b"more")
    assert "it is too long" in make(out, "test").stderr
    stored.unlink()
    assert "cannot open it" in make(out, "test").stderr


@needs_tools
def test_index_error_is_reported(tmp_path: Path) -> None:
    fn = fx.compile(nn.Embedding(5, 2), x="i64[N]")
    bad = Case({"N": 2}, {"x": np.array([1, 7])}, expected=np.zeros((2, 2), np.float32))
    fn.save(tmp_path / "out", [bad])
    done = make_test(tmp_path / "out", environment=USUAL)
    assert done.returncode != 0
    assert "error 1: value 7, limit 5, where 0" in done.stdout
    assert "where 0: " in (tmp_path / "out" / f"{fn.program.name}.h").read_text()


def test_calls_with_many_arguments_are_folded() -> None:
    """A cache for each layer, say."""

    def program(*arrays: Any) -> Any:
        return sum(arrays)

    fn = fx.compile(program, *["f32[B,3]"] * 60)
    text = selftest_source(fn.program, make_cases(fn.graph_module)[-1:])
    assert "in_arrays_59" in text
    start = text.index("if (program_run(")
    lines = text[start : text.index("{", start)].splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) > 7


@needs_tools
def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    fn = fx.compile(small(), x="f32[B,4]")
    fn.save(tmp_path / "out")
    assert make_test(tmp_path / "out", environment=USUAL).returncode == 0
    blob = tmp_path / "out" / f"{fn.program.name}_weights.bin"
    data = bytearray(blob.read_bytes())
    data[-64] ^= 1
    blob.write_bytes(data)
    test = subprocess.run([f"./{fn.program.name}_selftest"], cwd=tmp_path / "out", capture_output=True, text=True)
    assert test.returncode == 2 and "weights are not those that the code was made for" in test.stderr


def test_the_digest_of_weights_is_that_of_the_words_one_by_one() -> None:
    words = np.random.default_rng(0).integers(0, 1 << 63, 8 * 10_000, dtype=np.uint64) * 2 + 1
    value = 0
    for word in words.tolist():
        value = (value * FACTOR + word) % (1 << 64)
    assert digest_of(words.view(np.uint8)) == value
    assert digest_of(np.empty(0, np.uint8)) == 0


@needs_tools
def test_a_caller_may_check_sizes_and_ask_what_an_error_means(tmp_path: Path) -> None:
    def program(x: Any, y: Any) -> Any:
        return x.max(0) + y.sum()

    made = emitted(program, x="f32[M,3]", y="f32[N]")
    name = made.name
    for file, text in made.sources.items():
        (tmp_path / file).write_text(text)
    (tmp_path / "main.c").write_text(
        f"""#include <stdio.h>
#include "{name}.h"
int main(void) {{
    const long sizes[4][2] = {{{{4, 6}}, {{0, 6}}, {{-1, 6}}, {{4, INT64_MAX / 8}}}};
    for (int i = 0; i < 4; ++i)
        puts({name}_error_message({name}_check(sizes[i][0], sizes[i][1])));
    puts({name}_error_message(99));
    return 0;
}}
"""
    )
    command = [*find_compiler().command, "-std=gnu11", "main.c", f"{name}.c", "-o", "main", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    told = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    impossible = "No call with these sizes of the named dims is possible."
    unknown = "The code of the error is unknown."
    assert told.stdout.splitlines() == ["No error.", *[impossible] * 3, unknown]


@needs_tools
def test_header_compiles_as_c_and_cpp(tmp_path: Path) -> None:
    made = emitted(small(), x="f32[B,4]")
    header = tmp_path / f"{made.name}.h"
    header.write_text(made.sources[header.name])
    text = header.read_text()
    assert re.search(r"@param\[in\] x +f32\[B,4\]\n", text)
    assert re.search(r"@param B +size of a named dim, 0 or more\n", text)
    assert max(map(len, text.splitlines())) <= 100
    for compiler, suffix in (("cc", "c"), ("c++", "cpp")):
        if shutil.which(compiler) is None:
            continue
        user = tmp_path / f"user.{suffix}"
        user.write_text(f'#include "{header.name}"\n#include "{header.name}"\n')
        flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
        done = subprocess.run([compiler, *flags, str(user)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_readme_says_what_is_needed(tmp_path: Path) -> None:
    fn = fx.compile(small(), x="f32[B,4]", threads=1)
    fn.save(tmp_path / "out", make_cases(fn.graph_module, {"B": 16}))
    text = (tmp_path / "out" / "README.txt").read_text()
    size = fn.workspace_bytes({"B": 16})
    assert "make test" in text and "in   x" in text and "f32[B,4]" in text
    assert f"workspace  {size:,} bytes for B=16 and 1 thread" in text
    assert f"{len(fn.program.weights):,} bytes" in text
    assert max(map(len, text.splitlines())) <= 100
    facts = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert facts["inputs"] == {"x": "f32[B,4]"} and facts["dims"] == ["B"]
    assert "dce" in facts["passes"] and facts["options"]["matmul_precision"] == "highest"
    for file in facts["files"]:
        data = (tmp_path / "out" / file["path"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(data).hexdigest() and file["bytes"] == len(data)
    of = {file["path"]: file["component"] for file in facts["files"]}
    title = fn.program.name
    assert of["fx_math.h"] == of[f"{title}_tiles.h"] == "fxlite"
    assert of[f"{title}.c"] == of[f"{title}_weights.bin"] == facts["model"]
    assert [c["license"] for c in facts["components"]] == ["NOASSERTION", "Apache-2.0"]


def test_what_results_are_to_the_program() -> None:
    made = namedtuple("made", ["mean", "rest"])

    def program(x):  # type: ignore[no-untyped-def]
        return {"logits": x + 1, "more": made(x * 2, [x * 3, (x * 4,)])}

    gm = fx.symbolic_trace(program, x="f32[2]")
    assert result_places(gm) == [
        f"the program's {path}" for path in ('["logits"]', '["more"].mean', '["more"].rest[0]', '["more"].rest[1][0]')
    ]
    header = emitted(gm).sources["program.h"]
    assert '(the program\'s ["more"].mean)' in header
    assert result_places(fx.symbolic_trace(lambda x: x + 1, x="f32[2]")) == [""]

    def writes(x, cache):  # type: ignore[no-untyped-def]
        cache += x
        return x.sum(), cache[0]

    written = fx.symbolic_trace(writes, "f32[2]", "f32[2]")
    found = ["the program's [0]", "the program's [1]", "what cache holds afterwards"]
    assert result_places(written) == found
    assert "@param[in,out] cache  f32[2]; a result afterwards" in emitted(written).sources["writes.h"]


# -- folders -------------------------------------------------------------------------------------
def test_files_of_others_are_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    fn = fx.compile(small(), x="f32[B,4]")
    with pytest.raises(FolderError, match="not empty and not from an earlier run"):
        fn.save(out)
    assert [p.name for p in out.iterdir()] == ["notes.txt"]
    fn.save(out, force=True)
    assert (out / "notes.txt").read_text() == "mine" and (out / "Makefile").exists()
    fx.compile(lambda x: x + 1, x="f32[3]").save(out)  # an earlier run's: replaced
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / f"{fn.program.name}.c").exists()
    assert not list(tmp_path.glob(".out-*"))


def test_nothing_is_half_written(tmp_path: Path) -> None:
    """A full disk: the folder is not there, or as it was."""
    out = tmp_path / "out"

    def write(work: Path, fail: bool = True) -> None:
        (work / "a.txt").write_text("new" if fail else "old")
        if fail:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(FolderError, match="No space left on device; it was left as it was"):
        write_folder(out, write)
    assert not any(tmp_path.iterdir())
    write_folder(out, lambda work: write(work, fail=False))
    with pytest.raises(FolderError):
        write_folder(out, write)
    assert (out / "a.txt").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="is a file"):
        check_writable(tmp_path / "file")
    with pytest.raises(FolderError, match="cannot write to"):
        check_writable("/proc/nothing/here")
    check_writable(tmp_path / "a" / "b")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_manifest_cannot_reach_outside(tmp_path: Path) -> None:
    """A list of files that names others' is not believed."""
    victim = tmp_path / "victim"
    victim.write_text("keep")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("../victim", str(victim)):
        (out / MANIFEST).write_text(json.dumps({"made by": "fxlite", "files": [{"path": name}]}))
        with pytest.raises(FolderError):
            write_folder(out, lambda work: None)
    assert victim.read_text() == "keep" and folder_module.MANIFEST == "manifest.json"


def test_folders_of_older_versions_are_known(tmp_path: Path) -> None:
    """Their list was called otherwise, and had names only."""
    (tmp_path / "old.c").write_text("")
    (tmp_path / "notes").write_text("keep")
    listed = {"made by": "fxlite", "files": ["old.c", "fxlite.json"]}
    (tmp_path / "fxlite.json").write_text(json.dumps(listed))
    write_folder(tmp_path, lambda work: (work / "new.c").write_text("") and None)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "new.c", "notes"]


# -- example inputs ------------------------------------------------------------------------------
def test_cases() -> None:
    gm = fx.symbolic_trace(lambda x, y: x + y, x="f32[B,T]", y="f32[T]")
    sizes = [dict(c.dims) for c in make_cases(gm, {"T": 5})]
    assert sizes == [{"B": 1, "T": 1}, {"B": 3, "T": 5}, {"B": 8, "T": 5}]
    first, again = make_cases(gm)[0], make_cases(gm)[0]
    np.testing.assert_array_equal(first.inputs["x"], again.inputs["x"])
    data = make_cases(gm, data={"x": np.ones((2, 7), np.float32)})[-1]
    assert dict(data.dims) == {"B": 2, "T": 7} and not data.is_random
    assert data.inputs["y"].shape == (7,) and data.label == "B=2, T=7"
    with pytest.raises(fx.errors.ArgumentError, match="no named dim 'C'; they are B, T"):
        make_cases(gm, {"C": 5})
    with pytest.raises(fx.errors.ArgumentError, match="no input 'xx'; did you mean x"):
        make_cases(gm, data={"xx": np.ones(3)})
    with pytest.raises(fx.errors.ArgumentError, match="the data given has T=7"):
        make_cases(gm, {"T": 5}, {"x": np.ones((2, 7), np.float32)})
    with pytest.raises(fx.errors.DTypeError, match=r"x must be f32\[B,T\]"):
        make_cases(gm, data={"x": np.ones((2, 7))})


def test_random_positions_exist() -> None:
    """Integers are positions that there are, also through a reshape."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4)

        def forward(self, x, mask, flag):  # type: ignore[no-untyped-def]
            return self.table(x.reshape(-1)).sum() + (mask * 2).sum() + flag.sum()

    gm = fx.symbolic_trace(Net(), x="i32[B,9]", mask="i64[B]", flag="bool[3]")
    case = make_cases(gm, {"B": 64})[-1]
    assert case.inputs["x"].dtype == np.int32 and 30 < case.inputs["x"].max() < 50
    assert set(np.unique(case.inputs["mask"])) == {0, 1}
    assert case.inputs["flag"].dtype == np.bool_


@needs_tools
def test_self_test_under_hostile_names(tmp_path: Path) -> None:
    """Names of files and variables of the self-test, and of the model's macros and header."""

    def stdin(out_relu: Any, path: Any, weights: Any) -> Any:
        return np.maximum(out_relu * path[0] + weights, 0)

    types = ("f32[number,STDIN_WEIGHTS_BYTES]", "f32[int,1]", "f32[STDIN_WEIGHTS_BYTES]")
    module = fx.symbolic_trace(stdin, *types)
    module.graph.output_node().args[0].name = "relu"
    fx.compile(module).save(tmp_path / "out")
    done = make_test(tmp_path / "out", environment=USUAL)
    assert done.returncode == 0, done.stderr
    assert {"1_out_relu.bin", "1_out_relu_.bin"} <= set(os.listdir(tmp_path / "out" / "selftest"))
