"""What differs between the dialects of regenerated Python: how modules and their arrays are created, how
values are computed, what a file imports and how its weights are stored.

In: arrays of a program and the text of what is computed from them. Out: Python text. :class:`Dialect` is
the dialect "fxlite". The others are subclasses of it and of :class:`TableDialect`, in which an op that has
neither a spelling nor a function in the file is replaced by its expansion; an op without an expansion is an
error that names the node.

The dialect "numpy" is source that needs only NumPy: plain classes with ``__call__``, whose arrays come from
an ``.npz`` file. A program with bfloat16 also imports ``ml_dtypes``.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import CodegenError
from fxlite.base.outside_text import python_string
from fxlite.codegen.python.layers import Layer, layer_of, size_names
from fxlite.codegen.python.numpy_text import FxliteText, NumpyText
from fxlite.codegen.python.text import Text, number_text
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import nodes_inside
from fxlite.nn.module import Parameter
from fxlite.ops.op import Op
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.cutting.outline_modules import NUMBER
from fxlite.passes.rules.decompose import decompose
from fxlite.types import dtypes
from fxlite.types.tensor_type import TensorType, type_of

#: The key in a node's ``meta`` for the function of a file that is a loop or condition.
FUNCTION = "function"

Imports = tuple[list[str], list[str]]  # lines: of the standard library, of other packages


class Dialect:
    """The dialect "fxlite": classes of ``nn.Module``, layers of ``fxlite.nn``."""

    name = "fxlite"
    #: Modules that the text uses, by the names it prefers.
    imports: tuple[str, ...] = ("F", "ops", "shapes", "np")
    #: What prints values.
    text: type[Text] = FxliteText
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

    #: Whether there are loops and conditions.
    has_control = False

    # -- programs --------------------------------------------------------------------------------
    def control(self, node: Node, bodies: Sequence[str]) -> list[str]:
        """The function for a loop or condition, whose bodies are classes with these names."""
        raise NotImplementedError

    def prepared(self, gm: GraphModule) -> GraphModule:
        """The program in ops that the dialect can write. Raises CodegenError naming a node that cannot be
        written."""
        if all(map(_can_be_imported, gm.graph.nodes)):
            return gm
        return decompose(gm, keep=_can_be_imported, own=True)

    def helpers(self, graphs: Iterable[Graph]) -> Iterable[str]:
        """The helper functions that the file needs to compute values."""
        return ()

    #: The call, behind an array, that copies it.
    copy = ".copy()"
    #: Whether a view of an array may be written into the array, ``x[...] = x.T``.
    overlaps = True
    #: The arrays of a file of weights, from its path.
    loaded = "fx.load_safetensors(path)"
    #: What else a file may define, besides these and the classes of the program.
    parts: tuple[str, ...] = ()

    def definitions(self, names: Iterable[str]) -> str:
        """The text of these helpers, and of everything that they need."""
        return ""

    # -- modules ---------------------------------------------------------------------------------
    def layer(self, module: GraphModule) -> Layer | None:
        """The layer that computes the same as a module, if the dialect has it."""
        return layer_of(module)

    def array(self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]) -> str:
        """The statement that creates an array of a module."""
        type = type_of(value)
        made = f'{imports["ops"]}.zeros({shape_text(type)}, dtype="{type.dtype.name}")'
        if is_trained(value):
            return f"self.{part} = nn.Parameter({made})"
        return f"self.register_buffer({python_string(part)}, {made})"

    def is_number(self, node: Node) -> bool:
        """Whether a constant is written where it is read, such as ``np.float32(0.5)``."""
        return "np" in self.imports and bool(node.meta.get(NUMBER))

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        """The text that creates an array in ``Weights``."""
        type = type_of(value)
        shape = ",".join(number_text(size, "{size}") for size in type.shape)
        text = f'"{type.dtype.name}[{shape}]"' if shape else f'"{type}"'
        return text if is_trained(value) else f"Buffer({text})"

    def module_list(self, listed: str, is_called: bool) -> str:
        """Modules in a list; ``is_called``: the container is called, and calls them in a row."""
        return f"nn.Sequential({listed})" if is_called else f"nn.ModuleList([{listed}])"

    def lacking(self, made: str) -> str:
        """The module that does nothing in place of a part that other modules of the class have."""
        return self.identity

    # -- files -----------------------------------------------------------------------------------
    def import_lines(self, used: Callable[[str], bool], alias: Mapping[str, str]) -> Imports:
        """The imports of a file, in addition to those of the program. ``alias`` maps names in :attr:`imports`
        to their names in the file."""
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
        """The method that creates a module with its weights."""
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights, ready to run."""',
            "        model = cls()",
            f"        model.load_state_dict({self.loaded})",
            "        return model.eval()",
        ]

    def save(self, arrays: Mapping[str, Any], path: Path) -> None:
        """Store the weights under their names in a state_dict."""
        save_safetensors(dict(arrays), path)


