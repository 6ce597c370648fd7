"""``fxlite optimize``: each of the model files is changed by a patch that ``patch`` takes, and the
patched program, in a process of its own text, gives what the optimized graph gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.cli.program_file import fresh_modules, load_program
from fxlite.cli.shared import find_passes
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.passes import PassManager
from fxlite.types.agreement import compare, computed, leaves, sqnr
from tests.codegen.patch_models import HEAD, MODELS, Model
from tests.command_line import run

pytest.importorskip("libcst")
PATCH = shutil.which("patch")


def write(model: Model, folder: Path) -> None:
    for name, text in {"model": model.text, **model.other_files}.items():
        (folder / f"{name}.py").write_bytes(text.encode())


def options(model: Model) -> list[str]:
    given = [part for text in model.inputs for part in ("--input", text)]
    return ["optimize", f"model.py:{model.program}", *given, "--passes", model.passes]


def loaded(folder: Path, name: str) -> Any:
    with fresh_modules(folder, {}):
        return load_program(f"{folder}/model.py:{name}", None, {})


@pytest.mark.parametrize("name", MODELS)
def test_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any) -> None:
    model = MODELS[name]
    monkeypatch.chdir(tmp_path)
    write(model, tmp_path)
    original = loaded(tmp_path, model.program)
    types = dict(text.split("=", 1) for text in model.inputs)
    traced = fx.symbolic_trace(original, inputs=types)
    optimized = PassManager(find_passes(model.passes))(traced)

    status, diff, error = run(capsysbinary, *options(model), "--converter", "convert.py")
    assert status == 0, error
    diff = diff.rpartition(b"convert.py written")[0] or diff
    shown = [(line[:1], line[1:].strip(b" \t")) for line in diff.split(b"\n")]
    for mark, lines in ((b"-", model.removed), (b"+", model.added)):
        for line in lines:
            assert (mark, line.encode()) in shown, diff.decode()
    assert (tmp_path / "model.py").read_bytes() == model.text.encode(), "only shown"

    (tmp_path / "x.diff").write_bytes(diff)
    if PATCH is not None:
        dry = [PATCH, "--dry-run", "--binary", "-p1", "-i", "x.diff"]
        subprocess.run(dry, check=True, capture_output=True)
        subprocess.run([PATCH, "--binary", "-p1", "-i", "x.diff"], check=True, capture_output=True)
    else:
        run(capsysbinary, *options(model), "--apply", "--yes", "--force")
    patched = loaded(tmp_path, model.program)
    convert: dict[str, Any] = {"__name__": "convert", "__file__": str(tmp_path / "convert.py")}
    if (tmp_path / "convert.py").exists():
        exec((tmp_path / "convert.py").read_text(), convert)
        patched.load_state_dict(convert["convert"](original.state_dict()))
    for case in make_cases(optimized):
        found = compare(leaves(optimized(**case.inputs)), leaves(patched(**case.inputs)))
        assert found.agrees, found
    again = fx.symbolic_trace(patched, inputs=types)
    most = max(len(traced.graph), len(optimized.graph))
    assert len(again.graph) <= most, "what was left out is left out"
    if "convert" in convert:
        is_lossy = (tmp_path / "convert.safetensors").exists()  # then the old weights are needed
        given = (original.state_dict(),) if is_lossy else ()
        original.load_state_dict(convert["invert"](patched.state_dict(), *given))
        promise = sqnr(20) if is_lossy else computed
        for case in make_cases(optimized):
            wanted = leaves(optimized(**case.inputs))
            found = compare(wanted, leaves(original(**case.inputs)), promise)
            assert found.agrees, found


def test_weights_that_a_generator_expression_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    """What computes it has no self of its own; the weight belongs to the module of the method around."""
    forward = """
    def forward(self, x):
        return sum(v * np.exp(self.weight) for v in (x,))
"""
    constructor = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(np.ones((400,), np.float32))
"""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(HEAD + constructor + forward)
    given = ["optimize", "model.py:Net", "--input", "x=f32[400]", "--passes", "const_fold"]
    status, diff, error = run(capsysbinary, *given)
    assert status == 0, error
    assert b"+        return sum(v * self.weight_exp for v in (x,))" in diff


