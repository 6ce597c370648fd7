"""Graphs as text and as files: what is read back is what was written."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import nn, ops
from fxlite.base.errors import FileFormatError, FxliteError, ParseError
from fxlite.base.location import Location, Scope
from fxlite.codegen.python.source import python_program
from fxlite.files.archive import release
from fxlite.files.serialize import from_bytes, to_bytes
from tests.graphs import facts
from tests.oracle import flatten
from tests.security.specimen import packed, packed_2
from tests.zoo import ZOO, Program


# -- text ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_text_parses_back(program: Program) -> None:
    gm, _, _ = program.trace()
    parsed = fx.parse(gm.graph.text(full=True))
    assert parsed == gm.graph
    assert parsed.text(full=True) == gm.graph.text(full=True)
    calls = [n.name for n in gm.graph.nodes if n.op != "get_attr"]
    assert [n.name for n in parsed.nodes if n.op != "get_attr"] == calls
    parsed.lint()


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_text_after_the_pipeline_parses_back(program: Program) -> None:
    from fxlite import passes

    gm = passes.PassManager(["decompose", "simplify", "const_fold", "cse", "dce"])(program.trace()[0])
    assert fx.parse(gm.graph.text(full=True)) == gm.graph


def test_parsed_graph_runs() -> None:
    gm = fx.symbolic_trace(lambda x, y: (-2.0) ** x @ y - -1.0, "f32[B,3]", "f32[3]")
    parsed = fx.GraphModule({}, fx.parse(gm.graph.text(full=True)))
    x, y = np.float32([[1, 2, 3]]), np.float32([1, 1, 1])
    assert np.array_equal(parsed(x, y), gm(x, y)) and np.array_equal(gm(x, y), [-5.0])


def test_scope_and_place_come_from_the_comment() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 2)

        def forward(self, x: Any) -> Any:
            return self.fc(x) + 1

    gm = fx.symbolic_trace(Block(), x="f32[B,3]")
    linear, add = (n for n in fx.parse(gm.graph.text(full=True)).nodes if n.op == "call_function")
    assert linear.scope == Scope("fc", "Linear") and add.scope is None
    assert add.loc is not None and add.loc.file == Path(__file__).name


EDITED = """
def forward(self, x: f32[B,3], scale: f32[3] = 2.0):
    # weights: fc.weight f32[4,3]
    y = ops.relu(x * scale + 1)          # types are optional, expressions nest
    w = self.fc.weight
    z: f32[B,4] = ops.linear(y, w)
    return {'z': [z, -y], 'mask': (~(z > 0.5),)}
