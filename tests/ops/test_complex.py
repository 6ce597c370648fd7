"""Complex numbers everywhere: each op on them, or refused; promotion, parts, literals, files."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.ops.op import REGISTRY
from fxlite.ops.samples import Random, Sample
from fxlite.show.node_cost import node_flops
from fxlite.types import agreement, dtypes
from tests.graphs import sample_program
from tests.oracle import RUNGS, Disagreement, agree

Array = np.ndarray[Any, Any]
NAMES = ("c64", "c128")


def numbers(name: str, *shape: int, seed: int = 0) -> Array:
    """Normally distributed parts."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return np.asarray(made).astype(dtypes.dtype(name).numpy)


# -- every op --------------------------------------------------------------------------------------
def complex_sample(sample: Sample) -> Sample | None:
    """The sample with complex numbers for the floats; None where it has none."""
    found = []

    def changed(leaf: Random) -> Random:
        if leaf.type.dtype not in (dtypes.float32, dtypes.float64):
            return leaf
        found.append(leaf)
        kind = "c64" if leaf.type.dtype is dtypes.float32 else "c128"
        return replace(leaf, given=fx.TensorType(leaf.type.shape, dtypes.dtype(kind)))

    args, kwargs = sample._map(changed)
    return Sample(args, kwargs, sample.dims) if found else None


OPS = sorted(
    name
    for name, op in REGISTRY.items()
    if not op.is_random and op.kind != "opaque" and any(map(complex_sample, op.samples))
)


@pytest.mark.parametrize("name", OPS)
def test_ops_compute_complex_numbers_or_refuse_them(name: str) -> None:
    """No op takes complex numbers for real ones, and what it computes it computes on all rungs."""
    op = REGISTRY[name]
    tried = 0
    for sample in filter(None, map(complex_sample, op.samples)):
        arrays = sample.arrays()
        program = sample_program(op, sample)
        with warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            try:
                fx.symbolic_trace(program, *sample.types())
            except FxliteError:
                with pytest.raises((FxliteError, TypeError)):
                    program(*arrays)
                continue
            rungs = [r for r in RUNGS if r not in ("c", "cuda")]
            agree(program, *arrays, types=sample.types(), rungs=rungs)
        tried += 1
    assert tried or name not in ("add", "matmul", "exp", "sum", "concat", "einsum", "where")


# -- promotion and literals ------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_weak_numbers_promote_as_in_numpy(dtype: Any) -> None:
    x = np.ones(3, dtype.numpy)
    if dtype is dtypes.bfloat16:
        return  # ml_dtypes: its own rules, which test_dtypes has
    for program in (lambda x: x * 1j, lambda x: 2 - 1j + x, lambda x: x**2j, lambda x: x == 1j):
        found = fx.symbolic_trace(program, x).graph.output_node().type
        assert found.dtype.numpy == program(x).dtype


@pytest.mark.parametrize(
    "value",
    [
        1j,
        -1j,
        1 + 2j,
        -2.5 - 0.5j,
        0j,
        complex(0.0, -1.0),
        complex(-0.0, 1.0),
        complex(1, -0.0),
        complex(math.nan, 1),
        complex(math.inf, -math.inf),
        complex(-0.0, -0.0),
        1e300j,
    ],
)
def test_literals_survive_text_source_files_and_copies(value: complex, tmp_path: Path) -> None:
    """Bit for bit: the signs of zeros and NaN included."""
    module = fx.symbolic_trace(lambda x: (x + value, np.full(2, value), value * x), x="c128[3]")
    x = numbers("c128", 3)
    expected = [a.tobytes() for a in module(x)]
    fx.save(module, tmp_path / "m.fxl")
    (tmp_path / "m.py").write_text(module.source())
    parsed = fx.GraphModule(module, fx.parse(module.graph.text(full=True)))
    assert parsed.graph.text(full=True) == module.graph.text(full=True)
    for other in (fx.load(tmp_path / "m.fxl"), parsed):
        assert [a.tobytes() for a in other(x)] == expected
    with np.errstate(all="ignore"):
        agree(lambda x: (x + value, np.full(2, value), value * x), x, rungs=tuple(RUNGS))


def test_names_of_inputs_may_be_complex() -> None:
    """The word that text has for a number that no literal gives."""
    module = fx.symbolic_trace(lambda complex: complex * np.float64("inf") * -1j, complex="c64[3]")
    assert fx.parse(module.graph.text(full=True)).text(full=True) == module.graph.text(full=True)


def test_real_numbers_take_no_complex_ones() -> None:
    with pytest.raises(FxliteError, match=r"complex and f32 is not; take its .real"):
        fx.symbolic_trace(lambda x: np.full_like(x, 1j), x="f32[3]")
    with pytest.raises(FxliteError, match=r"NumPy does not define it for c64.*abs of the complex"):
        fx.symbolic_trace(lambda x: np.floor(x), x="c64[3]")
    with pytest.raises(FxliteError, match=r"take its .real, .imag or abs"):
        fx.symbolic_trace(lambda x: fx.nn.functional.softmax(x, -1), x="c64[3]")


def test_what_drops_imaginary_parts_warns_as_numpy_does() -> None:
    def written(x: Any, y: Any) -> Any:
        y = y.copy()
        y[:2] = x
        return y

    x, y = numbers("c64", 2), np.ones(3, np.float32)
    for program, given in ((lambda x: x.astype("f4"), (x,)), (written, (x, y))):
        with pytest.warns(np.exceptions.ComplexWarning, match="drops the imaginary part"):
            module = fx.symbolic_trace(program, *given)
        with pytest.warns(np.exceptions.ComplexWarning):
            expected = program(*given)
        assert np.array_equal(module(*given), expected)
        assert np.array_equal(fx.compile(module, backend="c")(*given), expected)


