"""Graphs written as ONNX models: every op's samples and the zoo give the graph's results in ONNX Runtime or ONNX's
evaluator; names, sizes, places, weights, bodies, quantized values and errors are what docs/onnx.md says.

All samples: python -m tests.onnx_export."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError, ModelExportError
from tests.graphs import ops_of

onnx = pytest.importorskip("onnx")

from tests import onnx_export  # noqa: E402
from tests.zoo import ZOO  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(0)
#: One sample in so many; programs of the zoo all.
_EACH = 3
#: The evaluator alone computes some of ONNX otherwise than ONNX says.
with_runtime = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="ONNX Runtime is not installed")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Any) -> Any:
        return self.norm(F.gelu(self.proj(x)) + x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return {"all": x.reshape(x.shape[0], 2 * x.shape[1], 4), "mean": x.mean(axis=1)}


def net(types: str = "f32[B,T,8]") -> fx.GraphModule:
    return fx.symbolic_trace(Net().eval(), types)


X = RNG.standard_normal((2, 3, 8)).astype(np.float32)


@with_runtime
def test_samples_and_the_zoo() -> None:
    every = list(onnx_export.samples())
    chosen = [e for i, e in enumerate(every) if i % _EACH == 0 or e[0].startswith("zoo-")]
    outcomes = {name: onnx_export.check(*onnx_export.made(what)) for name, what in chosen}
    wrong = {n: o for n, o in outcomes.items() if o and not o.startswith(onnx_export.REFUSED)}
    assert wrong.keys() <= onnx_export.OTHERWISE.keys(), wrong
    page = (ROOT / "docs" / "onnx.md").read_text().partition("## What goes out")[2].partition("\n## ")[0]
    refused = {n.rpartition("-")[0]: o for n, o in outcomes.items() if o not in wrong.values() and o}
    unsaid = {n: o for n, o in refused.items() if not re.search("complex|named size", o) and f"`{n}`" not in page}
    assert not unsaid, unsaid
    assert sum(not o for o in outcomes.values()) > 0.8 * len(outcomes)


def test_round_trips() -> None:
    """What comes back computes the same; where each op is a node of ONNX, it is the same graph."""
    same = 0
    for name, program in [(p.name, p) for p in ZOO]:
        gm, _, inputs = program.trace()
        again = fx.from_onnx(fx.to_onnx(gm))
        outcome = onnx_export.check(again, inputs)
        assert not outcome, (name, outcome)
        assert [p.target for p in again.graph.placeholders] == [p.target for p in gm.graph.placeholders]
        assert again.graph.input_dims == gm.graph.input_dims, name
        same += _ops(again) == _ops(gm)
    assert same > 0.4 * len(ZOO)


def _ops(gm: fx.GraphModule) -> Counter[str]:
    return Counter(ops_of(gm))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fxlite.cli import main

    path = tmp_path / "net.onnx"
    program = tmp_path / "net.py"
    program.write_text("def net(x):\n    return x.reshape(-1, 2) * 2\n")
    assert main(["export", f"{program}:net", str(path), "-i", "x=f32[B,4]", "--opset", "20"]) == 0
    assert re.search(r"net.onnx written:?\s2 nodes", capsys.readouterr().out)
    assert str(fx.from_onnx(path).graph.placeholders[0].type) == "f32[B,4]"
    program.write_text("def net(x):\n    return x.cumprod()\n")
    assert main(["export", f"{program}:net", str(path), "-i", "x=c64[4]"]) == 1
    assert "parts of complex numbers" in capsys.readouterr().err


def test_names_sizes_and_places_are_the_programs() -> None:
    gm = net()
    model = fx.to_onnx(gm)
    onnx.checker.check_model(model, full_check=True)
    sizes = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert (model.graph.input[0].name, sizes) == ("x", ["B", "T", 8])
    assert [o.name for o in model.graph.output] == ["reshape", "mean"]
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.value_info
    }
    assert shapes["gelu"] == ["B", "T", 8]
    assert {i.name for i in model.graph.initializer} >= {"layers.0.norm.weight", "layers.1.proj.bias"}
    ops = [n.op_type for n in model.graph.node]
    assert ops.count("Gelu") == ops.count("LayerNormalization") == 2
    gelu = next(n for n in model.graph.node if n.op_type == "Gelu")
    notes = {e.key: e.value for e in gelu.metadata_props}
    assert gelu.name == "/layers/0/gelu/Gelu" and "test_to_onnx.py" in notes["pkg.torch.onnx.stack_trace"]
    again = fx.from_onnx(model)
    node = again.graph.find_nodes(op="call_function", target="gelu")[1]
    assert str(node.scope) == "layers.1 (Block)" and node.loc.file.endswith("test_to_onnx.py")
    np.testing.assert_allclose(again(X)[0], gm(X)["all"], rtol=1e-4, atol=1e-5)
    assert set(again.state_dict()) >= {"layers.0.norm.weight", "layers.1.proj.bias"}
    assert onnx_export.check(again, [X]) == ""


def test_a_file_and_large_weights_beside_it(tmp_path: Path) -> None:
    gm = net()
    path = tmp_path / "net.onnx"
    model = fx.to_onnx(gm, path, external_data=True)
    held = {i.name: i.data_location for i in model.graph.initializer}
    assert held["layers.0.proj.weight"] == 0, "a small one stays inside"
    big = nn.Linear(64, 64)
    big_gm = fx.symbolic_trace(big, "f32[B,64]")
    fx.to_onnx(big_gm, path, external_data=True)
    assert (tmp_path / "net.onnx.data").stat().st_size >= 64 * 64 * 4
    assert path.stat().st_size < 8_000
    x = RNG.standard_normal((3, 64)).astype(np.float32)
    again = fx.from_onnx(path)
    np.testing.assert_array_equal(again.get_attribute("weight"), big.weight)
    np.testing.assert_allclose(again(x), big(x), rtol=1e-5, atol=1e-6)
    whole = onnx.load(path)  # with its data
    np.testing.assert_allclose(onnx_export.evaluator(whole)({"x": x})[0], big(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(ArgumentError, match="needs a path"):
        fx.to_onnx(gm, external_data=True)


def test_opsets() -> None:
    gm = net()
    ops = {opset: {n.op_type for n in fx.to_onnx(gm, opset=opset).graph.node} for opset in (18, 20)}
    assert "Gelu" in ops[20] and "Gelu" not in ops[18] and "Erf" in ops[18]
    for opset in (18, 23):
        assert onnx_export.check(gm, [X], opset) == ""
    with pytest.raises(ArgumentError, match="opset=17: 18 to"):
        fx.to_onnx(gm, opset=17)


def loops(x: Any) -> Any:
    a = fx.fori_loop(0, 4, lambda i, c: c * 1.5 + x, x)
    b = fx.cond(np.sum(x) > 0, lambda v: v + 1, lambda v: v * x.shape[0], (a,))
    (c,) = fx.while_loop(lambda v: np.sum(v) < 100, lambda v: (v * 2 + 1,), (b,))
    d, rows = fx.scan(lambda carry, row: (carry + row, carry * row), np.zeros(3, np.float32), x)
    return b, c, d, rows


@with_runtime
def test_conditions_and_loops() -> None:
    gm = fx.symbolic_trace(loops, "f32[B,3]")
    model = fx.to_onnx(gm)
    kinds = [n.op_type for n in model.graph.node]
    assert kinds.count("Loop") == 3 and kinds.count("If") == 1
    for sign in (1, -1):
        x = sign * np.abs(RNG.standard_normal((4, 3))).astype(np.float32)
        if sign > 0:  # the loop ends
            assert onnx_export.check(gm, [x]) == ""
            assert onnx_export.check(fx.from_onnx(model), [x]) == ""
    branch = fx.symbolic_trace(lambda x: fx.cond(np.sum(x) > 0, lambda v: v + 1, lambda v: v, (x,)), "f32[N]")
    for value in (1.0, -1.0):
        assert onnx_export.check(branch, [np.full(3, value, np.float32)]) == ""


def test_results_of_a_size_that_is_computed() -> None:
    """What a mask or computed bounds select is cut to its size: no elements behind it, and no count."""

    def program(x: Any, n: Any) -> Any:
        return {"positive": x[x > 0], "first": x[:, :n], "where": np.nonzero(x[0] > 9), "all": x}

    x, n = RNG.standard_normal((2, 5)).astype(np.float32), np.array(3)
    gm = fx.symbolic_trace(program, "f32[2,5]", "i64")
    made = fx.to_onnx(gm)
    found = onnx_export.evaluator(made)({"x": x, "n": n})
    assert [value.shape for value in found] == [((x > 0).sum(),), (2, 3), (0,), (2, 5)]
    again = fx.from_onnx(made)(x, n)
    for one, other, expected in zip(found, again, (x[x > 0], x[:, :3], np.nonzero(x[0] > 9)[0], x)):
        np.testing.assert_array_equal(one, expected)
        np.testing.assert_array_equal(other, expected)


#: Programs of complex numbers whose inputs and results are real.
COMPLEX = {
    "rfft": lambda x: np.abs(np.fft.rfft(x)),
    "odd": lambda x: np.fft.rfft(x[:, :7]).imag,
    "irfft": lambda x: np.fft.irfft(np.fft.rfft(x) * 2),
    "fft2": lambda x: np.fft.fft2(x).real,
    "functions": lambda x: (np.abs(np.exp(1j * x)), np.log(x + 1j).imag, (x * 1j / (x + 2j) - 1).real),
    "einsum": lambda x: np.einsum("ij,jk->ik", x * 1j, x.T + 0j).imag,
    "comparisons": lambda x: (x + 0j == x * 1j, x + 0j != x, np.isfinite(x * 1j)),
    "sums": lambda x: np.stack([(x + 1j).sum(1), (x * 2j).mean(1)]).real,
    "parts": lambda x: (np.split(x * 1j, 2, 1)[1].imag, (x + 1j * x)[np.array([2, 0])].imag, np.pad(x * 1j, 1).imag),
    "filled": lambda x: (np.pad(x * 1j, 1, constant_values=1.5).imag, np.where(x > 0, x * 1j, 2).imag),
    "real beside": lambda x: (np.concatenate([x * 1j, x]).imag, np.where(x > 0, x * 1j, x).imag, x.astype("c8").imag),
    "weights": lambda x: ((x * np.complex64(1j)) @ np.full((8, 2), 1 + 2j, np.complex64)).real,
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_are_their_parts(name: str) -> None:
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    assert onnx_export.check(fx.symbolic_trace(COMPLEX[name], "f32[3,8]"), [x]) == ""


#: And those that take and give them.
GIVEN = {
    "sums": lambda z: (z * 2 + 1j, z.sum(1), z, z.T, z.real),
    "quotients": lambda z: (1 / z, z / z.conj(), z**-3, z**5),
    "functions": lambda z: (np.sqrt(z), np.sin(z), np.cos(z), np.sinh(z), np.cosh(z), np.log2(z), np.log10(z)),
    "logarithms": lambda z: (np.log(z * 1e30), np.log(z * 1e-30), np.exp2(z), np.abs(z * 1e25), 1 / (z * 1e-25)),
    "transforms": lambda z: {"there": np.fft.fft(z), "back": np.fft.ifft(z)},
    "selected": lambda z: z[z.real > 0],
}


@pytest.mark.parametrize("name", GIVEN)
def test_complex_inputs_and_results_are_pairs(name: str) -> None:
    z = (RNG.standard_normal((3, 8)) + 1j * RNG.standard_normal((3, 8))).astype(np.complex64)
    gm = fx.symbolic_trace(GIVEN[name], "c64[B,8]")
    assert onnx_export.check(gm, [z]) == ""
    model = fx.to_onnx(gm)
    sizes = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert (model.graph.input[0].name, sizes) == ("z", ["B", 8, 2])


def test_complex_inputs_that_are_written_into_and_states() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("sums", np.ones(3, np.complex64))

        def forward(self, z: Any) -> Any:
            z[0] = 3
            self.sums = self.sums + z
            return self.sums.imag

    z = np.array([1j, 2 + 1j, 3 - 1j], np.complex64)
    model = fx.to_onnx(fx.symbolic_trace(Sums().eval(), "c64[3]"))
    pairs = np.stack([z.real, z.imag], -1)
    given = {i.name: pairs if i.name == "z" else np.tile(np.float32([1, 0]), (3, 1)) for i in model.graph.input}
    imag, *written = onnx_export.evaluator(model)(given)
    np.testing.assert_array_equal(imag, [0, 1, -1])
    assert sorted(w[0].tolist() for w in written) == [[3, 0], [4, 0]]


def test_what_of_complex_numbers_is_not_written() -> None:
    with pytest.raises(ModelExportError, match="whole exponents from 1 to 64"):
        fx.to_onnx(fx.symbolic_trace(lambda x: x**0.3, "c64[3]"))
    with pytest.raises(ModelExportError, match=r"parts of complex numbers, and fx\.ops\.cumprod of them is not"):
        fx.to_onnx(fx.symbolic_trace(lambda x: np.cumprod(x * 1j).real, "f32[3]"))
    with pytest.raises(ModelExportError, match="a transform of 3000 numbers is not written; at most 2048"):
        fx.to_onnx(fx.symbolic_trace(lambda x: np.abs(np.fft.fft(x)), "f32[3000]"))


#: Numbers of which formulas that are only right for others give something else.
HARD = np.array(
    [0.0, -0.0, 1, -1, 2.5, -2.5, 1e-10, 1e-30, -1e30, 3e38, 88, -104, np.inf, -np.inf, np.nan, 16777217, -7],
    np.float32,
)


@pytest.mark.parametrize(
    "name", ["hypot", "atan2", "floor_divide", "remainder", "fmod", "copysign", "logaddexp", "div"]
)
def test_functions_of_two_hard_numbers(name: str) -> None:
    x, y = (v.ravel() for v in np.meshgrid(HARD, HARD))
    with np.errstate(all="ignore"):
        assert (
            onnx_export.check(fx.symbolic_trace(lambda x, y: getattr(ops, name)(x, y), "f32[N]", "f32[N]"), [x, y])
            == ""
        )


@with_runtime
@pytest.mark.parametrize("types", ["f32[5,M] f32[5]", "f32[2,5,M] f32[5]", "f64[5,3] f64[5]", "i32[5,3] i32[5]"])
def test_products_of_transposed_matrices_and_vectors(types: str) -> None:
    """ONNX Runtime merges the transposition into the product."""
    gm = fx.symbolic_trace(lambda x, y: (x.swapaxes(-1, -2) @ y, y @ x), *types.split())
    draw, given = np.random.default_rng(0), [p.type.substitute({"M": 3}) for p in gm.graph.placeholders]
    x, y = (draw.integers(-9, 9, t.shape).astype(t.dtype.numpy) for t in given)
    for one, other in zip(onnx_export.runtime(fx.to_onnx(gm))({"x": x, "y": y}), gm(x, y), strict=True):
        np.testing.assert_array_equal(one, other)


def test_scans_and_sizes_by_a_factor() -> None:
    def scans(x: Any) -> Any:
        return np.cumprod(x, 1), np.maximum.accumulate(x, 0), np.minimum.accumulate(x, -1)

    x = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    gm = fx.symbolic_trace(scans, "f32[B,3,T]")
    assert onnx_export.check(gm, [x]) == ""
    assert Counter(n.op_type for n in fx.to_onnx(gm).graph.node)["Scan"] == 3
    for scale, size in ((1.5, 7), (0.6, 3), (1.8, 9)):  # of 1.8 in float32 the product with 5 is less than 9
        resized = fx.symbolic_trace(partial(ops.resize, size=size, axis=2, mode="linear", scale=scale), "f32[2,3,5]")
        assert onnx_export.check(resized, [x]) == ""
    with pytest.raises(ModelExportError, match="ONNX has no op for resize"):
        fx.to_onnx(fx.symbolic_trace(lambda x: ops.resize(x, 9, 2, "linear", scale=2.5), "f32[2,3,5]"))


def test_a_state_is_an_input_and_a_result() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", np.zeros(3, np.float32))

        def forward(self, x: Any) -> Any:
            self.count = self.count + x
            return self.count * 2

    gm = fx.symbolic_trace(Counter().eval(), "f32[3]")
    model = fx.to_onnx(gm)
    assert (len(model.graph.input), len(model.graph.output)) == (2, 2)
    names = [i.name for i in model.graph.input]
    x = np.ones(3, np.float32)
    given = dict(zip(names, (x if n == "x" else np.full(3, 5, np.float32) for n in names)))
    result, state = onnx_export.evaluator(model)(given)
    np.testing.assert_array_equal(result, np.full(3, 12))
    np.testing.assert_array_equal(state, np.full(3, 6))


def test_quantized_graphs_have_the_same_integers() -> None:
    w = RNG.integers(-127, 127, (16, 64)).astype(np.int8)

    def program(x: Any) -> Any:
        q = fx.ops.quantize(x, 0.05, 3, "u8")
        sums = fx.ops.int_linear(q, w, None, x_zero_point=3)
        y = fx.ops.requantize(sums, 0.002, 5)
        return q, sums, y, fx.ops.dequantize(y, 0.1, 5)

    gm = fx.symbolic_trace(program, "f32[B,64]")
    model = fx.to_onnx(gm)
    kinds = {n.op_type for n in model.graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "MatMulInteger"} <= kinds
    assert onnx_export.check(gm, [RNG.uniform(-7, 7, (5, 64)).astype(np.float32)]) == ""


@pytest.mark.parametrize("scheme", ["static_int8", "dynamic_int8", "weight_only_int8", "weight_only_int4"])
def test_quantized_models(scheme: str) -> None:
    from fxlite.passes import quantize

    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.out = nn.Linear(8 * 16, 10)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.conv(x)), 2)
            return self.out(x.reshape(x.shape[0], -1))

    gm = fx.symbolic_trace(Small().eval(), "f32[B,3,8,8]")
    batches = [RNG.standard_normal((4, 3, 8, 8)).astype(np.float32) for _ in range(3)]
    small = quantize.quantize(gm, quantize.QConfigMapping().set_global(scheme), batches)
    assert onnx_export.check(small, batches[:1]) == ""
    kinds = {n.op_type for n in fx.to_onnx(small).graph.node}
    assert ("MatMulInteger" in kinds) == ("weight_only" not in scheme), kinds


def test_what_onnx_lacks_says_where() -> None:
    def program(x: Any) -> Any:
        return np.nextafter(x, 1)

    with pytest.raises(ModelExportError, match=r"(?s)nextafter.*test_to_onnx\.py"):
        fx.to_onnx(fx.symbolic_trace(program, "f32[3]"))
    training = fx.symbolic_trace(nn.Dropout(0.5).train(), "f32[3]")
    with pytest.raises(ModelExportError, match=re.escape("training mode draws random numbers")):
        fx.to_onnx(training)
    with pytest.raises(ModelExportError, match="has no type"):
        fx.to_onnx(fx.symbolic_trace(lambda x: x + 1))


def test_windows_and_truths_at_the_edge() -> None:
    """A pool that rounds up where the last window would lie outside, and what there is any of in nothing."""

    def program(x: Any, flags: Any) -> Any:
        pools = (F.avg_pool2d(x, 2, 3, ceil_mode=True), F.max_pool2d(x, 2, 3, ceil_mode=True))
        return *pools, F.max_pool2d(x, 3, 2, ceil_mode=True), np.any(flags), np.all(flags), np.any(flags, axis=1)

    x = RNG.standard_normal((1, 2, 9, 9)).astype(np.float32)
    for count in (0, 1, 2):
        gm = fx.symbolic_trace(program, x="f32[1,2,9,9]", flags="bool[N,3]")
        flags = np.arange(3 * count).reshape(count, 3) > 3
        for one, other in zip(fx.from_onnx(fx.to_onnx(gm))(x, flags), gm(x, flags)):
            np.testing.assert_allclose(one, other, 1e-6)


def test_a_size_that_is_a_multiple_comes_back() -> None:
    gm = fx.symbolic_trace(lambda x: x.reshape(x.shape[0], 2, -1).sum(1) + x[:, : x.shape[1] // 2], x="f32[n,2*half]")
    again = fx.from_onnx(fx.to_onnx(gm))
    assert [str(n.type) for n in again.graph.placeholders] == ["f32[n,2*half]"]
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_allclose(again(x), gm(x), 1e-6)


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (4, 4)])
def test_orthogonal_factors(shape: tuple[int, ...]) -> None:
    """Reflections written out, with LAPACK's signs, of columns with nothing below the diagonal as well."""
    gm = fx.symbolic_trace(lambda x: (*np.linalg.qr(x), *np.linalg.qr(x, "complete")), f"f64{list(shape)}")
    for x in (RNG.standard_normal(shape), np.triu(np.ones(shape)), np.zeros(shape)):
        assert onnx_export.check(gm, [x]) == ""
