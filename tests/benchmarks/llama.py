"""Language models beside llama2.c and llama.cpp: tokens a second, for a prompt and after it.

    git clone https://github.com/karpathy/llama2.c
    python -m tests.benchmarks.llama --llama2c llama2.c --output docs/benchmarks_llama.md

The model is that of tutorials/chat.py, with the shapes of llama2.c's 15M and 110M and random weights. All engines get
the same weights, and take turns, each in a process that is pinned to as many cores as it has threads. A round is
the prompt, or the likeliest tokens one by one from the first position on; the table has medians. llama.cpp is the
package llama-cpp-python, its files are written with the package gguf.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import os
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from fxlite.codegen.runtime.toolchain import march_flag
from fxlite.passes import quantize as q
from tests.benchmarks.machine import choose_cores, foreign_load, machine, paragraphs, versions
from tutorials import chat

SHAPES = {"15M": chat.Shape(288, 768, 6, 6, 6, 32000, 256), "110M": chat.Shape(768, 2048, 12, 12, 12, 32000, 1024)}
PROMPT = 128
PACKAGES = ("llama-cpp-python", "numpy")


class Greedy(chat.Llama):
    def forward(self, tokens: Any) -> Any:
        return np.argmax(self.logits(tokens))


def model_of(shape: chat.Shape) -> Greedy:
    nn.init.manual_seed(0)
    return Greedy(shape).eval()


@dataclass(frozen=True)
class Task:
    """What an engine needs: files of the model by name, and the number of threads."""

    shape: chat.Shape
    files: dict[str, str]
    threads: int


#: What an engine makes of a task: (reset, tokens -> the next one).
Made = tuple[Callable[[], None], Callable[[np.ndarray], int]]


# -- engines ---------------------------------------------------------------------------------------
def _fxlite(scheme: str | None, task: Task) -> Made:
    """Two functions, for a prompt of any length and for one token; a round calls one of them."""
    module = fx.symbolic_trace(model_of(task.shape), "i64[T]")
    one = fx.symbolic_trace(model_of(task.shape), "i64[1]")
    if scheme is not None:
        mapping = q.QConfigMapping().set_global(scheme)
        module, one = (q.convert(q.prepare(each, mapping)) for each in (module, one))
    functions = [fx.compile(each, backend="c", threads=task.threads) for each in (module, one)]
    positions = [function.graph_module.get_buffer("position") for function in functions]

    def reset() -> None:
        for position in positions:
            position[...] = 0

    return reset, lambda tokens: int(functions[tokens.size == 1](tokens))


#: C that runs llama2.c's model, whose file it includes without its main function.
_DRIVER = """
#define TESTING
#include "{source}"
static Transformer transformer;
static int position;
void reset(void) {{ position = 0; }}
void open_model(char *path) {{ build_transformer(&transformer, path); }}
int next(const long long *tokens, int count) {{
    float *logits = 0;
    for (int i = 0; i < count; i++) logits = forward(&transformer, (int)tokens[i], position++);
    int best = 0;
    for (int i = 1; i < transformer.config.vocab_size; i++) if (logits[i] > logits[best]) best = i;
    return best;
}}
"""


def _llama2c(source: str, model: str, task: Task) -> Made:
    folder = Path(task.files[model]).parent
    text, library = folder / f"{source}_driver.c", folder / f"{source}.so"
    text.write_text(_DRIVER.format(source=Path(task.files["llama2.c"], source).resolve()))
    flags = ["-Ofast", "-fopenmp", march_flag(), "-shared", "-fPIC", "-w"]
    subprocess.run(["gcc", *flags, str(text), "-o", str(library), "-lm"], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.open_model(str(task.files[model]).encode())
    pointer = ctypes.POINTER(ctypes.c_longlong)
    return loaded.reset, lambda tokens: int(loaded.next(tokens.ctypes.data_as(pointer), tokens.size))


def _llama_cpp(model: str, task: Task) -> Made:
    import llama_cpp  # type: ignore[import-not-found]

    opened = llama_cpp.Llama(
        task.files[model],
        n_ctx=task.shape.length,
        n_batch=PROMPT,
        n_threads=task.threads,
        n_threads_batch=task.threads,
        verbose=False,
    )
    count = task.shape.vocabulary

    def reset() -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(opened.ctx), True)

    def following(tokens: np.ndarray) -> int:
        given = (ctypes.c_int32 * tokens.size)(*tokens.tolist())
        failed = llama_cpp.llama_decode(opened.ctx, llama_cpp.llama_batch_get_one(given, tokens.size))
        if failed:
            raise RuntimeError(f"llama_decode gives {failed}")
        logits = llama_cpp.llama_get_logits_ith(opened.ctx, -1)
        return int(np.ctypeslib.as_array(logits, (count,)).argmax())

    return reset, following


ENGINES: dict[str, Callable[[Task], Made]] = {
    "fxlite f32": lambda task: _fxlite(None, task),
    "fxlite int8 weights": lambda task: _fxlite("weight_only_int8", task),
    "fxlite int8 dynamic": lambda task: _fxlite("dynamic_int8", task),
    "fxlite int4 weights": lambda task: _fxlite("weight_only_int4", task),
    "run.c": lambda task: _llama2c("run.c", "model.bin", task),
    "runq.c": lambda task: _llama2c("runq.c", "model_q.bin", task),
    "llama.cpp f32": lambda task: _llama_cpp("F32.gguf", task),
    "llama.cpp q8_0": lambda task: _llama_cpp("Q8_0.gguf", task),
    "llama.cpp q4_0": lambda task: _llama_cpp("Q4_0.gguf", task),
}
#: What each of ours is compared with.
PEERS = {
    "fxlite f32": ("run.c", "llama.cpp f32"),
    "fxlite int8 weights": ("runq.c", "llama.cpp q8_0"),
    "fxlite int8 dynamic": ("runq.c", "llama.cpp q8_0"),
    "fxlite int4 weights": ("llama.cpp q4_0",),
}


# -- files -----------------------------------------------------------------------------------------
def write_files(shape: chat.Shape, folder: Path, llama2c: str, engines: Iterable[str]) -> dict[str, str]:
    """The model in the formats that the engines read."""
    model = model_of(shape)
    files = {name: str(folder / name) for name in ("model.bin", "model_q.bin")} | {"llama2.c": llama2c}
    write_checkpoint(model, folder / "model.bin")
    write_integers(model, folder / "model_q.bin")
    for kind in ("F32", "Q8_0", "Q4_0"):
        if f"llama.cpp {kind.lower()}" in engines:
            files[f"{kind}.gguf"] = str(folder / f"{kind}.gguf")
            write_gguf(model, folder / f"{kind}.gguf", kind)
    return files


def _sizes(shape: chat.Shape) -> tuple[int, ...]:
    return shape.width, shape.hidden, shape.layers, shape.heads, shape.kv_heads


def write_checkpoint(model: chat.Llama, path: Path) -> None:
    """What run.c reads; a negative number of words says that the output has weights of its own."""
    shape = model.shape
    with path.open("wb") as file:
        file.write(struct.pack("<7i", *_sizes(shape), -shape.vocabulary, shape.length))
        for weight in chat.weights_in_order(model):
            array = np.zeros(shape.length * shape.size) if weight is None else np.asarray(weight)
            file.write(array.astype(np.float32).tobytes())


def write_integers(model: chat.Llama, path: Path) -> None:
    """What runq.c reads, its version 2: norms in float32, matrices in groups of int8 with a scale each."""
    shape, group = model.shape, 64
    while shape.width % group:
        group //= 2
    weights = [np.asarray(w) for w in chat.weights_in_order(model) if w is not None]
    with path.open("wb") as file:
        head = struct.pack("<Ii7iBi", 0x616B3432, 2, *_sizes(shape), shape.vocabulary, shape.length, 0, group)
        file.write(head.ljust(256, b"\0"))
        for weight in weights:
            if weight.ndim == 1:
                file.write(weight.astype(np.float32).tobytes())
        for weight in weights:
            if weight.ndim == 2:
                rows = weight.reshape(-1, group)
                scales = np.abs(rows).max(1, keepdims=True) / np.float32(127)
                file.write(np.round(rows / scales).astype(np.int8).tobytes() + scales.astype(np.float32).tobytes())


#: llama.cpp's names of what a layer has.
_NAMES = {
    "attention_norm": "attn_norm",
    "attention.wq": "attn_q",
    "attention.wk": "attn_k",
    "attention.wv": "attn_v",
    "attention.wo": "attn_output",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
}


def write_gguf(model: chat.Llama, path: Path, kind: str) -> None:
    """What llama.cpp reads, with all matrices of one kind."""
    import gguf  # type: ignore[import-not-found]

    shape, wanted = model.shape, gguf.GGMLQuantizationType[kind]
    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(shape.length)
    file.add_embedding_length(shape.width)
    file.add_feed_forward_length(shape.hidden)
    file.add_block_count(shape.layers)
    file.add_head_count(shape.heads)
    file.add_head_count_kv(shape.kv_heads)
    file.add_rope_dimension_count(shape.size)
    file.add_rope_freq_base(10000.0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(shape.vocabulary)
    file.add_tokenizer_model("no_vocab")
    named = {"token_embd": model.tok_embeddings.weight, "output_norm": model.norm.weight, "output": model.output.weight}
    for number, layer in enumerate(model.layers):
        parameters = dict(layer.named_parameters())
        named |= {f"blk.{number}.{name}": parameters[f"{own}.weight"] for own, name in _NAMES.items()}
    for name, weight in named.items():
        array = np.asarray(weight, np.float32)
        stored = wanted if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        file.add_tensor(f"{name}.weight", gguf.quants.quantize(array, stored), raw_dtype=stored)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


# -- processes -------------------------------------------------------------------------------------
def _serve(engine: str, task: Task, cores: list[int], pipe: Any) -> None:
    """Answer ``("prompt" or "tokens", count)`` with seconds and the tokens that came out."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    try:
        reset, following = ENGINES[engine](task)
        pipe.send(None)
        while (asked := pipe.recv()) is not None:
            kind, count = asked
            reset()
            start, found = time.perf_counter(), []
            if kind == "prompt":
                found.append(following(np.arange(1, count + 1)))
            else:
                for _ in range(count):
                    found.append(following(np.array([found[-1] if found else 1])))
            pipe.send((time.perf_counter() - start, found))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


