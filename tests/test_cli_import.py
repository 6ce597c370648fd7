"""Ops and passes that are not fxlite's, on the command line: files name the module of an op and
never import it, ``--import`` does; passes of installed distributions are listed and run by name."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FileFormatError
from fxlite.cli import main
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.ops.op import REGISTRY
from fxlite.passes.base import PASSES, PassError, as_pass, installed_passes
from tests import command_line
from tests.graphs import ops_of
from tests.security.parses import opened
from tests.security.specimen import BREAKOUTS, packed

pytestmark = pytest.mark.usefixtures("registry")

MY_OPS = '''\
"""Ops of a project."""
import pathlib
import numpy as np
import fxlite as fx
pathlib.Path(__file__).with_name("was_imported").touch()

@fx.op
def soft_step(x: fx.Tensor, width: float = 1.0):
    """A step from 0 to 1."""
    return 1 / (1 + np.exp(-x / width))

soft_step.scalar(lambda x, width=1.0: 1 / (1 + np.exp(-x / width)))
'''
NET = """\
from my_project_ops import soft_step
def net(x):
    return soft_step(x * 2, width=0.5) + 1
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of ops, a program, and the program saved."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_project_ops.py").write_text(MY_OPS)
    (tmp_path / "net.py").write_text(NET)
    with forgotten(tmp_path):
        assert main(["compile", "net.py:net", "-i", "x=f32[B,3]", "-o", "out"]) == 0
        monkeypatch.syspath_prepend(tmp_path)
        import my_project_ops  # type: ignore[import-not-found]
        import net  # type: ignore[import-not-found]

        fx.save(fx.symbolic_trace(net.net, x="f32[B,3]"), "net.fxl")
        assert my_project_ops.soft_step.module == "my_project_ops"
    (tmp_path / "was_imported").unlink()
    return tmp_path


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """What is imported from the folder, and registered, is gone afterwards, as when a process ends."""
    path, ops = list(sys.path), dict(REGISTRY)
    yield
    sys.path[:] = path
    REGISTRY.clear()
    REGISTRY.update(ops)
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "").parent == folder:
            del sys.modules[name]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The command line, which has imported nothing from the current folder yet, and what it says."""
    with forgotten(Path.cwd()):
        status, out, err = command_line.run(capsys, *arguments)
    return status, out + err


def test_a_file_names_the_module_and_imports_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, _ = opened((project / "net.fxl").read_bytes())
    assert content["graph"]["ops"] == {"soft_step": "my_project_ops"}
    said = (
        r"net.fxl: the graph calls the op soft_step, which the module my_project_ops registers "
        r"\(fx.op\); import it before the graph is read: import my_project_ops, or fxlite ... "
        r"--import my_project_ops"
    )
    with pytest.raises(FileFormatError, match=said):
        fx.load("net.fxl")
    code, text = run(capsys, "trace", "net.fxl")
    assert code == 1 and "--import my_project_ops" in text
    assert not (project / "was_imported").exists()


@pytest.mark.parametrize("module", ["my_project_ops", "my_project_ops.py"])
def test_the_command_line_imports_what_it_is_told(
    project: Path, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (
        ["trace", "net.fxl"],
        ["textconv", "net.fxl"],
        ["cost", "net.fxl", "--size", "B=4"],
        ["check", "net.fxl", "--no-match", "dropout"],
        ["diff", "net.fxl", "net.fxl"],
        ["profile", "net.fxl", "--size", "B=4", "--backend", "c"],
        ["compile", "net.fxl", "-o", "out2"],
        ["regenerate", "net.fxl", "-o", "out3"],
        ["report", "net.fxl", "-o", "a.html"],
    ):
        code, text = run(capsys, *command, "--import", module)
        assert code == 0, text
    assert "from my_project_ops import soft_step" in (project / "out3" / "net.py").read_text()
    code, text = run(capsys, "trace", "net.fxl", "--import", "my_projekt_ops")
    assert code == 1 and "--import my_projekt_ops: ModuleNotFoundError" in text
    (project / "broken.py").write_text("x = 1\nraise KeyError('no')\n")
    code, text = run(capsys, "trace", "net.fxl", "--import", "broken.py")
    assert code == 1 and "broken.py:2" in text


def test_another_op_of_that_name(project: Path) -> None:
    data = (project / "net.fxl").read_bytes()
    content, weights = opened(data)
    fx.op(name="soft_step")(lambda x, width=1.0: x)
    with pytest.warns(UserWarning, match="soft_step of the module my_project_ops; here .* of tests"):
        from_bytes(data)
    text = json.dumps(content).replace("soft_step", "softmax")
    with pytest.raises(FileFormatError, match="softmax of the module my_project_ops, but here"):
        from_bytes(packed(json.loads(text), weights))
    content["graph"]["ops"] = {"soft_step": "__main__"}
    del REGISTRY["soft_step"]
    with pytest.raises(FileFormatError, match=r"registered .fx.op. in its main file"):
        from_bytes(packed(content, weights))
    modules = set(sys.modules)
    for wrong in (*BREAKOUTS, "a b", "a..b", "this", "antigravity", 7, None):
        for ops in ({"soft_step": wrong}, {str(wrong): "my_project_ops"}, wrong):
            content["graph"]["ops"] = ops
            with pytest.raises(FileFormatError) as caught:
                from_bytes(packed(content, weights))
            assert str(caught.value).replace("\n", "").isprintable()
    assert not {"this", "antigravity"} & (set(sys.modules) - modules)


def test_files_without_such_ops_are_as_before() -> None:
    gm = fx.symbolic_trace(lambda x: np.tanh(x), x="f32[3]")
    assert "ops" not in opened(to_bytes(gm))[0]["graph"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_bytes(to_bytes(gm)).graph == gm.graph


# -- passes of others ------------------------------------------------------------------------------
PASSES_TEXT = '''\
"""Passes of a distribution."""
import pathlib
import fxlite as fx
pathlib.Path(__file__).with_name("was_imported").touch()

@fx.passes.graph_pass(name="double_negation_acme")
def double_negation(gm):
    """Replace ``-(-x)`` by ``x``."""
    for node in gm.graph.find_nodes(op="call_function", target="neg"):
        inner = node.args[0]
        if inner.op == "call_function" and inner.target is fx.ops.neg:
            node.replace_all_uses_with(inner.args[0])
    gm.graph.eliminate_dead_code()

def nothing(gm):
    """Leave all as it is."""

NUMBER = 7
'''
ENTRIES = """\
[fxlite.passes]
double_negation = acme_passes:double_negation
nothing = acme_passes:nothing
broken = acme_passes:not_there
raises = acme_raises:anything
number = acme_passes:NUMBER
cse = acme_passes:nothing
"""


def distribution(folder: Path, name: str, version: str, entries: str) -> None:
    """What an installer leaves of a distribution."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entries)
    (info / "RECORD").write_text("")


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions, on the path."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "acme_passes.py").write_text(PASSES_TEXT)
    (site / "acme_raises.py").write_text("raise OSError('no licence')\n")
    distribution(site, "acme-passes", "1.2", ENTRIES)
    distribution(site, "other", "0.3", "[fxlite.passes]\nnothing = acme_passes:nothing\n")
    monkeypatch.syspath_prepend(site)
    for name in ("acme_passes", "acme_raises"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in re.findall(r"^(?!cse)(\w+) =", ENTRIES, re.M):  # other tests may register one
        monkeypatch.delitem(PASSES, name, raising=False)
    return site


def test_passes_are_listed_without_imports(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passes"]) == 0
    text = capsys.readouterr().out
    assert "double_negation" in text and "acme-passes 1.2" in text and "acme_raises" in text
    assert "acme-passes:cse" in text  # fxlite's own is called cse
    assert [p.full_name for p in installed_passes() if p.name == "nothing"] == ["acme-passes:nothing", "other:nothing"]
    assert not (acme / "was_imported").exists() and "acme_passes" not in sys.modules


def test_an_installed_pass_runs_by_name(
    acme: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(x: Any) -> Any:
        return np.negative(-x) + 1

    gm = fx.symbolic_trace(program, x="f32[3]")
    made = fx.passes.PassManager(["double_negation", "acme-passes:nothing", "cse"])(gm)
    assert ops_of(made) == ["add"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text("def net(x):\n    return -(-x) + 1\n")
    model = ["model.py:net", "-i", "x=f32[3]"]
    assert main(["trace", *model, "--passes", "double_negation"]) == 0
    assert main(["compile", *model, "--passes", "double_negation,other:nothing", "-o", "out"]) == 0
    assert main(["bisect", *model, "--passes", "double_negation"]) == 0
    assert main(["passes", "double_negation"]) == 0
    assert "Replace `-(-x)` by `x`." in capsys.readouterr().out


def test_a_broken_entry_is_reported_when_it_is_asked_for(acme: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in {
        "broken": r"broken of acme-passes 1.2 \(acme_passes:not_there\) cannot be imported",
        "raises": r"1.2 \(acme_raises:anything\).*OSError: no licence.*acme_raises.py:1",
        "number": "acme_passes:NUMBER is a int, not a function",
        "nothing": r"several .*acme-passes:nothing \(1.2\) and other:nothing \(0.3\); write one of these",
        "double_negatoin": "did you mean double_negation",
    }.items():
        with pytest.raises(PassError, match=said):
            as_pass(name)
    assert as_pass("cse").__module__.startswith("fxlite.passes")
    assert main(["passes", "raises", "cse", "acme-passes:nothing"]) == 1
    text = capsys.readouterr().out
    assert "no licence" in text and "Merge nodes" in text and "Leave all as it is" in text
    assert main(["passes", "broken"]) == 1
    assert main(["passes"]) == 0


def test_the_guide_as_it_is_written(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs" / "guides" / "own_op.md").read_text()
    (ops, *_), (net,) = (re.findall(rf"^```{w}\n(.*?)^```", text, re.M | re.S) for w in ("python", "py"))
    (session,) = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    (tmp_path / "my_ops.py").write_text(ops)
    (tmp_path / "net.py").write_text(net)
    env = os.environ | {"COLUMNS": "200"}
    for part in session.removeprefix("$ ").split("\n$ "):
        command, _, shown = part.partition("\n")
        program, *arguments = shlex.split(command)
        start = [sys.executable, *(["-m", "fxlite"] if program == "fxlite" else [])]
        done = subprocess.run(
            [*start, *arguments],
            cwd=tmp_path,
            env=env,
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == shown.startswith("error"), done.stdout
        assert not shown or done.stdout.strip() == shown.strip()
    assert "from my_ops import swiglu" in (tmp_path / "net_py" / "net.py").read_text()
