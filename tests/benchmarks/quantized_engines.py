"""The engines of the benchmark of quantized models: fxlite's C of integer graphs, and its peers.

In: a job prepared by :mod:`tests.benchmarks.quantized_files` and a number of threads. Out: as for
:mod:`tests.benchmarks.engines`. The accuracy class of integer products of integer activations is
``int8``, static or dynamic; that of float activations and integer weights is ``weights``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import fxlite as fx
from tests.benchmarks.engines import Build, Engine, Loaded, infer_onnx_runtime, infer_openvino
from tests.benchmarks.quantized_files import calibration, files, megabytes, silence
from tests.benchmarks.workloads import Job


def _fxlite(form: str, precision: str) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        os.environ["FXLITE_CACHE"] = str(job.cache / "fxlite")
        paths = files(job, form)
        gm, arrays = fx.load(paths[0]), tuple(job.inputs().values())

        def build() -> Loaded:
            function = fx.compile(gm, threads=threads)
            return Loaded(lambda: function(*arrays), precision, megabytes(paths), gm)

        return build

    return open


def _onnx_runtime(form: str) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        paths, inputs = files(job, form), job.inputs()
        return lambda: Loaded(infer_onnx_runtime(paths[0], inputs, threads), "int8", megabytes(paths))

    return open


def _openvino(job: Job, threads: int) -> Build:
    paths, inputs = files(job, "OpenVINO NNCF"), job.inputs()

    def build() -> Loaded:
        call, _ = infer_openvino(paths[0], inputs, threads, None)
        return Loaded(call, "int8", megabytes(paths))

    return build


def _torch(quantize: Callable[[Any, Job], Any]) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        import torch

        from tests.benchmarks.torch_models import load

        torch.set_num_threads(threads)
        torch.backends.quantized.engine = "x86"
        with silence():
            model = quantize(load(job.spec.model, job.weights()), job)
        inputs = [torch.from_numpy(array) for array in job.inputs().values()]
        path = job.folder / "torch.pt"
        torch.save(model.state_dict(), path)

        def call() -> Any:
            with torch.inference_mode():
                return model(*inputs)

        return lambda: Loaded(call, "int8", megabytes([path]))

    return open


def _torch_dynamic(model: Any, job: Job) -> Any:
    import torch

    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)


def _torch_static(model: Any, job: Job) -> Any:
    """FX graph mode with the configs for x86: histograms, weights per channel."""
    import torch
    from torch.ao.quantization import get_default_qconfig_mapping, quantize_fx

    mapping = get_default_qconfig_mapping("x86").set_object_type(torch.nn.Embedding, None)
    batches = [[torch.from_numpy(a) for a in batch.values()] for batch in calibration(job)]
    prepared = quantize_fx.prepare_fx(model, mapping, tuple(batches[0]))
    with torch.inference_mode():
        for batch in batches:
            prepared(*batch)
    return quantize_fx.convert_fx(prepared)


_LIST = (
    Engine("fxlite float32", _fxlite("fxlite float32", "f32"), ("fxlite",)),
    Engine("fxlite static", _fxlite("fxlite static", "int8"), ("fxlite",)),
    Engine("fxlite dynamic", _fxlite("fxlite dynamic", "int8"), ("fxlite",)),
    Engine("fxlite weights int8", _fxlite("fxlite weights int8", "weights"), ("fxlite",)),
    Engine("fxlite weights int4", _fxlite("fxlite weights int4", "weights"), ("fxlite",)),
    Engine("torch static", _torch(_torch_static), ("torch", "torch.ao.quantization.quantize_fx")),
    Engine("torch dynamic", _torch(_torch_dynamic), ("torch", "torch.ao.quantization")),
    Engine("ONNX Runtime static", _onnx_runtime("ONNX Runtime static"), ("onnxruntime",), ("onnx", "sympy")),
    Engine("ONNX Runtime dynamic", _onnx_runtime("ONNX Runtime dynamic"), ("onnxruntime",), ("onnx", "sympy")),
    Engine("OpenVINO NNCF", _openvino, ("openvino",), ("nncf",)),
)
#: All engines by name, in the order of the columns.
QUANTIZED = {engine.name: engine for engine in _LIST}
