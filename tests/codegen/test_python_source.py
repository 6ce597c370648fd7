"""Regenerated Python: it imports in a fresh process, computes the same and traces to the same
graph."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import CodegenError
from fxlite.codegen.folder import FolderError, write_folder
from fxlite.codegen.python.source import module_name, python_program, python_source, save_python
from fxlite.codegen.python.text import class_name
from fxlite.nn.container import Buffer, Weights
from fxlite.ops.op import REGISTRY
from fxlite.passes import dce, decompose
from fxlite.show.text.pretty import wrap_code
from fxlite.tracing.nonempty import missing_guards
from tests.graphs import sample_program
from tests.oracle import compare
from tests.zoo import ZOO, Program

ROOT = Path(__file__).parents[2]


def load(path: Path) -> Any:
    """The last class of a saved module file, with its weights."""
    spec = importlib.util.spec_from_file_location(f"regenerated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = [
        v
        for v in vars(module).values()
        if isinstance(v, type) and issubclass(v, nn.Module) and v.__module__ == spec.name
    ][-1]
    return made.load() if hasattr(made, "load") else made()


def round_trip(gm: fx.GraphModule, folder: Path, *inputs: Any) -> Any:
    """Save, load, run and trace again; returns the loaded model."""
    model = load(save_python(gm, folder))
    if inputs:
        with np.errstate(all="ignore"):
            compare("regenerated Python", model(*inputs), gm(*inputs))
    again = fx.symbolic_trace(model, *[n.type for n in gm.graph.placeholders])
    fx.assert_same(dce(gm), dce(again))
    return model


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_zoo(program: Program, tmp_path: Path) -> None:
    gm, _, inputs = program.trace()
    round_trip(gm, tmp_path, *inputs)
    source = python_source(gm)
    assert "getattr" not in source and "pickle" not in source
    assert max(map(len, source.splitlines())) <= 100


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_zoo_decomposed(program: Program, tmp_path: Path) -> None:
    """All primitives, with the attributes that expansions give them."""
    gm, _, inputs = program.trace()
    decomposed = decompose(gm)
    graph = decomposed.graph  # with the guards that tracing gives `max` of a softmax's expansion
    graph.guards = (*graph.guards, *missing_guards(graph))
    round_trip(decomposed, tmp_path, *inputs)


@pytest.mark.skipif(shutil.which("ruff", path=str(Path(sys.executable).parent)) is None, reason="ruff")
def test_formatted_and_clean(tmp_path: Path) -> None:
    """ruff would change nothing but unused values, which are the program's own."""
    for program in ZOO:
        gm, _, _ = program.trace()
        save_python(gm, tmp_path, program.name)
    ruff, config = str(Path(sys.executable).parent / "ruff"), str(ROOT / "pyproject.toml")
    for command in (["format", "--diff"], ["check", "--ignore", "F841,RET504,RUF059"]):
        done = subprocess.run(
            [ruff, *command, "--config", config, "--line-length=100", str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_fresh_process(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
            self.norm = nn.LayerNorm(3)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.norm(self.layers(x))

    model = Net().eval()
    gm = fx.symbolic_trace(model, x="f32[B,4]")
    gm.to_folder(str(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "net.py", "net.safetensors"]
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    script = (
        "import json, sys, numpy as np; from net import Net; model = Net.load()\n"
        "x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)\n"
        "print(json.dumps([model(x).tolist(), list(model.layers[0].weight.shape)]))"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    result, shape = json.loads(done.stdout)
    np.testing.assert_array_equal(np.float32(result), model(x))
    assert shape == [8, 4]


def test_reads_well() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(np.ones(3, np.float32))
            self.head = nn.Linear(3, 2)
            self.register_buffer("shift", np.zeros(3, np.float32))

        def forward(self, x):  # type: ignore[no-untyped-def]
            B = x.shape[0]
            return self.head(np.maximum(x * self.scale + self.shift, 0)).reshape(B, 2, 1)

    lines = python_source(fx.symbolic_trace(Block(), x="f32[B,3]")).splitlines()
    place = f"# {Path(__file__).name}:"
    code = [line.strip() for line in lines if not line.strip().startswith(place)]
    start = code.index("class Block(nn.Module):")
    assert "\n".join(code[start:]) == (
        "class Block(nn.Module):\n"
        "def __init__(self):\n"
        "super().__init__()\n"
        'self.scale = nn.Parameter(ops.zeros((3,), dtype="f32"))\n'
        'self.register_buffer("shift", ops.zeros((3,), dtype="f32"))\n'
        "self.head = nn.Linear(3, 2)\n"
        "\n"
        "@classmethod\n"
        "def load(cls, path=WEIGHTS):\n"
        '"""The model with its weights, ready to run."""\n'
        "model = cls()\n"
        "model.load_state_dict(fx.load_safetensors(path))\n"
        "return model.eval()\n"
        "\n"
        "def forward(self, x):\n"
        "B = x.shape[0]\n"
        "return self.head(F.relu(x * self.scale + self.shift)).reshape(B, 2, 1)  # f32[B,2,1]"
    )


Pair = namedtuple("Pair", ["first", "second"])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: {"logits": x + 1, "hidden": (x * 2, [x * 3, {"in": x}])},
        lambda x: Pair(x + 1, Pair(x * 2, x)),
        lambda x: (x,),
        lambda x: [x * 2],
        lambda x: {'a key with "quotes" and \\': x * 2},
    ],
)
def test_nested_results(make: Any, tmp_path: Path) -> None:
    def program(x):  # type: ignore[no-untyped-def]
        return make(x)

    x = np.arange(3, dtype=np.float32)
    gm = fx.symbolic_trace(program, x="f32[N]")
    got, expected = round_trip(gm, tmp_path, x)(x), program(x)
    assert type(got).__name__ == type(expected).__name__
    if isinstance(expected, dict):
        assert list(got) == list(expected)
    assert getattr(got, "_fields", None) == getattr(expected, "_fields", None)


def test_attributes(tmp_path: Path) -> None:
    def program(x, n):  # type: ignore[no-untyped-def]
        a = np.clip(x, -math.inf, 3.5) + np.maximum(x, -np.inf) + ops.full((2,), np.nan)[0]
        b = ops.pad(x, ((1, 1),), value=math.inf)
        c = (x > 2) & (x != 1e-30) | (x < -2.0)
        d = (2.0**x) ** -1 - (-3.0) ** 2 + 7 // (n * n + 1) - 5 % (n + 10)
        return a, b, c, d, ops.cast(x, "bf16"), -x, x[::-1][:2], x[None, ..., None]

    x, n = np.linspace(-3, 3, 5, dtype=np.float32), np.arange(5)
    round_trip(fx.symbolic_trace(program, x="f32[5]", n="i64[5]"), tmp_path, x, n)


def test_names_of_values(tmp_path: Path) -> None:
    """Values named like builtins, keywords, imports and the class."""

    def F(self, F, ops, nn, math, fx, np, list, B_):  # type: ignore[no-untyped-def]
        sum = self.sum() + F.max() + ops.min() + nn.mean() + math.sum() + fx.sum() + np.sum()
        return sum + list.reshape(B_.shape[0], -1).sum(), -(sum**2)

    names = ["self", "F", "ops", "nn", "math", "fx", "np", "list"]
    gm = fx.symbolic_trace(F, inputs=dict.fromkeys(names, "f32[3]") | {"B_": "f32[B]"} | {"list": "f32[B,3]"})
    values = [np.full(3, i, np.float32) for i in range(7)] + [np.ones((2, 3), np.float32)]
    model = round_trip(gm, tmp_path, *values, np.ones(2, np.float32))
    given = dict(zip(["self_", *names[1:]], values))
    compare("by name", model(**given, B_=np.ones(2, np.float32)), gm(*values, np.ones(2, np.float32)))


def test_names_of_weights(tmp_path: Path) -> None:
    """Paths that are not attributes: numbers, keywords, methods of modules, other text."""
    weights = {
        "class.weight": 1,
        "0.0.weight": 2,
        "heads.a-b.bias": 3,
        "float.forward": 4,
        "load.x": 5,
        "import": 6,
        "layers.1": 7,
        "layers.0.self.w": 8,
        "layers.10.w": 9,
        "state_dict": 10,
    }
    holder = {k: nn.Parameter(np.full((2,), v, np.float32)) for k, v in weights.items()}
    graph = fx.Graph()
    total = graph.placeholder("x", fx.parse_type("f32[2]"))
    for path in weights:
        read = graph.get_attr(path, fx.parse_type("f32[2]"))
        total = graph.call_function("add", (total, read))
    graph.output(total)
    gm = fx.GraphModule(holder, graph, "class")
    model = load(save_python(gm, tmp_path))
    np.testing.assert_array_equal(model(np.zeros(2, np.float32)), [55, 55])
    np.testing.assert_array_equal(gm(np.zeros(2, np.float32)), [55, 55])
    assert fx.parse(gm.graph.text(full=True)) == gm.graph
    assert model.state_dict().keys() == weights.keys()
    again = fx.symbolic_trace(model, x="f32[2]")
    fx.assert_same(gm, again)


@pytest.mark.parametrize("dtype", [d.name for d in fx.dtypes.ALL])
def test_dtypes_of_weights(dtype: str, tmp_path: Path) -> None:
    numpy = fx.dtypes.dtype(dtype).numpy

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(np.array([0, 1, 1], numpy))
            self.inner = nn.Module()
            self.inner.register_buffer("b", np.array(1, numpy))

        def forward(self, x):  # type: ignore[no-untyped-def]
            return ops.where(x, self.w, self.inner.b)

    x = np.array([True, False, True])
    model = round_trip(fx.symbolic_trace(Net(), x="bool[3]"), tmp_path, x)
    assert model.w.dtype == numpy and isinstance(model.w, nn.Parameter)
    assert [n for n, _ in model.named_parameters()] == ["w"]


def test_bfloat16_computes(tmp_path: Path) -> None:
    model = nn.Linear(4, 3).astype("bf16")
    x = np.linspace(-1, 1, 8).reshape(2, 4).astype(ml_dtypes.bfloat16)
    round_trip(fx.symbolic_trace(model, x="bf16[B,4]"), tmp_path, x)


def test_layers_that_are_alike(tmp_path: Path) -> None:
    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

        def forward(self, x):  # type: ignore[no-untyped-def]
            for layer in self.layers:
                x = layer(x)
            return x

    gm = fx.symbolic_trace(Stack(), x="f32[4]")
    assert "nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])" in python_source(gm)
    round_trip(gm, tmp_path, np.ones(4, np.float32))


def test_defaults_of_inputs(tmp_path: Path) -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", fx.parse_type("f32[2]"))
    y = graph.placeholder("y", fx.parse_type("f32"), 2.5)
    graph.output(graph.call_function("mul", (x, y)))
    source = python_source(fx.GraphModule({}, graph, "scaled"))
    assert "def forward(self, x, y=np.float32(2.5)):" in source


def test_leaf_modules_are_refused() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.fc(x)

    gm = fx.symbolic_trace(Net(), x="f32[2]", leaf=[nn.Linear])
    with pytest.raises(CodegenError, match=r"leaf module self\.fc .* without leaf="):
        python_source(gm)


def test_files_of_others_are_kept(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: x + 1, x="f32[2]")
    (tmp_path / "net.py").write_text("my own work\n")
    with pytest.raises(FolderError, match="not written by fxlite"):
        save_python(gm, tmp_path, "net")
    assert (tmp_path / "net.py").read_text() == "my own work\n"
    save_python(gm, tmp_path, "net", force=True)
    save_python(gm, tmp_path, "net")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "net.py", "net.safetensors"]


def test_manifest(tmp_path: Path) -> None:
    """What made the files of what, with what they need; several models share a list."""
    one = dce(fx.symbolic_trace(nn.Linear(3, 2), x="f32[3]"))
    two = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    one.to_folder(str(tmp_path), "one")
    listed = json.loads((tmp_path / "manifest.json").read_text())
    assert (listed["model"], listed["passes"]) == ("One", ["dce"])
    assert listed["options"] == {"dialect": "fxlite"}
    assert [c["name"] for c in listed["components"]] == ["One", "fxlite"]
    for file in listed["files"]:
        data = (tmp_path / file["path"]).read_bytes()
        assert (file["bytes"], file["component"]) == (len(data), "One")
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
    two.to_folder(str(tmp_path), "two", dialect="numpy")
    several = (tmp_path / "manifest.json").read_bytes()
    one.to_folder(str(tmp_path), "one")
    assert (tmp_path / "manifest.json").read_bytes() == several
    listed = json.loads(several)
    assert {n: f["options"]["dialect"] for n, f in listed["models"].items()} == {"One": "fxlite", "Two": "numpy"}
    assert [c["name"] for c in listed["components"]] == ["One", "Two", "fxlite", "numpy"]
    assert [f["path"] for f in listed["files"]] == ["one.py", "one.safetensors", "two.npz", "two.py"]
    one.to_folder(str(tmp_path), "one", dialect="numpy")  # its weights are in another file now
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "one.npz", "one.py", "two.npz", "two.py"]


def test_manifests_of_others_are_kept(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    with pytest.raises(FolderError, match=r"manifest.json exists and was not written by fxlite"):
        gm.to_folder(str(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]
    save_python(gm, tmp_path, force=True)
    assert "fxlite" in manifest.read_text()
    fx.compile(gm, backend="python").save(tmp_path / "c")
    write_folder(tmp_path / "other", lambda work: {"options": {"backend": "c"}})
    before = (tmp_path / "other" / "manifest.json").read_text()
    gm.to_folder(str(tmp_path / "other"))
    assert (tmp_path / "other" / "manifest.json").read_text() == before


def test_text_from_the_program_stays_text() -> None:
    """Names and paths that try to end a comment or the docstring."""
    gm = fx.symbolic_trace(lambda x: x + 1, x="f32[2]")
    gm.name = 'Evil"""\nimport os  # \\'
    source = python_source(gm)
    compile(source, "evil", "exec")
    assert "\nimport os" not in source


def test_python_program_runs_without_files() -> None:
    gm = fx.symbolic_trace(nn.Linear(3, 2), x="f32[B,3]")
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(python_program(gm)(x), gm(x))


def test_names_of_files_and_classes() -> None:
    assert [module_name(n) for n in ("MiniLM", "HTTPServer2", "ResNet18", "my net", "class", "3d", "")] == [
        "mini_lm",
        "http_server2",
        "resnet18",
        "my_net",
        "class_",
        "m_3d",
        "model",
    ]
    assert [class_name(n) for n in ("my_net", "MiniLM", "3d", "list", "Exception", "F", "")] == [
        "MyNet",
        "MiniLM",
        "Model3d",
        "List",
        "ExceptionModel",
        "FModel",
        "Model",
    ]


def test_weights() -> None:
    made = Weights({0: Weights(w="f32[2]"), "a b": "i8[3]"}, self=Weights(b=Buffer("bf16")))
    assert made[0].w.shape == (2,) and made["a b"].dtype == np.int8
    assert {k: v.dtype.name for k, v in made.state_dict().items()} == {
        "a b": "int8",
        "0.w": "float32",
        "self.b": "bfloat16",
    }
    assert "w=float32[2]" in repr(made)
    with pytest.raises(fx.errors.ArgumentError, match="named dims"):
        Weights(w="f32[N]")
    with pytest.raises(fx.errors.ArgumentError, match="'w' must be a type text"):
        Weights(w=3)


def test_a_long_expression_in_parentheses_stays_one() -> None:
    """Broken into lines it gets no comma, which would make it a tuple."""

    def program(a_long_name: Any) -> Any:
        return a_long_name * 0.5 * (np.tanh((a_long_name + a_long_name * 0.044715) * 0.79788) + 1.0)

    gm = fx.symbolic_trace(program, "f32[3]")
    x = np.float32([1, -2, 3])
    np.testing.assert_array_equal(python_program(gm)(x), gm(x))
    assert wrap_code("x = (aaaa + bbbb) * (cccc + dddd)", 24) == ["x = (aaaa + bbbb) * (cccc + dddd)"]
    assert wrap_code("x = aaaa * (cccc + dddd)", 20) == ["x = aaaa * (", "    cccc + dddd", ")"]
    assert wrap_code("return (aaaaaaaaaaaaaaa,)", 20) == ["return (", "    aaaaaaaaaaaaaaa,", ")"]
    assert wrap_code("xxxxxxxxxx = aaaa + bbbb", 20) == ["xxxxxxxxxx = (", "    aaaa + bbbb", ")"]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_op(name: str) -> None:
    """Each sample of each op, written with nn.functional, an operator or ops, is the same call."""
    for sample in REGISTRY[name].samples:
        gm = fx.symbolic_trace(sample_program(REGISTRY[name], sample), *sample.types())
        again = fx.symbolic_trace(python_program(gm), *sample.types())
        fx.assert_same(gm, again)
