"""The language model of tutorials/chat.py: checkpoints and tokens are those of llama2.c, and every way of running
it writes the same."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tests.benchmarks.llama import write_checkpoint
from tutorials import chat

SHAPE = chat.Shape(32, 48, 2, 4, 2, 300, 24)
NUMBERS = np.float32(0.8), np.float32(0.4)


def test_every_way_of_running_it_agrees() -> None:
    """A prompt, and what follows it."""

    def model() -> chat.Llama:
        fx.nn.init.manual_seed(3)
        return chat.Llama(SHAPE).eval()

    def tokens(run: Any) -> list[int]:
        found = [int(run(np.array([5, 6, 7]), *NUMBERS))]
        for _ in range(8):
            found.append(int(run(np.array(found[-1:]), *NUMBERS)))
        return found

    types = "i64[T]", "f32[]", "f32[]"
    expected = tokens(model())
    assert len(set(expected)) > 3
    assert tokens(fx.symbolic_trace(model(), *types)) == expected
    for backend in ("python", "c"):
        assert tokens(fx.compile(model(), *types, backend=backend)) == expected


def test_a_checkpoint_is_read(tmp_path: Path) -> None:
    model = chat.Llama(SHAPE).eval()
    write_checkpoint(model, tmp_path / "model.bin")
    found = chat.load(tmp_path / "model.bin")
    assert found.shape == SHAPE
    for (name, one), (_, other) in zip(found.named_parameters(), model.named_parameters(), strict=True):
        np.testing.assert_array_equal(one, other, name)
    data = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "short.bin").write_bytes(data[:-4])
    with pytest.raises(ValueError, match=r"short\.bin ends early: .*2 layers of 32"):
        chat.load(tmp_path / "short.bin")
    # without output weights of its own
    numbers = SHAPE.width * SHAPE.vocabulary * 4
    (tmp_path / "tied.bin").write_bytes(data[:20] + struct.pack("<i", SHAPE.vocabulary) + data[24:-numbers])
    tied = chat.load(tmp_path / "tied.bin")
    np.testing.assert_array_equal(tied.output.weight, model.tok_embeddings.weight)


def test_texts_are_joined_pairs(tmp_path: Path) -> None:
    pieces = [(0.0, b"<unk>"), (0.0, b"<s>"), (0.0, b"</s>"), *((0.0, b"<0x%02X>" % n) for n in range(256))]
    pieces += [(-3.0, b"ca"), (-1.0, b"at"), (-2.0, b" c"), (-4.0, b" cat")]
    data = struct.pack("<i", 6) + b"".join(struct.pack("<fi", score, len(text)) + text for score, text in pieces)
    (tmp_path / "tokenizer.bin").write_bytes(data)
    tokenizer = chat.Tokenizer(tmp_path / "tokenizer.bin", len(pieces))
    assert [tokenizer.pieces[n] for n in tokenizer.encode("cat")] == [b" cat"]
    assert [tokenizer.pieces[n] for n in tokenizer.encode("cé")] == [b" c", b"\xc3", b"\xa9"]
    assert chat.Tokenizer().encode("é") == [0xC3 + 3, 0xA9 + 3]


def test_it_goes_on_until_the_cache_is_full() -> None:
    written: list[bytes] = []
    shape = replace(SHAPE, vocabulary=259)
    compiled = fx.compile(chat.Llama(shape).eval(), "i64[T]", "f32[]", "f32[]", backend="c")
    chat.chat(compiled, chat.Tokenizer(), ["abc", "de", "f"], written.append, length=9)
    text = b"".join(written)
    assert text.endswith(b"\n(the cache is full)\n") and len(written) > 12
