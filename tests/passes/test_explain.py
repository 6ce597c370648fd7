"""Why a pattern does not fire: ranking, carets in the user's source, the smallest edit."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.base.errors import ArgumentError
from fxlite.passes import Pattern, explain, rule

pytestmark = pytest.mark.usefixtures("registry")


def silu(x: Any) -> Any:
    return x * F.sigmoid(x)


def miss(program: Any, pattern: Any, **types: str) -> Any:
    """The best near miss."""
    found = explain(fx.symbolic_trace(program, **types), pattern)
    assert not found.matches, found
    return found.near_misses[0]


def marked(text: str, number: int = 0) -> str:
    """What the carets of the n-th quotation stand under."""
    lines = text.splitlines()
    rows = [i for i, line in enumerate(lines) if line.endswith("^")]
    carets, source = lines[rows[number]], lines[rows[number] - 1]
    return source[carets.index("^") : len(carets)]


def test_says_where_it_matches() -> None:
    gm = fx.symbolic_trace(lambda x: F.sigmoid(x) * x, x="f32[3]")
    found = explain(gm, silu)
    assert len(found.matches) == 1 and not found.near_misses
    assert str(found).startswith("silu matches at mul (test_explain.py:")


def test_another_op_with_carets_in_pattern_and_program() -> None:
    gm = fx.symbolic_trace(lambda x: x * np.tanh(x), x="f32[3]")
    text = str(explain(gm, silu))
    assert "silu does not match anywhere" in text and "1 of 2 calls match" in text
    assert marked(text) == "F.sigmoid(x)" and marked(text, 1) == "np.tanh(x)"
    assert "the pattern has sigmoid here, the graph tanh" in text
    assert "edit: write tanh instead of sigmoid" in text


def test_caret_under_the_attribute() -> None:
    def pattern(x: Any) -> Any:
        return np.exp(F.softmax(x, dim=1))

    gm = fx.symbolic_trace(lambda x: np.exp(F.softmax(x, dim=0)), x="f32[3,4]")
    text = str(explain(gm, pattern))
    assert marked(text) == "dim=1" and "the pattern has axis=1, the graph axis=0" in text
    assert "write axis=0 instead of axis=1, or make axis a keyword-only parameter" in text


def test_caret_under_the_second_of_two_equal_expressions() -> None:
    def pattern(x: Any, y: Any) -> Any:
        return np.exp(x) - np.exp(x)

    gm = fx.symbolic_trace(lambda x: np.exp(x) - np.sin(x), x="f32[3]")
    text = str(explain(gm, pattern))
    source, carets = text.splitlines()[3:5]
    assert carets.index("^") == source.rindex("np.exp(x)")


def test_number() -> None:
    found = miss(lambda x: np.exp(x * 3.0), lambda x: np.exp(x * 2.0), x="f32[3]")
    assert found.problem == "the pattern has 2.0 here, the graph 3.0"
    assert found.edit == "write 3.0 instead of 2.0, or put a parameter there"
    assert found.mismatches[0].part == "2.0"


def test_second_reader_is_named_with_its_line() -> None:
    def program(x: Any) -> Any:
        s = F.sigmoid(x)
        return s * x, s + 1

    found = miss(program, silu, x="f32[3]")
    assert found.problem.startswith("sigmoid has a second reader: add at test_explain.py:")
    assert found.edit == "let the pattern return F.sigmoid(x) too"


def test_one_parameter_for_two_values() -> None:
    found = miss(lambda x, y: x * F.sigmoid(y), silu, x="f32[3]", y="f32[3]")
    assert found.problem == "x stands for x and for y"
    assert "second parameter" in found.edit


def test_missing_and_additional_operands() -> None:
    types = {"x": "f32[2,3]", "w": "f32[4,3]", "b": "f32[4]"}
    found = miss(lambda x, w, b: F.linear(x, w, b), lambda x, w: F.linear(x, w), **types)
    assert "add a parameter bias=None" in found.edit
    found = miss(lambda x, w, b: F.linear(x, w) + b, lambda x, w, b: F.linear(x, w, b), **types)
    assert "the graph has no bias" in found.problem


def test_lists_of_another_length() -> None:
    found = miss(lambda x, y: np.concatenate((x, y)), lambda a, b, c: np.concatenate((a, b, c)), x="f32[3]", y="f32[3]")
    assert "takes 2 values in the graph, 3 in the pattern" in found.problem and "*xs" in found.edit


def test_order_of_operands() -> None:
    """Commutative operands are compared in the order that looks better."""
    found = miss(lambda x, y: np.tanh(np.exp(x)) + y, lambda a, b: b + np.tanh(np.sin(a)), x="f32[3]", y="f32[3]")
    assert (found.matched, found.total) == (2, 3)
    assert found.edit == "write exp instead of sin"


def test_order_that_puts_like_operands_side_by_side() -> None:
    def pattern(x: Any) -> Any:
        return x * np.clip(x + 3, 0, 6)

    found = miss(lambda x: F.relu6(x + 3) * x, pattern, x="f32[3]")
    assert found.edit == "write relu6 instead of clip"
    found = miss(lambda x: F.relu6(np.exp(x) + 3) * np.exp(x), pattern, x="f32[3]")
    assert found.edit.startswith("write relu6 instead of clip")


def test_weights() -> None:
    found = miss(nn.Linear(3, 4), Pattern(nn.Linear(3, 4), same_weights=True), x="f32[2,3]")
    assert "not equal to self.weight" in found.problem
    assert found.edit == "make the array a parameter of the pattern"


def test_grouping_of_float_sums() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return x + (y + np.exp(z))

    gm = fx.symbolic_trace(program, x="f32[3]", y="f32[3]", z="f32[3]")
    found = explain(gm, lambda a, b, c: a + b + np.exp(c))
    assert found.near_misses[0].edit == "pass associative=True"
    assert "rounds differently" in str(found)


def test_best_comes_first() -> None:
    def pattern(a: Any, b: Any) -> Any:
        return np.maximum(np.exp(a) * 2, b)

    def program(x: Any, y: Any) -> Any:
        far = np.maximum(x, y)
        near = np.maximum(np.exp(x) * 3, y)
        farthest = np.maximum(np.sin(x), np.sin(y)) * 2
        return far, near, farthest

    gm = fx.symbolic_trace(program, x="f32[3]", y="f32[3]")
    found = explain(gm, pattern)
    assert [m.node.name for m in found.near_misses] == ["maximum_1", "maximum", "maximum_2"]
    assert [m.distance for m in found.near_misses] == sorted(m.distance for m in found.near_misses)


def test_only_the_best_are_shown() -> None:
    functions = [np.exp, np.cos, np.tanh, np.cosh, np.log]
    gm = fx.symbolic_trace(lambda x: tuple(functions[i % 5](x) + i for i in range(30)), x="f32[3]")
    found = explain(gm, lambda x: np.sin(x) + 0)
    assert len(found.near_misses) == 3 and "the best 3 of 6 kinds of near misses" in str(found)
    look_alikes = found.near_misses[1]
    assert len(look_alikes.alike) == 5 and "the same at add_6, add_11, add_16 and 2 more" in str(found)


def test_result_is_nowhere_in_the_graph() -> None:
    found = explain(fx.symbolic_trace(lambda x: np.sqrt(np.exp(x) + 1), x="f32[3]"), lambda x: np.log(np.exp(x) + 1))
    assert "the graph has no log" in str(found)
    best = found.near_misses[0]
    assert best.problem == "the pattern has log here, but add is read by sqrt"
    assert best.edit == "write sqrt instead of log" and (best.matched, best.total) == (2, 3)


def test_nothing_of_it_is_in_the_graph() -> None:
    found = explain(fx.symbolic_trace(lambda x: np.sqrt(x), x="f32[3]"), silu)
    assert str(found) == "silu does not match: the graph has no mul, sigmoid"


def test_one_node() -> None:
    def program(x: Any, y: Any) -> Any:
        return x * F.sigmoid(x), y * np.tanh(y), np.exp(x)

    gm = fx.symbolic_trace(program, x="f32[3]", y="f32[3]")
    assert explain(gm, silu, "mul").matches
    (found,) = explain(gm, silu, "mul_1").near_misses
    assert "sigmoid here, the graph tanh" in found.problem
    (found,) = explain(gm, silu, gm.graph.find_nodes(target=fx.ops.exp)[0]).near_misses
    assert found.problem == "the pattern has mul here, the graph exp"
    (found,) = explain(gm, silu, "sigmoid").near_misses
    assert found.problem == "sigmoid is inside the match at mul"
    with pytest.raises(ArgumentError, match="no node 'mul_9'"):
        explain(gm, silu, "mul_9")
    with pytest.raises(ArgumentError, match="not a node of this graph"):
        explain(gm.copy(), silu, gm.graph.placeholders[0])


def test_rule_explains_conditions_and_types() -> None:
    made = rule(name="double")(lambda x: x + x)
    made.replacement(lambda x: (x * 2.5).astype(np.float64))
    made.where(lambda x: passes.predicates.is_float(x) or "x is not a float tensor")
    gm = fx.symbolic_trace(lambda x, y: (x + x, y + y), x="i32[3]", y="f32[3]")
    problems = {m.node.name: m.problem for m in made.explain(gm).near_misses}
    assert problems["add"] == "x is not a float tensor"
    assert problems["add_1"] == "the replacement gives f64[3], what it replaces is f32[3]"


def test_prints_with_rich() -> None:
    from rich.console import Console

    found = explain(fx.symbolic_trace(lambda x: x * np.tanh(x), x="f32[3]"), silu)
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(found)
    assert captured.get().rstrip() == str(found)


DEEP = 400


def test_deep_pattern() -> None:
    """Deeper than Python's stack, which is made smaller for one test: the search takes the square of the depth."""
    sys.setrecursionlimit(DEEP)

    def tower(x: Any) -> Any:
        for i in range(DEEP):
            x = np.exp(x) if i else np.sin(x)
        return x

    def other(x: Any) -> Any:
        for i in range(DEEP):
            x = np.exp(x) if i else np.cos(x)
        return x

    found = miss(other, tower, x="f32[3]")
    assert (found.matched, found.total) == (DEEP - 1, DEEP) and "graph cos" in found.problem


def test_result_of_several_that_is_missing() -> None:
    def pattern(x: Any, y: Any) -> Any:
        return x + y, x - y

    found = miss(lambda x, y: (x - y, x * y), pattern, x="f32[3]", y="f32[3]")
    assert found.problem == "the pattern returns x + y too, but no other add reads x and y"
    assert found.edit == "leave x + y out of the results"
