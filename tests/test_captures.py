"""What commands print, as text: for three models, at 80 and at 160 columns, what `captures/` holds.

After a change of what is printed, read what changes and write the texts anew with ``pytest
tests/test_captures.py --update-golden``. Each model is traced once for all commands. What would
depend on the machine is made up: the times of a profile are those of :func:`measured_times`, and the
roofs are those of `tests/roofs.py`, so that no model runs and nothing is compiled; lines of files are
zeros, so that a model that moves in its file changes nothing.
"""

from __future__ import annotations

import difflib
import functools
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fxlite as fx
from fxlite import compiler
from fxlite.cli import bisect, check, cost, diff, main, passes, profile, program_file, regenerate, step
from fxlite.passes.profiling import profile as profiling
from tests.benchmarks.models import ResNet50
from tests.models import Bert
from tests.roofs import ROOFS
from tutorials import digits

FOLDER = Path(__file__).with_name("captures")
WIDTHS = (80, 160)
MODELS: dict[str, Callable[[], fx.GraphModule]] = {
    "digits": lambda: fx.symbolic_trace(digits.trained(), x="f32[B,1,8,8]"),
    "resnet50": lambda: fx.symbolic_trace(ResNet50().eval(), x="f32[1,3,64,64]"),
    "bert": lambda: fx.symbolic_trace(Bert().eval(), tokens="i64[B,T]", mask="i64[B,T]"),
}
#: The sizes of named dims, for commands that need them.
SIZES = {"digits": "--size B=8", "resnet50": "", "bert": "--size B=2 --size T=128"}
COMMANDS = (
    "trace MODEL",
    "trace MODEL --tree",
    "trace MODEL --tree --depth 1",
    "trace MODEL --tree --passes fuse_conv_bn,merge_linears",
    "trace MODEL --table",
    "trace MODEL --query linear",
    "cost MODEL",
    "cost MODEL --by op",
    "cost MODEL SIZES",
    "cost MODEL SIZES --by op",
    "cost MODEL --passes fuse_conv_bn,merge_linears",
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
)
#: Commands whose text is long and says the same of each model.
ONLY = {"trace MODEL --table": "digits", "cost MODEL --range B=1,8,64 --by op": "digits"}


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


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(program: str, *_: Any, **__: Any) -> Any:
        return None, traced(program).copy()

    for module in (program_file, cost, diff, profile, check, regenerate, passes, step, bisect):
        if hasattr(module, "trace_program"):
            monkeypatch.setattr(module, "trace_program", shared)
    monkeypatch.setattr(profiling, "_measure", measured_times)
    monkeypatch.setattr("sys.stdin", io.StringIO("n"))  # of fxlite step
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)


def captured(model: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Commands, what they print, and their exit status where it is not 0."""
    parts = []
    for command in COMMANDS:
        if ONLY.get(command, model) != model:
            continue
        text = " ".join(command.replace("MODEL", model).replace("SIZES", SIZES[model]).split())
        status = main(shlex.split(text))
        shown = capsys.readouterr()
        said = shown.out + "".join(line for line in shown.err.splitlines(True) if line.startswith("error:"))
        parts.append(f"$ fxlite {text}\n{said}" + (f"(status {status})\n" if status else ""))
    return re.sub(r"(?<=\.py:)\d+", lambda line: "0" * len(line[0]), "\n".join(parts))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("model", MODELS)
def test_what_commands_print(
    model: str,
    width: int,
    fakes: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = captured(model, capsys)
    lines = (line for line in text.splitlines() if not line.startswith(("$", "error:")))
    wide = [line for line in lines if len(line) > width]
    assert not wide, f"wider than {width} columns:\n" + "\n".join(wide)
    path = FOLDER / f"{model}_{width}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    golden = path.read_text()
    changed = "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), "golden", "now", lineterm=""))
    assert not changed, f"--update-golden writes {path.name} anew:\n{changed}"


def test_nothing_else_is_there() -> None:
    assert {p.name for p in FOLDER.iterdir()} == {f"{m}_{w}.txt" for m in MODELS for w in WIDTHS}
