"""The engines: fxlite's C and its peers.

In: a prepared workload (:class:`tests.benchmarks.workloads.Job`) and a number of threads. Out, in
two steps: a function that builds, with the model in memory (ONNX Runtime and OpenVINO: in a file;
fxlite: its weights mapped from one), and what it returns, :class:`Loaded`, whose calls are
measured. The first step is not timed.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.workloads import Job

Call = Callable[[], Any]


@dataclass(frozen=True)
class Loaded:
    """A call on the workload's inputs, and the accuracy class of its products: ``f32``, ``bf16`` or
    one of :mod:`tests.benchmarks.quantized_engines`. Where a model is read from files, the
    ``megabytes`` of them; where it is another graph than the workload's, ``module``."""

    call: Call
    precision: str = "f32"
    megabytes: float = math.nan
    module: Any = None


Build = Callable[[], Loaded]


@dataclass(frozen=True)
class Engine:
    """``open(job, threads)`` makes the model and returns what builds it. ``modules`` have to be
    installed, and are imported before time and memory are taken; ``makers`` have to be installed,
    too, to make the files it reads."""

    name: str
    open: Callable[[Job, int], Build]
    modules: tuple[str, ...]
    makers: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.name.startswith("fxlite")

    @property
    def reads_onnx(self) -> bool:
        return not {"onnxruntime", "openvino"}.isdisjoint(self.modules)

    @property
    def missing(self) -> str:
        """The packages that are not installed."""
        packages = dict.fromkeys(module.partition(".")[0] for module in self.modules + self.makers)
        return ", ".join(p for p in packages if importlib.util.find_spec(p) is None)


def _fxlite(precision: str) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        import fxlite as fx

        os.environ["FXLITE_CACHE"] = str(job.cache / "fxlite")
        model, inputs = job.model(), job.inputs()
        types, arrays = job.spec.types(inputs), tuple(inputs.values())

        def build() -> Loaded:
            function = fx.compile(model, inputs=types, threads=threads, matmul_precision=precision)
            return Loaded(lambda: function(*arrays), "bf16" if precision == "medium" else "f32")

        return build

    return open


def _torch(compiled: bool = False, freezing: bool = False) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(job.cache / "inductor")
        import torch

        from tests.benchmarks.torch_models import load

        torch.set_num_threads(threads)
        model = load(job.spec.model, job.weights())
        inputs = [torch.from_numpy(array) for array in job.inputs().values()]

        def build() -> Loaded:
            run: Any = model
            if compiled:
                torch._inductor.config.freezing = freezing
                run = torch.compile(model, dynamic=bool(job.spec.dynamic))

            def call() -> Any:
                with torch.inference_mode():
                    return run(*inputs)

            return Loaded(call)

        return build

    return open


def _onnx_runtime(job: Job, threads: int) -> Build:
    job.check_onnx()
    inputs = job.inputs()
    return lambda: Loaded(infer_onnx_runtime(job.onnx, inputs, threads))


def infer_onnx_runtime(path: Path, inputs: Mapping[str, Any], threads: int) -> Call:
    """A model in a file, with all graph optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    used = {i.name: inputs[i.name] for i in session.get_inputs()}
    return lambda: session.run(None, used)


def _openvino(precision: str | None) -> Callable[[Job, int], Build]:
    def open(job: Job, threads: int) -> Build:
        job.check_onnx()
        inputs = job.inputs()

        def build() -> Loaded:
            call, hint = infer_openvino(job.onnx, inputs, threads, precision)
            return Loaded(call, "bf16" if "bfloat16" in hint else "f32")

        return build

    return open


def infer_openvino(path: Path, inputs: Mapping[str, Any], threads: int, precision: str | None) -> tuple[Call, str]:
    """A model in a file, and the precision it says it computes in: ``precision``, or, with None,
    what it chooses itself."""
    import openvino

    core = openvino.Core()
    settings: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    if precision is not None:
        settings["INFERENCE_PRECISION_HINT"] = precision
    compiled = core.compile_model(core.read_model(str(path)), "CPU", settings)
    request = compiled.create_infer_request()
    used = {i: inputs[i.get_any_name()] for i in compiled.inputs}

    def call() -> Any:
        found = request.infer(used, share_inputs=True, share_outputs=True)
        return [found[output] for output in compiled.outputs]

    return call, str(compiled.get_property("INFERENCE_PRECISION_HINT"))


def _jax(job: Job, threads: int) -> Build:
    # XLA takes as many threads as the process may use cores
    import jax

    from tests.benchmarks import jax_models

    parameters = jax_models.parameters(job.weights())
    inputs = [jax.numpy.asarray(array) for array in job.inputs().values()]

    def build() -> Loaded:
        function = jax.jit(jax_models.MODELS[job.spec.model])
        return Loaded(lambda: jax.block_until_ready(function(parameters, *inputs)))

    return build


_INDUCTOR = ("torch", "torch._dynamo", "torch._inductor.config")
_LIST = (
    Engine("fxlite highest", _fxlite("highest"), ("fxlite",)),
    Engine("fxlite high", _fxlite("high"), ("fxlite",)),
    Engine("fxlite medium", _fxlite("medium"), ("fxlite",)),
    Engine("torch", _torch(), ("torch",)),
    Engine("torch.compile", _torch(compiled=True), _INDUCTOR),
    Engine("compile, freezing", _torch(compiled=True, freezing=True), _INDUCTOR),
    Engine("ONNX Runtime", _onnx_runtime, ("onnxruntime",)),
    Engine("OpenVINO f32", _openvino("f32"), ("openvino",)),
    Engine("OpenVINO", _openvino(None), ("openvino",)),
    Engine("jax.jit", _jax, ("jax", "jaxlib")),
)
#: All engines by name, in the order of the columns.
ENGINES = {engine.name: engine for engine in _LIST}


def find_engine(name: str) -> Engine:
    """An engine of this benchmark, or of those of quantized and of imported models."""
    from tests.benchmarks.imported import COMPARED  # they build on this module
    from tests.benchmarks.quantized_engines import QUANTIZED

    return (ENGINES | QUANTIZED | COMPARED)[name]


def offered() -> list[str]:
    """The names of the engines: "high" and "medium" are among them where fxlite computes them
    otherwise than "highest"."""
    same = [f"fxlite {p}" for p in ("high", "medium") if not differs(p)]
    return [name for name in ENGINES if name not in same]


def differs(precision: str) -> bool:
    """Whether fxlite emits other code for a matmul_precision than for "highest"."""
    from fxlite import compiler, nn
    from fxlite.codegen.runtime.toolchain import CompilerNotFound

    layer = nn.Linear(64, 64)
    try:
        texts = [
            dict(compiler.compile(layer, x="f32[64,64]", matmul_precision=name).sources)
            for name in ("highest", precision)
        ]
    except CompilerNotFound:
        return False
    return texts[0] != texts[1]
