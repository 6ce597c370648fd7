"""Pattern rewriting, the rows of docs/design.md on patterns among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, ShapeError, TraceError
from fxlite.passes.rewrite.match import find_matches
from tests.graphs import ops_of
from tests.oracle import compare


def rewrite(program: Any, pattern: Any, replacement: Any, **types: str) -> tuple[Any, list[Any]]:
    gm = fx.symbolic_trace(program, **types)
    matches = fx.replace_pattern(gm, pattern, replacement)
    gm.graph.lint()
    return gm, matches


# -- what others get wrong -------------------------------------------------------------------------
def test_two_parameters_may_stand_for_one_value() -> None:
    gm, found = rewrite(lambda x: x * x, lambda a, b: a * b, lambda a, b: a + b, x="f32[3]")
    assert len(found) == 1 and ops_of(gm) == ["add"]
    assert found[0].bindings["a"] is found[0].bindings["b"]


@pytest.mark.parametrize("axis", [1, -1])
def test_axis_spellings(axis: int) -> None:
    def program(x: Any) -> Any:
        return F.softmax(x, axis)

    gm, found = rewrite(program, lambda x: ops.softmax(x, axis=1), ops.exp, x="f32[3,4]")
    assert len(found) == 1 and ops_of(gm) == ["exp"]
    _, found = rewrite(program, lambda x: ops.softmax(x, axis=0), ops.exp, x="f32[3,4]")
    assert not found


def test_reduction_over_all_axes_in_any_spelling() -> None:
    for pattern in (lambda x: x.sum(), lambda x: x.sum(axis=(1, 0)), lambda x: x.sum(axis=(-2, -1))):
        _, found = rewrite(lambda x: np.sum(x, axis=(0, 1)), pattern, ops.max, x="f32[3,4]")
        assert len(found) == 1


def test_commutative_operands_in_either_order() -> None:
    gm, found = rewrite(
        lambda x, y: y + F.relu(x), lambda a, b: F.relu(a) + b, lambda a, b: a - b, x="f32[3]", y="f32[3]"
    )
    assert len(found) == 1
    x, y = np.float32([1, 2, 3]), np.float32([5, 5, 5])
    assert np.array_equal(gm(x, y), x - y)


def test_operands_of_sub_stay_in_order() -> None:
    _, found = rewrite(lambda x, y: y - F.relu(x), lambda a, b: F.relu(a) - b, lambda a, b: a, x="f32[3]", y="f32[3]")
    assert not found


@pytest.mark.parametrize(
    "pattern", [lambda x: np.maximum(x, 0), lambda x: x.clip(0), F.relu, nn.ReLU(), lambda x: np.maximum(0.0, x)]
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
    assert not found and ops_of(gm) == ["relu", "add"]


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
    assert len(found) == 2 and ops_of(gm) == ["floor"] * 3


def test_replacement_that_contains_the_pattern() -> None:
    gm, found = rewrite(lambda x: np.exp(np.exp(x)), lambda x: np.exp(x), lambda x: np.exp(x) + 1, x="f32[3]")
    assert len(found) == 2
    x = np.float32([0.1, 0.2, 0.3])
    compare("rewritten", gm(x), np.exp(np.exp(x) + 1) + 1)


def test_replacement_by_a_parameter() -> None:
    gm, found = rewrite(lambda x: -np.exp(np.exp(x)), np.exp, lambda x: x, x="f32[3]")
    assert len(found) == 2 and ops_of(gm) == ["neg"]


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
    wide = fx.replace_pattern(gm, np.exp, lambda x: x, match_filter=lambda m: m.anchor.type.shape == (4,))
    assert len(wide) == 1 and wide[0].bindings["x"].name == "y"


def test_untyped_graph() -> None:
    gm = fx.symbolic_trace(lambda x: F.relu(x @ x))
    assert len(fx.replace_pattern(gm, lambda a, b: F.relu(a @ b), lambda a, b: a * b)) == 1
    assert ops_of(gm) == ["mul"]


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
    before, nodes = gm.graph.text(full=True), list(gm.graph.nodes)
    with pytest.raises(ShapeError) as caught:
        fx.replace_pattern(gm, lambda x: np.exp(x), lambda x: x[:2] if False else ops.sum(x, axis=1) @ x)
    assert any("nothing was replaced" in note for note in caught.value.__notes__)
    assert gm.graph.text(full=True) == before and list(gm.graph.nodes) == nodes
    gm.graph.lint()


def test_bad_patterns() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    with pytest.raises(ArgumentError, match="computes nothing"):
        fx.replace_pattern(gm, lambda x: x, lambda x: x)
    with pytest.raises(ArgumentError, match="returns one of its inputs"):
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


# -- wildcards, optional and variadic operands -----------------------------------------------------
def test_keyword_only_parameters_stand_for_attributes() -> None:
    def program(x: Any, w: Any) -> Any:
        return F.conv2d(x, w, stride=2), F.conv2d(x, w), F.conv2d(x, w, stride=(1, 2), padding=1)

    def pattern(x: Any, w: Any, *, stride: Any) -> Any:
        return F.conv2d(x, w, stride=stride)

    gm, found = rewrite(
        program,
        pattern,
        lambda x, w, *, stride: F.conv2d(F.relu(x), w, stride=stride),
        x="f32[1,3,8,8]",
        w="f32[4,3,3,3]",
    )
    assert [m.bindings["stride"] for m in found] == [2, 1]
    assert ops_of(gm).count("relu") == 2, "another padding is no match"
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    w = np.ones((4, 3, 3, 3), np.float32)
    compare("strides", gm(x, w)[0], F.conv2d(np.maximum(x, 0), w, stride=2))


def test_one_wildcard_twice_is_one_value() -> None:
    def pattern(x: Any, *, axis: Any) -> Any:
        return x.sum(axis=axis, keepdims=True).max(axis=axis)

    def program(x: Any) -> Any:
        same = x.sum(axis=1, keepdims=True).max(axis=1)
        return same + x.sum(axis=1, keepdims=True).max(axis=0)

    gm = fx.symbolic_trace(program, x="f32[3,3]")
    assert [m.bindings["axis"] for m in find_matches(gm, pattern)] == [1]


def test_wildcard_for_a_number_can_be_computed_with() -> None:
    def pattern(x: Any, *, c: Any, d: Any) -> Any:
        return x * c * d

    gm, found = rewrite(
        lambda x, y: 2 * x * 3.5 + x * y * 2, pattern, lambda x, *, c, d: x * (c * d), x="f32[3]", y="f32[3]"
    )
    assert len(found) == 1 and found[0].bindings == {"x": gm.graph.placeholders[0], "c": 2, "d": 3.5}
    assert any(n.args[1:] == (7.0,) for n in gm.graph.nodes), gm.graph


def test_wildcard_cannot_be_computed_with_in_a_pattern() -> None:
    with pytest.raises(ArgumentError, match="c stands for any number"):
        find_matches(fx.symbolic_trace(lambda x: x + 1), lambda x, *, c: x * (c + 1))


def test_reshape_to_any_shape() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x).reshape(2, 6), x="f32[3,4]")
    (found,) = fx.replace_pattern(gm, lambda x, *, s: np.exp(x).reshape(s), lambda x, *, s: np.exp(x.reshape(s)))
    assert found.bindings["s"] == (2, 6) and ops_of(gm) == ["reshape", "exp"]


def test_optional_operand() -> None:
    def pattern(x: Any, w: Any, bias: Any = None) -> Any:
        return F.relu(F.linear(x, w, bias))

    def replacement(x: Any, w: Any, bias: Any = None) -> Any:
        return x @ w.T if bias is None else x @ w.T + bias

    gm, found = rewrite(
        lambda x, w, b: (F.relu(F.linear(x, w, b)), F.relu(F.linear(x, w))),
        pattern,
        replacement,
        x="f32[2,3]",
        w="f32[4,3]",
        b="f32[4]",
    )
    assert [m.bindings["bias"] is None for m in found] == [False, True]
    assert ops_of(gm) == ["permute", "matmul", "add", "permute", "matmul"]


def test_pattern_branches_on_an_optional_operand() -> None:
    def pattern(x: Any, scale: Any = None) -> Any:
        return np.exp(x) if scale is None else np.exp(x * scale)

    gm = fx.symbolic_trace(lambda x, y: np.exp(x * y) + np.exp(y + x), x="f32[3]", y="f32[3]")
    found = find_matches(gm, pattern)
    assert [m.bindings["scale"] is None for m in found] == [False, True]


def test_variadic_operand() -> None:
    def pattern(x: Any, *xs: Any, axis: Any) -> Any:
        return F.relu(np.concatenate((x, *xs), axis))

    def replacement(x: Any, *xs: Any, axis: Any) -> Any:
        return np.concatenate([F.relu(v) for v in (x, *xs)], axis)

    gm, found = rewrite(
        lambda a, b, c: (F.relu(np.concatenate((a, b, c), 1)), F.relu(np.concatenate((a, b)))),
        pattern,
        replacement,
        a="f32[2,3]",
        b="f32[2,3]",
        c="f32[2,1]",
    )
    assert [len(m.bindings["xs"]) for m in found] == [2, 1]
    assert ops_of(gm) == ["relu"] * 3 + ["concat"] + ["relu"] * 2 + ["concat"]
    with pytest.raises(ArgumentError, match="stands for several values"):
        find_matches(gm, lambda *xs: F.relu(*xs))


# -- associativity ---------------------------------------------------------------------------------
def test_grouping_of_exact_ops_does_not_matter() -> None:
    def pattern(a: Any, b: Any, c: Any) -> Any:
        return np.maximum(np.maximum(b, c), np.exp(a))

    def program(x: Any, y: Any, z: Any) -> Any:
        return np.maximum(x, np.maximum(y, np.exp(z)))

    gm = fx.symbolic_trace(program, x="f32[3]", y="f32[3]", z="f32[3]")
    (found,) = find_matches(gm, pattern)
    assert found.bindings["a"].name == "z"
    assert len(found.nodes) == 3


@pytest.mark.parametrize(("dtype", "allowed", "count"), [("f32", False, 0), ("f32", True, 1), ("i32", False, 1)])
def test_sums_of_floats_are_regrouped_only_where_allowed(dtype: str, allowed: bool, count: int) -> None:
    gm = fx.symbolic_trace(lambda x, y, z: x + (y + F.relu(z)), x=f"{dtype}[3]", y=f"{dtype}[3]", z=f"{dtype}[3]")
    found = find_matches(gm, lambda a, b, c: a + b + F.relu(c), associative=allowed)
    assert len(found) == count


def test_regrouping_keeps_to_one_dtype() -> None:
    """(i8 + i8) + i32 wraps around where i8 + (i8 + i32) does not."""
    gm = fx.symbolic_trace(lambda x, y, z: x + (y + abs(z)), x="i8[3]", y="i8[3]", z="i32[3]")
    assert not find_matches(gm, lambda a, b, c: (a + b) + abs(c), associative=True)


# -- several results -------------------------------------------------------------------------------
def two_results(x: Any) -> Any:
    e = np.exp(x)
    return e + 1, e * 2


def test_several_results_are_all_replaced() -> None:
    def program(x: Any) -> Any:
        e = np.exp(x)
        return np.log(e * 2), e + 1

    gm, found = rewrite(program, two_results, lambda x: (x - 1, x / 2), x="f32[3]")
    assert [n.name for n in found[0].anchors] == ["add", "mul"]
    x = np.float32([1, 2, 3])
    compare("two results", gm(x), (np.log(x / 2), x - 1))


def test_several_results_with_a_reader_of_a_value_inside() -> None:
    def program(x: Any) -> Any:
        e = np.exp(x)
        return e * 2, e + 1, -e

    assert not rewrite(program, two_results, lambda x: (x, x), x="f32[3]")[1]


def test_no_place_for_a_replacement() -> None:
    """y is computed from one result and goes into the other: nothing can compute both at once."""

    def pattern(x: Any, y: Any) -> Any:
        return x + 1, x * y

    def program(x: Any) -> Any:
        a = x + 1
        return x * np.exp(a)

    gm, found = rewrite(program, pattern, lambda x, y: (x - y, x), x="f32[3]")
    assert not found and ops_of(gm) == ["add", "exp", "mul"]


def test_results_in_the_other_order_and_many_pairs() -> None:
    def pattern(x: Any) -> Any:
        return np.exp(x), np.sin(x)

    def program(x: Any) -> Any:
        results = []
        for _ in range(5):
            results += [np.sin(x), np.exp(x)]
        return tuple(results)

    gm, found = rewrite(program, pattern, lambda x: (x * 2, x * 3), x="f32[3]")
    assert len(found) == 5 and ops_of(gm) == ["mul"] * 10
    x = np.float32([1, 2, 3])
    compare("pairs", gm(x), (x * 3, x * 2) * 5)


def test_results_must_hang_together() -> None:
    gm = fx.symbolic_trace(lambda x, y: (np.exp(x), np.sin(y)), x="f32[3]", y="f32[3]")
    with pytest.raises(ArgumentError, match="share no value"):
        find_matches(gm, lambda x, y: (np.exp(x), np.sin(y)))
    with pytest.raises(ArgumentError, match="returns 1 value, the pattern 2"):
        fx.replace_pattern(fx.symbolic_trace(two_results, x="f32[3]"), two_results, lambda x: np.exp(x))


# -- rewrites that meet ----------------------------------------------------------------------------
def test_identity_rewrite_keeps_the_graph() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(np.exp(x)) + np.exp(x), x="f32[3]")
    before = gm.copy()
    assert len(fx.replace_pattern(gm, np.exp, np.exp)) == 3
    fx.assert_same(gm, before)


def test_reader_that_is_yet_to_come_counts() -> None:
    """-(-x) -> x gives x a second reader, so exp(x) + 1 is no longer the only one."""

    def program(x: Any) -> Any:
        e = np.exp(x)
        again = np.negative(-e)
        return e + 1, again * 3

    def pattern(a: Any) -> Any:
        return np.negative(-a)

    gm = fx.symbolic_trace(program, x="f32[3]")
    seen: list[int] = []

    def count(match: Any) -> bool:
        seen.append(len(match.bindings["a"].users))
        return True

    fx.replace_pattern(gm, pattern, lambda a: a)
    fx.replace_pattern(gm, lambda a: a * 3, lambda a: a, match_filter=count)
    assert seen == [2]


def test_condition_picks_among_ways_to_match() -> None:
    gm = fx.symbolic_trace(lambda x, w: np.exp(x) * np.exp(w), x="f32[3]", w="f64[3]")
    for dtype in ("f32", "f64"):
        (found,) = find_matches(
            gm,
            lambda a, b: np.exp(a) * np.exp(b),
            lambda match, dtype=dtype: match.bindings["b"].type.dtype.name == dtype,
        )
        assert found.bindings["b"].type.dtype.name == dtype


def test_replacement_may_ask_for_shapes() -> None:
    gm, _ = rewrite(
        lambda x: x.reshape(-1), lambda x: x.reshape(-1), lambda x: x.reshape(x.shape[0] * x.shape[1]), x="f32[B,4]"
    )
    assert str(gm.graph.output_node().type) == "f32[4*B]"


def test_from_chain_and_undo() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    before = gm.graph.text(full=True)
    fx.replace_pattern(gm, np.exp, lambda x: F.relu(x))
    (found,) = fx.replace_pattern(gm, F.relu, lambda x: np.abs(x))
    (new,) = found.replacements
    assert new.meta["from"] == (("replace_pattern", "relu"), ("replace_pattern", "exp"))
    gm.undo()
    gm.undo()
    assert gm.graph.text(full=True) == before


def test_shared_weight_is_entered_once() -> None:
    weight = np.float32([1, 2, 3])
    gm = fx.symbolic_trace(lambda x, y: (np.exp(np.exp(x)), np.exp(y)), x="f32[3]", y="f32[2,3]")
    fx.replace_pattern(gm, np.exp, lambda x: x * weight)  # traced once for each type of x
    assert len(gm.graph.find_nodes(op="get_attr")) == len(dict(gm.named_buffers())) == 1
    assert np.array_equal(gm(np.float32([1, 1, 1]), np.ones((2, 3), np.float32))[0], weight**2)


def test_leaf_modules_match_by_class_weights_and_configuration() -> None:
    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, x: Any) -> Any:
            return x * self.factor

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Scale(2.0), Scale(3.0)

        def forward(self, x: Any) -> Any:
            return self.a(x) + self.b(x)

    class One(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = Scale(2.0)

        def forward(self, x: Any) -> Any:
            return self.b(x)

    gm = fx.symbolic_trace(Model(), x="f32[3]", leaf=[Scale])
    (found,) = find_matches(gm, fx.symbolic_trace(One(), leaf=[Scale]))
    assert found.anchor.target == "a"


def test_pattern_that_asks_for_a_shape() -> None:
    with pytest.raises(TraceError) as caught:
        find_matches(fx.symbolic_trace(lambda x: x.T, x="f32[3,4]"), lambda x: x.T)
    assert "traced without types" in caught.value.__notes__[0]
    gm = fx.symbolic_trace(lambda x: x.T, x="f32[3,4]")
    assert len(find_matches(gm, lambda x: ops.permute(x, axes=(1, 0)))) == 1


def test_search_among_orders_ends() -> None:
    """Twenty sums of products that differ in the last number alone: 2**19 orders."""

    def build(last: float) -> Any:
        def program(x: Any) -> Any:
            terms = [x * float(i + 2) for i in range(19)] + [x * last]
            while len(terms) > 1:
                terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + terms[len(terms) & ~1 :]
            return terms[0]

        return program

    gm = fx.symbolic_trace(build(50.0), x="f32[3]")
    assert not find_matches(gm, build(51.0)) and len(find_matches(gm, build(50.0))) == 1


@pytest.mark.parametrize(
    ("pattern", "program", "bound"),
    [
        (lambda x, axis: x.sum(axis=axis), lambda x: x.sum(axis=1), {"axis": 1}),
        (lambda x, a, b: x.sum(axis=(a, b)), lambda x: x.sum(axis=(1, 0)), {"a": 1, "b": 0}),
        (lambda x, low, high: x.clip(low, high), lambda x: x.clip(0.5, 6), {"low": 0.5, "high": 6}),
        (lambda x, low: np.tanh(x.clip(low)), lambda x: np.tanh(x.clip(0.5)), {"low": 0.5}),
        (lambda x, d: x.astype(d), lambda x: x.astype("f64"), {"d": fx.dtypes.dtype("f64")}),
        (lambda x, s: x.reshape(s), lambda x: x.reshape(3, 2), {"s": (3, 2)}),
        (lambda x, a, b: x.reshape(a, b), lambda x: x.reshape(3, 2), {"a": 3, "b": 2}),
        (lambda x, dim: F.softmax(x, dim), lambda x: F.softmax(x, 1), {"dim": 1}),
        (lambda x, y, k: np.concatenate([x, y], k), lambda x: np.concatenate([x, x], 1), {"k": 1}),
        (lambda x, how: np.einsum(how, x), lambda x: np.einsum("ij->ji", x), {"how": "ij->ji"}),
    ],
)
def test_plain_parameters_bind_attributes(pattern: Any, program: Any, bound: Any) -> None:
    gm = fx.symbolic_trace(program, x="f32[2,3]")
    (match,) = fx.replace_pattern(gm, pattern, pattern)
    assert {name: match.bindings[name] for name in bound} == bound


def test_bounds_that_are_arrays_still_match() -> None:
    gm = fx.symbolic_trace(lambda x, y: x.clip(y, 6), x="f32[3]", y="f32[3]")
    (match,) = fx.replace_pattern(gm, lambda x, a, b: x.clip(a, b), lambda x, a, b: x + a * b)
    assert match.bindings["a"].name == "y" and match.bindings["b"] == 6
