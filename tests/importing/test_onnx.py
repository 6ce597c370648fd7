"""ONNX models become graphs: official cases over all ops, names, scopes, sizes, weights, errors.

All official cases: python -m tests.onnx_cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, ModelImportError
from fxlite.importing.onnx.model import coverage
from tests.graphs import ops_of

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests import onnx_cases  # noqa: E402

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(0)


def value(name: str, shape: Any, kind: int = F32) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Any, inputs: Any, outputs: Any, weights: Any = (), opset: int = 21, **options: Any) -> Any:
    held = [numpy_helper.from_array(array, name) for name, array in dict(weights).items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, held)
    domains = [helper.make_opsetid("", opset), *options.pop("domains", ())]
    return helper.make_model(graph, opset_imports=domains, **options)


def encoder(text: str = "batch") -> Any:
    """Two layers, with names as exporters write them, and shape arithmetic."""
    weights, nodes, x = {}, [], "x"
    for i in range(2):
        weights[f"layers.{i}.proj.weight"] = RNG.standard_normal((8, 8)).astype(np.float32)
        weights[f"layers.{i}.proj.bias"] = np.ones(8, np.float32)
        path = f"/layers.{i}"
        nodes += [
            helper.make_node("MatMul", [x, f"layers.{i}.proj.weight"], [f"m{i}"], name=f"{path}/proj/MatMul"),
            helper.make_node("Add", [f"m{i}", f"layers.{i}.proj.bias"], [f"a{i}"], name=f"{path}/proj/Add"),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"], name=f"{path}/act/Relu"),
        ]
        x = f"r{i}"
    nodes += [
        helper.make_node("Shape", [x], ["shape"], name="/Shape"),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], name="/Gather"),
        helper.make_node("Unsqueeze", ["rows", "axes"], ["rows1"], name="/Unsqueeze"),
        helper.make_node("Concat", ["rows1", "rest"], ["goal"], axis=0, name="/Concat"),
        helper.make_node("Reshape", [x, "goal"], ["logits:0"], name="/Reshape"),
    ]
    weights |= {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([2, -1])}
    return model(nodes, [value("x", [text, "seq", 8])], [value("logits:0", None)], weights)


def test_a_model_keeps_its_names_scopes_and_sizes() -> None:
    gm = fx.from_onnx(encoder())
    assert "seq" in gm.graph.input_dims and "batch" in gm.graph.input_dims
    relu = gm.graph.find_nodes(op="call_function", target="relu")[1]
    assert str(relu.scope) == "layers.1.act (Act)" and relu.loc.expression == "r1 = Relu(a1)"
    ops = ops_of(gm)
    assert ops == ["matmul", "add", "relu"] * 2 + ["reshape"], "the arithmetic of shapes is sizes"
    result = next(n for n in gm.graph.nodes if n.target is fx.ops.reshape)
    assert result.name == "logits_0" and str(result.type) == "f32[batch,2,4*seq]"
    assert sorted(gm.state_dict()) == [f"layers.{i}.proj.{w}" for i in (0, 1) for w in ("bias", "weight")]
    source = gm.source()
    assert "class Layers(nn.Module)" in source and "for " in source, "equal layers are one class and a loop"
    x = RNG.standard_normal((2, 3, 8)).astype(np.float32)
    np.testing.assert_allclose(fx.compile(gm, backend="c")(x), gm(x), rtol=1e-5)
    assert gm(x).shape == (2, 2, 12)


def test_sizes_are_numbers_other_names_or_types() -> None:
    def first(**sizes: Any) -> str:
        return str(fx.from_onnx(encoder(), sizes).graph.placeholders[0].type)

    assert first(batch=4) == "f32[4,seq,8]"
    assert first(batch="B", seq=7) == "f32[B,7,8]"
    assert first(x="f32[2,T,8]") == "f32[2,T,8]"
    assert str(fx.from_onnx(encoder("batch size"), {"batch size": "N"}).graph.placeholders[0].type) == "f32[N,seq,8]"
    odd = fx.from_onnx(encoder("batch size"))
    assert str(odd.graph.placeholders[0].type) == "f32[batch_size,seq,8]"
    assert odd.meta["imported_from"]["renamed"]["batch_size"] == "batch size"
    with pytest.raises(ArgumentError, match="did you mean 'batch'"):
        fx.from_onnx(encoder(), {"bacth": 2})
    with pytest.raises(ArgumentError, match="a size is a number"):
        fx.from_onnx(encoder(), {"batch": -1})


def test_a_shape_from_outside_has_to_be_given() -> None:
    net = model(
        [helper.make_node("Reshape", ["x", "to"], ["y"], name="/view")],
        [value("x", [2, 6]), value("to", [2], I64)],
        [value("y", None)],
    )
    with pytest.raises(ModelImportError, match=r"Reshape \(/view\), opset 21: the shape must be known.*'to': array"):
        fx.from_onnx(net)
    gm = fx.from_onnx(net, {"to": np.array([3, 4])})
    assert gm(np.ones((2, 6), np.float32)).shape == (3, 4)


def test_weights_of_a_file_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    big = RNG.standard_normal((64, 64)).astype(np.float32)
    net = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", ["B", 64])], [value("y", None)], {"w": big}
    )
    onnx.save_model(net, path, save_as_external_data=True, location="m.bin", size_threshold=0)
    gm = fx.from_onnx(path)
    base = gm.get_attribute("w")
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)
    x = np.ones((2, 64), np.float32)
    np.testing.assert_allclose(gm(x), x @ big, rtol=1e-5)
    data = onnx.load(path, load_external_data=False)
    for location in ("../m.bin", str(tmp_path / "m.bin"), "a/../../m.bin", "C:\\m.bin", "", "m\0.bin"):
        for entry in data.graph.initializer[0].external_data:
            if entry.key == "location":
                entry.value = location
        onnx.save_model(data, path) if location else path.write_bytes(data.SerializeToString())
        with pytest.raises(ModelImportError, match="outside of the model's folder"):
            fx.from_onnx(path)
    os.symlink("/etc/hostname", tmp_path / "link.bin")
    data.graph.initializer[0].external_data[0].value = "link.bin"
    path.write_bytes(data.SerializeToString())
    with pytest.raises(ModelImportError, match="outside of the model's folder"):
        fx.from_onnx(path)
    data.graph.initializer[0].external_data[0].value = "gone.bin"
    path.write_bytes(data.SerializeToString())
    with pytest.raises(ModelImportError, match="cannot be read"):
        fx.from_onnx(path)


def test_bad_models_say_what_is_wrong() -> None:
    x, y = value("x", [2, 3]), value("y", None)
    cases = {
        "not an ONNX file": b"\x0a\xff\xff",
        "has no graph and opset": b"",
        "opset 99": model([helper.make_node("Relu", ["x"], ["y"])], [x], [y], opset=99),
        r"Foo \(/n\), opset 1: neither fxlite nor the model defines this op of the domain own": model(
            [helper.make_node("Foo", ["x"], ["y"], name="/n", domain="own")],
            [x],
            [y],
            domains=[helper.make_opsetid("own", 1)],
        ),
        "read each other in no circle": model(
            [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])],
            [x],
            [value("b", None)],
        ),
        "nothing computes the output 'z'": model([helper.make_node("Relu", ["x"], ["y"])], [x], [value("z", None)]),
        "has no shape; give its type": model([helper.make_node("Relu", ["x"], ["y"])], [value("x", None)], [y]),
        r"holds text \(string\)": model(
            [helper.make_node("Identity", ["x"], ["y"])], [value("x", [1], TensorProto.STRING)], [y]
        ),
        r"MatMul, opset 21: matmul.*\n.*y = MatMul\(x, x\)": model(
            [helper.make_node("MatMul", ["x", "x"], ["y"])], [x], [y]
        ),
    }
    for message, net in cases.items():
        with pytest.raises(ModelImportError, match=f"(?s){message}"):
            fx.from_onnx(net)
    with pytest.raises(ModelImportError, match="cannot be read"):
        fx.from_onnx("no/such/file.onnx")
    with pytest.raises(ModelImportError, match="a model is a path"):
        fx.from_onnx(3)


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)])
@pytest.mark.parametrize("counts", [0, 1])
def test_windows_far_larger_than_the_image(pads: tuple[int, ...], counts: int) -> None:
    """Exporters write pools of a whole image so. What lies behind it is not traced."""
    common = {"kernel_shape": (2560, 2560), "strides": (2560, 2560), "pads": pads, "ceil_mode": 1}
    nodes = [
        helper.make_node("AveragePool", ["x"], ["mean"], count_include_pad=counts, **common),
        helper.make_node("MaxPool", ["x"], ["largest"], **common),
    ]
    gm = fx.from_onnx(model(nodes, [value("x", [1, 3, 7, 5])], [value("mean", None), value("largest", None)]))
    assert len(gm.graph) < 60
    x = RNG.standard_normal((1, 3, 7, 5)).astype(np.float32)
    mean, largest = gm(x)
    top, left, bottom, right = pads if counts else (0, 0, 0, 0)
    count = (7 + top + bottom) * (5 + left + right)
    np.testing.assert_allclose(mean, x.sum((2, 3), keepdims=True) / count, rtol=1e-5)
    np.testing.assert_array_equal(largest, x.max((2, 3), keepdims=True))


@pytest.mark.parametrize("corners", [0, 1])
def test_positions_of_one_image(corners: int) -> None:
    """The definition in ONNX squeezes away the only image."""
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=corners)
    outputs, weights = [value("y", [1, 3, 4, 2])], {"size": np.array([1, 1, 3, 4])}
    gm = fx.from_onnx(model([node], [value("theta", [1, 2, 3])], outputs, weights, opset=20))
    theta = RNG.standard_normal((1, 2, 3)).astype(np.float32)
    across, down = (np.linspace(-1, 1, k) if corners else (2 * np.arange(k) + 1) / k - 1 for k in (4, 3))
    y, x = np.meshgrid(down, across, indexing="ij")
    expected = np.stack([x, y, np.ones_like(x)], -1) @ theta[0].T
    np.testing.assert_allclose(gm(theta)[0], expected, rtol=1e-5, atol=1e-6)


def test_functions_and_control_flow() -> None:
    double = helper.make_function(
        "own", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    then = helper.make_graph([helper.make_node("Neg", ["t"], ["p"])], "then", [], [value("p", None)])
    other = helper.make_graph([helper.make_node("Abs", ["t"], ["q"])], "else", [], [value("q", None)])
    zero = numpy_helper.from_array(np.float32(0), "zero")
    net = model(
        [
            helper.make_node("Double", ["x"], ["t"], name="/block", domain="own"),
            helper.make_node("ReduceSum", ["t"], ["s"], keepdims=0),
            helper.make_node("Greater", ["s", "zero"], ["c"]),
            helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        ],
        [value("x", ["N"])],
        [value("y", None)],
        {"zero": numpy_helper.to_array(zero)},
        functions=[double],
        domains=[helper.make_opsetid("own", 1)],
    )
    gm = fx.from_onnx(net)
    assert gm.graph.find_nodes(op="call_function", target="cond")
    add = gm.graph.find_nodes(op="call_function", target="add")[0]
    assert add.scope is not None and add.scope.path == "block"
    compiled = fx.compile(gm, backend="c")
    for x in (np.array([1.0, 2.0], np.float32), np.array([-1.0, -3.0, 1.0], np.float32)):
        expected = -2 * x if x.sum() > 0 else np.abs(2 * x)
        np.testing.assert_array_equal(gm(x), expected)
        np.testing.assert_array_equal(compiled(x), expected)


def results(op: str, *arrays: Any, opset: int = 21, count: int = 1, **attributes: Any) -> Any:
    """What a model of one node gives, whose first array is its input and the others weights."""
    names = [f"x{i}" for i in range(len(arrays))]
    node = helper.make_node(op, names, [f"y{i}" for i in range(count)], **attributes)
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    outputs = [onnx.ValueInfoProto(name=f"y{i}") for i in range(count)]
    made = model([node], [value("x0", arrays[0].shape, kind)], outputs, dict(zip(names[1:], arrays[1:])), opset)
    return fx.from_onnx(made)(arrays[0])


def test_attributes_that_few_models_have() -> None:
    """As ONNX Runtime has it, or the reference where that has no kernel."""
    x = np.arange(36, dtype=np.float32).reshape(1, 4, 3, 3)
    np.testing.assert_array_equal(results("Einsum", x, equation="abii"), np.trace(x, axis1=2, axis2=3))
    np.testing.assert_array_equal(results("Einsum", x, equation="...ii->...i"), np.diagonal(x, axis1=2, axis2=3))
    nan = np.array([np.nan, 0.5, 2], np.float32)
    np.testing.assert_array_equal(results("ThresholdedRelu", nan, alpha=1.0), [0, 0, 2])
    whole = np.array([[3, 4], [100, 1]], np.int32)
    for op, expected in (("ReduceLogSum", [1, 4]), ("ReduceLogSumExp", [4, 100]), ("ReduceL2", [5, 100])):
        found = results(op, whole, np.array([1]), opset=18, keepdims=0)
        assert found.dtype == np.int32 and found.tolist() == expected
    grid = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)  # of ONNX's page of Resize in opset 10
    shrunk = results("Resize", grid, np.array([1, 1, 0.6, 0.6], np.float32), opset=10, mode="nearest")
    assert shrunk.tolist() == [[[[1, 3]]]]
    line, region = np.array([0, 1, 2, 3, 4], np.float32), np.array([0.125, 0.875], np.float32)
    places = {"round_prefer_floor": [0, 2, 3], "round_prefer_ceil": [1, 2, 4], "floor": [0, 2, 3], "ceil": [1, 2, 4]}
    for mode, expected in places.items():  # at 0.5, 2 and 3.5
        given = region, np.array([], np.float32), np.array([3])
        options = {"mode": "nearest", "nearest_mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
        assert results("Resize", line, *given, opset=13, **options).tolist() == expected, mode
    quantized, scale, point = results("DynamicQuantizeLinear", np.zeros(3, np.float32), count=3)
    assert (quantized.tolist(), float(scale), int(point)) == ([0, 0, 0], 1.0, 0)


def test_weights_are_read_at_computed_places() -> None:
    """The data is a weight, and the index or the end of a slice is computed."""
    table = RNG.standard_normal((400, 12)).astype(np.float32)
    places = RNG.integers(0, 400, (5, 7, 1))
    for op, index, expected in (
        ("GatherND", places, table[places[..., 0]]),
        ("GatherElements", places[:, :, 0], np.take_along_axis(table[:, :7], places[:, :, 0], 0)),
        ("Gather", places, table[places]),
        ("Slice", np.array([9]), table[3:9]),
    ):
        read = ["table", "start", "index"] if op == "Slice" else ["table", "index"]
        nodes = [helper.make_node("Neg", ["x"], ["index"]), helper.make_node(op, read, ["y"])]
        weights = {"table": table, "start": np.array([3])}
        made = fx.from_onnx(model(nodes, [value("x", index.shape, I64)], [onnx.ValueInfoProto(name="y")], weights))
        np.testing.assert_array_equal(made(-index), expected)
        np.testing.assert_array_equal(fx.compile(made, backend="c")(-index), expected)


def test_values_for_each_place_of_a_mask() -> None:
    """``x[mask] = values`` as torch exports it: the values are expanded to the number of places."""
    net = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (float[4, 3] x, bool[4] mask, float[2, 3] values) => (float[4, 3] y)
        <int64[1] all = {-1}, int64[1] width = {3}, int64[1] zero = {0}> {
            numbers = Cast <to = 7> (mask)
            count = ReduceSum <keepdims = 1> (numbers, zero)
            wanted = Concat <axis = 0> (count, width)
            each = Expand(values, wanted)
            places = NonZero(mask)
            index = Transpose <perm = [1, 0]> (places)
            y = ScatterND(x, index, each)
        }""")
    x, values = np.ones((4, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    mask = np.array([False, True, False, True])
    expected = x.copy()
    expected[mask] = values
    gm = fx.from_onnx(net)
    for function in (gm, fx.compile(gm)):
        np.testing.assert_array_equal(function(x, mask, values), expected)


def test_rows_that_an_expert_computes() -> None:
    """``out[mask] = expert(x[mask])`` as torch exports it: selected rows are expanded to their number."""
    net = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
        g (float[4, 3] x, bool[4] mask, bool[4] other) => (float[4, 3] y)
        <int64[1] all = {-1}, int64[1] width = {3}, int64[1] zero = {0}, float two = {2.0}> {
            numbers = Cast <to = 7> (other)
            count = ReduceSum <keepdims = 1> (numbers, zero)
            wanted = Concat <axis = 0> (count, width)
            places = NonZero(mask)
            index = Transpose <perm = [1, 0]> (places)
            rows = GatherND(x, index)
            twice = Mul(rows, two)
            each = Expand(twice, wanted)
            y = ScatterND(x, index, each)
        }""")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    gm = fx.from_onnx(net)
    for function in (gm, fx.compile(gm)):
        for mask in (np.array([False, True, False, True]), np.zeros(4, bool)):
            np.testing.assert_array_equal(function(x, mask, mask), np.where(mask[:, None], 2 * x, x))
        with pytest.raises(IndexError):  # no other number
            function(x, np.array([True, False, True, True]), np.array([True, False, False, True]))


def of_height(nodes: str) -> Any:
    """A model of ``x`` in which ``h`` is the height, as an integer, and ``f`` in float32."""
    return onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[N, 3, H, W] x) => (float[a, b, c, d] y)
        <int64[1] two = {{2}}, int64[1] zero = {{0}}, int64[1] five = {{5}}, int64[1] three = {{3}},
         float[1] one = {{1.0}}, float[1] factor = {{1.5}}, float[1] fifth = {{0.2}}, float[1] divisor = {{5.0}},
         float[1] all = {{16.0}}, float none = {{0.0}}, float step = {{1.0}}, int64[4] column = {{1, 1, -1, 1}}> {{
            s = Shape(x)
            h = Gather <axis = 0> (s, two)
            w = Gather <axis = 0> (s, three)
            f = Cast <to = 1> (h)
            {nodes}
        }}""")


#: What is computed from the height in floating point, or chosen among sizes.
FORMULAS = {
    "floor": """
        m = Mul(f, factor)
        r = Floor(m)
        i = Cast <to = 7> (r)
        n = Slice(s, zero, two)
        wanted = Concat <axis = 0> (n, i, w)
        y = Resize <mode = "linear"> (x, , , wanted)""",
    "scales": """
        t = Mul(h, two)
        tf = Cast <to = 1> (t)
        q = Div(tf, f)
        scales = Concat <axis = 0> (one, one, q, one)
        y = Resize <mode = "nearest"> (x, , scales)""",
    "ceil": """
        q = Div(f, divisor)
        r = Ceil(q)
        i = Cast <to = 7> (r)
        k = Mul(i, five)
        p = Sub(k, h)
        ps = Concat <axis = 0> (zero, zero, zero, zero, zero, zero, p, zero)
        y = Pad(x, ps)""",
    "larger": """
        m = Max(h, w)
        n = Slice(s, zero, two)
        wanted = Concat <axis = 0> (n, m, w)
        y = Resize <mode = "linear"> (x, , , wanted)""",
    "range": """
        e = Squeeze(f)
        r = Range(none, e, step)
        d = Reshape(r, column)
        y = Mul(x, d)""",
}


@pytest.mark.parametrize("name", FORMULAS)
def test_sizes_computed_in_floating_point_are_formulas(name: str) -> None:
    made = of_height(FORMULAS[name])
    gm = fx.from_onnx(made)
    for sizes in ((1, 3, 8, 10), (2, 3, 13, 10), (1, 3, 31, 10)):
        x = RNG.standard_normal(sizes).astype(np.float32)
        (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
        found = gm(x)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_size_that_rounding_decides_is_refused() -> None:
    """float32(16 / H) * H can be less than 16, and float32(0.2) * H more than H / 5."""
    scales = "q = Div(all, f)\n scales = Concat <axis = 0> (one, one, q, one)\n y = Resize(x, , scales)"
    part = "m = Mul(f, fifth)\n i = Cast <to = 7> (m)\n ps = Concat <axis = 0> (zero, zero, i, zero)\n"
    for nodes in (scales, f"{part} pads = Concat <axis = 0> (ps, ps)\n y = Pad(x, pads)"):
        with pytest.raises(ModelImportError, match="must be known while importing, but this is computed from H; give"):
            fx.from_onnx(of_height(nodes))


def test_sizes_as_int32_stay_sizes() -> None:
    """As converters from TensorFlow write them: a shape is cast, computed with, and cast back."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["si"], to=TensorProto.INT32),
        helper.make_node("Gather", ["si", "zero"], ["n"], axis=0),
        helper.make_node("Mul", ["n", "two"], ["n2"]),
        helper.make_node("Slice", ["si", "one", "three"], ["hw"]),
        helper.make_node("Unsqueeze", ["n2", "axis"], ["nu"]),
        helper.make_node("Concat", ["nu", "hw", "rest"], ["shape"], axis=0),
        helper.make_node("Cast", ["shape"], ["long"], to=TensorProto.INT64),
        helper.make_node("Concat", ["x", "x"], ["both"], axis=0),
        helper.make_node("Reshape", ["both", "long"], ["y"]),
        helper.make_node("Add", ["n2", "given"], ["sum"]),
    ]
    held = {
        "zero": np.int64(0),
        "two": np.int32(2),
        "one": np.array([1]),
        "three": np.array([3]),
        "axis": np.array([0]),
    }
    held["rest"] = np.array([-1], np.int32)
    inputs = [value("x", ["N", 2, 4, 3]), value("given", [2], TensorProto.INT32)]
    outputs = [value("y", None), value("shape", None, TensorProto.INT32), value("sum", None, TensorProto.INT32)]
    gm = fx.from_onnx(model(nodes, inputs, outputs, {k: np.asarray(v) for k, v in held.items()}))
    x, given = np.arange(72, dtype=np.float32).reshape(3, 2, 4, 3), np.array([1, 2], np.int32)
    for fn in (gm, fx.compile(gm)):
        for found, expected in zip(
            fn(x, given), (np.concatenate([x, x]), np.array([6, 2, 4, -1], np.int32), given + np.int32(6)), strict=True
        ):
            np.testing.assert_array_equal(found, expected, strict=True)


def test_what_goes_into_gates_is_clipped() -> None:
    """And not the cell's state, as in ONNX Runtime."""
    draw = np.random.default_rng(0).standard_normal
    x, w, r, h, c = (draw(s).astype(np.float32) for s in ((3, 2, 3), (1, 16, 3), (1, 16, 4), (1, 2, 4), (1, 2, 4)))
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h", "c"], ["y"], hidden_size=4, clip=0.4)
    weights = {"w": w, "r": r, "h": h, "c": c}
    gm = fx.from_onnx(model([node], [value("x", [3, 2, 3])], [value("y", None)], weights))
    own, cell, rows = h[0], c[0], []
    for step in x:
        i, o, f, g = np.split(np.clip(step @ w[0].T + own @ r[0].T, -0.4, 0.4), 4, axis=1)
        i, o, f = (1 / (1 + np.exp(-v)) for v in (i, o, f))
        cell = f * cell + i * np.tanh(g)
        own = o * np.tanh(cell)
        rows.append(own)
    for fn in (gm, fx.compile(gm)):
        np.testing.assert_allclose(fn(x), np.stack(rows)[:, None], rtol=1e-5, atol=1e-6)


def test_notes_of_an_exporter_are_places() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="n0")
    notes = {
        "pkg.torch.onnx.name_scopes": "['', 'encoder.layers.0', 'relu']",
        "pkg.torch.onnx.class_hierarchy": "['net.Net', 'net.EncoderLayer', 'aten.relu.default']",
        "pkg.torch.onnx.stack_trace": 'File "/home/me/net.py", line 31, in forward\n    return relu(x)',
    }
    for key, text in notes.items():
        entry = node.metadata_props.add()
        entry.key, entry.value = key, text
    gm = fx.from_onnx(model([node], [value("x", [2])], [value("y", None)]))
    (relu,) = gm.graph.find_nodes(op="call_function", target="relu")
    assert str(relu.scope) == "encoder.layers.0 (EncoderLayer)" and str(relu.loc) == "/home/me/net.py:31"


def test_coverage_is_known_before() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Unique", ["a"], ["b"]),
        helper.make_node("StringSplit", ["b"], ["c", "d"]),
    ]
    found = coverage(model(nodes, [value("x", [2])], [value("c", None)]))
    assert [(op, count, verdict.split(":")[0]) for op, count, verdict in found] == [
        ("StringSplit", 1, "not"),
        ("Unique", 1, "partly"),
        ("Relu", 1, "supported"),
    ]


