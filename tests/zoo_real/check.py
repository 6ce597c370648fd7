"""What is checked of one model: imported, the graph equals torch, C equals the graph; how long that takes; and
whether ONNX Runtime, and the graph that comes back from the file, compute what the exported graph does.

Numbers are float32 and equal where they differ by at most 1e-4 of the largest output. Of a model whose
float32 results in torch, or in C, are farther than that from its float64 ones, float64 is compared; ONNX's reference
evaluator then runs what ONNX Runtime lacks in float64, such as convolutions. Results of models quantized to 8 bits are
equal up to some steps of their scale: a sum that is within a rounding error of the midpoint between two integers
becomes either of them, which random weights amplify from layer to layer.
"""

from __future__ import annotations

import copy
import gc
import inspect
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

import fxlite as fx
from fxlite.importing.torch.caches import register_caches
from fxlite.importing.torch.eager_quantized import is_quantized
from fxlite.importing.torch.exported import program_of
from fxlite.importing.torch.run import graph_of
from fxlite.importing.torch.table import array_of
from tests.zoo_real.models import make

NEAR, NEAR_QUANTIZED = 1e-4, 0.1


def leaves(value: Any) -> list[Any]:
    """The arrays in a result, in order; its numbers are some, too."""
    found = [torch.tensor(v) if type(v) in (int, float) else v for v in pytree.tree_leaves(value)]
    return [v for v in found if isinstance(v, (np.ndarray, torch.Tensor))]


def difference(found: Any, expected: Any) -> float:
    """The largest difference, by the largest output; infinity where results have other shapes or
    one of them is not finite where the other is."""
    worst = 0.0
    if len(found) != len(expected):
        return float("inf")
    for one, other in zip(found, expected):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return float("inf")
        ok = np.isfinite(other)
        if ok.any():
            worst = max(worst, float(np.abs(one - other)[ok].max() / max(np.abs(other[ok]).max(), 1e-6)))
    return worst


def medians(calls: list[Any], seconds: float = 1.0) -> list[float]:
    """The median time of each call in milliseconds, of runs in turns: noise of the machine meets all."""
    taken: list[list[float]] = [[] for _ in calls]
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds or len(taken[0]) < 3:
        for call, times in zip(calls, taken):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [round(float(np.median(times)) * 1e3, 3) for times in taken]


