"""The convolution template: its C text is compiled with gcc and compared with NumPy in float64.

A few hundred convolutions are drawn, over every attribute; those with named sizes are run on many
sizes. Under the sanitizers they run in a program of their own, on buffers of exactly the size they
may touch, against the naive twin.
"""

from __future__ import annotations

import ctypes
import math
import operator
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.codegen.c.conv import conv, conv_panels, conv_plan, conv_walk
from fxlite.codegen.c.conv.conv_plan import winograd_tile
from fxlite.codegen.kernel.builder import Rendered, symbol, text_of
from fxlite.scalar.index import Index
from fxlite.types.agreement import Chain, compare
from tests.codegen.compiling import (
    DIFFERING,
    FILLED,
    FLAGS,
    NOT_CHECKED,
    SANITIZED,
    compile_c,
    flag_of,
    flags_of,
    run_sanitized,
    shared_library,
    with_tiles,
)
from tests.codegen.plain_loops import render_conv_naive
from tests.oracle import agree

SIZES = [(0, 5, 5), (1, 1, 1), (1, 7, 7), (2, 3, 19), (3, 8, 8), (1, 13, 70), (2, 1, 40), (1, 40, 1)]


@dataclass(frozen=True)
class Case:
    """One convolution; its image size is None where it is three parameters."""

    ctype: str
    c: int
    k: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    size: tuple[int, int, int] | None
    x_last: bool = False
    y_last: bool = False
    computed: bool = False

    @property
    def joinable(self) -> bool:
        """Every second case promises that its epilogue may join the rows."""
        return self.k % 2 == 0

    @property
    def name(self) -> str:
        parts = (self.c, self.k, *self.kernel, *self.stride, *self.padding, *self.dilation)
        words = [*parts, self.groups, *(self.size or ())]
        words += ["x_last"] * self.x_last + ["y_last"] * self.y_last + ["computed"] * self.computed
        return f"conv_{self.ctype}_" + "_".join(map(str, words))

    def spec(self) -> conv_plan.ConvSpec:
        t = self.ctype
        n, h, w = map(Index.of, self.size or map(symbol, "NHW"))
        base = conv_plan.ConvSpec(
            name=self.name,
            ctype=t,
            parameters=f"const {t} *restrict x, const {t} *restrict weight, "
            f"const {t} *restrict bias, {t} *restrict y, int64_t N, int64_t H, int64_t W",
            n=n,
            c=self.c,
            h=h,
            w=w,
            k=self.k,
            r=self.kernel[0],
            s=self.kernel[1],
            x="x",
            weight="weight",
            epilogue=lambda *_: "",
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            joinable=self.joinable,
            x_last=self.x_last,
            y_last=self.y_last,
            computed=self.computed,
            comment="y = max(conv(x, weight) + bias[k] + pixel / 64, -1), or so",
        )
        out_h, out_w = map(text_of, base.output_size())

        def epilogue(total: str, n: Index, k: Index, oh: Index, ow: Index) -> str:
            value = f"{total} + bias[{k}] + ({oh} * ({out_w}) + {ow}) * ({t})0.015625"
            if not self.joinable:
                value = f"{total} + bias[{k}] + {oh} * ({t})0.5 - {ow} * ({t})0.25"
            index = f"(({n} * {self.k} + {k}) * ({out_h}) + {oh}) * ({out_w}) + {ow}"
            if self.y_last:
                index = f"(({n} * ({out_h}) + {oh}) * ({out_w}) + {ow}) * {self.k} + {k}"
            return f"const {t} value = {value};\ny[{index}] = value < -1 ? -1 : value;"

        return replace(base, epilogue=epilogue)

    def output(self, h: int, w: int) -> tuple[int, int]:
        top, left, bottom, right = self.padding
        reach = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        return (
            (h + top + bottom - reach[0]) // self.stride[0] + 1,
            (w + left + right - reach[1]) // self.stride[1] + 1,
        )

    def fits(self, size: tuple[int, int, int]) -> bool:
        """Whether the output is not negative in size."""
        return min(self.output(*size[1:])) >= 0


