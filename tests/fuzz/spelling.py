"""A graph as a NumPy program, each call in one of its spellings.

In: a graph. Out: the source of ``forward`` and a Module with it, which runs on arrays as it stands
and whose trace is the graph again. Named dims are read from the inputs' shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, ops
from fxlite.graph.graph import Node
from fxlite.ops.op import REGISTRY, Op
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from tests.fuzz.edits import Chooser


def _of_record(op: Op) -> Iterator[str]:
    """The spellings that a record states: NumPy's ufunc and Python's operator."""
    operands = [f"{{{name}}}" for name in op.tensor_kinds]
    if op.ufunc is not None:
        yield f"np.{op.ufunc.__name__}({', '.join(operands)})"
    if op.symbol is not None:
        yield f"({op.symbol.join(operands if len(operands) > 1 else ['', *operands])})"


#: Ways to write a call besides ``ops.NAME(...)``: ``{x}`` and the like are the op's parameters.
SPELLINGS: dict[str, tuple[str, ...]] = {
    **{op.name: tuple(_of_record(op)) for op in REGISTRY.values() if op.ufunc or op.symbol},
    "pow": ("({x} ** {y})",),  # for 0.5 np.power is another function
    **{
        n: (f"np.{n}({{x}}, axis={{axis}}, keepdims={{keepdims}})", f"{{x}}.{n}({{axis}}, keepdims={{keepdims}})")
        for n in ("sum", "mean", "prod", "max", "min", "any", "all", "argmax", "argmin")
    },
    "abs": ("abs({x})", "np.abs({x})", "np.absolute({x})"),
    "relu": ("np.maximum({x}, 0)", "F.relu({x})"),
    "where": ("np.where({condition}, {x}, {y})",),
    "clip": ("np.clip({x}, {min}, {max})",),
    "cast": ("{x}.astype({dtype})",),
    "permute": ("np.transpose({x}, {axes})", "{x}.transpose({axes})"),
    "reshape": ("np.reshape({x}, {shape})", "{x}.reshape({shape})"),
    "expand": ("np.broadcast_to({x}, {shape})",),
    "unsqueeze": ("np.expand_dims({x}, {axis})",),
    "squeeze": ("np.squeeze({x}, {axis})", "{x}.squeeze({axis})"),
    "flip": ("np.flip({x}, {axis})",),
    "roll": ("np.roll({x}, {shift}, {axis})",),
    "tril": ("np.tril({x}, {k})",),
    "triu": ("np.triu({x}, {k})",),
    "concat": ("np.concatenate({tensors}, axis={axis})",),
    "stack": ("np.stack({tensors}, axis={axis})",),
    "take": ("np.take({x}, {index}, axis={axis})",),
    "cumsum": ("np.cumsum({x}, axis={axis})", "{x}.cumsum({axis})"),
    "softmax": ("F.softmax({x}, {axis})",),
    "gelu": ("F.gelu({x}, {approximate})",),
    "silu": ("F.silu({x})",),
    "linear": ("F.linear({x}, {weight}, {bias})",),
    "getitem": ("{x}[{index}]",),
}


def spelled(c: Chooser) -> tuple[str, nn.Module] | None:
    """The program, or None where a size has no spelling: it is in no input, or needs Min or Max."""
    names = {n: f"v{i}" for i, n in enumerate(c.graph.nodes)}
    lines = []
    dims: dict[str, str] = {}
    for node in c.graph.placeholders:
        names[node] = node.target
        for axis, dim in enumerate(node.type.shape):
            if str(dim).isidentifier() and str(dim) not in dims:
                dims[str(dim)] = f"{node.target}.shape[{axis}]"
    try:
        for node in c.graph.nodes:
            if node.op == "output":
                lines.append(f"return {_text(node.args[0], names, dims)}")
            elif node.op == "get_attr":
                lines.append(f"{names[node]} = {_path(node.target)}")
            elif node.op == "call_function":
                lines.append(f"{names[node]} = {_call(c, node, names, dims)}")
            elif node.op == "call_module":
                return None
    except KeyError:
        return None
    parameters = ", ".join(p.target for p in c.graph.placeholders)
    body = "\n    ".join([*(f"{d} = {text}" for d, text in dims.items()), *lines])
    source = f"def forward(self, {parameters}):\n    {body}\n"
    scope: dict[str, Any] = {"np": np, "F": F, "ops": ops, "fx": fx}
    exec(compile(source, "program.py", "exec"), scope)
    module = type("Program", (nn.Module,), {"forward": scope["forward"]})()
    for node in c.graph.find_nodes(op="get_attr"):
        *path, name = node.target.split(".")
        owner = module
        for part in path:
            if part not in owner._modules:
                owner._modules[part] = nn.Module()
            owner = owner._modules[part]
        owner.register_buffer(name, c.gm.get_attribute(node.target))
    return source, module.eval()


def constants(graph: fx.Graph) -> set[Node]:
    """Calls that depend on no input, weight or named dim: NumPy computes them while tracing."""
    found: set[Node] = set()
    for node in graph.nodes:
        named = node.op != "call_function" or shapes.names(tuple(node.kwargs.values()))
        if not named and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found


def _path(target: str) -> str:
    text = "self"
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() else f"getattr({text}, {part!r})"
    return text


def _call(c: Chooser, node: Node, names: dict[Node, str], dims: dict[str, str]) -> str:
    arguments = {k: _text(v, names, dims) for k, v in node.arguments.items()}
    for name, parameter in node.target.signature.parameters.items():
        arguments.setdefault(name, repr(parameter.default))
    plain = ", ".join(f"{k}={v}" for k, v in arguments.items() if v != repr(node.target.defaults.get(k, ...)))
    if node.target.name == "dropout":  # by itself it takes training for granted
        return f"F.dropout({arguments['x']}, {arguments['p']}, self.training)"
    spellings = SPELLINGS.get(node.target.name, ())
    choice = c.number(0, len(spellings))
    if choice == 0 or not isinstance(node.args[0], Node) or _has_own_form(node):
        return f"ops.{node.target.name}({plain})"
    if "dtype" in arguments:  # the graph has short names
        arguments["dtype"] = repr(dtypes.dtype(node.arguments["dtype"]).long_name)
    return spellings[choice - 1].format_map(arguments)


def _has_own_form(node: Node) -> bool:
    """True for a call that NumPy's spelling says otherwise (axes from the start, sizes in full, no
    cast to the dtype a value has), computes otherwise (sums of halves are rounded once here,
    those of u8 are i64) or refuses while tracing."""
    name, attributes, read = node.target.name, node.kwargs, node.args[0].type
    if name in ("flip", "unsqueeze", "squeeze"):
        return bool(attributes["axis"] < 0)
    if name == "expand":
        return any(size == -1 for size in attributes["shape"])
    if name == "cast":
        return bool(read.dtype == dtypes.dtype(attributes["dtype"]))
    if name == "take":  # np.take of an array does not ask the index
        return node.args[0] in constants(node.graph)
    if name == "reciprocal":
        return not read.dtype.is_float
    sums = ("sum", "mean", "prod", "cumsum", "matmul", "linear", "var")
    return name in sums and (read.dtype.itemsize == 2 or read.dtype.name == "u8")


def _text(value: Any, names: dict[Node, str], dims: dict[str, str]) -> str:
    """An argument as Python text. Raises KeyError for a size that has none."""
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, (tuple, list)):
        inner = ", ".join(_text(v, names, dims) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_text(v, names, dims)}' for k, v in value.items())}}}"
    if isinstance(value, DType):
        return repr(value.name)
    if shapes.names(value):
        text = shapes.to_text(value)
        if re.search(r"\w\(", text) or not shapes.names(value) <= set(dims):
            raise KeyError(text)
        return text
    if isinstance(value, float) and not np.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)
