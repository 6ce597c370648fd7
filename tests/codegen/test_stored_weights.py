"""The weights in a saved folder: integers stay integers in the file, Winograd's larger ones are
declined on demand, and both are said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c.weights import stored_weights
from fxlite.passes import quantize as q
from tests import oracle
from tests.codegen.compiling import make_test
from tests.command_line import enter_folder, run


class Net(nn.Module):
    """A layer of each kind that reads floats beside integers: convolutions of all plans, recurrent
    layers."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(32, 96, 3, padding=1)  # Winograd's
        self.up = nn.ConvTranspose2d(96, 16, 2, stride=2)
        self.depthwise = nn.Conv2d(96, 96, 3, groups=96)
        self.grouped = nn.Conv2d(96, 80, 3, groups=2)
        self.row = nn.Conv1d(80, 72, 5)
        self.lstm = nn.LSTM(72, 32, bidirectional=True)
        self.gru = nn.GRU(64, 48)

    def forward(self, x: Any) -> Any:
        y = np.maximum(self.wide(x), 0)
        up = self.up(y)
        z = self.row(self.grouped(self.depthwise(y)).mean(2)).transpose(2, 0, 1)
        return up, self.gru(self.lstm(z)[0])[0]


X = np.random.default_rng(0).standard_normal((1, 32, 14, 14)).astype(np.float32)


@pytest.fixture(scope="module")
def traced() -> fx.GraphModule:
    nn.init.manual_seed(0)
    return fx.symbolic_trace(Net().eval(), "f32[1,32,14,14]")


def quantized(module: fx.GraphModule, bits: int) -> fx.GraphModule:
    config = q.weight_only_int8() if bits == 8 else q.weight_only_int4()
    return q.quantize(module, q.QConfigMapping().set_global(config), [X])


@pytest.mark.parametrize("bits", [8, 4])
def test_integers_are_stored(traced: Any, bits: int, tmp_path: Path) -> None:
    """The file is about as large as the model's weights are, and what is made of it is what kernels
    read."""
    integers = quantized(traced, bits)
    function = fx.compile(integers, small_weights=True)
    oracle.compare("c", function(X), integers(X))
    own = sum(a.nbytes for a in integers.state_dict().values())
    function.save(tmp_path / "out")
    (file,) = (tmp_path / "out").glob("*_weights.bin")
    assert file.stat().st_size < (1.35 if bits == 8 else 1.6) * own  # panels are filled up
    assert file.stat().st_size < (0.31 if bits == 8 else 0.22) * len(function.program.weights)
    facts = json.loads((tmp_path / "out/manifest.json").read_text())
    assert facts["weights"] == {"model": own, "memory": len(function.program.weights), "file": file.stat().st_size}
    assert "some are integers there" in (tmp_path / "out/README.txt").read_text()
    stored = stored_weights(function.program, function.graph_module)
    made = np.zeros(len(function.program.weights), np.uint8)
    for part in stored.parts:
        if part.bits:
            made[part.place : part.place + 4 * part.size].view(np.float32)[:] = floats(stored, part)
        else:
            end = part.start + part.size
            made[part.place : part.place + part.size] = stored.data[part.start : end]
    both = (a.view(np.float32) for a in (made, function.program.weights))
    assert np.array_equal(*both, equal_nan=True)
    if shutil.which("make") is None or shutil.which("cc") is None:
        return
    warnings = "-Wall -Wextra -Wconversion -Wsign-conversion -pedantic -Werror"
    flags = f"CFLAGS=-O0 {warnings} -fsanitize=undefined -fno-sanitize-recover"
    for more in ([], ["EMBED=1"]):
        done = make_test(tmp_path / "out", flags, "OPENMP=", *more)
        assert "OK: 1 of 1" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]


def floats(stored: Any, part: Any) -> np.ndarray:
    """What a part of the file stands for, number by number."""
    rows = part.size // part.run
    data = stored.data[part.start :]
    scales = data[: 4 * rows * part.width].view(np.float32)
    integers = data[4 * rows * part.width :]
    found = np.empty(part.size, np.float32)
    for i in range(part.size):
        if part.bits == 8:
            value = int(integers[i].view(np.int8))
        else:
            value = ((int(integers[i // 2]) >> 4 * (i % 2) & 15) ^ 8) - 8
        found[i] = value * scales[i // part.run * part.width + i % part.run % part.width]
    return found


def test_what_winograd_costs_is_said(traced: Any, tmp_path: Path) -> None:
    """And may be declined."""
    fast, small = (fx.compile(traced, small_weights=s) for s in (False, True))
    assert "winograd" in fast.program.functions and "winograd" not in small.program.functions
    oracle.compare("c", small(X), traced(X))
    own = sum(a.nbytes for a in traced.state_dict().values())
    assert len(small.program.weights) < 1.35 * own < 1.5 * own < len(fast.program.weights)
    assert "up to four times as many numbers; small_weights=True" in fast.larger_weights
    assert not small.larger_weights
    for name, function in (("fast", fast), ("small", small)):
        function.save(tmp_path / name)
        said = " ".join((tmp_path / name / "README.txt").read_text().split())
        assert ("Winograd's convolutions, which are faster" in said) == (name == "fast")
        options = json.loads((tmp_path / name / "manifest.json").read_text())["options"]
        assert options["small_weights"] == (name == "small")


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "from fxlite import nn\n\n\ndef net():\n    return nn.Conv2d(64, 64, 3, padding=1).eval()\n"
    enter_folder(tmp_path, monkeypatch, {"net": program})
    given = ["net.py:net", "-i", "x=f32[1,64,16,16]", "--backend", "c", "-o", "out", "--force"]
    assert "--small-weights) does without" in " ".join(run(capsys, "compile", *given)[1].split())
    status, out, err = run(capsys, "compile", *given, "--small-weights")
    assert (status, err) == (0, "") and "Winograd" not in out
