"""The one oracle (docs/design.md): every way to run a program must give the same answer.

``agree(program, *inputs)`` runs eager NumPy, the traced graph interpreted, the regenerated Python,
the kernels in NumPy, the compiled C and CUDA text on the CPU shim, and names the first rung that
differs. It compares count, shape, dtype, finiteness and values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import dtypes
from fxlite.codegen.c import templates
from fxlite.codegen.optimize import optimize
from fxlite.codegen.program import plan
from fxlite.codegen.run import run_program

#: Relative tolerance by result dtype; scaled by max |expected| of the array.
TOLERANCE = {"f16": 4e-3, "bf16": 3e-2, "f32": 1e-5, "f64": 1e-12}


class Disagreement(AssertionError):
    """Two rungs of the oracle give different answers."""


def flatten(result: Any) -> list[np.ndarray[Any, Any]]:
    """Arrays of a nested result, in order."""
    if isinstance(result, (tuple, list)):
        return [a for r in result for a in flatten(r)]
    if isinstance(result, dict):
        return [a for r in result.values() for a in flatten(r)]
    return [np.asarray(result)]


def compare(rung: str, actual: Any, expected: Any, rtol: float | None = None) -> float:
    """Raise Disagreement where ``actual`` is not ``expected``; returns the largest relative
    error."""
    got, want = flatten(actual), flatten(expected)
    if len(got) != len(want):
        raise Disagreement(f"{rung}: {len(got)} results, expected {len(want)}")
    worst = 0.0
    for number, (a, e) in enumerate(zip(got, want)):
        where = f"{rung}, result {number}"
        if a.shape != e.shape:
            raise Disagreement(f"{where}: shape {a.shape}, expected {e.shape}")
        if a.dtype != e.dtype:
            raise Disagreement(f"{where}: dtype {a.dtype}, expected {e.dtype}")
        dtype = dtypes.dtype(e.dtype)
        if not dtype.is_float:
            if not np.array_equal(a, e):
                raise Disagreement(
                    f"{where}: {np.sum(a != e)} of {e.size} integers differ\n{a}\n{e}"
                )
            continue
        a, e = a.astype(np.float64), e.astype(np.float64)
        if not (
            np.array_equal(np.isnan(a), np.isnan(e)) and np.array_equal(np.isinf(a), np.isinf(e))
        ):
            raise Disagreement(f"{where}: NaN or infinity at different places\n{a}\n{e}")
        finite = np.isfinite(e)
        if not np.array_equal(a[~finite & ~np.isnan(e)], e[~finite & ~np.isnan(e)]):
            raise Disagreement(f"{where}: infinities of different sign")
        if finite.any():
            scale = max(float(np.abs(e[finite]).max()), 1e-30)
            error = float(np.abs(a[finite] - e[finite]).max()) / scale
            worst = max(worst, error)
            limit = max(
                TOLERANCE[dtype.name], rtol if rtol is not None and dtype.name == "f32" else 0
            )
            if error > limit:
                raise Disagreement(
                    f"{where}: largest error {error:.3g} of the largest value, {dtype}"
                )
    return worst


def agree(
    program: Any,
    *inputs: np.ndarray[Any, Any],
    types: Sequence[Any] | None = None,
    rtol: float | None = None,
    rungs: Sequence[str] = ("graph", "python", "kernel", "c"),
) -> fx.GraphModule:
    """Run all rungs on ``inputs``; ``types`` are the input types to trace with (default: the
    inputs'). Returns the traced GraphModule."""
    expected = program(*inputs)
    module = fx.symbolic_trace(program, *(types if types is not None else inputs))
    module.graph.lint()
    predicted = flatten_types(module.graph.output_node().type)
    env = _dims(module, inputs)
    for number, (declared, value) in enumerate(zip(predicted, flatten(expected))):
        concrete = declared.substitute(env)
        if concrete.shape != value.shape or concrete.dtype.numpy != value.dtype:
            raise Disagreement(
                f"type rule, result {number}: {declared} is {concrete}, eager gives "
                f"{value.dtype}{value.shape}"
            )
    for rung in rungs:
        actual = RUNGS[rung](module, inputs)
        compare(rung, actual, expected, rtol)
    return module


def flatten_types(value: Any) -> list[fx.TensorType]:
    """Types of a nested result, in order."""
    if isinstance(value, fx.TensorType):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [t for v in items for t in flatten_types(v)]


def _dims(module: fx.GraphModule, inputs: Sequence[Any]) -> Mapping[str, int]:
    from fxlite.graph_module import check_inputs

    names = [n.target for n in module.graph.placeholders]
    return check_inputs("oracle", module.graph.placeholders, dict(zip(names, inputs)))


def _graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return fx.Interpreter(module).run(*inputs)


def _python(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return module(*inputs)


def _kernel(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    optimized, _ = optimize(module)
    return run_program(plan(optimized, templates.claims), inputs)


def _c(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return fx.compile(module, backend="c")(*inputs)


def _cuda(module: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    return fx.compile(module, backend="cuda", device="shim")(*inputs)


#: The ways to run a traced module; each is compared with eager NumPy.
RUNGS: dict[str, Any] = {
    "graph": _graph,
    "python": _python,
    "kernel": _kernel,
    "c": _c,
    "cuda": _cuda,
}
