"""Convolutions on the tiles of AMX: the emitted C against NumPy, on emulated instructions
(`amx_emulation.h`): 8-bit integers, bf16 (`matmul_precision="medium"`) and sums of two bf16
("high")."""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c import templates
from fxlite.codegen.c.conv.conv import TileConvSpec, pack_conv_tiles, render_conv_tiles, tile_spec
from fxlite.codegen.c.conv.conv_int8 import pack_conv_int8, render_conv_int8
from fxlite.codegen.c.render import conv_template
from fxlite.ops.image.spatial import TO_LAST
from fxlite.scalar.index import Index
from tests.codegen import test_conv_int8
from tests.codegen.compiling import SANITIZED, compile_c, evaluate, run_sanitized, with_tiles
from tests.codegen.test_amx import EMULATED, FLAGS, amx_library
from tests.codegen.test_conv_bf16 import Net, case, rounded
from tests.codegen.test_conv_int8 import functions
from tests.codegen.test_conv_template import Case, check_orders, reference, small_cache

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86-64")

Int8 = test_conv_int8.Case
SAME = (1, 1, 1, 1)
INTEGERS = [
    Int8("first", (1, 3, 23, 39), (40, 3, 7, 7), (2, 2), (3, 3, 3, 3), zero_point=117),
    Int8("few_words", (1, 3, 9, 30), (16, 3, 3, 3), (2, 2), SAME, type="i8", zero_point=-9, x_last=False),
    Int8("wide", (2, 64, 4, 73), (70, 64, 3, 3), padding=(0, 1, 2, 0), zero_point=255),
    Int8("one_row", (1, 24, 5, 17), (31, 24, 3, 3), padding=SAME, type="i8", zero_point=5),
    Int8("14", (2, 32, 14, 14), (48, 32, 3, 3), padding=SAME, zero_point=3),
    Int8("7", (1, 72, 7, 7), (33, 72, 3, 3), padding=SAME, type="i8", zero_point=-128),
    Int8("3", (2, 16, 3, 3), (20, 16, 3, 3), padding=SAME, zero_point=200),
    Int8("one", (1, 65, 1, 1), (9, 65, 3, 3), padding=SAME, zero_point=1),
    Int8("in_place", (1, 64, 6, 18), (33, 64, 3, 3), zero_point=5),
    Int8("in_place_16", (2, 128, 5, 32), (40, 128, 1, 1), (2, 2), zero_point=9),
    Int8("halved", (1, 64, 28, 28), (40, 64, 1, 1), (2, 2), zero_point=9),
    Int8("halved_7", (1, 64, 14, 14), (40, 64, 1, 1), (2, 2), zero_point=9),
    Int8("uneven", (2, 21, 9, 12), (35, 21, 3, 2), (1, 2), (1, 0, 1, 1), zero_point=7),
    Int8("down", (1, 20, 11, 9), (17, 20, 2, 3), (2, 1), (0, 1, 1, 1), zero_point=7),
    Int8("dilated", (2, 20, 9, 11), (33, 20, 3, 2), padding=(2, 2, 2, 2), dilation=(2, 3), zero_point=7),
    Int8("grouped", (1, 48, 14, 14), (64, 24, 3, 3), padding=SAME, groups=2, type="i8", zero_point=-128),
]


# ---- floats -------------------------------------------------------------------------------------
__all__ = ["small_cache"]  # a fixture for all tests here, too

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Float:
    """A convolution of operands that are rounded to bf16, or are sums of two."""

    of: Case
    parts: int
    x_is_bf16: bool = False

    @property
    def spec(self) -> TileConvSpec:
        spec = self.of.spec()
        fields = {**vars(spec), "parts": self.parts, "x_is_bf16": self.x_is_bf16}
        x = "const uint16_t *" if self.x_is_bf16 else "const float *"
        weight = "const uint32_t *restrict weight"
        parameters = spec.parameters.replace("const float *restrict weight", weight)
        fields["parameters"] = parameters.replace("const float *", x, 1)
        fields["name"] = f"{spec.name}_{self.parts}" + "_stored" * self.x_is_bf16
        return TileConvSpec(**fields)

    def arrays(self) -> tuple[Array, Array, Array]:
        """Image, with channels first, weight and bias."""
        n, h, w = self.of.size or (2, 3, 19)
        rng = np.random.default_rng(h * 10 + w)
        shapes = (n, self.of.c, h, w), (self.of.k, self.of.c, *self.of.kernel), (self.of.k,)
        x, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        return (rounded(x).astype(np.float32) if self.x_is_bf16 else x), weight, bias


