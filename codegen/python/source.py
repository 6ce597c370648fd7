"""Python source of a graph: a module file that a person could have written, and its weights.

In: a GraphModule. Out: the text of a Python file with one class, and a safetensors file beside it. The file
imports fxlite and libraries such as NumPy, but nothing from the program it was traced from::

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = Weights(weight="f32[16,3,3,3]", bias="f32[16]")

        def forward(self, x):
            # conv (Conv2d), model.py:13
            conv2d = F.conv2d(x, self.conv.weight, self.conv.bias, padding=1)  # f32[B,16,32,32]
            ...

Tracing an instance gives the graph again. Calls are written with ``nn.functional`` if its function means
the same as the op, with operators if the op has one, and otherwise as ``ops.NAME``.
"""

from __future__ import annotations

import ast
import io
import itertools
import linecache
import os
import sys
import textwrap
import tokenize
import types
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fxlite
from fxlite.base.errors import CodegenError, OptionError
from fxlite.base.location import REGENERATED
from fxlite.base.outside_text import docstring
from fxlite.codegen.folder import LICENSE, UNKNOWN_LICENSE, FolderError, add_to_folder, facts_of
from fxlite.codegen.python.classes import classes_of, factored
from fxlite.codegen.python.dialect import FUNCTION, Dialect, NumpyDialect
from fxlite.codegen.python.parameters import nested_text, types_of
from fxlite.codegen.python.text import class_name, module_name
from fxlite.codegen.python.torch_dialect import TorchDialect
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import bodies_of
from fxlite.nn.module import Module
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.cutting.outline_modules import outline_modules, with_own_constants
from fxlite.passes.inside import control_nodes
from fxlite.show.comparison.compare import operands

__all__ = ["module_name", "python_program", "python_source", "save_python"]

DIALECTS: dict[str, Dialect] = {made.name: made for made in (Dialect(), NumpyDialect(), TorchDialect())}
"""How regenerated source may be written, by name."""

_numbers = itertools.count()
MARK = "Written by fxlite"


def save_python(
    gm: GraphModule,
    folder: str | os.PathLike[str],
    name: str | None = None,
    force: bool = False,
    dialect: str = "fxlite",
) -> Path:
    """Write ``NAME.py`` (the class) and its weights, ``NAME.safetensors`` or, in the dialect
    "numpy", ``NAME.npz``, into a folder; returns the path of the source. ``name`` defaults to the
    module's, in snake case. See :func:`python_source` for ``dialect``. The folder's
    ``manifest.json`` lists the files of all models in it.

    Raises CodegenError for leaf modules and for ops that the dialect cannot express, and FolderError if the
    folder cannot be written or a file of that name was not written by fxlite (unless ``force``)."""
    file = module_name(name or gm.name)
    written_in = find_dialect(dialect)
    source, arrays = _regenerated(gm, name, written_in)
    target, weights = Path(folder, f"{file}.py"), Path(folder, f"{file}{written_in.suffix}")
    if target.exists() and not force and MARK not in target.read_text(errors="replace", encoding="utf-8"):
        raise FolderError(f"{target} exists and was not written by fxlite; choose another name")

    def write(work: Path) -> Mapping[str, Any]:
        written_in.save(arrays, work / weights.name)
        (work / target.name).write_text(source, encoding="utf-8")
        options = {"dialect": dialect}
        made = facts_of(gm, gm, options, (), _needs(source))
        return {**made, "model": class_name(name or gm.name)}

    add_to_folder(folder, write, force)
    return target


#: Licenses of packages that regenerated source may import.
_LICENSES = {
    "fxlite": LICENSE,
    "ml_dtypes": "Apache-2.0",
    "numpy": "BSD-3-Clause",
    "safetensors": "Apache-2.0",
    "torch": "BSD-3-Clause",
}


