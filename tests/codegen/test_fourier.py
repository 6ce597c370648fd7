"""np.fft: every transform on all rungs, the passes of the template in C, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.codegen.c.render.routine_template import chirp_length, factors, radices
from fxlite.ops.numeric.complex_numbers import roots_of_unity
from fxlite.show.node_cost import node_flops
from tests.graphs import of_arrays
from tests.oracle import RUNGS, agree

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
NO_COMPILER = ("graph", "python", "kernel")
#: Powers of two, other small factors, primes, and numbers with primes above five.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 20, 25, 27, 30, 32, 35, 49, 64, 77, 97, 100, 128)
NORMS = (None, "ortho", "forward")


def numbers(kind: str, *shape: int) -> Array:
    made = RNG.standard_normal(shape)
    if kind.startswith("complex"):
        made = made + 1j * RNG.standard_normal(shape)
    return made.astype(kind)


ONE: dict[str, tuple[Callable[..., Any], bool]] = {
    "fft": (np.fft.fft, True),
    "ifft": (np.fft.ifft, True),
    "rfft": (np.fft.rfft, False),
    "irfft": (np.fft.irfft, True),
    "hfft": (np.fft.hfft, True),
    "ihfft": (np.fft.ihfft, False),
}


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_sizes(name: str, wide: bool) -> None:
    """The programs of all sizes are one, so that C is compiled once."""
    function, is_complex = ONE[name]
    kind = ("complex128" if wide else "complex64") if is_complex else f"float{64 if wide else 32}"
    sizes = [n for n in SIZES if n > 1 or name not in ("irfft", "hfft")]
    inputs = [numbers(kind, 2, n) for n in sizes]

    def program(*rows: Any) -> Any:
        return tuple(function(x, norm=NORMS[len(x.shape) % 3]) for x in rows)

    agree(of_arrays(program, len(sizes)), *inputs, rungs=(*NO_COMPILER, "c"))


@pytest.mark.parametrize("norm", NORMS)
def test_points_axes_and_norms(norm: Any) -> None:
    def program(z: Any, x: Any) -> Any:
        return (
            np.fft.fft(z, n=3, axis=0, norm=norm),
            np.fft.ifft(z, n=8, axis=1, norm=norm),
            np.fft.rfft(x, n=5, axis=1, norm=norm),
            np.fft.irfft(z, n=7, axis=0, norm=norm),
            np.fft.hfft(z, n=6, axis=1, norm=norm),
            np.fft.ihfft(x, n=6, axis=0, norm=norm),
            np.fft.fft2(z, norm=norm),
            np.fft.ifft2(z, s=(4, 2), norm=norm),
            np.fft.fftn(z, axes=(2, 0), norm=norm),
            np.fft.ifftn(z, norm=norm),
            np.fft.rfft2(x, norm=norm),
            np.fft.rfftn(x, s=(4, 3), axes=(0, 2), norm=norm),
            np.fft.irfft2(z, norm=norm),
            np.fft.irfftn(z, norm=norm),
            np.fft.fftshift(z),
            np.fft.ifftshift(x, axes=(0, 2)),
            z * np.fft.fftfreq(4, 0.5),
        )

    agree(program, numbers("complex128", 4, 6, 4), numbers("float64", 4, 6, 4), rungs=tuple(RUNGS))


@pytest.mark.parametrize("kind", ["float16", "int32", "bool", "uint8"])
def test_other_dtypes_become_numpys(kind: str) -> None:
    x = np.arange(8).astype(kind)
    agree(lambda x: (np.fft.fft(x), np.fft.rfft(x)), x, rungs=NO_COMPILER)


def test_rows_may_have_a_named_size() -> None:
    x = numbers("complex64", 3, 12)
    module = agree(lambda x: np.fft.ifft(np.fft.fft(x) * 2), x, types=["c64[N,12]"], rungs=tuple(RUNGS))
    compiled = fx.compile(module, backend="c")
    assert any("fourier_rows_float" in text for text in compiled.sources.values())
    for rows in (0, 1, 7):
        given = numbers("complex64", rows, 12)
        assert np.allclose(compiled(given), 2 * given, atol=1e-5)


@pytest.mark.parametrize("size", [4096, 6000, 10 * 7 * 11 * 13, 2 * 1009, 10007])
def test_long_transforms(size: int) -> None:
    agree(lambda x: np.fft.ifft(np.fft.fft(x)), numbers("complex128", size), rungs=("python", "c"))
    agree(lambda x: np.fft.irfft(np.fft.rfft(x)), numbers("float32", size), rungs=("python", "c"))


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_large_primes_are_convolutions_with_a_chirp(kind: str) -> None:
    """Of any number of rows, by threads; a prime of which C makes passes is none of them."""
    letter = "c64" if kind == "complex64" else "c128"
    module = fx.symbolic_trace(lambda x: (np.fft.fft(x), np.fft.ifft(x)), x=f"{letter}[N,331]")
    compiled = fx.compile(module, backend="c", threads=2)
    assert any("fourier_chirp_rows_" in text for text in compiled.sources.values())
    for rows in (0, 1, 70):
        given = numbers(kind, rows, 331)
        for found, expected in zip(compiled(given), (np.fft.fft(given), np.fft.ifft(given))):
            np.testing.assert_allclose(found, expected, rtol=0, atol=40 * 20 * np.finfo(kind).eps)
    assert chirp_length(331) == 768 and chirp_length(97) == 256 and chirp_length(10**6) is None
    assert [chirp_length(4**k * 7) for k in (1, 2, 3, 4)] == [None] * 4


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_rows_side_by_side(kind: str, place: int) -> None:
    """Blocks of rows and what is left of them, of points that lie apart and together; the block of a number of
    threads is the block of one."""
    sizes = [n for n in SIZES if n > 1] + [11, 17, 37, 121, 169, 210, 343, 331, 512, 1001]
    inputs = [np.moveaxis(numbers(kind, 3, 11, n), 2, place).copy() for n in sizes]

    def program(*rows: Any) -> Any:
        return tuple(np.fft.ifft(np.fft.fft(x, axis=place) * 2, axis=place) for x in rows)

    module = agree(of_arrays(program, len(sizes)), *inputs, rungs=("python", "c"))
    found, others = (fx.compile(module, backend="c", threads=n)(*inputs) for n in (1, 3))
    for x, one, other in zip(inputs, found, others):
        assert np.array_equal(one, other)
        error = np.sqrt(np.mean(np.abs(one - 2 * x) ** 2))
        assert error < 8 * np.finfo(kind).eps, f"{x.shape}: {error}"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_real_transforms_along_any_axis(place: int) -> None:
    inputs = [np.moveaxis(numbers("float64", 2, 3, n), 2, place).copy() for n in (7, 8, 30, 9000)]

    def program(*rows: Any) -> Any:
        return tuple(np.fft.irfft(np.fft.rfft(x, axis=place), x.shape[place], axis=place) for x in rows)

    agree(of_arrays(program, len(inputs)), *inputs, rungs=("python", "c"))


def test_what_is_not_finite_stays_so() -> None:
    """And parts that do not count in irfft may be anything."""
    z = numbers("complex128", 9)
    z[0] = complex(z[0].real, np.inf)
    z[-1] = complex(z[-1].real, np.nan)
    assert np.isfinite(np.fft.irfft(z)).all()
    agree(np.fft.irfft, z, rungs=(*NO_COMPILER, "c"))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 12, 97, 1000, 4096])
def test_roots_of_unity(size: int) -> None:
    import sympy

    roots = roots_of_unity(size, "complex128")
    for k in range(0, size, max(size // 5, 1)):
        exact = complex(sympy.exp(-2 * sympy.pi * sympy.I * sympy.Rational(k, size)).evalf(30))
        assert abs(roots[k] - exact) <= 2.0**-52
    assert np.array_equal(roots_of_unity(size, "complex128", inverse=True), roots.conj() + 0)


@pytest.mark.parametrize("size", SIZES)
def test_passes(size: int) -> None:
    assert np.prod(radices(size), dtype=int) == size
    if size > 1:
        own = sum(2 * r for r in radices(size) if r % 2)
        length, count = size, 0
        for radix in radices(size):
            count, length = count + 2 * (radix - 1) * length // radix, length // radix
        assert len(factors(size, np.dtype(np.float32))) == own + count


def test_costs_are_those_of_a_fast_transform() -> None:
    module = fx.symbolic_trace(lambda x: np.fft.fft(x), x="c64[N,1024]")
    cost = next(node_flops(n) for n in module.graph.nodes if n.target is fx.ops.dft)
    assert cost == 5 * 10 * 1024 * next(iter(cost.free_symbols))


@pytest.mark.parametrize(
    ("program", "kind", "said"),
    [
        (lambda x: np.fft.fft(x), "f32[N]", "named size N is not traced.*give the number of points"),
        (lambda x: np.fft.fft(x, n=4), "f32[N]", "n=4 of an axis with the named size N"),
        (lambda x: np.fft.fft(x, n=0), "f32[4]", "invalid number of data points"),
        (lambda x: np.fft.fft(x, norm="none"), "f32[4]", "norm must be"),
        (lambda x: np.fft.rfft(x), "c64[4]", "rfft takes real numbers.*use fft"),
        (lambda x: np.fft.fftshift(x), "f32[N]", "use np.roll"),
        (lambda x: np.fft.fftn(x, s=(2, 2, 2), axes=(0, 1)), "f32[4,4]", "different lengths"),
    ],
)
def test_refusals_say_what_to_do(program: Any, kind: str, said: str) -> None:
    with pytest.raises(FxliteError, match=f"(?s){said}.*") as caught:
        fx.symbolic_trace(program, x=kind)
    assert "test_fourier.py:" in str(caught.value)
