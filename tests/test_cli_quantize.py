"""``fxlite quantize``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import compiler
from fxlite.cli.quantize import SCHEMES, read_batches
from fxlite.passes import quantize as q
from tests.command_line import enter_folder, run
from tests.roofs import ROOFS

NET = '''"""A model, and one of two inputs."""
import numpy as np

from fxlite import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        generator = np.random.default_rng(0)
        self.a, self.b = nn.Linear(64, 128), nn.Linear(128, 10)
        for layer in (self.a, self.b):
            layer.weight[:] = generator.standard_normal(layer.weight.shape) * 0.1
            layer.bias[:] = 0.1

    def forward(self, x):
        return self.b(np.maximum(self.a(x), 0))


class Scaled(Net):
    def forward(self, x, scale):
        return super().forward(x) * scale
'''
NET_X = ("quantize", "net.py:Net", "-i", "x=f32[B,64]")
OUTPUT = ("-o", "net.fxl")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program and data, as current folder, on a machine with known roofs."""
    monkeypatch.setattr(compiler, "machine_roofs", lambda: ROOFS)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((100, 64)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", x=x)
    (tmp_path / "nothing").mkdir()
    np.savez(tmp_path / "two.npz", x=x, scale=np.float32([0.5] * 10))
    return enter_folder(tmp_path, monkeypatch, {"net": NET})


def test_one_scheme(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *NET_X, "--scheme", "static_int8", "--data", "calib.npz", *OUTPUT)
    assert (status, err) == (0, "")
    assert out == STATIC
    ops = [n.target.name for n in fx.load("net.fxl").graph.nodes if n.op == "call_function"]
    assert ops == ["quantize", "int_linear", "requantize", "int_linear", "dequantize"]


STATIC = """\
node          scheme        range  SQNR   MACs  bytes  before
linear (a)    u8 × i8  -3.84..3.2  44.7  8.19k  8,704  32,768
linear_1 (b)  u8 × i8     0..9.58  43.8  1.28k  1,320   5,120
scheme: activation × weight; weights i8 per channel; MACs for B=1
100.0% of the multiply-adds are integer arithmetic; weights 38,440 bytes → 10,576
SQNR of the results on calib.npz: 38.4 dB
net.fxl written
"""


def test_a_budget_and_its_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", "calib.npz", "--batch", "50")
    files = ("--write-plan", "plan.toml", "--draw", "plan.svg")
    status, out, err = run(capsys, *NET_X, *data, "--min-sqnr", "41", *files, *OUTPUT)
    assert (status, err) == (0, "")
    assert "all static_int8: 10,576 bytes, at least " in out and "estimated: at least" in out
    assert out.endswith("net.fxl, plan.toml, plan.svg written\n")
    picture = (folder / "plan.svg").read_text()
    assert "≥ 40 dB" in picture and "43." in picture
    before = (folder / "net.fxl").read_bytes()
    status, again, _ = run(capsys, *NET_X, *data, "--plan", "plan.toml", "-o", "again.fxl")
    assert status == 0 and (folder / "again.fxl").read_bytes() == before
    assert "SQNR of the results on calib.npz: " in again
    for option, limit in (("--max-bytes", "12kB"), ("--max-latency", "1us")):
        status, out, _ = run(capsys, *NET_X, *data, option, limit, *OUTPUT)
        assert status == 0 and "measured: SQNR of the results" in out


def test_all_presets_are_schemes() -> None:
    assert list(q.PRESETS) == list(SCHEMES)


def test_without_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, *NET_X, "--scheme", "weight_only_int8", *OUTPUT)
    assert status == 0 and "0.0% of the multiply-adds are integer arithmetic" in out
    assert "SQNR of the results" not in out


