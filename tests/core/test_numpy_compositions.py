"""NumPy's functions that are compositions of ops: their modes, methods, axes and dtypes, at sizes
that are numbers and at named ones. All rungs give what NumPy gives, in its dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import TraceError
from tests.oracle import agree, agree_on_all

PAD_MODES = "edge wrap symmetric reflect linear_ramp maximum minimum mean median".split()
METHODS = """
inverted_cdf averaged_inverted_cdf closest_observation interpolated_inverted_cdf hazen weibull
linear median_unbiased normal_unbiased lower higher midpoint nearest
""".split()


def arrays(dtype: str = "f8") -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 9, (4, 5)).astype(dtype), rng.normal(0, 9, 6).astype(dtype)]


def together(cases: list[Callable[..., Any]]) -> Callable[..., Any]:
    """One program of many."""
    return lambda x, v: [case(x, v) for case in cases]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "f2"])
def test_pad(dtype: str) -> None:
    def program(x: Any, v: Any) -> Any:
        modes = ("edge", "wrap", "symmetric", "reflect")
        found = [np.pad(x, ((1, 0), (2, 3)), mode=mode) for mode in PAD_MODES]
        found += [np.pad(v, (7, 11), mode=mode) for mode in modes]
        found += [np.pad(v, 30, mode="reflect"), np.pad(v[:1], 2, mode="reflect")]
        found += [np.pad(v, 3, mode=m, reflect_type="odd") for m in ("reflect", "symmetric")]
        found += [np.pad(x, 2, mode="mean", stat_length=2), np.pad(x, {1: (0, 2)}, mode="edge")]
        found += [np.pad(x, 1, constant_values=((1, 2), (3, 4))), np.pad(x, ((0, 1),), mode="wrap")]
        return [*found, np.pad(v, (2, 3), mode="linear_ramp", end_values=(5, 1))]

    agree(program, *arrays(dtype), rungs=("graph", "python", "kernel"))


def test_pad_of_named_sizes() -> None:
    modes = ("edge", "wrap", "symmetric", "reflect", "maximum", "mean")
    program = lambda v: [np.pad(v, (3, 2), mode=mode) for mode in modes]  # noqa: E731
    agree_on_all(program, [(np.arange(size, dtype=np.float32),) for size in (1, 2, 5)], types=["f32[N]"])


@pytest.mark.parametrize("method", METHODS)
def test_quantile(method: str) -> None:
    def program(x: Any, v: Any) -> Any:
        return [
            np.quantile(v, 0.4, method=method),
            np.quantile(x, [0.0, 0.3, 0.5, 1.0], axis=0, method=method),
            np.percentile(x, 25, axis=(0, 1), keepdims=True, method=method),
            np.nanquantile(np.where(x > 5, np.nan, x), [0.2, 0.7], axis=1, method=method),
        ]

    for dtype in ("f8", "f4"):
        agree(program, *arrays(dtype), rungs=("graph", "python", "kernel"))


def test_quantiles_of_nan_integers_and_named_sizes() -> None:
    def program(x: Any) -> Any:
        holes = np.where(x > 2, np.nan, x)
        return [
            np.median(holes, axis=1),
            np.nanmedian(holes, axis=1),
            np.median(x, axis=0),
            np.median(x.astype(np.int32)),
            np.quantile(x, 0.3, axis=0),
        ]

    sets = [(np.random.default_rng(size).normal(0, 2, (size, 3)),) for size in (1, 4, 5)]
    agree_on_all(program, sets, types=["f64[N,3]"])


def test_a_quantile_that_is_computed() -> None:
    x, _ = arrays()
    q = np.array([0.1, 0.9])
    agree(lambda x, q: np.quantile(x, q, axis=1), x, q, rungs=("graph", "python", "kernel", "c"))


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "histogram": lambda x, v: (
        *np.histogram(x, 4),
        *np.histogram(x, [-9.0, 0, 1, 30]),
        *np.histogram(x, 3, range=(-5, 5), density=True),
        *np.histogram(v, 2, weights=v),
        *np.histogram(v * 0, 3),
    ),
    "histogramdd": lambda x, v: (*np.histogram2d(v, v[::-1], 3), np.histogramdd(x[:, :2], 2)[0]),
    "interp": lambda x, v: (
        np.interp(x, np.sort(v), v),
        np.interp(v, [0.0, 1, 1, 2], [3.0, 1, 5, 2], left=-1, right=9),
        np.interp(v, [1.0], [2.0]),
        np.interp(x, [2.0, 5.0, 1.0], [1.0, 2, 3], period=7),
    ),
    "convolve": lambda x, v: [
        f(a, b, mode)
        for f in (np.convolve, np.correlate)
        for mode in ("valid", "same", "full")
        for a, b in ((v, x[0]), (x[0], v), (v, v[:2]), (v, v[:1]))
    ],
    "convolve, integers": lambda x, v: np.convolve(v.astype(np.int32), [1, 2, 3], "same"),
    "insert": lambda x, v: (
        np.insert(v, [1, 1, 4], [7.0, 8, 9]),
        np.insert(x, 2, v[:4], axis=1),
        np.insert(x, -1, 0.5),
        np.insert(x, [0, 4], 1.0, axis=0),
        np.insert(v, slice(0, 4, 2), 3),
    ),
    "delete": lambda x, v: (np.delete(v, [0, -1]), np.delete(x, slice(1, 3), 0), np.delete(x, 3)),
    "repeat": lambda x, v: (np.repeat(v, [2, 0, 1, 3, 1, 0]), np.repeat(x, 2, axis=0)),
    "meshgrid": lambda x, v: (*np.meshgrid(v, x[0], indexing="ij"), *np.meshgrid(v, x[0], v[:2], sparse=True)),
    "put": lambda x, v: _written(x, v),
    "kron": lambda x, v: (np.kron(x, v), np.kron(v[:2], v[:2]), np.kron(x[:2], x[1:, :2])),
    "norm": lambda x, v: [
        *(np.linalg.norm(v, o) for o in (None, 0, 1, 2, 3, 0.5, np.inf, -np.inf)),
        *(np.linalg.norm(x, o) for o in (None, "fro", 1, -1, np.inf, -np.inf)),
        np.linalg.norm(x, axis=1, keepdims=True),
        np.linalg.norm(x, 1, axis=(1, 0), keepdims=True),
    ],
    "linalg": lambda x, v: (
        np.linalg.inv(x[:, :4]),
        np.linalg.det(np.stack([x[:, :4], x[:, 1:]])),
        np.linalg.solve(x[:, :4], v[:4]),
        np.linalg.solve(np.stack([x[:, 1:]] * 2), x),
        np.linalg.cholesky(x @ x.T, upper=True),
        np.linalg.matrix_power(x[:, :4], -2),
    ),
    "linalg of complex numbers": lambda x, v: (
        np.linalg.inv(x[:, :4] + 1j * x[:, 1:]),
        np.linalg.det(np.stack([x[:, :4] + 1j, 1j * x[:, 1:]])),
        np.linalg.slogdet(x[:, :4] - 1j * x[:, 1:]),
        np.linalg.solve(x[:, :4] * 1j, v[:4]),
        np.linalg.solve(np.stack([x[:, 1:], 1j * x[:, :4]]), x),
        np.linalg.cholesky(_gram(x[:, :4] + 1j * x[:, 1:])),
        np.linalg.cholesky(_gram(x[:, :4] + 1j * x[:, 1:]), upper=True),
        np.linalg.matrix_power(x[:, :4] + 1j, -2),
    ),
    "dot": lambda x, v: (np.dot(x, np.stack([x.T, x.T])), np.inner(x, x), np.vdot(x, x)),
    "where of reductions": lambda x, v: (
        x.sum(axis=0, where=x > 0),
        x.mean(where=x > 0),
        x.max(axis=1, initial=3, where=x > 0),
        np.min(x, initial=0.5),
        np.std(x, axis=1, where=x > -99, ddof=1),
        np.var(v, mean=v[:1]),
        np.prod(v, initial=2),
        np.all(x > 0, axis=0, where=x > 1),
        np.sum(x, initial=v[0]),
    ),
    "nan": lambda x, v: [
        f(np.where(x > 0, x, np.nan), axis=1)
        for f in (np.nanmax, np.nanmin, np.nanmean, np.nanstd, np.nancumsum, np.nancumprod)
    ],
    "select": lambda x, v: (
        np.select([v > 1, v > 0], [v, 2], 7),
        np.choose([0, 1, 1, 0, 1, 0], [v, -v]),
        np.choose((v > 0).astype(int) * 5, [v, 1.0], mode="wrap"),
        np.compress([1, 0, 1], v[:3]),
    ),
    "ufuncs": lambda x, v: (
        *np.modf(x),
        *np.frexp(x),
        *np.divmod(x, 2.5),
        np.ldexp(v, 3),
        np.spacing(v),
        np.subtract.outer(v, x),
        np.bitwise_xor.reduce(v.astype(int)),
        np.fmax.accumulate(v),
        np.multiply.reduceat(v, [0, 2, 1, 5]),
        np.add.reduce(x, axis=(0, 1), initial=2.0),
        np.subtract.accumulate(x, axis=1),
        np.divide.reduce(x, axis=1),
    ),
    "sorting": lambda x, v: (
        np.sort(x, axis=None),
        np.argsort(-x, axis=0),
        np.lexsort((v, v > 0)),
        np.searchsorted(np.sort(v), x, "right"),
        np.digitize(v, [3.0, 1, -2]),
        np.digitize(v, np.sort(v), right=True),
        np.partition(x, 2, axis=0)[2],
    ),
    "bits": lambda x, v: (
        np.packbits(x > 0),
        np.packbits(x > 0, axis=0, bitorder="little"),
        np.unpackbits((v > 0).astype(np.uint8), count=19),
        np.bincount(np.array([1, 1, 3]), v[:3], 6),
    ),
    "rows": lambda x, v: (
        np.apply_along_axis(lambda r: np.sort(r) * r[0], 0, x),
        np.vander(v, 4, increasing=True),
        np.block([[x, x], [np.ones((1, 10))]]),
        np.unravel_index(np.argmax(x), x.shape),
    ),
}


def _written(x: Any, v: Any) -> Any:
    y, w, u = x.copy(), v.copy(), x.copy()
    np.put(y, [3, 3, -1], [1.0, 2.0], mode="raise")
    np.put(w, [7, 8], 5.0, mode="wrap")
    np.place(u, u > 0, [1.0, 2.0, 3.0])
    z = x.copy()
    np.putmask(z, z > 0, [10.0, 20.0])
    f, g = np.zeros((4, 4)), x[:, :4].copy()
    np.fill_diagonal(f, v[:4])
    np.fill_diagonal(g, 3)
    s = x.copy()
    s.sort(axis=0)
    places = np.argsort(x, axis=1)
    a, b = np.zeros(5), x.copy()
    np.add.at(a, places[0] % 2, v[:5])
    b[np.argsort(v)[:2] % 4] = x[:2]
    return y, w, u, z, f, g, s, a, b


@pytest.mark.parametrize("name", CASES)
def test_compositions(name: str) -> None:
    agree(CASES[name], *arrays(), rungs=("graph", "python", "kernel"))


@pytest.mark.parametrize("backend", ["c", "cuda"])
def test_all_of_them_compiled(backend: str) -> None:
    agree(together([*CASES.values()]), *arrays(), rungs=(backend,))


def test_of_float32() -> None:
    cases = [c for n, c in CASES.items() if n not in ("ufuncs",)]
    agree(together(cases), *arrays("f4"), rungs=("graph", "c"))


def test_writes_at_computed_places_keep_the_last() -> None:
    def program(x: Any, i: Any, v: Any) -> Any:
        y, z = x.copy(), x.copy()
        y[i] = v
        z[i, i] = v[:, 0]
        return y, z

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(5, 5)), rng.integers(-5, 5, 40), rng.normal(size=(40, 5))
    module = agree(program, *inputs, rungs=("graph", "python", "kernel", "c", "cuda"))
    assert sum(n.target.name == "scatter_set" for n in module.graph.find_nodes(op="call_function")) == 2


def _gram(x: Any) -> Any:
    """A positive definite matrix."""
    return x @ x.conj().T + 3 * np.eye(x.shape[0], dtype=x.dtype)


@pytest.mark.parametrize("kind", ["f64", "c128"])
def test_matrices_of_named_sizes(kind: str) -> None:
    """Sizes below and above those of blocks and panels, and no multiples of them."""

    def program(a: Any, b: Any) -> Any:
        square = _gram(a)
        return np.linalg.cholesky(square), np.linalg.solve(square, b), np.linalg.slogdet(a)

    sets = []
    for size in (1, 3, 40, 163):
        rng = np.random.default_rng(size)
        given = rng.normal(size=(size, size)) / size, rng.normal(size=(size, 2 + size // 3))
        sets.append(tuple(g + 1j * rng.normal(size=g.shape) if kind == "c128" else g for g in given))
    agree_on_all(program, sets, types=[f"{kind}[N,N]", f"{kind}[N,K]"], rungs=("graph", "python", "c"))


def _decomposed(a: Any) -> list[Any]:
    """Results of decompositions that do not depend on the phases of vectors."""
    left, values, right = np.linalg.svd(a, full_matrices=False)
    squares = _gram(a)
    own, vectors = np.linalg.eigh(squares)
    upper = np.linalg.eigh(np.triu(squares), "U").eigenvectors
    return [
        *np.linalg.qr(a),
        *np.linalg.qr(a, "raw"),
        values,
        left.conj().T @ left,
        (left * values) @ right,
        own,
        vectors.conj().T @ vectors,
        *((v * own) @ v.conj().T for v in (vectors, upper)),
        np.linalg.eigvalsh(squares, "U"),
        np.linalg.svdvals(a.T),
        np.linalg.norm(a, "nuc"),
        np.linalg.pinv(a),
        *np.linalg.lstsq(a, a[:, :1], rcond=None)[::3],
    ]


@pytest.mark.parametrize("kind", ["c16", "c8"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 1)])
def test_decompositions_of_complex_matrices(shape: tuple[int, int], kind: str) -> None:
    def program(a: Any) -> Any:
        whole = np.linalg.svd(a)[::2] if shape[0] != shape[1] else ()
        return [*_decomposed(a), *np.linalg.qr(a, "complete"), *(v.conj().T @ v for v in whole)]

    rng = np.random.default_rng(1)
    agree(program, (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(kind), rungs=("graph", "python", "c"))


def test_decompositions_of_complex_matrices_of_any_size() -> None:
    """Also of those with equal eigenvalues, with zeros, and of several matrices at once."""
    rng = np.random.default_rng(2)
    for m, n in ((7, 4), (4, 7), (33, 30)):
        a = rng.normal(size=(2, m, n)) + 1j * rng.normal(size=(2, m, n))
        a[1, :, 1:] = a[1, :, :1]
        for types in (["c128[2,M,N]"], None):
            program = lambda a: [np.linalg.svdvals(a), np.linalg.qr(a)[0] @ np.linalg.qr(a)[1]]  # noqa: E731
            agree(program, a, types=types, rungs=("graph", "python", "c"))
    for matrix in (np.eye(4) + 0j, np.diag([1, 0, 1, -2.0]) * 1j, np.ones((4, 4)) * 1j, np.zeros((3, 3)) * 1j):
        agree(lambda a: _decomposed(a)[6:], matrix, rungs=("graph", "python", "c"))


def _of_complex_numbers(x: Any, z: Any) -> Any:
    """Functions that read real and imaginary parts, or conjugate."""
    ends = x * 3 - 4
    return [
        np.interp(ends, x, z),
        np.interp(np.array([0.3, np.nan, 9.0, -9.0]), x, z, left=1j, right=2),
        np.interp(ends, x, z, period=2.5),
        np.vecmat(z, np.outer(z, x)),
        np.geomspace(z[0], z[1], 5),
        np.geomspace(-x[1].astype(np.float32), -x[2].astype(np.float32), 4),
        np.angle(x > 1),
    ]


def test_parts_of_complex_numbers_count() -> None:
    x = np.array([0.5, 1.0, 2.0, 3.5])
    agree(_of_complex_numbers, x, x * (1 + 2j) - 1j, rungs=("graph", "python", "c"))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, z: np.interp(z, x, x),
        lambda x, z: np.interp(x, z, x),
        lambda x, z: np.bincount(np.arange(4), z, 5),
        lambda x, z: np.histogramdd([x, x], 3, weights=z)[0],
        lambda x, z: np.histogram(z, 3),
        lambda x, z: np.histogram_bin_edges(x, x[0]),
    ],
)
def test_complex_numbers_are_not_taken_for_real_ones(function: Any) -> None:
    with pytest.raises(TraceError, match=r"real|order|known"):
        fx.symbolic_trace(function, "f64[4]", "c128[4]")


def _edges(x: Any, wide: Any) -> Any:
    """Edges of bins, whose dtype is that of a given range for np.histogramdd, and that of both for np.histogram."""
    return [
        *(np.histogramdd([x, x], 2, r)[1][0] for r in ([(0, 1)] * 2, [(x[3], x[2]), (0, 2.0)], [(0, wide[2]), (0, 2)])),
        *np.histogram2d(x, x, 2, [[0.0, 2.0], None])[1:],
        *np.histogram2d(x, wide, 2)[1:],
        *(np.histogram(x, 2, r)[1] for r in ((0, 2.0), (wide[0], 2), np.array([0.0, 2.0]))),
    ]


def _kinds(x: Any) -> Any:
    """Results of rank 0, of which NumPy gives some as numbers and some as arrays; and dtypes that numbers of Python
    decide."""
    k, small = (x * 5).astype(np.int64), (x * 100).astype(np.uint8)
    array = np.asarray(x[0])
    array += 1
    array[...] *= 2
    return [
        *(np.median(k), np.percentile(k, 30), np.nanmedian(k), np.quantile(k, 0.3), np.median(x)),
        *(np.inner(x, x), np.round(k[0]), np.logaddexp.reduce(x), np.asarray(x[0]), array, x[0], np.copy(x[0])),
        *(np.dot(small, 3), np.inner(small, 3), np.dot(2, x.astype(np.float32)), np.dot(small, k[0])),
        *(
            1 * np.iterable(x),
            1 * np.iterable(x[0]),
            np.histogramdd([x, x * 2], 3)[0],
            np.histogram(x.astype("f2"), 2)[1],
        ),
        np.histogramdd((k, k), 2)[1],
        *_edges(x.astype(np.float32), x),
    ]


def test_results_are_numbers_or_arrays_as_those_of_numpy() -> None:
    x = np.array([0.5, 1.25, 2.0, 0.75])
    for expected, found in zip(_kinds(x), fx.jit(_kinds)(x), strict=True):
        assert type(found) is type(expected)
        assert np.asarray(found).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def of_many_elements(x: Any) -> Any:
    lines = x.reshape(-1, 2)
    return (
        np.bitwise_xor.reduce(x),
        np.bitwise_and.reduce(x.astype(np.uint8) | 3),
        np.logical_xor.reduce(x),
        np.lcm.reduce(x % 4 + 1),
        np.bitwise_or.reduce(lines, axis=1),
        np.bitwise_xor.reduce(lines, axis=0, keepdims=True),
        np.gcd.accumulate(lines * 6, axis=0),
        np.logical_xor.accumulate(x),
    )


def test_ufuncs_without_a_reduction_op_reduce_many_elements() -> None:
    """Along axes of sizes that are known, or named."""
    for size in (300, 2):
        x = np.random.default_rng(1).integers(0, 99, size)
        agree(of_many_elements, x)
        agree(of_many_elements, x, types=("i64[2*n]",))
    agree(np.bitwise_xor.reduce, np.zeros(0, np.int64), types=("i64[n]",))


def test_a_large_matrix_without_a_routine_is_refused() -> None:
    module = fx.symbolic_trace(lambda a: np.linalg.cholesky(a), "f64[N,N]")
    with pytest.raises(fx.errors.CodegenError, match="up to 64"):
        fx.compile(module, backend="cuda", device="shim")


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_threads_share_the_columns_of_solutions(dtype: str) -> None:
    """Each column is solved alone, so the number of threads changes no bit."""
    random = np.random.default_rng(3)
    turned = 0.6 - 0.8j if dtype.startswith("c") else 1
    a = (random.standard_normal((90, 90)) * turned + 20 * np.eye(90)).astype(dtype)
    for columns in (1, 70, 301):
        b = (random.standard_normal((90, columns)) * turned).astype(dtype)
        one, two = (fx.compile(np.linalg.solve, a=a, b=b, threads=threads)(a, b) for threads in (1, 2))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_allclose(one, np.linalg.solve(a, b), rtol=1e-4, atol=1e-6)


def test_a_median_is_the_mean_of_two_elements() -> None:
    """It is no interpolation between them, whose difference may be no number of their dtype: of integers it may be too
    large, of infinities it is NaN, and bools have none."""
    halves = np.array([[60000, 60000], [1, 2]], np.float16)
    rows = [
        np.array([[-100, 100, 90, -100], [1, 2, 3, 4]], np.int8),
        np.array([[-(2**62), 2**62, 2**62, -(2**62)]]),
        np.array([[True, False], [False, False], [True, True]]),
        np.array([[np.inf, np.inf, np.inf, 1.0], [-np.inf, np.inf, 1.0, 2.0]]),
        np.array([[3e38, 3e38], [1, np.inf]], np.float32),
    ]
    with np.errstate(over="ignore"):
        for x in (*rows, halves):
            agree(lambda x: (np.median(x, axis=1), np.median(x), np.median(x, axis=0, keepdims=True)), x)
        for x in rows:
            agree(lambda x: np.nanmedian(x, axis=-1), x)
        selected = fx.jit(lambda x: np.median(x[x > 0]), backend="c")
        np.testing.assert_array_equal(selected(halves.ravel()[:2]), np.float16(60000))
