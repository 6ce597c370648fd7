"""Every op on its own samples as CUDA: on the CPU shim or a GPU, and through NVRTC. The programs of
many samples are one source, since building it costs more than running it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.codegen.c.tiles.library import needed
from fxlite.codegen.cuda.emit import SHARED, CudaProgram, emit
from fxlite.codegen.cuda.function import CudaRunner
from fxlite.codegen.program.calls import restructure
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.cuda_device import CudaToolkitNotFound, compile_cubin
from fxlite.ops.op import REGISTRY
from fxlite.types.agreement import Chain
from tests.cuda_launchers import launchers
from tests.graphs import traced_sample
from tests.oracle import Disagreement, compare

BUNDLES = 9
#: Ops of integers, which NVRTC does not compile quickly (an "unsupported operation").
NEVER_QUICK = ("int_conv2d[", "int_linear[", "int_matmul[", "int_recurrence[")


@dataclass(frozen=True)
class Case:
    """One sample of an op: the program, its inputs, and what is emitted for it."""

    label: str
    program: Any
    inputs: list[np.ndarray[Any, Any]]
    module: fx.GraphModule
    emitted: CudaProgram
    chain: Chain


def make_case(name: str, number: int) -> Case:
    """Trace and emit one sample."""
    program, inputs, module, chain = traced_sample(name, number)
    emitted = emit(optimize(module)[0], f"{name}_sample_{number}")
    return Case(f"{name}[{number}]", program, inputs, module, emitted, chain)


@functools.cache
def bundle(number: int) -> tuple[list[Case], str]:
    """Every ninth op's samples, and their source."""
    names = sorted(REGISTRY)[number::BUNDLES]
    cases = [make_case(name, i) for name in names for i in range(len(REGISTRY[name].samples))]
    return cases, joined(cases)


def joined(cases: list[Case]) -> str:
    """The sources of cases as one, with what they share of C's tiles once."""
    shared, sources = SHARED, [case.emitted.source for case in cases]
    own = [source.replace(needed(source, shared) or "\0", "") for source in sources]
    head = '#include "prelude.cuh"\n#include "fx_math.h"\n'
    return "\n".join([head, needed("\n".join(sources), shared), *own])


@pytest.mark.parametrize("number", range(BUNDLES))
def test_samples_agree(number: int) -> None:
    cases, source = bundle(number)
    modules = list(launchers(source))
    problems = []
    for case in cases:
        rebuild = restructure(case.module) or (lambda flat: flat)
        with np.errstate(all="ignore"):
            expected = case.program(*case.inputs)
        for place, module in modules:
            try:
                actual = rebuild(CudaRunner(case.emitted, module)(*case.inputs))
                compare(place, actual, expected, case.chain)
            except (Disagreement, RuntimeError, IndexError, ValueError) as error:
                problems.append(f"{case.label}: {type(error).__name__}: {error}")
    assert not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(BUNDLES))
def test_samples_compile_for_devices(number: int) -> None:
    """Quickly, and each for one architecture, since no text depends on which it is; whole programs are
    compiled for both, and as they are run, by test_zoo_compiles_for_devices."""
    cases, source = bundle(number)
    assert "__CUDA_ARCH__" not in source
    arch = ("sm_80", "sm_90")[number % 2]
    for quick in (True, False):
        some = [case for case in cases if case.label.startswith(NEVER_QUICK) != quick]
        if not some:
            continue
        try:
            cubin = compile_cubin(joined(some), arch, quick=quick)
        except CudaToolkitNotFound as error:
            pytest.skip(str(error))
        assert set(cubin.kernels) == {x.kernel for case in some for x in case.emitted.launches}
