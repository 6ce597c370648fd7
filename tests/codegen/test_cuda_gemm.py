"""Matrix products and convolutions of floats on CUDA against NumPy, on the CPU shim or a GPU, and
through NVRTC: every shape of tile, every layout of operands, sizes around tiles."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import fxlite.nn.functional as F
from fxlite.codegen.cuda import gemm
from fxlite.codegen.cuda.emit import CudaProgram
from fxlite.codegen.cuda.function import CudaRunner
from fxlite.codegen.cuda.gemm import ENOUGH, SHAPES, THREADS, chosen
from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.codegen.runtime.launcher import MOST_BLOCKS
from fxlite.scalar.index import DimVar, Index
from fxlite.types.agreement import Chain, compare
from fxlite.types.tensor_type import parse_type
from tests.cuda_launchers import emitted, launcher, launchers, places


def drawn(seed: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def shape_of(made: CudaProgram) -> tuple[int, int]:
    """Rows and columns of the only product's tiles."""
    ((rows, columns),) = re.findall(r"One block for each tile of (\d+) x (\d+)", made.source)
    return int(rows), int(columns)


# ---- Shapes --------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [s for shapes in SHAPES.values() for s in shapes], ids=str)
def test_threads_share_out_what_a_shape_has(shape: Any) -> None:
    assert shape.group * shape.groups == THREADS
    assert shape.depth % shape.groups == 0 and all(m % 4 == 0 for m in shape.micro)
    for lines in (shape.rows, shape.columns):
        assert lines * shape.depth % THREADS == 0


def test_tiles_are_as_large_as_keeps_a_gpu_busy() -> None:
    def of(m: int | str, n: int | str) -> tuple[int, int]:
        sizes = [Index.of(s if isinstance(s, int) else DimVar(s)) for s in (m, n)]
        found = chosen(SHAPES[4], *sizes, Index.of(1))
        return found.rows, found.columns

    assert of(4096, 4096) == (128, 64)
    assert of(128 * ENOUGH, 64) == (128, 64) and of(128 * ENOUGH - 128, 64) == (64, 64)
    assert of(128, 768) == (32, 32)
    assert of("B", 768) == (64, 64) and of("B", 10) == (32, 32) and of(1000, "N") == (64, 64)


# ---- Products ------------------------------------------------------------------------------------
#: The sizes that make each shape, and k around a slice; of f64 all are half.
SIZES = [(1920, 640, 40), (1921, 577, 33), (1000, 600, 64), (33, 65, 130), (7, 9, 1), (130, 3, 800)]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("layout", ["plain", "left", "right", "both"])
def test_layouts_and_shapes(dtype: str, layout: str) -> None:
    """relu(A @ B + bias), where operands may lie in memory transposed."""

    def program(a: Any, b: Any, bias: Any) -> Any:
        a = a.T if layout in ("left", "both") else a
        b = b.T if layout in ("right", "both") else b
        return np.maximum(a @ b + bias, 0)

    numpy = {"f32": np.float32, "f64": np.float64}[dtype]
    used = set()
    for m, n, k in SIZES:
        a, b, bias = drawn(m, m, k, dtype=numpy), drawn(n, k, n, dtype=numpy), drawn(1, n, dtype=numpy)
        a = np.ascontiguousarray(a.T) if layout in ("left", "both") else a
        b = np.ascontiguousarray(b.T) if layout in ("right", "both") else b
        made = emitted(program, *(f"{dtype}[{','.join(map(str, x.shape))}]" for x in (a, b, bias)))
        assert len(made.launches) == 1
        used.add(shape_of(made))
        for place, module in launchers(made.source):
            found = compare(program(a, b, bias), CudaRunner(made, module)(a, b, bias), chain=Chain(2, 2 * k, 1))
            assert found.agrees, (place, m, n, k, str(found))
    assert used == {(s.rows, s.columns) for s in SHAPES[np.dtype(numpy).itemsize]}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_named_sizes(dtype: str) -> None:
    """Of a batch of products, none of whose sizes is known."""

    def program(a: Any, b: Any) -> Any:
        return (a @ b) * 2

    made = emitted(program, f"{dtype}[G,H,M,K]", f"{dtype}[G,H,K,N]")
    for g, h, m, n, k in (
        (1, 1, 64, 64, 32),
        (2, 3, 65, 70, 33),
        (1, 2, 1, 1, 1),
        (1, 1, 7, 9, 0),
        (1, 1, 0, 9, 5),
        (0, 2, 3, 3, 3),
        (1, 1, 5, 6, 4000),
    ):
        numpy = {"f32": np.float32, "f64": np.float64}[dtype]
        a, b = np.abs(drawn(m, g, h, m, k, dtype=numpy)), drawn(n, g, h, k, n, dtype=numpy) + 1
        for place, module in launchers(made.source):
            found = compare(program(a, b), CudaRunner(made, module)(a, b), chain=Chain(3, 2 * k, 1))
            assert found.agrees, (place, g, h, m, n, k, str(found))


