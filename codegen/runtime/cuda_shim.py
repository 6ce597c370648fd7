"""Runs emitted CUDA kernels on the CPU: the launcher for machines without a GPU.

In: CUDA C source and launches. Out: the results, or :class:`ShimError` if the kernel misuses barriers,
shuffles or memory in a way that would make a GPU hang or compute garbage. The source is compiled
unchanged by g++ with ``codegen/cuda/shim.h``, which explains how it works, and the shared objects are
cached under :func:`~fxlite.codegen.runtime.toolchain.cache_folder`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fxlite.codegen.runtime.cache import cache_folder, intact_file, make_folder, name_with_digest
from fxlite.codegen.runtime.launcher import (
    CUDA_SOURCES,
    INCLUDE_FOLDERS,
    Argument,
    DeviceBuffer,
    KernelSignature,
    included_headers,
    parse_kernels,
    three,
)
from fxlite.codegen.runtime.toolchain import cpu_identity, march_flag

__all__ = ["Order", "ShimBuffer", "ShimError", "ShimModule"]

Order = Literal["forward", "backward"]

RED_ZONE = 256
"""Bytes on either side of a buffer that a kernel must leave unchanged."""

OPTIMIZATION = "-O2"
"""The flags with which g++ compiles kernels, before those of the caller."""


class ShimError(RuntimeError):
    """A kernel did not compile for the CPU, or was caught violating the rules of a GPU."""


@dataclass(eq=False)
class ShimBuffer:
    """Host memory that represents device memory, between two guard zones; filled with bytes 0xff."""

    nbytes: int
    storage: NDArray[np.uint8] | None = field(repr=False)

    @property
    def content(self) -> NDArray[np.uint8]:
        if self.storage is None:
            raise ShimError("the buffer is used after free()")
        return self.storage[RED_ZONE : RED_ZONE + self.nbytes]

    @property
    def intact(self) -> bool:
        if self.storage is None:
            return True
        before, after = self.storage[:RED_ZONE], self.storage[RED_ZONE + self.nbytes :]
        return bool((before == 0xFF).all() and (after == 0xFF).all())


class ShimModule:
    """CUDA kernels compiled for the CPU; implements the ``Launcher`` interface.

    Args:
        source: CUDA C; it may ``#include "prelude.cuh"``.
        kernels: the kernels to load; None for all in the source.
        name: the file name in diagnostics and error messages.
        order: the order of blocks and threads if the launch does not give one. Results must not
            depend on it: run tests both ways.
        contract: whether ``a * b + c`` may become a fused multiply-add, as on the GPU.
        flags: more flags for g++.

    Raises:
        ShimError: no compiler, or compile errors (with the diagnostics).
        ValueError: a kernel is missing, or a parameter type is not supported.
    """

    def __init__(
        self,
        source: str,
        kernels: Sequence[str] | None = None,
        *,
        name: str = "kernels.cu",
        order: Order = "forward",
        contract: bool = True,
        flags: Sequence[str] = (),
    ) -> None:
        self.kernels = parse_kernels(source, kernels)
        self.order: Order = order
        text = f'#line 1 "{name}"\n{source}\n{_entry_points(self.kernels.values())}'
        self.path = _build(text, contract, tuple(flags))
        library = ctypes.CDLL(str(self.path))
        self._entries: dict[str, Any] = {}
        for kernel in self.kernels:
            entry = getattr(library, f"fx_launch_{kernel}")
            entry.restype = ctypes.c_char_p
            self._entries[kernel] = entry
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ShimModule({', '.join(map(str, self.kernels.values()))})"

    def alloc(self, nbytes: int) -> ShimBuffer:
        """Memory of `nbytes` filled with bytes 0xff: NaN in any float type, -1 in integers."""
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        storage = np.full(nbytes + 2 * RED_ZONE, 0xFF, np.uint8)
        return ShimBuffer(nbytes, storage)

    def upload(self, array: NDArray[Any], into: DeviceBuffer | None = None) -> ShimBuffer:
        """Copy an array (in C order) to a new buffer, or into an existing one of its size."""
        data = np.ascontiguousarray(array)
        buffer = self.alloc(data.nbytes) if into is None else _own(into)
        if buffer.nbytes != data.nbytes:
            raise ValueError(f"{data.nbytes} bytes do not fit a buffer of {buffer.nbytes}")
        buffer.content[:] = data.reshape(-1).view(np.uint8)
        return buffer

    def download(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """The buffer's content as a new array."""
        content = _own(buffer).content
        result = np.empty(tuple(shape), dtype)
        if result.nbytes != content.nbytes:
            raise ValueError(f"{result.dtype}{list(shape)} has {result.nbytes} bytes, the buffer {buffer.nbytes}")
        result.reshape(-1).view(np.uint8)[:] = content
        return result

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        shmem: int,
        args: Sequence[Argument | NDArray[Any]],
        order: Order | None = None,
    ) -> None:
        """Run a kernel over a grid and wait for it; see ``Launcher.launch``.

        Besides buffers, pointer parameters accept C-contiguous arrays, which are used in place.

        Args:
            kernel: its name.
            grid: blocks along x, y, z; a zero means that nothing is run.
            block: threads along x, y, z.
            shmem: bytes of dynamic shared memory; it starts as NaN.
            args: one for each parameter.
            order: of blocks and threads; None for the module's.

        Raises:
            ShimError: a divergent barrier, a collective outside its mask, a write outside a
                buffer, a launch beyond the limits of a GPU, …
            KeyError: no such kernel.
            TypeError, OverflowError: an argument does not fit its parameter.
        """
        signature = self.kernels[kernel]
        signature.check_count(args)
        order = self.order if order is None else order
        if order not in ("forward", "backward"):
            raise ValueError(f"order {order!r} is neither 'forward' nor 'backward'")
        blocks, threads = three(grid, "grid"), three(block, "block")
        values = []
        for parameter, value in zip(signature.parameters, args):
            if parameter.is_pointer:
                values.append(ctypes.c_void_p(_address(signature, parameter.name, value)))
            else:
                values.append(signature.scalar(parameter, value))
        if 0 in blocks:
            return
        pointers = (ctypes.c_void_p * max(len(values), 1))(*map(ctypes.addressof, values))
        triple = ctypes.c_uint * 3
        with self._lock:
            error: bytes | None = self._entries[kernel](
                triple(*blocks), triple(*threads), ctypes.c_size_t(shmem), pointers, ctypes.c_int(order == "backward")
            )
        if error is not None:
            raise ShimError(f"kernel {kernel}: {error.decode(errors='replace')}")
        for parameter, value in zip(signature.parameters, args):
            if isinstance(value, ShimBuffer) and not value.intact:
                raise ShimError(f"kernel {kernel} wrote outside the {value.nbytes} bytes of {parameter.name}")

    def copy(self, source: Any, into: DeviceBuffer | None = None) -> ShimBuffer:
        """Copy a buffer to a new one, or into an existing one of its size."""
        return self.upload(_own(source).content, into)

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """``run`` itself: launches cost nothing here."""
        return run

    def synchronize(self) -> None:
        """Do nothing: launches are finished when they return."""

    def free(self, buffer: DeviceBuffer) -> None:
        """Release the memory; using the buffer afterwards raises ShimError."""
        _own(buffer).storage = None