def draw(choose: random.Random, size: tuple[int, int, int] | None) -> Case:
    def pair(*values: int) -> tuple[int, int]:
        return choose.choice(values), choose.choice(values)

    groups = choose.choice([1, 1, 1, 2, 3, 8])
    kind = choose.choice(["depthwise", "any", "any", "any"])
    inputs, outputs = (choose.choice([1, 2, 3, 5, 8, 17]), choose.choice([1, 2, 3, 4, 6, 9, 16, 20, 33]))
    if kind == "depthwise":
        groups, inputs, outputs = choose.choice([1, 3, 16, 19]), 1, choose.choice([1, 1, 2])
    kernel = choose.choice([(1, 1), (3, 3), (3, 3), (1, 5), (2, 4), (5, 2), (7, 7)])
    padding = choose.choice([(0,) * 4, (1,) * 4, (2,) * 4, (3,) * 4, (0, 1, 2, 3), (4, 0, 0, 1)])
    if kernel == (1, 1) and choose.random() < 0.6:
        padding, stride = (0,) * 4, (1, 1)
    else:
        stride = choose.choice([(1, 1), (1, 1), (2, 2), pair(1, 2, 3)])
    return Case(
        choose.choice(["float", "float", "float", "double"]),
        groups * inputs,
        groups * outputs,
        kernel,
        stride,
        padding,
        choose.choice([(1, 1), (1, 1), (2, 2), pair(1, 2, 3)]),
        groups,
        size,
    )


