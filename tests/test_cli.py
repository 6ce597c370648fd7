"""The command line, from arguments to files, as a user runs it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.cli import _COMMANDS, _EXAMPLES, _parser, info, main
from fxlite.cli.program_file import ProgramError, load_program
from fxlite.codegen.runtime import toolchain
from tests.codegen.compiling import make_test
from tests.command_line import enter_folder, run

ROOT = Path(__file__).parents[1]
NET = '''
"""A small model."""
import numpy as np

import fxlite as fx
from fxlite import nn
from helper import scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = np.maximum(self.bn(self.conv(x)), 0).mean(axis=(2, 3))
        return {"logits": self.fc(y) * scale, "features": y}


class NeedsArguments(nn.Module):
    def __init__(self, size):
        super().__init__()


class Branching(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            raise ValueError("positive")
        return -x


class Lookup(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 4)

    def forward(self, x):
        return self.table(x).mean(axis=1)


def make():
    return Net()


def fails():
    raise ValueError("no such size")


def function(x, y):
    return np.exp(x) + y


def at_least_four(x):
    if len(x.shape) and x.__class__ is np.ndarray and x.shape[0] < 4:
        raise ValueError("needs 4 rows")
    return x * 2


instance = Net()
number = 3
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program, as current folder."""
    return enter_folder(tmp_path, monkeypatch, {"net": NET, "helper": "scale = 2.0\n"})


X = "x=f32[B,1,8,8]"


# -- trace -----------------------------------------------------------------------------------------
def test_trace_prints_what_parses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "trace", "net.py:Net", "--input", X)
    assert (status, err) == (0, "")
    graph = fx.symbolic_trace(load_program("net.py:Net"), x="f32[B,1,8,8]").graph
    assert out == f"{graph.text(width=100)}\n" and fx.parse(out) == graph
    assert "conv (Conv2d), net.py:18" in out and "relu:" in out
    exact = run(capsys, "trace", "net.py:Net", "-i", X, "--full")
    assert exact == (0, f"{graph.text(full=True)}\n", "")
    listed = run(capsys, "trace", "net.py:Net", "-i", X, "--all-weights")
    assert listed == (0, f"{graph.text(weights=True, width=100)}\n", "")


def test_regenerate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = ["net.py:Net", "--input", "x=f32[B,1,8,8]"]
    assert main(["regenerate", *net]) == 0
    source = capsys.readouterr().out
    assert "self.bn = nn.BatchNorm2d(4)" in source and ".mean(axis=(2, 3))" in source
    compile(source, "net", "exec")
    assert main(["regenerate", *net, "--passes", "fuse_conv_bn", "--name", "Fused", "-o", "o"]) == 0
    assert sorted(p.name for p in Path("o").iterdir()) == ["fused.py", "fused.safetensors", "manifest.json"]
    assert "BatchNorm" not in Path("o/fused.py").read_text()
    Path("o/other.py").write_text("mine")
    assert main(["regenerate", *net, "--name", "other", "-o", "o"]) == 1
    assert "not written by fxlite" in capsys.readouterr().err
    assert main(["regenerate", *net, "--dialect", "numpy", "-o", "n"]) == 0
    assert sorted(p.name for p in Path("n").iterdir()) == ["manifest.json", "net.npz", "net.py"]


