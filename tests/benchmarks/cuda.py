"""Inference on a GPU beside torch, in one run.

    python -m tests.benchmarks.cuda --save cuda.jsonl          # on a machine with a GPU and a torch for it
    python -m tests.benchmarks.cuda --load cuda.jsonl --output docs/benchmarks_cuda.md

One call at a time: arguments and results are on the device, and a call ends when its result is there.
fxlite is ``on_device`` of the model compiled for exactly these shapes. torch computes in float32, as
fxlite does (TF32 is a column of its own, with 10 bits of each factor); compiled is
``torch.compile(mode="reduce-overhead")``, whose launches are one CUDA graph, too. The engines take turns
(``timing.py``). *launches* is the time of fxlite's recorded launches alone, by CUDA events, and the
kernels that take most of it are listed below.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.types.agreement import compare as compared
from fxlite.types.agreement import sqnr
from tests.benchmarks import workloads
from tests.benchmarks.machine import versions
from tests.benchmarks.page import milliseconds
from tests.benchmarks.timing import block, compare

ENGINES = ("fxlite", "torch", "torch compiled", "torch TF32")
PEERS = ENGINES[1:3]
#: Kernels of a workload that are listed.
LISTED = 3
#: Workloads of the inference benchmark, and the models and batches that only a GPU is used for.
NAMES = (
    "mlp B=256",
    "pointwise 4M",
    "matmul 1024",
    "matmul 2048",
    "matmul 4096",
    "resnet18 B=8",
    "resnet50 B=1",
    "resnet50 B=32",
    "mobilenet B=1",
    "mobilenet B=32",
    "bert T=128",
    "gpt2 prefill T=128",
    "gpt2 decode P=512",
    "recommender B=256",
    "digits B=64",
    "lstm layer",
)


@dataclass
class Row:
    """A workload: seconds of a call by engine (medians), of the launches alone and of building;
    fxlite's time by each engine's (medians within rounds); ``kernels``: seconds of the slowest;
    ``failed``: why an engine has no time."""

    workload: str
    device: str
    seconds: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, float] = field(default_factory=dict)
    launches: float = 0.0
    count: int = 0
    build: float = 0.0
    kernels: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """fxlite's time by that of the fastest torch in float32."""
        known = [self.ratios[peer] for peer in PEERS if peer in self.ratios]
        return max(known) if known else None


def workload(name: str) -> workloads.Workload:
    """One of :data:`NAMES`."""
    known = workloads.workloads()
    if name in known:
        return known[name]
    model, _, size = name.rpartition(" ")
    if model == "matmul":
        return workloads.Workload(name, name, lambda: workloads.normal((int(size), int(size))), kind="gemm")
    return workloads.Workload(name, model, lambda: workloads.normal((int(size[2:]), 3, 224, 224)))


def measure(name: str, engines: Sequence[str], rounds: int, seconds: float) -> Row:
    """One workload on the device."""
    import torch

    from tests.benchmarks import torch_models

    spec = workload(name)
    if spec.model not in workloads.MODELS:  # a product of another size
        size = int(spec.model.split()[-1])
        workloads.MODELS[spec.model] = lambda: workloads.models.Matmul(size)
        torch_models.MODELS[spec.model] = lambda: torch_models.Matmul(size)
    row = Row(name, torch.cuda.get_device_name())
    inputs = spec.inputs()
    state = {n: np.asarray(a, order="C") for n, a in workloads.weights(spec.model).items()}
    model = workloads.MODELS[spec.model]().eval()
    model.load_state_dict(state)
    peer = torch_models.load(spec.model, state).cuda()
    given = [torch.from_numpy(a).cuda() for a in inputs.values()]
    start = time.perf_counter()
    compiled = fx.compile(model, **spec.types(inputs), backend="cuda")
    row.build = time.perf_counter() - start
    graphed = torch.compile(peer, mode="reduce-overhead")

    def of_torch(run: Callable[..., Any], tf32: bool = False) -> Callable[[], Any]:
        def call() -> Any:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            with torch.inference_mode():
                result = run(*given)
                torch.cuda.synchronize()
                return result

        return call

    known = {
        "fxlite": lambda: compiled.on_device(*given),
        "torch": of_torch(peer),
        "torch compiled": of_torch(graphed),
        "torch TF32": of_torch(peer, True),
    }
    calls = {engine: known[engine] for engine in engines}
    expected = _leaves(known["torch"]())
    for engine in list(calls):
        try:
            for _ in range(3):
                found = _leaves(calls[engine]())
            least = 50 if engine == "torch TF32" else 80
            for a, b in zip(expected, found, strict=True):
                agreement = compared(a, b, sqnr(least))
                if not agreement.agrees:
                    raise ValueError(f"wrong result: {agreement}")
        except Exception as error:  # an engine's own, of any kind
            row.failed[engine] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
            del calls[engine]
    blocks = {engine: lambda call=call: block(call, seconds) for engine, call in calls.items()}
    timed = compare(blocks, 16, rounds, rounds)
    row.seconds = {engine: timed.seconds(engine) for engine in calls}
    if "fxlite" in calls:
        row.ratios = {e: 1 / timed.speedup("fxlite", e) for e in calls if e != "fxlite"}
        _launches(row, compiled.function)
    return row


