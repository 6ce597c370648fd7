"""What the neighbours get wrong and fxlite must not: docs/design.md, section 9, row by row.

Each test is named after a row of that table and shows the program that goes wrong elsewhere
(torch.fx of torch 2.13).
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops, passes
from fxlite.base.errors import GraphError
from fxlite.graph.node import set_next, set_prev, set_users
from fxlite.passes import quantize as q
from tests.graphs import ops_of
from tests.oracle import agree
from tests.work import assert_linear

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_in_place_write_to_an_input_survives_dead_code_elimination() -> None:
    def program(x: Any) -> Any:
        x[...] *= 0
        return x

    written, given = passes.dce(fx.symbolic_trace(program, x="f32[3,4]")), X.copy()
    assert np.array_equal(written(given), np.zeros_like(X)) and not given.any()

    def on_a_copy(x: Any) -> Any:
        y = x.copy()
        y[...] *= 0
        return y

    gm = passes.dce(fx.symbolic_trace(on_a_copy, x="f32[3,4]"))
    assert np.array_equal(gm(X), np.zeros_like(X))


def test_write_through_a_view_is_not_lost() -> None:
    def program(x: Any) -> Any:
        z = x * 1.5
        y = z[0]
        y += 1
        return z

    expected = X * np.float32(1.5)
    expected[0] += 1
    assert np.array_equal(fx.symbolic_trace(program, x="f32[3,4]")(X), expected)
    agree(program, X)


@pytest.mark.parametrize(
    ("pattern", "program"),
    [
        (lambda a, b: a * b, lambda x: x * x),
        (lambda x: F.softmax(x, 1), lambda x: ops.softmax(x, axis=1)),
        (lambda a, b: F.relu(a) + b, lambda x: np.exp(x) + np.maximum(x, 0)),
    ],
    ids=["a*b on x*x", "softmax(x, 1) on axis=1", "relu(a)+b on y+relu(x)"],
)
def test_pattern_matches_once(pattern: Any, program: Any) -> None:
    gm = fx.symbolic_trace(program, x="f32[3,4]")
    assert len(passes.find_matches(gm, pattern)) == 1


def test_pattern_finds_relu_in_four_spellings() -> None:
    relu = nn.ReLU()

    def program(x: Any) -> Any:
        return relu(x) + F.relu(x + 1) + np.maximum(x + 2, 0) + (x + 3).clip(0)

    gm = fx.symbolic_trace(program, x="f32[3,4]")
    assert len(passes.find_matches(gm, lambda x: np.maximum(x, 0))) == 4


def test_replace_pattern_is_linear() -> None:
    def make(matches: int) -> fx.GraphModule:
        def program(x: Any) -> Any:
            for _ in range(matches):
                x = np.maximum(x, 0) + 1.0
            return x

        return fx.symbolic_trace(program, x="f32[4]", loops="unroll")

    def replace(gm: fx.GraphModule) -> None:
        matches = len(gm.graph.find_nodes(op="call_function", target="add"))
        found = fx.replace_pattern(gm, lambda x: np.maximum(x, 0) + 1.0, lambda x: np.exp(x))
        assert len(found) == matches > 0

    assert_linear(make, replace, 400)


def test_fold_conv_bn_where_the_conv_is_called_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)
            self.bn.running_var[:] = [4, 9]

        def forward(self, x: Any) -> Any:
            return self.bn(self.conv(x)) + self.conv(x + 1)

    model = Twice().eval()
    x = np.random.default_rng(1).standard_normal((1, 2, 3, 3)).astype(np.float32)
    gm = passes.fuse_conv_bn(fx.symbolic_trace(model, x="f32[B,2,3,3]"))
    np.testing.assert_allclose(gm(x), model(x), rtol=1e-4, atol=1e-5)
    assert "batch_norm" not in ops_of(gm)

    class Shared(Twice):
        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return self.bn(y) + y

    shared = Shared().eval()
    gm = passes.fuse_conv_bn(fx.symbolic_trace(shared, x="f32[B,2,3,3]"))
    np.testing.assert_allclose(gm(x), shared(x), rtol=1e-4, atol=1e-5)
    (refusal,) = passes.ledger(gm)
    assert "is read by" in refusal.reason


def facts(gm: fx.GraphModule) -> Any:
    return [
        (n.name, n.op, n.target, str(n.args), str(n.kwargs), n.type, n.scope, n.loc, n.meta) for n in gm.graph.nodes
    ]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        h = self.drop(np.maximum(self.fc(x), 0))
        h[0] += 1
        return h


def test_save_and_load_give_the_identical_graph(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(Small(), x="f32[3,4]")
    next(iter(gm.graph.nodes)).meta["note"] = "kept"
    fx.save(gm, tmp_path / "small.fxl")
    for loaded in (fx.load(tmp_path / "small.fxl"), pickle.loads(pickle.dumps(gm))):
        assert facts(loaded) == facts(gm)


def test_transformer_copy_and_replace_pattern_keep_provenance() -> None:
    gm = fx.symbolic_trace(Small().eval(), x="f32[3,4]")
    for node in gm.graph.nodes:
        node.meta["mark"] = node.name
    assert facts(fx.Transformer(gm).transform()) == facts(gm) == facts(gm.copy())
    (relu,) = gm.graph.find_nodes(op="call_function", target="relu")
    scope, loc = relu.scope, relu.loc
    (match,) = fx.replace_pattern(gm, lambda x: np.maximum(x, 0), lambda x: np.exp(x))
    (new,) = match.replacements
    assert (new.scope, new.loc) == (scope, loc) and new.loc is not None


def test_pass_that_raises_half_way_is_rolled_back() -> None:
    def breaks(gm: fx.GraphModule) -> None:
        for node in list(gm.graph.nodes):
            if node.op == "call_function":
                node.replace_all_uses_with(gm.graph.placeholders[0])
                gm.graph.erase_node(node)
                raise RuntimeError("enough")

    gm = fx.symbolic_trace(lambda x: np.exp(x) + 1, x="f32[3,4]")
    before = facts(gm)
    with pytest.raises(passes.PassError, match=r"(?s)pass breaks.*node exp.*test_neighbours.py"):
        passes.PassManager([breaks])(gm)
    with pytest.raises(RuntimeError), gm.graph.transaction("by hand"):
        breaks(gm)
    assert facts(gm) == before
    gm.graph.lint(full=True)


def wrong_arity(graph: fx.Graph) -> None:
    (exp,) = graph.find_nodes(target=ops.exp)
    graph._store.assign(exp, (exp.args[0], exp.args[0]), exp._kwargs)


def missing_output(graph: fx.Graph) -> None:
    graph.erase_node(graph.output_node())


def second_output(graph: fx.Graph) -> None:
    graph.output(graph.placeholders[0])


def after_output(graph: fx.Graph) -> None:
    with graph.inserting_after(graph.output_node()):
        graph.call_function("neg", (graph.placeholders[0],))


def corrupted_users(graph: fx.Graph) -> None:
    set_users(graph.placeholders[0], None)


def a_user_that_reads_nothing(graph: fx.Graph) -> None:
    set_users(graph.output_node().args[0], {n: None for n in graph.nodes if n.op != "placeholder"})


def wrong_order(graph: fx.Graph) -> None:
    graph.placeholders[0].prepend(graph.find_nodes(target=ops.exp)[0])


def wrong_type(graph: fx.Graph) -> None:
    graph._store.set_field(graph.find_nodes(target=ops.exp)[0], "type", fx.parse_type("f32[9]"))


def doubled_name(graph: fx.Graph) -> None:
    graph._store.set_field(graph.find_nodes(target=ops.exp)[0], "name", "x")


def dangling_weight(graph: fx.Graph) -> None:
    with graph.inserting_before(graph.output_node()):
        graph.get_attr("no.such.weight", fx.parse_type("f32[2]"))


def foreign_argument(graph: fx.Graph) -> None:
    other = fx.symbolic_trace(lambda x: x, x="f32[3,4]").graph.placeholders[0]
    (exp,) = graph.find_nodes(target=ops.exp)
    graph._store.assign(exp, (other,), exp._kwargs)


def cut_list(graph: fx.Graph) -> None:
    x, output = graph.placeholders[0], graph.output_node()
    set_next(x, output)
    set_prev(output, x)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (wrong_arity, "node exp.*takes 1"),
        (missing_output, "no output"),
        (second_output, "second output"),
        (after_output, "node neg.*after the output"),
        (corrupted_users, "reads x but is not among its users"),
        (a_user_that_reads_nothing, "lists exp as a user, which does not read it"),
        (wrong_order, "node exp.*before it is computed"),
        (wrong_type, r"node exp: f32\[9\].*rule gives f32\[3,4\]"),
        (doubled_name, "same name"),
        (dangling_weight, "no.such.weight"),
        (foreign_argument, "reads x, which is not in this graph"),
        (cut_list, "counts 4 nodes, but lists 2"),
    ],
)
def test_lint_finds(damage: Any, message: str) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x) + 1, x="f32[3,4]")
    gm.graph.lint()
    damage(gm.graph)
    with pytest.raises(GraphError, match=message):
        gm.graph.lint(full=True)


@pytest.mark.parametrize("damage", [wrong_arity, wrong_order, wrong_type, dangling_weight])
def test_lint_of_the_edits_alone_finds_too(damage: Any) -> None:
    gm = fx.symbolic_trace(lambda x: np.exp(x) + 1, x="f32[3,4]")
    gm.graph.lint()
    damage(gm.graph)
    with pytest.raises(GraphError):
        gm.graph.lint()


def test_a_linear_and_a_convolution_are_different_and_it_says_where() -> None:
    linear = fx.symbolic_trace(nn.Sequential(nn.Linear(4, 4)), x="f32[4,4,4,4]")
    conv = fx.symbolic_trace(nn.Sequential(nn.Conv2d(4, 4, 1)), x="f32[4,4,4,4]")
    assert linear.graph != conv.graph
    with pytest.raises(AssertionError, match=r"(?s)linear.*conv2d"):
        fx.assert_same(linear, conv)


def test_shapes_are_right_after_an_edit() -> None:
    gm = fx.symbolic_trace(lambda x: (np.exp(x).T + 1).sum(axis=0), x="f32[3,4]")
    assert str(gm.graph.output_node().type) == "f32[3]"
    (permute,) = gm.graph.find_nodes(op="call_function", target="permute")
    permute.replace_all_uses_with(permute.args[0])
    assert str(gm.graph.output_node().type) == "f32[4]"


MODEL = """\
from __future__ import annotations
import numpy as np
from fxlite import nn
from tests.work import assert_linear

