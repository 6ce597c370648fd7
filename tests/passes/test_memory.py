"""Memory at the peak: by hand, as formulas, and against a run that holds real arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite.base.errors import GraphError
from fxlite.passes.costing.timeline import find_peak, peak_memory
from fxlite.types import shapes
from tests.zoo import ZOO
from tests.zoo.registry import Program


def peak(program: Any, *types: str, **sizes: int) -> Any:
    return peak_memory(fx.symbolic_trace(program, *types).graph, sizes)


def two_branches(x: Any) -> Any:
    return np.exp(x) + np.log(x)


@pytest.mark.parametrize(
    ("program", "types", "expected"),
    [
        (lambda x: x, ["f32[4]"], "0"),
        (lambda x: np.exp(x), ["f32[4]"], "16"),
        (lambda x: np.exp(np.exp(np.exp(x))), ["f32[4]"], "32"),
        (two_branches, ["f32[B,4]"], "48*B"),
        (lambda x: np.exp(x)[:, :1] + 1, ["f32[B,4]"], "20*B"),  # the view keeps what it looks at
        (lambda x: x.reshape(-1).sum(), ["f32[B,4]"], "4"),  # a view of an input
        (lambda x: np.split(np.exp(x), 2)[0] + 1, ["f32[4]"], "24"),
        (lambda x: (np.exp(x), np.log(x)), ["f32[4]"], "32"),  # results are kept
        (lambda x: np.concatenate([x, x]).astype("f64"), ["f32[4]"], "96"),
        (lambda x, y: (np.exp(x).sum(), np.exp(y).sum()), ["f32[M]", "f32[N]"], "Max(4*M + 4, 4*N + 8)"),
    ],
)
def test_by_hand(program: Any, types: list[str], expected: str) -> None:
    assert peak(program, *types) == shapes.parse(expected)


def test_sizes() -> None:
    assert peak(two_branches, "f32[B,4]", B=5) == 240
    assert peak(lambda x: np.exp(x) + 1, "f32[B,T]", B=5) == shapes.parse("40*T")
    with pytest.raises(GraphError, match=r"exp.*depends on T"):
        graph = fx.symbolic_trace(lambda x: np.exp(x) + 1, "f32[B,T]").graph
        find_peak(graph, {"B": 5})


def test_the_moment() -> None:
    def program(x: Any) -> Any:
        wide = np.concatenate([x, x, x], axis=1)
        return np.tanh(F.relu(wide)).sum(axis=1)

    graph = fx.symbolic_trace(program, "f32[B,4]").graph
    found = find_peak(graph, {"B": 2})
    assert found is not None
    assert found.nbytes == 192 and found.node.name == "relu"
    assert [(node.name, nbytes) for node, nbytes in found.values] == [("concat", 96), ("relu", 96)]
    assert find_peak(fx.symbolic_trace(lambda x: x, "f32[4]").graph) is None


def test_untyped() -> None:
    with pytest.raises(GraphError, match="no type"):
        peak_memory(fx.symbolic_trace(lambda x: np.exp(x)).graph)


class Holding(fx.Interpreter):
    """Runs a graph and finds out how many bytes computed arrays hold at most: those with a reader
    still to come, and what views look at."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.largest = 0
        self.given: dict[int, Any] = {}  # inputs and weights

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        if node.op in ("placeholder", "get_attr"):
            owner = _owner(value)
            self.given[id(owner)] = owner
        elif node.op == "call_function":
            computed = [v for n, v in self.env.items() if n.op == "call_function" and n.users]
            owners = {id(o): o for o in map(_owner, _arrays([*computed, value]))}
            held = sum(o.nbytes for key, o in owners.items() if key not in self.given)
            self.largest = max(self.largest, held)
        return value


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in _arrays(item)]
    return [value]


def _owner(value: Any) -> Any:
    array = np.asarray(value)
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


#: Programs in which NumPy copies, at the peak, to reshape a permuted array: bytes of that copy.
COPIES = {"named_dims": 240}


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_against_arrays(program: Program) -> None:
    """The formula at the sizes of the inputs, the walk with numbers and NumPy agree."""
    gm, _, inputs = program.trace()
    interpreter = Holding(gm)
    interpreter.run(*inputs)
    number = peak_memory(gm.graph, interpreter.dims)
    assert shapes.substitute(peak_memory(gm.graph), interpreter.dims) == number
    found = find_peak(gm.graph, interpreter.dims)
    assert found is not None and found.nbytes == number
    assert sum(nbytes for _, nbytes in found.values) == number
    assert interpreter.largest == number + COPIES.get(program.name, 0)
