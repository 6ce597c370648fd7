"""Integer products and integer weights on CUDA: exact against NumPy on the CPU shim or a GPU;
quantized models; what NVRTC makes of the kernels for real devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops
from fxlite.codegen.cuda.emit import CudaProgram, emit
from fxlite.codegen.cuda.function import CudaRunner
from fxlite.codegen.program.calls import restructure
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.codegen.runtime.launcher import INCLUDE_FOLDERS
from fxlite.passes import quantize as q
from fxlite.types.agreement import compare as compared
from fxlite.types.agreement import sqnr
from tests.cuda_launchers import device_option, launcher, launchers, places
from tests.graphs import ops_of
from tests.oracle import compare, flatten
from tests.passes.quantize.helpers import everything
from tests.zoo import ZOO

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A function, the types it is traced with, and inputs."""

    name: str
    function: Callable[..., Any]
    types: tuple[str, ...]
    inputs: tuple[Array, ...]


def draw(dtype: str, *shape: int) -> Array:
    """Random integers of all sizes; a third of the first axis is the largest."""
    numpy = {"u8": np.uint8, "i8": np.int8, "i32": np.int32}[dtype]
    low, high = (-999, 999) if dtype == "i32" else (np.iinfo(numpy).min, np.iinfo(numpy).max)
    array = np.random.default_rng(sum(shape)).integers(low, high, shape, endpoint=True)
    array[: shape[0] // 3] = high
    return array.astype(numpy)


def linears() -> list[Case]:
    """Sizes around tiles, quads and single rows; known and named."""
    sizes = [(1, 1, 2), (1, 70, 64), (3, 5, 7), (65, 64, 63), (64, 130, 132), (70, 3, 65)]
    found = []
    for (m, n, k), (dtype, zero_point) in zip(
        sizes * 2, itertools.cycle((("u8", 128), ("i8", 0), ("u8", 7), ("i8", -128), ("u8", 0)))
    ):
        depth = "K" if m == 70 else str(k)

        def linear(x: Any, weight: Any, bias: Any, zero_point: int = zero_point) -> Any:
            return ops.int_linear(x, weight, bias, x_zero_point=zero_point)

        types = (f"{dtype}[B,{depth}]", f"i8[{n},{depth}]", f"i32[{n}]")
        arrays = (draw(dtype, m, k), draw("i8", n, k), draw("i32", n))
        found.append(Case(f"linear_{m}_{n}_{k}_{dtype}_{zero_point}", linear, types, arrays))
    return found


def matmuls() -> list[Case]:
    """Both operands of every type; transposed, batched and broadcast."""
    found = []
    for (a, y), (b, z) in itertools.product((("u8", 3), ("i8", -5)), (("u8", 200), ("i8", 0))):

        def plain(x: Any, other: Any, y: int = y, z: int = z) -> Any:
            return ops.int_matmul(x, other, x_zero_point=y, y_zero_point=z)

        def transposed(x: Any, other: Any, y: int = y, z: int = z) -> Any:
            return plain(x.transpose(0, 2, 1, 3), other.transpose(0, 2, 3, 1), y, z)

        types = (f"{a}[B,3,T,20]", f"{b}[3,20,K]")
        found.append(Case(f"matmul_{a}_{b}", plain, types, (draw(a, 2, 3, 9, 20), draw(b, 3, 20, 6))))
        found.append(
            Case(
                f"attention_{a}_{b}",
                transposed,
                (f"{a}[B,T,2,32]", f"{b}[B,S,2,32]"),
                (draw(a, 2, 66, 2, 32), draw(b, 2, 7, 2, 32)),
            )
        )
    return found


def convolutions() -> list[Case]:
    """Layouts, strides, paddings, groups; sizes known and named."""
    options: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ("u8[B,3,H,W]", (2, 3, 11, 9), (5, 3, 3, 3), {"padding": 1, "stride": 2}),
        ("i8[B,4,8,9]", (3, 4, 8, 9), (7, 4, 3, 2), {"padding": (1, 0), "dilation": (1, 2)}),
        ("u8[2,8,6,7]", (2, 8, 6, 7), (66, 8, 1, 1), {}),
        ("u8[B,6,9,9]", (1, 6, 9, 9), (32, 3, 3, 3), {"groups": 2, "padding": 1}),
        ("u8[B,H,W,8]", (2, 7, 6, 8), (65, 8, 3, 3), {"padding": 1, "layout": "NHWC"}),
        ("i8[B,7,6,3]", (2, 7, 6, 3), (4, 3, 3, 3), {"layout": "NHWC", "stride": (2, 1)}),
        ("u8[B,7,6,8]", (2, 7, 6, 8), (32, 4, 3, 3), {"groups": 2, "layout": "NHWC"}),
        ("u8[B,4,1,50]", (2, 4, 1, 50), (6, 4, 1, 5), {"padding": (0, 2)}),
    ]
    found = []
    for number, (type, shape, weight, keywords) in enumerate(options):
        dtype = type[:2]
        zero_point = 128 if number == 2 else 3 - number * (dtype == "i8")

        def convolve(x: Any, w: Any, b: Any, zero_point: int = zero_point, **options: Any) -> Any:
            return ops.int_conv2d(x, w, b, x_zero_point=zero_point, **options)

        def function(x: Any, w: Any, b: Any, call: Any = convolve, options: Any = keywords) -> Any:
            return call(x, w, b, **options)

        types = (type, f"i8[{','.join(map(str, weight))}]", f"i32[{weight[0]}]")
        arrays = (draw(dtype, *shape), draw("i8", *weight), draw("i32", weight[0]))
        found.append(Case(f"conv_{number}", function, types, arrays))
    return found


