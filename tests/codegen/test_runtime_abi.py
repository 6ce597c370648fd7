"""Dim expressions, entry points, and the arguments of a call: values, copies, and every message."""

import re
import subprocess

import ml_dtypes
import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.runtime.abi import ArgSpec, Binding, DimText, Entry, bind_arguments
from fxlite.codegen.runtime.build import build_executable


def spec(name, dtype, *shape):
    return ArgSpec(name, dtype, tuple(d if isinstance(d, int) else DimText(d) for d in shape))


def entry(*inputs, outputs=(), dims=(), **rest):
    outputs = outputs or (spec("out", "f32"),)
    return Entry("model", inputs, tuple(outputs), tuple(dims), **rest)


EXPRESSIONS = [
    "7",
    "B",
    "B + 2*T - 1",
    "-(B - T)",
    "B - (T - 1)",
    "(T - 9) // 4",
    "(B - 3*T) % 5",
    "T // (B + 1) * B",
    "min(B, T, 4) + max(T - 3, 0)",
]


def test_c_text_means_what_python_means(monkeypatch, tmp_path):
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    values = [(b, t) for b in (0, 1, 5, 13) for t in (0, 2, 3, 8)]
    prints = "".join(f'printf("%lld\\n", (long long)({DimText(text).c("dim_")}));' for text in EXPRESSIONS)
    source = f"""#include <stdint.h>
#include <stdio.h>
{needed(prints)}
static void show(int64_t dim_B, int64_t dim_T) {{ {prints} }}
int main(void) {{ {"".join(f"show({b}, {t});" for b, t in values)} }}
"""
    program = build_executable({"main.c": source}, openmp=False)
    found = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    expected = [DimText(e).evaluate({"B": b, "T": t}) for b, t in values for e in EXPRESSIONS]
    assert list(map(int, found)) == expected
    assert expected == [eval(e, {"B": b, "T": t}) for b, t in values for e in EXPRESSIONS]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", ("B", 1, 0)),
        ("2*B + 1", ("B", 2, 1)),
        ("3 - (B - 4) * 2", ("B", -2, 11)),
        ("B + T", None),
        ("B - B + 2", None),
        ("B*B", None),
        ("B // 2", None),
        ("6", None),
    ],
)
def test_linear(text, expected):
    assert DimText(text).linear() == expected


@pytest.mark.parametrize(
    "text", ["B / 2", "B ** 2", "f(B)", "B.x", "B[0]", "B +", "1.5", "True", "min(B)", "B // 0", "~B"]
)
def test_other_expressions_are_refused(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        DimText(text)


def test_divisor_that_is_not_positive():
    assert DimText("T // B").evaluate({"B": 2, "T": 5}) == 2
    with pytest.raises(ValueError, match="divisor B is not positive"):
        DimText("T // B").evaluate({"B": 0, "T": 5})


def test_a_bare_axis_binds_before_a_linear_one():
    found = entry(spec("x", "f32", "2*B", "T + 1"), spec("y", "f32", "B"), dims=("B", "T"))
    assert found.bindings == (Binding("B", 1, 0, 1, 0), Binding("T", 0, 1, 1, 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: entry(spec("x", "f32", "B*T", "T"), dims=("B", "T")), "nothing binds B"),
        (lambda: entry(spec("x", "f32", "B")), r"f32\[B\] uses unknown dims \['B'\]"),
        (lambda: entry(spec("x", "f32"), spec("x", "f32")), "two inputs"),
        (lambda: entry(spec("x", "f32", "B"), dims=("B", "B")), "two dims"),
        (lambda: Entry("my model", (), (spec("y", "f32"),)), "'my model' cannot be a name in C"),
        (lambda: Entry("m", (), ()), "single_output with 0 outputs"),
    ],
)
def test_wrong_entries(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_dtype_must_exist():
    with pytest.raises(ValueError, match="argument 'x': no dtype 'float99'"):
        ArgSpec("x", "float99", ())


def test_text_of_an_entry():
    one = entry(spec("x", "f32", "B", 3), spec("s", "bool"), dims=("B",))
    assert str(one) == "model(x: f32[B,3], s: bool) -> f32"
    two = entry(outputs=(spec("a", "u8"), spec("b", "i64", 2)), single_output=False)
    assert str(two) == "model() -> (u8, i64[2])"


f32 = np.float32
IMAGES = entry(spec("x", "f32", "B", 3), spec("y", "f32", "2*B + 1"), dims=("B",))


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        (
            (np.zeros((2, 3)), np.zeros(5, f32)),
            {},
            TypeError,
            "model(): argument 'x' must be f32[B,3], got float64[2,3]; pass x.astype(np.float32)",
        ),
        (
            ([[1.0, 2.0, 3.0]], np.zeros(3, f32)),
            {},
            TypeError,
            "model(): argument 'x' must be f32[B,3], got list; pass np.asarray(x, dtype=np.float32)",
        ),
        (
            (np.zeros((2, 3), ">f4"), np.zeros(5, f32)),
            {},
            TypeError,
            "model(): argument 'x' must be f32[B,3], got float32[2,3] in foreign byte order; "
            "pass x.astype(x.dtype.newbyteorder('='))",
        ),
        (
            (np.zeros(3, f32), np.zeros(3, f32)),
            {},
            ValueError,
            "model(): argument 'x' must be f32[B,3]: 2 dimensions, got float32[3]",
        ),
        (
            (np.zeros((2, 4), f32), np.zeros(5, f32)),
            {},
            ValueError,
            "model(): argument 'x' must be f32[B,3]: axis 1 must be 3, got 4",
        ),
        (
            (np.zeros((2, 3), f32), np.zeros(7, f32)),
            {},
            ValueError,
            "model(): argument 'y' must be f32[2*B + 1]: axis 0 must be 2*B + 1 = 5 (B = 2 from axis 0 of 'x'), got 7",
        ),
        ((np.zeros((2, 3), f32),), {}, TypeError, "model() is missing argument 'y' (f32[2*B + 1])"),
        ((1, 2, 3), {}, TypeError, "model() takes 2 arguments (x, y) but 3 were given"),
        ((1,), {"z": 2}, TypeError, "model() got an unexpected argument 'z'; its arguments are x, y"),
        ((1,), {"x": 2}, TypeError, "model() got two values for argument 'x'"),
    ],
)
def test_messages(args, kwargs, error, message):
    with pytest.raises(error) as caught:
        bind_arguments(IMAGES, args, kwargs)
    assert str(caught.value) == message


