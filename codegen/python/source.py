"""Python source of a graph: a module file that a person could have written, and its weights.

In: a GraphModule. Out: the text of a Python file with one class, and a safetensors file beside it.
The file imports fxlite and NumPy's world, nothing of the program it was traced from::

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Weights(weight="f32[16,3,3,3]", bias="f32[16]")

        def forward(self, x):
            # conv (Conv2d), model.py:13
            conv2d = F.conv2d(x, self.conv.weight, self.conv.bias, padding=1)  # f32[B,16,32,32]
            ...

Tracing an instance gives the graph again. Calls are written with ``nn.functional`` where its
function means the same as the op, with operators where the op has one, else as ``ops.NAME``.
"""

from __future__ import annotations

import itertools
import linecache
import os
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fxlite
from fxlite.base.errors import CodegenError
from fxlite.base.location import REGENERATED
from fxlite.base.outside_text import comment, docstring, format_text, python_string
from fxlite.codegen.folder import FolderError
from fxlite.codegen.python.text import Names, Text, class_name, dim_lines, is_attribute, module_name
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.ops.wrapping import WrappedOp
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.show.text.pretty import type_text, wrap_code
from fxlite.types.guards import OPPOSITE
from fxlite.types.tensor_type import TensorType, type_of

__all__ = ["module_name", "python_program", "python_source", "save_python"]

_numbers = itertools.count()
_MARK = "Written by fxlite"


def save_python(
    gm: GraphModule, folder: str | os.PathLike[str], name: str | None = None, force: bool = False
) -> Path:
    """Write ``NAME.py`` (the class) and ``NAME.safetensors`` (its weights) into a folder; returns
    the path of the source. ``name`` defaults to the module's, in snake case.

    Raises CodegenError for leaf modules, FolderError where the folder cannot be written or a file
    of that name is not from fxlite (unless ``force``)."""
    file = module_name(name or gm.name)
    gm = flattened(gm)
    source = python_source(gm, name)
    target, weights = Path(folder, f"{file}.py"), Path(folder, f"{file}.safetensors")
    if (
        target.exists()
        and not force
        and _MARK not in target.read_text(errors="replace", encoding="utf-8")
    ):
        raise FolderError(f"{target} exists and was not written by fxlite; choose another name")
    if target.parent.is_file():
        raise FolderError(f"{target.parent} is a file; choose a folder")
    drafts = [p.with_name(f".{p.name}.{os.getpid()}") for p in (weights, target)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        save_safetensors(weight_arrays(gm), drafts[0])
        drafts[1].write_text(source, encoding="utf-8")
        for draft, final in zip(drafts, (weights, target)):
            os.replace(draft, final)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FolderError(f"cannot write {target}: {reason}") from error
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
    return target


def python_program(gm: GraphModule) -> Module:
    """The regenerated Python as a module that runs, with gm's weights; nothing is written."""
    gm = flattened(gm)
    source = python_source(gm)
    filename = f"{REGENERATED}/{module_name(gm.name)}_{next(_numbers)}.py"
    namespace: dict[str, Any] = {"__name__": module_name(gm.name), "__file__": filename}
    exec(compile(source, filename, "exec"), namespace)
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)  # a trace reads its checks
    weakref.finalize(namespace[class_name(gm.name)], linecache.cache.pop, filename, None)
    made: Module = namespace[class_name(gm.name)]()
    made.load_state_dict(weight_arrays(gm))
    return made.eval()