def _needs(source: str) -> list[dict[str, str]]:
    """The packages that a text imports, besides Python's own."""
    imports = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [getattr(n, "module", None) or n.names[0].name for n in imports]
    packages = sorted({name.partition(".")[0] for name in names} - sys.stdlib_module_names)
    version = {"fxlite": {"version": fxlite.__version__}}
    return [
        {"name": name, **version.get(name, {}), "license": _LICENSES.get(name, UNKNOWN_LICENSE)} for name in packages
    ]


def python_program(gm: GraphModule) -> Module:
    """The regenerated Python as a module that runs, with gm's weights; nothing is written."""
    made, arrays = program_in(gm, "fxlite")
    made.load_state_dict(arrays)
    return made.eval()  # type: ignore[no-any-return]


def program_in(gm: GraphModule, dialect: str) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """An instance of the class regenerated in a dialect, and the arrays for its weights; nothing is written.
    Raises what :func:`python_source` raises."""
    source, arrays = _regenerated(gm, None, find_dialect(dialect))
    stem = f"{module_name(gm.name)}_{next(_numbers)}"
    filename = f"{REGENERATED}/{stem}.py"
    namespace: dict[str, Any] = {"__name__": module_name(gm.name), "__file__": filename}
    if control_nodes(gm.graph):  # torch imports the module of a function that it follows into a condition or loop
        held = sys.modules[f"_fxlite_{stem}"] = types.ModuleType(f"_fxlite_{stem}")
        namespace = vars(held)
        namespace["__file__"] = filename
    exec(compile(source, filename, "exec"), namespace)
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)  # a trace reads its checks
    weakref.finalize(namespace[class_name(gm.name)], linecache.cache.pop, filename, None)
    return namespace[class_name(gm.name)](), arrays


def python_source(gm: GraphModule, name: str | None = None, dialect: str = "fxlite") -> str:
    """The text of the module file. It imports the functions given to fx.wrap from their modules;
    GraphModules that are called are written inline. ``dialect`` is "fxlite" (``fxlite.nn``), "numpy" (NumPy
    alone) or "torch" (``torch.nn``).

    Raises CodegenError for a graph that calls other leaf modules, whose source fxlite does not have, for
    wrapped functions that are local to another one, and for an op that the dialect cannot express;
    OptionError for an unknown dialect."""
    return _regenerated(gm, name, find_dialect(dialect))[0]


def find_dialect(name: str) -> Dialect:
    """The dialect of that name. Raises OptionError."""
    if name not in DIALECTS:
        known = ", ".join(DIALECTS)
        raise OptionError(f"dialect= must be one of {known}, not {name!r}")
    return DIALECTS[name]


def _refuse_control(gm: GraphModule, dialect: Dialect) -> None:
    """Raise CodegenError for loops and conditions, which files of classes in most dialects cannot express."""
    for node in () if dialect.has_control else control_nodes(gm.graph):
        raise CodegenError(
            f"{node.describe()}: files of classes have no loops and conditions but in the dialect 'torch'; "
            "gm.graph.text(full=True) and gm.graph.python_code() have them, and a .fxl file (fx.save)"
        )


def written_program(gm: GraphModule, dialect: str) -> tuple[GraphModule, dict[str, str]]:
    """The graph that the text in a dialect expresses, and the weights whose paths differ from those in
    ``gm`` (new path -> path in ``gm``). Raises what :func:`python_source` raises."""
    _refuse_control(gm, find_dialect(dialect))
    gm = flattened(gm)
    for node in gm.graph.nodes:
        if node.op == "call_module":
            raise CodegenError(
                f"{node.describe()}: the source of the leaf module self.{node.target} cannot be "
                f"regenerated; {gm.get_submodule(node.target).leaf_advice}"
            )
    made = with_own_constants(find_dialect(dialect).prepared(gm))
    for node in made.graph.nodes:
        if isinstance(node.target, ForeignOp) and not node.target.is_importable:
            raise CodegenError(
                f"{node.describe()}: {node.target.title} cannot be imported by other files; define "
                f"it at the level of a module"
            )
    before = {node.name: node for node in gm.graph.nodes}
    paths = {
        str(new.target): str(old.target)
        for node in made.graph.nodes
        if node.name in before
        for old, new in zip(operands(before[node.name]), operands(node))
        if old.op == new.op == "get_attr" and old.target != new.target
    }
    return made, paths


