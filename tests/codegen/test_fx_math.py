"""The scalar functions of codegen/c/fx_math.h, compiled with gcc and compared with NumPy.

A driver is generated that applies each function to arrays, in loops that become SIMD code, and that
measures errors of the float functions against the C library's double functions. Run as a program,
``python -m tests.codegen.test_fx_math [FUNCTION ...]`` measures them on all 2**32 floats, or on as
many pairs, and on fewer with other compiler flags: a minute or two for each function.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.codegen.runtime.toolchain import CompilerNotFound, compile_flags, find_compiler, instruction_sets
from fxlite.scalar.functions import FUNCTIONS
from fxlite.types.dtypes import dtype
from tests.codegen.compiling import compiled
from tests.cuda_launchers import launch_on_arrays, launcher, places

Array = NDArray[Any]
FOLDER = Path(__file__).parents[2] / "codegen" / "c"

# Largest errors in ulp that the records promise, over all floats and all three builds.
ERRORS = {f.name: f.ulp for f in FUNCTIONS.values() if f.ulp and f.arity == 1 and f.name != "exp_weight"}
PAIR_ERRORS = {f.name: f.ulp for f in FUNCTIONS.values() if f.ulp and f.arity == 2}

FLOATS = {"f32": "float", "f64": "double"}
SIGNED = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t"}
UNSIGNED = {"u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t"}
INTEGERS = SIGNED | UNSIGNED


def numpy_of(function: str) -> Callable[..., Array]:
    """What a scalar function means."""
    return FUNCTIONS[function].compute


HEADER = (FOLDER / "fx_math.h").read_text()


def exact(arity: int) -> list[str]:
    """Functions of floats whose results are NumPy's, bit for bit."""
    own = [f for f in FUNCTIONS.values() if f.arity == arity and not f.ulp]
    return [f.name for f in own if all(f"fx_{f.name}_{kind}(" in HEADER for kind in FLOATS)]


EXACT_UNARY, EXACT_BINARY = exact(1), exact(2)
INTEGER_UNARY = ["neg", "abs", "sign"]
INTEGER_BINARY = ["add", "sub", "mul", "maximum", "minimum", "floordiv", "mod", "pow", "shl", "shr"]
#: Functions that are calls of the C library.
NO_SIMD, NO_SIMD_F64 = ({f.name for f in FUNCTIONS.values() if kind in f.calls} for kind in ("f32", "f64"))
#: The largest errors of those that are none.
ERROR_F64 = 2.7


@cache
def functions() -> dict[str, tuple[tuple[str, ...], str]]:
    """Parameter types and result type of each function that the driver applies to arrays."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for name, c in FLOATS.items():
        for f in [*EXACT_UNARY, *ERRORS, "exp_weight"]:
            found[f"{f}_{name}"] = ((c,), "int" if f in ("isnan", "isinf") else c)
        for f in [*EXACT_BINARY, *PAIR_ERRORS]:
            found[f"{f}_{name}"] = ((c, c), c)
        for integer, c_integer in INTEGERS.items():
            found[f"cast_{name}_{integer}"] = ((c,), c_integer)
        found[f"fma_{name}"] = ((c, c, c), c)
        for half in ("f16", "bf16"):
            found[f"{half}_from_{name}"] = ((c,), "uint16_t")
    for half in ("f16", "bf16"):
        found[f"f32_from_{half}"] = (("uint16_t",), "float")
    for name, c in INTEGERS.items():
        found |= {f"{f}_{name}": ((c,), c) for f in INTEGER_UNARY}
        found |= {f"{f}_{name}": ((c, c), c) for f in INTEGER_BINARY}
        found[f"fma_{name}"] = ((c, c, c), c)
    found |= {f"{f}_bool": (("unsigned char",) * 2, "unsigned char") for f in ("maximum", "minimum")}
    found["abs_bool"] = (("unsigned char",), "unsigned char")
    return found


def array_function(name: str) -> str:
    """C text, on one line: ``call_NAME`` applies fx_NAME to n elements."""
    arguments, result = functions()[name]
    letters = "abc"[: len(arguments)]
    parameters = "".join(f"const {t} *restrict {x}, " for t, x in zip(arguments, letters))
    values = ", ".join(f"{x}[i]" for x in letters)
    return (
        f"void call_{name}({parameters}{result} *restrict y, long n) "
        f"{{ for (long i = 0; i < n; i++) y[i] = fx_{name}({values}); }}"
    )


# `worst_NAME` measures `count` arguments: the floats whose bits are `first`, `first + step`, … Two
# arguments have pseudorandom bits; for pow the second is such that the result is often finite.
MEASURE = r"""
static double error_of(float y, double exact, int cancels) {
    float nearest = (float)exact;
    if (isnan(exact)) return isnan(y) ? 0 : INFINITY;
    if (!signbit(y) != !signbit(nearest) && !cancels) return INFINITY;
    if (isinf(nearest) || isinf(y)) {
        int border = fabs(exact) > 3.402823e38 && fabs(exact) < 3.402824e38;
        return y == nearest ? 0 : border ? 1 : INFINITY;
    }
    uint64_t bits; /* the exponent of `exact` gives that of an ulp, 2^-149 for subnormals */
    memcpy(&bits, &exact, sizeof bits);
    uint64_t exponent = bits >> 52 & 0x7ff, least = cancels ? 1023 : 1023 - 126;
    bits = ((exponent < least ? least : exponent) - 23) << 52;
    double ulp;
    memcpy(&ulp, &bits, sizeof ulp);
    return fabs(y - exact) / ulp;
}
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double logaddexp(double x, double y) {
    return x == y ? x + log(2) : x != x || y != y ? x + y : fmax(x, y) + log1p(exp(-fabs(x - y)));
}
static uint64_t mixed(uint64_t x) { /* splitmix64, by S. Vigna */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
#define MEASURE(NAME)                                                                       \
    double worst_##NAME(uint64_t first, uint64_t step, uint64_t count, float *where) {      \
        float x[1024], y[1024];                                                             \
        double worst = -1;                                                                  \
        for (uint64_t done = 0; done < count; done += 1024) {                               \
            for (int i = 0; i < 1024; i++)                                                  \
                x[i] = fx_float_from_bits((uint32_t)(first + step * (done + i)));           \
            call_##NAME##_f32(x, y, 1024);                                                  \
            for (int i = 0; i < 1024; i++) {                                                \
                double error = error_of(y[i], NAME(x[i]), 0);                               \
                if (error > worst) worst = error, *where = x[i];                            \
            }                                                                               \
        }                                                                                   \
        return worst;                                                                       \
    }