def all_cases() -> list[Case]:
    choose = random.Random(5)
    cases = [
        # the usual layers, small
        Case("float", 3, 64, (7, 7), (2, 2), (3,) * 4, (1, 1), 1, (1, 40, 36)),
        Case("float", 32, 32, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, (1, 14, 14)),
        Case("float", 24, 48, (1, 1), (2, 2), (0,) * 4, (1, 1), 1, (2, 14, 14)),
        Case("float", 24, 48, (1, 1), (1, 1), (0,) * 4, (1, 1), 1, (2, 7, 7)),
        Case("float", 1024, 16, (1, 1), (1, 1), (0,) * 4, (1, 1), 1, (1, 4, 4)),
        Case("float", 20, 20, (3, 3), (2, 2), (1,) * 4, (1, 1), 20, (2, 15, 15)),
        Case("float", 1, 16, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, (5, 8, 8)),
        # Winograd's tiles, of 4 x 4 and 2 x 2 pixels; their twins are slow
        Case("float", 33, 34, (3, 3), (1, 1), (1, 0, 2, 1), (1, 1), 1, (2, 5, 9)),
        Case("float", 32, 33, (3, 3), (1, 1), (0,) * 4, (1, 1), 1, (1, 4, 71)),
        Case("float", 64, 64, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, (1, 6, 6)),
        Case("float", 32, 36, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, None),
        # depthwise: images of less than half a vector, a vector, more; both strides
        Case("float", 6, 6, (3, 3), (1, 1), (1,) * 4, (1, 1), 6, (2, 7, 7)),
        Case("float", 5, 5, (3, 3), (2, 2), (1,) * 4, (1, 1), 5, (1, 13, 14)),
        Case("float", 6, 6, (3, 3), (1, 1), (0, 1, 2, 3), (1, 1), 6, (1, 20, 37)),
        Case("float", 6, 6, (5, 5), (2, 2), (2,) * 4, (1, 1), 6, (1, 23, 90)),
        Case("double", 7, 7, (5, 3), (2, 1), (1, 0, 3, 1), (1, 1), 7, (2, 9, 17)),
        Case("float", 8, 8, (3, 5), (1, 2), (0, 4, 1, 5), (1, 1), 8, None),
        Case("float", 5, 5, (3, 3), (1, 1), (1,) * 4, (1, 1), 5, None),
        Case("double", 4, 4, (5, 5), (1, 1), (2,) * 4, (1, 1), 4, None),
        Case("float", 3, 3, (7, 7), (1, 1), (3,) * 4, (1, 1), 3, (1, 9, 18)),
        Case("float", 3, 3, (9, 11), (2, 2), (4, 5, 4, 5), (1, 1), 3, (1, 19, 37)),
        # a first layer: few products per output, rows that fill vectors
        Case("float", 3, 10, (3, 3), (2, 2), (1,) * 4, (1, 1), 1, (2, 11, 32)),
        # copied a few images at a time; few outputs and short rows
        Case("float", 48, 10, (5, 3), (1, 1), (2,) * 4, (1, 1), 1, (3, 41, 70)),
        Case("float", 40, 3, (3, 3), (2, 2), (1,) * 4, (1, 1), 1, (4, 60, 66)),
        Case("float", 6, 8, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, (2, 7, 5)),
        Case("double", 9, 4, (3, 3), (1, 1), (1,) * 4, (1, 1), 1, (2, 7, 5)),
        # the kernel is larger than the image; an empty result; 1-d
        Case("float", 4, 12, (5, 5), (1, 1), (2,) * 4, (1, 1), 1, (2, 1, 1)),
        Case("float", 4, 12, (5, 5), (2, 2), (0,) * 4, (1, 1), 1, (2, 4, 4)),
        Case("float", 6, 12, (1, 3), (1, 1), (0, 1, 0, 1), (1, 1), 1, (2, 1, 130)),
        Case("float", 6, 6, (1, 3), (1, 2), (0, 1, 0, 1), (1, 1), 6, (2, 1, 131)),
        Case("double", 6, 4, (1, 3), (1, 1), (0, 1, 0, 1), (1, 2), 1, (2, 1, 65)),
        Case("double", 10, 20, (1, 1), (1, 1), (0,) * 4, (1, 1), 1, (2, 8, 9)),
        Case("float", 10, 33, (1, 1), (1, 1), (0,) * 4, (1, 1), 1, None),
        Case("float", 10, 20, (1, 1), (1, 1), (0,) * 4, (1, 1), 2, None),
    ]
    while len(cases) < 50:
        size = (choose.choice([1, 1, 2, 3]), choose.randint(1, 12), choose.choice([1, 4, 7, 9, 23, 70]))
        case = draw(choose, size)
        if case.fits(size):
            cases.append(case)
    cases += [draw(choose, None) for _ in range(36)]
    known = [*dict.fromkeys([*cases, *few_long_rows()]), *channels_last_cases()]
    return [*known, *(replace(case, computed=True) for case in known[::2])]


def few_long_rows() -> list[Case]:
    """Images whose tiles are vectors of one row, and not of each of several rows."""
    same = (1,) * 4
    return [
        Case("float", 1, 33, (3, 3), (1, 1), same, (1, 1), 1, (2, 5, 64)),
        Case("float", 3, 4, (2, 3), (2, 2), (0, 1, 1, 0), (1, 1), 1, (3, 10, 121)),
        Case("float", 6, 6, (3, 2), (1, 1), same, (1, 2), 2, (2, 3, 60)),
        Case("double", 2, 17, (2, 2), (2, 1), (1, 0, 0, 1), (2, 1), 1, (1, 4, 62)),
    ]