"""


def test_edited_text() -> None:
    graph = fx.parse(EDITED)
    graph.lint()
    assert [n.name for n in graph.nodes if n.op == "call_function"] == [
        "mul",
        "add",
        "y",
        "z",
        "neg",
        "gt",
        "bitwise_not",
    ]
    assert str(graph.output_node().type["z"]) == "[f32[B,4], f32[B,3]]"
    assert graph.placeholders[1].args == (2.0,)


BAD = {
    "    y = ops.relux(x)\n    return y": r"line 2: there is no op 'relux'; did you mean relu",
    "    y: f32[4] = ops.relu(x)\n    return y": r"line 2: y is declared f32\[4\], but it is f32",
    "    y = ops.relu(z)\n    return y": r"line 2: z is not defined before this line",
    "    y = ops.relu(x\n    return y": r"line 2: not Python text",
    "    y = ops.relu(x)": r"expected a last line: return value",
    "    y = ops.sum(x, axis=2)\n    return y": r"line 2: sum\(f32\[3\]\): axis 2 is out of range",
    "    y = ops.sum(x, axes=0)\n    return y": r"line 2: .*has no argument 'axes'",
    "    y = ops.sum(x, axis=Q)\n    return y": r"line 2: Q is neither a value nor a named dim",
    "    y = __import__('os').system('true')\n    return y": r"line 2: expected self.PATH",
    "    y = (lambda: x)()\n    return y": r"line 2: expected self.PATH",
    "    x = ops.relu(x)\n    return x": r"line 2: x is defined twice",
    "    y = ops.relu(x)\n    return y\n    z = ops.relu(y)": r"line 4: nothing may follow",
    "    with x:\n        pass\n    return x": r"line 2: expected: name: type = ops.NAME",
    "    y: f33[3] = ops.relu(x)\n    return y": r"line 2: .*f33",
    "    y = ops.concat(x)\n    return y": r"line 2: tensors of ops.concat is a tuple",
    "    return [v for v in x]": r"line 2: expected a value",
    "    y = ops.sum(x, **{})\n    return y": r"line 2: expected name=value",
}


@pytest.mark.parametrize("body", BAD)
def test_bad_text_names_the_line(body: str) -> None:
    with pytest.raises(ParseError, match=BAD[body]):
        fx.parse(f"def forward(self, x: f32[3]):\n{body}")


@pytest.mark.parametrize("text", ["", "x = 1", "def forward(x): return x", "def f(self, *x): return x"])
def test_text_that_is_no_graph(text: str) -> None:
    with pytest.raises(ParseError, match="line 1"):
        fx.parse(text)


# -- files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_file_holds_the_identical_graph(program: Program, tmp_path: Path) -> None:
    gm, _, inputs = program.trace()
    node = next(n for n in gm.graph.nodes if n.op == "call_function")
    node.meta = {"note": [1, (2.5, None)], "of": node.all_input_nodes, "limit": float("-inf")}
    fx.save(gm, tmp_path / "program.fxl")
    loaded = fx.load(tmp_path / "program.fxl")
    assert facts(loaded) == facts(gm) and loaded.graph.text(full=True) == gm.graph.text(full=True)
    assert (loaded.name, loaded.training) == (gm.name, gm.training)
    fx.assert_same(loaded, gm)
    for got, want in zip(flatten(loaded(*inputs)), flatten(gm(*inputs))):
        assert got.tobytes() == want.tobytes()
    assert to_bytes(loaded) == to_bytes(gm)
    assert facts(pickle.loads(pickle.dumps(gm))) == facts(gm)


class Weights(nn.Module):
    """Every dtype, tied and shared arrays, a buffer, a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        ones = np.ones((2, 3))
        self.p = nn.Parameter(ones.astype(np.float32))
        self.frozen = nn.Parameter(ones * 2, requires_grad=False)
        for dtype in fx.dtypes.ALL:
            self.register_buffer(dtype.name, ones.astype(dtype.numpy))
        self.part = nn.Module()
        self.part.tied = self.p

    def forward(self, x: Any) -> Any:
        return [x * getattr(self, d.name) for d in fx.dtypes.ALL], x * self.p + self.frozen


def test_weights_of_every_dtype() -> None:
    gm = fx.symbolic_trace(Weights(), x="f32[2,3]")
    gm.set_attribute("part.tied", gm.p)
    loaded = from_bytes(to_bytes(gm))
    for name, value in gm.state_dict().items():
        assert loaded.state_dict()[name].dtype == value.dtype
        assert np.array_equal(loaded.state_dict()[name], value)
    assert loaded.part.tied is loaded.p, "tied weights come apart"
    assert isinstance(loaded.p, nn.Parameter) and loaded.p.is_parameter
    assert not loaded.frozen.requires_grad and loaded.p.requires_grad
    loaded.p[...] = 7
    assert loaded.part.tied[0, 0] == 7


