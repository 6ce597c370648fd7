"""``x.view(dtype)`` and ``ops.bitcast``: bytes of elements read as elements of another type; and which type a text
means in a program."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.lazy as lazy
from fxlite.base.errors import DTypeError, FxliteError, TraceError
from fxlite.types import dtypes
from tests.oracle import RUNGS, agree

TYPES = ["f2", "f4", "f8", "i1", "u1", "i2", "u4", "i8", "u8", "c8", "c16"]


def _numbers(kind: str) -> Any:
    """Numbers of a type, in three rows of 32 bytes each."""
    numbers = np.random.default_rng(0).standard_normal((3, 32 // np.dtype(kind).itemsize)) * 50
    if kind[0] == "c":
        numbers = numbers + 1j * numbers[::-1]
    return (np.abs(numbers) if kind[0] == "u" else numbers).astype(kind)


@pytest.mark.parametrize(("held", "wanted"), [*itertools.product(TYPES, TYPES)])
def test_each_type_as_each(held: str, wanted: str) -> None:
    x = _numbers(held)
    with np.errstate(all="ignore"):
        gm = fx.symbolic_trace(lambda x: x.view(wanted), x)
        expected, found = x.view(wanted), gm(x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def _fast_inverse_root(x: Any) -> Any:
    """After the one of Quake III."""
    bits = 0x5F3759DF - (x.view(np.int32) >> 1)
    y = bits.view(np.float32)
    return y * (1.5 - 0.5 * x * y * y)


def _written_through(x: Any) -> Any:
    y = x.copy()
    bits = y.view(np.int64)
    bits[0] = 0
    bits &= 0x7FFFFFFFFFFFFFFF
    return y, bits


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (_fast_inverse_root, "f32[5]"),
        (_fast_inverse_root, "f32[B]"),
        (_written_through, "f64[7]"),
        (lambda x: x.view(np.uint8).sum(axis=-1), "f32[B,3]"),
        (lambda x: x.view(np.uint16).view(np.float16) * 2, "f16[4,3]"),
        (lambda z: z.view(np.float64)[..., ::2], "c128[4,3]"),
        (lambda x: x.view(np.complex64).imag, "f32[4,6]"),
        (lambda x: x.T.view(np.uint32), "f32[4,6]"),
    ],
)
def test_in_all_rungs(program: Any, kind: str) -> None:
    shape = [3 if size == "B" else int(size) for size in kind.partition("[")[2][:-1].split(",")]
    numbers = np.random.default_rng(1).random(shape)
    array = numbers.astype(dtypes.dtype(kind.partition("[")[0]).numpy)
    agree(program, array, types=(kind,), rungs=[*RUNGS])


def test_a_write_that_may_not_reach_the_array() -> None:
    def program(x: Any) -> Any:
        y = x.copy()
        y.view(np.uint8)[..., 0] = 0
        return y

    with pytest.raises(TraceError, match="may or may not share its memory"):
        fx.symbolic_trace(program, "f32[4]")


def test_what_is_refused() -> None:
    with pytest.raises(DTypeError, match="4 bytes, and one of f64 8"):
        fx.symbolic_trace(lambda x: fx.ops.bitcast(x, "f64"), "f32[4]")
    for program in (lambda x: x.view(2, -1), lambda x: x.view((2, 3))):
        with pytest.raises(TraceError, match=r"x\.reshape"):
            fx.symbolic_trace(program, "f32[6]")
    with pytest.raises(TraceError, match="without axes"):
        fx.symbolic_trace(lambda x: x.view(np.uint8), "f32[]")
    with pytest.raises(FxliteError, match="3"):
        fx.symbolic_trace(lambda x: x.view(np.float64), "f32[3]")


def _texts() -> list[str]:
    """Texts by which NumPy knows a dtype that fxlite has, too."""
    found = {key for key in np.sctypeDict if isinstance(key, str)}
    found |= {f"{code}{size}" for code in "biufc" for size in (1, 2, 4, 8, 16)} | set(np.typecodes["All"])
    return sorted(text for text in found if _is_known(text))


def _is_known(text: str) -> bool:
    try:
        return np.dtype(text) in dtypes.BY_NUMPY
    except TypeError:
        return False


@pytest.mark.parametrize(
    "program",
    [
        lambda x, t: x.astype(t),
        lambda x, t: np.zeros_like(x, dtype=t),
        lambda x, t: np.full(2, x[0], t),
        lambda x, t: np.array([x[0], x[1]], t),
        lambda x, t: np.asarray(x, dtype=t),
        lambda x, t: np.arange(x.shape[0], dtype=t),
    ],
)
def test_texts_mean_what_they_mean_in_numpy(program: Any) -> None:
    """``"i8"`` has 8 bytes, though it is fxlite's name for the integer of 8 bits."""
    texts = _texts()
    assert {"i8", "u8", "f4", "int8", "d"} <= {*texts}
    for text in texts:
        if np.dtype(text).kind == "b" and "arange" in program.__code__.co_names:
            continue
        gm = fx.symbolic_trace(lambda x, text=text: program(x, text), "i32[T]", concrete_args={"text": text})
        with np.errstate(all="ignore"):
            assert gm(np.arange(3, dtype=np.int32)).dtype == np.dtype(text), text
    assert fx.symbolic_trace(lambda x: fx.ops.cast(x, "i8"), "f32[3]")(np.ones(3, np.float32)).dtype == np.int8


def test_lazy() -> None:
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(lazy.asarray(x).view(np.int32)), x.view(np.int32))
