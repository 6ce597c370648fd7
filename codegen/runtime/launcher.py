"""What the host needs to run emitted CUDA kernels, on a GPU or on the CPU.

In: CUDA C source whose kernels are ``extern "C" __global__ void name(...)``.  Out: their
parameter lists (:func:`parse_kernels`), and :class:`Launcher`, the interface that
:class:`~fxlite.codegen.runtime.cuda_device.CudaModule` (a GPU) and
:class:`~fxlite.codegen.runtime.cuda_shim.ShimModule` (a CPU) both implement, so that the code
which allocates, copies and launches is written once.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fxlite.base.errors import number_of

__all__ = ["Argument", "DeviceBuffer", "KernelSignature", "Launcher", "Parameter", "parse_kernels", "write_atomically"]

CUDA_SOURCES = Path(__file__).resolve().parent.parent / "cuda"
"""The folder with prelude.cuh and shim.h."""
INCLUDE_FOLDERS = (CUDA_SOURCES, CUDA_SOURCES.parent / "c")
"""Where emitted CUDA C finds prelude.cuh and fx_math.h."""


def included_headers(source: str) -> list[Path]:
    """The headers of fxlite that a source includes."""
    names = set(re.findall(r'#include "(prelude\.cuh|fx_math\.h)"', source))
    return [folder / n for folder in INCLUDE_FOLDERS for n in names if (folder / n).exists()]


class DeviceBuffer(Protocol):
    """A piece of memory that kernels of one launcher can reach."""

    @property
    def nbytes(self) -> int:
        """The requested size in bytes."""


Argument: TypeAlias = DeviceBuffer | int | float | np.generic
"""A kernel argument: a buffer for a pointer, a number for anything else."""


class Launcher(Protocol):
    """Memory and launches of one compiled CUDA module."""

    def alloc(self, nbytes: int) -> DeviceBuffer:
        """Uninitialized memory of `nbytes` (0 is fine)."""

    def upload(self, array: NDArray[Any], into: DeviceBuffer | None = None) -> DeviceBuffer:
        """Copy an array (in C order) to a new buffer, or into an existing one of its size."""

    def download(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Wait for earlier launches, then return the buffer's content as a new array."""

    def copy(self, source: Any, into: DeviceBuffer | None = None) -> DeviceBuffer:
        """Copy device memory to a new buffer, or into an existing one of its size: a buffer of this
        launcher, or an object with ``__cuda_array_interface__`` whose elements are dense."""

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """A function that repeats the launches that ``run`` makes, with the same arguments, at less cost."""

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], shmem: int, args: Sequence[Argument]
    ) -> None:
        """Run `kernel` on grid x block threads with `shmem` bytes of dynamic shared memory.

        `grid` and `block` have one to three elements. A grid with a zero is no launch at all
        (CUDA itself refuses it), so empty tensors need no special case. The launch may still be
        running on return.
        """

    def synchronize(self) -> None:
        """Wait until every launch has ended; errors of kernels are raised here at the latest."""

    def free(self, buffer: DeviceBuffer) -> None:
        """Release the memory; the buffer must not be used afterwards."""


