"""Values and names that are no usual ones: in graphs, their text, files and regenerated source
they are what they were, or the program is refused with its line."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, passes

X = np.float32([1, -2, 3])
DIALECTS = ("fxlite", "numpy", "torch")


class Mode(enum.Enum):
    MEAN = "mean"


class Axis(enum.IntEnum):
    ROWS = 0


@fx.wrap
def scaled(x: Any, factor: float = 1.0, parts: tuple[float | str, ...] = ()) -> Any:
    return x * factor


@fx.wrap
def as_dtype(x: Any, dtype: type = float) -> Any:
    return x.astype(dtype)


def everywhere(gm: fx.GraphModule, *inputs: Any, folder: Path, dialects: Any = DIALECTS) -> None:
    """The graph, what is read back from text and file, and the regenerated source agree."""
    expected = gm(*inputs)
    fx.save(gm, folder / "gm.fxl")
    fx.assert_same(fx.parse(gm.graph.text(full=True)), gm.graph)
    for made in (gm.copy(), pickle.loads(pickle.dumps(gm)), fx.load(folder / "gm.fxl")):
        np.testing.assert_equal(made(*inputs), expected)
    for dialect in dialects:
        compile(gm.source(dialect=dialect), "gm.py", "exec")


# -- traced values as keys -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "program",
    [lambda x: {x: 1}[x] * x, lambda x: {"a": x, x: 2}, lambda x: {x, x + 1} and x, lambda x: x * (x in {1: 2})],
)
def test_a_traced_value_is_no_key(program: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):  # as in NumPy
        program(X)
    with pytest.raises(fx.errors.TraceError, match="x is used as the key of a dict") as raised:
        fx.symbolic_trace(program, x="f32[3]")
    assert "test_odd_values.py:" in str(raised.value)


def test_an_array_is_in_no_list() -> None:
    """Its comparison with an element is many truths, in NumPy, too."""

    def program(x: Any) -> Any:
        return x * (x in [1.0])

    with pytest.raises(ValueError, match="ambiguous"):
        program(X)
    with pytest.raises(fx.errors.TraceError, match=r"(?s)the truth of an array.*test_odd_values\.py:"):
        fx.symbolic_trace(program, x="f32[3]")


# -- attributes ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "value", [float("inf"), -np.inf, float("nan"), np.float32(1.5), np.int64(3), np.bool_(True), -0.0, 10**15]
)
def test_numbers(value: Any, tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: scaled(x, value, (1, float("nan"), 'a"b\n')), x="f32[3]")
    np.testing.assert_equal(gm(X), X * value)
    everywhere(gm, X, folder=tmp_path, dialects=("fxlite", "numpy"))
    gm = fx.symbolic_trace(lambda x: np.where(x > 0, x, float(value)), x="f32[3]")
    everywhere(gm, X, folder=tmp_path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Mode.MEAN, "Mode.MEAN, a member of an enum: pass its value, 'mean'"),
        (Axis.ROWS, "a member of an enum: pass its value, 0"),
        (slice(1, 2), r"slice\(1, 2, None\): pass the numbers"),
        (Ellipsis, "Ellipsis"),
        (np.float32, "call the parameter dtype"),
        (len, "a builtin_function"),
        (b"a", "a bytes"),
        ({1, 2}, "a set"),
        ([1, object()], "a object"),
        (np, "a module"),
    ],
)
def test_what_no_graph_holds_is_refused_with_its_line(value: Any, said: str) -> None:
    with pytest.raises(fx.errors.ArgumentError, match=f"the argument 'factor' is .*{said}") as e:
        fx.symbolic_trace(lambda x: scaled(x, value), x="f32[3]")
    assert "test_odd_values.py:" in str(e.value)


def test_enums_in_ops() -> None:
    gm = fx.symbolic_trace(lambda x: x.sum(axis=Axis.ROWS), x="f32[3]")
    assert "axis=0" in gm.graph.text(full=True) and gm(X) == 2
    with pytest.raises(fx.errors.ArgumentError, match="does not know the class Mode; pass its value"):
        fx.symbolic_trace(lambda x: x.sum(axis=Mode.MEAN), x="f32[3]")


@pytest.mark.parametrize("dtype", [np.float64, "f16", np.dtype("int8"), bool])
def test_dtypes_reach_functions_as_numpys(dtype: Any, tmp_path: Path) -> None:
    gm = fx.symbolic_trace(lambda x: as_dtype(x, dtype), x="f32[3]")
    assert gm(X).dtype == fx.dtypes.dtype(dtype).numpy
    everywhere(gm, X, folder=tmp_path, dialects=("fxlite", "numpy"))
    assert f'dtype="{gm(X).dtype}"' in gm.source()


# -- names -----------------------------------------------------------------------------------------
def test_inputs_that_python_cannot_name(tmp_path: Path) -> None:
    def program(batch: Any, **more: Any) -> Any:
        return batch["class"] + batch["a b"] * batch[1] + more["if"] + more["1-x"]

    kinds = {"class": "f32[3]", "a b": "f32[3]", 1: "f32[3]"}
    gm = fx.symbolic_trace(program, kinds, **{"if": "f32[3]", "1-x": "f32[3]"})
    assert [p.target for p in gm.graph.placeholders] == ["batch_class", "batch_a_b", "batch_1", "_if", "_1_x"]
    given = {"class": X, "a b": X, 1: X}
    expected = program(given, **{"if": X, "1-x": X})
    for made in (gm, pickle.loads(pickle.dumps(gm)), fx.compile(gm, backend="c")):
        np.testing.assert_allclose(made(given, **{"if": X, "1-x": X}), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["my layer", "class", "0", "é²", "a-b", "self"])
def test_modules_that_python_cannot_name(name: str, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module(name, nn.Linear(3, 3))

        def forward(self, x: Any) -> Any:
            return next(self.children())(x)

    net = Net()
    everywhere(fx.symbolic_trace(net, x="f32[3]"), X, folder=tmp_path)
    leaf = fx.symbolic_trace(net, x="f32[3]", leaf=nn)
    np.testing.assert_array_equal(leaf(X), net(X))


# -- empty graphs ----------------------------------------------------------------------------------
def test_a_graph_without_nodes() -> None:
    graph = fx.Graph()
    gm = fx.GraphModule({}, graph)
    assert graph.text(full=True) == "def forward(self):\n    pass" and fx.parse(graph.text(full=True)) == graph
    assert gm() is None and gm.copy()() is None and fx.Interpreter(gm).run() is None
    assert passes.dce(gm).graph == graph and fx.symbolic_trace(gm).graph == graph
    for call in (lambda: gm.graph.lint(full=True), gm.source, lambda: pickle.dumps(gm), lambda: fx.compile(gm)):
        with pytest.raises(fx.errors.FxliteError, match="no output node"):
            call()


def test_a_graph_of_inputs_alone() -> None:
    graph = fx.Graph()
    graph.placeholder("x", fx.parse_type("f32[3]"))
    gm = fx.GraphModule({}, graph)
    assert gm(X) is None and fx.parse(graph.text(full=True)) == graph and "pass" in gm.code


@pytest.mark.parametrize("result", [None, (), {}, []])
def test_a_graph_that_returns_nothing(result: Any, tmp_path: Path) -> None:
    graph = fx.Graph()
    graph.output(result)
    gm = fx.GraphModule({}, graph)
    everywhere(gm, folder=tmp_path)
    manager = passes.PassManager(["dce", "cse", "const_fold", "simplify"])
    assert gm() == result and manager(gm)() == result and fx.compile(gm, backend="c")() == result


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (3, 3), (5, 2)])
def test_singular_values_beside_an_infinity_are_nan(shape: tuple[int, int]) -> None:
    x = np.ones(shape)
    x[-1, -1] = np.inf
    found = fx.compile(lambda x: (np.linalg.svdvals(x), np.linalg.norm(x, 2)), x)(x)
    assert np.isnan(found[0]).all() and np.isnan(found[1])
