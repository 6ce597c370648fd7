"""What inputs and named dims may be called, and that a graph says the same under any name."""

from __future__ import annotations

import keyword
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.base.errors import ArgumentError, GraphError
from fxlite.show.text.words import USUAL

WORDS = (
    *USUAL,
    "inf_",
    "self",
    "np",
    "fx",
    "math",
    "min",
    "max",
    "float",
    "int",
    "abs",
    "None_",
    "print",
    "shapes",
    "F",
    "_",
    "__x",
    "größe",
    "match",
    "type",
    "x" * 300,
)
ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)


def program(x: Any) -> Any:
    """Literals, a slice, sizes in attributes: every word that text has."""
    y = np.where(x > 3, float("inf"), x) * np.minimum(x, float("nan")) - -float("inf")
    return y, x[: x.shape[0] // 2 + 1].reshape(-1), x.reshape(x.shape[0] * 4)


def under(word: str) -> fx.GraphModule:
    """The program with its input called so."""
    module = fx.symbolic_trace(program, x="f32[N,4]")
    (node,) = module.graph.placeholders
    node.target = word
    node.name = word
    return module


def check(module: fx.GraphModule) -> None:
    """The module, its text and its regenerated Python compute what the program does."""
    expected = program(ARRAY)
    parsed = fx.parse(module.graph.text(full=True))
    assert parsed.text(full=True) == module.graph.text(full=True)
    assert [n.target for n in parsed.placeholders] == [n.target for n in module.graph.placeholders]
    regenerated = fx.compile(module, backend="python")
    for found in (module, fx.GraphModule(module, parsed), regenerated):
        for actual, wanted in zip(found(ARRAY), expected, strict=True):
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("word", WORDS)
def test_inputs_may_be_called_as_the_words_of_a_text(word: str) -> None:
    check(under(word))


@pytest.mark.parametrize("word", [w for w in WORDS if w != "self"])
def test_dims_may_be_called_as_the_words_of_a_text(word: str) -> None:
    check(fx.symbolic_trace(program, x=f"f32[{word},4]"))


def test_a_literal_is_no_input() -> None:
    def add(inf: Any) -> Any:
        return inf + float("inf")

    module = fx.symbolic_trace(add, inf="f32[3]")
    assert np.isinf(module(np.ones(3, np.float32))).all()
    assert module.graph.text(full=True).startswith("from fxlite.show.text.words import inf as inf_\ndef forward")
    both = fx.symbolic_trace(lambda inf, inf_: inf * inf_ + float("inf"), "f32[3]", "f32[3]")
    assert "import inf as inf__" in both.graph.text(full=True)


@pytest.mark.parametrize("name", ["gpu_0/data:0", "a b", "class", "3", "", "ﬁ"])
def test_what_is_no_name_is_refused_where_it_is_given(name: Any) -> None:
    with pytest.raises(GraphError, match=r"a Python identifier that is not a keyword.*, not "):
        fx.Graph().create_node("placeholder", name)
    module = under("x")
    with pytest.raises(GraphError, match=r"a Python identifier that is not a keyword.*, not "):
        module.graph.placeholders[0].target = name
    assert module.graph.placeholders[0].target == "x"


def test_open_parameters_may_have_any_name() -> None:
    def open_ended(**values: Any) -> Any:
        return next(iter(values.values())) + 1

    x = np.ones(3, np.float32)
    for name in ("3", *keyword.kwlist[:2]):
        module = fx.symbolic_trace(open_ended, **{name: "f32[3]"})
        np.testing.assert_array_equal(module(**{name: x}), x + 1)


def test_two_inputs_of_one_name_are_refused() -> None:
    graph = fx.Graph()
    first, second = graph.placeholder("x"), graph.placeholder("x")
    graph.output(graph.call_function(ops.add, (first, second)))
    with pytest.raises(GraphError, match="two inputs are called 'x'"):
        fx.GraphModule({}, graph)
    with pytest.raises(ArgumentError, match="the path of an attribute must be a str, not 3"):
        graph.get_attr(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the name of a placeholder must be a str, not 3"):
        graph.placeholder(3)  # type: ignore[arg-type]


def test_the_least_of_three_sizes_is_one_in_all_texts() -> None:
    def least(x: Any, y: Any, z: Any) -> Any:
        size = np.minimum(np.minimum(x.shape[0], y.shape[0]), z.shape[0])
        return (x[:size] + 1).reshape(size * 2)

    types = ("f32[A,2]", "f32[B]", "f32[min]")
    module = fx.symbolic_trace(least, *types)
    arrays = [np.ones(s, np.float32) for s in ((4, 2), 3, 5)]
    parsed = fx.GraphModule(module, fx.parse(module.graph.text(full=True)))
    for function in (module, parsed, *(fx.compile(module, backend=b) for b in ("c", "python"))):
        assert function(*arrays).shape == (6,)