def test_nan_and_infinity_pass_through_and_do_not_spread() -> None:
    a, b = np.ones((66, 20), np.float32), np.ones((20, 66), np.float32)
    a[65, 3], b[7, 1] = np.nan, np.inf
    made = emitted(lambda a, b: a @ b, "f32[66,20]", "f32[20,66]")
    c = CudaRunner(made, launcher(made.source, places()[-1]))(a, b)
    np.testing.assert_array_equal(c, a @ b)


def test_more_products_than_a_grid_has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_BLOCKS[2] == gemm.MAX_GRID_Z
    monkeypatch.setattr(gemm, "MAX_GRID_Z", 3)
    made = emitted(lambda a, b: a @ b, "f32[8,1,1]", "f32[8,1,2]")
    assert [x.grid[2].constant for x in made.launches] == [3]
    a, b = np.arange(8, dtype=np.float32)[:, None, None], np.full((8, 1, 2), 2, np.float32)
    for _, module in launchers(made.source):
        np.testing.assert_array_equal(CudaRunner(made, module)(a, b), a * b)


@pytest.mark.parametrize(("m", "n", "k"), [(70, 5, 17), (128, 64, 64), (64, 130, 128)])
def test_what_is_known_of_sizes_is_not_asked(m: int, n: int, k: int) -> None:
    """Whole tiles need no conditions, a single slice no loop, a single tile no position."""
    made = emitted(lambda a, b: a @ b, f"f32[{m},{k}]", f"f32[{k},{n}]")
    text = made.source[made.source.index("model_k0") :]
    for name, size, step in (("row", m, 32), ("col", n, 32), ("k", k, 64)):
        assert (re.search(rf"\b{name} < {size}\b", text) is None) == (size % step == 0)
    assert ("k_next" in text) == (k > 64) and ("blockIdx.y" in text) == (n > 32)
    assert ("fx_four" in text) == (k % 4 == 0 or n % 4 == 0)
    assert "int64_t" not in text  # indices of small arrays are int


def test_a_long_sum_is_one_of_parts() -> None:
    """Of numbers of one sign, whose plain sum in float32 would be off by a thousandth."""
    k = 1 << 17
    a, b = np.full((40, k), 0.1, np.float32), np.full((k, 2), 0.1, np.float32)
    made = emitted(lambda a, b: a @ b, f"f32[40,{k}]", f"f32[{k},2]")
    c = CudaRunner(made, launcher(made.source, places()[-1], flags=["-O2"]))(a, b)
    np.testing.assert_allclose(c, np.float64(np.float32(0.1)) ** 2 * k, rtol=2e-6)