def twice(x: np.ndarray) -> np.ndarray:
    return x * 2

class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())

    def forward(self, x: np.ndarray) -> np.ndarray:
        return twice(self.l(x))
"""


def test_regenerated_folder_imports_in_a_fresh_process(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "made_here"}
    exec(MODEL, namespace)
    model = namespace["Model"]()
    gm = fx.symbolic_trace(model, x="f32[3,4]")
    gm.to_folder(str(tmp_path / "regenerated"), "Model")
    np.savez(tmp_path / "io.npz", x=X, y=model(X))
    script = (
        "import sys, numpy as np; sys.path.insert(0, sys.argv[1] + '/regenerated');"
        "from model import Model;"
        "io = np.load(sys.argv[1] + '/io.npz'); y = Model.load()(io['x']);"
        "np.testing.assert_allclose(y, io['y'], rtol=1e-5, atol=1e-6); print('same')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr
    source = "".join(p.read_text() for p in (tmp_path / "regenerated").glob("*.py"))
    assert "self.l(x)" in source and "pickle" not in source and "getattr(" not in source
    assert any(p.suffix == ".safetensors" for p in (tmp_path / "regenerated").iterdir())


def test_dropout_traced_while_training_is_off_after_eval() -> None:
    model = Small().train()
    gm = fx.symbolic_trace(model, x="f32[3,4]")
    gm.eval()
    expected = np.maximum(model.fc(X), 0)
    expected[0] += 1
    np.testing.assert_allclose(gm(X), expected, rtol=1e-6)
    gm.train()
    zeros = (expected[1:] == 0).sum()
    assert any((gm(X)[1:] == 0).sum() > zeros for _ in range(20)), "nothing was dropped"


def test_quantization_config_with_a_misspelled_module_name() -> None:
    gm = fx.symbolic_trace(Small().eval(), x="f32[B,4]")
    mapping = q.QConfigMapping().set_module_name("fcc", q.static_int8())
    with pytest.raises(q.QConfigError, match="there is no module 'fcc'; did you mean fc"):
        q.prepare(gm, mapping)


def test_convert_without_calibration_lists_the_observers() -> None:
    gm = fx.symbolic_trace(Small().eval(), x="f32[B,4]")
    prepared = q.prepare(gm, q.QConfigMapping().set_global(q.static_int8()))
    with pytest.raises(q.QuantizationError, match=r"not calibrated.*\n.*x \(test_neighbours"):
        q.convert(prepared)
