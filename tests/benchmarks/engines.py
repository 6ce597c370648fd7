"""The engines: fxlite's C, torch eager and ONNX Runtime, each alone in a process of its own.

In: a workload's name and a number of threads. Out: calls that take prepared inputs. Processes keep
the engines' thread pools apart: a pool that spins for work would take a core from its competitor.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tests.benchmarks.timing import Block, block
from tutorials import digits, minilm

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Workload:
    """A model (digits, mlp or minilm), the types its inputs are compiled for, and inputs."""

    name: str
    model: str
    types: dict[str, str]
    inputs: Callable[[], dict[str, Array]]


#: Sentences of 5 to 60 tokens: a batch as it comes, padded to its longest.
RAGGED = (
    "Hello there.",
    "The river burst its banks after three days of heavy rain.",
    "A man is eating a piece of bread.",
    "Hundreds of families had to leave their homes and sleep in school buildings when the river "
    "flooded part of the old town, where volunteers handed out blankets, soup and dry clothes to "
    "everybody who had come up the hill that night, many of them with nothing but a bag.",
    "How do I compile a neural network to plain C?",
    "Share prices dropped at the start of the week, and analysts expect them to fall further.",
    "Is it going to snow tomorrow?",
    "She plays the violin in a small orchestra that gives concerts in village churches.",
)


def _images(batch: int) -> dict[str, Array]:
    from sklearn.datasets import load_digits

    return {"x": (load_digits().images[:batch, None] / 16).astype(np.float32)}


def _normal(batch: int) -> dict[str, Array]:
    drawn = np.random.default_rng(0).standard_normal((batch, 784))
    return {"x": drawn.astype(np.float32)}


def _tokens() -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(1000, minilm.VOCABULARY, (1, 128))
    return {"x": ids, "mask": np.ones_like(ids)}


def _sentences() -> dict[str, Array]:
    x, mask = minilm.encode(RAGGED)
    return {"x": x, "mask": mask}


def workloads() -> list[Workload]:
    """All workloads, in the order of the table."""
    image, row, tokens = {"x": "f32[B,1,8,8]"}, {"x": "f32[B,784]"}, "i64[B,T]"
    text = {"x": tokens, "mask": tokens}
    return [
        *(
            Workload(f"digits B={b}", "digits", image, lambda b=b: _images(b))
            for b in (1, 64, 1797)
        ),
        *(Workload(f"mlp B={b}", "mlp", row, lambda b=b: _normal(b)) for b in (1, 32, 256)),
        Workload("minilm B=1 T=128", "minilm", text, _tokens),
        Workload(f"minilm B={len(RAGGED)} ragged", "minilm", text, _sentences),
    ]


def weights(model: str) -> dict[str, Array]:
    """The weights every engine gets."""
    if model == "minilm":
        return minilm.load_weights()
    if model == "digits":
        return digits.trained().state_dict()
    rng = np.random.default_rng(1)
    shapes = {"0": (512, 784), "2": (512, 512), "4": (10, 512)}
    made = {}
    for name, (outputs, inputs) in shapes.items():
        limit = inputs**-0.5
        made[f"{name}.weight"] = rng.uniform(-limit, limit, (outputs, inputs)).astype(np.float32)
        made[f"{name}.bias"] = rng.uniform(-limit, limit, outputs).astype(np.float32)
    return made


# -- engines ---------------------------------------------------------------------------------------
Call = Callable[[], Any]


def fxlite_c(workload: Workload, threads: int) -> Call:
    """fxlite compiled to C: NumPy arrays in and out."""
    import fxlite as fx
    from fxlite import nn

    if workload.model == "mlp":
        model: nn.Module = nn.Sequential(
            nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
    else:
        model = digits.Digits() if workload.model == "digits" else minilm.MiniLM()
    model.load_state_dict(weights(workload.model))
    function = fx.compile(model.eval(), inputs=workload.types, backend="c", threads=threads)
    inputs = tuple(workload.inputs().values())
    return lambda: function(*inputs)


def _torch_model(workload: Workload) -> Any:
    import torch

    from tests.benchmarks import torch_models

    state = {k: torch.from_numpy(np.array(v)) for k, v in weights(workload.model).items()}
    if workload.model == "minilm":
        made = torch_models.MiniLM()
        made.load(state)
        return made.eval()
    model = torch_models.Digits() if workload.model == "digits" else torch_models.mlp()
    model.load_state_dict(state)
    return model.eval()


def torch_eager(workload: Workload, threads: int) -> Call:
    """torch without compilation, in inference mode: tensors in and out."""
    import torch

    torch.set_num_threads(threads)
    model = _torch_model(workload)
    inputs = [torch.from_numpy(a) for a in workload.inputs().values()]

    def call() -> Any:
        with torch.inference_mode():
            return model(*inputs)

    return call


def onnx_runtime(workload: Workload, threads: int) -> Call:
    """ONNX Runtime on the torch model exported to ONNX, with all its graph optimizations: NumPy
    arrays in and out."""
    import onnxruntime
    import torch

    inputs = workload.inputs()
    names = list(inputs)
    axes = {name: {0: "B"} if workload.model != "minilm" else {0: "B", 1: "T"} for name in names}
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _torch_model(workload), tuple(torch.from_numpy(a) for a in inputs.values()), stream,
            input_names=names, output_names=["y"], dynamic_axes={**axes, "y": {0: "B"}},
            opset_version=17, dynamo=False,
        )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(
        stream.getvalue(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, inputs)[0]


ENGINES: dict[str, Callable[[Workload, int], Call]] = {
    "fxlite C": fxlite_c,
    "torch": torch_eager,
    "ONNX Runtime": onnx_runtime,
}


# -- processes -------------------------------------------------------------------------------------
class Worker:
    """One engine in a process of its own, pinned to ``cores``; runs a block when told."""

    def __init__(self, engine: str, cores: list[int]) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(engine, cores, other), daemon=True)
        os.environ["OMP_NUM_THREADS"] = str(len(cores))  # read by the libraries' first import
        self.process.start()

    def load(self, workload: str) -> Array:
        """Prepare a workload; returns the output of its first call. Raises RuntimeError."""
        return self._ask("load", workload)  # type: ignore[no-any-return]

    def run(self, seconds: float) -> Block:
        """One block of repetitions."""
        return self._ask("run", seconds)  # type: ignore[no-any-return]

    def close(self) -> None:
        self.pipe.close()  # the process sees the end of the pipe
        self.process.join()

    def _ask(self, *request: Any) -> Any:
        self.pipe.send(request)
        answer = self.pipe.recv()
        if isinstance(answer, Exception):
            raise RuntimeError(f"{type(answer).__name__}: {answer}") from answer
        return answer


def _serve(engine: str, cores: list[int], pipe: Connection) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    known = {w.name: w for w in workloads()}
    call: Call = lambda: None  # noqa: E731
    while True:
        try:
            request, value = pipe.recv()
        except EOFError:
            return
        try:
            if request == "load":
                call = ENGINES[engine](known[value], len(cores))
                pipe.send(np.asarray(call()))
            else:
                pipe.send(block(call, value))
        except Exception as error:
            pipe.send(RuntimeError(f"{type(error).__name__}: {error}"))


def available(engine: str) -> bool:
    """Whether the packages of an engine are installed."""
    from importlib.util import find_spec

    needed = {"torch": ("torch",), "ONNX Runtime": ("torch", "onnx", "onnxruntime")}
    return all(find_spec(name) for name in needed.get(engine, ()))
