"""Loads a compiled shared object and makes it callable with NumPy arrays.

In come the `Entry`, the `Library` that `build` made, and the packed weights; out comes a
`CompiledFunction`. Calls go through the extension inside the shared object if there is one, or else
through ctypes to `NAME_run`. Both make the same checks, raise the same errors, keep their workspaces
between calls, and let other Python threads run meanwhile.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import numpy as np

from fxlite.base.errors import MemoryLimitError, OptionError, number_of
from fxlite.codegen.runtime.abi import Array, Entry, bind_arguments
from fxlite.codegen.runtime.build import MODULE_NAME, BuildError, Library
from fxlite.codegen.runtime.sizes import checked_limit, whole_number
from fxlite.codegen.runtime.sizes import memory_limit as default_limit
from fxlite.codegen.runtime.toolchain import usable_cpus
from fxlite.types.dtypes import dtype

MOST_THREADS = 4096
"""The largest number of threads in a call: each takes scratch memory, which is thereby bounded."""
_ALIGNMENT = 64  # bytes, of workspace and weights
_INDEX_OUT_OF_RANGE, _OUT_OF_MEMORY, _WRONG_PROCESSOR = 1, 2, 3  # fx_math.h
_NO_FACTORS = 6

# Shared with every loaded model: the most threads that a call may use, and whether a call has used more
# than one. libgomp's threads do not survive a fork, and a parallel loop in the child would wait for
# them forever; therefore a child of a process that has run a parallel loop keeps to a single thread.
_PROCESS = np.array([np.iinfo(np.int32).max, 0], dtype=np.int32)


def _limit_threads_after_fork() -> None:
    if _PROCESS[1]:
        _PROCESS[0] = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit_threads_after_fork)


class CompiledFunction:
    """A compiled model: call it with NumPy arrays, by position or by keyword.

    Returns a new array, or a tuple of arrays. Calls from several threads run concurrently. Raises
    `TypeError` (dtype, not an array, missing or unexpected argument), `ValueError` (rank, dims),
    `IndexError` (an index in the data is out of range), `MemoryError` (a value, or results and
    workspace together, exceed `memory_limit` or cannot be allocated).
    """

    # As a slot, `__call__` is the extension's own function; a method around it would cost 0.2 us.
    __slots__ = ("__call__", "__dict__", "__weakref__")
    __call__: Callable[..., Any]

    def __init__(
        self,
        entry: Entry,
        library: Library,
        weights: bytes | Array = b"",
        n_threads: int | None = None,
        *,
        use_extension: bool = True,
        memory_limit: int | None = None,
    ) -> None:
        """`weights` is copied unless it is an array aligned to 64 bytes.

        Raises `BuildError` if the shared object cannot be loaded, and what :func:`checked_threads` and
        :func:`~.sizes.checked_limit` raise.
        """
        self.entry, self.library = entry, library
        self._threads, self._limit = np.ones(1, np.int32), np.empty(1, np.int64)
        self._limit[0] = default_limit() if memory_limit is None else checked_limit(memory_limit)
        self.n_threads = default_threads() if n_threads is None else n_threads
        shared, blob = _open(entry, library), _aligned(weights)
        self.interface = "ctypes"
        """How calls are made: `"extension"` or `"ctypes"`."""
        if use_extension and hasattr(shared, f"PyInit_{MODULE_NAME}"):
            self.interface = "extension"
            self.__call__ = _connect_extension(entry, library, blob, self._threads, self._limit)
        else:
            self.__call__ = _connect_ctypes(entry, shared, blob, self._threads, self._limit)

    def __repr__(self) -> str:
        return f"<compiled {self.entry}, {number_of(self.n_threads, 'thread')}, {self.interface}>"

    @property
    def n_threads(self) -> int:
        """How many threads a call uses; 1 without OpenMP and in a forked child."""
        return min(int(self._threads[0]), int(_PROCESS[0]))

    @n_threads.setter
    def n_threads(self, value: int) -> None:
        number = checked_threads(value)
        self._threads[0] = number if self.library.openmp else 1


def default_threads() -> int:
    """`OMP_NUM_THREADS` (its first number) if that is a number from 1 to :data:`MOST_THREADS`, or else the
    number of CPUs that this process may use."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    is_number = first.isascii() and first.isdecimal() and len(first) <= len(str(MOST_THREADS))
    return int(first) if is_number and 1 <= int(first) <= MOST_THREADS else usable_cpus()


