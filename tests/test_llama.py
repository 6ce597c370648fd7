"""The language model of tutorials/llama.py: tokens come out the same way in every back end."""

from __future__ import annotations

import numpy as np

import fxlite as fx
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