def in_doubles(model: Any, args: Any, named: Any) -> tuple[Any, Any, Any]:
    """The model and its inputs in float64."""

    def wide(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return copy.deepcopy(model).double(), pytree.tree_map(wide, args), pytree.tree_map(wide, named)


def _imported(row: dict[str, Any], model: Any, args: Any, named: Any) -> tuple[Any, ...]:
    """The graph, its inputs, its results and torch's; the row says how far it came, and how far they are apart."""
    register_caches()  # that of the model, too, which is loaded now
    with torch.no_grad():
        expected = [array_of(v) for v in leaves(model(*args, **named))]
        row["stage"], start = "export", time.perf_counter()
        program = program_of(model, args, named, None)
        row["export_s"] = round(time.perf_counter() - start, 2)
    row["stage"], start = "import", time.perf_counter()
    gm = graph_of(program)
    row["import_s"], row["nodes"] = round(time.perf_counter() - start, 2), len(gm.graph)
    row["stage"], start = "graph", time.perf_counter()
    arrays = pytree.tree_map(lambda v: array_of(v) if isinstance(v, torch.Tensor) else v, args)
    by_name = pytree.tree_map(lambda v: array_of(v) if isinstance(v, torch.Tensor) else v, named)
    by_name = {k: v for k, v in by_name.items() if isinstance(v, (np.ndarray, dict, list, tuple))}
    in_graph = leaves(gm(*arrays, **by_name))
    row["graph_s"], row["graph_off"] = round(time.perf_counter() - start, 2), difference(in_graph, expected)
    return gm, arrays, by_name, in_graph, expected


def _run_onnx(path: Path, given: list[Any]) -> list[Any]:
    """The results of a model in ONNX Runtime; in ONNX's reference evaluator, if its dtypes are float64, for which
    ONNX Runtime lacks many ops."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class GatherElements(OpRun):  # that of the package onnx takes axes of at most 64 elements
        op_domain = ""

        def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
            axis %= data.ndim
            part = tuple(slice(None if a == axis else size) for a, size in enumerate(indices.shape))
            return (np.take_along_axis(data[part], indices, axis),)

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, {i.name: v for i, v in zip(session.get_inputs(), given, strict=True)}))
    except Exception as error:
        if type(error).__name__ != "NotImplemented" or not any(v.dtype == np.float64 for v in given):
            raise
        evaluator = ReferenceEvaluator(str(path), new_ops=[GatherElements])
        return list(evaluator.run(None, dict(zip(evaluator.input_names, given, strict=True))))


def through_onnx(
    row: dict[str, Any], gm: fx.GraphModule, arrays: Any, by_name: Any, in_graph: Any, near: float = NEAR
) -> None:
    """Export the graph, run the file in ONNX Runtime, import it again; the row says how far the results are off, or
    in ``onnx`` what went wrong. ``near``: how far they may be off."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        row["onnx"] = "export"
        try:
            start = time.perf_counter()
            fx.to_onnx(gm, path, external_data=True)
            row["export_onnx_s"] = round(time.perf_counter() - start, 2)
            row["onnx"] = "ONNX Runtime"
            values = gm.flatten_inputs(gm.bind(arrays, by_name).arguments)
            given = [np.asarray(values[p.target]) for p in gm.graph.placeholders]
            found = _run_onnx(path, given)
            row["onnx_off"] = difference(found[: len(in_graph)], in_graph)
            if not row["onnx_off"] <= near:
                raise AssertionError(f"results differ by {row['onnx_off']:.2g} of the largest output")
            row["onnx"] = "import again"
            back = fx.from_onnx(path)
            row["back_off"] = difference(leaves(back(*given))[: len(in_graph)], in_graph)
            if not row["back_off"] <= near:
                raise AssertionError(f"results differ by {row['back_off']:.2g} of the largest output")
            row["onnx"] = "right"
        except Exception as error:
            row["onnx"] += f": {type(error).__name__}: {error}"[:700]


#: Sizes of batch and sequence that one build runs with.
SIZES = ((1, 5), (2, 8), (3, 11), (5, 16), (4, 6))


def _sequences(named: dict[str, Any]) -> set[str]:
    """The inputs whose second axis is a sequence: of numbers of tokens, or of their vectors."""
    vectors = ("inputs_embeds", "hidden_states", "input_values")
    return {n for n, v in named.items() if v.ndim > 1 and (not v.is_floating_point() or n in vectors)}


def _resized(named: dict[str, Any], axes: dict[str, str], batch: int, length: int) -> dict[str, Any]:
    """Inputs of another size: elements drawn from those that are there, numbers a little apart."""
    made = {}
    for name, value in named.items():
        rows = batch if "batch" in axes.values() else len(value)
        found = value[torch.randint(len(value), (rows,))]
        if name in _sequences(named) and "sequence" in axes.values():
            wide = length if value.shape[1] < 1000 else 160 * length  # of samples of a sound
            found = value[torch.randint(len(value), (rows, 1)), torch.randint(value.shape[1], (rows, wide))]
        made[name] = found + 0.1 * torch.randn_like(found) if found.is_floating_point() else found
    return made


def all_sizes(row: dict[str, Any], model: Any, named: dict[str, Any]) -> None:
    """Import the model with a batch and a sequence of any size, build it once, and compare it with torch for each of
    :data:`SIZES`. The row's ``sizes`` says which of both may differ, or ``sizes_error`` what went wrong."""
    if (
        not all(isinstance(v, torch.Tensor) for v in named.values())
        or len({len(v) for v in named.values()}) != 1
        or any("grid" in n or "shapes" in n for n in named)
    ):
        row["sizes_error"] = "inputs: not all of them have the batch as their first axis"
        return
    both = [{0: "batch", 1: "sequence"}, {0: "batch"}, {1: "sequence"}]
    torchs = ""
    for axes in both if _sequences(named) else both[1:2]:
        dims = {called: torch.export.Dim(called) for called in ("batch", "sequence", "target")}
        spec = {
            name: {
                axis: dims["target" if axis and name.startswith("decoder") else called]
                for axis, called in axes.items()
                if axis == 0 or name in _sequences(named)
            }
            for name in named
        }
        try:
            program = program_of(model, (), _resized(named, axes, 2, 8), spec)
        except Exception as error:
            torchs = torchs or f"torch.export: {error}"
            continue
        stage = "import"
        try:
            gm = graph_of(program)
            stage = "build of C"
            compiled = fx.compile(gm)
            for batch, length in SIZES:
                given = _resized(named, axes, batch, length)
                stage = f"torch at {batch}, {length}"
                with torch.no_grad():
                    expected = [array_of(v) for v in leaves(model(**given))]
                stage = f"C at {batch}, {length}"
                off = difference(leaves(compiled(**{n: array_of(v) for n, v in given.items()})), expected)
                if not off <= NEAR:
                    raise AssertionError(f"it differs from torch by {off:.2g} of the largest output")
            row["sizes"] = ", ".join(axes.values())
        except Exception as error:
            row["sizes_error"] = f"{stage}: {type(error).__name__}: {error}"[:700]
            return
        break
    if torchs:
        row["sizes_error"] = torchs[:700]


def check_sizes(name: str) -> dict[str, Any]:
    """:func:`all_sizes` of a model that is right."""
    row: dict[str, Any] = {"name": name, "stage": "right"}
    try:
        model, args, named = make(name)
        all_sizes(row, model, {**dict(zip(inspect.signature(model.forward).parameters, args)), **named})
    except Exception as error:
        row["sizes_error"] = f"{type(error).__name__}: {error}"[:700]
    finally:
        gc.collect()
    return row


def check(name: str, with_c: bool = True, times: bool = True, onnx: bool = False) -> dict[str, Any]:
    """What became of a model: ``stage`` is "right", or where it failed, with the error."""
    row: dict[str, Any] = {"name": name, "stage": "make"}
    try:
        model, args, named = make(name)
        row["parameters"] = sum(p.numel() for p in model.parameters())
        near = NEAR_QUANTIZED if is_quantized(model) else NEAR
        gm, arrays, by_name, in_graph, expected = _imported(row, model, args, named)
        if not row["graph_off"] <= near and near == NEAR:
            model, args, named = in_doubles(model, args, named)
            with torch.no_grad():
                exact = [array_of(v) for v in leaves(model(*args, **named))]
            if difference(expected, exact) > NEAR:  # float32 of torch is no measure: rounding grows in the model
                row["dtype"] = "f64"
                gm, arrays, by_name, in_graph, _ = _imported(row, model, args, named)
        if not row["graph_off"] <= near:
            raise AssertionError(f"the graph differs from torch by {row['graph_off']:.2g} of the largest output")
        if onnx:
            through_onnx(row, gm, arrays, by_name, in_graph, near)
        if not with_c:
            return row | {"stage": "right"}
        for again in (False, True):
            row["stage"], start = "build", time.perf_counter()
            compiled = fx.compile(gm)
            in_c = leaves(compiled(*arrays, **by_name))
            row["build_s"], row["c_off"] = round(time.perf_counter() - start, 2), difference(in_c, in_graph)
            if row["c_off"] <= near or again or "dtype" in row or near != NEAR:
                break
            row["dtype"] = "f64"  # of elements as large as each other rounding says which is chosen
            model, args, named = in_doubles(model, args, named)
            gm, arrays, by_name, in_graph, _ = _imported(row, model, args, named)
            if onnx:
                through_onnx(row, gm, arrays, by_name, in_graph, near)
        row["stage"] = "c"
        if not row["c_off"] <= near:
            raise AssertionError(f"C differs from the graph by {row['c_off']:.2g} of the largest output")
        if times:
            with torch.no_grad():
                calls = [lambda: model(*args, **named), lambda: compiled(*arrays, **by_name)]
                row["torch_ms"], row["c_ms"] = medians(calls)
        row["stage"] = "right"
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:1500]
    finally:
        gc.collect()
    return row