def test_a_dim_in_conflict_names_what_bound_it():
    both = entry(spec("x", "f32", "B"), spec("y", "f32", "B"), dims=("B",))
    message = "argument 'y' must be f32[B]: axis 0 must be B = 2 from axis 0 of 'x', got 3"
    with pytest.raises(ValueError, match=re.escape(message)):
        bind_arguments(both, (np.zeros(2, f32), np.zeros(3, f32)), {})


@pytest.mark.parametrize("size", [4, 0])
def test_a_size_that_no_dim_gives(size):
    odd = entry(spec("x", "f32", "2*B + 1"), dims=("B",))
    message = f"axis 0 must be 2*B + 1 for some B >= 0, got {size}"
    with pytest.raises(ValueError, match=re.escape(message)):
        bind_arguments(odd, (np.zeros(size, f32),), {})


def test_arrays_that_need_no_copy_are_passed_on():
    x, y = np.zeros((2, 3), f32), np.zeros(5, f32)
    (first, second), dims = bind_arguments(IMAGES, (x,), {"y": y})
    assert first is x and second is y and dims == {"B": 2}


def test_arrays_that_are_copied():
    rows = np.arange(24, dtype=f32).reshape(4, 6)
    strided = rows[::-2, ::2]
    unaligned = np.frombuffer(b"\0" + np.arange(5, dtype=f32).tobytes(), np.uint8)[1:].view(f32)
    assert not unaligned.flags.aligned
    arrays, _ = bind_arguments(IMAGES, (strided, unaligned), {})
    for array, source in zip(arrays, (strided, unaligned)):
        assert array.flags.c_contiguous and array.flags.aligned
        assert np.array_equal(array, source) and not np.shares_memory(array, source)


def test_scalars_are_arrays_without_axes():
    scalar = entry(spec("x", "f32"))
    for value in (f32(2), np.array(2, f32)):
        (array,), _ = bind_arguments(scalar, (value,), {})
        assert array.shape == () and array == 2
    with pytest.raises(TypeError, match="must be f32, got float; pass"):
        bind_arguments(scalar, (2.0,), {})


def test_integers_compare_by_kind_and_size():
    ints = entry(spec("x", "i64", 2))
    for code in "lq":
        (array,), _ = bind_arguments(ints, (np.array([1, 2], code),), {})
        assert array.tolist() == [1, 2]
    for dtype in (np.uint64, np.int32, "m8[s]"):
        with pytest.raises(TypeError, match="must be i64"):
            bind_arguments(ints, (np.zeros(2, dtype),), {})


def test_bf16_goes_as_uint16():
    half = entry(spec("x", "bf16", 2))
    (array,), _ = bind_arguments(half, (np.array([1, -2], ml_dtypes.bfloat16),), {})
    assert array.dtype == fx.bfloat16.stored == np.uint16
    assert array.tolist() == [0x3F80, 0xC000]
    for wrong in (np.uint16, np.float16):
        with pytest.raises(TypeError, match=re.escape("pass x.astype(ml_dtypes.bfloat16)")):
            bind_arguments(half, (np.zeros(2, wrong),), {})


def test_output_shapes():
    shrink = entry(spec("x", "f32", "T"), outputs=(spec("y", "f32", "(T - 4) // 2 + 1", 2),), dims=("T",))
    assert shrink.output_shape(shrink.outputs[0], {"T": 7}) == (2, 2)
    with pytest.raises(ValueError, match=re.escape("is (-1, 2) for T = 0")):
        shrink.output_shape(shrink.outputs[0], {"T": 0})