def epilogues() -> list[Case]:
    """What follows a product is done where its sums are."""

    def requantized(x: Any, w: Any, b: Any, scale: Any) -> Any:
        sums = ops.int_linear(x, w, b, x_zero_point=120)
        return ops.requantize(sums, scale, 7, dtype="u8", qmin=7)

    def added(x: Any, w: Any, other: Any, scale: Any) -> Any:
        sums = ops.int_conv2d(x, w, padding=1, x_zero_point=5)
        both = ops.dequantize(sums, scale) + ops.dequantize(other, 0.37, 11)
        return ops.quantize(np.maximum(both, 0), 0.5, 3, dtype="u8")

    scales = np.random.default_rng(1).uniform(1e-4, 1e-2, 70).astype(np.float32)
    rows = (draw("u8", 33, 40), draw("i8", 70, 40), draw("i32", 70), scales)
    images = (draw("u8", 2, 4, 6, 5), draw("i8", 6, 4, 3, 3), draw("u8", 2, 6, 6, 5))
    return [
        Case("requantized", requantized, ("u8[B,40]", "i8[70,40]", "i32[70]", "f32[70]"), rows),
        Case(
            "added",
            added,
            ("u8[B,4,H,W]", "i8[6,4,3,3]", "u8[B,6,H,W]", "f32[6,1,1]"),
            (*images, scales[:6].reshape(6, 1, 1)),
        ),
    ]


def single_rows() -> list[Case]:
    """Products of one row: of whole quads and not, short and of several turns of a warp, with
    sizes known and named, in a batch, and with what follows."""
    found = []
    options = ((64, "u8", 128), (260, "u8", 3), (63, "i8", -128), (2, "i8", 0), (300, "u8", 0))
    for k, dtype, zero_point in options:

        def linear(x: Any, weight: Any, bias: Any, zero_point: int = zero_point) -> Any:
            sums = ops.int_linear(x, weight, bias, x_zero_point=zero_point)
            return ops.requantize(sums, 0.004, 7, dtype="u8")

        depth = "K" if k == 300 else str(k)
        types = (f"{dtype}[1,{depth}]", f"i8[37,{depth}]", "i32[37]")
        arrays = (draw(dtype, 1, k), draw("i8", 37, k), draw("i32", 37))
        found.append(Case(f"row_{k}_{dtype}_{zero_point}", linear, types, arrays))

    def attention(x: Any, other: Any) -> Any:
        other = other.transpose(0, 2, 3, 1)
        return ops.int_matmul(x.transpose(0, 2, 1, 3), other, x_zero_point=3, y_zero_point=200)

    arrays = (draw("u8", 2, 1, 2, 32), draw("u8", 2, 7, 2, 32))
    found.append(Case("row_attention", attention, ("u8[B,1,2,32]", "u8[B,S,2,32]"), arrays))
    return found


CASES = [*linears(), *matmuls(), *convolutions(), *epilogues(), *single_rows()]


def emitted(function: Any, types: Any, name: str) -> CudaProgram:
    return emit(optimize(fx.symbolic_trace(function, *types))[0], name)


@pytest.fixture(scope="module")
def programs() -> list[CudaProgram]:
    return [emitted(c.function, c.types, f"p{i}_{c.name}") for i, c in enumerate(CASES)]


def source_of(programs: list[CudaProgram]) -> str:
    return "\n".join(p.source for p in programs)


@pytest.mark.parametrize("place", places())
def test_products_are_exact(programs: list[CudaProgram], place: str) -> None:
    module = launcher(source_of(programs), place)
    for case, program in zip(CASES, programs):
        assert len(program.launches) == 1 and "__dp4a" in program.source, case.name
        expected = case.function(*case.inputs)
        np.testing.assert_array_equal(CudaRunner(program, module)(*case.inputs), expected, case.name)
        is_row = case.name.startswith("row_")
        assert ("One warp for each column" in program.source) == is_row, case.name


