"""Programs that torch.export.save wrote, read without running anything in them.

In: the path of a ``.pt2`` file. Out: an ``ExportedProgram``. torch.export.load unpickles parts of a file, and evaluates
formulas of sizes as Python expressions. Here, pickles may hold tensors only, objects of other kinds are refused, and so
are formulas with anything but numbers, names, operators and classes of SymPy.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import logging
import os
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import sympy
import torch
import torch.utils._sympy.functions

from fxlite.base.errors import ArgumentError, ModelImportError

#: How the names of parts that are Python objects, or objects of TorchScript, begin.
_OBJECTS = ("custom_obj_", "opaque_obj_")
_NODES = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.UnaryOp, ast.BinOp, ast.BoolOp, ast.Compare),
    *(ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
)
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?")
_LONGEST = 10_000  # characters of a formula


def loaded(path: str | os.PathLike[str]) -> Any:
    """The program in a file. Raises ArgumentError if it does not end in ``.pt2``, OSError if it cannot be read, and
    ModelImportError if torch did not write it, or if it holds what would be run."""
    name = os.fspath(path)
    if not name.endswith(".pt2"):
        raise ArgumentError(
            f"{name} is not a .pt2 file; ONNX models are imported by fx.from_onnx, weights are loaded by "
            "fx.load_weights, and models are made by their class"
        )
    with open(name, "rb"):  # a file that cannot be read is no damaged one
        logged = _Logged()
    try:
        _require_data(name)
        with _only_weights(), logged:
            return torch.export.load(name)
    except ModelImportError:
        raise
    except Exception as error:
        if type(error).__name__ == "UnpicklingError":
            unwanted = re.search(r"GLOBAL (\S+)", str(error))
            what = unwanted[1] if unwanted else str(error).partition("\n")[0]
            raise ModelImportError(f"{name} holds a Python object that reading would run: {what}") from error
        reason = str(logged.error or error).strip().partition("\n")[0] or type(error).__name__
        raise ModelImportError(
            f"{name} is not a program that torch.export.save wrote, or it is damaged: {reason}"
        ) from error


class _Logged(logging.Filter, contextlib.AbstractContextManager["_Logged"]):
    """A context manager: inside, what torch.export.load logs is not shown. ``error`` is the first exception in it,
    which torch logs before it tries to read the file in another format."""

    error: BaseException | None = None

    def __enter__(self) -> _Logged:
        logging.getLogger("torch.export").addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("torch.export").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        self.error = self.error or (record.exc_info[1] if record.exc_info else None)
        return False


@contextlib.contextmanager
def _only_weights() -> Iterator[None]:
    """A context manager: inside, torch.load refuses pickles of anything but tensors, even where it is told not to."""
    given = {name: os.environ.pop(name, None) for name in _SETTINGS}
    os.environ[_SETTINGS[0]] = "1"
    try:
        yield
    finally:
        os.environ.pop(_SETTINGS[0])
        os.environ.update({name: value for name, value in given.items() if value is not None})


_SETTINGS = ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")


def _require_data(name: str) -> None:
    """Raise ModelImportError if a file holds objects, or formulas that are more than that."""
    with zipfile.ZipFile(name) as file:
        for member in file.namelist():
            if member.endswith(".json"):
                for key, text in _texts(json.loads(file.read(member))):
                    if key == "path_name" and text.startswith(_OBJECTS):
                        raise ModelImportError(f"{name} holds an object that reading would run: {text[:80]!r}")
                    if key == "expr_str" and not _is_formula(text):
                        raise ModelImportError(f"{name} has a size that is no formula: {text[:80]!r}")


def _texts(value: Any) -> Iterator[tuple[str, str]]:
    """The texts in a JSON value, with their keys."""
    remaining = [value]
    while remaining:
        value = remaining.pop()
        if isinstance(value, list):
            remaining += value
        elif isinstance(value, dict):
            yield from ((key, part) for key, part in value.items() if isinstance(part, str))
            remaining += value.values()


def _is_formula(text: str) -> bool:
    try:
        nodes = [*ast.walk(ast.parse(text.strip(), mode="eval"))] if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return nodes is not None and all(map(_is_harmless, nodes))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        own = torch.utils._sympy.functions
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        found = getattr(own, name, None) or getattr(sympy, name, None)
        return inspect.isclass(found) and issubclass(found, sympy.Basic)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):  # of a symbol, or a number: Float('0.5')
        return node.value.isidentifier() or _NUMBER.fullmatch(node.value) is not None
    return isinstance(node, _NODES)