class TableDialect(Dialect):
    """A dialect whose values are printed by a :class:`NumpyText`."""

    text: type[NumpyText]
    #: Modules that a file imports, with their usual names, and lines that import other names.
    modules: tuple[tuple[str, str], ...]
    names: tuple[tuple[str, str], ...]

    def prepared(self, gm: GraphModule) -> GraphModule:
        gm = decompose(gm, keep=lambda n: self.is_kept(n) and not isinstance(n.target, ForeignOp), own=True)
        for node in nodes_inside(gm.graph):
            if node.op == "call_function" and not isinstance(node.target, ForeignOp):
                self.check(node)
        return gm

    def is_kept(self, node: Node) -> bool:
        """Whether a call stays as it is, although it could be expanded."""
        return self.text.is_known(node.target)

    def check(self, node: Node) -> None:
        """Raise CodegenError for a call that cannot be written."""
        if node.type is None:
            raise CodegenError(
                f"{node.describe()} has no type, on which its text depends in the dialect "
                f"{self.name!r}; trace the program with types of its inputs"
            )
        if not self.text.is_known(node.target):
            raise CodegenError(
                f"{node.describe()}: the dialect {self.name!r} has no spelling for the op "
                f"{node.target.name}, and the op has no expansion into others"
            )

    def helpers(self, graphs: Iterable[Graph]) -> Iterable[str]:
        ops = dict.fromkeys(
            node.target
            for graph in graphs
            for node in graph.nodes
            if isinstance(node.target, Op) and not isinstance(node.target, ForeignOp)
        )
        found: dict[str, None] = {}
        for op in ops:
            own = getattr(getattr(self.text, f"op_{op.name}", None), "uses", ())
            found |= dict.fromkeys(own or filter(None, [self.text.helper(op)]))
        return found

    def definitions(self, names: Iterable[str]) -> str:
        return self.text.library.definitions(names)

    def layer(self, module: GraphModule) -> Layer | None:
        return None

    def import_lines(self, used: Callable[[str], bool], alias: Mapping[str, str]) -> Imports:
        named = ((module, name) for module, short in self.modules for name in sorted({short, alias[short]}))
        lines = [f"import {module}" + f" as {name}" * (name != module) for module, name in named if used(name)]
        return [], lines + [line for name, line in self.names if used(name)]


def _can_be_imported(node: Node) -> bool:
    """Whether a call stays as it is: true except for ops of the program that other files cannot import."""
    return not isinstance(node.target, ForeignOp) or node.target.is_importable


def is_trained(value: Any) -> bool:
    """Whether an array is a parameter."""
    return isinstance(value, Parameter) and value.is_parameter


def shape_text(type: TensorType, names: Iterable[str] = ()) -> str:
    """A shape whose sizes may become parameters of a class, named by ``names``."""
    named = zip(type.shape, itertools.chain(names, itertools.repeat("size")))
    sizes = [number_text(size, name) for size, name in named]
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


# -- NumPy alone -----------------------------------------------------------------------------------
class NumpyDialect(TableDialect):
    """Plain classes and functions, and weights in an ``.npz`` file."""

    name = "numpy"
    text = NumpyText
    imports = ("np", "math", "ml_dtypes")
    method = "__call__"
    base = ""
    by_position = 1
    identity = "Identity()"
    has_sequential = False
    suffix = ".npz"
    parts = ("Identity", "Weights", "load_weights")
    modules = (("ml_dtypes", "ml_dtypes"), ("numpy", "np"))
    names = (("sliding_window_view", "from numpy.lib.stride_tricks import sliding_window_view"),)

    def is_kept(self, node: Node) -> bool:
        several = node.type if isinstance(node.type, tuple) else ()  # several results, each of which is rounded
        return super().is_kept(node) and not any(type.dtype.is_half for type in several)

    def array(self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]) -> str:
        return f"self.{part} = {_zeros(value, size_names(module, value))}"

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        return _zeros(value)

    def module_list(self, listed: str, is_called: bool) -> str:
        return f"[{listed}]"

    def lacking(self, made: str) -> str:
        return "[]" if made.startswith("[") else self.identity

    def load(self) -> list[str]:
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights."""',
            "        return load_weights(cls(), path)",
        ]

    def save(self, arrays: Mapping[str, Any], path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, value in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)


def _zeros(value: Any, names: Iterable[str] = ()) -> str:
    type = type_of(value)
    dtype = type.dtype.long_name if not type.dtype.is_bool else "bool_"
    module = "ml_dtypes" if type.dtype is dtypes.bfloat16 else "np"
    shape = shape_text(type, names)
    return f"np.zeros({shape[1:-2] if type.rank == 1 else shape}, {module}.{dtype})"
