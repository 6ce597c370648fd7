"""The pass manager: order, reports, errors that name pass, node and line."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.base.errors
from fxlite import passes
from fxlite.base.errors import GraphError
from fxlite.graph.node_store import undo_erase
from fxlite.passes.base import PassError
from fxlite.passes.manager import changes_text, edited_ops
from tests.graphs import ops_of, trace


def test_registry_and_documentation() -> None:
    assert {"dce", "cse", "const_fold", "simplify", "decompose", "fuse_conv_bn"} <= set(passes.PASSES)
    for name, found in passes.PASSES.items():
        assert found.name == name and len(found.summary) > 20 and name in repr(found)


def test_manager_takes_names_passes_and_functions() -> None:
    def drop_neg(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="neg"):
            node.replace_all_uses_with(node.args[0])

    gm = trace(lambda x: -np.exp(x) + np.exp(x))
    before = gm.graph.text(full=True)
    manager = passes.PassManager(["cse", drop_neg, passes.dce], check="lint")
    done = manager(gm)
    assert ops_of(done) == ["exp", "add"] and gm.graph.text(full=True) == before
    assert [s.name for s in manager.report] == ["cse", "drop_neg", "dce"]
    assert (manager.report[0].before, manager.report[0].after) == (6, 5)
    assert manager.report[0].changes == "exp -1" and ops_of(manager.report[0].module) == ["exp", "neg", "add"]
    assert re.search(r"^cse +6 → 5 +exp -1", str(manager.report), re.M)
    with pytest.raises(PassError, match="there is no pass 'csee'; did you mean cse"):
        passes.PassManager(["csee"])


def test_a_pass_with_options() -> None:
    gm = trace(lambda x: fx.nn.functional.softmax(fx.nn.functional.gelu(x), -1))
    kept = passes.decompose.with_options(keep={"softmax"})
    assert kept.name == "decompose" and kept.examples == passes.decompose.examples
    done = passes.PassManager([kept], check="lint")(gm)
    assert "softmax" in ops_of(done) and "gelu" not in ops_of(done)
    assert "softmax" not in ops_of(passes.decompose(gm))
    with pytest.raises(fx.errors.ArgumentError, match="dce has no option 'keeps'; its options: none"):
        passes.dce.with_options(keeps=1)
    with pytest.raises(fx.errors.ArgumentError, match="its options: keep"):
        passes.decompose.with_options(keeps=1)


def test_failing_pass_names_pass_node_and_line() -> None:
    @passes.graph_pass(name="breaks_half_way")
    def breaks(gm: fx.GraphModule) -> None:
        """Erases what is still read, after it has changed something."""
        for node in gm.graph.find_nodes(op="call_function"):
            if node.target.name == "neg":
                node.replace_all_uses_with(node.args[0])
            if node.target.name == "exp":
                gm.graph.erase_node(node)

    try:
        gm = trace(lambda x: np.exp(-x) + 1)
        before = gm.graph.text(full=True)
        with pytest.raises(PassError) as caught:
            passes.PassManager(["dce", "breaks_half_way"])(gm)
        message = str(caught.value)
        assert "pass breaks_half_way failed" in message and "cannot erase exp" in message
        assert "at node exp: f32[3,4]" in message and "test_manager.py:" in message
        assert "np.exp(-x)" in message
        assert gm.graph.text(full=True) == before
        gm.graph.lint()
    finally:
        del passes.PASSES["breaks_half_way"]


def test_pass_that_leaves_an_invalid_graph_is_named() -> None:
    def two_outputs(gm: fx.GraphModule) -> None:
        gm.graph.output(gm.graph.placeholders[0])

    with pytest.raises(PassError, match="pass two_outputs left an invalid graph"):
        passes.PassManager([two_outputs])(trace(lambda x: x + 1))
    with pytest.raises(PassError, match="a pass returns a GraphModule or None, not int"):
        passes.PassManager([lambda gm: 3])(trace(lambda x: x + 1))


def test_changes_of_ops_are_counted_from_the_edits_alone() -> None:
    gm = trace(lambda x: -np.exp(x))
    graph = gm.graph
    start = len(graph.journal.records)
    (neg,) = graph.find_nodes(op="call_function", target="neg")
    neg.target = fx.ops.relu
    with graph.inserting_before(neg):
        graph.call_function("sin", (neg.args[0],))
        graph.erase_node(graph.call_function("cos", (neg.args[0],)))
    assert changes_text(edited_ops(graph, start), {}) == "neg -1, relu +1, sin +1"
    assert changes_text(edited_ops(graph, len(graph.journal.records)), {}) == "-"


def test_steps_give_the_module_after_each_pass() -> None:
    gm = trace(lambda x: (np.exp(x) + np.exp(x)) * 1)
    manager = passes.PassManager(["cse", "simplify", "dce"])
    done = manager(gm)
    assert [ops_of(s.module) for s in manager.report] == [["exp", "add", "mul"], ["exp", "add"], ["exp", "add"]]
    texts = [s.module.graph.text(full=True) for s in manager.report]
    assert done.graph.text(full=True) == texts[-1]
    assert done.undo() == "simplify" and done.graph.text(full=True) == texts[0]
    assert done.undo() == "cse" and done.graph.text(full=True) == gm.graph.text(full=True)
    assert done.redo() == "cse" and done.redo() == "simplify" and done.graph.text(full=True) == texts[-1]
    with pytest.raises(fx.errors.GraphError, match="nothing to redo"):
        done.redo()


def test_a_step_that_was_undone_says_so() -> None:
    manager = passes.PassManager(["cse", "simplify"])
    done = manager(trace(lambda x: (np.exp(x) + np.exp(x)) * 1))
    done.undo()
    with pytest.raises(fx.errors.GraphError, match="was undone since"):
        _ = manager.report[1].module


def test_a_pass_that_returns_another_module_is_reported_and_followed() -> None:
    def retrace(gm: fx.GraphModule) -> fx.GraphModule:
        (relu,) = gm.graph.find_nodes(op="call_function", target="relu")
        relu.target = fx.ops.exp
        return fx.symbolic_trace(lambda x: -x, "f32[3,4]")

    manager = passes.PassManager([retrace, "dce"], check="lint")
    done = manager(trace(lambda x: np.maximum(x, 0)))
    assert ops_of(done) == ["neg"] and manager.report[0].changes == "neg +1, relu -1"


def test_the_name_of_a_pass_of_fxlite_is_taken() -> None:
    with pytest.raises(PassError, match="cse is the name of a pass of fxlite"):

        @passes.rule
        def cse(x: object) -> object:
            return x

    assert passes.PASSES["cse"] is passes.cse


def test_a_pass_of_ones_own_may_be_defined_again() -> None:
    for _ in range(2):

        @passes.graph_pass(name="mine_again")
        def mine(gm: fx.GraphModule) -> None:
            """Does nothing, in a cell of a notebook that is run twice."""

        assert passes.PASSES.pop("mine_again") is mine
        passes.PASSES["mine_again"] = mine
    del passes.PASSES["mine_again"]


def test_a_step_has_what_its_pass_wrote() -> None:
    def own_graph(gm: fx.GraphModule) -> fx.GraphModule:
        return gm.copy()

    manager = passes.PassManager(["dce", own_graph, "simplify"], check="lint")
    done = manager(fx.symbolic_trace(lambda x: np.exp(x.T.T), x="f32[4,5]"))
    dce, own, simplify = manager.report
    assert dce.records == own.records == []
    erased = [r[1].name for r in simplify.records if isinstance(r, tuple) and r[0] is undo_erase]
    assert {"permute", "permute_1"} <= set(erased)
    done.graph.undo()
    with pytest.raises(GraphError, match="they were undone since"):
        simplify.records  # noqa: B018  a property


# -- passes as torch.fx has them -------------------------------------------------------------------
class _Renamed(passes.PassBase):
    """Gives calls of exp another target."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def requires(self, graph_module: fx.GraphModule) -> None:
        self.seen.append("requires")

    def ensures(self, graph_module: fx.GraphModule) -> None:
        self.seen.append("ensures")

    def call(self, graph_module: fx.GraphModule) -> passes.PassResult:
        found = graph_module.graph.find_nodes(op="call_function", target="exp")
        for node in found:
            node.target = "tanh"
        return passes.PassResult(graph_module, bool(found))