def last(c: int, k: int, *rest: Any, **more: Any) -> Case:
    """A case of channels-last images."""
    return replace(case(c, k, *rest, **more), x_last=True, y_last=True)


NONE = (0,) * 4
SHAPES = [
    last(3, 40, 7, 2, (3,) * 4, (1, 23, 38)),
    case(3, 20, 3, 2, SAME, (2, 9, 13)),  # channels first, and results too
    last(32, 33, 3, 1, SAME, (2, 4, 73)),
    last(20, 48, 3, 1, SAME, (1, 14, 14)),
    last(33, 20, 3, 1, SAME, (2, 7, 7)),
    last(16, 65, 3, 2, (0, 1, 2, 3), (1, 8, 35)),
    last(34, 10, (3, 2), (1, 3), NONE, (1, 7, 9), dilation=(2, 1)),
    last(24, 31, 3, 1, (2,) * 4, (1, 6, 18), dilation=2),
    last(64, 34, 1, 2, NONE, (2, 7, 9)),
    last(5, 12, 5, 1, (2,) * 4, (1, 1, 1)),
    last(9, 10, 3, 1, SAME, None),
]
FLOATS = [
    *(Float(shape, parts) for shape, parts in zip(SHAPES, itertools.cycle((1, 2)))),
    Float(SHAPES[0], 2),
    Float(SHAPES[2], 2),
    Float(SHAPES[3], 1),
    Float(last(64, 34, 1, 2, NONE, (1, 10, 32)), 1, x_is_bf16=True),  # in place
    Float(last(21, 20, 3, 1, SAME, (1, 5, 17)), 1, x_is_bf16=True),
]


def float_functions(cases: list[Float]) -> str:
    """The cases as run_NAME."""
    parts = []
    for one in cases:
        spec = one.spec
        rendered = render_conv_tiles(spec)
        extra = "".join(f", {name}" for name in rendered.extra_parameters)
        parts.append(
            f"{rendered.text}\n"
            f"void run_{spec.name}(const void *x, const void *weight, const void *bias, void *y,\n"
            "    int64_t N, int64_t H, int64_t W, void *workspace, int n_threads)\n"
            f"{{\n    {spec.name}(x, weight, bias, y, N, H, W{extra});\n}}\n"
        )
    return "\n".join(parts)


def run(library: ctypes.CDLL, one: Float, arrays: tuple[Array, ...], n_threads: int = 1) -> Array:
    """The result as it is stored; fails where it writes beyond its result or its workspace."""
    x, weight, bias = arrays
    spec, size = one.spec, (x.shape[0], *x.shape[2:])
    needed = evaluate(render_conv_tiles(spec).workspace, n_threads=n_threads, **dict(zip("NHW", size)))
    shape = (size[0], one.of.k, *one.of.output(*size[1:]))
    shape = tuple(shape[axis] for axis in TO_LAST) if one.of.y_last else shape
    workspace = np.full(needed + 64, 0xFF, np.uint8)
    y = np.full(int(np.prod(shape)) + 8, 7777, np.float32)
    x = np.ascontiguousarray(x.transpose(TO_LAST)) if one.of.x_last else x
    x = (x.view(np.uint32) >> 16).astype(np.uint16) if one.x_is_bf16 else x
    given = (x, pack_conv_tiles(weight, spec), bias, y)
    library[f"run_{spec.name}"](
        *(ctypes.c_void_p(a.ctypes.data) for a in given),
        *map(ctypes.c_int64, size),
        ctypes.c_void_p(workspace.ctypes.data),
        n_threads,
    )
    assert (workspace[needed:] == 0xFF).all() and (y[-8:] == 7777).all(), spec.name
    return y[:-8].reshape(shape)


