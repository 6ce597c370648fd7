"""The dialect "numpy": source that needs NumPy alone.

In: a graph with types. Out: plain classes with ``__call__``, whose arrays come from an ``.npz``
file, and ops as :class:`NumpyText` writes them. A program with bfloat16 imports ``ml_dtypes``, too.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.codegen.python.dialect import Imports, TableDialect, shape_text
from fxlite.codegen.python.layers import size_names
from fxlite.codegen.python.numpy_text import NumpyText
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule
from fxlite.types import dtypes
from fxlite.types.tensor_type import type_of


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

    def is_kept(self, node: Node) -> bool:
        several = node.type if isinstance(node.type, tuple) else ()  # results, each to be rounded
        return super().is_kept(node) and not any(type.dtype.is_half for type in several)

    def array(self, module: GraphModule, part: str, value: Any, imports: Mapping[str, str]) -> str:
        return f"self.{part} = {_zeros(value, size_names(module, value))}"

    def held_array(self, value: Any, imports: Mapping[str, str]) -> str:
        return _zeros(value)

    def module_list(self, listed: str, is_called: bool) -> str:
        return f"[{listed}]"

    def lacking(self, made: str) -> str:
        return "[]" if made.startswith("[") else self.identity

    def import_lines(self, used: Callable[[str], bool], alias: Mapping[str, str]) -> Imports:
        lines = []
        for module, short in (("ml_dtypes", "ml_dtypes"), ("numpy", "np")):
            names = [name for name in sorted({short, alias[short]}) if used(name)]
            lines += [f"import {module}" + f" as {n}" * (n != module) for n in names]
        if used("sliding_window_view"):
            lines.append("from numpy.lib.stride_tricks import sliding_window_view")
        return [], lines

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