def _leaves(result: Any) -> list[np.ndarray[Any, Any]]:
    parts = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(p.cpu() if hasattr(p, "cpu") else p) for p in parts]


def _launches(row: Row, runner: Any) -> None:
    """The launches of the last call by CUDA events: all as recorded, and one by one."""
    from cuda.bindings import driver

    memory = next(reversed(runner._kept.values()))
    stream = runner.launcher._stream.handle

    def timed(run: Callable[[], None], times: int = 5) -> float:
        found = []
        for _ in range(times):
            _, start = driver.cuEventCreate(0)
            _, end = driver.cuEventCreate(0)
            driver.cuEventRecord(start, stream)
            run()
            driver.cuEventRecord(end, stream)
            driver.cuEventSynchronize(end)
            found.append(driver.cuEventElapsedTime(start, end)[1] / 1e3)
        return statistics.median(found)

    launches = runner.program.launches
    row.launches, row.count = timed(memory.run, 20), len(launches)
    each = {one.kernel: timed(runner.launcher.record(partial(runner._launch, memory, [one]))) for one in launches}
    slowest = sorted(each, key=each.__getitem__, reverse=True)[:LISTED]
    row.kernels = {kernel: each[kernel] for kernel in slowest}


# -- the page --------------------------------------------------------------------------------------
def page(rows: Sequence[Row], facts: str) -> str:
    """Markdown."""
    ratios = [r for row in rows if (r := row.ratio) is not None]
    losses = sum(r > 1 for r in ratios)
    mean = math.exp(statistics.fmean(map(math.log, ratios))) if ratios else float("nan")
    columns = ["workload", *(f"{e} ms" for e in ENGINES), "/ best float32", "launches ms", "launches", "build s"]
    _, _, how = (__doc__ or "").partition("\n\n")[2].partition("\n\n")
    unmeasured = [name for name in NAMES if name not in {row.workload for row in rows}]
    lines = ["# Inference on a GPU: fxlite beside torch", "", facts, ""]
    lines += [
        f"- Geometric mean of fxlite's time by that of the faster of torch and compiled torch, in float32: "
        f"{mean:.2f} over {len(ratios)} workloads, {losses} above 1.",
        *([f"- Not measured in this run: {', '.join(unmeasured)}."] if unmeasured else []),
        "",
        how.strip().replace("``", "`"),
        "",
        "| " + " | ".join(columns) + " |",
        "|---|" + "--:|" * (len(columns) - 1),
    ]
    for row in rows:
        times = [milliseconds(row.seconds[e]) if e in row.seconds else "–" for e in ENGINES]
        ratio = "–" if row.ratio is None else f"{row.ratio:.2f}"
        cells = [row.workload, *times, ratio, milliseconds(row.launches), str(row.count), f"{row.build:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "The kernels that take longest, each launched alone:", ""]
    for row in rows:
        listed = ", ".join(f"`{name}` {1e6 * s:.0f} µs" for name, s in row.kernels.items())
        lines.append(f"- {row.workload}: {listed}")
    lines += [f"- {row.workload}, {engine}: {why}" for row in rows for engine, why in row.failed.items()]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cuda", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES, help="workloads (default: all)")
    parser.add_argument("--engines", default=",".join(ENGINES), help="which of them are measured, with commas between")
    parser.add_argument("--rounds", type=int, default=5, help="turns of the engines")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn")
    parser.add_argument("--save", type=Path, help="JSON lines of what was measured, written after each workload")
    parser.add_argument("--load", type=Path, help="make the page of these, and measure nothing")
    parser.add_argument("--output", type=Path, help="the page, in Markdown")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if options.load:
        head, *kept = options.load.read_text(encoding="utf-8").splitlines()
        facts, rows = json.loads(head), [Row(**json.loads(line)) for line in kept]
    else:
        facts, rows = _facts(), []
        if options.save is not None:
            options.save.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        for name in options.names:
            rows.append(measure(name, options.engines.split(","), options.rounds, options.seconds))
            print(json.dumps(asdict(rows[-1])), flush=True)
            if options.save is not None:
                with options.save.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(rows[-1])) + "\n")
    text = page(rows, facts)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    return rows


def _facts() -> str:
    import torch

    device = torch.cuda.get_device_properties(0)
    about = f"{device.name}, {device.multi_processor_count} multiprocessors, {device.total_memory >> 30} GiB"
    return f"{about}; CUDA {torch.version.cuda}. {versions('torch', 'numpy')}. {datetime.date.today()}."


if __name__ == "__main__":
    main()