class DeviceArray:
    """A dense array in a device's memory, as ``on_device`` of a compiled model returns it.

    Libraries that accept ``__cuda_array_interface__`` (torch.as_tensor(a, device="cuda"), cupy.asarray,
    numba) share its memory, which lives as long as the array; ``numpy()`` and ``np.asarray`` copy it to
    the host. Its computation has finished.
    """

    def __init__(self, launcher: Launcher, buffer: DeviceBuffer, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self.launcher, self.buffer, self.shape, self.dtype = launcher, buffer, shape, np.dtype(dtype)
        weakref.finalize(self, launcher.free, buffer)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)})"

    def numpy(self) -> NDArray[Any]:
        """A copy in the host's memory."""
        stored = np.dtype(f"V{self.dtype.itemsize}")
        return self.launcher.download(self.buffer, self.shape, stored).view(self.dtype)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self.numpy().astype(self.dtype if dtype is None else dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3 of numba's protocol. Not available for memory of the CPU shim."""
        if not isinstance(address := getattr(self.buffer, "address", None), int):
            raise AttributeError("__cuda_array_interface__")
        data = (address, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "stream": None}


SCALARS: dict[str, type[Any]] = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8,
    "int8_t": ctypes.c_int8,
    "int16_t": ctypes.c_int16,
    "int": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "long long": ctypes.c_int64,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "unsigned": ctypes.c_uint32,
    "unsigned int": ctypes.c_uint32,
    "uint32_t": ctypes.c_uint32,
    "unsigned long long": ctypes.c_uint64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
"""The types that a parameter can have besides pointers, and their ctypes."""


@dataclass(frozen=True)
class Parameter:
    """One kernel parameter: ``const float *__restrict__ x`` has type ``const float *``."""

    name: str
    type: str

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")


@dataclass(frozen=True)
class KernelSignature:
    """The name and parameters of a ``__global__`` function."""

    name: str
    parameters: tuple[Parameter, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{p.type} {p.name}' for p in self.parameters)})"

    def scalar(self, parameter: Parameter, value: object) -> Any:
        """`value` as the ctypes object that the parameter takes.

        Raises:
            TypeError: not a number, or a fractional number for an integer parameter.
            OverflowError: outside the range of the parameter's type.
        """
        where = f"{self.name}: argument {parameter.name} ({parameter.type})"
        if isinstance(value, np.generic):
            value = value.item()
        ctype = SCALARS[parameter.type]
        if ctype in (ctypes.c_float, ctypes.c_double):
            if not isinstance(value, (int, float)):
                raise TypeError(f"{where} takes a number, not {type(value).__name__}")
            return ctype(float(value))
        if not isinstance(value, int):
            raise TypeError(f"{where} takes an integer, not {type(value).__name__}")
        converted = ctype(value)
        if converted.value != value:
            raise OverflowError(f"{where} cannot hold {value}")
        return converted

    def check_count(self, args: Sequence[object]) -> None:
        """Raise TypeError unless there is one argument for each parameter."""
        if len(args) != len(self.parameters):
            raise TypeError(f"{self} takes {number_of(len(self.parameters), 'argument')}, not {len(args)}")


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\(([^(){};]*)\)\s*\{')
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*\)")


def parse_kernels(source: str, names: Sequence[str] | None = None) -> dict[str, KernelSignature]:
    """The kernels defined in CUDA C `source`, by name, in the order of the text.

    Args:
        source: text in which each kernel reads ``extern "C" __global__ void name(...) {``, with
            ``__launch_bounds__(n)`` allowed before the name.
        names: only these; None for all.

    Raises:
        ValueError: a named kernel is missing, or a parameter is neither a pointer nor of a type
            in ``SCALARS``.
    """
    text = _LAUNCH_BOUNDS.sub(" ", _COMMENT.sub(" ", source))
    found: dict[str, KernelSignature] = {}
    for match in _KERNEL.finditer(text):
        name, parameters = match.group(1), match.group(2).strip()
        if names is None or name in names:
            parts = parameters.split(",") if parameters not in ("", "void") else []
            found[name] = KernelSignature(name, tuple(_parameter(name, p) for p in parts))
    missing = [name for name in names or () if name not in found]
    if missing:
        raise ValueError(
            f"no kernel 'extern \"C\" __global__ void {missing[0]}(...)' in the source; "
            f"it defines {', '.join(m.group(1) for m in _KERNEL.finditer(text)) or 'none'}"
        )
    return found


def _parameter(kernel: str, text: str) -> Parameter:
    match = re.fullmatch(r"(.*?)(\w+)", text.replace("__restrict__", " ").strip(), re.DOTALL)
    words = re.sub(r"\s*\*\s*", " *", match.group(1)).split() if match else []
    kind = " ".join(words)
    if not kind.endswith("*"):
        kind = " ".join(word for word in words if word != "const")
    if match is None or (not kind.endswith("*") and kind not in SCALARS):
        raise ValueError(
            f"kernel {kernel}: parameter '{' '.join(text.split())}' is neither a pointer nor one "
            f"of {', '.join(SCALARS)}"
        )
    return Parameter(match.group(2), kind)


MOST_BLOCKS = (0x7FFFFFFF, 0xFFFF, 0xFFFF)
"""The most blocks of a grid along x, y and z."""


def three(sizes: Sequence[int], what: str) -> tuple[int, int, int]:
    """`sizes` (one to three integers, none negative), padded with ones.

    Raises:
        ValueError: anything else, or more than a device allows.
    """
    values = [int(size) for size in sizes]
    if not 1 <= len(values) <= 3 or any(not 0 <= v <= n for v, n in zip(values, MOST_BLOCKS)):
        raise ValueError(f"{what} {tuple(sizes)} is not one to three sizes of {MOST_BLOCKS} at most")
    values += [1] * (3 - len(values))
    return values[0], values[1], values[2]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that other processes see all of it or nothing; creates its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