def weight_arrays(gm: GraphModule) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays the graph reads, by path."""
    return {t: np.asarray(gm.get_attribute(t)) for t in _weight_paths(gm.graph)}


def _weight_paths(graph: Graph) -> list[str]:
    return list(dict.fromkeys(n.target for n in graph.nodes if n.op == "get_attr"))


def python_source(gm: GraphModule, name: str | None = None) -> str:
    """The text of the module file. It imports the functions given to fx.wrap from their modules;
    GraphModules that are called are written inline.

    Raises CodegenError for a graph that calls other leaf modules, whose source fxlite does not
    have, and for wrapped functions that are local to another one."""
    gm = flattened(gm)
    for node in gm.graph.nodes:
        if node.op == "call_module":
            raise CodegenError(
                f"{node.describe()}: the source of the leaf module self.{node.target} cannot be "
                f"regenerated; {gm.get_submodule(node.target).leaf_advice}"
            )
        if isinstance(node.target, WrappedOp) and not node.target.is_importable:
            raise CodegenError(
                f"{node.describe()}: {node.target.title} cannot be imported by other files; define "
                f"it at the level of a module"
            )
    return _Source(gm, name or gm.name).text()


class _Source:
    """Prints one module."""

    def __init__(self, gm: GraphModule, name: str) -> None:
        self.gm, self.graph = gm, gm.graph
        self.file, self.class_name = module_name(name), class_name(name)
        self.names = Names(gm.graph, self.class_name)
        self.tree = _tree(gm)
        self.print = Text(self.names)
        self.indexed = any(not is_attribute(part) for part in self.tree)

    def text(self) -> str:
        methods = [self._init(), self._load(), self._forward()]
        base = "Weights" if self.indexed else "nn.Module"
        body = [f"class {self.class_name}({base}):"]
        if not self.tree:
            methods = methods[2:]
        for number, method in enumerate(methods):
            body += ["", *method] if number else method
        results = self._result_classes()
        head = [*self._documentation(), "", *self._imports("\n".join((*results, *body))), ""]
        if self.tree:
            head += [f'WEIGHTS = Path(__file__).with_name("{self.file}.safetensors")', ""]
        head.append("")
        return "\n".join([*head, *results, *body, ""])

    # -- head ----------------------------------------------------------------------------------
    def _documentation(self) -> list[str]:
        inputs = ", ".join(
            f"{n.target}: {n.type}" if n.type is not None else str(n.target)
            for n in self.graph.placeholders
        )
        output = self.graph.output_node().type
        result = f" -> {docstring(type_text(output))}" if output is not None else ""
        first = docstring(f"{self.class_name}: ({inputs}){result}")
        make = f"{self.class_name}.load()" if self.tree else f"{self.class_name}()"
        given = ", ".join(str(n.target) for n in self.graph.placeholders)
        lines = [f'"""{line}' if not i else line for i, line in enumerate(_fill(first))]
        lines += [
            "", f"{_MARK} {fxlite.__version__} from {docstring(self.gm.name)}."
            + (f" The weights are in {self.file}.safetensors." if self.tree else ""), "",
            f"    from {self.file} import {self.class_name}", "",
            f"    model = {make}", f"    result = model({given})  # NumPy arrays in and out",
            '"""',
        ]  # fmt: skip
        return lines

    def _imports(self, body: str) -> list[str]:
        def used(name: str) -> bool:
            return re.search(rf"(?<![\w.\"']){re.escape(name)}(?!\w)", body) is not None

        alias = self.names.imports
        standard = []
        if used(alias["math"]):
            standard.append(_import("import math", "math", alias["math"]))
        if used("NamedTuple"):
            standard.append("from typing import Any, NamedTuple")
        if self.tree:
            standard.insert(0, "from pathlib import Path")
        own = []
        if used(alias["F"]):
            own.append(f"import fxlite.nn.functional as {alias['F']}")
        if self.tree:
            own.insert(0, "import fxlite as fx")
        names = {"nn": "nn", "ops": alias["ops"], "shapes": alias["shapes"]}
        plain = [n for n, a in names.items() if used(a)]
        if plain:
            listed = ", ".join(n if names[n] == n else f"{n} as {names[n]}" for n in plain)
            own.append(f"from fxlite import {listed}")
        helpers = [n for n in ("Buffer", "Weights") if used(n)]
        if helpers:
            own.append(f"from fxlite.nn.container import {', '.join(helpers)}")
        by_module: dict[str, list[str]] = {}
        for op, name in self.names.functions.items():
            own_name = op.function.__name__
            listed = own_name if own_name == name else f"{own_name} as {name}"
            by_module.setdefault(op.function.__module__, []).append(listed)
        program = [f"from {m} import {', '.join(sorted(n))}" for m, n in by_module.items()]
        groups = (sorted(standard, key=_import_order), own, sorted(program))
        return [line for g in groups if g for line in (*g, "")][:-1]

    def _result_classes(self) -> list[str]:
        """A NamedTuple class for each sort of named tuple in the result."""
        lines: list[str] = []
        for original, name in self.names.tuples.items():
            lines += [f"class {name}(NamedTuple):"]
            lines += [f"    {field}: Any" for field in original._fields]
            lines += ["", ""]
        return lines

    # -- methods -------------------------------------------------------------------------------
    def _init(self) -> list[str]:
        lines = ["    def __init__(self):", "        super().__init__()"]
        for part, value in self.tree.items():
            if isinstance(value, dict):
                made = self._weights(value)
            elif self.indexed:
                made = _type_argument(value)
            elif isinstance(value, Parameter):
                made = f"nn.Parameter({self.names.imports['ops']}.zeros({_zeros(value)}))"
            else:
                lines += wrap_code(
                    f"        self.register_buffer({python_string(part)}, "
                    f"{self.names.imports['ops']}.zeros({_zeros(value)}))"
                )
                continue
            if self.indexed:
                lines += wrap_code(f"        self.add({python_string(part)}, {made})")
            else:
                lines += wrap_code(f"        self.{part} = {made}")
        return lines

    def _weights(self, tree: dict[str, Any]) -> str:
        named, others = [], []
        texts = {
            part: self._weights(value) if isinstance(value, dict) else _type_argument(value)
            for part, value in tree.items()
        }
        if len(texts) > 1 and list(texts) == [str(i) for i in range(len(texts))]:
            first_text = texts["0"]
            if all(t == first_text for t in texts.values()):  # layers that are all alike
                return f"Weights({{i: {first_text} for i in range({len(texts)})}})"
        for part, text in texts.items():
            if is_attribute(part):
                named.append(f"{part}={text}")
            else:
                key = part if _is_number(part) else python_string(part)
                others.append(f"{key}: {text}")
        first = ["{" + ", ".join(others) + "}"] if others else []
        return f"Weights({', '.join([*first, *named])})"

    def _load(self) -> list[str]:
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights, ready to run."""',
            "        model = cls()",
            "        model.load_state_dict(fx.load_safetensors(path))",
            "        return model.eval()",
        ]

    def _forward(self) -> list[str]:
        lines = wrap_code(f"    def forward({', '.join(self._parameters())}):")
        shown = ""
        for line in self._rebound():
            lines.append(f"        {line}")
        lines += self._checks()
        for node in self.graph.nodes:
            if node.op in ("placeholder", "get_attr") or node in self.names.unpacked:
                continue
            if node.op == "output":
                lines += wrap_code(f"        return {self.print.value(node.args[0])}")
                continue
            origin = comment(node.origin)
            if origin != shown and origin:
                lines.append(f"        # {origin}")
            shown = origin
            lines += self._line(node)
        return lines

    def _parameters(self) -> Iterator[str]:
        yield "self"
        for node in self.graph.placeholders:
            name = self.names.parameters[node]
            yield f"{name}={self.print.value(node.args[0])}" if node.args else name

    def _rebound(self) -> Iterator[str]:
        for node in self.graph.placeholders:
            if self.names[node] != self.names.parameters[node]:
                yield f"{self.names[node]} = {self.names.parameters[node]}"
        yield from dim_lines(self.graph, self.names)

    def _checks(self) -> Iterator[str]:
        """What the named dims must fulfil, and where the program or fx.dims says so."""
        shown = ""
        for guard in self.graph.conditions():
            place, said = guard.loc, "declared by fx.dims"
            if place is not None:
                said = comment(f"{place.short}: {place.expression}").removesuffix(":")
            if said != shown:
                yield f"        # {said}"
            shown = said
            left, right = (self.print.dim(side) for side in (guard.left, guard.right))
            given = ", ".join(f"{name}={{{name}}}" for name in sorted(guard.names))
            by = "" if place is None else f" by {format_text(place.short)}"
            yield f"        if {left} {OPPOSITE[guard.relation]} {right}:"
            yield f'            raise ValueError(f"{guard} is required{by}; got {given}")'

    def _line(self, node: Node) -> list[str]:
        """``relu = F.relu(linear)  # f32[B,10]``, broken at 100 columns."""
        parts = self.names.parts.get(node)
        if parts is not None:
            left = ", ".join(parts) if len(parts) > 1 else f"({parts[0]},)"
        else:
            left = self.names[node]
        code = f"        {left} = {self.print.call(node)}"
        note = comment(type_text(node.type)) if node.type is not None else ""
        if note and len(code) + len(note) + 4 <= 100:
            return [f"{code}  # {note}"]
        lines = wrap_code(code, always=bool(note))
        if not note:
            return lines
        if len(lines) == 1 or len(lines[-1]) + len(note) + 4 > 100:
            return [f"        # {note}"[:100], *wrap_code(code)]
        return [*lines[:-1], f"{lines[-1]}  # {note}"]


def _tree(gm: GraphModule) -> dict[str, Any]:
    """The weights as nested dicts by the parts of their paths."""
    tree: dict[str, Any] = {}
    for path in _weight_paths(gm.graph):
        *parents, name = path.split(".")
        inner = tree
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[name] = gm.get_attribute(path)
    return tree


def _is_number(part: str) -> bool:
    return part.isdigit() and str(int(part)) == part


def _type_argument(value: Any) -> str:
    text = f'"{type_of(value)}"'
    return text if isinstance(value, Parameter) and value.is_parameter else f"Buffer({text})"


def _zeros(value: Any) -> str:
    found: TensorType = type_of(value)
    return f'{found.shape!r}, dtype="{found.dtype.name}"'


def _import(plain: str, name: str, alias: str) -> str:
    return plain if name == alias else f"{plain} as {alias}"


def _import_order(line: str) -> tuple[bool, str]:
    return (line.startswith("from"), line)


def _fill(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 96, subsequent_indent="    ", break_long_words=False) or [""]