def check_floats(library: ctypes.CDLL, cases: list[Float], n_threads: int) -> None:
    """Sums of rounded operands but for rounding in float32; of two parts, whose lower ones are not
    multiplied by each other, of the operands themselves."""
    for one in cases:
        x, weight, bias = arrays = one.arrays()
        operands = (x, weight) if one.parts == 2 else (rounded(x), rounded(weight))
        expected = reference(one.of, *operands, bias)
        error = np.abs(run(library, one, arrays, n_threads) - expected).max()
        limit = 1e-5 if one.parts == 2 else 2e-7 * (weight[0].size + 4) ** 0.5
        assert error <= limit * np.abs(expected).max(), one.spec.name


def test_loops_go_both_ways() -> None:
    check_orders([render_conv_tiles(one.spec).text for one in FLOATS])


def test_kernels_of_few_words_take_vectors() -> None:
    """One channel and three columns are two pairs: the template of tiles has a slow stand-in for them."""
    few, enough = (Float(last(c, 20, 3, 1, SAME, (2, 8, 8)), 1).spec for c in (1, 3))
    assert tile_spec(few, 1) is None and tile_spec(enough, 1) is not None
    turned = [replace(enough, x_last=False, k=Index.of(k)) for k in (20, 64)]  # which takes time, too
    assert [tile_spec(spec, 2) is not None for spec in turned] == [False, True]


@pytest.fixture(scope="module")
def library(tmp_path_factory: Any) -> ctypes.CDLL:
    text = with_tiles(functions(INTEGERS) + float_functions(FLOATS))
    return amx_library(text, tmp_path_factory.mktemp("amx"), FLAGS["native"])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_integer_sums_are_exact(library: ctypes.CDLL, n_threads: int) -> None:
    test_conv_int8.check_sums(library, INTEGERS, n_threads)


def test_floats_agree_with_numpy(library: ctypes.CDLL) -> None:
    check_floats(library, FLOATS, 2)


def test_results_do_not_depend_on_the_number_of_threads(library: ctypes.CDLL) -> None:
    for one in FLOATS[::3]:
        results = {run(library, one, one.arrays(), n).tobytes() for n in (1, 3, 7)}
        assert len(results) == 1, one.spec.name


def test_nan_and_infinity_reach_the_pixels_whose_kernels_cover_them(library: ctypes.CDLL) -> None:
    """Tiles read further than the kernel; that must not show."""
    for one in FLOATS:
        x, weight, bias = one.arrays()
        x[0, 0, x.shape[2] // 2, x.shape[3] // 2], x[-1, -1, 0, 0] = np.nan, np.inf
        with np.errstate(invalid="ignore"):
            expected = reference(one.of, x, weight, bias)
        y = run(library, one, (x, weight, bias), 2)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(expected), one.spec.name)
        np.testing.assert_array_equal(np.isposinf(y), np.isposinf(expected), one.spec.name)
        usual = np.isfinite(expected)
        limit = 1e-5 if one.parts == 2 else 2e-2
        error = np.abs(y[usual] - expected[usual]).max(initial=0)
        assert error <= limit * np.abs(expected[usual]).max(initial=1), one.spec.name


