"""Exports to ONNX compared with their graphs: each sample of each op, and each program of the zoo, in ONNX
Runtime where that is installed and has what it takes, else in the evaluator of the package ``onnx``.

    python -m tests.onnx_export              all; prints what is not right, and why
    python -m tests.onnx_export 'softmax'    those with a matching name
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.base.errors import FxliteError
from fxlite.ops.op import REGISTRY
from fxlite.types import agreement
from tests.graphs import sample_program
from tests.oracle import written
from tests.zoo import ZOO

#: Samples whose exports are right and which the runtimes compute otherwise than ONNX or fxlite says.
OTHERWISE = {
    **dict.fromkeys(("grid_sample-21", "grid_sample-22"), "positions that are NaN or infinite"),
    **dict.fromkeys(("interpolate-3", "interpolate-6", "interpolate-7", "interpolate-8"), "positions between two"),
    **dict.fromkeys(("max_pool2d-6", "max_pool2d-16", "max_pool3d-6"), "NaN in a window"),
    **dict.fromkeys(("max_pool_positions-4", "max_pool_positions-5"), "NaN in a window, several largest ones"),
    **dict.fromkeys(("group_norm-6", "lstm-5"), "no element"),
    "resize-7": "no kernel for bool",
}
#: What an outcome begins with where ONNX has no op for a part of a program.
REFUSED = "refused: "


def runtime(model: Any) -> Any:
    """A function of arrays by name that runs a model in ONNX Runtime. Raises what it raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def evaluator(model: Any) -> Any:
    """The same with the evaluator of the package onnx, which is slow and has all ops."""
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(model)
    return lambda given: session.run(None, given)


def check(gm: fx.GraphModule, inputs: Any, opset: int = 21) -> str:
    """Export a graph and run it: "" where its results are the graph's, else what is wrong. What the
    runtime has no kernel for, or computes in another way than ONNX says (NaN in a maximum), is run by
    the evaluator."""
    try:
        model = fx.to_onnx(gm, opset=opset)
    except FxliteError as error:
        return REFUSED + str(error).splitlines()[0]
    expected = [_pairs(value) for value in agreement.leaves(written(gm, gm, inputs))]
    given = dict(zip([i.name for i in model.graph.input], map(_pairs, inputs)))
    problem = ""
    for run in (runtime, evaluator):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found = run(model)(given)
        except Exception as error:  # not installed, or it has no kernel for these types
            problem = problem or f"{type(error).__name__}: {str(error)[:300]}"
            continue
        wrong = difference(found, expected, 1e-6 if run is evaluator else 1e-9)
        if not wrong:
            return ""
        problem = f"{run.__name__}: {wrong}"
    return problem


def _pairs(value: Any) -> Any:
    """An array; complex numbers as pairs along a last axis, as models have them."""
    array = np.asarray(value)
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def difference(found: Any, expected: Any, least: float) -> str:
    """What differs between results and the graph's; ``least``: the tolerance of float64."""
    if len(found) != len(expected):
        return f"{len(found)} results, {len(expected)} expected"
    for number, (one, other) in enumerate(zip(found, expected)):
        value, want = np.asarray(one), np.asarray(other)
        if (value.dtype, value.shape) != (want.dtype, want.shape):
            return f"result {number} is {value.dtype}{value.shape}, {want.dtype}{want.shape} expected"
        if want.dtype.kind not in "fV":
            if not np.array_equal(value, want):
                return f"result {number} differs in {np.count_nonzero(value != want)} of {want.size} elements"
            continue
        most = {"float64": least, "float32": 2e-5}.get(want.dtype.name, 2e-2)
        wide = want.astype(np.float64)
        largest = np.max(np.abs(wide[np.isfinite(wide)]), initial=1.0)
        if not np.allclose(value.astype(np.float64), wide, rtol=most, atol=most * largest, equal_nan=True):
            return f"result {number} differs: {value.reshape(-1)[:4]}, expected {want.reshape(-1)[:4]}"
    return ""


def samples() -> Iterator[tuple[str, Any]]:
    """Name, and what gives the graph and inputs, of each sample and program."""
    for name, op in sorted(REGISTRY.items()):
        for number in range(len(op.samples)):
            yield f"{name}-{number}", (op, number)
    for program in ZOO:
        yield f"zoo-{program.name}", program


def made(what: Any) -> tuple[fx.GraphModule, Any]:
    """The graph and the inputs of one of them."""
    if not isinstance(what, tuple):
        module, _, inputs = what.trace()
        return module, inputs
    op, number = what
    sample = op.samples[number]
    return fx.symbolic_trace(sample_program(op, sample), *sample.types()), sample.arrays(seed=number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--opset", type=int, default=21)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for name, what in samples():
        if not re.search(given.pattern, name):
            continue
        try:
            outcome = check(*made(what), given.opset)
        except Exception as error:  # a fault of the export
            outcome = f"FAULT {type(error).__name__}: {str(error)[:300]}"
        found["right" if not outcome else "refused" if outcome.startswith(REFUSED) else "wrong"] += 1
        if outcome:
            outcome = f"(known: {OTHERWISE[name]}) {outcome}" if name in OTHERWISE else outcome
            print(f"{name}: {outcome}", flush=True)
    print(", ".join(f"{found[k]} {k}" for k in ("right", "refused", "wrong")))


if __name__ == "__main__":
    main()