def test_the_longest_sums() -> None:
    """What stands before the zero points are taken off may not fit int32; the result does."""

    def program(x: Any, weight: Any) -> Any:
        return ops.int_linear(x, weight, x_zero_point=255)

    made = emitted(program, ("u8[2,65792]", "i8[1,65792]"), "longest")
    x = np.array([[0], [255]], np.uint8).repeat(65792, axis=1)
    weight = np.full((1, 65792), -128, np.int8)
    y = CudaRunner(made, launcher(made.source, places()[-1]))(x, weight)
    np.testing.assert_array_equal(y, [[255 * 128 * 65792], [0]])


def test_quads_are_read_as_words_where_they_are_whole() -> None:
    def words(function: Any, *types: str) -> int:
        return emitted(function, types, "f").source.count("fx_quad(")

    assert words(ops.int_linear, "u8[B,64]", "i8[5,64]") == 2
    assert words(ops.int_linear, "u8[B,63]", "i8[5,63]") == 0
    assert words(ops.int_linear, "u8[B,K]", "i8[5,K]") == 0
    assert words(ops.int_matmul, "u8[B,8]", "i8[8,12]") == 1  # columns are apart in memory

    def conv(x: Any, w: Any) -> Any:
        return ops.int_conv2d(x, w, layout="NHWC", padding=1)

    assert words(conv, "u8[B,H,W,8]", "i8[5,8,3,3]") == 1
    assert words(conv, "u8[B,H,W,6]", "i8[5,6,3,3]") == 0


def test_depthwise_convolutions_are_loops() -> None:
    def depthwise(x: Any, w: Any) -> Any:
        return ops.int_conv2d(x, w, padding=1, groups=20)

    assert "__dp4a" not in emitted(depthwise, ("u8[B,20,8,8]", "i8[20,1,3,3]"), "f").source