def checked_threads(value: Any) -> int:
    """A number of threads given by a caller.

    Raises ArgumentError, which is a TypeError, for anything but an integer, and OptionError, a
    ValueError, for one that is not from 1 to :data:`MOST_THREADS`."""
    number = whole_number(value, "threads must be an integer")
    if not 1 <= number <= MOST_THREADS:
        raise OptionError(f"threads must be from 1 to {MOST_THREADS}, got {number}")
    return number


def _aligned(weights: bytes | Array) -> Array:
    """The weights as bytes that start at a multiple of 64; not copied if they do already."""
    source = np.frombuffer(weights, np.uint8) if isinstance(weights, bytes) else weights
    source = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
    if source.ctypes.data % _ALIGNMENT == 0:
        return source
    blob = aligned_empty(source.size)
    blob[:] = source
    return blob


def aligned_empty(size: int) -> Array:
    """Bytes that start at a multiple of 64."""
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size]


class LargeResults:
    """Memory of large results, which the next call writes again once nobody holds them. A C library maps new pages for
    a block of over 32 MiB each time, and writing to those for the first time takes as long as several products: 51 MB
    9.3 ms, again 2.5.

    A result is a view of this memory, as are its own views: an array's base is the array that owns the memory, so
    nobody holds it if only this object does. The blocks of two calls are kept: ``y = f(x)`` in a loop holds the last
    result while the next one is computed; but at most :data:`MOST` bytes."""

    LEAST, MOST = 16 << 20, 512 << 20

    def __init__(self, count: int) -> None:
        self._kept: deque[Array] = deque(maxlen=2 * count)
        self._lock = threading.Lock()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """``np.empty(shape, dtype)``."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not self.LEAST <= size <= self.MOST // 2 or not _COUNTS_REFERENCES:
            return np.empty(shape, dtype)
        kept = self._kept
        with self._lock:
            free = (
                i for i in range(len(kept)) if kept[i].nbytes == size and sys.getrefcount(kept[i]) == 1 + _OF_A_CALL
            )
            place = next(free, None)
            if place is None:
                kept.append(np.empty(size, np.uint8))
                while sum(memory.nbytes for memory in kept) > self.MOST:
                    kept.popleft()
                place = -1
            result: Array = kept[place].view(dtype).reshape(shape)
            return result


_OF_A_CALL = sys.getrefcount(np.empty(0))
"""What ``sys.getrefcount`` counts for an object that nobody else holds."""
_COUNTS_REFERENCES = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether that is the number of references: without a global lock, other threads count their own."""


def raise_error(entry: Entry, code: int, value: int, limit: int, where: int) -> NoReturn:
    """Raise the exception for an `fx_error`."""
    if code == _INDEX_OUT_OF_RANGE:
        known = 0 <= where < len(entry.locations)
        place = entry.locations[where] if known else f"place {where}"
        raise IndexError(f"{entry.name}(): index {value} is out of bounds for size {limit}: {place}")
    if code == _OUT_OF_MEMORY:
        if value > limit > 0:
            raise MemoryLimitError(
                f"{entry.name}(): results and workspace of this call take {value:,} bytes, and may "
                f"take {limit:,}; call it for a part of the data at a time, or allow more: "
                "memory_limit=BYTES of fx.compile, or FXLITE_MEMORY_LIMIT=GIGABYTES"
            )
        raise MemoryError(f"{entry.name}(): cannot allocate {value} bytes")
    if code == _WRONG_PROCESSOR:
        raise RuntimeError(
            f"{entry.name}(): compiled for a processor with instructions that this one lacks; "
            "compile it here, or for the lesser one (make ARCH=-march=x86-64-v3)"
        )
    if code == _NO_FACTORS:
        place = entry.locations[where] if 0 <= where < len(entry.locations) else f"place {where}"
        raise np.linalg.LinAlgError(f"{entry.name}(): column {value} of {limit}: {place}")
    raise RuntimeError(f"{entry.name}(): compiled code failed with the unknown code {code}")


def _crosses_as_bits(entry: Entry) -> bool:
    found = (dtype(spec.dtype) for spec in (*entry.inputs, *entry.outputs))
    return any(d.stored is not d.numpy for d in found)


def _restored(entry: Entry, result: Any) -> Any:
    """bf16 outputs arrive as uint16; give them their dtype."""
    if not _crosses_as_bits(entry):
        return result
    outputs = (result,) if entry.single_output else result
    restored = tuple(output.view(dtype(spec.dtype).numpy) for output, spec in zip(outputs, entry.outputs))
    return restored[0] if entry.single_output else restored