TWO = (
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 4)

    def stem(self, x):
        return self.bn(self.conv(x))

    def forward(self, x):
        x = self.stem(x)
        # one
        # two
        # three
        # four
        # five
        # six
        # seven
        x = x.mean(axis=(2, 3)) * 1
        return self.fc(x)
"""
)
ARGUMENTS = ("optimize", "model.py:Net", "-i", "x=f32[B,3,6,6]", "--passes", "fuse_conv_bn,simplify")


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(TWO)
    return tmp_path / "model.py"


def test_hunks_are_chosen(two: Path, capsys: Any) -> None:
    status, diff, _ = run(capsys, *ARGUMENTS)
    assert status == 0 and diff.count("@@ -") == 2
    status, diff, _ = run(capsys, *ARGUMENTS, "--hunks", "2")
    assert status == 0 and "mean(axis=(2, 3)) * 1" in diff and "self.bn" not in diff
    status, _, _ = run(capsys, *ARGUMENTS, "--hunks", "1", "--apply")
    assert status == 0
    text = two.read_text()
    assert "self.bn" not in text and "mean(axis=(2, 3)) * 1" in text
    assert "def convert(" in (two.parent / "model_weights.py").read_text()
    status, _, error = run(capsys, *ARGUMENTS, "--hunks", "3")
    assert status == 1 and "the diff has 1 hunk," in error


def test_hunks_that_need_others(two: Path, capsys: Any) -> None:
    apart = TWO.replace("    def stem", "    #\n" * 9 + "    def stem")
    two.write_text(apart)
    status, _, error = run(capsys, *ARGUMENTS, "--hunks", "1", "--apply")
    assert status == 1 and "do not make a program without the others" in error
    assert two.read_text() == apart


def test_hunks_are_asked_for(two: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["?", "n", "y"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    status, shown, _ = run(capsys, *ARGUMENTS, "--apply")
    assert status == 0 and "model.py changed" in shown
    assert two.read_text() == TWO.replace("(2, 3)) * 1", "(2, 3))")


def test_a_file_that_changed_is_refused(two: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(_: str) -> str:
        two.write_text(TWO.replace("# four", "# 4"))
        return "a"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", edit)
    status, _, error = run(capsys, *ARGUMENTS, "--apply")
    assert status == 1 and "model.py:22: the file changed" in error
    assert "self.bn" in two.read_text()


REFUSED = {
    "mixed": (
        """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x, again=False):
        y = self.conv(x)
        z = self.bn(y)
        return z + y if again else z


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Block()
        self.b = Block()

    def forward(self, x):
        return self.b(self.a(x), True)
""",
        "fuse_conv_bn",
        (
            "model.py:11: `nn.BatchNorm2d(3)` makes layers that passes changed differently",
            "a.bn: does nothing any more; b.bn: as before",
            "fxlite regenerate",
        ),
    ),
    "copied": (
        """import copy


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
        self.again = copy.deepcopy(self.layers)

    def forward(self, x):
        return self.again(self.layers(x))
""",
        "fuse_conv_bn",
        ("again.1", "it was copied"),
    ),
    "factories": (
        """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        options = {"bias": False}
        self.conv = nn.Conv2d(3, 3, 1, **options)
        self.bn = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.bn(self.conv(x))
""",
        "fuse_conv_bn",
        ("model.py:11: `nn.Conv2d(3, 3, 1, **options)`", "bias="),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_patch_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    text, passes, said = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(HEAD + text)
    status, shown, error = run(capsys, "optimize", "model.py:Net", "-i", "x=f32[B,3,6,6]", "--passes", passes)
    assert status == 1 and not shown
    for part in said:
        assert part in error


def test_nothing_to_change(two: Path, capsys: Any) -> None:
    status, shown, _ = run(capsys, *ARGUMENTS[:-1], "cse")
    assert status == 0 and "change nothing" in shown
    status, _, error = run(capsys, "optimize", "net.fxl", "--passes", "cse")
    assert status == 1 and "no source" in error


def test_a_wrong_pass_gives_no_diff(two: Path, capsys: Any) -> None:
    (two.parent / "wrong.py").write_text(
        "def wrong(gm):\n"
        "    for node in gm.graph.find_nodes(op='call_function', target='mul'):\n"
        "        node.replace_all_uses_with(node.args[0])\n"
        "        gm.graph.erase_node(node)\n"
    )
    two.write_text(TWO.replace("* 1", "* 2"))
    status, shown, error = run(capsys, *ARGUMENTS[:-1], "wrong.py:wrong")
    assert status == 1 and not shown and "pass wrong" in error


def test_what_has_no_text_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """An expression that would read a value without a name, and one that changes in one place."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        HEAD
        + """def turned(x, axes):
    return x.transpose(axes)


def f(x, y):
    x, y = (part.reshape(2, 3, 4) for part in (x, y))
    a = turned(x, (0, 2, 1)).transpose(1, 0, 2)
    b = turned(y, (0, 1, 2))
    return a * 1, b
"""
    )
    status, diff, error = run(
        capsys, "optimize", "model.py:f", "-i", "x=f32[24]", "-i", "y=f32[24]", "--passes", "simplify"
    )
    assert status == 0, error
    assert "+    return a, b" in diff and "turned" not in [x for x in diff if x[:1] in "+-"]
    assert "model.py:8: `x.transpose(axes)` would become `x`, which is right for axes=(0, 1, 2)" in error


