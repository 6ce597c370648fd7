"""Whole programs as CUDA: the zoo and some special ones on the CPU shim or a GPU, also on few
blocks, and through NVRTC for two architectures; the back end's front door."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.base.errors import ArgumentError
from fxlite.codegen.cuda.emit import CudaProgram, emit
from fxlite.codegen.cuda.function import KEPT, CudaRunner
from fxlite.codegen.kernel.builder import smaller
from fxlite.codegen.program.calls import restructure
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.cuda_device import CudaDeviceNotFound, CudaToolkitNotFound, compile_cubin, find_device
from tests.cuda_launchers import emitted, launcher, launchers, places
from tests.oracle import compare
from tests.zoo import ZOO, Program

RNG = np.random.default_rng(5)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def body_of(program: CudaProgram, kernel: str) -> str:
    """Text of a kernel's parameters and statements."""
    return re.split(rf"\s{kernel}\(", program.source)[1].partition("\n}")[0]


def on_few_blocks(program: CudaProgram, most: int = 2) -> CudaProgram:
    """The same launches on fewer blocks: every thread and block takes several iterations."""
    launches = tuple(
        x if "_tile" in body_of(program, x.kernel) else replace(x, grid=(smaller(x.grid[0], most), *x.grid[1:]))
        for x in program.launches
    )
    return replace(program, launches=launches)


def check(program: Any, types: Any, *calls: tuple[Any, ...]) -> CudaProgram:
    """Run wherever CUDA runs, as it is and on few blocks; compare with NumPy."""
    made = emitted(program, *types)
    for place, module in launchers(made.source):
        for variant in (made, on_few_blocks(made)):
            runner = CudaRunner(variant, module)
            for inputs in calls:
                compare(place, runner(*inputs), program(*inputs))
    return made


