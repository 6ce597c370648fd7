"""Every op of the registry on its own samples: type rule, body against reference, all rungs of the
oracle, refusal of bad calls, completeness of the record."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.ops.op import REGISTRY
from tests.fuzz.results import exact_difference
from tests.graphs import sample_program
from tests.ops.body_check import check_body
from tests.oracle import RUNGS, agree

CASES = [(name, number) for name, op in sorted(REGISTRY.items()) for number in range(len(op.samples))]
BAD = [(name, number) for name, op in sorted(REGISTRY.items()) for number in range(len(op.bad_samples))]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_record_is_complete(name: str) -> None:
    op = REGISTRY[name]
    if op.kind == "control":  # whose bodies are traced; see tests/core/test_control_flow.py
        assert op._infer is not None
        return
    assert op.samples, f"{name} has no samples"
    assert op.__doc__, f"{name} has no documentation"
    assert op._infer is not None, f"{name} has no type rule"
    assert op.has_body or op.has_expansion or op.kind == "opaque", f"{name} has no meaning as loops"


@pytest.mark.parametrize(("name", "number"), CASES)
def test_sample(name: str, number: int) -> None:
    op = REGISTRY[name]
    sample = op.samples[number]
    arrays = sample.arrays(seed=number)
    rungs = [r for r in RUNGS if r not in ("c", "cuda")]  # these two: many samples in one build
    agree(sample_program(op, sample), *arrays, types=sample.types(), rungs=rungs)


def test_scalars_of_numpy_are_operands() -> None:
    """A reduction gives an ``np.float64``, not an array of rank 0: ops take either."""
    tried = 0
    for name, number in CASES:
        op = REGISTRY[name]
        arrays = op.samples[number].arrays(seed=number)
        if not any(a.ndim == 0 for a in arrays):
            continue
        tried += 1
        expected = op.samples[number].call(op, arrays)
        found = op.samples[number].call(op, [a[()] for a in arrays])
        assert exact_difference(expected, found) is None, (name, number)
    assert tried > 20


@pytest.mark.parametrize(("name", "number"), [c for c in CASES if REGISTRY[c[0]].has_body])
def test_body_is_reference(name: str, number: int) -> None:
    op = REGISTRY[name]
    check_body(op, op.samples[number])


@pytest.mark.parametrize(("name", "number"), BAD)
def test_bad_call_is_refused(name: str, number: int) -> None:
    op = REGISTRY[name]
    bad = op.bad_samples[number]
    with pytest.raises((FxliteError, ValueError, TypeError)) as caught:
        fx.symbolic_trace(sample_program(op, bad.sample), *bad.sample.types())
    assert bad.match in str(caught.value)


def test_what_takes_tensors_is_an_op() -> None:
    """A record that is lost takes its samples along, and so every test of them."""
    for found in pkgutil.walk_packages(fx.ops.__path__, "fxlite.ops."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if not inspect.isfunction(value) or value.__module__ != module.__name__:
                continue
            annotations = {p.annotation for p in inspect.signature(value).parameters.values()}
            assert not annotations & {"Tensor", "OptionalTensor", "Tensors"}, f"{found.name}.{name}"