def test_symbolic_trace_takes_a_saved_file(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[B]")
    fx.save(gm, tmp_path / "f.fxl")
    fx.assert_same(fx.symbolic_trace(tmp_path / "f.fxl"), gm)
    fx.assert_same(fx.symbolic_trace(str(tmp_path / "f.fxl"), x="f32[B]"), gm)
    with pytest.raises(FileFormatError, match=r"not a \.fxl file"):
        fx.symbolic_trace("model.py")


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[B]")
    gm.graph.find_nodes(target=ops.exp)[0].meta["array"] = np.ones(3)
    with pytest.warns(UserWarning, match=r"not saved: meta\['array'\] of exp \(ndarray\)"):
        fx.save(gm, tmp_path / "f.fxl")

    gm = fx.symbolic_trace(lambda x: np.exp(-x), x="f32[B]")
    exp, neg = (gm.graph.find_nodes(op="call_function", target=t)[0] for t in ("exp", "neg"))
    exp.meta["was"] = {"read": neg}
    neg.replace_all_uses_with(gm.graph.placeholders[0])
    gm.graph.erase_node(neg)
    with pytest.warns(UserWarning, match=r"not saved: meta\['was'\] of exp \(dict\)"):
        fx.save(gm, tmp_path / "f.fxl")
    assert fx.load(tmp_path / "f.fxl").graph == gm.graph

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.act(x)

    gm = fx.symbolic_trace(Outer(), leaf=[nn.ReLU])
    with pytest.raises(FileFormatError, match=r"leaf module self\.act"):
        fx.save(gm, tmp_path / "f.fxl")


# -- files that are not right ----------------------------------------------------------------------
class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(np.ones(3, np.float32))

    def forward(self, x: Any) -> Any:
        return np.exp(x * self.w).sum(axis=0)


def _rewritten(change: Any, version_1: bool = False) -> bytes:
    """A saved file with its JSON changed by ``change``."""
    data = to_bytes(fx.symbolic_trace(Small(), x="f32[B,3]"))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = json.loads(archive.read("graph.json"))
        weights = archive.read("weights.safetensors")
    if version_1:
        content = json.loads(VERSION_1)
    change(content)
    return (packed_2 if version_1 else packed)(content, weights)


#: What the first version of the format wrote for Small.
VERSION_1 = """
{"format": "fxlite", "version": 1, "name": "Small", "training": true, "scopes": [["", "Small"]],
 "locations": [["/home/me/small.py", 10, "forward", ""],
  ["/home/me/small.py", 11, "forward", "self.w"],
  ["/home/me/small.py", 11, "forward", "x * self.w"],
  ["/home/me/small.py", 11, "forward", "np.exp(x * self.w)"],
  ["/home/me/small.py", 11, "forward", "np.exp(x * self.w).sum(axis=0)"]],
 "nodes": [
  {"name": "x", "op": "placeholder", "target": "x", "args": [], "type": {"type": "f32[B,3]"},
   "loc": 0},
  {"name": "w", "op": "get_attr", "target": "w", "args": [], "type": {"type": "f32[3]"},
   "scope": 0, "loc": 1},
  {"name": "mul", "op": "call_function", "target": "mul", "args": [{"node": "x"}, {"node": "w"}],
   "type": {"type": "f32[B,3]"}, "scope": 0, "loc": 2},
  {"name": "exp", "op": "call_function", "target": "exp", "args": [{"node": "mul"}],
   "type": {"type": "f32[B,3]"}, "scope": 0, "loc": 3, "meta": {"of": {"node": "mul"}}},
  {"name": "sum", "op": "call_function", "target": "sum", "args": [{"node": "exp"}],
   "kwargs": {"axis": 0}, "type": {"type": "f32[3]"}, "scope": 0, "loc": 4},
  {"name": "output", "op": "output", "target": "output", "args": [{"node": "sum"}],
   "type": {"type": "f32[3]"}}],
 "weights": {"w": {"kind": "parameter"}}}
"""


def test_version_1_is_read() -> None:
    old = from_bytes(_rewritten(lambda content: None, version_1=True))
    new = fx.symbolic_trace(Small(), x="f32[B,3]")
    fx.assert_same(old, new)
    assert [(n.name, n.type, n.scope) for n in old.graph.nodes if n.op != "placeholder"] == [
        (n.name, n.type, n.scope) for n in new.graph.nodes if n.op != "placeholder"
    ]
    exp = old.graph.find_nodes(target=ops.exp)[0]
    assert exp.loc is not None and str(exp.loc) == "/home/me/small.py:11"
    assert exp.loc.expression == "np.exp(x * self.w)" and exp.meta == {"of": exp.args[0]}
    assert facts(from_bytes(to_bytes(old))) == facts(old)


def _set(content: dict[str, Any], node: int, **fields: Any) -> None:
    content["nodes"][node].update(fields)


EVIL = "w\n    import os; os.system('touch evil')  #"
DAMAGE_1: dict[str, tuple[Any, str]] = {
    "unknown op": (lambda c: _set(c, 2, target="no_such_op"), "no op 'no_such_op'"),
    "unknown opcode": (lambda c: _set(c, 2, op="call_method"), "unknown opcode"),
    "leaf": (lambda c: _set(c, 2, op="call_module", target="w"), "calls self.w, which is not a module of the file"),
    "wrong type": (lambda c: _set(c, 2, type={"type": "f32[7]"}), "rule gives f32"),
    "wrong weight": (lambda c: _set(c, 1, type={"type": "f32[4]"}), "the weight w is|rule gives|broadcast"),
    "order": (lambda c: c["nodes"].insert(0, c["nodes"].pop(3)), "before it is computed"),
    "no output": (lambda c: c["nodes"].pop(), "no output"),
    "missing key": (lambda c: c.pop("nodes"), "damaged"),
    "name": (lambda c: _set(c, 5, name=EVIL), "cannot be the name of a value"),
    "dim": (lambda c: _set(c, 4, kwargs={"axis": {"dim": "__import__('os')"}}), "not a dim"),
    "twice": (lambda c: _set(c, 5, name=c["nodes"][2]["name"]), "used twice"),
}


@pytest.mark.parametrize("name", DAMAGE_1)
def test_damaged_file_of_version_1(name: str) -> None:
    change, message = DAMAGE_1[name]
    with pytest.raises(FileFormatError, match=message):
        from_bytes(_rewritten(change, version_1=True), "file.fxl")


def _put(content: dict[str, Any], path: str, value: Any) -> None:
    """``_put(content, "calls.2.1", "exp")``"""
    *steps, last = [int(p) if p.lstrip("-").isdigit() else p for p in path.split(".")]
    place: Any = content["graph"]
    for step in steps:
        place = place[step]
    place[last] = value


def _at(path: str, value: Any) -> Any:
    return lambda content: _put(content, path, value)


# in the order of the program: x, w, mul, exp, sum, output
DAMAGE: dict[str, tuple[Any, str]] = {
    "missing weight": (lambda c: c["weights"].clear(), "no attribute 'w'"),
    "missing key": (lambda c: c.pop("graph"), "damaged"),
    "missing column": (lambda c: c["graph"].pop("inputs"), "damaged"),
    "short column": (lambda c: c["graph"]["type"].pop(), "damaged"),
    "unknown op": (_at("calls.2.1", "no_such_op"), "no op 'no_such_op'"),
    "unknown opcode": (_at("calls.2.0", "call_method"), "unknown opcode"),
    "leaf": (_at("calls.2", ["call_module", "w", [{"input": 0}, {"input": 1}], {}]), "not a module of the"),
    "wrong type": (_at("types.1", {"type": "f32[7]"}), "rule gives|broadcast|the weight"),
    "no type": (_at("types.1", "f32[3]"), "is not a type"),
    "type of another": (_at("type.3", 1), "exp has type f32.3., but the op's rule gives f32.B,3."),
    "no entry": (_at("type.3", 99), "an entry that is not there"),
    "negative": (_at("inputs.0", -1), "an entry that is not there"),
    "order": (_at("inputs.0", 3), "mul reads a value before it is computed"),
    "itself": (_at("inputs.0", 2), "mul reads a value before it is computed"),
    "too many operands": (lambda c: c["graph"]["inputs"].append(0), "more operands"),
    "arity": (_at("calls.3.2", [{"input": 0}, {"input": 1}]), "takes 1 argument"),
    "numbers": (_at("calls.2.2", [{"input": 1}, {"input": 0}]), "numbered in order"),
    "operand": (_at("calls.3.2", ["x"]), "neither a value nor a number"),
    "node": (_at("calls.3.2", [{"node": "x"}]), "expected {'input': number}"),
    "value as attribute": (_at("calls.4.3", {"axis": {"input": 1}}), "cannot be a value"),
    "bad attribute": (_at("calls.4.3", {"axis": 9}), "out of range"),
    "kind": (_at("calls.4.3", {"axis": {"eval": "1"}}), "expected {'input': number}"),
    "dim": (_at("calls.4.3", {"axis": {"dim": "__import__('os')"}}), "not a dim"),
    "name": (_at("name.2", EVIL), "cannot be the name of a value"),
    "keyword": (_at("name.2", "class"), "used twice or not allowed"),
    "name of the code": (_at("name.2", "self"), "used twice or not allowed"),
    "name of a dim": (_at("name.2", "B"), "used twice or not allowed"),
    "twice": (_at("name.3", "mul"), "used twice"),
    "weight": (_at("calls.1.1", EVIL), "cannot be the path"),
    "reserved": (_at("calls.1.1", "_modules"), "cannot be the path"),
    "reserved of graphs": (_at("calls.1.1", "_graph"), "cannot be the path"),
    "input": (_at("calls.0.1", EVIL), "cannot be the name of an input"),
    "input keyword": (_at("calls.0.1", "class"), "cannot be the name of an input"),
    "input twice": (_at("calls.1", ["placeholder", "x", [], {}]), "two inputs are called 'x'"),
    "default": (_at("calls.0.2", [1, 2]), "do not fit a placeholder"),
    "no output": (_at("calls.5", ["call_function", "exp", [{"input": 0}], {}]), "no output"),
    "output first": (_at("calls.3.0", "output"), "the output must be the last|do not fit|output"),
    "outputs": (_at("calls.5.2", [{"input": 0}, 1]), "do not fit a output"),
    "meta": (_at("meta", {"exp": {"of": {"node": "nobody"}}}), "damaged"),
    "chain of rewrites": (_at("meta", {"exp": {"from": 5}}), "list of pairs of names"),
    "training": (lambda c: c.update(training="yes"), "must be true or false"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_file(name: str) -> None:
    change, message = DAMAGE[name]
    with pytest.raises(FileFormatError, match=message):
        from_bytes(_rewritten(change), "file.fxl")


def _content() -> tuple[dict[str, Any], bytes]:
    with zipfile.ZipFile(io.BytesIO(to_bytes(fx.symbolic_trace(Small(), x="f32[B,3]")))) as file:
        return json.loads(file.read("graph.json")), file.read("weights.safetensors")


def test_version_2_is_read() -> None:
    content, weights = _content()
    content |= {"format": "fxlite", "version": 2}
    assert from_bytes(packed_2(content, weights)).graph == from_bytes(packed(*_content())).graph


MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "foreign": ({"format": "other"}, "not one of fxlite"),
    "newer": ({"version": 99}, "format version 99, this fxlite reads up to 3"),
    "older": ({"version": 2}, "format version 2"),
    "no minor": ({"minor": "1"}, "no minor version"),
    "no digests": ({"sha256": None}, "digests"),
    "no digest": ({"sha256": {}}, "the SHA-256 digest of graph.json is"),
    "wrong digest": ({"sha256": {"graph.json": "0" * 64}}, "the SHA-256 digest of graph.json is"),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_that_does_not_fit(name: str) -> None:
    manifest, message = MANIFESTS[name]
    with pytest.raises(FileFormatError, match=message):
        from_bytes(packed(*_content(), **manifest), "file.fxl")


def test_a_newer_minor_version_is_read() -> None:
    content, weights = _content()
    content["colour"] = "green"
    content["graph"]["shade"] = [1, 2]
    content["weights"]["w"]["unit"] = "m"
    with pytest.raises(FileFormatError, match="which the format does not have"):
        from_bytes(packed(content, weights))
    with pytest.raises(FileFormatError, match="it must hold"):
        from_bytes(packed(*_content(), {"preview.png": b"..."}))
    newer = packed(content, weights, {"preview.png": b"..."}, minor=7, mood="fine")
    with pytest.warns(UserWarning, match=r"version 3.7, this .* 'colour' .*; left out|left out:"):
        gm = from_bytes(newer, "file.fxl")
    assert gm.graph == from_bytes(packed(*_content())).graph
    with pytest.raises(FileFormatError, match="exp_9"):  # what means something is not left out
        content["graph"]["calls"][3][1] = "exp_9"
        from_bytes(packed(content, weights, minor=7))


def test_passes_are_saved() -> None:
    from fxlite.passes import PassManager, cse

    gm = PassManager(["dce", "simplify"])(fx.symbolic_trace(Small(), x="f32[B,3]"))
    again = from_bytes(to_bytes(cse(gm)))
    assert again.__dict__["_passes"] == ("dce", "simplify", "cse")
    assert to_bytes(again) == to_bytes(cse(gm))


WRITES = """
import sys
import numpy as np
import fxlite as fx
from fxlite import nn, passes

net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
for number, array in enumerate(net.state_dict().values()):
    array[...] = number + 1
gm = fx.symbolic_trace(net.eval(), x="f32[B,3,8,8]")
gm = passes.PassManager(["fuse_conv_bn", "simplify", "dce"])(gm)
fx.save(gm, sys.argv[1])
"""


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.fxl"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        script = tmp_path / "writes.py"
        script.write_text(WRITES)
        subprocess.run([sys.executable, str(script), str(path)], check=True, env=environment)
        found.append(path.read_bytes())
    assert found[0] == found[1]


def test_comments_cannot_carry_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(content: dict[str, Any]) -> None:
        graph = content["graph"]
        graph["scopes"] = [[EVIL, EVIL]]
        graph["locations"] = [[EVIL, 1, EVIL, EVIL]]
        graph["scope"] = graph["loc"] = [0] * len(graph["name"])

    monkeypatch.chdir(tmp_path)
    gm = from_bytes(_rewritten(change))
    gm(np.ones((2, 3), np.float32))
    assert "evil" in gm.code
    exec(compile(gm.code, "code", "exec"), {})
    for node in gm.graph.nodes:  # and not through a hand-made graph either
        node.scope, node.loc = Scope(EVIL, EVIL), Location(resolved=(EVIL, 1, "", ""))
    gm.recompile()
    gm(np.ones((2, 3), np.float32))
    assert not (tmp_path / "evil").exists()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_changed_file_is_refused_or_a_valid_graph(data: st.DataObject) -> None:
    """What loading accepts passes the full lint, whatever was put into the file."""

    def change(content: dict[str, Any]) -> None:
        graph = content["graph"]
        column = data.draw(st.sampled_from(["call", "type", "scope", "loc", "inputs"]))
        place = data.draw(st.integers(0, len(graph[column]) - 1))
        graph[column][place] = data.draw(st.integers(-1, 6))

    try:
        gm = from_bytes(_rewritten(change))
    except FileFormatError:
        return
    gm.graph.lint(full=True)
    assert facts(from_bytes(to_bytes(gm))) == facts(gm)


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.fxl"
    path.write_bytes(b"something else")
    with pytest.raises(FileFormatError, match=r"x\.fxl is not a \.fxl file, or it is damaged"):
        fx.load(path)
    path.write_bytes(_rewritten(lambda c: None)[:-200])
    with pytest.raises(FileFormatError):
        fx.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(FileFormatError, match=r"damaged or not a \.fxl file"):
        fx.load(path)
    with pytest.raises(FileNotFoundError):
        fx.load(tmp_path / "missing.fxl")


def test_every_truncation_is_refused() -> None:
    data = _rewritten(lambda c: None)
    for length in range(0, len(data), 37):
        with pytest.raises(FxliteError):
            from_bytes(data[:length])


def test_loading_imports_nothing_of_the_program(tmp_path: Path) -> None:
    """A fresh process that has never seen the program's classes loads and runs it."""
    (tmp_path / "f.fxl").write_bytes(_rewritten(lambda c: None))
    code = (
        "import sys, numpy as np, fxlite as fx; gm = fx.load(sys.argv[1]); "
        "print(gm(np.zeros((2, 3), np.float32)).tolist())"
    )
    root = Path(fx.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "f.fxl")], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]"


# -- safetensors -----------------------------------------------------------------------------------
def test_safetensors_of_every_dtype(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {d.name: rng.integers(0, 2, (3, 2)).astype(d.numpy) for d in fx.dtypes.ALL}
    arrays |= {"scalar": np.float32(3), "empty": np.zeros((0, 4)), "view": rng.random((4, 6))[::2].T}
    fx.save_safetensors(arrays, tmp_path / "w.safetensors")
    loaded = fx.load_safetensors(tmp_path / "w.safetensors")
    assert set(loaded) == set(arrays)
    for name, value in arrays.items():
        assert loaded[name].dtype == value.dtype and loaded[name].shape == np.shape(value)
        assert np.array_equal(loaded[name], value) and loaded[name].flags.writeable


def test_mapped_safetensors(tmp_path: Path) -> None:
    """Values as they are in the file, read-only; releasing pages loses nothing."""
    rng = np.random.default_rng(0)
    arrays = {d.name: rng.integers(0, 2, (3, 2)).astype(d.numpy) for d in fx.dtypes.ALL}
    arrays |= {"large": rng.random((700, 40)), "scalar": np.float32(3), "empty": np.zeros((0, 4))}
    fx.save_safetensors(arrays, tmp_path / "w.safetensors")
    mapped = fx.load_safetensors(tmp_path / "w.safetensors", mapped=True)
    assert set(mapped) == set(arrays)
    for name, value in arrays.items():
        release(mapped[name])
        assert mapped[name].dtype == value.dtype and mapped[name].shape == np.shape(value)
        assert np.array_equal(mapped[name], value) and not mapped[name].flags.writeable


def test_release_leaves_other_memory_alone(tmp_path: Path) -> None:
    own = np.arange(10_000.0)
    release(own)
    assert own.tolist() == list(range(10_000))
    own.tofile(tmp_path / "a.bin")
    private = np.memmap(tmp_path / "a.bin", np.float64, "c")
    private[:] = 1  # would be lost
    release(private)
    assert (private == 1).all()


def _stored(header: Any, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "its header is incomplete"),
        ((99).to_bytes(8, "little") + b"{}", "its header is incomplete"),
        (_stored(b"{oh}"), "JSONDecodeError"),
        (_stored([1]), "TypeError"),
        (_stored({"a": {"dtype": "X9", "shape": [], "data_offsets": [0, 0]}}), "no dtype 'X9'; there are .*F32"),
        (_stored({"a": {"dtype": "F32", "shape": []}}), "an array lacks its data_offsets"),
        (_stored({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}), "ValueError"),
        (
            _stored({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234"),
            r"a, float32\[2\], cannot be bytes 0 to 8 of 4",
        ),
        (_stored({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "cannot be bytes 0 to 4"),
    ],
)
def test_mapped_safetensors_that_are_damaged(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(FileFormatError, match=f"bad is .*{reason}"):
        fx.load_safetensors(tmp_path / "bad", mapped=True)


def test_safetensors_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fx.load_safetensors(tmp_path / "missing")
    (tmp_path / "bad").write_bytes(b"\x00" * 20)
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        fx.load_safetensors(tmp_path / "bad")


ODD_PARTS = (
    "²",
    "a b",
    "ﬁ",
    "Ⅷ",
    "١",
    "class",
    "00",
    "a-b",
    "'",
    '"',
    "\\",
    "𝕩",
    "µ",
    "__h",
    "…",
    "#",
    "%s",
    "{}",
    "/",
    "a" * 1000,
)


@pytest.mark.parametrize("part", ODD_PARTS, ids=lambda p: ascii(p)[:12])
def test_paths_that_python_cannot_name(part: str) -> None:
    """What a module may be called can be saved, read, printed, parsed and regenerated."""
    inner = nn.Sequential({part: nn.Linear(2, 2)})
    gm = fx.symbolic_trace(nn.Sequential({"table": inner}), x="f32[2]")
    again = from_bytes(to_bytes(gm))
    assert again.state_dict().keys() == gm.state_dict().keys()
    assert fx.parse(gm.graph.text(full=True)) == gm.graph == again.graph
    assert python_program(gm).state_dict().keys() == gm.state_dict().keys()


@pytest.mark.parametrize("part", ["", "a.b", "a\nb", "\ud800", "a\u2028b", "\u202e", "a" * 1001])
def test_paths_that_nothing_can_have(part: str) -> None:
    with pytest.raises(fx.errors.ArgumentError, match="may not be"):
        nn.ModuleDict({part: nn.Linear(2, 2)})


def test_what_cannot_be_read_is_not_saved() -> None:
    graph = fx.Graph()
    graph.output(graph.get_attr("_graph", fx.parse_type("f32[2]")))
    holder = fx.GraphModule({"w": nn.Parameter(np.zeros(2, np.float32))}, fx.Graph())
    holder._parameters["_graph"] = holder._parameters.pop("w")
    holder.graph = graph
    with pytest.raises(FileFormatError, match="'_graph' cannot be the path"):
        to_bytes(holder)
