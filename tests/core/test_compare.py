"""Comparing graphs: equal under other names, different in all that matters, and saying where."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.show.comparison.compare import first_difference
from tests.zoo import ZOO, Program


def trace(program: Any, **types: str) -> fx.GraphModule:
    return fx.symbolic_trace(program, **(types or {"x": "f32[3,4]"}))


@pytest.mark.parametrize("program", ZOO, ids=lambda p: p.name)
def test_every_program_equals_its_copy_and_its_retrace(program: Program) -> None:
    gm, _, _ = program.trace()
    assert first_difference(gm, gm.copy()) is None
    assert gm.graph == gm.graph.copy()
    fx.assert_same(gm, fx.symbolic_trace(program.make()[0], *program.make()[1]))


def test_all_programs_differ() -> None:
    traced = [p.trace()[0] for p in ZOO]
    for i, a in enumerate(traced):
        for b in traced[:i]:
            assert first_difference(a, b) is not None and a.graph != b.graph


def test_names_and_order_do_not_count() -> None:
    def one(x: Any) -> Any:
        a = np.exp(x)
        b = np.sin(x)
        return a + b

    def other(y: Any) -> Any:
        b = np.sin(y)
        a = np.exp(y)
        return a + b

    a, b = trace(one), trace(other, y="f32[3,4]")
    for node in b.graph.nodes:
        b.graph.rename_node(node, f"some_{node.name}")
    assert first_difference(a, b) is None


PAIRS: list[tuple[Any, Any, str]] = [
    (lambda x: x.sum(axis=1), lambda x: x.sum(axis=0), "axis=1 against 0"),
    (lambda x: x.sum(axis=1), lambda x: x.sum(), "axis=1 against the default"),
    (np.exp, np.log, "exp against log"),
    (lambda x: x + 1, lambda x: x + 1.0, "argument 1: 1 against 1.0"),
    (lambda x: x * 0.0, lambda x: x * -0.0, "0.0 against -0.0"),
    (lambda x: x - np.exp(x), lambda x: np.exp(x) - x, "argument|against"),
    (lambda x: np.exp(x) + np.exp(x), lambda x: (lambda y: y + y)(np.exp(x)), "same value twice"),
    (lambda x: (x, np.exp(x)), lambda x: [x, np.exp(x)], "against"),
    (lambda x: {"a": x}, lambda x: {"b": x}, "keys"),
    (lambda x: (x, np.exp(x)), lambda x: (np.exp(x), x), "against"),
    (lambda x: x, lambda x, y: x, "1 inputs against 2"),
    (lambda x: np.concatenate([x, x]), lambda x: np.concatenate([x, x, x]), "against"),
]


@pytest.mark.parametrize(("one", "other", "text"), PAIRS)
def test_differences_are_named(one: Any, other: Any, text: str) -> None:
    import re

    def typed(program: Any) -> fx.GraphModule:
        count = 1 if isinstance(program, np.ufunc) else program.__code__.co_argcount
        wrapped = (lambda x: program(x)) if isinstance(program, np.ufunc) else program
        return fx.symbolic_trace(wrapped, *["f32[3,4]"] * count)

    found = first_difference(typed(one), typed(other))
    assert found is not None and re.search(text, found), found
    with pytest.raises(AssertionError, match="the graphs differ: "):
        fx.assert_same(typed(one), typed(other))


def test_linear_and_conv_are_different_and_it_says_where() -> None:
    class Net(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return F.relu(self.layer(x))

    a = fx.symbolic_trace(Net(nn.Linear(4, 4)))
    b = fx.symbolic_trace(Net(nn.Conv2d(4, 4, 1)))
    found = first_difference(a, b)
    assert found is not None and "linear against conv2d" in found and "layer (Linear)" in found


def test_weights_count_by_path_and_value() -> None:
    def make(value: float, name: str = "w") -> fx.GraphModule:
        graph = fx.Graph()
        x = graph.placeholder("x", fx.parse_type("f32[3]"))
        graph.output(graph.call_function("mul", (x, graph.get_attr(name, fx.parse_type("f32[3]")))))
        return fx.GraphModule({name: np.float32([1, value, np.nan])}, graph)

    assert first_difference(make(2), make(2)) is None
    assert first_difference(make(2), make(3)) == "self.w[1]: 2.0 against 3.0"
    assert first_difference(make(2).graph, make(3).graph) is None  # graphs alone have no values
    assert "self.w against self.v" in str(first_difference(make(2), make(2, "v")))


def test_types_count() -> None:
    a, b = trace(lambda x: x * 2), trace(lambda x: x * 2, x="f32[3,5]")
    assert "type f32[3,4] against f32[3,5]" in str(first_difference(a, b))
    c = trace(lambda x: x * 2, x="f32[B,T]")
    assert first_difference(c, trace(lambda x: x * 2, x="f32[B,T]")) is None


def test_random_ops_are_compared_in_order() -> None:
    def one(x: Any) -> Any:
        a = F.dropout(x, 0.1, True)
        return a + F.dropout(x, 0.2, True)

    def other(x: Any) -> Any:
        b = F.dropout(x, 0.2, True)
        return F.dropout(x, 0.1, True) + b

    assert first_difference(trace(one), trace(other)) is not None


def message(a: Any, b: Any, **options: Any) -> str:
    """What assert_same says of two graphs that differ."""
    with pytest.raises(AssertionError) as caught:
        fx.assert_same(a, b, **options)
    return str(caught.value)


def test_both_nodes_their_places_and_the_way_are_shown() -> None:
    class Net(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return np.exp(F.relu(self.layer(x)))

    a, b = (fx.symbolic_trace(Net(m)) for m in (nn.Linear(4, 4), nn.Conv2d(4, 4, 1)))
    headline, *lines = message(a, b).splitlines()
    assert headline.startswith("the graphs differ: linear against conv2d (layer (Linear), test_")
    assert lines[0].startswith("  a: linear = ops.linear(x, ")
    assert lines[0].endswith("# layer (Linear)")
    assert lines[2].startswith("  b: conv2d = ops.conv2d(x, ")
    assert lines[2].endswith("# layer (Conv2d)")
    for place in (lines[1], lines[3]):
        assert __file__ in place and place.endswith(": self.layer(x)")
    assert lines[4:] == ["  reached from output <- exp <- relu <- linear"]


def test_a_long_way_is_shortened() -> None:
    def make(changed: int) -> fx.GraphModule:
        def program(x: Any) -> Any:
            for step in range(40):
                x = np.sin(x) if step == changed else np.exp(x)
            return x

        return fx.symbolic_trace(program)

    way = message(make(-1), make(2)).splitlines()[-1]
    assert way == "  reached from output <- exp_39 <- … 34 more … <- exp_4 <- exp_3 <- exp_2"


def test_weights_may_differ_by_a_tolerance_or_altogether() -> None:
    def make(*values: float, dtype: str = "float32") -> fx.GraphModule:
        graph = fx.Graph()
        type = fx.parse_type("f32[3]" if dtype == "float32" else "f64[3]")
        x = graph.placeholder("x", type)
        graph.output(graph.call_function("mul", (x, graph.get_attr("w", type))))
        return fx.GraphModule({"w": np.array(values, dtype)}, graph)

    a, b = make(1, 100, np.nan), make(1, 101, np.nan)
    assert "self.w[1]: 100.0 against 101.0" in message(a, b)
    assert "self.w[1]" in message(a, b, rtol=0.009)
    fx.assert_same(a, b, rtol=0.011)
    fx.assert_same(a, b, atol=1.0)
    fx.assert_same(a, b, check_weights=False)
    assert "self.w[0]" in message(make(1, 2, np.nan), make(np.nan, 2, np.nan), atol=1e9)
    wider = make(1, 100, np.nan, dtype="float64")
    for options in ({"check_weights": False}, {"rtol": 1.0}):
        assert "type f32[3] against f64[3]" in message(a, wider, **options)
    assert "self.w[0]" in message(make(0, 1, 1), make(-0.0, 1, 1))  # bits count without tolerance


def test_only_graphs() -> None:
    with pytest.raises(TypeError, match="expected a Graph"):
        first_difference(trace(lambda x: x), 3)  # type: ignore[arg-type]