def channels_last_cases() -> list[Case]:
    """Images whose channels are last, in or out: drawn, and the usual layers."""
    choose, cases = random.Random(7), []
    same, twice = (1,) * 4, (2, 2)
    fixed = [
        # first layers; a strided 1x1; rows of a cache set; depthwise of a vector, less and more
        Case("float", 3, 33, (3, 3), twice, same, (1, 1), 1, (1, 11, 32), False, True),
        Case("float", 3, 64, (7, 7), twice, (3,) * 4, (1, 1), 1, (1, 20, 18), False, True),
        Case("float", 24, 48, (1, 1), twice, (0,) * 4, (1, 1), 1, (2, 14, 14), True, True),
        Case("float", 512, 17, (3, 3), twice, same, (1, 1), 1, (1, 5, 12), True, True),
        Case("float", 40, 8, (3, 2), twice, same, (1, 1), 1, (4, 60, 66), True, True),
        Case("float", 16, 16, (3, 3), (1, 1), same, (1, 1), 16, (2, 7, 7), True, True),
        Case("float", 19, 19, (3, 3), twice, same, (1, 1), 19, (1, 13, 14), True, True),
        Case("float", 144, 144, (3, 3), (1, 1), same, (1, 1), 144, (1, 5, 9), True, True),
        Case("float", 79, 79, (5, 3), (3, 2), (2, 1, 0, 1), (1, 1), 79, (2, 9, 9), True, False),
        Case("float", 80, 80, (3, 3), (1, 1), same, (1, 1), 80, None, True, True),
        Case("float", 5, 5, (3, 5), (1, 2), (0, 4, 1, 5), (1, 1), 5, None, True, True),
        Case("float", 20, 20, (3, 3), (1, 1), same, (1, 1), 20, (2, 9, 14), False, True),
        Case("float", 17, 17, (5, 5), twice, (2,) * 4, (1, 1), 17, None, False, True),
        # its kernel in parts, with dilations, a larger stride
        Case("float", 20, 20, (7, 7), (1, 1), (3,) * 4, (1, 1), 20, (2, 9, 14), True, True),
        Case("float", 17, 17, (2, 31), (1, 1), (1, 15, 1, 15), (1, 1), 17, (1, 5, 40), True, True),
        Case("float", 33, 33, (5, 7), (1, 2), (6, 9, 6, 9), (3, 3), 33, (1, 11, 19), True, False),
        Case("float", 16, 16, (3, 3), (4, 4), same, (2, 6), 16, None, True, True),
        Case("double", 9, 9, (9, 6), (2, 3), (4,) * 4, (1, 2), 9, (1, 12, 23), True, True),
        # taps that mostly lie in the padding
        Case("float", 40, 20, (3, 3), (1, 1), (5,) * 4, (5, 5), 1, (2, 7, 23), True, False),
        Case("float", 1024, 17, (2, 2), (1, 1), (3,) * 4, (3, 3), 1, (1, 3, 4), True, True),
        Case("float", 144, 66, (3, 2), (2, 1), (4, 30, 4, 30), (4, 30), 2, None, True, True),
        # Winograd's: in place, read or stored channels last alone
        Case("float", 48, 40, (3, 3), (1, 1), same, (1, 1), 1, (2, 9, 14), True, True),
        Case("float", 32, 33, (3, 3), (1, 1), (1, 0, 2, 3), (1, 1), 1, (1, 13, 7), True, False),
        Case("float", 33, 70, (3, 3), (1, 1), same, (1, 1), 1, None, False, True),
        Case("double", 11, 11, (3, 3), (1, 1), same, (1, 1), 11, (2, 6, 10), True, True),
        Case("double", 5, 20, (3, 2), (1, 2), same, (2, 1), 1, None, True, True),
    ]
    for number in range(12):
        size = (choose.choice([1, 2]), choose.randint(1, 12), choose.choice([1, 7, 23, 70]))
        case = draw(choose, size if number % 2 else None)
        if case.size is None or case.fits(size):
            x_last = choose.random() < 0.7
            cases.append(replace(case, x_last=x_last, y_last=not x_last or choose.random() < 0.7))
    return list(dict.fromkeys([*fixed, *cases]))


CASES = all_cases()