def test_state_of_real_numbers_takes_no_complex_ones() -> None:
    module = fx.nn.Linear(2, 3)
    state = {k: v.astype(np.complex64) for k, v in module.state_dict().items()}
    with pytest.raises(FxliteError, match="imaginary parts would be lost"):
        module.load_state_dict(state)


# -- programs --------------------------------------------------------------------------------------
def _parts(x: Any, y: Any) -> Any:
    return x.real + y.imag, np.real(x) * 2, np.conj(x).imag, abs(x) ** 2, np.angle(x, deg=True)


def _sums(x: Any, y: Any) -> Any:
    return (x * y).sum(), x.mean(axis=0), x.prod(axis=1), np.var(x, axis=1), x.std(), np.vdot(x, y)


def _products(x: Any, y: Any) -> Any:
    z = np.einsum("ij,kj->ik", x, y.conj())
    return x @ y.T, x.T @ y[:, 0], z, np.linalg.norm(x), np.outer(x, y)[:2]


def _writes(x: Any, y: Any) -> Any:
    z = np.zeros_like(x)
    z[:, 1:] = y[:, :-1] * 2j
    z[0] += 1
    z.real = x.real
    z[1, ::2] = 3 - 1j
    return z, np.where(x.real > 0, x, 0), np.concatenate([x, y.real], axis=1)


def _order(x: Any, y: Any) -> Any:
    return (x < y, x >= y.real, np.maximum(x, y), x.max(axis=1), y.argmin(axis=0), np.clip(x, 0, 1))


def _functions(x: Any, y: Any) -> Any:
    return np.exp(x) / (1 + x * y), np.log(x), np.sqrt(y), x**2, x**-3, x**y, x**0.5, np.tanh(x)


def _tests(x: Any, y: Any) -> Any:
    z = x / np.where(y.real > 0, y, 0)
    return np.isnan(z), np.isfinite(z), z.any(axis=1), x.all(), np.iscomplex(y), np.isreal(x.real)


PROGRAMS = (_parts, _sums, _products, _writes, _order, _functions, _tests)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_agree_on_all_rungs(program: Any, name: str) -> None:
    x, y = numbers(name, 3, 5), numbers(name, 3, 5, seed=1)
    with np.errstate(all="ignore"):
        agree(program, x, y, rungs=tuple(RUNGS))
        kinds = [f"{name}[N,5]", f"{name}[N,5]"]
        agree(program, x, y, types=kinds, rungs=tuple(RUNGS)) if program is not _products else None


@pytest.mark.parametrize("name", NAMES)
def test_long_sums_are_exact_enough(name: str) -> None:
    x = numbers(name, 70_001) + dtypes.dtype(name).numpy.type(3)
    agree(lambda x: (x.sum(), x.mean()), x)
    agree(lambda x: x.sum(axis=0), numbers(name, 3000, 7))


@pytest.mark.parametrize("name", NAMES)
def test_ends_of_the_range(name: str) -> None:
    """Products of infinities are NumPy's, not those of C; abs, division and roots do not overflow
    on the way."""
    info = np.finfo(dtypes.dtype(name).numpy)
    ends = [0.0, -0.0, 1.5, -2.0, 1e10, float(info.tiny), math.inf, -math.inf]
    x = np.array([complex(a, b) for a in ends for b in ends]).astype(info.dtype.type(0) * 1j)
    x = x.astype(dtypes.dtype(name).numpy)
    pairs = np.repeat(x, len(x)), np.tile(x, len(x))
    with np.errstate(all="ignore"):
        agree(lambda x, y: (x * y, x + y, x == y, x < y), *pairs, rungs=tuple(RUNGS))
        far = np.where(abs(x) == 1e10, x * np.float32(1e28), x) if name == "c64" else x * 1e290
        agree(lambda x: (abs(x), np.sqrt(x), x * 2j), far, rungs=tuple(RUNGS))


def test_what_disagrees_is_found() -> None:
    """The comparer looks at both parts."""
    x = numbers("c128", 4)
    wrong = x.copy()
    wrong[2] = complex(x[2].real, x[2].imag + 1e-6)
    found = agreement.compare(x, wrong)
    assert (found.problem, found.place) == ("value", (2,)) and found.actual == wrong[2]
    with pytest.raises(Disagreement):
        from tests.oracle import compare

        compare("test", np.conj(x), x)


def test_costs_count_operations_of_parts() -> None:
    module = fx.symbolic_trace(lambda x, y: (x * y + x).sum(), x="c64[10]", y="c64[10]")
    assert [node_flops(n) for n in module.graph.nodes][2:5] == [60, 20, 20]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.0, np.float32(2), np.int64(2), 1j])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_powers_are_those_of_the_operator(dtype: str, exponent: Any) -> None:
    """To the last bit: ``z**2`` of complex numbers is rounded otherwise than np.power."""
    x = np.random.default_rng(0).normal(size=(99, 2)).astype("f8").view("c16")[:, 0]
    x = (x if dtype[0] == "c" else np.abs(x)).astype(dtype)
    found, wanted = fx.jit(lambda x: x**exponent, backend="python")(x), x**exponent
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
