"""A language model of Llama's kind: rotary positions, grouped queries, a cache, and sampling.

In: ``tokens: i64[T]``, the new ones; ``cache``, the keys and values of the ``P`` tokens
before them, a pair ``f32[P,KV_HEADS,SIZE]`` for each layer; ``temperature: f32``; ``coin: f32``, a
random number from 0 to 1. Out: the next token, and the cache of ``P + T`` tokens. The sizes are
those of a toy, and its weights are random; the structure is that of Touvron et al. 2023,
arXiv:2307.09288.

    python tutorials/llama.py
    fxlite compile tutorials/llama.py:traced --backend c -o out/llama
"""

from __future__ import annotations

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS = 512, 64, 172, 5, 8, 4
SIZE = WIDTH // HEADS


def rotate(x, cos, sin):
    """Turn the pairs ``(x[i], x[i + SIZE / 2])`` of each head by an angle (Su et al. 2021)."""
    left, right = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


class Attention(nn.Module):
    """Attention in which several heads of queries share one of keys and values."""

    def __init__(self):
        super().__init__()
        self.wq = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.wk = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False)
        self.wv = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False)
        self.wo = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def forward(self, x, cos, sin, keys, values):
        T, P = x.shape[0], keys.shape[0]
        q = rotate(self.wq(x).reshape(T, HEADS, SIZE), cos, sin)
        k = rotate(self.wk(x).reshape(T, KV_HEADS, SIZE), cos, sin)
        v = self.wv(x).reshape(T, KV_HEADS, SIZE)
        keys, values = np.concatenate([keys, k]), np.concatenate([values, v])
        # queries [KV_HEADS, those that share its keys, T, SIZE], keys and values [KV_HEADS, 1, ...]
        q = q.reshape(T, KV_HEADS, HEADS // KV_HEADS, SIZE).transpose(1, 2, 0, 3)
        scores = q @ keys.transpose(1, 2, 0)[:, None] / np.sqrt(np.float32(SIZE))
        seen = ops.arange(P + T) <= ops.arange(T)[:, None] + P  # no token sees those after it
        shares = F.softmax(np.where(seen, scores, -np.inf), -1)
        mixed = shares @ values.transpose(1, 0, 2)[:, None]
        return self.wo(mixed.transpose(2, 0, 1, 3).reshape(T, WIDTH)), keys, values


class FeedForward(nn.Module):
    """``w2(silu(w1(x)) * w3(x))`` (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.attention = Attention()
        self.ffn_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.feed_forward = FeedForward()

    def forward(self, x, cos, sin, keys, values):
        mixed, keys, values = self.attention(self.attention_norm(x), cos, sin, keys, values)
        x = x + mixed
        return x + self.feed_forward(self.ffn_norm(x)), keys, values


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.output = nn.Linear(WIDTH, VOCABULARY, bias=False)
        speeds = 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE)
        self.register_buffer("speeds", speeds.astype(np.float32), persistent=False)

    def forward(self, tokens, cache, temperature, coin):
        positions = ops.arange(tokens.shape[0]) + cache[0][0].shape[0]
        angles = positions.astype(np.float32)[:, None, None] * self.speeds
        cos, sin = np.cos(angles), np.sin(angles)
        x = self.tok_embeddings(tokens)
        grown = []
        for layer, (keys, values) in zip(self.layers, cache):
            x, keys, values = layer(x, cos, sin, keys, values)
            grown.append((keys, values))
        logits = self.output(self.norm(x[-1:]))
        # the first token at which the sum of the chances exceeds the coin
        chances = F.softmax(logits / temperature, -1)
        return np.argmax(np.cumsum(chances, axis=-1) > coin, axis=-1)[0], grown


def empty_cache():
    """The cache before the first token."""
    nothing = np.zeros((0, KV_HEADS, SIZE), np.float32)
    return [(nothing, nothing)] * LAYERS


def traced(seed=0):
    """The traced model, with random weights."""
    nn.init.manual_seed(seed)
    pair = f"f32[P,{KV_HEADS},{SIZE}]", f"f32[P,{KV_HEADS},{SIZE}]"
    return fx.symbolic_trace(Llama().eval(), "i64[T]", [pair] * LAYERS, "f32[]", "f32[]")


def generate(model, prompt, length, temperature=1.0, seed=0):
    """``length`` tokens that follow those of ``prompt``."""
    coins = np.random.default_rng(seed).random(length, dtype=np.float32)
    tokens, cache, found = np.asarray(prompt), empty_cache(), []
    for coin in coins:
        token, cache = model(tokens, cache, np.float32(temperature), coin)
        tokens = np.reshape(token, 1)
        found.append(int(token))
    return found


if __name__ == "__main__":
    module = traced()
    print("graph:", *generate(module, [1, 2, 3], 12))
    print("C:    ", *generate(fx.compile(module, backend="c"), [1, 2, 3], 12))
