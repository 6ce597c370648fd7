"""The CUDA back end of :func:`fxlite.compile`.

In: a traced module and where it shall run. Out: :class:`CudaFunction`: a callable on NumPy arrays
that knows its sources and the machine code for any architecture. ``device`` is a GPU's number
(default 0); ``"shim"`` runs the same kernels on the CPU, slowly, for tests; an architecture such as
``"sm_90"`` compiles and runs nothing, which needs no GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.codegen.cuda.emit import CudaProgram, emit
from fxlite.codegen.cuda.program import CudaRunner, readme, weights_blob
from fxlite.codegen.folder import write_folder
from fxlite.codegen.program.nested import flat_arguments, restructure, run_hollow
from fxlite.codegen.program.optimize import optimize, said_of_passes
from fxlite.codegen.runtime.abi import HollowCall
from fxlite.codegen.runtime.cuda_device import CudaDeviceNotFound, CudaModule
from fxlite.codegen.runtime.cuda_shim import ShimModule
from fxlite.codegen.runtime.launcher import Launcher
from fxlite.codegen.runtime.nvrtc import Cubin, compile_cubin
from fxlite.compiler import Stage, silent
from fxlite.graph.graph_module import GraphModule

_HINT = (
    'Without a GPU, fx.compile(..., backend="cuda", device="sm_90") compiles only, and '
    'device="shim" runs the same kernels on the CPU'
)


class Cubins(dict[str, Cubin]):
    """Machine code by architecture, compiled when it is first asked for: ``cubins["sm_80"]``."""

    def __init__(self, program: CudaProgram) -> None:
        super().__init__()
        self.program = program

    def __missing__(self, arch: str) -> Cubin:
        made = compile_cubin(self.program.source, arch, f"{self.program.name}.cu")
        self[arch] = made
        return made


class CudaFunction:
    """A model compiled to CUDA C. ``graph_module`` is what was traced, ``optimized`` what was
    emitted, ``program`` its kernels and launches, ``cubins`` the machine code by architecture.

    Raises CudaDeviceNotFound where there is no GPU, CudaToolkitNotFound where NVRTC is missing;
    both say what to install."""

    def __init__(
        self,
        module: GraphModule,
        threads: int | None = None,
        device: int | str | None = None,
        stage: Stage = silent,
        memory_limit: int | None = None,
    ) -> None:
        self.graph_module = module
        with stage("optimize") as said:
            self.optimized, self.passes = optimize(module)
            said.append(said_of_passes(module, self.optimized, self.passes))
        with stage("emit") as said:
            self.program: CudaProgram = emit(self.optimized)
            said.append(f"{sum(t.count(chr(10)) for t in self.sources.values())} lines of CUDA C")
        self.cubins = Cubins(self.program)
        self._restructure = restructure(module)
        with stage("build") as said:
            launcher = self._launcher(device)
            said.append("CPU shim" if isinstance(launcher, ShimModule) else "NVRTC")
        self.function = (
            None if launcher is None else CudaRunner(self.program, launcher, memory_limit)
        )

    def _launcher(self, device: int | str | None) -> Launcher | None:
        source, name = self.program.source, f"{self.program.name}.cu"
        if device == "shim":
            return ShimModule(source, name=name)
        if isinstance(device, str) and not device.isdecimal():
            if not re.fullmatch(r"sm_\d+[af]?", device):
                raise ArgumentError(
                    'device must be a number, "shim" or an architecture such as "sm_90", '
                    f"not {device!r}"
                )
            self.cubins[device]
            return None
        try:
            return CudaModule(source, name=name, device=int(device or 0))
        except CudaDeviceNotFound as error:
            raise CudaDeviceNotFound(f"{error}. {_HINT}") from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            raise CudaDeviceNotFound(
                f"{self.program.name} was compiled for {', '.join(self.cubins)} and has no device, "
                "so it cannot be called; leave device= out where there is a GPU"
            )
        args, kwargs = flat_arguments(self.graph_module, args, kwargs)
        try:
            result = self.function(*args, **kwargs)
        except HollowCall as call:
            result = run_hollow(self.graph_module, call)
        return result if self._restructure is None else self._restructure(result)

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the emitted CUDA C and its headers."""
        return self.program.sources

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write the sources, the weights, the cubins made so far, and a README with the memory plan
        and the launches in order. Raises FolderError for a folder that holds other files, unless
        ``force`` is given."""

        def write(into: Path) -> None:
            for name, text in self.sources.items():
                (into / name).write_text(text, encoding="utf-8")
            if self.program.weights:
                (into / f"{self.program.name}_weights.bin").write_bytes(weights_blob(self.program))
            for arch, cubin in self.cubins.items():
                (into / f"{self.program.name}.{arch}.cubin").write_bytes(cubin.code)
            (into / "README.md").write_text(readme(self.program), encoding="utf-8")

        write_folder(folder, write, force)
