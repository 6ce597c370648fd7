"""``fx.reimport``: regenerated Python that somebody edited, as a graph again.

In: the file that ``gm.source()`` or ``gm.to_folder()`` wrote, as it is now, with its weights, and
``gm``. Out: the graph of what the file computes now, in which what is as it was is what it was. The
file is run: it is the user's code, and no data.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, CodegenError, FxliteError, TraceError
from fxlite.base.location import described
from fxlite.codegen.python.reimport.identity import with_identity
from fxlite.codegen.python.reimport.plain import PlainProgram, recomposed, with_ops
from fxlite.codegen.python.source import DIALECTS, MARK, written_program
from fxlite.codegen.python.text import class_name
from fxlite.files.serialize import load_safetensors
from fxlite.graph import pytree
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, StateDictError
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.tracing.symbolic_trace import symbolic_trace


@checked
def reimport(
    path: str | os.PathLike[str], like: GraphModule, inputs: Mapping[str, Any] | None = None, **named: Any
) -> GraphModule:
    """The graph of a regenerated file that was edited: ``fx.reimport("out/net.py", like=gm)``.

    ``path``: the file that :meth:`GraphModule.source` or :meth:`GraphModule.to_folder` wrote of
    ``like``, or its folder; dialects are "fxlite" and "numpy". Weights are read from the file
    beside it or, where there is none, taken from ``like``. Nodes that compute what they did keep
    name, ``meta``, scope and place in the original program, and so do inputs and weights; others
    come from their line of the edited file;
    ``fx.diff(like, made)`` says what changed. The passes that ``like`` remembers stay, and refusals
    in its ledger of nodes that do. New inputs need types, ``y="f32[B,4]"``, as in
    :func:`fxlite.symbolic_trace`; ``like`` stays as it is.

    The file is run. Raises CodegenError for a file that cannot be read or imported or is of another
    dialect, ArgumentError for inputs without a type and weights that are missing or do not fit, and
    what tracing raises, all naming file and line."""
    file = _File.read(Path(path))
    source, paths = written_program(like, file.dialect)
    program = file.program(class_name(like.name), source).train(like.training)
    own = file.load(program, source)
    declared = file.inputs(program, like, {**(inputs or {}), **named})
    with file.errors(TraceError, "cannot be traced"):
        made = symbolic_trace(program, inputs=declared)
    like = flattened(like)
    if file.dialect == "numpy":
        made = recomposed(made, like, paths)
    return with_identity(made, like, paths, own)


@dataclass(frozen=True)
class _File:
    """An edited file: its path, its syntax, and what it defines after it was run."""

    path: Path
    tree: ast.Module
    names: dict[str, Any]
    dialect: str = "fxlite"

    @classmethod
    def read(cls, path: Path) -> _File:
        """Run a file. Raises CodegenError."""
        if path.is_dir():
            path = _source_in(path)
        try:
            source = path.read_bytes()
        except OSError as error:
            raise CodegenError(f"cannot read {path}: {error.strerror or error}") from error
        path = path.resolve()
        linecache.checkcache(str(path))
        names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
        file = cls(path, ast.Module([], []), names)
        with file.errors(CodegenError, "cannot be imported"):
            tree = ast.parse(source, str(path))
            imported = {name.split(".")[0] for node in ast.walk(tree) for name in _imports(node)}
            if others := imported & {*DIALECTS} - {"fxlite", "numpy"}:
                raise CodegenError(
                    f"{path} is in the dialect {min(others)!r}, whose functions cannot be traced; "
                    f'edit the source in the dialect "fxlite": gm.source()'
                )
            exec(compile(tree, str(path), "exec"), names)
        return cls(path, tree, names, "fxlite" if "fxlite" in imported else "numpy")

    @contextlib.contextmanager
    def errors(self, kind: type[FxliteError], what: str) -> Iterator[None]:
        """Inside, its folder is on the path of imports, and other errors name its line."""
        before = list(sys.path)
        sys.path.insert(0, str(self.path.parent))
        try:
            yield
        except FxliteError:
            raise
        except SyntaxError as error:
            raise kind(f"{self.path}:{error.lineno} {what}: {error.msg}") from error
        except (Exception, SystemExit) as error:
            raise kind(f"{self.path} {what}: {described(error, self.path)}") from error
        finally:
            sys.path[:] = before

    def program(self, wish: str, source: GraphModule) -> Module:
        """An instance of the class of the program: that of the name, else the last; with the
        parameters of ``source``. Raises CodegenError."""
        classes = [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]
        if not classes:
            raise CodegenError(f"{self.path} defines no class; a regenerated file ends with one")
        found = self.names[wish if wish in classes else classes[-1]]
        with self.errors(CodegenError, f"{found.__name__}() failed"):
            made = found()
        if isinstance(made, Module):
            return made
        if self.dialect == "fxlite" or not callable(made):
            raise CodegenError(f"{self.path}: the class {found.__name__} is not an nn.Module")
        with_ops(self.names)
        trained = {name for name, _ in source.named_parameters()}
        return PlainProgram(made, trained.__contains__)

    def load(self, program: Module, source: GraphModule) -> set[str]:
        """Fill the weights, from the file beside it or those of ``source``; returns their paths.
        Raises ArgumentError."""
        suffix = DIALECTS[self.dialect].suffix
        beside = Path(self.names.get("WEIGHTS", self.path.with_suffix(suffix)))
        where = str(beside)
        if beside.is_file():
            arrays: Mapping[str, Any] = _read(beside)
        else:
            arrays, where = source.state_dict(), f"{source.name}, and there is no {beside}"
        own = program.state_dict()
        is_raw = {key for key, value in arrays.items() if value.dtype.kind == "V" and key in own}
        arrays = {**arrays, **{key: arrays[key].view(own[key].dtype) for key in is_raw}}
        for key in own:
            if key not in arrays:
                raise ArgumentError(
                    f"{self._line_of(key)}: the weight {key} {list(own[key].shape)} is not in "
                    f"{where}; add it to that file"
                )
        try:
            program.load_state_dict(arrays, strict=False)
        except StateDictError as error:
            raise ArgumentError(f"{self.path}: the weights in {where}: {error}") from error
        return {*own}

    def _line_of(self, key: str) -> str:
        """Where a module or array of a path is made, by the innermost name of it that is assigned
        to."""
        made = {
            target.attr: node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        lines = [made[part] for part in key.split(".") if part in made]
        return f"{self.path}:{lines[0]}" if lines else str(self.path)

    def inputs(self, program: Any, like: GraphModule, given: Mapping[str, Any]) -> dict[str, Any]:
        """Types by parameter: those that are given, and those that ``like`` has; a parameter that
        was renamed is found by its place. Raises ArgumentError for those without one."""
        parameters = inspect.signature(program.forward).parameters
        flat = {str(n.target): n.type for n in like.graph.placeholders}
        types: dict[str, Any] = flat
        nested = like.graph.interface
        if nested is not None and nested.covers(flat):
            types = {
                name: pytree.build(structure, lambda leaf: flat[leaf.name]) for name, _, structure in nested.parameters
            }
        unknown = [name for name in given if name not in parameters]
        if unknown:
            raise ArgumentError(f"{self._head()}: there is no parameter {unknown[0]!r}")
        known = {name: types[name] for name in parameters if name in types} | dict(given)
        new = [name for name, p in parameters.items() if name not in known and p.default is p.empty]
        gone = [name for name in types if name not in parameters]
        if len(new) == len(gone):
            known |= {name: types[other] for name, other in zip(new, gone)}
        elif new and any(flat.values()):
            raise ArgumentError(
                f"{self._head()}: the type of the new input {new[0]!r} is not known; give it: "
                f'fx.reimport(..., {new[0]}="f32[...]")'
            )
        return {name: known[name] for name in parameters if known.get(name) is not None}

    def _head(self) -> str:
        """Where the last method that computes begins."""
        lines = [
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name == DIALECTS[self.dialect].method
        ]
        return f"{self.path}:{max(lines)}"


def _read(path: Path) -> Mapping[str, Any]:
    """The arrays of a file of weights."""
    if path.suffix != ".npz":
        return load_safetensors(path)
    with np.load(path) as found:
        return dict(found)


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _source_in(folder: Path) -> Path:
    """The only file in a folder that fxlite has written. Raises CodegenError."""
    files = {p: p.read_text(encoding="utf-8", errors="replace") for p in folder.glob("*.py")}
    found = sorted(path for path, text in files.items() if MARK in text)
    if len(found) != 1:
        listed = ", ".join(p.name for p in found) or "none"
        raise CodegenError(f"{folder} holds {listed} that fxlite wrote; name one file")
    return found[0]
