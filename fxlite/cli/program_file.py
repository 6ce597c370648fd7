"""Programs named on the command line: ``model.py:Block`` or a saved ``.fxl`` file.

In: such a text, and optionally a file of weights. Out: a module or function that runs on NumPy arrays.
A ``.py`` file is run as Python runs it, with its folder on the import path.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fxlite.base.errors import FxliteError, did_you_mean
from fxlite.base.location import described, is_own_file
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, StateDictError
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.tracing.torch_names import refuse_torch_module
from fxlite.types import shapes
from fxlite.types.facts import Facts


class ProgramError(FxliteError):
    """The program, or its weights, cannot be loaded."""


def trace_program(
    text: str, weights: str | None = None, inputs: Sequence[tuple[str, Any]] = (), need_types: bool = False
) -> tuple[Any, GraphModule]:
    """The program that ``text`` names, and its graph; ``inputs`` are pairs of name and type.

    Raises ProgramError (with ``need_types`` also for inputs without a type), and the errors of the
    tracer, which name file and line."""
    program = load_program(text, weights)
    types = unique(inputs, "--input")
    is_graph = isinstance(program, GraphModule) and not types
    module = program if is_graph else symbolic_trace(program, inputs=types)
    untyped = [str(n.target) for n in module.graph.placeholders if n.type is None]
    if untyped and need_types:
        shown = " ".join(f'--input "{name}=f32[...]"' for name in untyped)
        raise ProgramError(f"{text} needs types of its inputs: {shown}")
    return program, module


def with_facts(inputs: Sequence[tuple[str, Any]], facts: Sequence[tuple[str, Facts]]) -> list[tuple[str, Any]]:
    """The pairs of name and type, with the facts of their named dims. Raises ProgramError for a dim that
    no type has."""
    known = unique(facts, "--dim")
    have = shapes.names([type.shape for _, type in inputs])
    for name in known:
        if name not in have:
            listed = ", ".join(sorted(have)) or "there is none"
            raise ProgramError(f"--dim {name}: no --input has that named dim ({listed})")
    dims = {name: shapes.symbols.symbol(name, found) for name, found in known.items()}
    return [(name, type.substitute(dims)) for name, type in inputs]


def unique(pairs: Sequence[tuple[str, Any]], option: str) -> dict[str, Any]:
    """Pairs as a dict. Raises ProgramError for a name that is given twice."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ProgramError(f"{option} {name} is given twice")
        made[name] = value
    return made


def load_program(text: str, weights: str | None = None, sources: Mapping[str, bytes] | None = None) -> Any:
    """The program that ``FILE.py:NAME`` or ``FILE.fxl`` names, in evaluation mode, with its
    weights.

    NAME is a module, a Module class or a function without required arguments that makes a Module
    (both are called), or any other function, which is the program itself. ``sources`` has contents of
    files; see :func:`find_object`. Raises ProgramError."""
    if text.endswith(".fxl"):
        if not Path(text).is_file():
            raise ProgramError(f"there is no file {text}")
        from fxlite.files.serialize import load

        program = load(text)
    else:
        path, colon, name = text.rpartition(":")
        if not colon or not path.endswith(".py"):
            is_source = text.endswith(".py") and Path(text).is_file()
            near = _near_names(_run_file(text), "", Path(text).stem) if is_source else ""
            raise ProgramError(f"{text!r} does not name a program; write FILE.py:NAME or FILE.fxl{near}")
        program = _instance(find_object(path, name, sources), text)
    if isinstance(program, Module):
        program.eval()
    if weights is not None:
        _load_weights(program, weights)
    return program


def find_object(path: str, name: str, sources: Mapping[str, bytes] | None = None) -> Any:
    """The object ``name`` of a Python file, which is run; if ``sources`` has its absolute path, with the
    contents given there. Raises ProgramError."""
    found = module = _run_file(path, sources)
    for part in name.split("."):
        if not hasattr(found, part):
            near = _near_names(module, name, Path(path).stem)
            raise ProgramError(f"{path} has no {name!r}{near}")
        found = getattr(found, part)
    return found


def import_named(text: str) -> None:
    """Import FILE.py, or a module by name, which is in the current folder or installed. Raises
    ProgramError."""
    if text.endswith(".py"):
        _run_file(text)
        return
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        importlib.import_module(text)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"--import {text}: {described(error)}") from error


