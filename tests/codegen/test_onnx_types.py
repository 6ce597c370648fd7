"""Each value of an ONNX model that fxlite writes has an element type and a shape, those in bodies included: in the
file, and in Netron, which people look at models with. Values that are nodes of the graph have its shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.base.errors import FxliteError
from fxlite.passes import quantize
from tests import models
from tests.browser import browser, in_netron
from tests.zoo import ZOO

onnx = pytest.importorskip("onnx")

from tests import onnx_export  # noqa: E402

#: A value: its name, its element type in ONNX, and its sizes; None for what is not there.
Found = dict[str, tuple[str, tuple[Any, ...] | None] | None]


def graphs_in(graph: Any) -> Iterator[Any]:
    """A graph of a model and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_in(attribute.g)


def in_file(model: Any) -> Found:
    """What a file says of the results of its nodes."""
    found: Found = {}
    for graph in graphs_in(model.graph):
        types = {info.name: info.type.tensor_type for info in (*graph.value_info, *graph.output)}
        for name in (name for node in graph.node for name in node.output if name):
            held = types.get(name)
            sizes = None
            if held is not None and held.HasField("shape"):
                sizes = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in held.shape.dim)
            found[name] = None if held is None else (onnx.TensorProto.DataType.Name(held.elem_type), sizes)
    return found


def untyped(found: Found) -> list[str]:
    """The values of which something is not known."""
    return [n for n, value in found.items() if value is None or value[1] is None or None in value[1]]


def differing(gm: fx.GraphModule, found: Found) -> list[str]:
    """The nodes whose value has another shape."""
    typed = {n.name: n.type.shape for n in gm.graph.nodes if n.op == "call_function" and hasattr(n.type, "shape")}
    own = {name: tuple(d if isinstance(d, int) else str(d) for d in shape) for name, shape in typed.items()}
    return [f"{n}: {own[n]}, {v}" for n, v in found.items() if n in own and v is not None and own[n] != v[1]]


def test_each_value_of_a_file_has_a_type() -> None:
    """Programs of the zoo, and a sample of each op. A size that depends on values has a name, too."""
    for name, what in onnx_export.samples():
        if not name.endswith(("-0", "-13")) and not name.startswith("zoo-"):
            continue
        gm, _ = onnx_export.made(what)
        try:
            model = fx.to_onnx(gm)
        except FxliteError:  # ONNX has no op
            continue
        found = in_file(model)
        assert not untyped(found), (name, untyped(found))
        onnx.checker.check_model(model, full_check=True)


def loops(x: Any) -> Any:
    """A loop in a loop, and a condition."""
    total = np.zeros_like(x[0])
    for i in range(x.shape[0]):
        row = x[i]
        while np.max(np.abs(row)) > 1:
            row = row.reshape(-1)[::-1] / 2
        total = np.where(row > total, row, total) if np.sum(row) > 0 else total + np.roll(row, 1)
    return total


def zoo(name: str) -> fx.GraphModule:
    return next(p for p in ZOO if p.name == name).trace()[0]


def quantized(scheme: str) -> fx.GraphModule:
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    gm = fx.symbolic_trace(net.eval(), "f32[B,3,8,8]")
    batches = [np.random.default_rng(i).standard_normal((4, 3, 8, 8)).astype(np.float32) for i in range(2)]
    return quantize.quantize(gm, quantize.QConfigMapping().set_global(scheme), batches)


def selected(x: Any, n: Any) -> Any:
    return x[x > 0], F.softmax(x[:, :n], -1), np.sort(x, axis=0)[: x.shape[0] // 2]


MODELS: dict[str, Callable[[], fx.GraphModule]] = {
    "resnet18": lambda: models.traced("resnet18"),
    "bert": lambda: models.traced("bert"),
    "lstm_cells": lambda: models.traced("lstm_cells"),
    "in_place": lambda: zoo("in_place"),
    "integers": lambda: zoo("integers_and_logic"),
    "control flow": lambda: fx.symbolic_trace(loops, "f32[N,K]"),
    "static_int8": lambda: quantized("static_int8"),
    "weight_only_int4": lambda: quantized("weight_only_int4"),
    "computed sizes": lambda: fx.symbolic_trace(selected, "f32[N,5]", "i64"),
}

#: Of the open model: the kinds of nodes in each graph, and [name, element type, sizes] of each result of a node.
_SHOWN = """() => {
  const kinds = [], values = [];
  const walk = graph => {
    kinds.push(graph.nodes.map(node => node.type.name));
    for (const node of graph.nodes) {
      for (const value of node.outputs.flatMap(output => output.value)) {
        const type = value.type;
        values.push([value.name, type && type.dataType, type && type.shape && type.shape.dimensions.map(
          size => size === null || typeof size === "string" ? size : Number(size))]);
      }
      for (const attribute of node.attributes) {
        if (attribute.value && attribute.value.nodes) { walk(attribute.value); }
      }
    }
  };
  window.__view__.model.modules.forEach(walk);
  return [kinds, values];
}"""


@browser
@pytest.mark.parametrize("name", MODELS)
def test_netron_shows_every_shape(name: str, tmp_path: Path) -> None:
    gm = MODELS[name]()
    path = tmp_path / "model.onnx"
    model = fx.to_onnx(gm, path)
    with in_netron(path) as (page, _):
        kinds, values = page.evaluate(_SHOWN)
        boxes = page.evaluate("() => document.querySelectorAll('g.node:not(.graph-input)').length")
    assert sorted(kinds) == sorted([n.op_type for n in graph.node] for graph in graphs_in(model.graph))
    assert boxes >= len(model.graph.node)
    shown: Found = {n: (kind, None if sizes is None else tuple(sizes)) for n, kind, sizes in values}
    assert not untyped(shown)
    assert {n: sizes for n, (_, sizes) in shown.items()} == {n: s for n, (_, s) in in_file(model).items()}
    assert not differing(gm, shown)
