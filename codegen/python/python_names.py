"""Names in regenerated Python: what each value is called, and which names are taken.

In: a graph. Out: :class:`Names`. Values keep the graph's names unless those would hide a builtin,
an import or the class (``sum`` becomes ``sum_``); parameters of ``forward`` keep the program's
names, and imports give way to them.
"""

from __future__ import annotations

import builtins
import keyword
import re
from typing import Any

from fxlite.base.outside_text import python_string
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.nn.weights import Weights
from fxlite.ops.wrapping import WrappedOp
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType

_SOFT = frozenset(("match", "case", "type", "_"))
#: Modules that the text uses, by the names it prefers.
_IMPORTS = ("F", "ops", "shapes", "math")


_LONGEST = 100  # characters of the name of a file or class


def module_name(name: str) -> str:
    """``MiniLM`` -> ``mini_lm``: the name of a Python file."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    snake = re.sub(r"\W+", "_", snake, flags=re.ASCII).strip("_")[:_LONGEST] or "model"
    return (
        f"{snake}_" if keyword.iskeyword(snake) else f"m_{snake}" if snake[0].isdigit() else snake
    )


def class_name(name: str) -> str:
    """``residual_net`` -> ``ResidualNet``: the name of a class."""
    words = re.sub(r"\W+", "_", name, flags=re.ASCII)[:_LONGEST].split("_")
    joined = "".join(w[:1].upper() + w[1:] for w in words if w) or "Model"
    joined = f"Model{joined}" if joined[0].isdigit() else joined
    taken = hasattr(builtins, joined) or keyword.iskeyword(joined)
    return (
        f"{joined}Model" if taken or joined in (*_USED_BY_TEXT, *_IMPORTS, "nn", "fx") else joined
    )


_USED_BY_TEXT = frozenset(("Weights", "Buffer", "Path", "NamedTuple", "Any", "WEIGHTS"))


def is_attribute(part: str) -> bool:
    """True if ``self.PART`` reaches a weight or child of that name; else it must be
    ``self["PART"]``."""
    plain = part.isidentifier() and part.isascii() and not keyword.iskeyword(part)
    return plain and not hasattr(Weights, part) and part not in ("load", "training", "children")


def attribute_text(path: str) -> str:
    """``layers.0.weight`` -> ``self.layers[0].weight``"""
    text = "self"
    for part in path.split("."):
        if part.isdigit() and str(int(part)) == part:
            text += f"[{part}]"
        else:
            text += f".{part}" if is_attribute(part) else f"[{python_string(part)}]"
    return text


class Names:
    """Names of values by node. ``parameters`` are those of forward's parameters, ``imports`` those
    of modules, ``functions`` those of wrapped functions, ``tuples`` those of named-tuple classes;
    ``parts`` maps a node with several results to the names of the parts, whose own nodes are
    ``unpacked``."""

    def __init__(self, graph: Graph, class_name: str) -> None:
        self._names: dict[Node, str] = {}
        self._taken = {"self"}
        self.parameters: dict[Node, str] = {}
        for node in graph.placeholders:
            wish = str(node.target)
            usable = not keyword.iskeyword(wish) and wish != "self"
            self.parameters[node] = self._unique(wish if usable else f"{wish}_", builtin=True)
        self._taken |= {"fx", "nn", class_name, *_USED_BY_TEXT}
        for node in graph.placeholders:
            for name in shapes.names(node.type.shape if isinstance(node.type, TensorType) else ()):
                self._taken.add(name)
        self.imports = {name: self._unique(name) for name in _IMPORTS}
        #: Wrapped functions, which are imported from the program.
        self.functions: dict[WrappedOp, str] = {}
        for node in graph.nodes:
            if isinstance(node.target, WrappedOp) and node.target not in self.functions:
                self.functions[node.target] = self._unique(node.target.function.__name__)
        self.tuples: dict[Any, str] = {}
        for found in _named_tuples(graph.output_node().args[0]):
            if found not in self.tuples:
                self.tuples[found] = self._unique(found.__name__)
        for node in graph.nodes:
            if node.op == "placeholder":
                same = node.name == node.target
                self._names[node] = self.parameters[node] if same else self._unique(node.name)
            elif node.op == "call_function":
                self._names[node] = self._unique(node.name)
        self.parts: dict[Node, list[str]] = {}
        self.unpacked: set[Node] = set()
        for node in graph.nodes:
            self._unpack(node)

    def __getitem__(self, node: Node) -> str:
        return self._names[node]

    def _unique(self, wish: str, builtin: bool = False) -> str:
        hidden = not builtin and (
            hasattr(builtins, wish) or wish in _SOFT or keyword.iskeyword(wish)
        )
        name = f"{wish}_" if hidden else wish
        while name in self._taken:
            name = f"{name}_"
        self._taken.add(name)
        return name

    def _unpack(self, node: Node) -> None:
        """``first, second = ops.split(...)`` in place of a ``getitem`` for each."""
        if node.op != "call_function" or not isinstance(node.type, tuple):
            return
        if any(u.op != "call_function" or u.target.name != "getitem" for u in node.users):
            return
        names = ["_"] * len(node.type)
        for user in node.users:
            index = user.arguments["index"]
            if names[index] != "_":
                return  # one part read twice
            if re.fullmatch(r"getitem(_\d+)?", user.name):  # nobody chose that name
                self._names[user] = self._unique(f"{self._names[node]}_{index}")
            names[index] = self._names[user]
        self.parts[node] = names
        self.unpacked.update(node.users)


def _named_tuples(value: Any) -> list[Any]:
    """The named-tuple classes in a nested result."""
    found = []
    if hasattr(value, "_fields"):
        found.append(type(value))
    if isinstance(value, (tuple, list)):
        found += [f for v in value for f in _named_tuples(v)]
    elif isinstance(value, dict):
        found += [f for v in value.values() for f in _named_tuples(v)]
    return found


def reads(node: Node) -> list[Node]:
    """Nodes among the arguments, repeats included."""
    return [*nodes_in(node.args), *nodes_in(node.kwargs)]
