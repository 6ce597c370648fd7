"""What commands print, as text: for three models, at 80 and at 160 columns, what `captures/` holds;
for one of them at 40 columns, too, and for commands that read no model.

After a change of what is printed, read what changes and write the texts anew with ``pytest
tests/test_captures.py --update-golden``. Each model is traced once for all commands. What would
depend on the machine is made up: the times of a profile are those of :func:`measured_times`, and the
roofs are those of `tests/roofs.py`, so that nothing is compiled; :data:`MASKS` hide times of steps, and
lines of files, so that a model that moves in its file changes nothing. Weights are the same in each run.
Pages of reports, which no command prints, are empty.
"""

from __future__ import annotations

import difflib
import functools
import io
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import compiler
from fxlite.cli import bisect, check, compile, cost, diff, info, main, profile, program_file, quantize, step, steps
from fxlite.codegen.reporting import check_and_time, page
from fxlite.passes.base import PASSES
from fxlite.passes.profiling import profile as profiling
from tests.benchmarks.models import ResNet50
from tests.models import Bert
from tests.porting.programs import PROGRAMS
from tests.roofs import ROOFS
from tutorials import digits

FOLDER = Path(__file__).with_name("captures")
ROOT = FOLDER.parents[1]
WIDTHS = (80, 160)
MODELS: dict[str, Callable[[], fx.GraphModule]] = {
    "digits": lambda: fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]"),
    "resnet50": lambda: fx.symbolic_trace(ResNet50().eval(), x="f32[1,3,64,64]"),
    "bert": lambda: fx.symbolic_trace(Bert().eval(), tokens="i64[B,T]", mask="i64[B,T]"),
}
#: The same where a command must know the file.
FILES = {
    "digits": "tutorials/digits.py:Digits",
    "resnet50": "tests/benchmarks/models.py:ResNet50",
    "bert": "tests/models.py:Bert",
}
INPUTS = {
    "digits": '--input "x=f32[B,1,8,8]"',
    "resnet50": '--input "x=f32[1,3,64,64]"',
    "bert": '--input "tokens=i64[B,T]" --input "mask=i64[B,T]"',
}
#: The sizes of named dims, for commands that need them.
SIZES = {"digits": "--size B=8", "resnet50": "", "bert": "--size B=2 --size T=128"}
#: What stands for words of the commands below.
PLACES = {"MODEL": {name: name for name in MODELS}, "FILE": FILES, "INPUTS": INPUTS, "SIZES": SIZES}
COMMANDS = (
    "trace MODEL",
    "trace MODEL --tree",
    "trace MODEL --tree --depth 1",
    "trace MODEL --tree --passes fuse_conv_bn,merge_linears",
    "trace MODEL --table",
    "trace MODEL --query linear",
    "trace FILE INPUTS --doctor",
    "cost MODEL",
    "cost MODEL --by op",
    "cost MODEL SIZES",
    "cost MODEL SIZES --by op",
    "cost MODEL --passes fuse_conv_bn,merge_linears",
    "cost MODEL --range B=1,8,64",
    "cost MODEL --range B=1,8,64 --by op",
    "cost MODEL SIZES --timeline",
    "diff MODEL --passes fuse_conv_bn,merge_linears",
    "check MODEL --no-match batch_norm --max-nodes 100",
    "check MODEL SIZES --match conv2d --max-flops 1k --max-peak 1kB",
    "step MODEL --passes fuse_conv_bn,merge_linears",
    "bisect MODEL SIZES --passes fuse_conv_bn,merge_linears",
    "profile MODEL SIZES --threads 1",
    "profile MODEL SIZES --threads 1 --by module",
    "profile MODEL SIZES --threads 1 --by op",
    "profile MODEL SIZES --threads 1 --by line",
    "profile MODEL SIZES --threads 1 --cliffs",
    "blame FILE SIZES --threads 1",
    "report MODEL SIZES --no-profile --backend python -o out/report.html",
    "compile MODEL SIZES --backend python -o out/compiled",
    "regenerate MODEL --passes fuse_conv_bn,merge_linears -o out/source",
    "reimport MODEL out/source --passes fuse_conv_bn,merge_linears",
    "optimize FILE INPUTS --passes fuse_conv_bn,merge_linears",
    "quantize MODEL --scheme weight_only_int8 -o out/quantized.fxl",
    "quantize MODEL --data out/calib.npz --min-sqnr 40 -o out/planned.fxl",
    "textconv out/quantized.fxl",
    "export MODEL out/model.onnx",
    "import out/model.onnx",
    "weights out/compiled/python/MODEL.safetensors",
    "trace MODEL --draw out/model.svg",
)
#: Commands that read no model.
ALONE = (
    "--help",
    "passes",
    "passes fuse_conv_bn",
    "new-pass my_pass -o out",
    "new-pass my_pass -o out",
    "migrate out/torch_fx_pass.py",
    "info",
    "doctor",
)
#: Commands whose text is long and says the same of each model, or which compute much.
ONLY = {
    "trace MODEL --table": "digits",
    "cost MODEL --range B=1,8,64": "digits",
    "cost MODEL --range B=1,8,64 --by op": "digits",
    "textconv out/quantized.fxl": "digits",
    "quantize MODEL --data out/calib.npz --min-sqnr 40 -o out/planned.fxl": "digits",
    "optimize FILE INPUTS --passes fuse_conv_bn,merge_linears": "digits",
}
#: What is as wide as its lines are: those of files, and texts that programs read.
EXACT = ("blame", "optimize", "textconv", "new-pass")


@functools.cache
def traced(model: str) -> fx.GraphModule:
    """The model, traced once."""
    return MODELS[model]()


