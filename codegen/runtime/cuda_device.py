"""Runs emitted CUDA kernels on a GPU, through cuda-core.

In: CUDA C source and launches. Out: results in device memory and their copies. The source is
compiled by :func:`~fxlite.codegen.runtime.nvrtc.compile_cubin` for the device that is there, so a
driver and ``pip install fxlite[cuda]`` are all that is needed. One stream per module: copies and
launches run in the order in which they are issued, asynchronously to Python.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fxlite.codegen.runtime.launcher import Argument, DeviceBuffer, parse_kernels, three
from fxlite.codegen.runtime.nvrtc import CudaToolkitNotFound, compile_cubin, nvrtc_version

__all__ = ["CudaBuffer", "CudaDeviceNotFound", "CudaError", "CudaModule", "find_device"]

DEFAULT_SHARED = 48 * 1024
"""Bytes of shared memory a kernel may use without asking for more."""


class CudaDeviceNotFound(RuntimeError):
    """No CUDA device can be used; the message says what is missing and what to do."""


class CudaError(RuntimeError):
    """The driver reports a failure: of a launch, a copy, or a kernel that ran earlier."""


class CudaMemoryError(CudaError, MemoryError):
    """The device is out of memory."""


@dataclass(eq=False)
class CudaBuffer:
    """Device memory."""

    nbytes: int
    handle: Any = field(repr=False)  # cuda.core.Buffer; None after free()


def find_device(ordinal: int = 0) -> Any:
    """The CUDA device with that number, as a ``cuda.core.Device``, made current.

    Raises:
        CudaDeviceNotFound: the packages, the driver or the device is missing.
    """
    try:
        from cuda.bindings import driver
        from cuda.core import Device
    except ImportError as error:
        raise CudaDeviceNotFound(
            f"no CUDA device can be used: the Python packages are missing ({error}). "
            "Run: pip install fxlite[cuda]"
        ) from error
    try:
        status = driver.cuInit(0)[0]
    except RuntimeError as error:  # cuda.pathfinder: libcuda.so is not found
        raise CudaDeviceNotFound(
            "no CUDA device can be used: the NVIDIA driver's library (libcuda.so.1) does not load. "
            "Install the NVIDIA driver; in a container, start it with the GPU passed through "
            f"(docker run --gpus all). ({str(error).partition(chr(10))[0]})"
        ) from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise CudaDeviceNotFound(
            f"no CUDA device can be used: the NVIDIA driver does not start ({status.name}). "
            "Check that nvidia-smi lists a device, and CUDA_VISIBLE_DEVICES"
        )
    status, count = driver.cuDeviceGetCount()
    if status != driver.CUresult.CUDA_SUCCESS or ordinal not in range(count):
        raise CudaDeviceNotFound(
            f"no CUDA device {ordinal}: the driver sees {count} device(s). "
            "Check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    device = Device(ordinal)
    device.set_current()
    return device


class CudaModule:
    """CUDA kernels loaded on a GPU; implements the ``Launcher`` interface.

    Args:
        source: CUDA C; it may ``#include "prelude.cuh"``.
        kernels: the kernels to load; None for all in the source.
        name: the file name in diagnostics.
        contract: whether ``a * b + c`` may become a fused multiply-add.
        device: the device's number.

    Raises:
        CudaDeviceNotFound: packages, driver or device are missing.
        CudaCompileError: the source does not compile.
        ValueError: a kernel is missing, or a parameter type is not supported.
        CudaError: the driver cannot load the machine code.
    """

    def __init__(
        self,
        source: str,
        kernels: Sequence[str] | None = None,
        *,
        name: str = "kernels.cu",
        contract: bool = True,
        device: int = 0,
    ) -> None:
        self.kernels = parse_kernels(source, kernels)
        self.ordinal = device
        self._device = find_device(device)
        from cuda.bindings import driver
        from cuda.core import LaunchConfig, ObjectCode, launch

        self._driver, self._config, self._launch = driver, LaunchConfig, launch
        self._threads = threading.local()
        try:
            self.cubin = compile_cubin(source, f"sm_{self._device.arch}", name, contract=contract)
        except CudaToolkitNotFound as error:
            raise CudaDeviceNotFound(f"the device is there, but {error}") from error
        try:
            self._stream = self._device.create_stream()
            self._object = ObjectCode.from_cubin(self.cubin.code, name=name)
            self._loaded = {kernel: self._object.get_kernel(kernel) for kernel in self.kernels}
        except Exception as error:
            raise CudaError(
                f"device {self._device.name} ({self.cubin.arch}) cannot load {name}: {error}; a "
                f"cubin of NVRTC {nvrtc_version()} needs a driver for that CUDA major version"
            ) from error
        # Beyond 48 KB, static and dynamic together, a kernel must ask; see _grant_shared.
        self._shared_limit = int(self._device.properties.max_shared_memory_per_block_optin)
        self._static = {
            kernel: used.shared
            for kernel, used in self.cubin.kernels.items()
            if kernel in self.kernels
        }
        self._granted = {
            kernel: DEFAULT_SHARED - self._static.get(kernel, 0) for kernel in self.kernels
        }

    def __repr__(self) -> str:
        return f"CudaModule({', '.join(map(str, self.kernels.values()))})"

    def alloc(self, nbytes: int) -> CudaBuffer:
        """Uninitialized device memory of `nbytes`.

        Raises:
            CudaMemoryError: the device is out of memory.
        """
        self._enter()
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        try:  # CUDA refuses 0 bytes
            return CudaBuffer(nbytes, self._device.allocate(max(nbytes, 1), stream=self._stream))
        except Exception as error:
            raise CudaMemoryError(
                f"cannot allocate {nbytes:,} bytes on the device: {error}"
            ) from error

    def upload(self, array: NDArray[Any], into: DeviceBuffer | None = None) -> CudaBuffer:
        """Copy an array (in C order) to a new buffer, or into an existing one of its size.

        Pageable memory is staged by the driver before the call returns, so the array may be
        changed at once.
        """
        self._enter()
        data = np.ascontiguousarray(array)
        buffer = self.alloc(data.nbytes) if into is None else _own(into)
        if buffer.nbytes != data.nbytes:
            raise ValueError(f"{data.nbytes} bytes do not fit a buffer of {buffer.nbytes}")
        if data.nbytes:
            self._check(
                self._driver.cuMemcpyHtoDAsync(
                    self._pointer(buffer), data.ctypes.data, data.nbytes, self._stream.handle
                ),
                "copy to the device",
            )
        return buffer

    def download(
        self, buffer: DeviceBuffer, shape: Sequence[int], dtype: DTypeLike
    ) -> NDArray[Any]:
        """Wait for the launches before it, then return the buffer's content as a new array."""
        self._enter()
        own = _own(buffer)
        result = np.empty(tuple(shape), dtype)
        if result.nbytes != own.nbytes:
            raise ValueError(
                f"{result.dtype}{list(shape)} has {result.nbytes} bytes, the buffer {own.nbytes}"
            )
        if result.nbytes:
            self._check(
                self._driver.cuMemcpyDtoHAsync(
                    result.ctypes.data, self._pointer(own), result.nbytes, self._stream.handle
                ),
                "copy from the device",
            )
        self.synchronize()
        return result

    def launch(
        self,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        shmem: int,
        args: Sequence[Argument],
    ) -> None:
        """Start a kernel over a grid; see ``Launcher.launch``.

        Raises:
            CudaError: the driver refuses the launch, or an earlier kernel has failed.
            KeyError: no such kernel.
            TypeError, OverflowError: an argument does not fit its parameter.
        """
        self._enter()
        signature = self.kernels[kernel]
        signature.check_count(args)
        values: list[Any] = []
        for parameter, value in zip(signature.parameters, args):
            if not parameter.is_pointer:
                values.append(signature.scalar(parameter, value))
            elif isinstance(value, CudaBuffer) and value.handle is not None:
                values.append(value.handle)
            else:
                raise TypeError(
                    f"{kernel}: pointer {parameter.name} takes a live CudaBuffer, not {value!r}"
                )
        blocks, threads = three(grid, "grid"), three(block, "block")
        if 0 in blocks:
            return
        self._grant_shared(kernel, shmem)
        config = self._config(grid=blocks, block=threads, shmem_size=shmem)
        try:
            self._launch(self._stream, config, self._loaded[kernel], *values)
        except Exception as error:
            raise CudaError(
                f"cannot launch {kernel} on grid {blocks}, block {threads}, {shmem} bytes of "
                f"dynamic shared memory: {error}"
            ) from error

    def synchronize(self) -> None:
        """Wait until all copies and launches have ended.

        Raises:
            CudaError: one of them failed (an illegal address, say).
        """
        self._enter()
        try:
            self._stream.sync()
        except Exception as error:
            raise CudaError(f"a kernel or copy of {self!r} failed: {error}") from error

    def free(self, buffer: DeviceBuffer) -> None:
        """Give the memory back after the launches that were issued before."""
        own = _own(buffer)
        if own.handle is not None:
            self._enter()
            own.handle.close(self._stream)
            own.handle = None

    def _enter(self) -> None:
        """Make the device current in the calling thread, once per thread."""
        if not getattr(self._threads, "entered", False):
            find_device(self.ordinal)
            self._threads.entered = True

    def _pointer(self, buffer: CudaBuffer) -> Any:
        if buffer.handle is None:
            raise CudaError("the buffer is used after free()")
        return self._driver.CUdeviceptr(int(buffer.handle.handle))

    def _check(self, result: tuple[Any, ...], action: str) -> None:
        if result[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise CudaError(f"{action} failed: {result[0].name}")

    def _grant_shared(self, kernel: str, shmem: int) -> None:
        if shmem <= self._granted[kernel]:
            return
        limit = self._shared_limit - self._static.get(kernel, 0)
        if shmem > limit:
            raise CudaError(
                f"{kernel} asks for {shmem} bytes of dynamic shared memory; {self._device.name} "
                f"leaves it {limit}"
            )
        self._check(
            self._driver.cuKernelSetAttribute(
                self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shmem,
                self._loaded[kernel].handle,
                self._driver.CUdevice(self.ordinal),
            ),
            f"granting {shmem} bytes of shared memory to {kernel}",
        )
        self._granted[kernel] = shmem


def _own(buffer: object) -> CudaBuffer:
    if not isinstance(buffer, CudaBuffer):
        raise TypeError(f"a {type(buffer).__name__} is not a buffer of a CUDA device")
    return buffer


# -- what there is ---------------------------------------------------------------------------------
def describe_cuda() -> Mapping[str, str]:
    """The packages that CUDA needs and the GPUs, or why there is none."""
    found: list[str] = []
    missing: list[str] = []
    for package in ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    text = ", ".join(found) or "no packages"
    if missing:
        text += f"; missing: {', '.join(missing)} (pip install 'fxlite[cuda]')"
    return {"CUDA": text, "GPU": _devices()}


def _devices() -> str:
    found: list[str] = []
    try:
        while True:
            found.append(str(find_device(len(found)).name))
    except CudaDeviceNotFound as error:
        reason = str(error).removeprefix("no CUDA device can be used: ").partition(". ")[0]
        return ", ".join(found) or f"none: {reason}"