# ---- Convolutions --------------------------------------------------------------------------------
CONVOLUTIONS: dict[str, tuple[str, str, dict[str, Any], dict[str, int]]] = {
    "padded": ("f32[2,3,9,7]", "f32[5,3,3,3]", {"padding": 1, "stride": 2}, {}),
    "named": ("f32[B,8,H,W]", "f32[20,8,3,2]", {"padding": (1, 0), "dilation": (1, 2)}, {"B": 2, "H": 8, "W": 9}),
    "pointwise": ("f32[3,40,6,7]", "f32[70,40,1,1]", {}, {}),
    "groups": ("f32[B,6,9,9]", "f32[32,3,3,3]", {"groups": 2, "padding": 1}, {"B": 2}),
    "last": ("f32[B,7,6,8]", "f32[33,8,3,3]", {"padding": 1, "layout": "NHWC"}, {"B": 3}),
    "last groups": ("f32[2,7,6,8]", "f32[32,4,3,3]", {"groups": 2, "layout": "NHWC", "padding": "same"}, {}),
    "double": ("f64[2,5,8,8]", "f64[6,5,3,3]", {"padding": ((0, 2), (1, 0))}, {}),
    "many": ("f32[9,16,40,40]", "f32[64,16,3,3]", {"padding": 1}, {}),
    "line": ("f32[B,6,L]", "f32[17,6,5]", {"padding": 2, "stride": 2}, {"B": 3, "L": 31}),
    "empty": ("f32[B,3,9,9]", "f32[5,3,3,3]", {}, {"B": 0}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case: str) -> None:
    kind, weight, options, dims = CONVOLUTIONS[case]
    x, w = (parse_type(t).substitute(dims) for t in (kind, weight))
    bias = f"{weight[:3]}[{w.shape[0]}]"

    def program(x: Any, w: Any, b: Any) -> Any:
        convolve = F.conv2d if len(w.shape) == 4 else F.conv1d
        return np.maximum(convolve(x, w, b, **options), 0)

    made = emitted(program, kind, weight, bias, name="convolution")
    assert len(made.launches) == 1 and "One block for each tile" in made.source
    inputs = [drawn(i, *map(int, t.shape), dtype=t.dtype.numpy) for i, t in enumerate((x, w))]
    inputs.append(drawn(9, int(w.shape[0]), dtype=w.dtype.numpy))
    count = int(np.prod(inputs[1].shape[1:]))
    for place, module in launchers(made.source):
        found = compare(program(*inputs), CudaRunner(made, module)(*inputs), chain=Chain(3, 2 * count, 1))
        assert found.agrees, (place, str(found))


def test_depthwise_convolutions_are_loops() -> None:
    made = emitted(lambda x, w: F.conv2d(x, w, padding=1, groups=20), "f32[B,20,8,8]", "f32[20,1,3,3]")
    assert "tile" not in made.source


# ---- Text and machine code -----------------------------------------------------------------------
def representative() -> list[CudaProgram]:
    """A product of each shape, and a convolution."""
    return [
        *(emitted(lambda a, b: a @ b, f"f32[{n},{n}]", f"f32[{n},{n}]", name=f"n{n}") for n in (2048, 768, 256)),
        emitted(lambda a, b: a @ b.T, "f64[1024,1024]", "f64[1024,1024]", name="doubles"),
        emitted(lambda x, w: F.conv2d(x, w, padding=1), "f32[16,64,56,56]", "f32[64,64,3,3]", name="conv"),
    ]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_compiles_for_devices(arch: str) -> None:
    made = representative()
    try:
        cubin = compile_cubin("\n".join(m.source for m in made), arch)
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))
    assert len(cubin.kernels) == len(made)
    for used in cubin.kernels.values():
        assert used.shared <= 48 * 1024  # what a kernel has without asking for more
        assert used.spill_stores == 0


def test_text_is_fit_to_read() -> None:
    text = emitted(lambda a, b: np.maximum(a @ b, 0), "f32[G,M,K]", "f32[G,K,N]").source
    assert "// relu: f32[G,M,N] = matmul -> relu\n" in text
    assert "// One block for each tile of 64 x 64 elements.\nextern" in text
    assert "for (int64_t batch = blockIdx.z; batch < G; batch += gridDim.z) {" in text
    assert all(max(map(len, m.source.splitlines())) <= 100 for m in representative())
