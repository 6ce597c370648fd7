"""``fx.migrate``: what it writes runs as the original does, and it says what it cannot port."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.cli import main

pytest.importorskip("libcst", reason="migration needs libcst (extra 'patch')")
from fxlite.codegen.porting.migrate import FilePort, migrate_text
from tests.porting.programs import PROGRAMS, SAME_GRAPH

X = np.float32([[0.5, -0.75, 0.25], [1, 0.125, -0.5]])


def ported(text: str) -> FilePort:
    return migrate_text(text, Path("passes.py"))


def run(text: str, name: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text, f"<{name}>", "exec"), space)
    return space


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_port_does_what_the_original_does(name: str) -> None:
    torch = pytest.importorskip("torch", reason="compared with torch.fx (extra 'torch')")
    from tests.torch_fx import assert_same_results, structure

    port = ported(PROGRAMS[name])
    assert not port.lines("hand"), port
    assert "torch" not in port.after, port.diff
    theirs, mine = run(PROGRAMS[name], "theirs"), run(port.after, "mine")
    models = theirs["make"](), mine["make"]()
    if isinstance(models[0], torch.nn.Module):
        models[1].load_state_dict({k: v.numpy() for k, v in models[0].state_dict().items()})
    made = [space["transform"](model) for space, model in zip((theirs, mine), models)]
    with torch.no_grad():
        assert_same_results(made[0](torch.tensor(X)), made[1](X))
    if name in SAME_GRAPH:
        assert structure(made[1].graph) == structure(made[0].graph)


def findings(text: str, kind: str) -> list[tuple[int, str]]:
    return [(f.line, f.old) for f in ported(text).findings if f.kind == kind]


TORCH_ONLY = """\
import torch
import torch.nn as nn
import torch.fx as fx
from torch.fx.proxy import ParameterProxy
from torch.fx.passes.splitter_base import Subgraph

def transform(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.op == "call_method" and node.target == "relu":
            node.args[0].meta["tensor_meta"].shape
        if node.target is torch.fft.fft or isinstance(node, nn.LPPool2d):
            axis = node.args[1]
    x = torch.randn(3)
    return x.to("cpu"), map(torch.relu, [x])
"""


def test_what_cannot_be_ported_is_named() -> None:
    port = ported(TORCH_ONLY)
    hand = {f.line: f"{f.old}: {f.why}" for f in port.findings if f.kind == "hand"}
    assert set(hand) == {0, 9, 10, 11, 13, 14}
    assert "methods are recorded as ops" in hand[9] and "node.type" in hand[10]
    assert "LPPool2d" in "".join(f.why for f in port.findings)
    assert "torch.randn" in hand[13] and "if it is the target" in hand[14]
    zero = [f.old for f in port.findings if f.line == 0]
    assert zero == ["import of torch.fx.passes.splitter_base.Subgraph", "import of torch.fx.proxy.ParameterProxy"]
    check = [f.line for f in port.findings if f.kind == "check"]
    assert check == [12, 14]
    assert "import torch\n" in port.after, "what is still torch's fails loudly, not silently"
    assert "import torch.nn" not in port.after and "from fxlite import nn" in port.after


def test_names_of_the_file_are_kept() -> None:
    text = "from torch import fx as graphs, nn as layers\nclass M(layers.Module): ...\n"
    assert "import fxlite as graphs" in ported(text).after
    assert "class M(layers.Module)" in ported(text).after
    taken = "import torch\ndef fx(): ...\ndef f(gm: torch.fx.GraphModule): ...\n"
    assert "import fxlite as fxlite_fx" in ported(taken).after
    assert "gm: fxlite_fx.GraphModule" in ported(taken).after
    apart = "import os, torch\nx: torch.fx.Node\n"
    assert "import os" in ported(apart).after and "import torch" not in ported(apart).after


def test_functions_that_are_called_and_targets() -> None:
    text = """\
import operator, functools, torch
import torch.nn.functional as F
from torch.nn.functional import gelu

TABLE = {torch.add: 1, operator.truediv: 2, F.softmax: 3, gelu: 4, torch.ops.aten.mm.default: 5}

def f(x):
    return F.softmax(torch.exp(x), dim=1), gelu(x)

def size(shape):
    return functools.reduce(operator.mul, shape)
"""
    after = ported(text).after
    ops = "fx.ops.add fx.ops.div fx.ops.softmax fx.ops.gelu fx.ops.matmul".split()
    assert all(op in after.splitlines()[-7] for op in ops), after
    assert "F.softmax(fx.ops.exp(x), dim=1), gelu(x)" in after
    assert "functools.reduce(operator.mul, shape)" in after
    result = run(after, "mine")["f"](X)
    np.testing.assert_allclose(result[0], fx.ops.softmax(np.exp(X), 1))


def test_leaves_are_asked_for_where_the_file_looks_at_them() -> None:
    line = "from torch.fx import symbolic_trace\ngm = symbolic_trace(model)\n"
    assert "symbolic_trace(model)" in ported(line).after
    assert "symbolic_trace(model, leaf=nn)" in ported(line + 'x = "call_module"\n').after


def test_files_and_folders(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "lib"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "a.py").write_text("from torch.fx import Node\n")
    (source / "b.py").write_text("print('nothing of it')\n")
    (source / "c.py").write_text("import torch\nx = torch.fft\n")
    found = fx.migrate(source)
    assert [f.path.name for f in found.files] == ["c.py", "a.py"]
    assert "(2 lines)" in str(found) and "from fxlite import Node" in found.files[1].diff
    assert main(["migrate", str(source), "-o", str(tmp_path / "out")]) == 1
    assert (tmp_path / "out" / "inner" / "a.py").read_text() == "from fxlite import Node\n"
    assert "wrote" in capsys.readouterr().out
    assert main(["migrate", str(source / "inner" / "a.py"), "--diff"]) == 0
    assert "+from fxlite import Node" in capsys.readouterr().out
    with pytest.raises(fx.errors.ArgumentError, match="no file or folder"):
        fx.migrate(tmp_path / "none.py")
    with pytest.raises(fx.errors.ParseError, match=r"passes.py:1:"):
        ported("def f(:\n")
