"""What dialects of regenerated Python write differently: how modules and their arrays are made, how
values are computed, what a file imports and how its weights are stored.

In: arrays of a program and the text of what is made of them. Out: Python text. :class:`Dialect` is
the dialect "fxlite"; the others are subclasses of it, in files of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fxlite.base.outside_text import python_string
from fxlite.codegen.python.layers import Layer, layer_of
from fxlite.codegen.python.spelling import NumpyText
from fxlite.codegen.python.text import Text, number_text
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Parameter
from fxlite.passes.cutting.outline_modules import NUMBER
from fxlite.types.tensor_type import TensorType, type_of

Imports = tuple[list[str], list[str]]  # lines: of the standard library, of other packages


class Dialect:
    """The dialect "fxlite": classes of ``nn.Module``, layers of ``fxlite.nn``."""

    name = "fxlite"
    #: Modules that the text uses, by the names it prefers.
    imports: tuple[str, ...] = ("F", "ops", "shapes", "np")
    #: What prints values.
    text: type[Text] = NumpyText
    #: The method that computes.
    method = "forward"
    #: What modules are derived from; empty: nothing.
    base = "nn.Module"
    #: What makes a module that gives back what it is given.
    identity = "nn.Identity()"
    #: How many numbers a class is given without their names, at most.
    by_position = 3
    #: Whether modules that are called in a row may be one ``nn.Sequential``.
    has_sequential = True
    #: What programs take and give.
    values = "NumPy arrays"
    #: How the name of the file of weights ends.
    suffix = ".safetensors"

    # -- programs --------------------------------------------------------------------------------
    def prepared(self, gm: GraphModule) -> GraphModule:
        """The program in ops that the dialect can write. Raises CodegenError naming the node of
        what it cannot."""
        return gm

    def helpers(self, graphs: Iterable[Graph]) -> Iterable[str]:
        """Functions of the file's own with which values are computed."""
        return ()

    #: What else a file may define, besides these and the classes of the program.
    parts: tuple[str, ...] = ()

    def definitions(self, names: Iterable[str]) -> str:
        """The text of such functions and parts, and of what they need."""
        return ""

    # -- modules ---------------------------------------------------------------------------------
    def layer(self, module: GraphModule) -> Layer | None:
        """The layer that computes what a module does, if the dialect has it."""
        return layer_of(module)

    def array(
        self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]
    ) -> str:  # fmt: skip
        """The statement that makes an array of a module."""
        type = type_of(value)
        made = f'{imports["ops"]}.zeros({shape_text(type)}, dtype="{type.dtype.name}")'
        if is_trained(value):
            return f"self.{part} = nn.Parameter({made})"
        return f"self.register_buffer({python_string(part)}, {made})"

    def is_number(self, node: Node) -> bool:
        """Whether a constant is written where it is read, as ``np.float32(0.5)``."""
        return "np" in self.imports and bool(node.meta.get(NUMBER))

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        """What makes an array that ``Weights`` hold."""
        type = type_of(value)
        shape = ",".join(number_text(size, "{size}") for size in type.shape)
        text = f'"{type.dtype.name}[{shape}]"' if shape else f'"{type}"'
        return text if is_trained(value) else f"Buffer({text})"

    def module_list(self, listed: str, is_called: bool) -> str:
        """Modules in a list; ``is_called``: in a row, by calling what holds them."""
        return f"nn.Sequential({listed})" if is_called else f"nn.ModuleList([{listed}])"

    def lacking(self, made: str) -> str:
        """What does nothing in the place of a part that other modules of the class make so."""
        return self.identity

    # -- files -----------------------------------------------------------------------------------
    def import_lines(self, used: Callable[[str], bool], alias: Mapping[str, str]) -> Imports:
        """What a file imports, besides what the program does. ``alias``: what :attr:`imports` are
        called."""
        lines = [f"import numpy as {alias['np']}", ""] if used(alias["np"]) else []
        if used("fx"):
            lines.append("import fxlite as fx")
        if used(alias["F"]):
            lines.append(f"import fxlite.nn.functional as {alias['F']}")
        names = {"nn": "nn", "ops": alias["ops"], "shapes": alias["shapes"]}
        plain = [name for name, own in names.items() if used(own)]
        if plain:
            listed = (n if names[n] == n else f"{n} as {names[n]}" for n in plain)
            lines.append(f"from fxlite import {', '.join(listed)}")
        held = [name for name in ("Buffer", "Weights") if used(name)]
        if held:
            lines.append(f"from fxlite.nn.container import {', '.join(held)}")
        return [], lines

    def load(self) -> list[str]:
        """The method that makes a module with its weights."""
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights, ready to run."""',
            "        model = cls()",
            "        model.load_state_dict(fx.load_safetensors(path))",
            "        return model.eval()",
        ]

    def save(self, arrays: Mapping[str, Any], path: Path) -> None:
        """Store the weights, by the names that a state_dict has."""
        save_safetensors(dict(arrays), path)


def is_trained(value: Any) -> bool:
    """Whether an array is a parameter."""
    return isinstance(value, Parameter) and value.is_parameter


def shape_text(type: TensorType, names: Iterable[str] = ()) -> str:
    """A shape whose sizes may become parameters of a class, which are called by their ``names``."""
    named = zip(type.shape, itertools.chain(names, itertools.repeat("size")))
    sizes = [number_text(size, name) for size, name in named]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"
