"""Regenerated Python takes and gives what the program does, nested, and loops over it, in every
dialect."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.codegen.python.source import save_python
from fxlite.graph import pytree
from tests.oracle import compare

LAYERS = 4
f32 = np.float32


class Layer(nn.Module):
    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.qkv = nn.Linear(size, 3 * size)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        q, k, v = np.split(self.qkv(x), 3, axis=-1)
        keys, values = np.concatenate([keys, k]), np.concatenate([values, v])
        return x + F.softmax(q @ keys.T, -1) @ values, keys, values


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: Any, cache: Any) -> Any:
        grown = []
        for layer, (keys, values) in zip(self.layers, cache):
            x, keys, values = layer(x, keys, values)
            grown.append((keys, values))
        return x, grown


class ByNumber(Cached):
    def forward(self, x: Any, cache: Any) -> Any:
        grown = []
        for i, layer in enumerate(self.layers):
            keys, values = cache["layers"][i]
            x, keys, values = layer(x, keys, values)
            grown.append({"keys": keys, "values": values})
        return {"x": x, "cache": tuple(grown)}


class Output(NamedTuple):
    logits: Any
    hidden: Any


@dataclasses.dataclass
class Batch:
    ids: Any
    mask: Any


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(LAYERS))

    def forward(self, batch: Any) -> Any:
        x = self.words(batch["ids"]) * batch["mask"][:, :, None]
        hidden = []
        for layer in self.layers:
            x = np.tanh(layer(x))
            hidden.append(x)
        return Output(logits=x.mean(axis=1), hidden=tuple(hidden))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Any, state: Any) -> Any:
        h, c = state
        for _ in range(3):
            h = np.tanh(self.fc(np.concatenate([x, h], axis=-1)))
            c = c + h
        return h, (h, c)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(4, 2) for _ in range(LAYERS))
        self.layers = nn.ModuleList(nn.Linear(2 * LAYERS, 2 * LAYERS) for _ in range(LAYERS))

    def forward(self, x: Any) -> Any:
        x = np.concatenate([head(x) for head in self.heads], axis=-1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Records(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, batch: Any, *others: Any, scale: Any) -> Any:
        x = self.fc(batch.ids) * scale
        for other in others:
            x = x + other
        return Batch(x, batch.mask)


def split_heads(x: Any, n: int) -> Any:
    """Heads first."""
    B, T, D = x.shape
    return x.reshape(B, T, n, D // n).transpose(0, 2, 1, 3)


def scaled(x: Any, weight: Any, eps: float = 1e-5) -> Any:
    # mean square
    square = (x * x).mean(axis=-1, keepdims=True)
    return x / np.sqrt(square + eps) * weight


def residual(x: Any, layer: Any) -> Any:
    return x + layer(x)


def centered(x: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    return x - mean, mean


def standardized(x: Any) -> Any:
    x, mean = centered(x)
    return x / (np.abs(x).max(axis=-1, keepdims=True) + mean * mean)


class Helped(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, nn.Parameter(np.ones(size, f32))
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def masked(self, scores: Any) -> Any:
        return np.where(np.tril(np.ones((3, 3), bool)), scores, -1e9)

    def forward(self, x: Any) -> Any:
        parts = np.split(self.qkv(scaled(x, self.scale)), 3, axis=-1)
        q, k, v = (split_heads(part, self.heads) for part in parts)
        scores = q @ k.transpose(0, 1, 3, 2)
        mixed = F.softmax(self.masked(scores), -1) @ v
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(x.shape))


class Helpers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Helped(8, 2), Helped(8, 4)

    def forward(self, x: Any) -> Any:
        x = residual(x, self.first)
        x = residual(standardized(x), self.second)
        rows = [standardized(x[:, i]) for i in range(3)]
        return standardized(x), np.stack(rows)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Any, state: Any) -> Any:
        h, c = state
        outputs = []
        for t in range(3):
            h, c = self.cell(x[t], (h, c))
            outputs.append(h)
        return np.stack(outputs), (h, c)


class Hidden(Encoder):
    """What a list holds is given beside it, too: the first one, which must not be lost."""

    def forward(self, batch: Any) -> Any:
        x = self.words(batch["ids"])
        hidden = []
        for layer in self.layers:
            x = np.tanh(layer(x))
            hidden.append(x)
        return hidden, hidden[0], x


def halved(x: Any, factor: Any) -> Any:
    return x * factor


class Numbers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def forward(self, x: Any) -> Any:
        for i in range(4):
            x = halved(x, i + 1)
        return halved(self.parts["a"](x), f32(0.5)) + halved(self.parts["b"](x), f32(0.25))


def pair() -> Any:
    return (np.ones((2, 4), f32), np.full((2, 4), 0.5, f32))


X = np.linspace(-1, 1, 12, dtype=f32).reshape(3, 4)
BATCH = {"ids": np.array([[1, 2, 3]]), "mask": np.array([[1, 1, 0]], f32)}
CACHED = "for layer, (keys, values) in zip(self.layers, cache, strict=True):"

#: Program, arguments, keywords, text that its source has, and text that it has not
CASES: dict[str, tuple[Callable[[], Any], tuple[Any, ...], dict[str, Any], list[str], str]] = {
    "cache": (
        Cached,
        (X, [pair() for _ in range(LAYERS)]),
        {},
        ["(self, x, cache):", CACHED, "grown.append((keys, values))", "return x, grown"],
        "cache_0",
    ),
    "by number": (
        ByNumber,
        (X, {"layers": tuple(pair() for _ in range(LAYERS))}),
        {},
        ['zip(self.layers, cache["layers"], strict=True)', '{"x": x, "cache": tuple(grown)}'],
        "cache_0",
    ),
    "dict": (
        Encoder,
        (BATCH,),
        {},
        ["(self, batch):", 'batch["ids"]', "hidden.append(x)", "Output(x.mean(", "tuple(hidden)"],
        "batch_ids",
    ),
    "state": (Recurrent, (X, (X, X + 1)), {}, ["(self, x, state):", "h, c = state", "for _ in range(3):"], "state_0"),
    "lists": (Heads, (X,), {}, ["[head(x) for head in self.heads]", "for layer in self.layers[:-1]:"], "append"),
    "helpers": (
        Helpers,
        (np.linspace(-1, 1, 48, dtype=f32).reshape(2, 3, 8),),
        {},
        [
            'def split_heads(x, n, size_2):\n    """Heads first."""\n',
            "def scaled(x, weight):\n",
            "    # mean square\n    square = ",
            "x, mean = centered(x)",
            "k = split_heads(",
            "= x + self.first(x)",
            "[standardized(x[:, i]) for i in range(3)]",
            "masked(scores, ",
        ],
        "residual",
    ),
    "cell": (Cell, (np.stack([X, X, X]), (X, X)), {}, ["(self, x, state):", "h, c = state", "self.cell("], "state_0"),
    "hidden": (Hidden, (BATCH,), {}, ["(self, batch):"], "batch_ids"),
    "numbers": (Numbers, (X,), {}, ["for i in range(", "halved("], "halved_9"),
    "records": (
        Records,
        (Batch(X, X), X, X + 1),
        {"scale": f32(2.0)},
        ["(self, batch, *others, scale):", "batch.ids", "others[1]", "Batch(ids=", "@dataclass"],
        "others_0",
    ),
}


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"nested_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = [v for v in vars(module).values() if hasattr(v, "load") and isinstance(v, type)][-1]
    return made.load()


def with_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    found = pytree.children_of(value)
    if found is None:
        return change(value)
    kind, keys, values = found
    inner = [with_leaves(v, change) for v in values]
    if kind == "dict":
        return dict(zip(keys, inner))
    return type(value)(*inner) if kind in ("namedtuple", "dataclass") else type(value)(inner)


def form(value: Any) -> Any:
    """The nesting of a result, with names of classes."""
    found = pytree.children_of(value)
    if found is None:
        return "leaf"
    return type(value).__name__, *zip(found[1], map(form, found[2]))


@pytest.mark.parametrize("dialect", ["fxlite", "numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_takes_and_gives_what_the_program_does(name: str, dialect: str, tmp_path: Path) -> None:
    make, args, kwargs, texts, other = CASES[name]
    nn.init.manual_seed(0)
    program = make().eval()
    gm = fx.symbolic_trace(program, *args, **kwargs)
    text = gm.source(dialect=dialect)
    for wanted in texts:
        assert wanted in text, text
    assert other not in text.partition('"""\n\n')[2], text
    expected = program(*args, **kwargs)
    if dialect == "torch":
        torch = pytest.importorskip("torch")
        given = [with_leaves(v, lambda x: torch.from_numpy(np.array(x))) for v in args]
        named = {k: with_leaves(v, lambda x: torch.from_numpy(np.array(x))) for k, v in kwargs.items()}
        with torch.no_grad():
            found = loaded(save_python(gm, tmp_path, dialect=dialect))(*given, **named)
        found = with_leaves(found, lambda x: x.numpy())
    else:
        found = loaded(save_python(gm, tmp_path, dialect=dialect))(*args, **kwargs)
    assert form(found) == form(expected)
    compare(dialect, flat(found), flat(expected))


def test_a_cell_is_called_in_a_loop() -> None:
    """Its inputs are computed in another order in the first round."""
    _, args, _, _, _ = CASES["cell"]
    assert (
        "        for t in range(3):\n"
        "            h, c = self.cell(x[t], (h, c))  # f32[3,4] each\n"
        "            outputs.append(h)\n"
    ) in fx.symbolic_trace(Cell().eval(), *args).source()


def flat(value: Any) -> list[Any]:
    found = pytree.children_of(value)
    return [value] if found is None else [leaf for v in found[2] for leaf in flat(v)]