def runs(case: Case) -> list[tuple[int, int, int]]:
    if case.size:
        return [case.size]
    most = 200 if winograd_tile(case.spec()) else 10_000  # pixels
    return [size for size in SIZES if case.fits(size) and math.prod(size) <= most]


@cache
def rendered(case: Case) -> Rendered:
    """The template's function: every library has the same."""
    return conv.render_conv(case.spec())


def functions(cases: list[Case], kind: str) -> str:
    """The cases, each as fast_NAME or twin_NAME, with one list of arguments."""
    parts = []
    for case in cases:
        spec = case.spec()
        name = spec.name if kind == "fast" else f"naive_{spec.name}"
        if kind == "fast":
            parts.append(rendered(case).text)
        else:
            text = render_conv_naive(spec).text
            parts.append(text.replace(f"void {spec.name}(", f"{NOT_CHECKED} void {name}("))
        t = case.ctype
        parameters = (
            f"const {t} *x, const {t} *weight, const {t} *bias, {t} *y, int64_t N, int64_t H,"
            " int64_t W, void *workspace, int n_threads"
        )
        extra = "".join(f", {item}" for item in rendered(case).extra_parameters)
        parts.append(
            f"void {kind}_{spec.name}({parameters})\n{{\n    {name}(x, weight, bias, y, N, H, W{extra});\n}}\n"
        )
    return "\n".join(parts)


def workspace_bytes(case: Case, size: tuple[int, int, int], n_threads: int) -> int:
    text = text_of(rendered(case).workspace).replace("/", "//")
    n, h, w = size
    names = {"N": n, "H": h, "W": w, "n_threads": n_threads}
    return int(eval(text, C_FUNCTIONS, names))


