"""A language model that goes on with what is typed: its cache of keys and values is its state.

    python tutorials/chat.py stories15M.bin tokenizer.bin
    fxlite compile tutorials/chat.py:traced --backend c -o out/chat

The files are a checkpoint and a tokenizer of llama2.c (github.com/karpathy/llama2.c), whose stories were
trained on TinyStories; without them the model has random weights, and writes nonsense in single bytes.

In: ``tokens: i64[T]``, the new ones; ``temperature: f32`` (0: always the likeliest token); ``coin: f32``, a random
number from 0 to 1. Out: the next token. The structure is that of Touvron et al. 2023, arXiv:2307.09288.
"""

from __future__ import annotations

import itertools
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; ``length`` is the number of tokens that its cache holds."""

    width: int = 64
    hidden: int = 172
    layers: int = 5
    heads: int = 8
    kv_heads: int = 4
    vocabulary: int = 259
    length: int = 512

    @property
    def size(self):
        return self.width // self.heads


def rotate(x, cos, sin):
    """Turn the pairs ``(x[2*i], x[2*i + 1])`` of each head by an angle (Su et al. 2021)."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    return np.stack([left * cos - right * sin, left * sin + right * cos], axis=-1).reshape(x.shape)


class Attention(nn.Module):
    """Attention to all tokens so far, in which several heads of queries share one of keys and values."""

    def __init__(self, shape):
        super().__init__()
        self.shape, rows = shape, (shape.length, shape.kv_heads, shape.size)
        self.wq = nn.Linear(shape.width, shape.heads * shape.size, bias=False)
        self.wk = nn.Linear(shape.width, shape.kv_heads * shape.size, bias=False)
        self.wv = nn.Linear(shape.width, shape.kv_heads * shape.size, bias=False)
        self.wo = nn.Linear(shape.heads * shape.size, shape.width, bias=False)
        self.register_buffer("keys", np.zeros(rows, np.float32), persistent=False)
        self.register_buffer("values", np.zeros(rows, np.float32), persistent=False)

    def forward(self, x, cos, sin, start):
        T, (heads, shared, size) = x.shape[0], (self.shape.heads, self.shape.kv_heads, self.shape.size)
        end = start + T
        self.keys[start:end] = rotate(self.wk(x).reshape(T, shared, size), cos, sin)
        self.values[start:end] = self.wv(x).reshape(T, shared, size)
        keys, values = self.keys[:end], self.values[:end]
        q = rotate(self.wq(x).reshape(T, heads, size), cos, sin)
        q = q.reshape(T, shared, heads // shared, size).transpose(1, 2, 0, 3)
        scores = q @ keys.transpose(1, 2, 0)[:, None] / np.sqrt(np.float32(size))
        seen = np.arange(self.shape.length)[:end] <= np.arange(T)[:, None] + start  # no token sees those after it
        shares = F.softmax(np.where(seen, scores, np.float32(-np.inf)), -1)
        mixed = shares @ values.transpose(1, 0, 2)[:, None]
        return self.wo(mixed.transpose(2, 0, 1, 3).reshape(T, heads * size))


class FeedForward(nn.Module):
    """``w2(silu(w1(x)) * w3(x))`` (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, shape):
        super().__init__()
        self.w1 = nn.Linear(shape.width, shape.hidden, bias=False)
        self.w2 = nn.Linear(shape.hidden, shape.width, bias=False)
        self.w3 = nn.Linear(shape.width, shape.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.feed_forward = FeedForward(shape)

    def forward(self, x, cos, sin, start):
        x = x + self.attention(self.attention_norm(x), cos, sin, start)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, shape=Shape()):
        super().__init__()
        self.shape = shape
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        speeds = 10000.0 ** (-np.arange(0, shape.size, 2) / shape.size)
        self.register_buffer("speeds", speeds.astype(np.float32), persistent=False)
        self.register_buffer("position", np.zeros((), np.int64), persistent=False)

    def logits(self, tokens):
        """Those of the token after the last one."""
        start = self.position.copy()
        angles = (np.arange(tokens.shape[0]) + start).astype(np.float32)[:, None, None] * self.speeds
        cos, sin = np.cos(angles), np.sin(angles)
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, start)
        self.position += tokens.shape[0]
        return self.output(self.norm(x[-1:]))[0]

    def forward(self, tokens, temperature, coin):
        logits = self.logits(tokens)
        # the first token at which the sum of the chances exceeds the coin
        sums = np.cumsum(F.softmax(logits / np.maximum(temperature, np.float32(1e-4)), -1))
        return np.where(temperature > 0, np.argmax(sums > coin), np.argmax(logits))


def traced(seed=0):
    """The traced model, with random weights."""
    nn.init.manual_seed(seed)
    return fx.symbolic_trace(Llama().eval(), "i64[T]", "f32[]", "f32[]")


# -- files of llama2.c -----------------------------------------------------------------------------
def weights_in_order(model):
    """The weights in the order in which a checkpoint has them; None where it has what is not read here."""
    layers = [dict(layer.named_parameters()) for layer in model.layers]
    yield model.tok_embeddings.weight
    for name in ("attention_norm", "attention.wq", "attention.wk", "attention.wv", "attention.wo"):
        yield from (layer[f"{name}.weight"] for layer in layers)
    for name in ("ffn_norm", "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"):
        yield from (layer[f"{name}.weight"] for layer in layers)
    yield model.norm.weight
    yield None  # the tables of angles
    yield model.output.weight


def load(path):
    """The model of a checkpoint: 7 numbers of 32 bits, and float32 weights. Raises ValueError if it ends early."""
    data = Path(path).read_bytes()
    width, hidden, layers, heads, kv_heads, vocabulary, length = struct.unpack_from("<7i", data)
    model = Llama(Shape(width, hidden, layers, heads, kv_heads, abs(vocabulary), length)).eval()
    numbers, start = np.frombuffer(data, np.float32, offset=28), 0
    for weight in weights_in_order(model):
        if weight is None:
            start += length * model.shape.size
            if vocabulary > 0:  # what follows is not there: the embeddings serve as output weights, too
                numbers, start = np.asarray(model.tok_embeddings.weight).ravel(), 0
            continue
        if start + weight.size > numbers.size:
            raise ValueError(f"{path} ends early: it is no checkpoint of llama2.c with {layers} layers of {width}")
        weight[...] = numbers[start : start + weight.size].reshape(weight.shape)
        start += weight.size
    return model


class Tokenizer:
    """Byte-pair encoding (Sennrich et al. 2016): of a text, the pair of pieces with the best score is joined first.
    The first 259 pieces are three marks, of which 1 begins and 2 ends a text, and the single bytes."""

    def __init__(self, path=None, count=259):
        self.pieces = [b"", b"", b"", *(bytes([n]) for n in range(256))]
        self.scores = [0.0] * 259
        data = Path(path).read_bytes() if path else b""
        at = 4  # behind the length of the longest piece
        for number in range(count if path else 0):
            score, size = struct.unpack_from("<fi", data, at)
            if number >= 259:
                self.pieces.append(data[at + 8 : at + 8 + size])
                self.scores.append(score)
            at += 8 + size
        self.numbers = {piece: number for number, piece in reversed(list(enumerate(self.pieces))) if piece}

    def encode(self, text):
        """The tokens of a text."""
        data = (" " + text).encode() if len(self.pieces) > 259 else text.encode()
        found = [self.numbers.get(bytes([byte]), byte + 3) for byte in data]
        while True:
            joined = [self.numbers.get(self.pieces[a] + self.pieces[b]) for a, b in itertools.pairwise(found)]
            places = [place for place, number in enumerate(joined) if number is not None and number >= 259]
            if not places:
                return found
            best = max(places, key=lambda place: self.scores[joined[place]])
            found[best : best + 2] = [joined[best]]


def chat(model, tokenizer, lines, write, length=200, temperature=0.8, seed=0):
    """Go on with each line, up to the end of the text, or ``length`` tokens."""
    rng, room = np.random.default_rng(seed), model.graph_module.get_buffer("layers.0.attention.keys").shape[0]
    used = 0
    for line in lines:
        tokens = [1, *tokenizer.encode(line.strip())]
        for _ in range(length):
            used += len(tokens)
            if used > room:
                write(b"\n(the cache is full)\n")
                return
            token = int(model(np.array(tokens), np.float32(temperature), np.float32(rng.random())))
            if token in (1, 2):
                break
            write(tokenizer.pieces[token])
            tokens = [token]
        write(b"\n")


def main(arguments):
    if len(arguments) == 2:
        model = load(arguments[0])
        tokenizer = Tokenizer(arguments[1], model.shape.vocabulary)
    else:
        model, tokenizer = Llama().eval(), Tokenizer()
    compiled = fx.compile(model, "i64[T]", "f32[]", "f32[]", backend="c")

    def write(piece):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()

    chat(compiled, tokenizer, sys.stdin, write)


if __name__ == "__main__":
    main(sys.argv[1:])
