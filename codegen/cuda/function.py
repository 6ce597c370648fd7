"""The CUDA back end of :func:`fxlite.compile`.

In: a traced module and the device to run on. Out: :class:`CudaFunction`: a callable on NumPy arrays that
knows its sources and the machine code for any architecture. ``device`` is a GPU's number (default 0);
``"shim"`` runs the same kernels on the CPU, slowly, for tests; an architecture such as ``"sm_90"`` only
compiles, which needs no GPU.

A :class:`CudaRunner` runs the emitted program: it uploads the inputs, launches in order, and downloads the
results. Weights are uploaded once. Memory for the sizes of recent calls is kept, and from the second call
with the same sizes on all launches are started as one. Each slot of the memory plan is a buffer of its
own, which values share in turns, so that the shim detects a write outside it.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.backend import Stage, described, silent
from fxlite.base.errors import ArgumentError, number_of
from fxlite.codegen.cuda.emit import CudaProgram, Launch, emit
from fxlite.codegen.cuda.host import host_sources
from fxlite.codegen.folder import facts_of, write_folder
from fxlite.codegen.kernel.builder import bare
from fxlite.codegen.kernel.names import dim_name, resolved
from fxlite.codegen.program.calls import call_nested, run_hollow
from fxlite.codegen.program.program import optimize, said_of_passes
from fxlite.codegen.runtime.abi import ArgSpec, HollowCall, bind_arguments, check_arguments
from fxlite.codegen.runtime.cuda_device import Cubin, CudaDeviceNotFound, CudaModule, compile_cubin
from fxlite.codegen.runtime.cuda_shim import ShimModule
from fxlite.codegen.runtime.launcher import DeviceArray, DeviceBuffer, Launcher
from fxlite.codegen.runtime.load import raise_error
from fxlite.codegen.runtime.sizes import checked_limit
from fxlite.graph.graph_module import GraphModule
from fxlite.scalar.index import Index
from fxlite.types.dtypes import dtype

# -- running ---------------------------------------------------------------------------------------
Array = np.ndarray[Any, Any]

#: The struct fx_error of fx_math.h.
_ERROR = np.dtype(
    [("code", np.int32), ("padding", np.int32), ("value", np.int64), ("limit", np.int64), ("where", np.int64)]
)


#: Sizes of calls for which memory is kept.
KEPT = 4


@dataclass
class _Memory:
    """Buffers for calls with these ``dims``, by the names of values; ``own`` are those that hold no weights.
    ``run`` starts all launches, from the second of ``calls`` on."""

    dims: dict[str, int]
    held: dict[str, DeviceBuffer]
    own: list[DeviceBuffer]
    run: Callable[[], None] | None = None
    calls: int = 0


class CudaRunner:
    """A CUDA program on a launcher. It takes and returns the same as the model's C function, and raises the
    same errors: TypeError, ValueError, IndexError. Calls from several threads run one after the other."""

    def __init__(self, program: CudaProgram, launcher: Launcher, memory_limit: int | None = None) -> None:
        self.program, self.launcher = program, launcher
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, ...], _Memory] = {}
        self._checked: dict[Any, dict[str, int]] = {}  # dims by the types of arguments that were accepted
        self.memory_limit = None if memory_limit is None else checked_limit(memory_limit)
        self._weights = {name: launcher.upload(a) for name, a in program.weights.items()}
        self._checks = any("error" in launch.arguments for launch in program.launches)

    def __repr__(self) -> str:
        return f"<{self.program.entry} on {type(self.launcher).__name__}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays, dims = bind_arguments(self.program.entry, args, kwargs, self.memory_limit)
        return self._called(arrays, dims, self._downloaded)

    def on_device(self, *args: Any) -> Any:
        """Call the model and leave the results on the device. Takes arrays on the device (objects with
        ``__cuda_array_interface__``, such as tensors of torch and arrays of CuPy) or of NumPy, and returns
        :class:`DeviceArray`."""
        types = tuple(map(_type_of, args))
        dims = self._checked.get(types)
        if dims is None:
            outlines = [given if t is None else _outline(*t) for t, given in zip(types, args)]
            _, dims = check_arguments(self.program.entry, outlines, {}, self.memory_limit)
            self._checked = {types: dims, **dict(itertools.islice(self._checked.items(), KEPT - 1))}
        return self._called(args, dims, self._left)

    def _called(self, arrays: Sequence[Any], dims: dict[str, int], result: Callable[..., Any]) -> Any:
        plan, entry = self.program.program, self.program.entry
        shapes = [entry.output_shape(spec, dims) for spec in entry.outputs]
        with self._lock:
            memory = self._memory(dims)
            for node, array in zip(plan.inputs, arrays):
                self._enter(memory.held[self.program.name_of(node)], array)
            self._start(memory)
            if self._checks:
                self._raise(memory.held["error"])
            stored = [memory.held[self.program.name_of(n)] for n in map(plan.memory, plan.results)]
            results = list(map(result, stored, entry.outputs, shapes))
            self.launcher.synchronize()
        return results[0] if entry.single_output else tuple(results)

    def _memory(self, dims: dict[str, int]) -> _Memory:
        """Buffers for calls with these dims: those of an earlier call, or new ones in place of the least
        recently used."""
        key = tuple(dims.values())
        found = self._kept.pop(key, None)
        if found is None:
            while len(self._kept) >= KEPT:
                self._free(self._kept.pop(next(iter(self._kept))))
            found = self._allocated(dims)
        self._kept[key] = found
        return found

    def _free(self, memory: _Memory) -> None:
        for buffer in memory.own:
            self.launcher.free(buffer)

    def _allocated(self, dims: dict[str, int]) -> _Memory:
        program, launcher, name_of = self.program.program, self.launcher, self.program.name_of
        memory = _Memory(dims, dict(self._weights), [])
        held = memory.held

        def keep(size: Any) -> DeviceBuffer:
            memory.own.append(launcher.alloc(int(Index.of(size).evaluate(dims))))
            return memory.own[-1]

        try:
            for node in program.inputs:
                held[name_of(node)] = keep(node.type.nbytes)
            slots = [keep(slot.size) for slot in program.slots]
            for node, slot in program.slot_of.items():
                held[name_of(node)] = slots[slot]
            for node in program.results:
                if node.op == "call_function" and name_of(node) not in held:
                    held[name_of(node)] = keep(node.type.nbytes)
            for node, source in program.stored.items():
                held[name_of(node)] = held[name_of(source)]
            if self.program.scratch != 0:
                held["workspace"] = keep(self.program.scratch.evaluate(self._sizes(dims)))
            if self._checks:
                held["error"] = launcher.upload(np.zeros(1, _ERROR))
                memory.own.append(held["error"])
        except BaseException:
            self._free(memory)
            raise
        return memory

    def _sizes(self, dims: Mapping[str, int]) -> dict[str, int]:
        """The dims under their names in launches."""
        return {self.program.names(dim_name(d)): value for d, value in dims.items()}

    def _enter(self, buffer: DeviceBuffer, array: Any) -> None:
        """Copy an argument into its buffer."""
        if isinstance(array, (np.ndarray, np.generic)):
            self.launcher.upload(np.asarray(array), buffer)
        elif isinstance(array, DeviceArray) and array.launcher is self.launcher:
            self.launcher.copy(array.buffer, buffer)
        else:
            self.launcher.copy(array, buffer)

    def _start(self, memory: _Memory) -> None:
        """Start all launches: one by one for the first call with these sizes, recorded for the others."""
        if memory.calls == 0:
            self._launch(memory, self.program.launches)
        else:
            memory.run = memory.run or self.launcher.record(partial(self._launch, memory, self.program.launches))
            memory.run()
        memory.calls += 1

    def _launch(self, memory: _Memory, launches: Sequence[Launch]) -> None:
        sizes = self._sizes(memory.dims)
        for launch in launches:
            arguments = [sizes[a] if a in sizes else memory.held[a] for a in launch.arguments]
            self.launcher.launch(launch.kernel, launch.blocks(sizes), (launch.threads, 1, 1), 0, arguments)

    def _raise(self, error: DeviceBuffer) -> None:
        (found,) = self.launcher.download(error, (1,), _ERROR)
        if found["code"]:
            self.launcher.upload(np.zeros(1, _ERROR), error)
            raise_error(self.program.entry, *(int(found[n]) for n in ("code", "value", "limit", "where")))

    def _downloaded(self, buffer: DeviceBuffer, spec: ArgSpec, shape: tuple[int, ...]) -> Array:
        kind = dtype(spec.dtype)
        return self.launcher.download(buffer, shape, kind.stored).view(kind.numpy)

    def _left(self, buffer: DeviceBuffer, spec: ArgSpec, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(self.launcher, self.launcher.copy(buffer), shape, dtype(spec.dtype).numpy)


def _type_of(value: Any) -> tuple[tuple[int, ...], Any] | None:
    """Shape and dtype of an array of NumPy or on the device; None for anything else."""
    if isinstance(value, (DeviceArray, np.ndarray, np.generic)):
        return value.shape, value.dtype
    interface = getattr(value, "__cuda_array_interface__", None)
    return interface and (interface["shape"], interface["typestr"])


def _outline(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of this type without memory of its own."""
    return np.broadcast_to(np.empty((), dtype), shape)


