"""The rewriter, constants, equal values and hooks as torch.fx has them: the same programs, patterns
and replacements in both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.passes.rewrite.match import find_matches

pytest.importorskip("torch", reason="compared with torch.fx (extra 'torch')")
import torch
from torch.fx import subgraph_rewriter as their_rewriter
from torch.fx.experimental.const_fold import split_const_subgraphs as their_split_const
from torch.fx.passes.dialect.common.cse_pass import CSEPass as TheirCSEPass
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher as TheirMatcher

from tests.torch_fx import OURS, TORCH, X, assert_alike, structure, traced

PAIR = ((TORCH, their_rewriter), (OURS, passes))


def program(m: Any, x: Any) -> Any:
    a = m.tanh(m.sin(x) + 1)
    b = m.tanh(m.sin(a) + 2)
    return m.cos(b)


def names(matches: Any) -> list[str]:
    return [next(iter(m.returning_nodes)).name for m in matches]


def patterns(m: Any) -> tuple[Any, Any]:
    return (lambda x: m.tanh(m.sin(x) + 1)), (lambda x: m.exp(x))


@pytest.mark.parametrize("ignore_literals", [False, True])
def test_replace_pattern_with_filters(ignore_literals: bool) -> None:
    seen: list[Any] = []

    def accept(match: Any, graph: Any, pattern_graph: Any) -> bool:
        (inner,) = [n for n in pattern_graph.nodes if n.name == "sin"]
        seen.append((match.nodes_map[inner].name, match.placeholder_nodes[0].name))
        assert match.nodes_map[inner].graph is graph
        return len(match.nodes_map) >= 4

    pair = traced(program)
    for gm, (m, library) in zip(pair, PAIR):
        pattern, replacement = patterns(m)
        found = library.replace_pattern_with_filters(gm, pattern, replacement, [accept], ignore_literals)
        assert len(found) == 1 + ignore_literals
        assert all(len(match.replacements) == 1 for match in found)
    assert_alike(*pair, X)
    assert seen[: len(seen) // 2] == [("sin", "x0"), ("sin_1", "tanh")][: 1 + ignore_literals]


def test_filters_turn_matches_down() -> None:
    for gm, (m, library) in zip(traced(program), PAIR):
        pattern, replacement = patterns(m)
        kept = library.replace_pattern_with_filters(
            gm, pattern, replacement, [lambda match, graph, pattern: True, lambda match, graph, pattern: False]
        )
        assert not kept


def test_a_replacement_for_each_match() -> None:
    """exp where the match is the first, otherwise tanh."""
    pair = traced(program)
    for gm, (m, library) in zip(pair, PAIR):

        def replacement(match: Any, graph: Any, pattern: Any) -> Any:
            is_first = match.placeholder_nodes[0].op == "placeholder"
            function = m.exp if is_first else m.cos  # noqa: B023
            return m.fx.symbolic_trace(lambda x: function(x)).graph  # noqa: B023

        library.replace_pattern_with_filters(gm, patterns(m)[0], None, None, True, replacement_callback=replacement)
    assert_alike(*pair, X)
    with pytest.raises(fx.errors.ArgumentError, match="either replacement, or"):
        passes.replace_pattern_with_filters(pair[1], patterns(OURS)[0])


def test_parameters_of_replacements_go_by_place() -> None:
    pair = traced(lambda m, x, y: m.sin(x) + m.cos(y), 2)
    for gm, (m, library) in zip(pair, PAIR):
        library.replace_pattern_with_filters(
            gm,
            lambda x, y: m.sin(x) + m.cos(y),  # noqa: B023
            lambda y, x: m.sin(y) * m.tanh(x),  # noqa: B023
        )
    assert_alike(*pair, X, X * 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"match_output": True},
        {"match_placeholder": True},
        {"ignore_literals": True},
        {"remove_overlapping_matches": False},
    ],
    ids=str,
)
def test_subgraph_matcher(options: dict[str, bool]) -> None:
    def chain(m: Any, x: Any) -> Any:
        return m.sin(m.sin(m.sin(m.sin(x) + 1) + 2))

    found = []
    for gm, m in zip(traced(chain), (TORCH, OURS)):
        pattern = m.fx.symbolic_trace(lambda x: m.sin(m.sin(x) + 1)).graph  # noqa: B023
        matcher = (TheirMatcher if m is TORCH else passes.SubgraphMatcher)(pattern, **options)
        matches = matcher.match(gm.graph)
        assert all(set(match.nodes_map) >= set(list(pattern.nodes)[:-1]) for match in matches)
        found.append(names(matches))
    assert found[0] == found[1]


def test_names_of_a_pattern() -> None:
    def pattern(x: Any) -> Any:
        total = F.sin(x) if hasattr(F, "sin") else np.sin(x)
        return np.tanh(total + 1), {"sin": total}

    gm = traced(program)[1]
    matcher = passes.SubgraphMatcherWithNameNodeMap(fx.symbolic_trace(pattern))
    (match,) = matcher.match(gm.graph)
    assert match.name_node_map["sin"].name == "sin"
    with pytest.raises(fx.errors.ArgumentError, match="returns its results and a dict"):
        passes.SubgraphMatcherWithNameNodeMap(fx.symbolic_trace(lambda x: np.tanh(x)))


# -- what patterns mean ---------------------------------------------------------------------------
def test_a_parameter_that_stands_for_an_attribute() -> None:
    gm = fx.symbolic_trace(lambda x: x.sum(axis=1) + np.sum(x, 0)[:2] * F.softmax(x, -1)[0, :2], x="f32[2,3]")
    found = find_matches(gm, lambda axis, x: x.sum(axis=axis))
    assert [m.bindings["axis"] for m in found] == [1, 0]
    assert [m.bindings["n"] for m in find_matches(gm, lambda x, n: F.softmax(x, n))] == [-1]
    again = fx.replace_pattern(gm, lambda axis, x: x.sum(axis=axis), lambda axis, x: x.max(axis))
    assert len(again) == 2
    x = np.float32([[1, 5, 2], [4, 3, 6]])
    softmax = F.softmax(x, -1)[0, :2]
    np.testing.assert_allclose(gm(x), x.max(1) + x.max(0)[:2] * softmax, rtol=1e-6)
    with pytest.raises(fx.errors.ArgumentError, match="as an attribute"):
        find_matches(gm, lambda x, axis: ops.softmax(x, axis + 1))
    with pytest.raises(fx.errors.TraceError, match="if, while"):
        find_matches(gm, lambda x, flag: x.sum() if flag == 0 else x)


def test_weights_of_a_pattern_match_any() -> None:
    gm = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)), x="f32[B,3]")
    pattern = nn.Linear(3, 4)
    assert len(find_matches(gm, pattern)) == len(find_matches(gm, nn.Linear(7, 2))) == 2
    assert not find_matches(gm, pattern, same_weights=True)
    assert not find_matches(gm, nn.Linear(3, 4, bias=False))
    twice = fx.symbolic_trace(lambda x: x * np.float32([1, 2]) + np.float32([3, 4]), x="f32[2]")

    class SameTwice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(np.ones(2, np.float32))

        def forward(self, x: Any) -> Any:
            return x * self.w + self.w

    assert not find_matches(twice, SameTwice())
    leaf = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), leaf=[nn.Linear])
    same = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3)), leaf=[nn.Linear])
    assert len(find_matches(leaf, same)) == 2
    assert not find_matches(leaf, same, same_weights=True)


# -- equal values and constants --------------------------------------------------------------------
@pytest.mark.parametrize("banned", [(), ("sin",)])
def test_cse(banned: tuple[str, ...]) -> None:
    theirs, mine = traced(lambda m, x: (m.sin(x) + m.sin(x)) * (m.cos(x) + m.cos(x)))
    ban = {getattr(torch, name) for name in banned}
    a = TheirCSEPass(banned_ops=ban)(theirs)
    b = passes.CSEPass(banned_ops={getattr(ops, name) for name in banned})(mine)
    assert b is not None and b.modified == a.modified
    assert_alike(a.graph_module, b.graph_module, X)
    again = passes.CSEPass(banned)(b.graph_module)
    assert again is not None and not again.modified and again.graph_module is b.graph_module
    assert ops.dropout in passes.get_CSE_banned_ops()


@pytest.mark.parametrize("skip", [False, True])
def test_constants(skip: bool) -> None:
    weight = np.float32([[1, 2, 3]])

    class Theirs(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor(weight))

        def forward(self, x: Any) -> Any:
            return x * torch.cos(torch.sin(self.w))

    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(weight)

        def forward(self, x: Any) -> Any:
            return x * np.cos(np.sin(self.w))

    def is_cos(node: Any) -> bool:
        return skip and node.name == "cos"

    a = their_split_const(torch.fx.symbolic_trace(Theirs()), is_cos)
    b = passes.split_const_subgraphs(fx.symbolic_trace(Mine(), x="f32[2,3]"), is_cos)
    np.testing.assert_allclose(b(X), a(torch.tensor(X)).detach().numpy(), rtol=1e-6)
    kept = [[n.name for n in g.graph.nodes if n.op == "call_function"] for g in (a, b)]
    assert kept[0] == kept[1] == (["cos", "mul"] if skip else ["mul"])
    (made,) = b.graph.find_nodes(op="get_attr")
    assert made.meta["from"] == (("const_fold", "sin" if skip else "cos"),)


# -- hooks ----------------------------------------------------------------------------------------
def test_hooks() -> None:
    logs = []
    for gm, m in zip(traced(program), (TORCH, OURS)):
        log: list[Any] = []
        hooks = {
            "create": lambda node: log.append(("create", node.name)),  # noqa: B023
            "erase": lambda node: log.append(("erase", node.name)),  # noqa: B023
            "replace": lambda old, new, user: log.append((old.name, new, user.name)),  # noqa: B023
        }
        prefix = "_" if m is TORCH else ""
        for kind, hook in hooks.items():
            getattr(gm, f"{prefix}register_{kind}_node_hook")(hook)
        (sin,) = [n for n in gm.graph.nodes if n.name == "sin"]
        with gm.graph.inserting_after(sin):
            new = gm.graph.call_function(ops.cos if m is OURS else torch.cos, (sin.args[0],))
        sin.replace_all_uses_with(new)
        gm.graph.erase_node(sin)
        for kind, hook in hooks.items():
            getattr(gm, f"{prefix}unregister_{kind}_node_hook")(hook)
        new.replace_all_uses_with(new.args[0])
        logs.append(log)
    assert logs[0] == logs[1] == [("create", "cos_1"), ("sin", "cos_1", "add"), ("erase", "sin")]
    with pytest.raises(fx.errors.ArgumentError, match="is not a hook for create"):
        fx.symbolic_trace(np.sin).unregister_create_node_hook(print)


def test_hooks_stay_with_the_module_and_cost_nothing_without() -> None:
    gm = traced(program)[1]
    seen: list[str] = []
    gm.register_create_node_hook(lambda node: seen.append(node.name))
    gm.graph = fx.symbolic_trace(lambda x: np.tanh(x), x="f32[2,3]").graph
    (tanh,) = gm.graph.find_nodes(op="call_function")
    with gm.graph.inserting_after(tanh):
        gm.graph.call_function(ops.exp, (tanh,))
    with gm.copy().graph.inserting_before():
        pass
    assert seen == ["exp"]
    plain = fx.Graph()
    assert plain._store.record == plain.journal.records.append


def test_observer(tmp_path: Path) -> None:
    gm = traced(program)[1]
    before = passes.GraphTransformObserver.get_current_pass_count()
    observer = passes.GraphTransformObserver(gm, "to exp", log_url=tmp_path)
    pattern, replacement = patterns(OURS)
    found = observer.apply_gm_pass(lambda m: fx.replace_pattern(m, pattern, replacement))
    assert len(found) == 1
    assert observer.created_nodes == {"exp"} and observer.erased_nodes == {"sin", "add", "tanh"}
    assert passes.GraphTransformObserver.get_current_pass_count() == before + 1
    stem = f"pass_{before + 1}_to_exp"
    assert {p.name for p in tmp_path.iterdir()} == {f"{stem}_input_graph.dot", f"{stem}_output_graph.dot"}
    quiet = passes.GraphTransformObserver(gm, "nothing")
    assert quiet.apply_graph_pass(structure) == structure(gm.graph)
    assert not quiet.created_nodes | quiet.erased_nodes
