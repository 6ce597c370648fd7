"""The callable of a back end that only prints loops: everything except the printer and the compiler.

In: a traced module, a function that prints a kernel, and the command that compiles the text to a shared
library. The library has a function for each kernel that takes the addresses of its buffers and then
its named dims as int64. Out: a callable on the module's arguments. It runs one kernel after another;
NumPy holds the values in between.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.backend import Stage
from fxlite.base.errors import CodegenError, number_of
from fxlite.codegen.folder import write_folder
from fxlite.codegen.kernel.kernel_ir import Kernel
from fxlite.codegen.kernel.names import plain
from fxlite.codegen.program.calls import call_nested
from fxlite.codegen.program.program import optimize, plan, said_of_passes
from fxlite.codegen.program.run import run_program, scheduled
from fxlite.graph.graph_module import GraphModule


class LoopFunction:
    """A model whose kernels are loops. Its source, a file with ``suffix``, consists of ``head`` and the
    result of ``emit`` for each kernel; ``command`` is followed by the names of the library and of the
    source.

    Raises CodegenError for kernels that ``emit`` refuses, and if the command fails."""

    def __init__(
        self,
        module: GraphModule,
        stage: Stage,
        suffix: str,
        head: str,
        emit: Callable[[Kernel], str],
        command: Sequence[str],
    ) -> None:
        self.graph_module = module
        with stage("optimize") as said:
            self.optimized, passes = optimize(module)
            said.append(said_of_passes(module, self.optimized, passes))
        with stage("emit") as said:
            self._program = plan(self.optimized, claims=lambda node: False)
            self._kernels = [
                dataclasses.replace(kernel, name=f"kernel{number}")
                for number, kernel in enumerate(scheduled(self._program))
            ]
            text = "\n".join([head, *map(emit, self._kernels)])
            self.sources: Mapping[str, str] = {f"{plain(module.name)}{suffix}": text}
            said.append(number_of(len(self._kernels), "kernel"))
        with stage("build"):
            self._library = _build(text, suffix, command)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        def run(inputs: Sequence[Any]) -> list[Any]:
            return run_program(self._program, inputs, self._kernels, self._run_kernel)

        return call_nested(self.graph_module, run, args, kwargs)

    def _run_kernel(self, kernel: Kernel, inputs: Mapping[str, Any], dims: Mapping[str, int]) -> Mapping[str, Any]:
        outputs = {b.name: np.zeros([int(s.evaluate(dims)) for s in b.shape], b.dtype.numpy) for b in kernel.outputs}
        held = outputs | {b.name: np.ascontiguousarray(inputs[b.name], b.dtype.numpy) for b in kernel.inputs}
        addresses = [ctypes.c_void_p(held[b.name].ctypes.data) for b in kernel.buffers]
        sizes = [ctypes.c_int64(dims[name]) for name in kernel.dims]
        self._library[kernel.name](*addresses, *sizes)
        return outputs

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write the source. Raises FolderError for a folder that holds other files, unless
        ``force`` is given."""

        def write(into: Path) -> None:
            for name, text in self.sources.items():
                (into / name).write_text(text, encoding="utf-8")

        write_folder(folder, write, force)


def _build(text: str, suffix: str, command: Sequence[str]) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, f"model{suffix}"), Path(folder, "model.so")
        source.write_text(text, encoding="utf-8")
        try:
            done = subprocess.run([*command, library, source], capture_output=True, text=True)
        except OSError as error:
            raise CodegenError(f"{command[0]} does not run: {error}") from error
        if done.returncode:
            raise CodegenError(f"{command[0]} refuses the source:\n{done.stderr[:2000]}")
        return ctypes.CDLL(str(library))
