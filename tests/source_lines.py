"""How long regenerated Python is beside what a person wrote: ``python -m tests.source_lines``.

In: models of usual kinds. Out: a table of lines of code (without blanks, comments, docstrings,
imports and the method that reads the weights, which no model by hand has here): by hand, formatted
as ruff does; regenerated from the trace, optimized as the back end "python" is, after int8
quantization.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.program.program import optimize_source
from fxlite.passes import quantize as q
from tests import models


class TextClassifier(nn.Module):
    def __init__(self, words: int = 1000, classes: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 32)
        self.lstm = nn.LSTM(32, 48, num_layers=2, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(48, classes)

    def forward(self, tokens: Any) -> Any:
        _, (hidden, _) = self.lstm(self.embedding(tokens))
        return self.head(self.dropout(hidden[-1]))


class MixerLayer(nn.Module):
    def __init__(self, patches: int, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.tokens = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))

    def forward(self, x: Any) -> Any:
        y = self.norm1(x).transpose(0, 2, 1)
        x = x + self.tokens(y).transpose(0, 2, 1)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, layers: int = 6, channels: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, channels, 8, stride=8)
        self.layers = nn.ModuleList([MixerLayer(16, channels) for _ in range(layers)])
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Any) -> Any:
        x = self.patch(image)
        x = x.reshape(x.shape[0], x.shape[1], -1).transpose(0, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(axis=1))


class Attention(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(size, 3 * size)
        self.out = nn.Linear(size, size)

    def forward(self, x: Any) -> Any:
        B, T, D = x.shape
        q, k, v = np.split(self.qkv(x), 3, axis=-1)
        q = q.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        k = k.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        v = v.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(np.float32(D // self.heads))
        y = F.softmax(scores, -1) @ v
        return self.out(y.transpose(0, 2, 1, 3).reshape(B, T, D))


class VitBlock(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size)
        self.attention = Attention(size, heads)
        self.norm2 = nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Vit(nn.Module):
    def __init__(self, layers: int = 6, size: int = 32, classes: int = 10) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, size, 8, stride=8)
        self.token = nn.Parameter(np.zeros((1, 1, size), np.float32))
        self.positions = nn.Parameter(np.zeros((1, 17, size), np.float32))
        self.blocks = nn.ModuleList([VitBlock(size, 4) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, classes)

    def forward(self, image: Any) -> Any:
        x = self.patch(image)
        B, D = x.shape[:2]
        x = x.reshape(B, D, -1).transpose(0, 2, 1)
        x = np.concatenate([np.broadcast_to(self.token, (B, 1, D)), x], axis=1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class CachedBlock(nn.Module):
    """A block of a GPT that is given one token and keeps the keys and values of those before."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        B, T, D = x.shape
        q, k, v = np.split(self.qkv(self.norm1(x)), 3, axis=-1)
        q = q.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        k = k.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        v = v.reshape(B, T, self.heads, -1).transpose(0, 2, 1, 3)
        keys = np.concatenate([keys, k], axis=2)
        values = np.concatenate([values, v], axis=2)
        y = F.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(y.transpose(0, 2, 1, 3).reshape(B, T, D))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return x, keys, values


class CachedGpt(nn.Module):
    def __init__(self, layers: int = 6, words: int = 100, size: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size)
        self.blocks = nn.ModuleList([CachedBlock(size, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(size)
        self.head = nn.Linear(size, words, bias=False)

    def forward(self, token: Any, keys: Any, values: Any) -> Any:
        x = self.embedding(token)
        new_keys, new_values = [], []
        for i, block in enumerate(self.blocks):
            x, k, v = block(x, keys[i], values[i])
            new_keys.append(k)
            new_values.append(v)
        return self.head(self.norm(x)), np.stack(new_keys), np.stack(new_values)


#: Name -> (makes the model, types of its inputs, what was written for it)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...], tuple[Any, ...]]] = {
    "ResNet-18": (models.ResNet18, ("f32[B,3,64,64]",), (models.BasicBlock, models.ResNet18)),
    "U-Net": (models.UNet, ("f32[B,3,64,64]",), (models.double_conv, models.UNet)),
    "BERT": (models.Bert, ("i64[B,T]", "i64[B,T]"), (models.EncoderLayer, models.Bert)),
    "LSTM text classifier": (TextClassifier, ("i64[B,T]",), (TextClassifier,)),
    "two-way LSTM tagger": (models.Tagger, ("i64[B,T]",), (models.Tagger,)),
    "MLP-Mixer": (Mixer, ("f32[B,3,32,32]",), (MixerLayer, Mixer)),
    "ViT": (Vit, ("f32[B,3,32,32]",), (Attention, VitBlock, Vit)),
    "GPT with cache": (CachedGpt, ("i64[B,1]", *["f32[6,B,4,S,8]"] * 2), (CachedBlock, CachedGpt)),
    "GPT block": (models.GptBlock, ("f32[B,T,64]",), (models.GptBlock,)),
}


def code(source: str) -> list[str]:
    """Lines of code, without blanks, comments and docstrings."""
    text = re.sub(r'"""[\s\S]*?"""', "", source)
    lines = (line.partition("  #")[0].rstrip() for line in text.splitlines())
    return [line for line in lines if line and not line.strip().startswith("#")]


def lines_of(gm: fx.GraphModule, dialect: str = "fxlite") -> int:
    """Lines of the classes of a regenerated program, and of functions that the file has besides."""
    text = gm.source(dialect=dialect).partition("\n\n\n")[2]
    return len(code(re.sub(r"    @classmethod\n    def load\(.*?\n\n", "", text, flags=re.S)))


def functions_of(gm: fx.GraphModule, dialect: str) -> int:
    """Lines of functions that the file has for ops."""
    source = gm.source(dialect=dialect)
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    return sum(len(code(ast.get_source_segment(source, part) or "")) for part in functions)


def lines_by_hand(written: tuple[Any, ...]) -> int:
    text = "\n\n".join(inspect.getsource(part) for part in written)
    ruff, config = Path(sys.executable).with_name("ruff"), Path(__file__).parents[1]
    command = [str(ruff), "format", "--config", str(config / "pyproject.toml"), "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return len(code(done.stdout))


def traced(name: str) -> fx.GraphModule:
    make, types, _ = MODELS[name]
    return fx.symbolic_trace(make().eval(), *types)


def quantized(gm: fx.GraphModule) -> fx.GraphModule:
    """int8 weights, and int8 activations whose scales are computed while running."""
    inputs = tuple(make_cases(gm)[1].inputs.values())
    return q.quantize(gm, q.QConfigMapping().set_global(q.dynamic_int8()), [inputs])


def main() -> None:
    columns = ("model", "by hand", "regenerated", "ratio", "optimized", "int8")
    table = Table(*columns, "torch", "numpy", "numpy's functions")
    for name, (_, _, written) in MODELS.items():
        gm, by_hand = traced(name), lines_by_hand(written)
        fused = optimize_source(gm)
        numbers = [lines_of(gm), lines_of(fused), lines_of(quantized(fused))]
        ratio = f"{numbers[0] / by_hand:.2f}"
        others = [lines_of(gm, "torch"), lines_of(gm, "numpy"), functions_of(gm, "numpy")]
        others[1] -= others[2]
        table.add_row(name, str(by_hand), str(numbers[0]), ratio, *map(str, numbers[1:] + others))
    Console().print(table)


if __name__ == "__main__":
    main()