#define MEASURE_PAIRS(NAME, CANCELS)                                                        \
    double worst_##NAME(uint64_t first, uint64_t step, uint64_t count, float *where) {      \
        float a[1024], b[1024], y[1024];                                                    \
        double worst = -1;                                                                  \
        for (uint64_t done = 0; done < count; done += 1024) {                               \
            for (int i = 0; i < 1024; i++) {                                                \
                uint64_t bits = mixed(first + step * (done + i));                           \
                a[i] = fx_float_from_bits((uint32_t)bits);                                  \
                b[i] = fx_float_from_bits((uint32_t)(bits >> 32));                          \
                if (i % 4 == 0) a[i] = 1 + (float)(int16_t)bits * 1e-6f; /* near 1 */       \
                if (i % 2 == 0)                                                             \
                    b[i] = (float)((int32_t)(bits >> 32) * 5e-8 / log(fabs((double)a[i]))); \
                if (i % 8 == 2) b[i] = rintf(b[i]);                                         \
            }                                                                               \
            call_##NAME##_f32(a, b, y, 1024);                                               \
            for (int i = 0; i < 1024; i++) {                                                \
                double error = error_of(y[i], NAME((double)a[i], (double)b[i]), CANCELS);   \
                if (error > worst) worst = error, where[0] = a[i], where[1] = b[i];         \
            }                                                                               \
        }                                                                                   \
        return worst;                                                                       \
    }