def _connect_extension(
    entry: Entry, library: Library, weights: Array, n_threads: Array, limit: Array
) -> Callable[..., Any]:
    """The extension's callable. Nothing that it holds refers back to it, so no cycle keeps weights alive."""
    loader = importlib.machinery.ExtensionFileLoader(MODULE_NAME, str(library.path))
    spec = importlib.util.spec_from_loader(MODULE_NAME, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    call: Callable[..., Any]
    large = LargeResults(len(entry.outputs)).empty
    call, run = module.connect(
        *(weights, n_threads, limit, _PROCESS, np.ndarray, np.generic, np.empty, large),
        *(partial(raise_error, entry), partial(_retry, entry, limit)),
        tuple(dtype(output.dtype).stored for output in entry.outputs),
    )
    if not _crosses_as_bits(entry):
        return call
    # The extension sees bf16 as uint16, but a user's array must not have that dtype.
    return lambda *args, **kwargs: _retry(entry, limit, run, args, kwargs)


def _retry(
    entry: Entry, limit: Array, run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Repeat a call that the extension did not accept: copy arrays if that helps, or raise the error."""
    arrays, dims = bind_arguments(entry, args, kwargs, int(limit[0]))
    result = run(*arrays)
    if result is NotImplemented:  # the extension also gives up on outputs of negative size
        for spec in entry.outputs:
            entry.output_shape(spec, dims)
        raise RuntimeError(f"{entry.name}(): the extension's checks disagree with Python's")
    return _restored(entry, result)


class _Error(ctypes.Structure):
    """fx_error of the C interface."""

    _fields_ = [("code", ctypes.c_int), ("value", ctypes.c_int64), ("limit", ctypes.c_int64), ("where", ctypes.c_int64)]


def _open(entry: Entry, library: Library) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library.path))
    except OSError as error:
        raise BuildError(f"cannot load the compiled {entry.name}: {error}") from None


def _connect_ctypes(
    entry: Entry, shared: ctypes.CDLL, weights: Array, n_threads: Array, limit: Array
) -> Callable[..., Any]:
    """A callable for `NAME_run` through ctypes."""
    workspace_bytes, run = shared[f"{entry.name}_workspace_bytes"], shared[f"{entry.name}_run"]
    weights_pointer = weights.ctypes.data_as(ctypes.c_void_p)  # keeps the array alive
    dims_types = [ctypes.c_int64] * len(entry.dims)
    pointers = [ctypes.c_void_p] * (len(entry.inputs) + len(entry.outputs))
    workspace_bytes.argtypes, workspace_bytes.restype = [*dims_types, ctypes.c_int], ctypes.c_int64
    run.argtypes = [*pointers, *dims_types, *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Error))]
    run.restype = ctypes.c_int
    results = LargeResults(len(entry.outputs))
    idle: list[Array] = []  # workspaces, guarded by the lock
    lock = threading.Lock()

    def take_workspace(size: int) -> Array:
        with lock:
            workspace = idle.pop() if idle else None
        if workspace is not None and workspace.size >= size:
            return workspace
        del workspace  # before the larger one is allocated
        try:
            return aligned_empty(size)
        except (MemoryError, ValueError):
            raise_error(entry, _OUT_OF_MEMORY, size, 0, -1)

    def call(*args: Any, **kwargs: Any) -> Any:
        most = int(limit[0])
        arrays, dims = bind_arguments(entry, args, kwargs, most)
        outputs = tuple(
            results.empty(entry.output_shape(spec, dims), dtype(spec.dtype).stored) for spec in entry.outputs
        )
        threads = min(int(n_threads[0]), int(_PROCESS[0]))
        if threads > 1:
            _PROCESS[1] = 1
        size = workspace_bytes(*dims.values(), threads)
        total = size + sum(output.nbytes for output in outputs)
        if total > most:
            raise_error(entry, _OUT_OF_MEMORY, total, most, -1)
        workspace = take_workspace(size) if size else None
        error = _Error()
        status = run(
            *(array.ctypes.data for array in (*arrays, *outputs)),
            *dims.values(),
            weights_pointer,
            None if workspace is None else workspace.ctypes.data,
            threads,
            ctypes.byref(error),
        )
        if workspace is not None:
            with lock:
                idle.append(workspace)
        if status:
            raise_error(entry, error.code, error.value, error.limit, error.where)
        return _restored(entry, outputs[0] if entry.single_output else outputs)

    return call