def _own(buffer: object) -> ShimBuffer:
    if not isinstance(buffer, ShimBuffer):
        raise TypeError(f"a {type(buffer).__name__} is not a buffer of the shim")
    return buffer


def _address(signature: KernelSignature, parameter: str, value: object) -> int:
    if isinstance(value, ShimBuffer):
        return int(value.content.ctypes.data)
    if isinstance(value, np.ndarray):
        if not value.flags.c_contiguous:
            raise TypeError(f"{signature.name}: array {parameter} is not C-contiguous")
        return int(value.ctypes.data)
    raise TypeError(f"{signature.name}: pointer {parameter} takes a buffer, not {type(value).__name__}")


def _entry_points(kernels: Any) -> str:
    """C++ that makes each kernel callable through the driver's argument convention."""
    lines = ['#line 1 "entry points"']
    for kernel in kernels:
        arguments = ", ".join(
            f"*({p.type}{'' if p.is_pointer else ' '}*)args[{i}]" for i, p in enumerate(kernel.parameters)
        )
        lines += [
            f"static void fx_call_{kernel.name}(void **args) {{ {kernel.name}({arguments}); }}",
            f'extern "C" const char *fx_launch_{kernel.name}(const unsigned grid[3], const '
            "unsigned block[3], size_t shmem, void **args, int order) {",
            f"    return fx_shim::launch(fx_call_{kernel.name}, grid, block, shmem, args, order);",
            "}",
        ]
    return "\n".join(lines) + "\n"