int64_t try_index(int64_t i, int64_t extent, int64_t where, fx_error *error) {
    return fx_index(i, extent, where, error);
}
long index_array(const int64_t *i, long n, int64_t extent, fx_error *error) {
    long failed = 0;
#pragma omp parallel for num_threads(4) reduction(+ : failed)
    for (long k = 0; k < n; k++) failed += fx_index(i[k], extent, i[k] + 7, error) < 0;
    return failed;
}
"""


#: Powers with a constant, and of numbers of which compilers know the sign: these they take apart.
POWERS = {
    "of_x": "a[i], 1.7f",
    "whole": "a[i], 5",
    "of_two": "2, a[i]",
    "of_size": "fx_abs_{0}(a[i]), 1.7f",
    "of_exp": "fx_exp_{0}(a[i]), 0.3f",
    "of_maximum": "fx_maximum_{0}(a[i], 0), 0.7f",
    "of_square": "a[i] * a[i], -0.75f",
}


def power_functions() -> list[str]:
    """C text of loops with such powers, one on each line."""
    return [
        f"void call_power_{name}_{kind}(const {c} *restrict a, {c} *restrict y, long n) "
        f"{{ for (long i = 0; i < n; i++) y[i] = fx_pow_{kind}({operands.format(kind)}); }}"
        for kind, c in FLOATS.items()
        for name, operands in POWERS.items()
    ]


def driver() -> str:
    """C text of the driver."""
    loops = [*map(array_function, functions()), *power_functions()]
    lines = ['#include "fx_math.h"', *loops, MEASURE]
    lines += [f"MEASURE({f})" for f in ERRORS]
    lines += [f"MEASURE_PAIRS({f}, {int(FUNCTIONS[f].cancels)})" for f in PAIR_ERRORS]
    return "\n".join(lines) + "\n"


NATIVE = (*compile_flags(), "-O3")  # vectorized, also in tests
BUILDS = {
    "native": NATIVE,
    "no-contraction": (*NATIVE, "-ffp-contract=off"),
    "no-fma": tuple(flag for flag in NATIVE if not flag.startswith("-m")),
}


def gcc() -> str:
    """The compiler."""
    try:
        compiler = find_compiler()
    except CompilerNotFound:
        pytest.skip("no C compiler")
    return compiler.command[0]


def is_gcc() -> bool:
    """Whether it can say which loops became SIMD code."""
    return "Free Software Foundation" in find_compiler().version


def build(folder: Path, flags: tuple[str, ...]) -> tuple[ctypes.CDLL, str]:
    """The driver, loaded, and what the compiler said about loops."""
    report = ["-fopt-info-vec-optimized"] if is_gcc() else []
    said = compiled([gcc(), *flags, "-fopenmp", "-shared", *report, f"-I{FOLDER}"], driver(), folder / "driver.so")
    return ctypes.CDLL(str(folder / "driver.so")), said


class Driver:
    """One build of the driver."""

    def __init__(self, folder: Path, flags: tuple[str, ...]) -> None:
        self.library, self.report = build(folder, flags)

    def call(self, name: str, *arguments: Array) -> Array:
        """fx_NAME of arrays, element by element."""
        parameters, result = functions()[name]
        inputs = [np.ascontiguousarray(a) for a in arguments]
        assert len(inputs) == len(parameters)
        types = {"float": "f4", "double": "f8", "int": "i4", "unsigned char": "u1"}
        for array, parameter in zip(inputs, parameters):
            expected = types.get(parameter, parameter[:-2])
            assert array.dtype == expected, (name, array.dtype, expected)
        out = np.empty(inputs[0].shape, types.get(result, result[:-2]))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, out)]
        getattr(self.library, f"call_{name}")(*pointers, ctypes.c_long(out.size))
        return out

    def worst(self, name: str, first: int, step: int, count: int) -> tuple[float, list[float]]:
        """Largest error in ulp, and where."""
        measure = getattr(self.library, f"worst_{name}")
        measure.restype = ctypes.c_double
        where = (ctypes.c_float * 2)()
        error = measure(*map(ctypes.c_uint64, (first, step, count)), where)
        return float(error), list(where)[: 2 if name in PAIR_ERRORS else 1]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("native"), BUILDS["native"])


@pytest.fixture(scope="module")
def no_fma(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(tmp_path_factory.mktemp("no_fma"), (*BUILDS["no-fma"], "-O1"))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def specials(name: str) -> Array:
    """Values at which functions of floats go wrong."""
    numpy = dtype(name).numpy
    info = np.finfo(numpy)
    values = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        1.5,
        2.5,
        0.3,
        7.0,
        10.0,
        88.7,
        89.5,
        104.0,
        1e5,
        2.0**23 + 1,
        2.0**24,
        2.0**31,
        2.0**50,
        2.0**63,
        1e30,
        np.pi,
        np.pi / 2,
        np.inf,
        np.nan,
        info.max,
        info.tiny,
        info.smallest_subnormal,
        info.eps,
        1 + info.eps,
        1 - info.epsneg,
    ]
    return np.array([s * v for v in values for s in (1, -1)], numpy)


def same(actual: Array, expected: Array) -> Array:
    """Equal, with NaN equal to NaN and zeros by sign."""
    zeros = (actual == 0) & (np.signbit(actual) != np.signbit(expected))
    equal: Array = ((actual == expected) & ~zeros) | (np.isnan(actual) & np.isnan(expected))
    return equal


def grid(values: Array) -> tuple[Array, Array]:
    """All pairs."""
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


def first(wrong: Array, *arrays: Array) -> list[Any]:
    """The elements at the first place where something is wrong, for the message."""
    return [array[wrong][0] for array in arrays]


def documented() -> str:
    """The table of promised errors in docs/fast_c.md."""
    cells = [f"{name} {ulp}" for name, ulp in sorted((ERRORS | PAIR_ERRORS).items())]
    rows = [[""] * 6, ["---"] * 6, *(cells[i : i + 6] for i in range(0, len(cells), 6))]
    return "\n".join(f"  | {' | '.join(r + [''] * (6 - len(r)))} |" for r in rows)


def test_errors_are_documented() -> None:
    assert documented() in (FOLDER.parents[1] / "docs" / "fast_c.md").read_text()


@pytest.mark.parametrize("function", [*ERRORS, *PAIR_ERRORS])
def test_float_errors(function: str, native: Driver, no_fma: Driver) -> None:
    """On 2**20 floats, of all exponents, errors stay below what the header says."""
    bound = (ERRORS | PAIR_ERRORS)[function]
    for build in (native, no_fma):
        error, where = build.worst(function, 1234, 4095, 2**20)
        assert error <= bound, f"{function}{where}: {error} ulp"
        assert error > 0.4  # the measuring works


#: Calls; what cancels; and of what NumPy's formula overflows early.
NOT_MEASURED = NO_SIMD_F64 | {"logaddexp", "sigmoid"}


def doubles() -> Array:
    """Arguments, by where errors are largest: all bits, around 0 and 1, and subnormals."""
    rng, count = np.random.default_rng(0), 100_000
    bits = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    parts = [rng.standard_normal(count) * scale for scale in (0.3, 3.0, 300.0)]
    return np.concatenate([bits, *parts, 1 + rng.standard_normal(count) * 1e-3, 10 ** rng.uniform(-320, 0, count)])


def ulps(found: Array, exact: Array) -> Array:
    """Errors in units in the last place of doubles; 0 where both are NaN, or infinite alike."""
    nearest = exact.astype(np.float64)
    same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    errors = np.abs(found.astype(np.longdouble) - exact) / np.spacing(np.abs(nearest))
    errors = np.where(same & ~np.isfinite(nearest), 0, errors)
    return np.where(np.isnan(errors) | (np.signbit(found) != np.signbit(nearest)) & ~np.isnan(found), np.inf, errors)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double")
@pytest.mark.parametrize("function", [f for f in (*ERRORS, *PAIR_ERRORS) if f not in NOT_MEASURED])
def test_double_errors(function: str, native: Driver, no_fma: Driver) -> None:
    """Those of the functions that are no calls of the C library."""
    arguments = [doubles()] if function in ERRORS else [doubles(), doubles()[::-1].copy()]
    with np.errstate(all="ignore"):
        exact = numpy_of(function)(*(a.astype(np.longdouble) for a in arguments))
        for driver in (native, no_fma):
            errors = ulps(driver.call(f"{function}_f64", *arguments), exact)
            worst = int(np.argmax(errors))
            assert errors[worst] <= ERROR_F64, [a[worst] for a in arguments]


@pytest.mark.parametrize(("name", "least"), [("f32", -87), ("f64", -708)])
def test_weights_of_softmax(name: str, least: int, native: Driver, no_fma: Driver) -> None:
    """They are those of exp, but for the ones that are nearly subnormal, which are 0."""
    x = np.concatenate([-doubles().astype(dtype(name).numpy), specials(name)])
    x = np.concatenate([x, np.linspace(-760, 1, 4001, dtype=x.dtype)])
    for driver in (native, no_fma):
        found = driver.call(f"exp_weight_{name}", x)
        expected = np.where(x < least, 0, driver.call(f"exp_{name}", np.minimum(x, 0)))
        assert_allclose(found, expected, rtol=2 * np.finfo(x.dtype).eps)
        assert_allclose(found, numpy_of("exp_weight")(x), rtol=4 * np.finfo(x.dtype).eps)
        assert not (found[found > 0] < np.finfo(x.dtype).tiny).any()


def test_parts_of_two_over_pi() -> None:
    """The tables that reduce arguments of sine, cosine and tangent."""
    parts = [re.findall(r"0x\w{16}", HEADER.split(f"fx_turns_{k}[62] = {{")[1].split("}")[0]) for k in range(4)]
    with mpmath.workdps(400):
        for j, words in enumerate(zip(*parts, strict=True)):
            exact = 2 / mpmath.pi * mpmath.mpf(2) ** (16 * j)
            exact -= 4 * mpmath.nint(exact / 4)
            found = sum(mpmath.mpf(float(np.uint64(int(w, 16)).view(np.float64))) for w in words)
            assert abs(exact - found) < mpmath.mpf(2) ** -208, j


@pytest.mark.parametrize("function", [*ERRORS, *PAIR_ERRORS])
@pytest.mark.parametrize("name", FLOATS)
def test_special_values(function: str, name: str, native: Driver) -> None:
    """NaN, infinities, zeros and their signs, borders."""
    x = specials(name)
    arguments = grid(x) if function in PAIR_ERRORS else (x,)
    actual = native.call(f"{function}_{name}", *arguments)
    expected = numpy_of(function)(*(a.astype(np.float64) for a in arguments)).astype(x.dtype)
    tolerance = 4 * np.finfo(x.dtype).eps
    cancels = FUNCTIONS[function].cancels
    least = tolerance if cancels else np.finfo(x.dtype).smallest_subnormal
    close = np.isclose(actual, expected, rtol=tolerance, atol=least)
    close &= ((actual == 0) == (expected == 0)) | cancels
    if function != "sigmoid":  # of which NumPy's formula overflows early
        close &= (np.signbit(actual) == np.signbit(expected)) | np.isnan(expected)
    wrong = ~close & ~(np.isnan(actual) & np.isnan(expected))
    assert not wrong.any(), first(wrong, *arguments, actual, expected)


def test_exact_results(native: Driver) -> None:
    """Values that programs rely on."""
    whole = np.arange(-20, 21).astype(np.float32)
    a, b = (v.ravel() for v in np.meshgrid(whole, np.arange(6).astype(np.float32)))
    expected = (a.astype(np.float64) ** b).astype(np.float32)
    assert (native.call("pow_f32", a, b) == expected).all()
    zero, large = np.zeros(1, np.float32), np.full(1, 50, np.float32)
    assert native.call("exp_f32", zero) == 1 and native.call("cos_f32", zero) == 1
    assert native.call("sigmoid_f32", zero) == 0.5 and native.call("log_f32", zero + 1) == 0
    for saturated in ("tanh", "erf", "sigmoid"):
        assert native.call(f"{saturated}_f32", large) == 1
    x = np.linspace(-12, 12, 200_000).astype(np.float32)
    for bounded in ("tanh", "erf", "sigmoid", "sin", "cos"):
        assert np.abs(native.call(f"{bounded}_f32", x)).max() <= 1
    a, b = (v.ravel() for v in np.meshgrid(np.arange(-60.0, 60), np.arange(1.0, 40)))
    a, b = a[np.abs(a**b) < 2**53], b[np.abs(a**b) < 2**53]
    assert (native.call("pow_f64", a, b) == [float(int(x) ** int(y)) for x, y in zip(a, b)]).all()
    for kind, count in (("f4", 11), ("f8", 23)):
        tens = np.array([10.0**k for k in range(count)], kind)
        assert (native.call(f"log10_{'f32' if kind == 'f4' else 'f64'}", tens) == np.arange(count)).all()
    whole = np.linspace(-1e5, 1e5, 200_001)
    for bounded in ("sin", "cos"):
        assert np.abs(native.call(f"{bounded}_f64", whole)).max() <= 1


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("function", EXACT_UNARY + EXACT_BINARY)
def test_exact_functions(function: str, name: str, native: Driver) -> None:
    """What needs no approximation is NumPy's result bit for bit."""
    random = np.random.default_rng(1)
    x = np.concatenate([specials(name), random.normal(0, 100, 5000).astype(dtype(name).numpy)])
    arguments: tuple[Array, ...] = (x,)
    if function in EXACT_BINARY:
        pairs, divisors = grid(specials(name)), random.normal(0, 9, x.size).astype(x.dtype)
        any_bits = random.integers(0, 256, (2, 5000, x.itemsize), np.uint8).view(x.dtype)[..., 0]
        any_bits = np.where(np.isnan(any_bits), 1, any_bits)
        multiples = (random.integers(1, 2**20, 5000) * any_bits[1] * np.exp2(random.integers(0, 90, 5000))).astype(
            x.dtype
        )
        arguments = (
            np.concatenate([pairs[0], x, any_bits[0], multiples]),
            np.concatenate([pairs[1], divisors, any_bits[1], any_bits[1]]),
        )
    actual, expected = (native.call(f"{function}_{name}", *arguments), numpy_of(function)(*arguments))
    if function in ("isnan", "isinf"):
        good = (actual != 0) == expected
    elif function in ("maximum", "minimum"):  # NumPy does not say which zero
        good = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    else:
        good = same(actual, expected)
    assert good.all(), first(~good, *arguments, actual, expected)