#: One case in so many, over the sorted names, which begin with the op: some of each op.
_EACH = 12


def sample() -> list[str]:
    known = sorted(onnx_cases.cases())
    return [n for n in known[::_EACH] if not n.startswith("light_")]


def test_official_cases_in_the_graph() -> None:
    outcomes = [onnx_cases.check(name, with_c=False) for name in sample()]
    wrong = {o.name: o.graph for o in outcomes if o.graph}
    assert set(wrong) <= onnx_cases.listed(), wrong
    assert len(wrong) < 0.1 * len(outcomes)


# Not squeezenet: its weights are all one number, and a BLAS may round its equal, large scores apart.
@pytest.mark.parametrize("name", ["light_resnet50", "test_lstm_with_peepholes", "test_qlinearconv", "test_scan_sum"])
def test_official_cases_in_c(name: str) -> None:
    outcome = onnx_cases.check(name)
    assert (outcome.graph, outcome.c) == ("", "")


def test_the_command_says_what_is_there_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fxlite.cli import main

    path = tmp_path / "encoder.onnx"
    onnx.save_model(encoder(), path)
    assert main(["import", str(path), "--size", "batch=B", "--size", "seq=6", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert "MatMul" in said and "supported" in said and "encoder: 7 calls of ops, 4 weights" in said
    assert str(fx.load(tmp_path / "out" / "encoder.fxl").graph.placeholders[0].type) == "f32[B,6,8]"
    assert {p.suffix for p in (tmp_path / "out").iterdir()} == {".fxl", ".svg", ".html"}
    onnx.save_model(model([helper.make_node("StringSplit", ["x"], ["y", "z"])], [value("x", [1])], []), path)
    assert main(["import", str(path), "--check"]) == 1
    assert main(["import", str(path)]) == 1 and "StringSplit" in capsys.readouterr().err
    assert main(["import", str(path), "--size", "batch"]) == 1
