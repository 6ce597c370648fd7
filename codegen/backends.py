"""The built-in back ends of :func:`fxlite.compile`: each turns a traced module into a callable."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.examples import Case
from fxlite.codegen.memory_plan import memory_plan
from fxlite.codegen.nested import flat_arguments, restructure
from fxlite.codegen.optimize import optimize as run_passes
from fxlite.codegen.runtime.build import build
from fxlite.codegen.runtime.load import CompiledFunction
from fxlite.compiler import KernelInfo, register_backend
from fxlite.errors import ArgumentError
from fxlite.graph_module import GraphModule
from fxlite.passes.costing.timeline import MemoryTimeline
from fxlite.paused_gc import paused_gc

#: Called with the name of a step of the work; the step runs inside the context it returns.
Stage = Callable[[str], AbstractContextManager[Any]]


def _silent(step: str) -> AbstractContextManager[Any]:
    return nullcontext()


class CFunction:
    """A model compiled to C. ``graph_module`` is what was traced, ``optimized`` what was
    emitted."""

    def __init__(
        self,
        module: GraphModule,
        threads: int | None = None,
        stage: Stage = _silent,
        profile: bool = False,
        optimize: bool = True,
        matmul_precision: str = "highest",
    ) -> None:
        self.graph_module = module
        with stage("optimize"), paused_gc():
            self.optimized, self.passes = run_passes(
                module, needed_only=not optimize, keep=templates.claims
            )
        with stage("emit"):
            self.program: CProgram = emit(
                self.optimized, profile=profile, matmul_precision=matmul_precision
            )
        with stage("build"):
            library = build(dict(self.program.sources), self.program.entry)
            self.function = CompiledFunction(
                self.program.entry, library, self.program.weights, threads
            )
        self._restructure = restructure(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = flat_arguments(self.graph_module, args, kwargs)
        result = self.function(*args, **kwargs)
        return result if self._restructure is None else self._restructure(result)

    def run_flat(self, values: Mapping[str, Any]) -> Any:
        """Run on arrays by placeholder's target; the results are flat."""
        return self.function(*[values[p.target] for p in self.graph_module.graph.placeholders])

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the emitted C."""
        return self.program.sources

    @property
    def kernels(self) -> tuple[KernelInfo, ...]:
        """What each kernel computes, in the order in which they run."""
        return tuple(
            KernelInfo(c.name, tuple(c.group.members), c.group.root, c.group.anchor,
                       tuple(c.group.inputs))
            for c in self.program.calls
        )  # fmt: skip

    @property
    def matmul_precision(self) -> str:
        """What products were compiled with, see :func:`fxlite.compile`."""
        return self.program.matmul_precision

    @property
    def threads(self) -> int:
        """How many threads a call uses."""
        return self.function.n_threads

    def kernel_ticks(self) -> list[int]:
        """Nanoseconds of a clock during this thread's last call: before the first kernel, and after
        each. Raises ArgumentError for a function that was compiled without ``profile=True``."""
        if not self.program.profile:
            raise ArgumentError(
                f"{self.program.name} has no counters; compile it with profile=True"
            )
        shared = ctypes.CDLL(str(self.function.library.path))
        ask = shared[f"{self.program.name}_ticks"]
        ask.restype = ctypes.POINTER(ctypes.c_int64)
        return list(ask()[: len(self.program.calls) + 1])

    def workspace_bytes(self, dims: Mapping[str, int]) -> int:
        """Bytes of memory a call needs beside inputs, outputs and weights."""
        shared = ctypes.CDLL(str(self.function.library.path))
        ask = shared[f"{self.program.name}_workspace_bytes"]
        sizes = [dims[name] for name in self.program.entry.dims]
        ask.argtypes = [*([ctypes.c_int64] * len(sizes)), ctypes.c_int]
        ask.restype = ctypes.c_int64
        return int(ask(*sizes, self.function.n_threads))

    def memory_plan(self, **sizes: int) -> MemoryTimeline:
        """Which intermediate value lies in which slot of the arena while each kernel runs, at sizes
        of the named dims: ``print(fn.memory_plan(B=8))``, ``fn.memory_plan(B=8).to_svg("x.svg")``.

        Raises ArgumentError where not all sizes, or sizes of other dims, are given."""
        return memory_plan(self.program.program, [k.name for k in self.kernels], sizes)

    def save(
        self,
        folder: str | os.PathLike[str],
        cases: Sequence[Case] | None = None,
        force: bool = False,
    ) -> None:
        """Write a folder that builds and runs without fxlite: source, header, weights, Makefile and
        a self-test with stored input and output.

        ``cases`` are its inputs, by default random ones. Raises FolderError for a folder that holds
        other files, unless ``force`` is given."""
        from fxlite.codegen.c.bundle import save_bundle

        save_bundle(self, folder, cases, force)


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
        from fxlite.codegen.python import module_name, python_source

        name = self.graph_module.name
        return {f"{module_name(name)}.py": python_source(self.graph_module)}

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write the Python module and its weights. Raises FolderError where a file of somebody else
        has the module's name, unless ``force`` is given."""
        from fxlite.codegen.python import save_python

        save_python(self.graph_module, folder, force=force)


def _cuda(module: GraphModule, **options: Any) -> Any:
    """The CUDA back end, which is imported when it is used."""
    from fxlite.codegen.cuda.function import CudaFunction

    return CudaFunction(module, **options)


__all__ = ["CFunction", "PythonFunction"]

register_backend("c")(CFunction)
register_backend("cuda")(_cuda)
register_backend("python")(PythonFunction)