def test_inputs_without_a_batch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They go into each call whole."""
    program = ("quantize", "net.py:Scaled", "-i", "x=f32[B,64]", "-i", "scale=f32[10]")
    data = ("--data", "two.npz", "--scheme", "static_int8")
    status, out, err = run(capsys, *program, *data, *OUTPUT)
    assert (status, err) == (0, "") and "100.0% of the multiply-adds" in out
    status, _, err = run(capsys, *program, "--data", "calib.npz", "--scheme", "fp16", *OUTPUT)
    assert status == 1 and "calib.npz has no array scale; it has x" in err


def test_forms_of_data(folder: Path) -> None:
    """All hold the same rows, so all find the same ranges."""
    x = np.load("calib.npz")["x"]
    np.save("x.npy", x)
    np.savez("unnamed.npz", x)
    np.savez("stacked.npz", x=x.reshape(5, 20, 64))
    fx.save_safetensors({"x": x}, "calib.safetensors")
    (folder / "parts").mkdir()
    np.save("parts/first.npy", x[:30])
    np.savez("parts/second.npz", x=x[30:])
    module = fx.symbolic_trace(lambda x: x * 2, x="f32[B,64]")

    def rows(*given: str, size: int = 32, module: fx.GraphModule = module) -> list[list[int]]:
        batches = read_batches(given, module, size)
        np.testing.assert_array_equal(np.concatenate([b["x"] for b in batches]).reshape(x.shape), x)
        return [list(b["x"].shape) for b in batches]

    for one in ("calib.npz", "x.npy", "x=x.npy", "unnamed.npz", "calib.safetensors"):
        assert rows(one) == [[32, 64]] * 3 + [[4, 64]]
    assert rows("stacked.npz") == [[20, 64]] * 5
    assert rows("parts") == rows("parts/first.npy", "parts/second.npz")
    assert rows("parts", size=50) == [[30, 64], [50, 64], [20, 64]]
    fixed = fx.symbolic_trace(lambda x: x * 2, x="f32[25,64]")
    assert rows("calib.npz", module=fixed) == [[25, 64]] * 4
    single = fx.symbolic_trace(lambda x: x * 2, x="f32[64]")
    assert rows("x.npy", module=single) == [[64]] * 100


def test_data_for_nested_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def program(batch: Any, *, offset: Any) -> Any:
        return batch["x"] @ batch["w"][0] + offset

    types = {"batch": {"x": "f32[B,64]", "w": ("f32[64,8]",)}, "offset": "f32[8]"}
    fx.save(fx.symbolic_trace(program, **types), "nested.fxl")
    arrays = {"batch_w_0": np.ones((64, 8), np.float32), "offset": np.ones(8, np.float32)}
    np.savez("nested.npz", batch_x=np.load("calib.npz")["x"], **arrays)
    run_it = ("quantize", "nested.fxl", "--scheme", "static_int8", "--data", "nested.npz", *OUTPUT)
    status, out, err = run(capsys, *run_it)
    assert (status, err) == (0, "") and "100.0% of the multiply-adds" in out


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": (9, 64)}, "there is no input (in d.npz) 'X'; they are x"),
        ({"x": (9, 63)}, "d.npz: x: expected f32[B,64], got shape (9, 63): axis 1"),
        ({"x": (0, 64)}, "d.npz: x is empty, float32[0, 64]; ranges are found on numbers"),
        ({}, "d.npz is empty; the inputs are x"),
        ({"x": None}, "x must be f32[B,64], got float64[3, 64]; use x.astype('float32')"),
        ({"x": (2, 3, 4, 64)}, "expected f32[B,64] (rank 2), got shape (2, 3, 4, 64)"),
    ],
)
def test_data_that_does_not_fit(
    folder: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, Any], message: str
) -> None:
    np.savez("d.npz", **{n: np.zeros(s, "f") if s else np.zeros((3, 64)) for n, s in arrays.items()})
    status, _, err = run(capsys, *NET_X, "--scheme", "static_int8", "--data", "d.npz", *OUTPUT)
    assert status == 1 and message in " ".join(err.split())


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ((), 1, "say how: one of --scheme NAME"),
        (("--scheme", "static_int8"), 1, "ranges are found on data: give --data FILE.npz"),
        (("--scheme", "fp16", "--plan", "p.toml"), 1, "say how: one of"),
        (("--scheme", "static_int"), 2, "invalid choice: 'static_int'"),
        (("--max-latency", "5"), 2, "'5' is not a time, such as 200us"),
        (("--scheme", "fp16", "--draw", "x.svg"), 1, "show a plan that a budget makes"),
        (("--scheme", "fp16", "-o", "net"), 1, "is a .fxl file: -o net.fxl"),
        (("--scheme", "fp16", "-o", "no/net.fxl"), 1, "there is no folder no"),
        (("--scheme", "fp16", "--data", "no.npz"), 1, "there is no file no.npz"),
        (("--scheme", "fp16", "--data", "net.py"), 1, "net.py is not a file .npz or .npy or"),
        (("--scheme", "fp16", "--data", "two.npz"), 1, "no input (in two.npz) 'scale'"),
        (("--scheme", "fp16", "--data", "y=calib.npz"), 1, "no input (in --data) 'y'; they are x"),
        (("--scheme", "fp16", "--data", "."), 1, "no input (in two.npz) 'scale'"),
        (("--scheme", "fp16", "--data", "nothing"), 1, "the folder nothing has no file .npz"),
        (("--max-bytes", "5", "--data", "calib.npz"), 1, "the fewest bytes are 6,472"),
    ],
)
def test_what_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], status: int, message: str
) -> None:
    output = () if "-o" in options else OUTPUT
    found, _, err = run(capsys, *NET_X, *options, *output)
    assert found == status and message in " ".join(err.split())
    assert not (folder / "net.fxl").exists()
