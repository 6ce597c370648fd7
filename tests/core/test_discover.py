"""What people find by tab completion and by typing a name: namespaces show the public interface and
nothing else, and everything says in a line what it is."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.backend
from fxlite import nn, passes
from fxlite.base.errors import CodegenError
from fxlite.nn import functional
from fxlite.passes import quantize as q

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = {
    "fx": fx,
    "passes": passes,
    "nn": nn,
    "F": functional,
    "q": q,
    "expr": fx.expr,
    "ops": fx.ops,
    "errors": fx.errors,
    "shapes": fx.shapes,
    "dtypes": fx.dtypes,
    "backend": fxlite.backend,
    "nn.init": nn.init,
    r"predicates": passes.predicates,
}
_MODULES = {
    "nn",
    "ops",
    "passes",
    "codegen",
    "errors",
    "dtypes",
    "shapes",
    "expr",
    "functional",
    "init",
    "lazy",
    "random",
    "predicates",
    "quantize",
}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_dir_shows_the_interface(namespace: str) -> None:
    module: Any = NAMESPACES[namespace]
    shown = set(dir(module))
    assert shown and "__all__" not in shown
    for name in shown - {"__version__"}:
        value = getattr(module, name)
        assert not name.startswith("_")
        assert not isinstance(value, ModuleType) or name in _MODULES, name
        home = getattr(value, "__module__", None) or "fxlite"
        assert home.split(".")[0] in ("fxlite", "typing", "types"), (name, home)
        assert name not in ("Any", "annotations", "TYPE_CHECKING", "checked", "dataclass")


def test_dir_shows_what_is_documented() -> None:
    pages = [ROOT / "docs" / "tour.md", *(ROOT / "docs" / "guides").glob("*.md"), *(ROOT / "tutorials").glob("*.py")]
    code = "\n".join(
        block
        for page in pages
        for block in (
            re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
            if page.suffix == ".md"
            else [page.read_text()]
        )
    )
    checked = 0
    for written, module in (
        ("fx", fx),
        ("fx.passes", passes),
        ("fx.nn", nn),
        ("fx.expr", fx.expr),
        ("fx.ops", fx.ops),
        ("fx.errors", fx.errors),
    ):
        used = set(re.findall(rf"(?<![\w.]){re.escape(written)}\.([a-zA-Z]\w*)", code))
        # ops that the pages register themselves
        own = set(re.findall(r"^def (\w+)", code, re.M)) if module is fx.ops else set()
        assert used - own <= {*dir(module)}, written
        checked += len(used)
    assert checked > 30


def test_everything_says_what_it_is() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval(), "f32[B,4]")
    x = np.ones((2, 4), np.float32)
    (match,) = gm.graph.find("linear > relu")
    (found,) = passes.find_matches(gm, lambda x: np.maximum(x, 0))
    manager = passes.PassManager(["cse"])
    manager(gm)
    quantized = q.quantize(gm, q.QConfigMapping().set_global(q.static_int8()), [x])
    signature = "Sequential(x: f32[B,4]) -> f32[B,8]"
    said = [
        (fx.compile(gm, backend="c"), f"<CFunction {signature}>"),
        (fx.compile(gm, backend="cuda", device="shim"), f"<CudaFunction {signature}>"),
        (fx.compile(gm, backend="python"), f"<PythonFunction {signature}>"),
        (match, "QueryMatch(linear, relu)"),
        (found, "Match(relu: x=linear)"),
        (passes.cse, "<pass cse (exact): Merge nodes that compute the same value>"),
        (manager, "PassManager([cse])"),
        (manager.report, "<Report: cse>"),
        (passes.ledger(gm), "<Ledger: 0 refusals>"),
        (passes.cost(gm), "<CostReport: 2 calls of Sequential>"),
        (passes.cost(gm).table(B=[1, 2]), "<CostTable: Sequential at 2 values of B>"),
        (passes.profile(gm, x, repeat=3), "<Profile: 2 nodes of Sequential in Python>"),
        (passes.activation_statistics(gm, [x]), "<ActivationStatistics: 2 values>"),
        (q.report(quantized), "<QuantizationReport: 1 quantized products, 0 in float>"),
        (gm.summary(), "<Summary: 6 nodes in 4 rows>"),
        (fx.trace_doctor(lambda x: x, "f32[B]"), "<Diagnosis: 0 problems>"),
        (fxlite.backend.find_backend("c"), "<back end 'c': C>"),
        (fx.Interpreter(gm), "<Interpreter of Sequential>"),
        (fx.ops.relu, "fx.ops.relu"),
    ]
    for value, text in said:
        assert repr(value) == text
    assert "\n" in str(passes.cost(gm))  # the table
    assert [n.name for n in match] == ["linear", "relu"]


@pytest.mark.parametrize("backend", ["c", "cuda", "embedded", "python"])
def test_a_leaf_module_is_called_or_refused(backend: str) -> None:
    class Turned(nn.Module):
        def forward(self, x: Any) -> Any:
            return np.array(list(x)[::-1])

        def infer(self, x: Any) -> Any:
            return x

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn = Turned()

        def forward(self, x: Any) -> Any:
            return self.turn(x) + 1

    gm = fx.symbolic_trace(Net(), "f32[3]", leaf=[Turned])
    options = {"device": "shim"} if backend == "cuda" else {}
    if backend == "python":
        x = np.arange(3, dtype=np.float32)
        np.testing.assert_array_equal(fx.compile(gm, backend=backend)(x), x[::-1] + 1)
        return
    said = r"node turn: .*test_discover.py.*a leaf module cannot be compiled, its code \(Turned\) is "
    with pytest.raises(CodegenError, match=said + r'Python; trace without leaf=, or .*"python"'):
        fx.compile(gm, backend=backend, **options)