def readme(program: CudaProgram) -> str:
    """Instructions for running the program by hand: memory, then launches."""
    plan = program.program
    users: dict[int, list[str]] = {}
    for node, number in plan.slot_of.items():
        users.setdefault(number, []).append(f"`{program.name_of(node)}`")
    how = (
        "Made by fxlite. Compile with `nvcc -arch=sm_90 -cubin` (any architecture from sm_75), or "
        "with NVRTC.\nAll arrays are dense and row-major and begin at multiples of 16 "
        f"bytes. Weights lie one after another in `{program.name}_weights.bin`."
    )
    host = (
        f"`{program.name}_run.cu` calls them in order: compile it with `nvcc -c`, link it, and "
        f"call `{program.name}_run`, which `{program.name}.h` describes. What it does, for hosts "
        "that are not written in C:"
    )
    title = [f"# {program.name}", "", f"`{program.entry}`", "", how, "", host, ""]
    lines = [*title, "## Memory", ""]
    lines += [f"- input `{program.name_of(n)}`: {n.type}" for n in plan.inputs]
    position = 0
    for name, array in program.weights.items():
        lines.append(f"- weight `{name}`: {array.dtype}{list(array.shape)}, at byte {position}")
        position += array.nbytes + -array.nbytes % 64
    for number, slot in enumerate(plan.slots):
        lines.append(f"- slot {number}, {slot.size} bytes, in turn: {', '.join(users[number])}")
    if program.scratch != 0:
        lines.append(f"- `workspace`, {resolved(bare(program.scratch))} bytes, of each launch that takes it")
    lines += [f"- `{program.name_of(n)}` is the memory of `{program.name_of(s)}`" for n, s in plan.stored.items()]
    lines += [f"- result {i}: `{program.name_of(plan.memory(n))}`: {n.type}" for i, n in enumerate(plan.results)]
    lines += ["", "## Launches, in order", "", "```", *map(str, program.launches), "```", ""]
    lines += [
        "A grid with a zero is not launched. `error` is a zeroed `fx_error` in device memory;",
        "after the last launch its `code` is 1 if an index was out of range.",
    ]
    return "\n".join(lines) + "\n"


