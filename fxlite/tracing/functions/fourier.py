"""np.fft as ops: every transform is ``fx.ops.dft`` along the axis, with padding and products around it.

In: proxies and arguments as in NumPy. Out: calls of ops. A real transform of an even number of points is a complex one
of half as many (W. H. Press et al., Numerical Recipes, 3rd ed., section 12.3). The size of a transformed axis must be
a number, because the passes of a fast transform depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fxlite.ops.numeric.complex_numbers import roots_of_unity
from fxlite.ops.op import lookup, normalize_axis
from fxlite.tracing import numpy_functions as functions
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType

_INVERSES = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _factor(n: int, norm: str | None, inverse: bool) -> float:
    """The factor by which a transform of n points is multiplied."""
    norm = "backward" if norm is None else norm
    if norm not in _INVERSES:
        raise ValueError(f"norm must be 'backward', 'ortho' or 'forward', not {norm!r}")
    if norm == "ortho":
        return float(1 / np.sqrt(n))
    return 1 / n if (norm == "backward") == inverse else 1.0


def _complex_dtype(x: Any) -> DType:
    """NumPy's dtype of a transform."""
    found = functions.value_type(x).dtype
    narrow = found.is_half or found in (dtypes.float32, dtypes.complex64)
    return dtypes.complex64 if narrow else dtypes.complex128


def _points(x: Any, n: Any, axis: int) -> int:
    """The number of points along an axis."""
    if n is None:
        n = functions.value_type(x).shape[axis]
        if type(n) is not int:
            raise ValueError(
                f"the transform of an axis with the named size {n} is not traced, since the number of its passes "
                "depends on the size; give the number of points, n=, or trace with a number as the size"
            )
    if n < 1:
        raise ValueError(f"invalid number of data points ({n}) specified")
    return int(n)


def _resized(x: Any, n: int, axis: int) -> Any:
    """The first n numbers of an axis, followed by zeros if there are fewer."""
    known = functions.value_type(x)
    size, rank = known.shape[axis], known.rank
    if shapes.equal(size, n):
        return x
    if type(size) is not int:
        raise ValueError(f"n={n} of an axis with the named size {size} is not traced; slice it")
    if size > n:
        return lookup("slice")(x, axis=axis, start=0, stop=n)
    return lookup("pad")(x, tuple((0, n - size if a == axis else 0) for a in range(rank)))


def _scaled(x: Any, factor: float) -> Any:
    """A complex value times a real number, computed for both parts."""
    if factor == 1:
        return x
    parts = (lookup("mul")(part, factor) for part in (lookup("real")(x), lookup("imag")(x)))
    return lookup("complex")(*parts)


#: The most points of transforms along an axis that is not the last one: more are moved to it, because
#: several long transforms side by side do not fit into a cache.
_MOST_APART = 4096


def _dft(x: Any, inverse: bool, axis: int, factor: float = 1.0) -> Any:
    known = functions.value_type(x)
    if axis == known.rank - 1 or known.shape[axis] <= _MOST_APART:
        return _scaled(lookup("dft")(x, inverse=inverse, axis=axis), factor)
    found = lookup("dft")(functions.moveaxis(x, axis, -1), inverse=inverse)
    return functions.moveaxis(_scaled(found, factor), -1, axis)


