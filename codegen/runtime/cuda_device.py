"""Compiles CUDA C to a cubin with NVRTC, which needs neither a GPU nor a driver nor the CUDA
toolkit, and runs its kernels on a GPU, through cuda-core.

In: CUDA C source (it may ``#include "prelude.cuh"``) and an architecture such as ``sm_90``. Out: a
:class:`Cubin` — the machine code, the log, and the registers, spills and shared memory of each kernel.
Results are kept on disk under a key of everything they depend on. Only ``pip install fxlite[cuda]`` is
needed (cuda-core, cuda-bindings, nvidia-cuda-nvrtc). The output is always a cubin for the exact
architecture, never PTX: a driver rejects PTX written by a newer NVRTC, while a cubin loads within one
major version of CUDA.

In: CUDA C source and launches. Out: results in device memory and copies of them. The source is
compiled for the device of this machine. There is one stream per module: copies and launches run in the
order in which they are issued, asynchronously to Python.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import math
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fxlite.base.errors import number_of
from fxlite.codegen.runtime.cache import cache_folder, intact_file, publish
from fxlite.codegen.runtime.launcher import (
    INCLUDE_FOLDERS,
    Argument,
    DeviceBuffer,
    included_headers,
    parse_kernels,
    three,
)


class CudaToolkitNotFound(RuntimeError):
    """The Python packages that hold NVRTC are not installed, or cannot be loaded."""


class CudaCompileError(RuntimeError):
    """NVRTC rejected the source; the message holds its diagnostics."""


@dataclass(frozen=True)
class KernelResources:
    """The resources that one kernel takes on the device, from ptxas.

    Args:
        registers: per thread.
        spill_stores: bytes of registers written to local memory per thread; 0 is good.
        spill_loads: bytes read back.
        stack: bytes of local memory per thread.
        shared: bytes of static shared memory per block.
        barriers: block barriers in use.
    """

    registers: int
    spill_stores: int = 0
    spill_loads: int = 0
    stack: int = 0
    shared: int = 0
    barriers: int = 0

    def __str__(self) -> str:
        spills = f"{self.spill_stores} bytes spilled" if self.spill_stores else "no spills"
        return f"{number_of(self.registers, 'register')}, {spills}, {number_of(self.shared, 'byte')} shared"


@dataclass(frozen=True)
class Cubin:
    """Compiled kernels for one architecture."""

    name: str
    arch: str
    code: bytes = field(repr=False)
    log: str = field(repr=False)
    kernels: Mapping[str, KernelResources]

    def __str__(self) -> str:
        lines = [f"{self.name} for {self.arch}: {len(self.code)} bytes"]
        return "\n  ".join(lines + [f"{name}: {used}" for name, used in self.kernels.items()])


def compile_cubin(
    source: str, arch: str, name: str = "kernels.cu", *, contract: bool = True, quick: bool = False, cache: bool = True
) -> Cubin:
    """Compile CUDA C for one architecture.

    Args:
        source: the text of the .cu file.
        arch: ``sm_80``, ``sm_90``, ``sm_90a``, …; see :func:`supported_architectures`.
        name: the file name in diagnostics.
        contract: whether ``a * b + c`` may become a fused multiply-add (CUDA's default). Integer
            results that depend on a rounded product need False.
        quick: whether slow code is acceptable, which takes a quarter of the time to compile; for
            checking that a source compiles.
        cache: whether to look in the cache on disk, and to keep the result there.

    Raises:
        CudaToolkitNotFound: the packages are missing.
        CudaCompileError: the source does not compile; the diagnostics are in the message.
        ValueError: NVRTC does not know the architecture.
    """
    version = nvrtc_version()
    known = supported_architectures()
    if not re.fullmatch(r"sm_\d+[af]?", arch) or arch.rstrip("af") not in known:
        raise ValueError(f"architecture {arch!r} is unknown to NVRTC {version}, which has {', '.join(known)}")
    headers = [header.read_text(encoding="utf-8") for header in included_headers(source)]
    digest = hashlib.sha256()
    for part in ("1", source, *headers, arch, name, str(contract), str(quick), version):
        digest.update(part.encode() + b"\0")
    # The log is written first: if the cubin exists, so does the log.
    folder, key = cache_folder() / "nvrtc", digest.hexdigest()[:32]
    if cache:
        path = intact_file(folder, f"{key}-code.cubin")
        log_path = intact_file(folder, f"{key}-log.log")
        if path is not None and log_path is not None:
            log = log_path.read_text(encoding="utf-8")
            return Cubin(name, arch, path.read_bytes(), log, _parse_resources(log))
    code, log = _compile(source, arch, name, contract, quick)
    if cache:
        publish(log.encode(), folder, f"{key}-log.log")
        publish(code, folder, f"{key}-code.cubin")
    return Cubin(name, arch, code, log, _parse_resources(log))


def nvrtc_version() -> str:
    """The version of NVRTC, such as ``13.5``.

    Raises:
        CudaToolkitNotFound: the packages are missing.
    """
    _, major, minor = _nvrtc_call("nvrtcVersion")
    return f"{major}.{minor}"


def supported_architectures() -> list[str]:
    """The architectures that this NVRTC can compile for: ``["sm_75", "sm_80", …]``.

    Raises:
        CudaToolkitNotFound: the packages are missing.
    """
    return [f"sm_{number}" for number in _nvrtc_call("nvrtcGetSupportedArchs")[1]]


def _nvrtc_call(function: str) -> Any:
    try:
        from cuda.bindings import nvrtc

        result = getattr(nvrtc, function)()
    except (ImportError, RuntimeError) as error:  # RuntimeError: the library is not found
        raise _not_found(error) from error
    if int(result[0]) != 0:
        raise CudaToolkitNotFound(f"NVRTC is installed, but {function} fails: {result[0]}")
    return result


def _not_found(error: Exception) -> CudaToolkitNotFound:
    reason = str(error).partition("\n")[0]
    return CudaToolkitNotFound(
        "compiling CUDA needs the packages cuda-core, cuda-bindings and nvidia-cuda-nvrtc: "
        f"pip install fxlite[cuda] ({reason})"
    )


def _compile(source: str, arch: str, name: str, contract: bool, quick: bool) -> tuple[bytes, str]:
    try:
        from cuda.core import Program, ProgramOptions
    except (ImportError, RuntimeError) as error:
        raise _not_found(error) from error
    log = io.StringIO()
    options = ProgramOptions(
        name=name,
        arch=arch,
        std="c++17",
        fma=contract,
        include_path=[str(folder) for folder in INCLUDE_FOLDERS],
        ptxas_options=["-v"],
        ofast_compile="max" if quick else None,
    )
    try:
        code = bytes(Program(source, "c++", options).compile("cubin", logs=log).code)
    except Exception as error:  # cuda-core's NVRTCError is not public
        raise CudaCompileError(f"NVRTC cannot compile {name} for {arch}:\n{error}") from error
    return code, log.getvalue()


def _parse_resources(log: str) -> dict[str, KernelResources]:
    """Read ptxas's ``-v`` report: a block of lines for each kernel."""

    def number(pattern: str, text: str) -> int:
        match = re.search(pattern, text)
        return int(match.group(1)) if match else 0

    kernels: dict[str, KernelResources] = {}
    for block in re.split(r"(?=Compiling entry function )", log)[1:]:
        match = re.match(r"Compiling entry function '([^']*)'", block)
        if match:
            kernels[match.group(1)] = KernelResources(
                registers=number(r"Used (\d+) registers", block),
                spill_stores=number(r"(\d+) bytes spill stores", block),
                spill_loads=number(r"(\d+) bytes spill loads", block),
                stack=number(r"(\d+) bytes stack frame", block),
                shared=number(r"(\d+) bytes smem", block),
                barriers=number(r"used (\d+) barriers", block),
            )
    return kernels


DEFAULT_SHARED = 48 * 1024
"""Bytes of shared memory a kernel may use without asking for more."""


class CudaDeviceNotFound(RuntimeError):
    """No CUDA device can be used; the message says what is missing and what to do."""


class CudaError(RuntimeError):
    """The driver reports the failure of a launch, a copy, or a kernel that ran earlier."""


class CudaMemoryError(CudaError, MemoryError):
    """The device is out of memory."""


@dataclass(eq=False)
class CudaBuffer:
    """Device memory."""

    nbytes: int
    handle: Any = field(repr=False)  # cuda.core.Buffer; None after free()

    @property
    def address(self) -> int:
        """The address of its first byte."""
        if self.handle is None:
            raise CudaError("the buffer is used after free()")
        return int(self.handle.handle)


def find_device(ordinal: int = 0) -> Any:
    """The CUDA device with this number, as a ``cuda.core.Device``, made current.

    Raises:
        CudaDeviceNotFound: the packages, the driver or the device is missing.
    """
    try:
        from cuda.bindings import driver
        from cuda.core import Device
    except ImportError as error:
        raise CudaDeviceNotFound(
            f"no CUDA device can be used: the Python packages are missing ({error}). Run: pip install fxlite[cuda]"
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
            f"no CUDA device {ordinal}: the driver sees {count} device(s). Check nvidia-smi and CUDA_VISIBLE_DEVICES"
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
        self._recording, self._freed_later = False, list[CudaBuffer]()
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
        # Beyond 48 KB, static and dynamic together, a kernel must request it; see _grant_shared.
        self._shared_limit = int(self._device.properties.max_shared_memory_per_block_optin)
        self._static = {kernel: used.shared for kernel, used in self.cubin.kernels.items() if kernel in self.kernels}
        self._granted = {kernel: DEFAULT_SHARED - self._static.get(kernel, 0) for kernel in self.kernels}

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
            raise CudaMemoryError(f"cannot allocate {nbytes:,} bytes on the device: {error}") from error

    def upload(self, array: NDArray[Any], into: DeviceBuffer | None = None) -> CudaBuffer:
        """Copy an array (in C order) to a new buffer, or into an existing one of its size.

        Pageable memory is staged by the driver before the call returns, so the array may be
        changed at once.
        """
        self._enter()
        data = np.ascontiguousarray(array)
        buffer = self._target(data.nbytes, into)
        if data.nbytes:
            self._check(
                self._driver.cuMemcpyHtoDAsync(
                    self._pointer(buffer), data.ctypes.data, data.nbytes, self._stream.handle
                ),
                "copy to the device",
            )
        return buffer

    def copy(self, source: Any, into: DeviceBuffer | None = None) -> CudaBuffer:
        """Copy a buffer, or an object with ``__cuda_array_interface__``, on the device. The copy waits for
        the work already given to the default stream, or to the stream that the object names.

        Raises:
            ValueError: the object's elements are not dense, or do not fit.
        """
        self._enter()
        if isinstance(source, CudaBuffer):
            address, nbytes = source.address, source.nbytes
        else:
            address, nbytes = self._foreign(source.__cuda_array_interface__)
        buffer = self._target(nbytes, into)
        if nbytes:
            pointer = self._driver.CUdeviceptr(address)
            done = self._driver.cuMemcpyDtoDAsync(self._pointer(buffer), pointer, nbytes, self._stream.handle)
            self._check(done, "copy on the device")
        return buffer

    def _target(self, nbytes: int, into: DeviceBuffer | None) -> CudaBuffer:
        buffer = self.alloc(nbytes) if into is None else _own(into)
        if buffer.nbytes != nbytes:
            raise ValueError(f"{nbytes} bytes do not fit a buffer of {buffer.nbytes}")
        return buffer

    def _foreign(self, interface: Mapping[str, Any]) -> tuple[int, int]:
        """Address and bytes of an array of another library; waits for its stream, which is the default one,
        1, if it names none."""
        shape, kind, strides = interface["shape"], np.dtype(interface["typestr"]), interface.get("strides")
        dense = [kind.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        if strides is not None and any(s != d and n > 1 for s, d, n in zip(strides, dense, shape)):
            raise ValueError(
                f"an array of shape {list(shape)} on the device has strides {list(strides)}: make it dense"
            )
        stream = self._driver.CUstream(interface.get("stream") or 1)
        self._check(self._driver.cuStreamSynchronize(stream), "waiting for the stream of an argument")
        return int(interface["data"][0]), kind.itemsize * math.prod(shape)

    def record(self, run: Callable[[], None]) -> Callable[[], None]:
        """A CUDA graph of the launches that ``run`` makes: starting it takes some microseconds, however
        many launches there are. Nothing is run yet.

        Raises:
            CudaError: the driver refuses; what ``run`` raises.
        """
        self._enter()
        driver, stream = self._driver, self._stream.handle
        # Relaxed, because the garbage collector may free memory of other streams meanwhile.
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._check(driver.cuStreamBeginCapture(stream, mode), "recording launches")
        self._recording = True
        try:
            run()
        finally:
            ended = driver.cuStreamEndCapture(stream)
            self._recording = False
            while self._freed_later:
                self.free(self._freed_later.pop())
        self._check(ended, "recording launches")
        made = driver.cuGraphInstantiate(ended[1], 0)
        driver.cuGraphDestroy(ended[1])
        self._check(made, "instantiating recorded launches")

        def replay() -> None:
            self._enter()
            self._check(driver.cuGraphLaunch(made[1], stream), "starting recorded launches")

        weakref.finalize(replay, driver.cuGraphExecDestroy, made[1])
        return replay

    def download(self, buffer: DeviceBuffer, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Wait for earlier launches, then return the buffer's content as a new array."""
        self._enter()
        own = _own(buffer)
        result = np.empty(tuple(shape), dtype)
        if result.nbytes != own.nbytes:
            raise ValueError(f"{result.dtype}{list(shape)} has {result.nbytes} bytes, the buffer {own.nbytes}")
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
        self, kernel: str, grid: Sequence[int], block: Sequence[int], shmem: int, args: Sequence[Argument]
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
                raise TypeError(f"{kernel}: pointer {parameter.name} takes a live CudaBuffer, not {value!r}")
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
            CudaError: one of them failed (because of an illegal address, for instance).
        """
        self._enter()
        try:
            self._stream.sync()
        except Exception as error:
            raise CudaError(f"a kernel or copy of {self!r} failed: {error}") from error

    def free(self, buffer: DeviceBuffer) -> None:
        """Release the memory after the launches that were issued before."""
        own = _own(buffer)
        if self._recording:  # otherwise it would be freed whenever the recording is run
            self._freed_later.append(own)
        elif own.handle is not None:
            self._enter()
            own.handle.close(self._stream)
            own.handle = None

    def _enter(self) -> None:
        """Make the device current in the calling thread, once per thread."""
        if not getattr(self._threads, "entered", False):
            find_device(self.ordinal)
            self._threads.entered = True

    def _pointer(self, buffer: CudaBuffer) -> Any:
        return self._driver.CUdeviceptr(buffer.address)

    def _check(self, result: tuple[Any, ...], action: str) -> None:
        if result[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise CudaError(f"{action} failed: {result[0].name}")

    def _grant_shared(self, kernel: str, shmem: int) -> None:
        if shmem <= self._granted[kernel]:
            return
        limit = self._shared_limit - self._static.get(kernel, 0)
        if shmem > limit:
            raise CudaError(
                f"{kernel} asks for {shmem} bytes of dynamic shared memory; {self._device.name} leaves it {limit}"
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
    text = f"not installed: {', '.join(missing)}" if missing else ", ".join(found)
    return {"CUDA": text, "GPU": _devices()}


def _devices() -> str:
    found: list[str] = []
    try:
        while True:
            found.append(str(find_device(len(found)).name))
    except CudaDeviceNotFound as error:
        reason = str(error).removeprefix("no CUDA device can be used: ").partition(". ")[0]
        return ", ".join(found) or f"none: {reason}"