def test_trace_table(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, _ = run(capsys, "trace", "net.py:Net", "-i", X, "--table")
    lines = out.splitlines()
    assert status == 0 and lines[0].split() == ["name", "type", "value", "origin"]
    assert max(map(len, lines)) <= 100
    at = next(n for n, t in enumerate(lines) if t.startswith("conv2d "))
    assert "f32[B,4,8,8]" in lines[at] and "ops.conv2d(x, self.conv.weight" in lines[at]
    assert "conv (Conv2d)" in lines[at]
    monkeypatch.setenv("COLUMNS", "160")
    wide = run(capsys, "trace", "net.py:Net", "-i", X, "--table")[1].splitlines()
    assert wide[0].split() == ["opcode", "name", "type", "value", "origin"]
    assert any(t.startswith("call_function  conv2d ") and t.endswith("conv (Conv2d), net.py:18") for t in wide)
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run(capsys, "trace", "net.py:Net", "-i", X, "--table")[1].splitlines()
    assert narrow[0].split() == ["name", "type", "value"] and max(map(len, narrow)) <= 80
    assert len(narrow) == len(lines)  # a line for each node, however narrow


@pytest.mark.parametrize("columns", ["80", "100"])
def test_trace_tree(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    status, out, _ = run(capsys, "trace", "net.py:Net", "-i", X, "--tree")
    lines = out.splitlines()
    assert status == 0 and max(map(len, lines)) <= int(columns)
    assert [line.split() for line in lines[:8]] == [
        ["module", "result", "parameters", "FLOPs"],
        ["Net", "63", "6434*B", "+", "8"],
        ["├─", "x", "f32[B,1,8,8]"],
        ["├─", "conv", "Conv2d", "f32[B,4,8,8]", "40", "4864*B"],
        ["├─", "bn", "BatchNorm2d", "f32[B,4,8,8]", "8", "1024*B", "+", "8"],
        ["├─", "relu,", "mean", "f32[B,4]", "516*B"],
        ["├─", "fc", "Linear", "f32[B,3]", "15", "27*B"],
        ["└─", "mul", "f32[B,3]", "3*B"],
    ]
    deep = "from fxlite import nn\nnet = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))\n"
    (folder / "deep.py").write_text(deep)
    call = ("trace", "deep.py:net", "-i", "x=f32[B,2]", "--tree")
    assert "Linear" in run(capsys, *call)[1] and "Linear" not in run(capsys, *call, "--depth", "1")[1]


def test_trace_draws(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ("--draw", "net.html", "--depth", "1", "--direction", "LR")
    status, out, _ = run(capsys, "trace", "net.py:Net", "-i", X, *page)
    assert status == 0 and "net.html written" in out
    assert Path("net.html").read_text().startswith("<!doctype html>")
    changed = ("--passes", "cse", "--draw", "net.svg", "--color", "change")
    assert run(capsys, "trace", "net.py:Net", "-i", X, *changed)[0] == 0
    assert ">unchanged</text>" in Path("net.svg").read_text()


@pytest.mark.parametrize("wrong", [("--depth", "0"), ("--depth", "deep"), ("--color", "red")])
def test_trace_refuses_to_draw(wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(["trace", "net.py:Net", "--draw", "net.svg", *wrong])
    assert error.value.code == 2


def test_trace_without_types(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "trace", "net.py:function")
    assert status == 0 and "exp = ops.exp(x)" in out


def test_sorts_of_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A class, an instance, a factory and a saved graph are the same program."""
    fx.save(fx.symbolic_trace(load_program("net.py:Net"), x="f32[B,1,8,8]"), "net.fxl")
    texts = [run(capsys, "trace", f"net.py:{n}", "-i", X) for n in ("Net", "instance", "make")]
    saved = run(capsys, "trace", "net.fxl")
    assert {status for status, _, _ in (*texts, saved)} == {0}
    assert len({out for _, out, _ in (*texts, saved)}) == 1


# -- compile ---------------------------------------------------------------------------------------
def test_compile_the_main_job(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_program("net.py:Net")
    weights = {
        k: np.random.default_rng(1).uniform(0.1, 1, v.shape).astype(v.dtype) for k, v in model.state_dict().items()
    }
    fx.save_safetensors(weights, "w.safetensors")
    images = np.random.default_rng(2).standard_normal((5, 1, 8, 8)).astype(np.float32)
    np.save("images.npy", images)
    arguments = ["compile", "net.py:Net", "-i", X, "-w", "w.safetensors", "-o", "out"]
    status, out, err = run(capsys, *arguments, "--threads", "1", "--data", "x=images.npy")
    assert (status, err) == (0, ""), out + err
    assert "def forward(self, x: f32[B,1,8,8]):" in out
    assert re.search(r"relu: +f32\[B,4,8,8\]", out)
    for wanted in (
        r"nodes    \d+ before optimization, \d+ after",
        r"kernels  \d: .*1 conv2d",
        r"FLOPs    .*B",
        r"weights  \d",
        r"B=1 ",
        r"B=8 ",
        r"B=5 \(data\) ",
        "NumPy +C +faster +largest error",
        r"C and Python agree with NumPy at B=1; B=3; B=8; B=5",
        "fuse_conv_bn",
    ):
        assert re.search(wanted, out), wanted
    assert max(map(len, out.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in out.splitlines())
    assert fx.parse((folder / "out" / "graph.txt").read_text()) is not None
    stored = sorted(p.name for p in (folder / "out" / "selftest").glob("2_*"))
    assert stored == ["2_out_add.bin", "2_out_mean.bin", "2_x.bin"] or len(stored) == 3
    assert (folder / "out" / "selftest" / "2_x.bin").read_bytes() == images.tobytes()
    _make_test(folder / "out")
    _python_agrees(folder / "out" / "python", images, load_program("net.py:Net", "w.safetensors"))
    assert run(capsys, *arguments, "--size", "B=2")[0] == 0, "a second time, over the first"


def _make_test(folder: Path) -> None:
    if not (shutil.which("make") and shutil.which("cc")):
        return
    done = make_test(folder, environment={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK: 2 of 2 cases agree with NumPy" in done.stdout


def _python_agrees(folder: Path, images: np.ndarray, model: nn.Module) -> None:
    script = (
        "import numpy as np; from net import Net\n"
        "result = Net.load()(np.load('../../images.npy'))\n"
        "np.savez('result.npz', **result)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = model(images)
    with np.load(folder / "result.npz") as result:
        assert list(result) == ["logits", "features"]
        for name in result:
            np.testing.assert_allclose(result[name], expected[name], rtol=1e-5, atol=1e-6)


def test_compile_to_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(
        capsys, "compile", "net.py:function", "-i", "x=f32[B]", "-i", "y=f32[B]", "-o", "out", "--backend", "python"
    )
    assert (status, err) == (0, "")
    assert sorted(p.name for p in (folder / "out").iterdir()) == [
        "graph.txt",
        "graph_optimized.txt",
        "manifest.json",
        "python",
    ]
    assert "Python agrees with NumPy" in out


def test_compile_looks_up_positions_that_exist(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "compile", "net.py:Lookup", "-i", "x=i64[B,T]", "-o", "out", "--size", "T=30")
    assert status == 0 and re.search(r"B=8, T=30 .* \d", out)


def test_sizes_that_numpy_refuses_are_left_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "compile", "net.py:at_least_four", "-i", "x=f32[B]", "-o", "out", "--backend", "c")
    assert status == 0, out
    assert "C and Python agree with NumPy at B=8" in " ".join(out.split())
    assert "not tried, since NumPy fails: B=1: ValueError" in " ".join(out.split())


def test_a_compiled_model_that_differs_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fxlite.codegen import backends

    right = backends.CFunction.__call__
    monkeypatch.setattr(backends.CFunction, "__call__", lambda self, **kwargs: right(self, **kwargs) * 1.01)
    arguments = ["compile", "net.py:function", "-i", "x=f32[B]", "-i", "y=f32[B]", "-o", "out"]
    status, _, err = run(capsys, *arguments)
    assert status == 1 and "C differs from NumPy at B=1: expected" in err
    assert not (folder / "out").exists()


# -- errors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "nett.py:Net"], "there is no file nett.py; did you mean net.py?"),
        (["trace", "net.py:Nett"], "net.py has no 'Nett'; did you mean Net?"),
        (["trace", "net.py:xyz"], "it defines Net, NeedsArguments, Branching"),
        (["trace", "net.py"], "write FILE.py:NAME or FILE.fxl; it defines Net, NeedsArguments, Branching"),
        (["trace", "."], "'.' does not name a program; write FILE.py:NAME or FILE.fxl"),
        (["trace", "nothing.py:Net"], "nothing.py has no 'Net'; it defines no function and no class"),
        (["trace", "net.py:Net", "-w", "."], ". is a folder, not a file of weights"),
        (
            ["trace", "net.py:Net", "-i", X, "--draw", "net"],
            "net: pictures are written as .svg, .html, .dot, .png or .pdf",
        ),
        (["trace", "net.py:Net", "-i", X, "--passes", ","], "--passes ',' names no pass"),
        (["export", "net.py:Net", "net.png", "-i", X], "an ONNX model is a file net.onnx, not net.png"),
        (["optimize", "net.py:Net", "-i", X, "--passes", "cse", "--yes"], "--yes is for --apply"),
        (["trace", "net.fxl"], "there is no file net.fxl"),
        (["trace", "net.py:number"], "neither a model nor a function: int"),
        (["trace", "net.py:NeedsArguments"], "name a function that makes one"),
        (["trace", "net.py:fails"], r"net.py:fails() failed: ValueError: no such size (net.py:48)"),
        (["trace", "broken.py:f"], "broken.py cannot be imported: SyntaxError"),
        (["trace", "net.py:Branching", "-i", "x=f32[3]"], "net.py:29: x.sum() > 0"),
        (["trace", "net.py:function", "-i", "x=f32[3]", "-i", "z=f32[3]"], "no parameter 'z'"),
        (["trace", "net.py:function", "-i", "x=f32[3]", "-i", "x=f32[3]"], "--input x is given twice"),
        (["trace", "net.py:Net", "-w", "none.safetensors"], "there is no file none.safetensors"),
        (["trace", "net.py:Net", "-w", "net.py"], "net.py is not a safetensors file"),
        (["trace", "net.py:Net", "-w", "wrong.safetensors"], "unexpected: fc.weigth (did you mean fc.weight?)"),
        (["compile", "net.py:function", "-o", "out"], '--input "x=f32[...]" --input "y=f32[...]"'),
        (["compile", "net.py:Net", "-i", X, "-o", "net.py"], "net.py is a file; choose a folder"),
        (["compile", "net.py:Net", "-i", X, "-o", "."], "not empty and not from an earlier run"),
        (["compile", "net.py:Net", "-i", X, "-o", "/proc/out"], "cannot write to /proc/out"),
        (["compile", "net.py:Net", "-i", X, "-o", "o", "--size", "C=3"], "no named dim 'C'"),
        (["compile", "net.py:Net", "-i", X, "-o", "o", "--data", "x=no.npy"], "no file no.npy"),
        (["compile", "net.py:Net", "-i", X, "-o", "o", "--data", "x=net.py"], "not a .npy file"),
        (
            ["compile", "net.py:Net", "-i", X, "-o", "o", "--backend", "rust"],
            "there is no back end 'rust'; choose one of c, cuda, embedded, python",
        ),
    ],
)
def test_errors_of_the_user(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, no traceback, exit status 1."""
    (folder / "nothing.py").write_text("")
    (folder / "broken.py").write_text("def f(:\n")
    fx.save_safetensors({"fc.weigth": np.zeros((3, 4), np.float32)}, "wrong.safetensors")
    status, _, err = run(capsys, *arguments)
    assert status == 1
    assert message in err, err
    assert err.startswith("error: ") and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "net.py:Net", "-i", "x"], "'x' is not of the form NAME=TYPE"),
        (["trace", "net.py:Net", "-i", "x=f33[2]"], "'f33' is not a dtype"),
        (["trace", "net.py:Net", "-i", "x=f32[2"], "is not a type"),
        (["compile", "net.py:Net"], "the following arguments are required: -o/--output"),
        (["compile", "net.py:Net", "-o", "o", "--size", "B"], "not of the form DIM=N"),
        (["compile", "net.py:Net", "-o", "o", "--size", "B=-1"], "is not a size"),
        (["compile", "net.py:Net", "-o", "o", "--threads", "0"], "not a number from 1 on"),
        (["frob"], "invalid choice: 'frob'"),
        ([], "COMMAND"),
    ],
)
def test_errors_of_usage(arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, *arguments)
    assert status == 2 and message in err, err