@functools.cache
def _compiler(named: str) -> tuple[tuple[str, ...], str]:
    """The command of the C++ compiler, `named` or g++, and its version.

    Raises:
        ShimError: there is none.
    """
    try:
        command = shlex.split(named) or ["g++"]
    except ValueError as error:  # a quotation that is not closed
        raise ShimError(f"CXX={named!r} is not a command line: {error}") from None
    path = shutil.which(command[0])
    if path is None:
        reason = f"; CXX={named!r} does not run" if named.strip() else ""
        raise ShimError(f"running CUDA kernels on the CPU needs g++ (install it, or set CXX){reason}")
    version = subprocess.run([path, *command[1:], "--version"], capture_output=True, text=True)
    return (path, *command[1:]), version.stdout.partition("\n")[0]


def _key(*parts: str) -> str:
    """A name for the result of these texts on this processor."""
    digest = hashlib.sha256()
    for part in (*parts, cpu_identity()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:32]


@functools.cache
def _shared_parts(
    command: tuple[str, ...], headers: tuple[Path, ...], name: str, folder: Path
) -> tuple[Path, Path] | None:
    """What kernels with these headers share, made once: a precompiled header, and an object with the functions
    of the shim. Without them g++ takes three times as long for small kernels. None if the compiler does not
    support precompiled headers."""
    header, library = (intact_file(folder, f"{name}.{kind}") for kind in ("gch", "o"))
    if header is None or library is None:
        with tempfile.TemporaryDirectory(dir=folder) as work:
            source, *made = (Path(work, f"headers.{kind}") for kind in ("h", "gch", "o"))
            source.write_text("".join(f'#include "{h}"\n' for h in headers), encoding="utf-8")
            for part, language, product in ((1, ("c++-header",), made[0]), (2, ("c++", "-c"), made[1])):
                run = [*command, f"-DFX_SHIM_PART={part}", "-x", *language, str(source), "-o", str(product)]
                if subprocess.run(run, capture_output=True).returncode != 0 or not product.exists():
                    return None
            header, library = (folder / name_with_digest(f"{name}{file.suffix}", file) for file in made)
            os.replace(source, header.with_suffix(""))  # g++ reads it if it cannot use the precompiled one
            os.replace(made[0], header)
            os.replace(made[1], library)
    return header.with_suffix(""), library


def _build(text: str, contract: bool, flags: tuple[str, ...]) -> Path:
    """Compile the text to a shared object, or find it in the cache."""
    command, version = _compiler(os.environ.get("CXX", ""))
    compiler = shlex.join(command)
    options = (
        *("-std=gnu++17", OPTIMIZATION, march_flag(), "-fPIC", "-pthread"),
        *("-fno-strict-aliasing", "-Wno-unknown-pragmas", "-Wno-attributes"),
        f"-ffp-contract={'fast' if contract else 'off'}",
        *(f"-I{folder}" for folder in INCLUDE_FOLDERS),
        f"-fmacro-prefix-map={CUDA_SOURCES}/=",
        *flags,
    )
    headers = [CUDA_SOURCES / "shim.h", *included_headers(text)]
    known_by = (*(h.read_text(encoding="utf-8") for h in headers), compiler, version, *options)
    shared, name = cache_folder() / "cuda_shim", f"{_key(text, *known_by)}.so"
    if (known := intact_file(shared, name)) is not None:
        return known
    make_folder(shared)
    first, linked = headers[0], list[str]()
    if not flags and len(headers) == 3:  # as in all emitted text
        parts = _shared_parts((*command, *options), tuple(headers), _key(*known_by), shared)
        if parts is not None and all(part.exists() for part in parts):
            first, linked = parts[0], ["-x", "none", str(parts[1])]
            options = (*options, "-DFX_SHIM_PART=1")
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        source, built = Path(folder, "kernels.cu"), Path(folder, "kernels.so")
        source.write_text(text, encoding="utf-8")
        given = ["-include", str(first), "-x", "c++", str(source), *linked]
        run = subprocess.run([*command, *options, "-shared", *given, "-o", str(built)], capture_output=True, text=True)
        if run.returncode != 0 or not built.exists():
            raise ShimError(f"{compiler} cannot compile the kernels:\n{run.stderr.strip()}")
        target = shared / name_with_digest(name, built)
        os.replace(built, target)
    return target