@pytest.mark.parametrize("entry", ZOO, ids=lambda entry: entry.name)
def test_zoo(entry: Program) -> None:
    traced, program, inputs = entry.trace()
    made = emit(optimize(traced)[0], entry.name)
    rebuild = restructure(traced) or (lambda flat: flat)
    expected = program(*inputs)
    for place, module in launchers(made.source):
        for variant in (made, on_few_blocks(made, 1)):
            compare(place, rebuild(CudaRunner(variant, module)(*inputs)), expected)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_zoo_compiles_for_devices(arch: str) -> None:
    made = [emit(optimize(entry.trace()[0])[0], entry.name) for entry in ZOO]
    try:
        cubin = compile_cubin("\n".join(m.source for m in made), arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    assert set(cubin.kernels) == {x.kernel for m in made for x in m.launches}
    # ptxas spills a few bytes of its own accord, to keep more blocks resident
    assert max(used.spill_stores for used in cubin.kernels.values()) <= 64


# ---- The mapping of loops to the grid ------------------------------------------------------------


def launch_kinds(made: CudaProgram) -> list[str]:
    """``grid``, ``blocks``, or ``one`` for each launch that is no matrix product."""
    kinds = []
    for x in made.launches:
        body = body_of(made, x.kernel)
        kinds.append(
            "tiles"
            if "_tile" in body
            else "grid"
            if "fx_thread_index" in body
            else "blocks"
            if "blockIdx.x" in body
            else "one"
        )
    return kinds


def test_long_rows_take_a_block_each_and_one_source_serves_all_sizes() -> None:
    made = check(
        lambda x: F.softmax(x, -1),
        ("f32[B,T]",),
        *((normal(b, t) * 9,) for b, t in ((3, 300), (5, 1), (1, 77), (0, 4), (70, 33))),
    )
    assert launch_kinds(made) == ["blocks"]


def test_short_rows_take_a_thread_each() -> None:
    made = check(lambda x: F.softmax(x, -1), ("f32[B,7]",), (normal(600, 7),), (normal(1, 7),))
    assert launch_kinds(made) == ["grid"]


def test_layer_norm_of_wide_rows() -> None:
    check(
        lambda x, w, b: F.layer_norm(x, (600,), w, b),
        ("f32[B,T,600]", "f32[600]", "f32[600]"),
        (normal(2, 3, 600), normal(600), normal(600)),
    )


def test_reductions_across_rows_take_a_thread_per_column() -> None:
    made = check(lambda x: x.max(axis=0), ("f32[B,500]",), (normal(40, 500),))
    assert launch_kinds(made) == ["grid"]
    made = check(lambda x: x.mean(axis=(2, 3)), ("f32[B,3,16,16]",), (normal(2, 3, 16, 16),))
    assert launch_kinds(made) == ["blocks"]


@pytest.mark.parametrize("function", ["sum", "prod", "max", "min", "any", "all", "mean"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i8", "i32", "bool"])
def test_reductions_to_one_value(function: str, dtype: str) -> None:
    numpy = fx.dtypes.dtype(dtype).numpy
    drawn = RNG.uniform(0.97, 1.03, (3, 700)) if function == "prod" else normal(3, 700) * 9
    values = drawn.astype(numpy)
    program = {"any": lambda x: np.any(x), "all": lambda x: np.all(x)}.get(function, lambda x: getattr(x, function)())
    made = check(program, (f"{dtype}[B,700]",), (values,), (values[:1],), (np.zeros_like(values),))
    assert launch_kinds(made) == ["one"] and made.launches[0].threads == 256


def test_nan_wins_in_a_block_reduction() -> None:
    x = normal(4, 500)
    x[1, 499], x[2, 0], x[3, 7] = np.nan, np.nan, -np.inf
    check(lambda x: (x.max(axis=1), x.min(axis=1)), ("f32[B,500]",), (x,))


def test_scans_scatters_and_positions() -> None:
    check(lambda x: x.cumsum(axis=1), ("f32[B,90]",), (normal(300, 90),))
    check(lambda x: x.cumsum(), ("i64[N]",), (np.arange(50),), (np.arange(0),))
    check(lambda x: x.argmax(axis=1), ("f32[B,90]",), (normal(9, 90),))
    index = RNG.integers(0, 5, (64, 3))
    check(
        lambda x, index, y: ops.scatter_add(x, index, y, axis=0),
        ("f32[5,3]", "i64[N,3]", "f32[N,3]"),
        (normal(5, 3), index, normal(64, 3)),
    )


def test_products_with_epilogues() -> None:
    made = check(
        lambda x, w, b: np.maximum(x @ w.T + b, 0),
        ("f32[B,T,70]", "f32[90,70]", "f32[90]"),
        (normal(2, 40, 70), normal(90, 70), normal(90)),
        (normal(1, 1, 70), normal(90, 70), normal(90)),
        (normal(0, 1, 70), normal(90, 70), normal(90)),
    )
    assert launch_kinds(made) == ["tiles"]
    check(
        lambda a, b: np.tanh((a @ b).transpose(0, 2, 1, 3).reshape(2, 9, 20)),
        ("f64[2,4,9,6]", "f64[2,4,6,5]"),
        (RNG.normal(size=(2, 4, 9, 6)), RNG.normal(size=(2, 4, 6, 5))),
    )
    x = RNG.integers(-128, 128, (9, 300)).astype(np.int8)
    check(lambda x: x.astype(np.int32) @ x.astype(np.int32).T, ("i8[B,300]",), (x,))


def test_convolutions_are_products_and_pooling_is_loops() -> None:
    made = check(
        lambda x, w: F.max_pool2d(F.relu(F.conv2d(x, w, padding=1, stride=2)), 2),
        ("f32[B,3,17,16]", "f32[4,3,3,3]"),
        (normal(2, 3, 17, 16), normal(4, 3, 3, 3)),
    )
    assert launch_kinds(made) == ["tiles", "grid"]


def test_names_that_templates_use_are_no_trouble() -> None:
    def program(k: Any, row: Any, sum: Any, batch: Any, thread: Any) -> Any:
        return np.maximum(k @ row + sum, batch) * thread

    inputs = (normal(2, 5, 6), normal(2, 6, 7), normal(7), normal(2, 5, 7), normal(1))
    check(program, ("f32[i,5,6]", "f32[i,6,7]", "f32[7]", "f32[i,5,7]", "f32[1]"), inputs)


def test_a_bad_index_raises_and_says_where() -> None:
    def program(x: Any, index: Any) -> Any:
        return x[index] * 2

    made = emitted(program, "f32[V,6]", "i64[N]")
    x = normal(9, 6)
    index = np.array([0, -1, 8, -9])
    for _, module in launchers(made.source):
        runner = CudaRunner(made, module)
        np.testing.assert_array_equal(runner(x, index), x[index] * 2)
        for bad in (9, -10):
            with pytest.raises(IndexError, match=rf"index {bad} is out of bounds for size 9: .*take"):
                runner(x, np.array([0, bad]))
        np.testing.assert_array_equal(runner(x, index), x[index] * 2)  # the error does not stick
        with pytest.raises(ValueError, match="axis 1 must be 6"):
            runner(x[:, :5], index)
        with pytest.raises(TypeError, match="must be f32"):
            runner(x.astype(np.float64), index)


def test_results_that_no_kernel_stores() -> None:
    made = check(lambda x: (x, x.reshape(-1), x), ("f32[2,3]",), (normal(2, 3),))
    assert len(made.launches) <= 2


# ---- Kernels that are alike ----------------------------------------------------------------------
class Layers(nn.Module):
    """Layers that are alike, one that is not, and a constant that tells two of them apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(40, 40) for _ in range(4)])
        self.norms = nn.ModuleList([nn.LayerNorm(40) for _ in range(4)])
        self.last = nn.Linear(40, 7)

    def forward(self, x: Any) -> Any:
        for number, (layer, norm) in enumerate(zip(self.layers, self.norms)):
            y = np.tanh(layer(norm(x)))
            x = x + (y * 0.5 if number == 2 else y)
        return self.last(x)


def test_kernels_of_equal_layers_are_one() -> None:
    model, x = Layers().eval(), normal(5, 40)
    made = check(model, ("f32[B,40]",), (x,), (normal(1, 40),))
    kernels = re.findall(r"__launch_bounds__\(\d+\) (\w+)\(", made.source)
    launched = [launch.kernel for launch in made.launches]
    assert len(kernels) == len(set(kernels)) and set(kernels) == set(launched)
    # norms are one; layers with what follows are two, as one of them has a constant; the last
    assert len(kernels) == 4 and sorted(map(launched.count, kernels)) == [1, 1, 3, 4]
    assert "// Launched 4 times: for layer_norm, layer_norm_1, layer_norm_2, …" in made.source


def test_kernels_that_differ_in_more_than_names_are_apart() -> None:
    """The same text but for types, for which of two arguments is which, and for where an index is."""

    def program(x: Any, y: Any, n: Any, i: Any, j: Any) -> Any:
        return np.subtract.outer(x, y), np.subtract.outer(y, x).T * 1, np.exp(n), np.exp(x), x[i] * 2, y[j] * 2

    x, y, n = normal(3), normal(4), RNG.standard_normal(3)
    indices = np.array([0, 1]), np.array([2, 3])
    made = check(program, ("f32[A]", "f32[B]", "f64[A]", "i64[N]", "i64[N]"), (x, y, n, *indices))
    runner = CudaRunner(made, launcher(made.source, places()[-1]))
    with pytest.raises(IndexError, match=r"index 3 is out of bounds for size 3: .*take"):
        runner(x, y, n, np.array([0, 3]), indices[0])
    with pytest.raises(IndexError, match="index 4 is out of bounds for size 4"):
        runner(x, y, n, *np.array([[0, 1], [0, 4]]))


# ---- Calls ---------------------------------------------------------------------------------------
def rolled(x: Any, w: Any) -> Any:
    """Some launches, of which the sizes of all depend on the input's."""
    return F.softmax(np.tanh(x @ w) @ w.T, -1), x


def test_calls_of_many_sizes_take_turns() -> None:
    """More sizes than memory is kept for, each of them more than once: launched, recorded, forgotten."""
    made, w = emitted(rolled, "f32[B,6]", "f32[6,4]"), normal(6, 4)
    for place, module in launchers(made.source):
        runner = CudaRunner(made, module)
        for rows in (3, 3, 3, 1, 70, 3, 0, 2, 9, 1, 1, 3, 3):
            x = normal(rows, 6)
            compare(place, runner(x, w), rolled(x, w))
        assert len(runner._kept) == KEPT


def test_threads_take_turns() -> None:
    made, w = emitted(rolled, "f32[B,6]", "f32[6,4]"), normal(6, 4)
    inputs = [normal(1 + i % 3, 6) for i in range(24)]
    for place, module in launchers(made.source):
        runner = CudaRunner(made, module)
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda x, runner=runner: runner(x, w), inputs))
        for x, result in zip(inputs, results):
            compare(place, result, rolled(x, w))


def test_arrays_stay_on_the_device() -> None:
    """Results are arguments of further calls, and belong to nobody else."""
    made, w, x = emitted(rolled, "f32[B,6]", "f32[6,4]"), normal(6, 4), normal(5, 6)
    for place, module in launchers(made.source):
        runner = CudaRunner(made, module)
        first, same = runner.on_device(x, w)
        assert (first.shape, first.dtype, str(first)) == ((5, 6), np.dtype("f4"), "DeviceArray(float32[5, 6])")
        second, _ = runner.on_device(first, w)
        third, _ = runner.on_device(second, np.asfortranarray(w))
        once, twice = rolled(x, w)[0], rolled(rolled(x, w)[0], w)[0]
        for found, expected in ((first, once), (same, x), (second, twice), (third, rolled(twice, w)[0])):
            compare(place, found.numpy(), expected)
            np.testing.assert_array_equal(np.asarray(found), found.numpy())
        with pytest.raises(ValueError, match="axis 0 must be 6"):
            runner.on_device(first, first)
        assert hasattr(first, "__cuda_array_interface__") == (place == "cuda device")


def test_arrays_of_torch_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    if "device" not in places() or not torch.cuda.is_available():
        pytest.skip("there is no GPU, or no torch for it")
    function = fx.compile(fx.symbolic_trace(rolled, "f32[B,6]", "f32[6,4]"), backend="cuda")
    x, w = torch.randn(7, 6, device="cuda"), torch.randn(6, 4, device="cuda")
    y, same = (torch.as_tensor(a, device="cuda") for a in function.on_device(x, w))
    torch.testing.assert_close(y, torch.softmax(torch.tanh(x @ w) @ w.T, -1))
    torch.testing.assert_close(same, x)
    with pytest.raises(ValueError, match=r"strides.*make it dense"):
        function.on_device(x, torch.randn(4, 6, device="cuda").T)
    with pytest.raises(TypeError, match=r"must be f32.*float64"):
        function.on_device(x.double(), w)


def test_on_device_of_nested_results_and_of_programs_that_write() -> None:
    function = fx.compile(
        fx.symbolic_trace(lambda x: {"a": x + 1, "b": [x]}, x="f32[3]"), backend="cuda", device="shim"
    )
    found = function.on_device(x=np.zeros(3, np.float32))
    np.testing.assert_array_equal(found["a"].numpy(), [1, 1, 1])
    np.testing.assert_array_equal(found["b"][0].numpy(), [0, 0, 0])

    def writes(x: Any) -> Any:
        x += 1
        return x.sum()

    function = fx.compile(fx.symbolic_trace(writes, x="f32[3]"), backend="cuda", device="shim")
    with pytest.raises(ArgumentError, match="writes into 'x', which on_device cannot"):
        function.on_device(np.zeros(3, np.float32))


# ---- Text ----------------------------------------------------------------------------------------

SOFTMAX = """\
extern "C" __global__ void __launch_bounds__(256) model_k0_softmax(const float *__restrict__ x,
    float *__restrict__ softmax, int64_t B, int64_t T) {
    for (int64_t i = blockIdx.x; i < B; i += gridDim.x) {
        float total = -INFINITY;
        for (int64_t r = threadIdx.x; r < T; r += blockDim.x) {
            total = fx_maximum_f32(total, x[i*T + r]);
        }
        total = fx_block_max(total);
        double wide = 0.0;
        for (int64_t r = threadIdx.x; r < T; r += blockDim.x) {
            wide += (double)fx_exp_weight_f32(x[i*T + r] - total);
        }
        wide = fx_block_sum(wide);
        const float total1 = (float)wide;
        for (int64_t j = threadIdx.x; j < T; j += blockDim.x) {
            softmax[i*T + j] = fx_exp_weight_f32(x[i*T + j] - total) / total1;
        }
    }
}
"""


def test_text_is_fit_to_read() -> None:
    assert SOFTMAX in emitted(lambda x: F.softmax(x, -1), "f32[B,T]").source
    for entry in ZOO:
        text = emit(optimize(entry.trace()[0])[0], entry.name).source
        long = [line for line in text.splitlines() if len(line) > 100]
        assert not long, long[0]
        assert text.count("{") == text.count("}")


# ---- The front door ------------------------------------------------------------------------------


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return F.softmax(self.fc(x), -1)


def test_compile_for_the_shim() -> None:
    model = Small()
    function = fx.compile(model, x="f32[B,6]", backend="cuda", device="shim")
    x = normal(3, 6)
    np.testing.assert_allclose(function(x), model(x), rtol=1e-5)
    np.testing.assert_allclose(function(x=x[:, ::-1]), model(x[:, ::-1]), rtol=1e-5)
    assert set(function.sources) == {"small.cu", "prelude.cuh", "fx_math.h"}


def test_compile_without_a_device() -> None:
    try:
        find_device()
    except CudaDeviceNotFound:
        with pytest.raises(CudaDeviceNotFound, match=r'^no CUDA .*device="sm_90"\) compiles'):
            fx.compile(Small(), x="f32[B,6]", backend="cuda")
    else:
        model, x = Small(), normal(3, 6)
        function = fx.compile(model, x="f32[B,6]", backend="cuda")
        np.testing.assert_allclose(function(x), model(x), rtol=1e-5)


def test_compile_only_and_save(tmp_path: Any) -> None:
    try:
        function = fx.compile(Small(), x="f32[B,6]", backend="cuda", device="sm_90")
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    with pytest.raises(CudaDeviceNotFound, match="compiled for sm_90 and has no device"):
        function(normal(2, 6))
    assert function.cubins["sm_80"].code[:4] == b"\x7fELF"
    function.save(str(tmp_path / "out"))
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"small.cu", "prelude.cuh", "fx_math.h", "small_weights.bin", "README.md"} <= names
    assert {"small.sm_80.cubin", "small.sm_90.cubin", "small.h", "small_run.cu"} <= names
    readme = (tmp_path / "out" / "README.md").read_text()
    assert "weight `fc_weight`: float32[4, 6], at byte 0" in readme
    assert "small_k0_fc<<<((B + 31) / 32), (256)>>>(x, fc_weight, fc_bias, linear, B)" in readme
    assert (tmp_path / "out" / "small_weights.bin").stat().st_size == 128 + 64


def test_bad_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match="an architecture such as \"sm_90\", not 'gpu'"):
        fx.compile(Small(), x="f32[B,6]", backend="cuda", device="gpu")
    with pytest.raises(ArgumentError, match="'c' has no option device; the cuda back end has it"):
        fx.compile(Small(), x="f32[B,6]", backend="c", device="shim")