def _first(gm: fx.GraphModule) -> None:
    """Nothing."""


def _second(gm: fx.GraphModule) -> None:
    """Nothing."""


def test_a_pass_as_a_class() -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    item = _Renamed()
    made = passes.PassManager([item], check="lint")(gm)
    assert item.seen == ["requires", "ensures"]
    assert made.graph.find_nodes(op="call_function", target="tanh")
    assert not gm.graph.find_nodes(op="call_function", target="tanh")
    with pytest.raises(passes.PassError, match="changed the result"):
        passes.PassManager([_Renamed()])(gm)
    result = item(gm)
    assert result is not None and (result.graph_module, result.modified) == (gm, True)


def test_constraints_on_the_order() -> None:
    rule = passes.this_before_that_pass_constraint(this=_first, that=_second)
    manager = passes.PassManager([_second, "cse"], constraints=[rule], steps=2)
    manager.add_pass(_first)
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    with pytest.raises(passes.PassError, match="_second stands before _first"):
        manager(gm)
    manager.solve_constraints()
    assert [p.name for p in manager.passes] == ["cse", "_first", "_second"]
    manager(gm)
    assert len(manager.report) == 6
    manager.add_constraint(passes.this_before_that_pass_constraint(_second, _first))
    with pytest.raises(passes.PassError, match="no order of _first, _second"):
        manager.solve_constraints()


def test_further_checks_run_after_each_pass() -> None:
    def no_exp(gm: fx.GraphModule) -> None:
        assert not gm.graph.find_nodes(op="call_function", target="exp"), "exp is forbidden"

    manager = passes.PassManager([_first], check=False)
    manager.add_checks(no_exp)
    with pytest.raises(passes.PassError, match=r"_first failed.*exp is forbidden"):
        manager(fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]"))


# -- bodies of loops -------------------------------------------------------------------------------
def looped() -> fx.GraphModule:
    return fx.symbolic_trace(lambda x: fx.fori_loop(0, 3, lambda i, y: np.exp(y) * 0.5, x), "f32[3]")


def test_a_body_is_copied_once_for_all_passes_that_leave_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gm, copied, copy = looped(), list[int](), fx.Graph.copy_with_nodes

    def counted(graph: fx.Graph, *owner: Any) -> Any:
        copied.append(graph._store.n_controls)
        return copy(graph, *owner)

    monkeypatch.setattr(fx.Graph, "copy_with_nodes", counted)
    passes.PassManager(["cse", "dce", "simplify"], steps=5)(gm)
    assert sorted(copied) == [0, 1]  # the body, and the program


def test_what_a_pass_notes_in_a_body_no_other_pass_reads(registry: None) -> None:
    found: list[bool] = []

    def note(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="exp"):
            found.append("noted" in node.meta)
            node.meta["noted"] = True

    passes.PassManager([passes.graph_pass(note)], steps=3)(looped())
    assert found == [False] * 3
