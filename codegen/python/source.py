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

import io
import itertools
import linecache
import os
import tokenize
import weakref
from pathlib import Path
from typing import Any

import numpy as np

import fxlite
from fxlite.base.errors import CodegenError
from fxlite.base.location import REGENERATED
from fxlite.base.outside_text import docstring
from fxlite.codegen.folder import FolderError
from fxlite.codegen.python.classes import classes_of
from fxlite.codegen.python.text import class_name, module_name
from fxlite.files.serialize import save_safetensors
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.ops.wrapping import WrappedOp
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.cutting.outline_modules import outline_modules
from fxlite.show.text.pretty import type_text

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
    source, arrays = _regenerated(gm, name)
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
        save_safetensors(arrays, drafts[0])
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
    source, arrays = _regenerated(gm, None)
    filename = f"{REGENERATED}/{module_name(gm.name)}_{next(_numbers)}.py"
    namespace: dict[str, Any] = {"__name__": module_name(gm.name), "__file__": filename}
    exec(compile(source, filename, "exec"), namespace)
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)  # a trace reads its checks
    weakref.finalize(namespace[class_name(gm.name)], linecache.cache.pop, filename, None)
    made: Module = namespace[class_name(gm.name)]()
    made.load_state_dict(arrays)
    return made.eval()


def python_source(gm: GraphModule, name: str | None = None) -> str:
    """The text of the module file. It imports the functions given to fx.wrap from their modules;
    GraphModules that are called are written inline.

    Raises CodegenError for a graph that calls other leaf modules, whose source fxlite does not
    have, and for wrapped functions that are local to another one."""
    return _regenerated(flattened(gm), name)[0]


def _regenerated(gm: GraphModule, name: str | None) -> tuple[str, dict[str, np.ndarray[Any, Any]]]:
    """The text, and by path the arrays that the graph reads or that layers of its hold besides."""
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
    program = _Source(gm, name or gm.name)
    reads = dict.fromkeys(n.target for n in gm.graph.find_nodes(op="get_attr") if n.users)
    arrays = {path: np.asarray(gm.get_attribute(path)) for path in reads}
    for path, layer in program.layers.items():
        arrays |= {f"{path}.{key}": value for key, value in layer.state.items()}
    return program.text(), arrays


class _Source:
    """Prints one program; ``layers`` are those of ``fxlite.nn`` in it, by path."""

    def __init__(self, gm: GraphModule, name: str) -> None:
        self.gm, self.graph = gm, gm.graph
        self.module_name = module_name(name)
        self.file, self.classes, self.layers = classes_of(outline_modules(gm), name)
        self.class_name = self.classes[-1].name
        self.has_weights = bool(self.classes[-1].drafts[0].tree)

    def text(self) -> str:
        body: list[str] = []
        for made in self.classes[:-1]:
            body += [*made.lines(), "", ""]
        body += self.classes[-1].lines(self._load() if self.has_weights else ())
        results = self._result_classes()
        head = [*self._documentation(), "", *self._imports("\n".join((*results, *body))), ""]
        if self.has_weights:
            head += [f'WEIGHTS = Path(__file__).with_name("{self.module_name}.safetensors")', ""]
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
        make = f"{self.class_name}.load()" if self.has_weights else f"{self.class_name}()"
        given = ", ".join(str(n.target) for n in self.graph.placeholders)
        weights = f" The weights are in {self.module_name}.safetensors." if self.has_weights else ""
        lines = [f'"""{line}' if not i else line for i, line in enumerate(_fill(first))]
        lines += [
            "", f"{_MARK} {fxlite.__version__} from {docstring(self.gm.name)}.{weights}", "",
            f"    from {self.module_name} import {self.class_name}", "",
            f"    model = {make}", f"    result = model({given})  # NumPy arrays in and out",
            '"""',
        ]  # fmt: skip
        return lines

    def _imports(self, body: str) -> list[str]:
        tokens = [*tokenize.generate_tokens(io.StringIO(body).readline)]
        words = {
            token.string
            for before, token in itertools.pairwise([tokens[0], *tokens])
            if token.type == tokenize.NAME and before.string != "."
        }

        def used(name: str) -> bool:
            return name in words

        alias = self.file.imports
        standard = []
        if used(alias["math"]):
            standard.append(_import("import math", "math", alias["math"]))
        if used("NamedTuple"):
            standard.append("from typing import Any, NamedTuple")
        if self.has_weights:
            standard.insert(0, "from pathlib import Path")
        own = []
        if used(alias["F"]):
            own.append(f"import fxlite.nn.functional as {alias['F']}")
        if self.has_weights:
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
        for op, name in self.file.functions.items():
            own_name = op.function.__name__
            listed = own_name if own_name == name else f"{own_name} as {name}"
            by_module.setdefault(op.function.__module__, []).append(listed)
        program = [f"from {m} import {', '.join(sorted(n))}" for m, n in by_module.items()]
        groups = (sorted(standard, key=_import_order), own, sorted(program))
        return [line for g in groups if g for line in (*g, "")][:-1]

    def _result_classes(self) -> list[str]:
        """A NamedTuple class for each sort of named tuple in the result."""
        lines: list[str] = []
        for original, name in self.file.tuples.items():
            lines += [f"class {name}(NamedTuple):"]
            lines += [f"    {field}: Any" for field in original._fields]
            lines += ["", ""]
        return lines

    def _load(self) -> list[str]:
        return [
            "    @classmethod",
            "    def load(cls, path=WEIGHTS):",
            '        """The model with its weights, ready to run."""',
            "        model = cls()",
            "        model.load_state_dict(fx.load_safetensors(path))",
            "        return model.eval()",
        ]


def _import(plain: str, name: str, alias: str) -> str:
    return plain if name == alias else f"{plain} as {alias}"


def _import_order(line: str) -> tuple[bool, str]:
    return (line.startswith("from"), line)


def _fill(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(text, 96, subsequent_indent="    ", break_long_words=False) or [""]