def test_convolutions_where_the_system_refuses_tiles(
    library: ctypes.CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take vectors then. The tiles are asked for once, so this is a library of its own."""
    monkeypatch.setenv("AMX_EMULATION_REFUSED", "1")
    refused = ctypes.CDLL(shutil.copy(library._name, tmp_path))
    test_conv_int8.check_sums(refused, INTEGERS, 2)
    check_floats(refused, FLOATS, 2)


def test_convolutions_under_the_sanitizers(tmp_path: Path) -> None:
    """A program of its own runs the cases on memory of exactly the size they may touch."""
    integers = [one for one in INTEGERS if one.name in ("first", "7", "in_place_16", "halved")]
    floats = [FLOATS[3], FLOATS[4], FLOATS[-2]]
    calls: list[tuple[tuple[int, ...], str]] = []
    for case_ in integers:
        x, weight = case_.arrays(np.random.default_rng(0))
        spec = case_.spec()
        scratch = evaluate(render_conv_int8(spec).workspace, n_threads=2)
        sizes = (x.nbytes, pack_conv_int8(weight, spec).nbytes, 4 * case_.exact(x, weight).size)
        calls.append(((*sizes, scratch), f"run_{case_.name}(p[0], p[1], p[2], p[3], 2)"))
    for one in floats:
        x, weight, bias = one.arrays()
        n, h, w = one.of.size or (2, 3, 19)
        scratch = evaluate(render_conv_tiles(one.spec).workspace, n_threads=2)
        total = 4 * n * one.of.k * int(np.prod(one.of.output(h, w)))
        packed = pack_conv_tiles(weight, one.spec).nbytes
        sizes = (x.nbytes // (2 if one.x_is_bf16 else 1), packed, bias.nbytes, total, scratch)
        arguments = f"p[0], p[1], p[2], p[3], {n}, {h}, {w}, p[4], 2"
        calls.append((sizes, f"run_{one.spec.name}({arguments})"))
    lines = ["int main(void)\n{"]
    for sizes, call in calls:
        parts = ", ".join(f"calloc(1, {size})" for size in sizes)
        lines.append(f"    {{\n        void *p[] = {{{parts}}};\n        {call};")
        lines.append(f"        for (int i = 0; i < {len(sizes)}; i++) free(p[i]);\n    }}")
    text = with_tiles(functions(integers) + float_functions(floats))
    program = compile_c(
        "\n".join([text, *lines, "    return 0;\n}"]), tmp_path / "amx", *EMULATED, "-fwrapv", *SANITIZED, "-O0"
    )
    for refused in ({}, {"AMX_EMULATION_REFUSED": "1"}):
        run_sanitized(program, **refused)


# ---- models -------------------------------------------------------------------------------------
@pytest.mark.parametrize("precision, limit", [("medium", 2e-2), ("high", 4e-5)])
def test_a_network_takes_tiles_where_there_are_some(
    precision: str, limit: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernels are chosen for a processor that has tiles; those here take vectors."""
    for module in (templates, conv_template):
        monkeypatch.setattr(module, "has_bf16_tiles", lambda: True)
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    model, shape = Net(), "f32[B,3,H,W]"
    x = np.random.default_rng(0).standard_normal((2, 3, 30, 44)).astype(np.float32)
    function = fx.compile(model, x=shape, matmul_precision=precision, threads=2)
    source = "".join(function.sources.values())
    assert "winograd_input" not in source
    assert f"sum_places_{'bf16' if precision == 'medium' else 'split'}(rows" in source
    exact = np.asarray(fx.symbolic_trace(model, x="f64[B,3,H,W]")(x.astype(np.float64)))
    assert np.abs(function(x) - exact).max() < limit * np.abs(exact).max()


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
def test_compiled_for_such_a_processor_sums_stay_in_tiles(tmp_path: Path) -> None:
    """Without emulation: the code is looked at, not run. 2 x 2 tiles of sums have a load for each
    product, and are stored once: each of the four ways to cut a tile of sums has its own."""
    text = with_tiles(functions(INTEGERS[2:3]) + float_functions(FLOATS[2:4]))
    flags = ("-shared", "-fPIC", "-O2", "-march=sapphirerapids", "-fopenmp")
    target = compile_c(text, tmp_path / "tiles.so", *flags)
    code = subprocess.run(["objdump", "-d", target], capture_output=True, text=True).stdout
    for name, product in (("u8", "tdpbusd"), ("bf16", "tdpbf16ps"), ("split", "tdpbf16ps")):
        body = code.split(f"<sum_in_tiles_{name}>:")[1].split("\n\n")[0]
        assert product in body and body.count("tilestored") == 4 + 2 + 2 + 1, name