def measured_times(subject: Any, repeat: int | None) -> Any:
    """Times of three calls of whose parts each takes between 1 and 97 µs, by its number."""
    ends = [0]
    for number in range(len(subject.parts)):
        ends.append(ends[-1] + 1000 * (1 + 37 * number % 97))
    whole = tuple(ends[-1] * 1e-9 * (1 + n / 100) for n in range(3))
    return whole, tuple(seconds * 0.99 for seconds in whole), [ends] * 3


def made_up_times(program: Any, function: Any, checked: Any) -> None:
    """For ``fxlite compile``: half the time of NumPy."""
    checked.numpy_ms, checked.compiled_ms, checked.spread = 1.0, {1: 0.5}, 1.0


def findings_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine for ``fxlite info`` and ``doctor``, of which something works, lacks or is broken."""
    described = {"C compiler": "/usr/bin/gcc: gcc 1.2.3", "OpenMP": "yes", "GPU": "none: no driver is installed"}
    found = {
        "_version": lambda package: None if package == "onnx" else "1.2.3",
        "_cache_content": lambda folder: "3 builds, 1 program, 1.4 MB",
        "_limit_text": lambda: "at most 10 GB",
        "cache_folder": lambda: Path("/home/me/.cache/fxlite"),
        "backends": lambda: [SimpleNamespace(describe=lambda: described)],
        "platform": SimpleNamespace(python_version=lambda: "1.2.3", system=lambda: "Linux"),
        "shutil": SimpleNamespace(which=lambda program: None),
        "_compiler": lambda: [
            info.Finding("C compiler", "broken", "gcc: it does not link", "set CC to another compiler")
        ],
        "_processor": lambda: info.Finding("processor", "works", "made up, 2 usable; sse41, avx2, fma"),
        "_cache": lambda: info.Finding("cache", "works", "/home/me/.cache/fxlite: 3 builds, 1 program, 1.4 MB"),
    }
    for name, value in found.items():
        monkeypatch.setattr(info, name, value)
    monkeypatch.setattr(info.toolchain, "processor_name", lambda: "made up")
    monkeypatch.setattr(info.toolchain, "usable_cpus", lambda: 2)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def shared(program: str, *_: Any, **__: Any) -> Any:
        module = traced(next(name for name in MODELS if program in (name, FILES[name])))
        return module, module.copy()

    for module in (program_file, bisect, check, compile, cost, diff, profile, quantize, step):
        monkeypatch.setattr(module, "trace_program", shared)
    monkeypatch.setattr(profiling, "_measure", measured_times)
    monkeypatch.setattr(check_and_time, "measure", made_up_times)
    monkeypatch.setattr(steps, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr("sys.stdin", io.StringIO("n"))  # of fxlite step
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)
    monkeypatch.setattr(page, "page_text", lambda report: "")
    findings_of_parts(monkeypatch)
    for name in ("tests", "tutorials"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "out").mkdir()
    np.savez(tmp_path / "out/calib.npz", x=digits.held_out()[0][:16])
    (tmp_path / "out/torch_fx_pass.py").write_text(PROGRAMS["replace a target"])
    monkeypatch.chdir(tmp_path)


#: What differs from run to run, or with each edit of a model's file, and what stands in its place.
MASKS: dict[str, Callable[[re.Match[str]], str]] = {
    r"(?<=\.py:)\d+": lambda line: "0" * len(line[0]),
    r"(?m)^( {17}|.{9} +[\d.]+% )( *\d+)(?=  )": lambda line: line[1] + "0".rjust(len(line[2])),
    r"\d\.\d+e-\d\d": lambda error: re.sub(r"\d", "0", error[0]),
}


def captured(model: str, commands: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Commands, and what they print, with their exit status where it is not 0."""
    parts = []
    for command in commands:
        if model not in ONLY.get(command, model):
            continue
        for word, texts in PLACES.items():
            command = re.sub(rf"\b{word}\b", texts.get(model, ""), command)
        text = " ".join(command.split())
        try:
            status = main(shlex.split(text))
        except SystemExit as ended:
            status = int(ended.code or 0)
        shown = capsys.readouterr()
        said = shown.out + "".join(line for line in shown.err.splitlines(True) if line.startswith("error:"))
        said += f"(status {status})\n" if status else ""
        for mask, put in MASKS.items():
            said = re.sub(mask, put, said)
        parts.append((text, said))
    return parts


@pytest.mark.parametrize("width", [40, *WIDTHS])
@pytest.mark.parametrize("model", [*MODELS, "alone"])
def test_what_commands_print(
    model: str,
    width: int,
    fakes: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    if width not in widths(model):
        return
    monkeypatch.setenv("COLUMNS", str(width))
    for name in [n for n, made in PASSES.items() if not str(made.__module__).startswith("fxlite.")]:
        monkeypatch.delitem(PASSES, name)  # of other tests
    parts = captured(model, COMMANDS if model in MODELS else ALONE, capsys)
    wide = [
        line
        for command, text in parts
        for line in text.splitlines()
        if len(line) > width and not command.startswith(EXACT) and not line.startswith("error:")
    ]
    assert not wide, f"wider than {width} columns:\n" + "\n".join(wide)
    text = "\n".join(f"$ fxlite {command}\n{said}" for command, said in parts)
    path = FOLDER / f"{model}_{width}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    golden = path.read_text()
    changed = "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", lineterm=""))
    assert not changed, f"--update-golden writes {path.name} anew:\n{changed}"


def widths(model: str) -> tuple[int, ...]:
    """Those at which a model is shown."""
    return (40, *WIDTHS) if model == "digits" else WIDTHS


def test_nothing_else_is_there() -> None:
    assert {p.name for p in FOLDER.iterdir()} == {f"{m}_{w}.txt" for m in (*MODELS, "alone") for w in widths(m)}