def _complex(inverse: bool) -> Callable[..., Any]:
    """np.fft.fft and np.fft.ifft."""

    def call(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
        axis = normalize_axis(axis, functions.value_type(a).rank)
        n = _points(a, n, axis)
        x = functions.astype(_resized(a, n, axis), _complex_dtype(a), copy=False)
        return _dft(x, inverse, axis, _factor(n, norm, inverse))

    return call


fft, ifft = _complex(False), _complex(True)


def _along(values: Any, axis: int, rank: int) -> Any:
    """Values for the places of an axis."""
    return values.reshape(-1, *[1] * (rank - axis - 1))


def _turned(n: int, dtype: DType, inverse: bool) -> Any:
    """``exp(-2 pi i k / n) / 2i`` for k up to n / 2, or the same for its conjugate: the factors that split or join the
    transforms of even and odd points."""
    half = roots_of_unity(n, "complex128", inverse)[: n // 2 + 1]
    return (half * (0.5j if inverse else -0.5j)).astype(dtype.numpy)


def rfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """np.fft.rfft."""
    known = functions.value_type(a)
    if known.dtype.is_complex:
        raise TypeError(f"rfft takes real numbers, not {known}; use fft")
    axis = normalize_axis(axis, known.rank)
    n, dtype = _points(a, n, axis), _complex_dtype(a)
    x = functions.astype(_resized(a, n, axis), dtype.real, copy=False)
    factor = _factor(n, norm, False)
    if n % 2:
        whole = _dft(functions.astype(x, dtype, copy=False), False, axis, factor)
        return lookup("slice")(whole, axis=axis, start=0, stop=n // 2 + 1)
    even, odd = (lookup("slice")(x, axis=axis, start=s, stop=n, step=2) for s in (0, 1))
    z = _dft(lookup("complex")(even, odd), False, axis)
    first = lookup("slice")(z, axis=axis, start=0, stop=1)
    z = lookup("concat")((z, first), axis=axis)
    mirrored = lookup("conj")(lookup("flip")(z, axis=axis))
    sums = _scaled(lookup("add")(z, mirrored), 0.5)
    turned = lookup("mul")(lookup("sub")(z, mirrored), _along(_turned(n, dtype, False), axis, known.rank))
    return _scaled(lookup("add")(sums, turned), factor)


def irfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """np.fft.irfft; the imaginary parts of the first point, and of the last one if n is even, are ignored."""
    rank = functions.value_type(a).rank
    axis = normalize_axis(axis, rank)
    n = _points(a, 2 * (_points(a, None, axis) - 1) if n is None else n, axis)
    dtype = _complex_dtype(a)
    x = functions.astype(_resized(a, n // 2 + 1, axis), dtype, copy=False)
    factor = _factor(n, norm, True)
    counts = np.ones(n // 2 + 1, dtype.real.numpy)
    counts[0] = 0
    if n % 2 == 0:
        counts[-1] = 0
    # a choice instead of a product, because ignored parts may be NaN or infinite
    imag = lookup("where")(_along(counts, axis, rank) > 0, lookup("imag")(x), dtype.real.numpy.type(0))
    x = lookup("complex")(lookup("real")(x), imag)
    if n % 2:
        rest = lookup("slice")(x, axis=axis, start=1, stop=n // 2 + 1)
        others = lookup("conj")(lookup("flip")(rest, axis=axis))
        whole = lookup("concat")((x, others), axis=axis)
        return lookup("mul")(lookup("real")(_dft(whole, True, axis)), factor)
    mirrored = lookup("conj")(lookup("flip")(x, axis=axis))
    sums = _scaled(lookup("add")(x, mirrored), 0.5)
    turned = lookup("mul")(lookup("sub")(x, mirrored), _along(_turned(n, dtype, True), axis, rank))
    z = lookup("slice")(lookup("add")(sums, turned), axis=axis, start=0, stop=n // 2)
    z = _dft(z, True, axis, 2 * factor)
    pairs = lookup("stack")((lookup("real")(z), lookup("imag")(z)), axis=axis + 1)
    shape = functions.value_type(z).shape
    return lookup("reshape")(pairs, (*shape[:axis], n, *shape[axis + 1 :]))


def hfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """np.fft.hfft."""
    return irfft(functions.conj(a), n, axis, _INVERSES.get(norm or "backward", norm))


def ihfft(a: Any, n: Any = None, axis: int = -1, norm: str | None = None, out: Any = None) -> Any:
    """np.fft.ihfft."""
    return functions.conj(rfft(a, n, axis, _INVERSES.get(norm or "backward", norm)))


def _axes(a: Any, s: Any, axes: Any) -> tuple[list[Any], list[int]]:
    """The numbers of points (None: the size of the axis) and the axes."""
    rank = functions.value_type(a).rank
    if axes is None:
        axes = range(rank) if s is None else range(-len(s), 0)
    found = [normalize_axis(axis, rank) for axis in axes]
    sizes = [None] * len(found) if s is None else list(s)
    if len(sizes) != len(found):
        raise ValueError("Shape and axes have different lengths.")
    return [None if n == -1 else n for n in sizes], found


def _over_axes(step: Callable[..., Any], default: Any) -> Callable[..., Any]:
    """A transform along several axes: with real numbers along the last one, and complex numbers along the others."""

    def call(a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None) -> Any:
        each = list(zip(*_axes(a, s, axes)))
        if step is rfft:
            plan = [(rfft, each[-1]), *((fft, pair) for pair in each[-2::-1])]
        elif step is irfft:
            plan = [*((ifft, pair) for pair in each[:-1]), (irfft, each[-1])]
        else:
            plan = [(step, pair) for pair in reversed(each)]
        for function, (n, axis) in plan:
            a = function(a, n, axis, norm)
        return a

    return call


def _rolled(sign: int) -> Callable[..., Any]:
    def call(x: Any, axes: Any = None) -> Any:
        shape = functions.value_type(x).shape
        chosen = range(len(shape)) if axes is None else [axes] if isinstance(axes, (int, np.integer)) else axes
        for axis in chosen:
            size = shape[normalize_axis(axis, len(shape))]
            if type(size) is not int:
                raise ValueError(f"an axis with the named size {size} is not shifted; use np.roll")
            x = lookup("roll")(x, size // 2 if sign > 0 else -(size // 2), axis=axis)
        return x

    return call


#: By NumPy's functions. (np.fft.fftfreq and rfftfreq take numbers, and run while tracing.)
FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.fft.fft: fft,
    np.fft.ifft: ifft,
    np.fft.rfft: rfft,
    np.fft.irfft: irfft,
    np.fft.hfft: hfft,
    np.fft.ihfft: ihfft,
    np.fft.fft2: _over_axes(fft, (-2, -1)),
    np.fft.ifft2: _over_axes(ifft, (-2, -1)),
    np.fft.fftn: _over_axes(fft, None),
    np.fft.ifftn: _over_axes(ifft, None),
    np.fft.rfft2: _over_axes(rfft, (-2, -1)),
    np.fft.rfftn: _over_axes(rfft, None),
    np.fft.irfft2: _over_axes(irfft, (-2, -1)),
    np.fft.irfftn: _over_axes(irfft, None),
    np.fft.fftshift: _rolled(1),
    np.fft.ifftshift: _rolled(-1),
}
