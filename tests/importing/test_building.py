"""Building graphs that no program is traced for, by hand and by an importer: arrays as arguments,
several results, names that Python does not allow, and places that are the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import GraphError, ModelImportError
from fxlite.base.location import Location, Scope
from fxlite.importing.importer import Importer, Names, Weights, class_name, scope_path, valid_name

MATRIX = np.arange(12, dtype=np.float32).reshape(4, 3)


def test_arrays_are_arguments_and_results_are_parts() -> None:
    graph = fx.Graph()
    x = graph.placeholder("input:0", fx.parse_type("f32[2,4]"))
    product = graph.call_function(fx.ops.matmul, (x, MATRIX))
    halves = graph.parts(graph.call_function(fx.ops.split, (product, (1, 2), 1)))
    both = graph.call_function(fx.ops.concat, ([halves[1], np.ones((2, 1), np.float32)], 1))
    graph.output(both)
    assert [str(p.type) for p in halves] == ["f32[2,1]", "f32[2,2]"]
    gm = fx.GraphModule(graph.owning_module or fx.nn.Module(), graph)
    given = np.ones((2, 4), np.float32)
    expected = np.concatenate([(given @ MATRIX)[:, 1:], np.ones((2, 1), np.float32)], axis=1)
    np.testing.assert_array_equal(gm(given), expected)
    np.testing.assert_array_equal(gm(input_0=given), expected)
    assert graph.placeholders[0].meta["original_name"] == "input:0"
    assert str(graph.call_function(fx.ops.where, (True, MATRIX, 0.0)).type) == "f32[4,3]"
    with pytest.raises(GraphError, match="has one result"):
        graph.parts(product)


def test_an_origin_is_the_model_s() -> None:
    graph = fx.Graph()
    place = Location(resolved=("model.onnx", 7, "Relu", "Relu(x)"))
    with graph.with_origin(scope=Scope("layers.0", "Layer"), loc=place):
        x = graph.placeholder("x", fx.parse_type("f32[B]"))
    relu = graph.call_function(fx.ops.relu, (x,))
    assert x.loc is place and str(x.scope) == "layers.0 (Layer)"
    assert relu.loc is not None and relu.loc.short.startswith("test_building.py")
    with graph.with_origin(x):
        assert graph.call_function(fx.ops.abs, (relu,)).loc is place


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("x", "x"),
        ("onnx::MatMul_12", "onnx_MatMul_12"),
        ("input:0", "input_0"),
        ("class", "class_"),
        ("3", "value_3"),
        ("", "value"),
        ("self", "self_"),
    ],
)
def test_valid_names(text: str, name: str) -> None:
    assert valid_name(text) == name


def test_names_are_taken_once() -> None:
    names = Names(taken=["B"])
    assert [names.of(t) for t in ("a.b", "a/b", "a.b", "B")] == ["a_b", "a_b_1", "a_b", "B_1"]
    assert names.renamed == {"a_b": "a.b", "a_b_1": "a/b", "B_1": "B"}


def test_scopes() -> None:
    assert scope_path("/layers.0/self-attn//") == "layers.0.self_attn"
    assert scope_path("/net/net.0/net.0.1/act") == "net.0.1.act"
    assert [class_name(p) for p in ("layers.0.self_attn", "layers.0", "")] == ["SelfAttn", "Layers", "Block"]


def test_weights_keep_names_and_memory() -> None:
    weights = Weights(fx.nn.Module())
    kept = weights.add("layers.0.proj.weight", MATRIX)
    assert np.shares_memory(kept, MATRIX) and isinstance(kept, fx.nn.Parameter)
    weights.add("layers.0.proj", np.float32(3).reshape(1))  # its place is taken by a module
    weights.add("steps", np.array([1, 2]))
    weights.add("steps.weight", MATRIX)  # and this one's by an array
    weights.add("forward", MATRIX)
    weights.add("onnx::MatMul_7", MATRIX)
    assert weights.paths == {
        "layers.0.proj.weight": "layers.0.proj.weight",
        "layers.0.proj": "layers.0.proj_1",
        "steps": "steps",
        "steps.weight": "steps_weight",
        "forward": "forward_1",
        "onnx::MatMul_7": "onnx_MatMul_7",
    }
    assert [n for n, _ in weights.root.named_buffers()] == ["steps"]
    assert all(np.shape(weights.root.get_attribute(path)) for path in weights.paths.values())


def imported(run: Any) -> fx.GraphModule:
    made = Importer("ONNX", "/models/tiny.onnx", "tiny-model")
    made.weights.add("layers.0.weight", MATRIX)
    made.add_input("input:0", fx.parse_type("f32[B,4]"))
    return made.trace(lambda x: run(made, x))


def test_an_importer_traces() -> None:
    def run(made: Importer, x: Any) -> Any:
        place = made.place(1, "MatMul", "y = MatMul(x, w)")
        with made.step("MatMul (/layers.0/MatMul)", made.scope(scope_path("/layers.0")), place):
            y = np.matmul(x, made.root.get_attribute("layers.0.weight"))
        made.name_result(y, "logits:0")
        return y, made.as_proxy(np.array([*x.shape, 3], object))

    gm = imported(run)
    logits = next(n for n in gm.graph.nodes if n.name == "logits_0")
    assert str(logits.scope) == "layers.0 (Layers)" and str(logits.loc) == "/models/tiny.onnx:1"
    assert {n.loc.file for n in gm.graph.nodes if n.loc} == {"/models/tiny.onnx"}
    assert np.shares_memory(gm.get_attribute("layers.0.weight"), MATRIX)
    given = np.ones((2, 4), np.float32)
    for result, sizes in (gm(given), fx.compile(gm, backend="c")(given)):
        np.testing.assert_array_equal(result, given @ MATRIX)
        np.testing.assert_array_equal(sizes, [2, 4, 3])
    assert "class Layers(nn.Module)" in gm.source() and "class TinyModel(nn.Module)" in gm.source()


def test_what_does_not_fit_names_the_node() -> None:
    def run(made: Importer, x: Any) -> Any:
        place = made.place(1, "MatMul", "y = MatMul(w, x)")
        with made.step("MatMul (/layers.0/MatMul), opset 13", None, place, wanted="a second matrix of 3 rows"):
            return np.matmul(MATRIX, x)

    with pytest.raises(ModelImportError) as caught:
        imported(run)
    text = str(caught.value)
    assert text.startswith("ONNX MatMul (/layers.0/MatMul), opset 13: matmul(f32[4,3], f32[B,4])")
    assert "/models/tiny.onnx:1: y = MatMul(w, x)" in text and "wanted: a second matrix of 3 rows" in text