def integer_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for a C type of integers, those that no array of fxlite has included."""
    return np.dtype(INTEGERS[name].removesuffix("_t"))


def integer_pairs(name: str) -> tuple[Array, Array]:
    """All pairs of 8-bit integers; of wider ones, pairs of values near borders and random ones."""
    numpy = integer_dtype(name)
    info = np.iinfo(numpy)
    if numpy.itemsize == 1:
        return grid(np.arange(info.min, info.max + 1).astype(numpy))
    near = {b + d for b in (info.min, info.max, 0, 2**15, -(2**15)) for d in range(-9, 10)}
    near |= {s * (d + 2**k) for k in range(64) for s in (1, -1) for d in (-1, 0, 1)}
    a, b = grid(np.array([v for v in sorted(near) if info.min <= v <= info.max], numpy))
    random = np.random.default_rng(2).integers(info.min, info.max, (2, 20000), numpy, endpoint=True)
    random >>= np.random.default_rng(3).integers(0, info.bits - 1, random.shape).astype(numpy)
    return np.concatenate([a, random[0]]), np.concatenate([b, random[1]])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("function", INTEGER_UNARY + INTEGER_BINARY)
def test_integers(function: str, name: str, native: Driver) -> None:
    a, b = integer_pairs(name)
    arguments = (a,) if function in INTEGER_UNARY else (a, b)
    if function == "pow":
        arguments = a, np.where(b < 0, 0, b).astype(b.dtype)
    actual, expected = (native.call(f"{function}_{name}", *arguments), numpy_of(function)(*arguments))
    wrong = actual != expected
    assert not wrong.any(), first(wrong, *arguments, actual, expected)


@pytest.mark.parametrize("name", SIGNED)
def test_negative_exponents(name: str, native: Driver) -> None:
    """NumPy refuses them; here the reciprocal is truncated."""
    numpy = dtype(name).numpy
    base = np.array([1, 1, -1, -1, 0, 2, -2, -128, 127], numpy)
    exponent = np.array([-1, -128, -1, -2, -3, -1, -1, -1, -128], numpy)
    assert native.call(f"pow_{name}", base, exponent).tolist() == [1, 1, -1, 1, 0, 0, 0, 0, 0]


def test_bool_and_fma(native: Driver) -> None:
    a, b = (v.astype(np.uint8) for v in grid(np.array([False, True])))
    assert (native.call("maximum_bool", a, b) == (a | b)).all()
    assert (native.call("minimum_bool", a, b) == (a & b)).all()
    assert (native.call("abs_bool", a) == a).all()
    for name in [*FLOATS, *INTEGERS]:
        x = np.arange(2, 9).astype(integer_dtype(name) if name in INTEGERS else dtype(name).numpy)
        assert (native.call(f"fma_{name}", x, x + 1, x + 2) == x * (x + 1) + x + 2).all()


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize("name", FLOATS)
def test_casts(name: str, integer: str, native: Driver) -> None:
    """As NumPy on x86-64 does, also out of range."""
    x = specials(name)
    random = np.random.default_rng(4)
    sizes = np.exp(random.uniform(-2, 60, 20000)) * random.choice([-1, 1], 20000)
    borders = [s * (2.0**k + d) for k in (7, 8, 15, 16, 31, 32, 63, 64) for s in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    x = np.concatenate([x, sizes.astype(x.dtype), np.array(borders, x.dtype)])
    actual, expected = native.call(f"cast_{name}_{integer}", x), x.astype(integer_dtype(integer))
    if integer == "u32":  # NumPy gives one number this, and long arrays something else
        expected = x.astype(np.int64).astype(np.uint32)
    wrong = actual != expected
    assert not wrong.any(), first(wrong, x, actual, expected)


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_half_types(half: str, native: Driver) -> None:
    """Exactly as NumPy and ml_dtypes, for all 16-bit patterns and many floats."""
    numpy = np.dtype(np.float16 if half == "f16" else ml_dtypes.bfloat16)
    bits = np.arange(2**16).astype(np.uint16)
    widened = native.call(f"f32_from_{half}", bits)
    expected = bits.view(numpy).astype(np.float32)
    nan = np.isnan(expected)
    assert (np.isnan(widened) == nan).all()
    assert (widened.view(np.uint32) == expected.view(np.uint32))[~nan].all()
    back = native.call(f"{half}_from_f32", widened)
    assert (back[~nan] == bits[~nan]).all() and np.isnan(back[nan].view(numpy)).all()

    random = np.random.default_rng(5)
    floats = random.integers(0, 2**32, 2**22, np.uint32)
    ties = random.integers(0, 2**16, 2**18).astype(np.uint32) << 16 | 0x8000
    halfway = (bits.view(np.float16).astype(np.float32).view(np.uint32) + 0x1000)[~nan]
    near = np.concatenate([ties, halfway])
    x = np.concatenate([floats, near - 1, near, near + 1]).view(np.float32)
    for name in FLOATS:
        wide = x.astype(dtype(name).numpy)
        if name == "f64":
            wide *= 1 + random.choice([-1, 0, 1], x.size) * 2.0**-45
        narrow, wanted = native.call(f"{half}_from_{name}", wide), wide.astype(numpy)
        nan = np.isnan(wanted)
        assert (np.isnan(narrow.view(numpy)) == nan).all()
        wrong = (narrow != wanted.view(np.uint16)) & ~nan
        assert not wrong.any(), first(wrong, wide, narrow, wanted)


class Error(ctypes.Structure):
    """fx_error of the header."""

    _fields_ = [("code", ctypes.c_int), ("value", ctypes.c_int64), ("limit", ctypes.c_int64), ("where", ctypes.c_int64)]


def test_index(native: Driver) -> None:
    library = native.library
    library.try_index.restype = ctypes.c_int64
    library.index_array.restype = ctypes.c_long

    def index(i: int, extent: int) -> tuple[int, tuple[int, int, int, int]]:
        error = Error()
        found = library.try_index(*map(ctypes.c_int64, (i, extent, 5)), ctypes.byref(error))
        return found, (error.code, error.value, error.limit, error.where)

    for i in range(-4, 4):
        assert index(i, 4) == (i % 4, (0, 0, 0, 0))
    for i, extent in ((4, 4), (-5, 4), (0, 0), (-1, 0), (-(2**63), 3), (2**63 - 1, 3)):
        assert index(i, extent) == (-1, (1, i, extent, 5))

    # Many threads fail at once: the record is of one of them.
    values = np.arange(-20000, 20000)
    error = Error()
    pointer = ctypes.c_void_p(values.ctypes.data)
    failed = library.index_array(pointer, ctypes.c_long(values.size), ctypes.c_int64(100), ctypes.byref(error))
    assert failed == values.size - 200
    assert (error.code, error.limit) == (1, 100)
    assert not -100 <= error.value < 100 and error.where == error.value + 7


def test_loops_become_simd_code(native: Driver) -> None:
    """Every loop but the few with a call or without a SIMD instruction."""
    if not is_gcc():
        pytest.skip("only gcc reports in this form")
    lines = driver().splitlines()
    reported: dict[int, int] = {}
    pattern = r"driver\.c:(\d+):.*loop vectorized using (\d+) byte"
    for line, size in re.findall(pattern, native.report):
        reported[int(line)] = max(reported.get(int(line), 0), int(size))
    sets = instruction_sets()
    if "avx2" not in sets:
        pytest.skip("needs a CPU with AVX2")
    expected_size = 64 if "avx512dq" in sets else 32
    for number, line in enumerate(lines, 1):
        match = re.match(r"void call_(\w+?)_(f32|f64)\(", line)
        if match and match[1] not in (NO_SIMD if match[2] == "f32" else NO_SIMD_F64):
            # GCC takes vectors of 32 bytes for some processors that have longer ones
            assert reported.get(number, 0) >= 32, line
    if expected_size == 64:
        for name in (
            "f32_from_f16",
            "f16_from_f32",
            "f32_from_bf16",
            "bf16_from_f32",
            "cast_f32_i32",
            "cast_f32_u8",
            "cast_f64_i64",
            "floordiv_i32",
            "mod_i32",
            "floordiv_i8",
            "maximum_f64",
            "shl_i32",
            "shr_i64",
        ):
            number = next(n for n, t in enumerate(lines, 1) if t.startswith(f"void call_{name}("))
            assert number in reported, name


def test_powers_become_simd_code_in_each_loop_that_computes_them(tmp_path: Path) -> None:
    """Also in the blocks of a sum, beside which the loop over the rest computes them, too."""
    if not is_gcc() or "avx2" not in instruction_sets():
        pytest.skip("only gcc reports in this form, and without AVX2 the C library computes powers")
    loops = [
        f"void powers_{n}(double *x, const double *y, long n) {{\n"
        f"#pragma omp simd\n for (long i = 0; i < n; ++i) x[i] += fx_pow_f64(x[i], y[i] + {n});\n}}"
        for n in range(3)
    ]
    (tmp_path / "powers.c").write_text('#include "fx_math.h"\n' + "\n".join(loops))
    command = [gcc(), *NATIVE, "-fopenmp", "-c", "-fopt-info-vec-optimized", "powers.c", f"-I{FOLDER}"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(set(re.findall(r"powers\.c:(\d+):.*loop vectorized", run.stderr))) == 3, run.stderr


@pytest.mark.parametrize("language", ["c11", "gnu11", "c++17"])
def test_no_warnings(language: str, tmp_path: Path) -> None:
    if "+" in language and shutil.which("g++") is None:
        pytest.skip("no g++")
    text = '#include "fx_math.h"\nint main(void) { return (int)fx_exp_f32(0.0f) - 1; }\n'
    suffix = ".cpp" if "+" in language else ".c"
    (tmp_path / f"main{suffix}").write_text(text)
    command = ["g++" if "+" in language else gcc(), f"-std={language}", f"main{suffix}"]
    flags = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Werror", "-pedantic"]
    run = subprocess.run(
        [*command, *flags, "-O1", f"-I{FOLDER}", "-o", "main", "-lm"], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert subprocess.run([tmp_path / "main"]).returncode == 0


def test_no_undefined_behaviour(tmp_path: Path) -> None:
    """Every function on every nasty value (or pair), under the sanitizers and without -fwrapv."""
    nasty = {
        "float": "0.f, -0.f, 1, -1, 1.5f, 128, -129, 3e9f, -3e9f, 1e20f, 3.4e38f, -3.4e38f, "
        "1e-45f, 1e-39f, INFINITY, -INFINITY, NAN, 88.7f, 89, -104, 2147483648.f, -2147483648.f",
        "double": "0., -0., 1, -1, 1e10, -1e10, 2147483647.9, -2147483648.9, 1e19, -1e19, 1e308, "
        "5e-324, INFINITY, -INFINITY, NAN, 65520., 6e-8",
        **{
            c: f"0, 1, 2, 3, 7, 8, 31, 63, 64, 127, -1, -2, {m}_MAX, {m}_MIN, {m}_MIN + 1"
            for c, m in zip(SIGNED.values(), ("INT8", "INT16", "INT32", "INT64"))
        },
        "uint8_t": "0, 1, 2, 7, 8, 9, 127, 128, 255",
        "uint16_t": "0, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7c01, 0x7fff, 0x8000, 0xfc00, 0xffff",
        "uint32_t": "0, 1, 2, 31, 32, 33, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff",
        "uint64_t": "0, 1, 2, 63, 64, 65, INT64_MAX, 0x8000000000000000, UINT64_MAX",
        "unsigned char": "0, 1",
    }
    lines = ['#include "fx_math.h"', "#include <stdio.h>"]
    for c, text in nasty.items():
        lines.append(f"static const {c} {c.replace(' ', '_')}_values[] = {{{text}}};")
    lines += ["int main(void) {", "    volatile double total = 0;"]
    for name, (parameters, _) in functions().items():
        values = [f"{p.replace(' ', '_')}_values" for p in parameters]
        count = f"(int)(sizeof {values[0]} / sizeof *{values[0]})"
        loops = "".join(f"for (int {i} = 0; {i} < {count}; {i}++) " for i, _ in zip("ijk", values))
        elements = ", ".join(f"{v}[{i}]" for v, i in zip(values, "ijk"))
        lines.append(f"    {loops}total = (double)fx_{name}({elements});")
    lines += [
        "    fx_error error = {0, 0, 0, 0};",
        "    for (int i = 0; i < 15; i++) for (int k = 0; k < 10; k++)",
        "        total = (double)fx_index(int64_t_values[i], int64_t_values[k], i, &error);",
        '    return puts("done") < 0;',
        "}",
    ]
    (tmp_path / "main.c").write_text("\n".join(lines) + "\n")
    checks = "-fsanitize=address,undefined,float-cast-overflow"
    command = [gcc(), "-std=gnu11", "-O0", checks, "-fno-sanitize-recover=all", "main.c"]
    run = subprocess.run([*command, f"-I{FOLDER}", "-o", "main", "-lm"], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    run = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert run.stdout == "done\n", run.stderr


CUDA_KERNEL = """
extern "C" __global__ void apply(const float *x, float *y, int64_t *cast, fx_error *error) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    y[9 * i] = fx_exp_f32(x[i]);
    y[9 * i + 1] = fx_log_f32(x[i]);
    y[9 * i + 2] = fx_erf_f32(x[i]);
    y[9 * i + 3] = fx_tanh_f32(x[i]);
    y[9 * i + 4] = fx_sin_f32(x[i]);
    y[9 * i + 5] = fx_pow_f32(x[i], 1.5f);
    y[9 * i + 6] = fx_maximum_f32(x[i], 0.5f);
    y[9 * i + 7] = fx_f32_from_f16(fx_f16_from_f32(x[i]));
    y[9 * i + 8] = fx_mod_f32(x[i], -0.75f);
    cast[i] = fx_floordiv_i64(fx_cast_f32_i64(x[i]), -3) + fx_index(i, 24, 3, error);
}
"""


def cuda_source() -> str:
    """A kernel that uses the header."""
    return '#include "prelude.cuh"\n' + (FOLDER / "fx_math.h").read_text() + CUDA_KERNEL


def test_cuda_compiles() -> None:
    try:
        compile_cubin(cuda_source(), "sm_90")
    except CudaToolkitNotFound as error:
        pytest.skip(str(error))


def test_cuda() -> None:
    """The same text, as CUDA code."""
    x = np.concatenate([specials("f32")[:20], np.linspace(-3, 3, 12)]).astype(np.float32)
    y = np.zeros((x.size, 9), np.float32)
    cast = np.zeros(x.size, np.int64)
    error = np.zeros(4, np.int64)
    launch_on_arrays(launcher(cuda_source(), places()[-1]), "apply", (1,), (x.size,), [x, y, cast, error])
    wide = x.astype(np.float64)
    half = x.astype(np.float16).astype(np.float32)
    expected = [
        np.exp(wide),
        np.log(wide),
        numpy_of("erf")(wide),
        np.tanh(wide),
        np.sin(wide),
        wide**1.5,
        np.maximum(x, 0.5),
        half,
        np.mod(x, np.float32(-0.75)),
    ]
    np.testing.assert_allclose(y, np.stack(expected, 1).astype(np.float32), 4e-7)
    index = np.where(np.arange(x.size) < 24, np.arange(x.size), -1)
    assert (cast == x.astype(np.int64) // -3 + index).all()
    assert error.view(np.int32)[0] == 1 and 24 <= error[1] < 32 and error[2:].tolist() == [24, 3]


def main(names: list[str]) -> None:
    """Measure on all floats (or 2**32 pairs) as built for models, on every 15th otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        for build_name, flags in BUILDS.items():
            place = Path(folder, build_name)
            place.mkdir()
            driver = Driver(place, flags)
            waiting = list(names or [*ERRORS, *PAIR_ERRORS])

            def work(waiting: list[str], driver: Driver, build_name: str) -> None:
                while waiting:
                    name = waiting.pop(0)
                    step = 1 if build_name == "native" else 15
                    error, where = driver.worst(name, 0, step, 2**32 // step)
                    print(f"{build_name:15} {name:8} {error:.4f} ulp at {where}", flush=True)

            arguments = (waiting, driver, build_name)
            count = os.cpu_count() or 1
            threads = [threading.Thread(target=work, args=arguments) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


if __name__ == "__main__":
    main(sys.argv[1:])