def winograd_block_rows(tiles_down: int, row_bytes: int, panel_bytes: int) -> int:
    """The C function of this name."""
    half = (1 << 20) // 2
    rows = (8 * half if panel_bytes > half else half) // max(row_bytes, 1)
    if rows < 1:
        return 1
    blocks = -(-tiles_down // rows)
    return -(-tiles_down // blocks) if blocks > 1 else tiles_down


C_FUNCTIONS = {
    "winograd_block_rows": winograd_block_rows,
    "fx_floor_div": operator.floordiv,
    "fx_min": min,
    "fx_max": max,
}
"""What expressions of workspaces call."""


def reference(case: Case, x, weight, bias):
    """The convolution in float64, tap by tap."""
    top, left, bottom, right = case.padding
    n, _, h, w = x.shape
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    out_h, out_w = case.output(h, w)
    inputs, outputs = case.c // case.groups, case.k // case.groups
    y = np.zeros((n, case.k, out_h, out_w))
    for g in range(case.groups):
        group_x = x[:, g * inputs : (g + 1) * inputs]
        group_w = weight[g * outputs : (g + 1) * outputs].astype(np.float64)
        for r in range(case.kernel[0]):
            for s in range(case.kernel[1]):
                rows = r * case.dilation[0] + np.arange(out_h) * case.stride[0]
                columns = s * case.dilation[1] + np.arange(out_w) * case.stride[1]
                taps = group_x[:, :, rows[:, None], columns[None, :]]
                y[:, g * outputs : (g + 1) * outputs] += np.einsum("nchw,kc->nkhw", taps, group_w[:, :, r, s])
    y += bias[None, :, None, None]
    if case.joinable:
        y += np.arange(out_h * out_w).reshape(out_h, out_w) / 64
    else:
        y += np.arange(out_h)[:, None] * 0.5 - np.arange(out_w) * 0.25
    y = np.maximum(y, -1)
    return y.transpose(0, 2, 3, 1) if case.y_last else y


def stored(case: Case, x):
    """The image as the case reads it."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if case.x_last else x


def packed_weight(case: Case, weight: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The weight as the function reads it."""
    return weight if case.computed else conv_plan.pack_conv_weight(weight, case.spec())


@cache
def expected_of(case: Case, size: tuple[int, int, int]) -> tuple[np.ndarray[Any, Any], ...]:
    """Image, weight and bias, and the result: the same for every library."""
    n, h, w = size
    dtype = np.float32 if case.ctype == "float" else np.float64
    rng = np.random.default_rng(n * 100 + h * 10 + w)
    x = rng.standard_normal((n, case.c, h, w)).astype(dtype)
    weight = rng.standard_normal((case.k, case.c // case.groups, *case.kernel)).astype(dtype)
    bias = rng.standard_normal(case.k).astype(dtype)
    return x, weight, bias, reference(case, x, weight, bias).astype(dtype)


def check(library: ctypes.CDLL, kind: str, case: Case, size: tuple[int, int, int], n_threads: int) -> None:
    x, weight, bias, expected = expected_of(case, size)
    x = stored(case, x)
    packed = packed_weight(case, weight)
    needed = workspace_bytes(case, size, n_threads)
    workspace = np.full(needed + 64, 0xA5, np.uint8)
    y = np.full(expected.size + 8, 7777, expected.dtype)
    library[f"{kind}_{case.name}"](
        *(ctypes.c_void_p(array.ctypes.data) for array in (x, packed, bias, y)),
        *(ctypes.c_int64(value) for value in size),
        ctypes.c_void_p(workspace.ctypes.data),
        n_threads,
    )
    assert (workspace[needed:] == 0xA5).all(), f"{case} {size}: wrote past its workspace"
    assert (y[expected.size :] == 7777).all(), f"{case} {size}: wrote past its result"
    got = y[: expected.size].reshape(expected.shape)
    depth = weight[0].size
    found = compare(expected, got, chain=Chain(2, 2 * depth, 1))
    assert found.agrees, (kind, case, size, str(found))


@pytest.fixture(scope="module", autouse=True)
def small_cache() -> Iterator[None]:
    """Few images are copied at once, and most weights are large: panels of them stay while images pass by."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (conv_walk, conv_panels):
            patch.setattr(module, "COPIED", 4096)
        yield


@pytest.fixture(scope="module", params=FLAGS)
def library(request, tmp_path_factory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("conv") / "conv.so"
    return shared_library(with_tiles(functions(CASES, "fast")), target, *flags_of(request.param))


@pytest.mark.parametrize("n_threads", [1, 3])
def test_convolutions_agree_with_numpy(library: ctypes.CDLL, n_threads: int) -> None:
    for case in CASES:
        for size in runs(case):
            check(library, "fast", case, size, n_threads)


def test_twins_agree_with_numpy(tmp_path: Path) -> None:
    """They are slow, know neither threads nor instructions, and are no part of any model: once."""
    library = shared_library(with_tiles(functions(CASES, "twin")), tmp_path / "twins.so", "-O1")
    for case in CASES:
        for size in runs(case):
            check(library, "twin", case, size, 1)


def check_orders(texts: list[str]) -> None:
    """Some loops go over panels first, and some copy blocks of images."""
    panels_first = re.compile(r"int64_t panel = .*\n *for \(int64_t (n|row_block) = ")
    assert {panels_first.search(text) is not None for text in texts} == {True, False}
    assert {"n_0 += most_images" in text for text in texts} == {True, False}


def test_every_plan_is_drawn() -> None:
    """The random cases reach every plan with fixed and named sizes, groups and both types, and every order of
    loops."""
    check_orders([rendered(case).text for case in CASES])
    seen = {(conv_plan.plan_of(case.spec()), case.size is None) for case in CASES}
    assert len(seen) == 14
    assert {winograd_tile(case.spec()) for case in CASES} == {None, 2, 4}
    assert all(conv_plan.plan_of(c.spec()) == "pixels" and conv_plan.are_single_rows(c.spec()) for c in few_long_rows())
    assert {(conv_plan.plan_of(c.spec()), c.groups > 1) for c in CASES} >= {
        ("product", True),
        ("channels", True),
        ("pixels", True),
        ("pixels", False),
    }
    assert {(conv_plan.plan_of(c.spec()), c.ctype) for c in CASES} >= {
        (plan, "double") for plan in ("product", "channels", "pixels", "depthwise")
    }


@pytest.mark.parametrize(("height", "plan"), [(3, "channels"), (4, "pixels"), (5, "channels"), (31, "pixels")])
def test_few_products_are_added_for_pixels_of_rows_that_fill_tiles(height: int, plan: str) -> None:
    """Tiles are as high as four rows, whether the width is known or named."""
    case = Case("float", 8, 48, (2, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1, (2, height + 1, 33))
    assert conv_plan.plan_of(case.spec()) == plan
    assert conv_plan.plan_of(replace(case.spec(), w=symbol("W"))) == plan


@pytest.mark.parametrize(("width", "plan"), [(13, "channels"), (50, "pixels"), (64, "pixels")])
def test_rows_that_would_leave_most_vectors_empty_are_summed_by_channels(width: int, plan: str) -> None:
    """An image of one row takes four vectors of pixels, however short it is."""
    case = Case("float", 128, 8, (1, 2), (1, 1), (0, 0, 0, 0), (1, 1), 1, (8, 1, width + 1))
    assert conv_plan.plan_of(case.spec()) == plan


def test_nan_and_infinity_stay_where_they_belong(library: ctypes.CDLL) -> None:
    """A NaN pixel reaches the pixels whose kernels cover it, and no other."""
    last = [c for c in CASES if c.x_last or c.y_last]
    for case in [c for c in CASES[:20] + last if c.ctype == "float" and c.c > 1 and c.size]:
        if min(case.size[1:]) <= 4:
            continue
        n, h, w = case.size
        rng = np.random.default_rng(0)
        x = rng.standard_normal((n, case.c, h, w)).astype(np.float32)
        x[0, 1, 4, 4] = np.nan
        weight = rng.standard_normal((case.k, case.c // case.groups, *case.kernel)).astype(np.float32)
        bias = np.zeros(case.k, np.float32)
        expected = reference(case, x, weight, bias)
        x = stored(case, x)
        assert np.isnan(expected).any()
        packed = packed_weight(case, weight)
        y = np.zeros(expected.shape, np.float32)
        workspace = np.full(workspace_bytes(case, case.size, 2), 0xFF, np.uint8)  # NaNs
        getattr(library, f"fast_{case.name}")(
            *(ctypes.c_void_p(array.ctypes.data) for array in (x, packed, bias, y)),
            *(ctypes.c_int64(value) for value in case.size),
            ctypes.c_void_p(workspace.ctypes.data),
            2,
        )
        assert np.array_equal(np.isnan(y), np.isnan(expected))


MAIN = """
typedef void function(const void *, const void *, const void *, void *, int64_t, int64_t, int64_t,
                      void *, int);

static int check(const char *name, function *fast, function *twin, int item, int n, int h, int w,
                 long x_count, long weight_count, long k, long count, long workspace_bytes)
{
    void *x = filled(x_count, item), *weight = filled(weight_count, item);
    void *bias = filled(k, item), *y = filled(count, item), *z = filled(count, item);
    void *workspace = malloc(workspace_bytes);
    fast(x, weight, bias, y, n, h, w, workspace, 2);
    twin(x, weight, bias, z, n, h, w, workspace, 2);
    const int wrong = differing(y, z, count, item);
    if (wrong)
        printf("%s %d %d %d: %d wrong\\n", name, n, h, w, wrong);
    free(x), free(weight), free(bias), free(y), free(z), free(workspace);
    return wrong != 0;
}

int main(void)
{
    int wrong = 0;
"""


def sanitizer_program(cases: list[Case]) -> str:
    """A main() that runs each case on exactly sized buffers and compares it with its twin."""
    lines = [FILLED, DIFFERING, MAIN]
    for case in cases:
        weight = np.zeros((case.k, case.c // case.groups, *case.kernel))
        if case.ctype == "float":
            weight = weight.astype(np.float32)
        weight_count = packed_weight(case, weight).size
        for size in runs(case):
            n, h, w = size
            out_h, out_w = case.output(h, w)
            counts = (n * case.c * h * w, weight_count, case.k, n * case.k * out_h * out_w)
            lines.append(
                f'    wrong += check("{case.name}", (function *)fast_{case.name},'
                f" (function *)twin_{case.name}, sizeof({case.ctype}), {n}, {h}, {w},"
                f" {', '.join(map(str, counts))}, {workspace_bytes(case, size, 2)});"
            )
    return "\n".join([*lines, "    return wrong != 0;", "}"])


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_convolutions_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    cases = CASES if march == "native" else CASES[::3]
    text = functions(cases, "fast") + functions(cases, "twin") + sanitizer_program(cases)
    run_sanitized(compile_c(with_tiles(text), tmp_path / "conv", flag_of(march), *SANITIZED))


def test_images_one_pixel_wide() -> None:
    """Their addresses have no column; a loop over rows and columns at once counts columns."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((4, 1, 3, 3)).astype(np.float32)

    def one_wide(x: Any) -> Any:
        y = ops.conv2d(x, weight, stride=(1, 2), padding=((1, 2), (1, 2)), groups=4)
        return ops.clip(y * 0.5, -1, 1)

    agree(one_wide, rng.standard_normal((1, 4, 8, 1)).astype(np.float32))


@pytest.mark.parametrize(
    "channels, size, weight, options",
    [
        (64, (9, 11), (40, 64, 3, 3), {"padding": 8, "dilation": 8}),  # most of a row
        (64, (5, 5), (40, 64, 3, 3), {"padding": 7, "dilation": 7}),  # all but the middle
        (256, (6, 40), (33, 256, 3, 3), {"padding": 6, "dilation": 6}),  # runs in parts, several tiles in a row
        (1024, (5, 6), (32, 1024, 3, 3), {"padding": 4, "dilation": 4}),  # pixels 4 KiB apart
        (64, (12, 9), (40, 32, 3, 5), {"padding": ((0, 9), (5, 11)), "dilation": (4, 5), "groups": 2}),
        (96, (12, 12), (32, 96, 3, 2), {"padding": (6, 5), "dilation": (6, 5), "stride": (2, 1)}),
        (64, (1, 50), (40, 64, 1, 5), {"padding": (0, 40), "dilation": (1, 20)}),  # a row
        (64, (4, 6), (40, 64, 4, 3), {"padding": ((9, 9), (2, 2)), "dilation": (3, 1)}),
        (64, (3, 4), (40, 64, 2, 2), {"padding": 20, "dilation": 30}),  # some rows of the result read nothing
    ],
)
def test_taps_in_the_padding_are_left_out(channels: int, size: tuple[int, int], weight: Any, options: Any) -> None:
    """Those of a dilated kernel may lie far apart."""
    rng = np.random.default_rng(0)
    w, b = rng.standard_normal(weight, np.float32), rng.standard_normal(weight[0], np.float32)
    x = rng.standard_normal((2, *size, channels), np.float32)

    def program(x: Any) -> Any:
        return np.maximum(ops.conv2d(x, w, b, layout="NHWC", **options), 0)

    agree(program, x)
    agree(lambda x: ops.conv2d(x, w, b, **options), np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    for types in (x, f"f32[B,{size[0]},{size[1]},{channels}]", f"f32[2,H,W,{channels}]"):
        compiled = fx.compile(program, types)
        compare("C", compiled(x), program(x))
        assert "What lies in the padding is left out" in "".join(compiled.sources.values())