@dataclass
class Row:
    """An engine's tokens a second, of each round."""

    shape: str
    threads: int
    engine: str
    prompt: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    found: list[int] = field(default_factory=list)
    failed: str = ""

    def speed(self, kind: str) -> float:
        return statistics.median(getattr(self, kind) or [float("nan")])


def measure(name: str, shape: chat.Shape, threads: int, options: argparse.Namespace) -> list[Row]:
    """The rows of one shape."""
    engines = options.engines
    rows, pipes = [Row(name, threads, engine) for engine in engines], []
    cores, context = choose_cores(threads), get_context("spawn")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(shape, Path(folder), options.llama2c, engines)
        for row in rows:
            pipe, other = context.Pipe()
            context.Process(
                target=_serve, args=(row.engine, Task(shape, files, threads), cores, other), daemon=True
            ).start()
            other.close()
            row.failed = _answer(pipe) or ""
            pipes.append(pipe)
        for turn in range(options.rounds + 1):
            for place in range(len(rows)):
                row, pipe = ((each[(turn + place) % len(rows)]) for each in (rows, pipes))
                for kind, count in (("prompt", PROMPT), ("tokens", options.tokens)):
                    if row.failed:
                        continue
                    pipe.send((kind, count))
                    answer = _answer(pipe)
                    if isinstance(answer, str):
                        row.failed = answer
                    elif turn:  # the first round is not counted
                        getattr(row, kind).append(count / answer[0])
                    elif kind == "tokens":
                        row.found = answer[1]
        for row, pipe in zip(rows, pipes, strict=True):
            if not row.failed:
                pipe.send(None)
    return rows