# ---- Integer weights -----------------------------------------------------------------------------
@pytest.mark.parametrize("bits", [8, 4])
def test_integer_weights_are_unpacked_in_registers(bits: int) -> None:
    rng = np.random.default_rng(0)
    made, calls = [], []
    for depth, group in ((40, 8), (64, None), (22, None), (12, 2), ("K", None), (40, 16), (13, 4)):
        k = 24 if depth == "K" else int(depth)
        stored = "2*K" if depth == "K" else depth if bits == 8 else (k + 1) // 2
        if depth == "K" and bits == 4:
            stored = "K"
        wide = "2*K" if depth == "K" else depth
        columns = "f32[70]" if group is None else f"f32[70,{-(-k // group)}]"
        types = (f"f32[B,T,{wide}]", f"{'i8' if bits == 8 else 'u8'}[70,{stored}]", columns)

        def program(x: Any, weight: Any, scale: Any, group: Any = group) -> Any:
            y = ops.linear_weight_only(x, weight, scale, bits=bits, group_size=group)
            return np.maximum(y, 0)

        made.append(emitted(program, types, f"weights_{len(made)}"))
        weight = draw("i8", 70, k) if bits == 8 else draw("u8", 70, (k + 1) // 2)
        scale = rng.uniform(0.01, 0.1, 70 if group is None else (70, -(-k // group)))
        x = rng.standard_normal((3, 23, k))
        calls.append((program, (x.astype(np.float32), weight, scale.astype(np.float32))))
    assert all(len(emission.launches) == 1 for emission in made)
    for place, module in launchers(source_of(made)):
        for emission, (function, inputs) in zip(made, calls):
            compare(place, CudaRunner(emission, module)(*inputs), function(*inputs))
    assert ["fx_quad(" in m.source for m in made] == [True, True, False, False, False, True, False]


@pytest.mark.parametrize("bits", [8, 4])
def test_integer_weights_and_a_single_row(bits: int) -> None:
    made, calls = [], []
    for k, group, rows in ((320, 32, "1,"), (64, None, ""), (22, 2, "1,"), (22, None, "1,1,")):
        stored = k if bits == 8 else k // 2
        scales = "f32[37]" if group is None else f"f32[37,{k // group}]"
        types = (f"f32[{rows}{k}]", f"{'i8' if bits == 8 else 'u8'}[37,{stored}]", scales, "f32[37]")

        def program(x: Any, w: Any, scale: Any, bias: Any, group: Any = group) -> Any:
            y = ops.linear_weight_only(x, w, scale, bias, bits=bits, group_size=group)
            return np.maximum(y, 0)

        made.append(emitted(program, types, f"row_{len(made)}"))
        assert "One warp for each column" in made[-1].source
        rng = np.random.default_rng(k)
        shape = tuple(map(int, types[0][4:-1].split(",")))
        scale = rng.uniform(0.01, 0.1, 37 if group is None else (37, k // group))
        floats = [a.astype(np.float32) for a in (rng.standard_normal(shape), scale)]
        weight = draw("i8" if bits == 8 else "u8", 37, stored)
        calls.append((program, (floats[0], weight, floats[1], np.ones(37, np.float32))))
    assert ["fx_quad(" in m.source for m in made] == [True, True, False, False]
    module = launcher(source_of(made), places()[-1])
    for emission, (function, inputs) in zip(made, calls):
        compare("cuda", CudaRunner(emission, module)(*inputs), function(*inputs))


# ---- Quantized models ----------------------------------------------------------------------------
CONFIGS = {"static": q.static_int8("minmax"), "dynamic": q.dynamic_int8()}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_quantized_zoo(config: str) -> None:
    """Close to the graph: float steps between integers have their tolerance."""
    made = []
    for entry in ZOO:
        gm, _, inputs = entry.trace()
        prepared = q.prepare(gm, everything(CONFIGS[config]))
        prepared(*inputs)
        converted = q.convert(prepared)
        if any(name.startswith("int_") for name in ops_of(converted)):
            made.append((converted, emit(optimize(converted)[0], f"q_{entry.name}"), inputs))
    assert len(made) > 5
    modules = launchers(source_of([program for _, program, _ in made]))
    for (place, module), (converted, program, inputs) in itertools.product(modules, made):
        rebuild = restructure(converted) or (lambda flat: flat)
        actual = flatten(rebuild(CudaRunner(program, module)(*inputs)))
        for a, e in zip(actual, flatten(converted(*inputs)), strict=True):
            assert compared(e, a, sqnr(30)).agrees, (program.name, place)


# ---- Text and machine code -----------------------------------------------------------------------
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles_for_devices(programs: list[CudaProgram], arch: str) -> None:
    some = [p for i, p in enumerate(programs) if i % 6 == 0 or "_row_" in p.name]
    try:
        cubin = compile_cubin(source_of(some), arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    assert set(cubin.kernels) == {x.kernel for p in some for x in p.launches}
    assert max(used.spill_stores for used in cubin.kernels.values()) <= 64


def assembly_of(source: str, arch: str) -> str:
    """PTX that NVRTC makes."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernels.cu", 0, [], [])
    except RuntimeError as error:
        pytest.skip(str(error))
    folders = [f"-I{folder}".encode() for folder in INCLUDE_FOLDERS]
    options = [f"-arch=compute_{arch[3:]}".encode(), b"-std=c++17", *folders]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    nvrtc.nvrtcDestroyProgram(program)
    return text.decode()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_products_are_dp4a_and_scales_are_not_contracted(arch: str) -> None:
    (case,) = [c for c in CASES if c.name == "added"]
    assembly = assembly_of(emitted(case.function, case.types, "added").source, arch)
    assert f".target {arch}" in assembly
    assert assembly.count("dp4a.s32.s32") >= 2 * 32  # steps that are unrolled, a thread's elements
    assert "mul.rn.f32" in assembly and "fma.rn.f32" not in assembly


def test_text_is_fit_to_read(programs: list[CudaProgram]) -> None:
    named = next(p for p in programs if p.name.endswith("conv_0")).source
    assert "const int64_t out_h = fx_floor_div(H - 1, 2) + 1;" in named
    assert "const int64_t out_col = row % out_w;" in named
    assert "const int64_t channel = k / 9;" in named
    assert max(len(line) for p in programs for line in p.source.splitlines()) <= 100


def test_names_that_the_template_uses_are_no_trouble() -> None:
    def program(image: Any, channel: Any, out_h: Any) -> Any:
        return ops.int_conv2d(image, channel, out_h, padding=1, x_zero_point=3)

    types = ("u8[row,3,out_w,quad]", "i8[4,3,3,3]", "i32[4]")
    made = emitted(program, types, "names")
    inputs = (draw("u8", 2, 3, 5, 6), draw("i8", 4, 3, 3, 3), draw("i32", 4))
    y = CudaRunner(made, launcher(made.source, places()[-1]))(*inputs)
    np.testing.assert_array_equal(y, program(*inputs))


def test_a_quantized_model_through_the_front_door() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(128, 5))
    gm = fx.symbolic_trace(model.eval(), "f32[B,3,4,4]")
    x = np.random.default_rng(0).standard_normal((6, 3, 4, 4)).astype(np.float32)
    prepared = q.prepare(gm, everything(q.static_int8()))
    prepared(x)
    made = q.convert(prepared)
    compiled = fx.compile(made, backend="cuda", device=device_option())
    np.testing.assert_array_equal(compiled(x), made(x))