def _regenerated(gm: GraphModule, name: str | None, dialect: Dialect) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    """The text, and by path the arrays that the graph reads or that its layers hold in addition."""
    gm, _ = written_program(gm, dialect.name)
    program = _Source(gm, name or gm.name, dialect)
    weights = gm.graph.find_nodes(op="get_attr")
    reads = dict.fromkeys(n.target for n in weights if n.users and not dialect.is_number(n))
    arrays = {path: np.asarray(gm.get_attribute(path)) for path in reads}
    arrays |= {target: np.asarray(gm.get_attribute(path)) for target, path in gm.states}
    for path, layer in program.layers.items():
        arrays |= {f"{path}.{key}": value for key, value in layer.state.items()}
    return program.text(), arrays


class _Source:
    """Prints one program; ``layers`` are its layers of ``fxlite.nn``, by path."""

    def __init__(self, gm: GraphModule, name: str, dialect: Dialect) -> None:
        self.gm, self.graph, self.dialect = gm, gm.graph, dialect
        self.module_name = module_name(name)
        #: For a loop or condition: its node, and the source of each of its bodies, a class.
        self.controls = [(node, self._bodies(node, name)) for node in control_nodes(self.graph)]
        self.file, self.classes, self.layers = classes_of(outline_modules(gm), name, dialect)
        self.class_name = self.classes[-1].name
        self.has_weights = bool(self.classes[-1].drafts[0].tree)

    def _bodies(self, node: Node, name: str) -> list[_Source]:
        """The sources of a node's bodies, each with its calls in one function; also names the node's function."""
        node.meta[FUNCTION] = f"{self.module_name}_{node.name}"
        found = []
        for part, body in bodies_of(node).items():
            graph, copies = body.copy()
            behind = next(n for n in graph.nodes if n.op != "placeholder")
            for place in body.inputs:  # in their order
                behind.prepend(copies[place])
            for own in graph.nodes:
                own.scope = own.loc = None
            inner = f"{class_name(name)}_{node.name}_{part.removesuffix('_fn')}"
            found.append(_Source(GraphModule({}, graph, inner), inner, self.dialect))
        return found

    def all_sources(self) -> list[_Source]:
        """The sources of all bodies, innermost first, and this one."""
        return [s for _, bodies in self.controls for body in bodies for s in body.all_sources()] + [self]

    def _lines(self) -> list[str]:
        """The classes, preceded by the functions for loops and conditions in them."""
        text: list[str] = []
        for node, bodies in self.controls:
            for body in bodies:
                text += [*body._lines(), "", ""]
            text += [*self.dialect.control(node, [body.class_name for body in bodies]), "", ""]
        text += factored(self.classes, {made.name for made in self.classes} | self.file.taken)
        for made in self.classes[:-1]:
            text += [*made.lines(), "", ""]
        return text + self.classes[-1].lines(self.dialect.load() if self.has_weights else ())

    def text(self) -> str:
        body = self._lines()
        results = self._result_classes()
        words = _names_in("\n".join((*results, *body)))
        definitions = self._definitions(words)
        words |= _names_in(definitions)
        head = [*self._documentation(), "", *self._imports(words), ""]
        if self.has_weights:
            file = f"{self.module_name}{self.dialect.suffix}"
            head += [f'WEIGHTS = Path(__file__).with_name("{file}")', ""]
        head.append("")
        return "\n".join([*head, *results, *definitions.splitlines(), *body, ""])

    def _definitions(self, words: set[str]) -> str:
        """Helper functions and classes of the file, and other names for them if a parameter has theirs."""
        named = self.file.helpers
        own = [name for name, alias in named.items() if alias in words]
        own += [name for source in self.all_sources()[:-1] for name in source.file.helpers if name in words]
        text = self.dialect.definitions([*own, *words.intersection(self.dialect.parts)])
        others = [f"{alias} = {name}" for name, alias in named.items() if name in own and alias != name]
        return "\n".join([text, *others, "", "", ""]) if others else text

    # -- head ----------------------------------------------------------------------------------
    def _documentation(self) -> list[str]:
        types = [*types_of(self.graph)]
        inputs = ", ".join(f"{name}: {type}" if type else name for name, type in types)
        output, states = self.graph.output_node().type, dict(self.gm.states)
        writes = [f"self.{t}" if t in states else t for t in self.gm.written_inputs()]
        if writes:
            output = output[0]
        result = f" -> {docstring(nested_text(output))}" if output is not None else ""
        result += f"; writes into {', '.join(writes)}" if writes else ""
        first = docstring(f"{self.class_name}: ({inputs}){result}")
        make = f"{self.class_name}.load()" if self.has_weights else f"{self.class_name}()"
        given = ", ".join(name for name, _ in types)
        file = f"{self.module_name}{self.dialect.suffix}"
        weights = f" The weights are in {file}." if self.has_weights else ""
        lines = [f'"""{line}' if not i else line for i, line in enumerate(_fill(first))]
        origin = f"{MARK} {fxlite.__version__} from {docstring(self.gm.name)}.{weights}"
        lines += [
            "",
            *_fill(origin),
            "",
            f"    from {self.module_name} import {self.class_name}",
            "",
            f"    model = {make}",
            f"    result = model({given})  # {self.dialect.values} in and out",
            '"""',
        ]
        return lines

    def _imports(self, words: set[str]) -> list[str]:
        def used(name: str) -> bool:
            return name in words

        alias = self.file.imports
        standard, own = self.dialect.import_lines(used, alias)
        if used(alias.get("math", "")):
            standard.append("import math" if alias["math"] == "math" else f"import math as {alias['math']}")
        if used("dataclass"):
            standard.append("from dataclasses import dataclass")
        typing = [name for name in ("Any", "NamedTuple") if used(name)]
        if typing:
            standard.append(f"from typing import {', '.join(typing)}")
        if self.has_weights:
            standard.append("from pathlib import Path")
        by_module: dict[str, list[str]] = {}
        for op, name in self.file.functions.items():
            own_name = op.function.__name__
            listed = own_name if own_name == name else f"{own_name} as {name}"
            by_module.setdefault(op.function.__module__, []).append(listed)
        program = [f"from {m} import {', '.join(sorted(n))}" for m, n in by_module.items()]
        groups = (sorted(standard, key=lambda line: (line.startswith("from"), line)), own, sorted(program))
        return [line for g in groups if g for line in (*g, "")][:-1]

    def _result_classes(self) -> list[str]:
        """The program's dataclasses and named tuples that occur in the result."""
        lines: list[str] = []
        for (kind, _, fields), name in self.file.records.items():
            is_tuple = kind == "namedtuple"
            lines += [f"class {name}(NamedTuple):"] if is_tuple else ["@dataclass", f"class {name}:"]
            lines += [f"    {field}: Any" for field in fields]
            lines += ["", ""]
        return lines


def _names_in(text: str) -> set[str]:
    """The names that a text uses, without attribute names."""
    tokens = [*tokenize.generate_tokens(io.StringIO(text).readline)]
    return {
        token.string
        for before, token in itertools.pairwise([tokens[0], *tokens])
        if token.type == tokenize.NAME and before.string != "."
    }


def _fill(text: str) -> list[str]:
    return textwrap.wrap(text, 96, subsequent_indent="    ", break_long_words=False) or [""]
