"""Pattern rewriting, the rows of docs/design.md on patterns among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.errors import ArgumentError, ShapeError
from fxlite.passes.match import find_matches
from tests.oracle import compare


def rewrite(program: Any, pattern: Any, replacement: Any, **types: str) -> tuple[Any, list[Any]]:
    gm = fx.symbolic_trace(program, **types)
    matches = fx.replace_pattern(gm, pattern, replacement)
    gm.graph.lint()
    return gm, matches


def targets(gm: fx.GraphModule) -> list[str]:
    return [n.target.name for n in gm.graph.nodes if n.op == "call_function"]


# -- what others get wrong -------------------------------------------------------------------------
def test_two_parameters_may_stand_for_one_value() -> None:
    gm, found = rewrite(lambda x: x * x, lambda a, b: a * b, lambda a, b: a + b, x="f32[3]")
    assert len(found) == 1 and targets(gm) == ["add"]
    assert found[0].bindings["a"] is found[0].bindings["b"]


@pytest.mark.parametrize("axis", [1, -1])
def test_axis_spellings(axis: int) -> None:
    def program(x: Any) -> Any:
        return F.softmax(x, axis)

    gm, found = rewrite(program, lambda x: ops.softmax(x, axis=1), ops.exp, x="f32[3,4]")
    assert len(found) == 1 and targets(gm) == ["exp"]
    _, found = rewrite(program, lambda x: ops.softmax(x, axis=0), ops.exp, x="f32[3,4]")
    assert not found


def test_reduction_over_all_axes_in_any_spelling() -> None:
    for pattern in (
        lambda x: x.sum(),
        lambda x: x.sum(axis=(1, 0)),
        lambda x: x.sum(axis=(-2, -1)),
    ):
        _, found = rewrite(lambda x: np.sum(x, axis=(0, 1)), pattern, ops.max, x="f32[3,4]")
        assert len(found) == 1


def test_commutative_operands_in_either_order() -> None:
    gm, found = rewrite(
        lambda x, y: y + F.relu(x), lambda a, b: F.relu(a) + b, lambda a, b: a - b,
        x="f32[3]", y="f32[3]",
    )  # fmt: skip
    assert len(found) == 1
    x, y = np.float32([1, 2, 3]), np.float32([5, 5, 5])
    assert np.array_equal(gm(x, y), x - y)


def test_operands_of_sub_stay_in_order() -> None:
    _, found = rewrite(
        lambda x, y: y - F.relu(x),
        lambda a, b: F.relu(a) - b,
        lambda a, b: a,
        x="f32[3]",
        y="f32[3]",
    )
    assert not found


@pytest.mark.parametrize(
    "pattern",
    [
        lambda x: np.maximum(x, 0),
        lambda x: x.clip(0),
        F.relu,
        nn.ReLU(),
        lambda x: np.maximum(0.0, x),
    ],
)
def test_one_relu_however_written(pattern: Any) -> None:
    def program(x: Any) -> Any:
        return np.maximum(x, 0) + x.clip(0) * F.relu(x) - nn.ReLU()(x)

    _, found = rewrite(program, pattern, lambda x: ops.exp(x), x="f32[3]")
    assert len(found) == 4


# -- what matches and what does not ----------------------------------------------------------------
def test_value_read_outside_is_no_match() -> None:
    def program(x: Any) -> Any:
        y = F.relu(x)
        return y + 1, y

    gm, found = rewrite(program, lambda x: F.relu(x) + 1, lambda x: x, x="f32[3]")
    assert not found and targets(gm) == ["relu", "add"]


def test_value_that_a_replacement_reads_is_read_outside() -> None:
    """exp(x) feeds what was put in for the neg, so it is no longer inside anything else."""

    def program(x: Any) -> Any:
        y = np.exp(x)
        return -y, np.log(y)

    gm = fx.symbolic_trace(program, x="f32[3]")
    assert len(fx.replace_pattern(gm, lambda a: -a, lambda a: a * 2)) == 1
    assert not fx.replace_pattern(gm, lambda a: np.log(np.exp(a)), lambda a: a)


def test_overlapping_chain() -> None:
    def program(x: Any) -> Any:
        for _ in range(5):
            x = np.floor(x)
        return x

    gm, found = rewrite(program, lambda x: np.floor(np.floor(x)), np.floor, x="f32[3]")
    assert len(found) == 2 and targets(gm) == ["floor"] * 3


def test_replacement_that_contains_the_pattern() -> None:
    gm, found = rewrite(
        lambda x: np.exp(np.exp(x)), lambda x: np.exp(x), lambda x: np.exp(x) + 1, x="f32[3]"
    )
    assert len(found) == 2
    x = np.float32([0.1, 0.2, 0.3])
    compare("rewritten", gm(x), np.exp(np.exp(x) + 1) + 1)


def test_replacement_by_a_parameter() -> None:
    gm, found = rewrite(lambda x: -np.exp(np.exp(x)), np.exp, lambda x: x, x="f32[3]")
    assert len(found) == 2 and targets(gm) == ["neg"]


def test_parameter_stands_for_a_value_inside() -> None:
    def program(x: Any) -> Any:
        y = F.relu(x)
        return y + y

    gm, found = rewrite(program, lambda a, b: F.relu(a) + b, lambda a, b: a * b, x="f32[3]")
    assert len(found) == 1
    x = np.float32([-1, 2, 3])
    assert np.array_equal(gm(x), x * np.maximum(x, 0))


def test_numbers() -> None:
    def program(x: Any) -> Any:
        return x * 2 + 1.0

    assert len(rewrite(program, lambda x: x * 2.0 + 1, ops.exp, x="f32[3]")[1]) == 1
    assert not rewrite(lambda x: x * 2, lambda x: x * 2.0, lambda x: x * 3, x="i32[3]")[1]
    assert not rewrite(program, lambda x: x * 3 + 1, ops.exp, x="f32[3]")[1]
    gm, found = rewrite(program, lambda x, s, b: x * s + b, lambda x, s, b: (x + b) * s, x="f32[3]")
    assert found[0].bindings["s"] == 2 and found[0].bindings["b"] == 1.0
    assert np.array_equal(gm(np.float32([1, 2, 3])), np.float32([4, 6, 8]))


def test_attributes_must_agree() -> None:
    def program(x: Any) -> Any:
        return x.sum(axis=1, keepdims=True)

    assert not rewrite(program, lambda x: x.sum(axis=1), lambda x: x, x="f32[3,1]")[1]


def test_constants_and_weights_are_captured() -> None:
    weight = nn.Parameter(np.float32([1, 2, 3]))

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Any) -> Any:
            return x * self.weight

    gm = fx.symbolic_trace(lambda x: x * np.float32([1, 2, 3]) + 1, x="f32[3]")
    assert len(find_matches(gm, Scale())) == 1
    assert not find_matches(gm, lambda x: x * np.float32([1, 2, 4]))
    shift = np.float32([7, 7, 7])
    assert len(fx.replace_pattern(gm, Scale(), lambda x: x - shift)) == 1
    assert np.array_equal(gm(np.float32([1, 1, 1])), np.float32([-5, -5, -5]))


def test_match_filter_and_find_matches() -> None:
    gm = fx.symbolic_trace(lambda x, y: (np.exp(x), np.exp(y)), x="f32[3]", y="f32[4]")
    assert len(find_matches(gm, np.exp)) == 2
    wide = fx.replace_pattern(
        gm, np.exp, lambda x: x, match_filter=lambda m: m.anchor.type.shape == (4,)
    )
    assert len(wide) == 1 and wide[0].bindings["x"].name == "y"


def test_untyped_graph() -> None:
    gm = fx.symbolic_trace(lambda x: F.relu(x @ x))
    assert len(fx.replace_pattern(gm, lambda a, b: F.relu(a @ b), lambda a, b: a * b)) == 1
    assert targets(gm) == ["mul"]


def test_types_after_a_rewrite_are_right() -> None:
    gm, _ = rewrite(lambda x: np.exp(x) + 1, np.exp, lambda x: x.astype(np.float64), x="f32[3]")
    assert str(gm.graph.output_node().type) == "f64[3]"


def test_new_nodes_keep_the_place_of_the_old() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.GELU()

        def forward(self, x: Any) -> Any:
            return self.act(x)

    gm = fx.symbolic_trace(Block(), x="f32[3]")
    old = gm.graph.find_nodes(op="call_function", target="gelu")[0]
    scope, loc = old.scope, old.loc
    (found,) = fx.replace_pattern(gm, F.gelu, lambda x: F.relu(x) * 2)
    assert all((n.scope, n.loc) == (scope, loc) for n in found.replacements)
    assert scope is not None and scope.path == "act"


# -- errors ----------------------------------------------------------------------------------------
def test_failing_replacement_leaves_the_graph() -> None:
    def program(x: Any) -> Any:
        return np.exp(x.T) @ np.exp(np.exp(x) + 1)  # [4,3] @ [3,4]

    gm = fx.symbolic_trace(program, x="f32[3,4]")
    before, nodes = str(gm.graph), list(gm.graph.nodes)
    with pytest.raises(ShapeError) as caught:
        fx.replace_pattern(
            gm, lambda x: np.exp(x), lambda x: x[:2] if False else ops.sum(x, axis=1) @ x
        )
    assert any("nothing was replaced" in note for note in caught.value.__notes__)
    assert str(gm.graph) == before and list(gm.graph.nodes) == nodes
    gm.graph.lint()


def test_bad_patterns() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    with pytest.raises(ArgumentError, match="computes nothing"):
        fx.replace_pattern(gm, lambda x: x, lambda x: x)
    with pytest.raises(ArgumentError, match="several"):
        fx.replace_pattern(gm, lambda x: (x + 1, x), lambda x: x)
    with pytest.raises(ArgumentError, match="same names"):
        fx.replace_pattern(gm, lambda x: np.exp(x), lambda y, z: y)


def test_deep_pattern_and_backtracking() -> None:
    """Commutative operands whose first order fails late; deeper than Python's recursion limit."""

    def sums(x: Any, y: Any) -> Any:
        for _ in range(600):
            x = (x + 1) * 2 if _ % 2 else 2 * (1 + x)
        return x + y

    gm = fx.symbolic_trace(lambda x, y: y * 1 + sums(x, y * 3), x="f32[3]", y="f32[3]")
    assert len(find_matches(gm, sums)) == 1