def _run_file(path: str, sources: Mapping[str, bytes] | None = None) -> Any:
    """Run a Python file, and return its module."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ProgramError(f"there is no file {path}{_near_files(Path(path))}")
    loader = None if sources is None else _OverlayLoader(file.stem, str(file), sources)
    spec = importlib.util.spec_from_file_location(file.stem, file, loader=loader)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.parent))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ProgramError(f"{path} cannot be imported: {described(error, file)}") from error
    return module


class _Overlay(importlib.abc.MetaPathFinder):
    """Imports files with contents that differ from those on disk."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self.sources = sources

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None and spec.origin in self.sources:
            spec.loader = _OverlayLoader(name, spec.origin, self.sources)
            return spec
        return None


class _OverlayLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, sources: Mapping[str, bytes]) -> None:
        super().__init__(name, path)
        self.sources = sources

    def get_data(self, path: str) -> bytes:
        return self.sources[path] if path in self.sources else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError("compiled code is not kept")


@contextlib.contextmanager
def fresh_modules(folder: Path, sources: Mapping[str, bytes]) -> Iterator[None]:
    """Inside, modules of files below ``folder`` are imported anew, with the contents ``sources`` (by
    absolute path) in place of those on disk; afterwards all modules are as before."""
    own = {
        name: module
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and _is_below(file, folder)
    }
    known, path = {*sys.modules} - own.keys(), list(sys.path)
    for name in own:
        del sys.modules[name]
    finder = _Overlay(sources)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if name not in known and _is_below(getattr(module, "__file__", None) or "", folder):
                del sys.modules[name]
        sys.modules.update(own)


def _is_below(file: str, folder: Path) -> bool:
    if not file:
        return False
    above, name = os.path.split(file)
    path = os.path.join(_real_folder(above), name)
    if os.path.islink(path):
        path = os.path.realpath(path)
    found = Path(path)
    return found.is_relative_to(folder) and "site-packages" not in found.parts and not is_own_file(path)


@functools.cache
def _real_folder(folder: str) -> str:
    """A folder without links. It is asked for each imported module, and these are in few folders."""
    return os.path.realpath(folder)


def _near_files(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.glob("*.py")]
    except OSError:
        return ""
    near = difflib.get_close_matches(path.name, names, 1)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def _near_names(module: Any, name: str, own: str) -> str:
    """Similar names or, if there are none, the programs that the file defines."""
    public = {n: v for n, v in vars(module).items() if not n.startswith("_")}
    if near := did_you_mean(name, public):
        return near
    programs = [n for n, v in public.items() if callable(v) and getattr(v, "__module__", None) == own]
    return f"; it defines {', '.join(programs[:8]) or 'no function and no class'}"


def _instance(found: Any, text: str) -> Any:
    """The result of calling a class or factory; modules and other functions as they are."""
    refuse_torch_module(found)
    is_class = inspect.isclass(found)
    if is_class and not issubclass(found, Module):
        raise ProgramError(f"{text} is a class, but not an nn.Module")
    if not callable(found):
        raise ProgramError(f"{text} is neither a model nor a function: {type(found).__name__}")
    if isinstance(found, Module) or not (is_class or _is_factory(found)):
        return found
    try:
        made = found()
    except Exception as error:
        hint = ""
        if is_class and isinstance(error, TypeError) and "argument" in str(error):
            hint = "; name a function that makes one: def make(): return MODEL(...)"
        raise ProgramError(f"{text}() failed: {described(error)}{hint}") from error
    if not is_class and not callable(made):
        raise ProgramError(f"{text}() returns a {type(made).__name__}, not a model")
    return made


def _is_factory(function: Any) -> bool:
    """True for a function that can be called without arguments."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _load_weights(program: Any, path: str) -> None:
    if not isinstance(program, Module):
        raise ProgramError("--weights: the program is a function, which has no weights")
    if not Path(path).is_file():
        is_folder = Path(path).is_dir()
        raise ProgramError(f"{path} is a folder, not a file of weights" if is_folder else f"there is no file {path}")
    try:
        program.load_state_dict(path)
    except StateDictError as error:
        raise ProgramError(f"{path}: {error}") from error
