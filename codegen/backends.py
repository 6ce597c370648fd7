"""The built-in back ends of :func:`fxlite.compile`: each turns a traced module into a callable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.optimize import optimize
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.compile import register_backend
from fxlite.graph import Node, map_nodes
from fxlite.graph_module import GraphModule


class CFunction:
    """A model compiled to C. ``graph_module`` is what was traced, ``optimized`` what was emitted."""

    def __init__(self, module: GraphModule, threads: int | None = None) -> None:
        self.graph_module = module
        self.optimized, self.passes = optimize(module)
        self.program: CProgram = emit(self.optimized)
        library = build(dict(self.program.sources), self.program.entry)
        self.function = CompiledFunction(self.program.entry, library, self.program.weights, threads)
        self._restructure = restructure(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*args, **kwargs)
        return result if self._restructure is None else self._restructure(result)

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the emitted C."""
        return self.program.sources

    def save(self, folder: str) -> None:
        """Write a folder that builds and runs without fxlite: source, header, weights, Makefile and a
        self-test with stored input and output."""
        from fxlite.codegen.c.bundle import save_bundle

        save_bundle(self, folder)


def restructure(module: GraphModule) -> Callable[[Any], Any] | None:
    """How flat results become the program's nested result; None where they are the same."""
    structure = module.graph.output_node().args[0]
    if isinstance(structure, Node):
        return None
    if type(structure) is tuple and all(isinstance(s, Node) for s in structure):
        return None

    def rebuild(flat: Any) -> Any:
        values = iter(flat if isinstance(flat, tuple) else (flat,))
        return map_nodes(structure, lambda node: next(values))

    return rebuild


class PythonFunction:
    """A model as regenerated Python; needs no compiler."""

    def __init__(self, module: GraphModule, threads: int | None = None) -> None:
        self.graph_module = module
        self.optimized = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.graph_module(*args, **kwargs)

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the Python module."""
        from fxlite.codegen.python import python_source

        return {f"{self.graph_module.name}.py": python_source(self.graph_module)}

    def save(self, folder: str) -> None:
        """Write the Python module and its weights."""
        from fxlite.codegen.python import save_python

        save_python(self.graph_module, folder, self.graph_module.name)


register_backend("c")(CFunction)
register_backend("python")(PythonFunction)
