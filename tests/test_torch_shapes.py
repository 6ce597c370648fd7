"""Shapes of whole models against torch's: the result of every module, and that of the whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from tests import models

torch = pytest.importorskip("torch")
torch_models = pytest.importorskip("tests.torch_models")

#: Model -> shapes of its inputs, and how many of its modules return one array.
CASES = {
    "resnet18": (((2, 3, 224, 224),), 68),
    "bert": (((3, 7), (3, 7)), 111),
    "lstm_tagger": (((5, 12),), 3),
    "unet": (((2, 3, 64, 64),), 55),
    "gpt_block": (((3, 9, 64),), 9),
}


def results_of_modules(gm: fx.GraphModule) -> dict[str, tuple[int, ...]]:
    """Shape of what each module computes last, by path."""
    found = {}
    for node in gm.graph.nodes:
        if isinstance(node.type, fx.TensorType) and node.scope is not None:
            steps = node.scope.path.split(".")
            for count in range(len(steps) + 1):
                found[".".join(steps[:count])] = node.type.shape
    return found


def results_in_torch(model: Any, inputs: list[Any]) -> dict[str, tuple[int, ...]]:
    """The same of a run in torch."""
    found: dict[str, tuple[int, ...]] = {}

    def note(path: str) -> Any:
        def hook(module: Any, args: Any, result: Any) -> None:
            if isinstance(result, torch.Tensor):
                found[path] = tuple(result.shape)

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(note(path))
    with torch.no_grad():
        model(*inputs)
    return found


@pytest.mark.parametrize("name", CASES)
def test_every_module(name: str) -> None:
    shapes, count = CASES[name]
    gm = models.traced(name)
    is_index = [node.type.dtype is fx.int64 for node in gm.graph.placeholders]
    theirs = results_in_torch(
        torch_models.torch_model(name),
        [torch.ones(s, dtype=torch.long) if i else torch.ones(s) for s, i in zip(shapes, is_index)],
    )
    arrays = [np.zeros(s, np.int64 if i else np.float32) for s, i in zip(shapes, is_index)]
    ours = results_of_modules(passes.shape_prop(gm, *arrays))
    assert len(theirs) == count
    assert {path: ours[path] for path in theirs} == theirs