def _answer(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return "the process ended"


# -- the page --------------------------------------------------------------------------------------
def markdown(rows: Sequence[Row], options: argparse.Namespace, load: float) -> str:
    """docs/benchmarks_llama.md."""
    lines = paragraphs(
        "# Benchmarks: language models token by token",
        "fxlite's C of `tutorials/chat.py` beside llama2.c and llama.cpp: tokens a second, of "
        f"a prompt of {PROMPT} tokens and of {options.tokens} single ones after the first position. The cache of keys "
        "and values is the model's state, of which a step reads what is filled. *Faster* is fxlite's speed by that of "
        "a peer with weights of the same number of bits: above 1, fxlite is faster.",
        f"{machine()}; {datetime.date.today()}; {versions(*PACKAGES)}; llama2.c with -Ofast -fopenmp {march_flag()}.",
    )
    head = ["| model | threads | engine | prompt | tokens | faster (prompt) | faster (tokens) | same tokens |"]
    head.append("| --- | ---: | --- | ---: | ---: | --- | --- | ---: |")
    lines += [*head, *map(_line(rows), rows), ""]
    lines += paragraphs(
        "*Same tokens* counts those that equal fxlite's in float32 before the first other one; 8 and 4 bits round, and "
        "two likely tokens may change places. llama2.c reads a prompt token by token.",
        f"Medians of {options.rounds} rounds, in which the engines took turns; other programs used {load:.2f} cores at "
        "the start. "
        "Made by `python -m tests.benchmarks.llama --llama2c FOLDER --output docs/benchmarks_llama.md`.",
    )
    return "\n".join(lines)


def _line(rows: Sequence[Row]) -> Callable[[Row], str]:
    by_name = {(row.shape, row.threads, row.engine): row for row in rows}

    def line(row: Row) -> str:
        if row.failed:
            return f"| {row.shape} | {row.threads} | {row.engine} | fails: {row.failed[:60]} |  |  |  |  |"
        cells = []
        for kind in ("prompt", "tokens"):
            peers = [by_name.get((row.shape, row.threads, peer)) for peer in PEERS.get(row.engine, ())]
            known = [peer for peer in peers if peer is not None and not peer.failed]
            cells.append(", ".join(f"{row.speed(kind) / peer.speed(kind):.2f} {peer.engine}" for peer in known))
        own = by_name.get((row.shape, row.threads, "fxlite f32"))
        pairs = list(zip(row.found, own.found if own else []))
        same = next((number for number, (one, other) in enumerate(pairs) if one != other), len(pairs))
        speeds = f"{row.speed('prompt'):.0f} | {row.speed('tokens'):.0f}"
        return f"| {row.shape} | {row.threads} | {row.engine} | {speeds} | {cells[0]} | {cells[1]} | {same} |"

    return line


def main(arguments: list[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(prog="llama", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llama2c", default="", help="the folder with run.c and runq.c")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=[*SHAPES, "tiny"])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES), metavar="NAME")
    parser.add_argument("--threads", type=lambda text: [*map(int, text.split(","))], default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=255)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    load, rows = foreign_load(), list[Row]()
    shapes = SHAPES | {"tiny": chat.Shape(64, 96, 2, 4, 4, 320, 256)}
    for name in options.shapes:
        for threads in options.threads:
            rows += measure(name, shapes[name], threads, options)
            page = markdown(rows, options, load)
            if options.output:
                options.output.write_text(page, encoding="utf-8")
    print(page)
    return rows


if __name__ == "__main__":
    main()
