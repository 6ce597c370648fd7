"""Regenerated source that somebody edited becomes a graph again, whose nodes are who they were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError, CodegenError, FxliteError, TraceError
from fxlite.cli import main
from fxlite.codegen.python.numpy_text import NumpyText
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import passes_of
from fxlite.passes.ledger import ledger, refuse
from tests.oracle import compare
from tests.source_lines import MODELS, quantized, traced
from tests.zoo import ZOO
from tests.zoo.registry import by_name


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.25)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        y = F.relu(self.fc(self.norm(x)))
        return x + self.drop(y)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.mask = np.arange(4) % 2 == 0
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any, scale: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        y = self.head(x) * 0.5
        z = np.where(self.mask, np.tanh(scale), np.float32(0.25))
        return y * z


def net() -> fx.GraphModule:
    nn.init.manual_seed(0)
    gm = fx.symbolic_trace(Net().train(), x="f32[B,8]", scale="f32[B,4]")
    return noted(gm)


def noted(gm: fx.GraphModule) -> fx.GraphModule:
    """Every node has a note of its own."""
    for number, node in enumerate(gm.graph.nodes):
        node.meta["number"] = number
    return gm


def identity(node: Node) -> Any:
    return node.name, node.op, node.target, node.type, node.scope, node.loc, node.meta


def check_same(gm: fx.GraphModule, again: fx.GraphModule) -> None:
    again.graph.lint(full=True)
    assert [*map(identity, gm.graph.nodes)] == [*map(identity, again.graph.nodes)]
    fx.assert_same(gm, again) if gm.graph.guards == again.graph.guards else None
    assert list(gm.state_dict()) == list(again.state_dict())


def programs() -> list[tuple[str, Callable[[], fx.GraphModule]]]:
    found = [(program.name, lambda p=program: p.trace()[0]) for program in ZOO]
    found += [(name, lambda n=name: traced(n)) for name in MODELS]
    return [*found, ("integers of ViT", lambda: quantized(passes.simplify(traced("ViT"))))]


@pytest.mark.parametrize("dialect", ["fxlite", "numpy"])
@pytest.mark.parametrize(("name", "make"), programs(), ids=[name for name, _ in programs()])
def test_without_an_edit(name: str, make: Any, dialect: str, tmp_path: Path) -> None:
    """Names, notes, scopes and places are those of the original, in its order."""
    gm = noted(make())
    gm.to_folder(str(tmp_path), dialect=dialect)
    check_same(gm, fx.reimport(tmp_path, like=gm))


def test_what_passes_took_apart(tmp_path: Path) -> None:
    """Plain sums, maxima and products need no size that the whole op did not need."""
    gm = noted(passes.decompose(by_name("transformer_block").trace()[0]))
    gm.to_folder(str(tmp_path))
    made = fx.reimport(tmp_path, like=gm)
    assert [*map(identity, gm.graph.nodes)] == [*map(identity, made.graph.nodes)]
    assert {*map(str, made.graph.guards)} - {*map(str, gm.graph.guards)} == {"T >= 1"}


def edited(
    gm: fx.GraphModule, folder: Path, *edits: tuple[str, str], dialect: str = "fxlite", **inputs: Any
) -> fx.GraphModule:
    """The graph after edits of the text."""
    gm.to_folder(str(folder), dialect=dialect)
    (path,) = folder.glob("*.py")
    text = path.read_text()
    for before, after in edits:
        assert before in text, text
        text = text.replace(before, after, 1)
    path.write_text(text)
    return fx.reimport(path, like=gm, **inputs)


def changes(gm: fx.GraphModule, made: fx.GraphModule) -> tuple[list[str], list[str], list[str]]:
    """Names of nodes removed and added, and of those that are others or elsewhere than before."""
    before, now = ({n.name: n for n in m.graph.nodes} for m in (gm, made))
    other = [n for n in before if n in now and identity(before[n]) != identity(now[n])]
    return [n for n in before if n not in now], [n for n in now if n not in before], other


RELU = "F.relu(self.fc(self.norm(x)))"


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([("F.relu", "F.gelu")], (["relu", "relu_1"], ["gelu", "gelu_1"], [])),
        ([(RELU, f"F.tanh({RELU})")], ([], ["tanh_1", "tanh_2"], [])),
        ([("self.drop(y)", "y")], (["dropout", "dropout_1"], [], [])),
        ([("* 0.5", "* 0.75")], ([], [], ["mul"])),
        ([("y = F.relu", "hidden = F.relu"), ("self.drop(y)", "self.drop(hidden)")], ([], [], [])),
        ([("np.float32(0.25)", "np.float32(0.5)")], ([], [], ["constant_0"])),
        ([("Dropout(0.25)", "Dropout(0.5)")], ([], [], ["dropout", "dropout_1"])),
        (
            [("range(2)", "range(1)"), ("self.blocks[1](", "(")],
            (
                [f"{n}_1" for n in ("layer_norm", "linear", "relu", "dropout", "add")]
                + [f"blocks_1_{n}" for n in ("norm_weight", "norm_bias", "fc_weight", "fc_bias")],
                [],
                [],
            ),
        ),
    ],
)
def test_edits(edits: Any, expected: Any, tmp_path: Path) -> None:
    gm = net()
    made = edited(gm, tmp_path, *edits)
    made.graph.lint(full=True)
    assert tuple(map(sorted, changes(gm, made))) == tuple(map(sorted, expected)), made.graph
    for name in (*expected[1], *expected[2]):  # what is new comes from the edited file
        (node,) = (n for n in made.graph.nodes if n.name == name)
        assert node.op == "get_attr" or node.loc.file == str(tmp_path / "net.py")
    found = fx.diff(gm, made)
    assert bool(found) == any(map(len, expected))


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        (
            [("np.maximum(self.fc(self.norm(x)), 0)", "np.tanh(self.fc(self.norm(x)))")],
            (["relu", "relu_1"], ["tanh_1", "tanh_2"], []),
        ),
        (
            [("np.maximum(self.fc(self.norm(x)), 0)", "sigmoid(self.fc(self.norm(x)))")],
            (["relu", "relu_1"], ["sigmoid", "sigmoid_1"], []),
        ),
        ([("* 0.5", "* 0.75")], ([], [], ["mul"])),
        (
            [("x @ self.weight.T + self.bias", "self.bias + x @ self.weight.T")],
            (
                [f"linear{n}" for n in ("", "_1", "_2")],
                [f"{n}{m}" for n in ("permute", "matmul") for m in ("", "_1", "_2")] + ["add_2", "add_3", "add_4"],
                [],
            ),
        ),
    ],
)
def test_edits_of_numpy(edits: Any, expected: Any, tmp_path: Path) -> None:
    """Functions that fxlite has written are ops until somebody edits them."""
    gm = net()
    if "sigmoid" in str(edits):
        library = NumpyText.library.definitions(["sigmoid"])
        edits = [*edits, ("class Linear:", f"{library}class Linear:")]
    made = edited(gm, tmp_path, *edits, dialect="numpy")
    made.graph.lint(full=True)
    assert tuple(map(sorted, changes(gm, made))) == tuple(map(sorted, expected)), made.graph


@pytest.mark.parametrize(
    ("name", "edit"),
    [
        ("gelu", ("return 0.5 * x * (1 + erf(", "return 0.25 * x * (1 + erf(")),
        ("softmax", ("return e / np.sum(", "return 0.5 * e / np.sum(")),
    ],
)
def test_edited_functions_of_numpy(name: str, edit: tuple[str, str], tmp_path: Path) -> None:
    op, x = getattr(fx.ops, name), np.ones((1, 4), np.float32)
    gm = noted(fx.symbolic_trace(lambda x: op(np.exp(x)), "f32[B,4]"))
    made = edited(gm, tmp_path, edit, dialect="numpy")
    assert changes(gm, made)[0] == [name]
    compare("halved", made(x) * 2, gm(x))


def test_order_of_independent_statements(tmp_path: Path) -> None:
    """Nothing has changed."""

    def program(x: Any) -> Any:
        first = np.exp(x)
        other = np.sin(x)
        return first.sum(), other.sum(), first * other

    gm = noted(fx.symbolic_trace(program, "f32[3]"))
    gm.to_folder(str(tmp_path))
    (path,) = tmp_path.glob("*.py")
    lines = path.read_text().splitlines()
    one, other = (next(i for i, s in enumerate(lines) if f"{n}(x)" in s) for n in ("exp", "sin"))
    lines[one], lines[other] = lines[other], lines[one]
    path.write_text("\n".join(lines) + "\n")
    check_same(gm, fx.reimport(path, like=gm))


def test_new_input(tmp_path: Path) -> None:
    gm = net()
    edits = (("def forward(self, x, scale)", "def forward(self, x, scale, shift)"), ("* 0.5", "* 0.5 + shift"))
    with pytest.raises(ArgumentError, match=r"net.py:\d+: the type of the new input 'shift' is no"):
        edited(gm, tmp_path, *edits)
    made = fx.reimport(tmp_path, like=gm, shift="f32[B,4]")
    removed, added, other = changes(gm, made)
    assert (removed, added, other) == ([], ["shift", "add_2"], [])
    assert [n.target for n in made.graph.placeholders] == ["x", "scale", "shift"]
    x, scale = np.ones((2, 8), np.float32), np.ones((2, 4), np.float32)
    made, gm = made.eval(), gm.eval()
    compare("shifted", made(x, scale, np.zeros_like(scale)), gm(x, scale))


def test_an_input_may_have_another_name(tmp_path: Path) -> None:
    gm = net()
    made = edited(gm, tmp_path, ("self, x, scale", "self, x, factor"), ("(scale)", "(factor)"))
    assert changes(gm, made)[:2] == ([], [])
    assert [n.target for n in made.graph.placeholders] == ["x", "factor"]


def test_inputs_may_change_places(tmp_path: Path) -> None:
    gm = net()
    made = edited(gm, tmp_path, ("self, x, scale", "self, scale, x"))
    assert changes(gm, made) == ([], [], [])
    assert [n.target for n in made.graph.placeholders] == ["scale", "x"]


def test_nested_inputs_and_results(tmp_path: Path) -> None:
    def program(batch: Any, pair: Any) -> Any:
        first, second = pair
        return {"sum": batch["x"] + first, "parts": [batch["y"] * second, np.exp(first)]}

    types = {"x": "f32[B,4]", "y": "f32[4]"}, ("f32[4]", "f32[4]")
    gm = noted(fx.symbolic_trace(program, *types))
    gm.to_folder(str(tmp_path))
    made = fx.reimport(tmp_path, like=gm)
    check_same(gm, made)
    x = np.ones(4, np.float32)
    given = {"x": x[None], "y": x}, (x, x)
    compare("nested", list(made(*given)["parts"]), list(gm(*given)["parts"]))
    made = edited(gm, tmp_path / "other", ("np.exp", "np.sin"))
    assert changes(gm, made) == (["exp"], ["sin"], [])


def test_text_without_a_file_of_weights(tmp_path: Path) -> None:
    """What ``source()`` gave has those of the graph."""
    gm = net()
    path = tmp_path / "other.py"
    path.write_text(gm.source())
    check_same(gm, fx.reimport(path, like=gm))


def test_passes_and_ledger_stay(tmp_path: Path) -> None:
    gm = passes.cse(net())
    nodes = {n.name: n for n in gm.graph.nodes}
    refuse(gm, "fuse", nodes["relu"], "is read twice", [nodes["relu"]])
    refuse(gm, "fuse", nodes["mul"], "is read twice", [nodes["mul"]])
    made = edited(gm, tmp_path, ("* 0.5", "* 0.75"))

    assert passes_of(made) == passes_of(gm) and passes_of(made)
    assert [entry.node for entry in ledger(made)] == ["relu"]


FIRST = "        y = F.relu("
WRONG: list[tuple[type[FxliteError], str, tuple[str, str]]] = [
    (
        TraceError,
        r"(?s)inside a try statement.*net.py:\d+: x.sum",
        (
            FIRST,
            "        try:\n            x = -x if x.sum() > 0 else x\n        except ValueError:\n"
            f"            pass\n{FIRST}",
        ),
    ),
    (TraceError, r"net.py cannot be traced: NameError: .*wobble.* \(net.py:\d+\)", ("F.relu", "wobble")),
    (CodegenError, r"net.py:\d+ cannot be imported: ", ("F.relu(", "F.relu((")),
    (CodegenError, r"net.py cannot be imported: ModuleNotFoundError", ("import fxlite as fx", "import wobble as fx")),
    (
        ArgumentError,
        r"net.py:\d+: the weight fc2.weight \[8, 8\] is not in .*net.safetensors",
        ("        self.head = ", "        self.fc2 = nn.Linear(8, 8)\n        self.head = "),
    ),
    (
        ArgumentError,
        r"(?s)net.py: the weights in .*head.weight: expected shape",
        ("nn.Linear(8, 4)", "nn.Linear(8, 5)"),
    ),
    (CodegenError, r"Net\(\) failed: .*\(net.py:\d+\)", ("nn.LayerNorm(8)", "nn.LayerNorm(1 / 0)")),
    (FxliteError, r"net.py:\d+", ("F.relu(self.fc(self.norm(x)))", "self.fc(x[:, :3])")),
    (TraceError, r"net.py", (FIRST, f"        yield x\n{FIRST}")),
    (TraceError, r"net.py:\d+", ("F.relu", "np.trim_zeros")),
    (ArgumentError, r"there is no parameter 'shift'", ("F.relu", "F.relu")),
]


@pytest.mark.parametrize(("kind", "match", "edit"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_traced_names_the_line(kind: Any, match: str, edit: tuple[str, str], tmp_path: Path) -> None:
    gm = net()
    before = gm.graph.text(full=True), {key: value.copy() for key, value in gm.state_dict().items()}
    inputs = {"shift": "f32[B]"} if "shift" in match else {}
    with pytest.raises(kind, match=match):
        edited(gm, tmp_path, edit, **inputs)
    assert gm.graph.text(full=True) == before[0]
    np.testing.assert_equal(dict(gm.state_dict()), before[1])


@pytest.mark.parametrize(
    ("kind", "match", "edit"),
    [
        (
            TraceError,
            r"(?s)if, while.*net.py:\d+: x.sum",
            ("        return x @", "        if x.sum() > 0:\n            x = -x\n        return x @"),
        ),
        (TraceError, r"net.py cannot be traced: NameError: .*wobble.* \(net.py:\d+\)", ("np.tanh(", "wobble(")),
        (
            ArgumentError,
            r"net.py:\d+: the weight gain \[4\] is not in .*net.npz",
            ("        self.head = ", "        self.gain = np.zeros(4)\n        self.head = "),
        ),
        (ArgumentError, r"(?s)net.py: the weights in .*head.weight: expected shape", ("Linear(4)", "Linear(5)")),
        (TraceError, r"net.py:\d+", ("np.tanh(", "np.linalg.inv(")),
    ],
)
def test_errors_of_numpy(kind: Any, match: str, edit: tuple[str, str], tmp_path: Path) -> None:
    with pytest.raises(kind, match=match):
        edited(net(), tmp_path, edit, dialect="numpy")


def test_other_dialects_are_refused(tmp_path: Path) -> None:
    gm = net()
    gm.to_folder(str(tmp_path), dialect="torch")
    with pytest.raises(CodegenError, match=r"net.py is in the dialect 'torch', .* gm.source\(\)"):
        fx.reimport(tmp_path, like=gm)
    with pytest.raises(CodegenError, match=r"cannot read .*: No such file"):
        fx.reimport(tmp_path / "no.py", like=gm)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CodegenError, match="holds none that fxlite wrote"):
        fx.reimport(tmp_path / "empty", like=gm)


def test_command_line(tmp_path: Path, capsys: Any) -> None:
    program = [f"{__file__}:Net", "--input", "x=f32[B,8]", "--input", "scale=f32[B,4]"]
    assert main(["regenerate", *program, "-o", str(tmp_path)]) == 0
    path = tmp_path / "net.py"
    path.write_text(path.read_text().replace("F.relu", "F.gelu", 1))
    saved = str(tmp_path / "net.fxl")
    assert main(["reimport", *program, str(path), "-o", saved]) == 0
    said = capsys.readouterr().out
    assert "0 removed, 0 added, 2 changed" in said and "14 nodes are unchanged" in said
    assert len(fx.load(saved).graph.find_nodes(op="call_function", target="gelu")) == 2
    path.write_text("def")
    assert main(["reimport", *program, str(path)]) == 1
    assert "net.py:1 cannot be imported" in capsys.readouterr().err