@pytest.mark.parametrize(
    "passes, said",
    [
        ("fuse_conv_bn", "blocks.py:10: conv is made in a file that is"),
        ("simplify", "blocks.py:13: `mul` would change"),
    ],
)
@pytest.mark.parametrize("head", ["", "        x = x * 1\n"])
def test_files_elsewhere_stay_and_are_named(
    head: str, passes: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A base class in a file above the program's folder, alone and with a statement that could change."""
    (tmp_path / "own").mkdir()
    (tmp_path / "blocks.py").write_text(
        HEAD
        + """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)

    def convolve(self, x):
        return self.bn(self.conv(x * 1))
"""
    )
    text = f"class Net(Block):\n    def forward(self, x):\n{head}        return self.convolve(x)\n"
    (tmp_path / "own/model.py").write_text(f"{HEAD}from blocks import Block\n\n\n{text}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path / "own")
    status, shown, error = run(capsys, "optimize", "model.py:Net", "-i", "x=f32[B,3,6,6]", "--passes", passes)
    if head and passes == "simplify":
        assert status == 0 and "-        x = x * 1" in shown
    else:
        assert status == 1 and not shown
        assert said in error and f"not below {tmp_path / 'own'}" in error


def test_paths_of_a_patch_of_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """git apply takes no path with .. in it."""
    (tmp_path / "own").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "own/model.py").write_text(f"{HEAD}def f(x):\n    return x * 1\n")
    monkeypatch.chdir(tmp_path / "here")
    status, shown, error = run(capsys, "optimize", "../own/model.py:f", "-i", "x=f32[4]", "--passes", "simplify")
    assert status == 0, error
    assert shown.startswith("--- a/model.py\n+++ b/model.py\n")


SHARED = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.a, self.b = nn.BatchNorm2d(4), nn.BatchNorm2d(4)

    def forward(self, x, y):
        return self.a(self.conv(x)) + self.b(self.conv(y))
"""


def test_weights_that_cannot_be_computed_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(HEAD + SHARED)
    typed = ("-i", "x=f32[B,3,6,6]", "-i", "y=f32[B,3,6,6]")
    status, _, error = run(
        capsys, "optimize", "model.py:Net", *typed, "--passes", "fuse_conv_bn", "--converter", "c.py"
    )
    assert status == 0, error
    made: dict[str, Any] = {"__name__": "c"}
    text = (tmp_path / "c.py").read_text()
    exec(text, made)
    own = loaded(tmp_path, "Net").state_dict()
    with pytest.raises(ValueError, match="give `original`, too"):
        made["invert"](made["convert"](own))
    again = made["invert"](made["convert"](own), own)
    assert all(np.array_equal(again[key], own[key]) for key in own)
    assert "invert() is for weights that convert() made" in text


def test_settings_are_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """What is 1 in this run may be 2 in another."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(
        HEAD
        + """class Net(nn.Module):
    def __init__(self, gain=1):
        super().__init__()
        self.gain = gain

    def forward(self, x, scale=1.0):
        x = np.exp(x) * scale
        return x * self.gain * 1
"""
    )
    status, diff, error = run(capsys, "optimize", "model.py:Net", "-i", "x=f32[B]", "--passes", "simplify")
    assert status == 1 and not diff
    assert "model.py:13: `np.exp(x) * scale` would become `np.exp(x)`" in error
    assert "which is right for scale=1.0 alone" in error