def test_no_compiler(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc")
    status, _, err = run(capsys, "compile", "net.py:Net", "-i", X, "-o", "out")
    assert status == 1 and "CC='/nowhere/cc' does not run" in err and "install gcc" in err
    status, out, _ = run(capsys, "info")
    assert status == 0 and "no C compiler" in out


def test_help_loads_no_command() -> None:
    script = (
        "import sys, contextlib, fxlite.cli\n"
        "with contextlib.suppress(SystemExit): fxlite.cli.main(['--help'])\n"
        "print([m for m in sys.modules if m.startswith(('fxlite.codegen', 'fxlite.passes'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.endswith("\n[]\n"), done.stdout + done.stderr
    assert re.search(r"\n    bisect +run passes one by one", done.stdout)


def test_sizes_that_are_numbers_need_no_sympy(folder: Path) -> None:
    """It takes longer to import than a small program takes to trace; and ``import fxlite`` loads no rich either."""
    script = (
        "import sys, fxlite, fxlite.cli\n"
        "print(sorted({'sympy', 'rich', 'graphviz'} & set(sys.modules)))\n"
        "for command in sys.argv[1:]:\n"
        "    fxlite.cli.main(command.split())\n"
        "    assert 'sympy' not in sys.modules, command\n"
        "print('done')"
    )
    net = "net.py:Net --input x=f32[4,1,8,8]"
    commands = (
        f"trace {net} --tree",
        f"cost {net}",
        f"diff {net} --passes fuse_conv_bn",
        f"check {net} --no-match dropout",
        f"bisect {net} --passes cse",
        f"optimize {net} --passes fuse_conv_bn --diff",
        f"regenerate {net} --passes fuse_conv_bn",
        f"compile {net} --backend python -o python",
        f"compile {net} --backend c -o out",
    )
    done = subprocess.run([sys.executable, "-c", script, *commands], capture_output=True, text=True)
    assert done.stdout.startswith("[]\n"), done.stdout + done.stderr
    assert done.stdout.endswith("\ndone\n"), done.stdout + done.stderr


def test_numpy_programs_whose_sizes_are_numbers_need_no_sympy() -> None:
    script = (
        "import sys, fxlite\n"
        "from tests.core import sizes_without_sympy as programs\n"
        "programs.run()\n"
        "assert 'sympy' not in sys.modules\n"
        "print('done')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_debug_shows_the_traceback(folder: Path) -> None:
    with pytest.raises(ProgramError):
        main(["trace", "net.py:fails", "--debug"])


def test_weights_of_a_function(folder: Path) -> None:
    fx.save_safetensors({"a": np.zeros(1)}, "a.safetensors")
    with pytest.raises(ProgramError, match="the program is a function"):
        load_program("net.py:function", "a.safetensors")


# -- diff ------------------------------------------------------------------------------------------
def test_diff_of_passes_writes_files_and_says_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--passes", "fuse_conv_bn, dce", "--html", "d.html", "--json", "d.json")
    status, out, err = run(capsys, "diff", "net.py:Net", "--input", X, *options)
    assert (status, err) == (1, "")
    assert "- batch_norm: f32[B,4,8,8] = " in out and "1 removed, 0 added, 0 changed" in out
    assert out.endswith("d.html written\nd.json written\n")
    assert (folder / "d.html").read_text().startswith("<!DOCTYPE html>")
    data = json.loads((folder / "d.json").read_text())
    assert data["counts"]["removed"] == 1 and not data["same"]
    status, out, err = run(capsys, "diff", "net.py:Net", "--input", X, *options[:2], "--json", "-")
    assert (status, json.loads(out)["counts"]) == (1, data["counts"])


def test_diff_of_two_programs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fx.save(fx.symbolic_trace(load_program("net.py:instance"), x="f32[B,1,8,8]"), "net.fxl")
    assert run(capsys, "diff", "net.fxl", "net.fxl") == (0, "no difference\n", "")
    status, out, _ = run(capsys, "diff", "net.py:Net", "net.py:Lookup", "--context", "0")
    assert status == 1 and "- conv2d" in out and "+ embedding" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.py:Net",), "give two programs"),
        (("net.py:Net", "net.py:Net", "--passes", "dce"), "give two programs"),
        (("net.py:Net", "--passes", "dec"), "did you mean dce"),
        (("net.py:Net", "none.py:Net"), "there is no file none.py"),
        (("net.py:Net", "net.py:Net", "--context", "few"), "is not a number of lines"),
    ],
)
def test_what_diff_cannot_do_is_two(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, "diff", *arguments)
    assert (status, out) == (2, "") and message in err


# -- info ------------------------------------------------------------------------------------------
def test_info_and_cache(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--clear-cache removes what fxlite made, and nothing else."""
    cache = folder / "cache"
    monkeypatch.setenv("FXLITE_CACHE", str(cache))
    fx.compile(lambda x: x + 1, x="f32[3]")
    (cache / "notes.txt").write_text("mine")
    (cache / "my work").mkdir()
    status, out, _ = run(capsys, "info")
    assert status == 0
    for wanted in (
        f"fxlite      {fx.__version__}",
        "C compiler",
        "OpenMP",
        "CPU",
        "GPU",
        "4 builds",  # the model, and what all models share: the extension, its threads, and the check of the processor
    ):
        assert wanted in out, wanted
    status, out, _ = run(capsys, "info", "--clear-cache")
    assert status == 0 and out.startswith("removed 4 builds")
    assert sorted(p.name for p in cache.iterdir()) == ["my work", "notes.txt"]


def test_as_a_module_and_piped(folder: Path) -> None:
    """python -m fxlite; a reader that stops early is no error."""
    command = [sys.executable, "-m", "fxlite", "trace", "net.py:Net", "-i", X]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
    done = subprocess.run(
        [sys.executable, "-m", "fxlite", "--version"], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == f"fxlite {fx.__version__}"


@pytest.mark.parametrize("command", ["cost", "profile", "trace"])
def test_the_locale_lacks_what_is_printed(command: str, folder: Path) -> None:
    """Tables have lines and µs; a terminal of ASCII shows question marks."""
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii:strict"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "20", **ascii_only}
    done = subprocess.run(
        [sys.executable, "-m", "fxlite", command, "net.py:Net", "-i", X],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.isascii(), done.stderr
    assert done.stderr.isascii() and (command == "profile" or not done.stderr), done.stderr


# -- help, exit status, completion, doctor ---------------------------------------------------------
@pytest.mark.parametrize("command", _COMMANDS)
def test_help_has_an_example_that_is_right(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, command, "--help")
    shown = out.partition("\nexample:\n")[2].partition("\n\n")[0]
    assert status == 0 and all(len(line) <= 100 for line in shown.splitlines())
    words = shlex.split(shown.replace("\\\n", ""))  # as a shell reads it
    assert words == shlex.split(_EXAMPLES[command])
    if words[0] == "fxlite":
        options = _parser(words[1:]).parse_args(words[1:])  # the parser takes it
        assert callable(options.run) and words[1] == command


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_fits(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, run(capsys, command, "--help")[1].splitlines())) <= 80


@pytest.mark.parametrize("command", _COMMANDS)
def test_an_option_may_stand_beside_the_one_that_it_is_for(command: str) -> None:
    (commands,) = (a for a in _parser([command])._actions if isinstance(a, argparse._SubParsersAction))
    parser = commands.choices[command]
    for group in parser._mutually_exclusive_groups:
        names = {name for action in group._group_actions for name in action.option_strings}
        for action in group._group_actions:
            served = re.match(r"(?:for|with) (--[a-z-]+)", action.help or "")
            assert served is None or served[1] not in names, f"{action.option_strings} excludes {served[1]}"


def test_every_status_is_one_that_the_help_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Exit status: 0 success; 1" in run(capsys, "--help")[1]
    net = ("net.py:Net", "-i", X)
    assert run(capsys, "trace", *net)[0] == 0
    assert run(capsys, "trace", "net.py:Nett")[0] == 1
    assert run(capsys, "check", *net, "--no-match", "conv2d")[0] == 1
    assert run(capsys, "trace", *net, "--tabel")[0] == 2
    assert run(capsys, "diff", "net.py:function", "net.py:function", "-i", "x=f32[3]", "-i", "y=f32[3]")[0] == 0
    assert run(capsys, "diff", *net, "--passes", "fuse_conv_bn,cse")[0] == 1
    assert run(capsys, "diff", "net.py:Nett", "net.py:Net")[0] == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--table", "--tree"), "not allowed with"),
        (("--depth", "2"), "--depth is for --draw and --tree"),
        (("--color", "op", "--table"), "--color is for --draw FILE"),
        (("--direction", "LR"), "--direction is for --draw FILE"),
        (("--all-weights", "--table"), "--all-weights is for the code"),
        (("--doctor", "--passes", "cse"), "leave out --passes"),
    ],
)
def test_trace_options_that_do_not_go_together(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, "trace", "net.py:Net", "-i", X, *options)
    assert status in (1, 2) and message in err and out == ""


def test_completion(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    for shell in ("bash", "zsh", "fish"):
        status, out, err = run(capsys, "completion", shell)
        assert (status, err) == (0, "") and "fxlite" in out and "_ARGCOMPLETE" in out
    assert run(capsys, "completion", "csh")[0] == 2


@pytest.mark.parametrize(
    ("line", "found", "others"),
    [
        ("fxlite tr", {"trace"}, {"cost"}),
        ("fxlite cost --ra", {"--range"}, {"--table"}),
        ("fxlite trace --", {"--table"}, {"--range"}),
    ],
)
def test_what_shells_are_answered(line: str, found: set[str], others: set[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
    }
    environment = {**os.environ, **asked, "_ARGCOMPLETE_IFS": "\n", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "fxlite"], env=environment, check=False, capture_output=True)
    offered = {word.strip() for word in answer.read_text().split("\n")}
    assert found <= offered and not offered & others


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    parts = {line.split()[1] for line in out.splitlines() if line.startswith(("works", "missing"))}
    assert {"Python", "processor", "cache", "dot", "libcst", "resvg-py", "cairosvg"} <= parts

    def no_package(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    with monkeypatch.context() as bare:
        bare.setattr(importlib.metadata, "version", no_package)
        status, out, _ = run(capsys, "doctor")
    assert status == 0 and re.search(r"^missing +CUDA +not installed: cuda-core, .*\n +→ pip install", out, re.M), out
    assert not re.search(r"^works +(CUDA|resvg-py|libcst)", out, re.M) and "pip install 'fxlite[draw]'" in out

    def no_compiler() -> Any:
        raise toolchain.CompilerNotFound("there is no C compiler")

    monkeypatch.setattr(toolchain, "find_compiler", no_compiler)
    status, out, _ = run(capsys, "doctor")
    assert status == 0 and re.search(r"^missing +C compiler +there is no C compiler\n +→ install gcc", out, re.M)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(info, "cache_folder", lambda: tmp_path / "file")
    status, out, _ = run(capsys, "doctor")
    assert status == 1 and "BROKEN" in out and "→ set FXLITE_CACHE" in out