def weights_blob(program: CudaProgram) -> bytes:
    """All weights, each at a multiple of 64 bytes, in the order of the README."""
    return b"".join(a.tobytes() + b"\0" * (-a.nbytes % 64) for a in program.weights.values())


# -- the function ----------------------------------------------------------------------------------
_HINT = (
    'Without a GPU, fx.compile(..., backend="cuda", device="sm_90") compiles only, and '
    'device="shim" runs the same kernels on the CPU'
)


class Cubins(dict[str, Cubin]):
    """Machine code by architecture, compiled when it is first requested: ``cubins["sm_80"]``."""

    def __init__(self, program: CudaProgram) -> None:
        super().__init__()
        self.program = program

    def __missing__(self, arch: str) -> Cubin:
        made = compile_cubin(self.program.source, arch, f"{self.program.name}.cu")
        self[arch] = made
        return made


class CudaFunction:
    """A model compiled to CUDA C. ``graph_module`` is the traced module, ``optimized`` the one that was
    emitted, ``program`` has its kernels and launches, and ``cubins`` the machine code by architecture.

    Raises CudaDeviceNotFound if there is no GPU, and CudaToolkitNotFound if NVRTC is missing; both say what
    to install."""

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
            said.append(f"{number_of(sum(t.count(chr(10)) for t in self.sources.values()), 'line')} of CUDA C")
        self.cubins = Cubins(self.program)
        with stage("build") as said:
            launcher = self._launcher(device)
            said.append("CPU shim" if isinstance(launcher, ShimModule) else "NVRTC")
        self.function = None if launcher is None else CudaRunner(self.program, launcher, memory_limit)

    def __repr__(self) -> str:
        return described(self)

    def _launcher(self, device: int | str | None) -> Launcher | None:
        source, name = self.program.source, f"{self.program.name}.cu"
        if device == "shim":
            return ShimModule(source, name=name)
        if isinstance(device, str) and not device.isdecimal():
            if not re.fullmatch(r"sm_\d+[af]?", device):
                raise ArgumentError(
                    f'device must be a number, "shim" or an architecture such as "sm_90", not {device!r}'
                )
            self.cubins[device]
            return None
        try:
            return CudaModule(source, name=name, device=int(device or 0))
        except CudaDeviceNotFound as error:
            raise CudaDeviceNotFound(f"{error}. {_HINT}") from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call_nested(self.graph_module, self._run, args, kwargs)

    def on_device(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model with arrays that stay on the device. Takes dense arrays there (of torch, CuPy,
        numba: objects with ``__cuda_array_interface__``) or of NumPy, and returns a
        :class:`~fxlite.codegen.runtime.launcher.DeviceArray` in place of each array, which these libraries
        accept without a copy.

        Raises ArgumentError for a program that writes into its arguments, and whatever a call raises."""
        if writes := self.graph_module.written_inputs():
            listed = ", ".join(map(repr, writes))
            problem = f"{self.program.name} writes into {listed}, which on_device cannot"
            raise ArgumentError(f"{problem}: call it with arrays of NumPy")
        if not kwargs and self.graph_module.is_flat and len(args) == len(self.program.entry.inputs):
            return self._runner().on_device(*args)
        return call_nested(self.graph_module, lambda arrays: self._runner().on_device(*arrays), args, kwargs)

    def _runner(self) -> CudaRunner:
        if self.function is None:
            raise CudaDeviceNotFound(
                f"{self.program.name} was compiled for {', '.join(self.cubins)} and has no device, "
                "so it cannot be called; leave device= out where there is a GPU"
            )
        return self.function

    def _run(self, arrays: Sequence[Any]) -> Any:
        try:
            return self._runner()(*arrays)
        except HollowCall as call:
            return run_hollow(self.graph_module, call)

    @property
    def sources(self) -> Mapping[str, str]:
        """File name -> text of the emitted CUDA C and its headers."""
        return self.program.sources

    def save(self, folder: str | os.PathLike[str], force: bool = False) -> None:
        """Write the sources, the weights, the cubins compiled so far, and a README with the memory plan and
        the launches in order. Raises FolderError for a folder that holds other files, unless ``force`` is
        given."""

        def write(into: Path) -> dict[str, Any]:
            for name, text in {**self.sources, **host_sources(self.program)}.items():
                (into / name).write_text(text, encoding="utf-8")
            if self.program.weights:
                (into / f"{self.program.name}_weights.bin").write_bytes(weights_blob(self.program))
            for arch, cubin in self.cubins.items():
                (into / f"{self.program.name}.{arch}.cubin").write_bytes(cubin.code)
            (into / "README.md").write_text(readme(self.program), encoding="utf-8")
            own = [file for file in self.sources if not file.startswith(f"{self.program.name}.")]
            return facts_of(self.graph_module, self.optimized, {"device": [*self.cubins]}, own)

        write_folder(folder, write, force)
