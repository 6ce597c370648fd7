"""The models of :mod:`tests.models` with torch's layers: what costs and shapes are compared with.

Where the source of a model is plain enough it is run again with torch's ``nn``; the others are
written out. Import it behind ``pytest.importorskip("torch")``.
"""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import torch

from tests import models

functional = torch.nn.functional

#: The functions of NumPy that the models call, on tensors.
_NUMPY = SimpleNamespace(concatenate=lambda parts, axis: torch.cat(parts, axis), stack=torch.stack)


def in_torch(*classes: Any) -> Any:
    """The last of the classes (and functions), made again from its source with torch's layers; one
    of torch's own stands for itself. Constants of their modules are known."""
    names: dict[str, Any] = {"nn": torch.nn, "F": functional, "Any": Any, "np": _NUMPY}
    for each in classes:
        if isinstance(each, type) and issubclass(each, torch.nn.Module):
            names[each.__name__] = each
        else:
            names = {k: v for k, v in vars(sys.modules[each.__module__]).items() if k.isupper()} | names
            lines, start = inspect.getsourcelines(each)
            exec(compile("\n" * (start - 1) + "".join(lines), inspect.getfile(each), "exec"), names)
    return names[classes[-1].__name__]


def split(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


class GptBlock(torch.nn.Module):
    """:class:`tests.models.GptBlock`."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers = torch.nn
        self.ln_1, self.ln_2 = layers.LayerNorm(width), layers.LayerNorm(width)
        self.c_attn, self.c_proj = layers.Linear(width, 3 * width), layers.Linear(width, width)
        self.mlp = layers.Sequential(
            layers.Linear(width, 4 * width), layers.GELU(approximate="tanh"), layers.Linear(4 * width, width)
        )

    def forward(self, x: Any) -> Any:
        q, k, v = (split(part, 4) for part in self.c_attn(self.ln_1(x)).chunk(3, -1))
        seen = torch.ones(x.shape[1], x.shape[1]).tril() != 0
        scores = (q @ k.transpose(2, 3) / 4).masked_fill(~seen, float("-inf"))
        mixed = scores.softmax(-1) @ v
        x = x + self.c_proj(mixed.permute(0, 2, 1, 3).reshape(x.shape))
        return x + self.mlp(self.ln_2(x))


class EncoderLayer(torch.nn.Module):
    """:class:`tests.models.EncoderLayer`."""

    def __init__(self, width: int = 384, heads: int = 12) -> None:
        super().__init__()
        layers = torch.nn
        self.heads = heads
        self.query, self.key, self.value, self.dense = (layers.Linear(width, width) for _ in range(4))
        self.up, self.down = layers.Linear(width, 4 * width), layers.Linear(4 * width, width)
        self.norm1, self.norm2 = layers.LayerNorm(width), layers.LayerNorm(width)

    def forward(self, x: Any, keep: Any) -> Any:
        q, k, v = (split(layer(x), self.heads) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = self.norm1(x + self.dense(mixed.permute(0, 2, 1, 3).reshape(x.shape)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


def torch_model(name: str) -> Any:
    """The model of that name in :data:`tests.models.MODELS`, in evaluation mode."""
    makers: dict[str, tuple[Any, ...]] = {
        "resnet18": (models.BasicBlock, models.ResNet18),
        "bert": (EncoderLayer, models.Bert),
        "lstm_tagger": (models.Tagger,),
        "unet": (models.double_conv, models.UNet),
        "gpt_block": (GptBlock,),
    }
    return in_torch(*makers[name])().eval()
