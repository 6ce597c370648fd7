"""The language model of tutorials/llama.py: tokens come out the same way in every back end, and its
sources are as long as what people write."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import fxlite as fx
from tests.codegen.compiling import make_test
from tests.oracle import agree
from tutorials import llama


def test_every_way_of_running_it_agrees() -> None:
    module = llama.traced()
    rng = np.random.default_rng(0)
    shape = (3, llama.KV_HEADS, llama.SIZE)
    cache = [
        (rng.standard_normal(shape, dtype=np.float32), rng.standard_normal(shape, dtype=np.float32))
        for _ in range(llama.LAYERS)
    ]
    flat = [array for pair in cache for array in pair]

    def program(tokens, *rest):
        pairs = list(zip(rest[:-2:2], rest[1:-2:2]))
        return module(tokens, pairs, *rest[-2:])

    agree(program, np.array([5, 6]), *flat, np.float32(0.8), np.float32(0.4))


def test_generated_tokens_are_those_of_numpy() -> None:
    module = llama.traced()
    fx.nn.init.manual_seed(0)
    expected = llama.generate(llama.Llama().eval(), [1, 2, 3], 6)
    assert len(set(expected)) > 3
    assert llama.generate(module, [1, 2, 3], 6) == expected
    assert llama.generate(fx.compile(module, backend="c"), [1, 2, 3], 6) == expected


def test_python_has_its_classes_and_layers() -> None:
    source = llama.traced().source()
    assert re.findall(r"^class (\w+)", source, re.M) == ["Attention", "FeedForward", "Block", "Llama"]
    assert "self.layers = nn.ModuleList([Block() for _ in range(5)])" in source
    assert source.count("nn.Linear(") == 8 and "ops.slice" not in source
    assert "for layer, (keys, values) in zip(self.layers, cache, strict=True):" in source
    assert len(source.splitlines()) < 130


def test_c_reads_like_the_model(tmp_path: Path) -> None:
    """The weights as structs, a loop over the layers, and fewer lines than the 973 of llama2.c's
    `run.c`: at most 600 without what multiplies tiles."""
    compiled = fx.compile(llama.traced(), backend="c")
    compiled.save(tmp_path)
    text = (tmp_path / "llama.c").read_text()
    assert re.search(r"struct llama_block \{[^}]*\} layers\[5\];", text)
    run = text[text.rindex("\nint llama_run(") :]
    loop = "for (int layer = 0; layer < 5; ++layer)\n        llama_block_run(&w.layers[layer], &s,"
    assert loop in run and len(run.splitlines()) < 60
    functions = re.split(r"\n(?=/\* )", text)
    tiled = [f for f in functions if re.search(r"multiply_(tile|next)_|_tile\(rows", f)]
    assert len(tiled) == 10
    assert sum(len(f.splitlines()) for f in functions if f not in tiled) <= 600
    done = make_test(tmp_path, "CFLAGS=-O1")
    assert done.returncode == 0, done.stdout + done.stderr
