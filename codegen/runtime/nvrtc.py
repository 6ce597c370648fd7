"""Compiles CUDA C to a cubin with NVRTC; needs neither a GPU nor a driver nor the CUDA toolkit.

In: CUDA C source (it may ``#include "prelude.cuh"``) and an architecture such as ``sm_90``.
Out: a :class:`Cubin` — the machine code, the log, and what each kernel takes in registers,
spills and shared memory. Results are kept on disk, keyed by everything that they depend on.
Only ``pip install fxlite[cuda]`` is needed (cuda-core, cuda-bindings, nvidia-cuda-nvrtc).

A cubin for the exact architecture is asked for, never PTX: PTX written by a newer NVRTC than the
driver is refused, while a cubin loads within one major version of CUDA.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fxlite.codegen.runtime.cache import cache_folder, intact_file, publish
from fxlite.codegen.runtime.launcher import (
    INCLUDE_FOLDERS,
    included_headers,
)

__all__ = [
    "Cubin",
    "CudaCompileError",
    "CudaToolkitNotFound",
    "KernelResources",
    "compile_cubin",
    "nvrtc_version",
    "supported_architectures",
]


class CudaToolkitNotFound(RuntimeError):
    """The Python packages that hold NVRTC are not installed, or do not load."""


class CudaCompileError(RuntimeError):
    """NVRTC refused the source; the message holds its diagnostics."""


@dataclass(frozen=True)
class KernelResources:
    """What one kernel takes on the device, from ptxas.

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
        return f"{self.registers} registers, {spills}, {self.shared} bytes shared"


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
    source: str,
    arch: str,
    name: str = "kernels.cu",
    *,
    contract: bool = True,
    cache: bool = True,
) -> Cubin:
    """Compile CUDA C for one architecture.

    Args:
        source: the text of the .cu file.
        arch: ``sm_80``, ``sm_90``, ``sm_90a``, …; see :func:`supported_architectures`.
        name: the file name in diagnostics.
        contract: whether ``a * b + c`` may become a fused multiply-add (CUDA's default). Integer
            results that depend on a rounded product need False.
        cache: whether to look in the cache on disk, and to keep the result there.

    Raises:
        CudaToolkitNotFound: the packages are missing.
        CudaCompileError: the source does not compile; the diagnostics are in the message.
        ValueError: NVRTC does not know the architecture.
    """
    version = nvrtc_version()
    known = supported_architectures()
    if not re.fullmatch(r"sm_\d+[af]?", arch) or arch.rstrip("af") not in known:
        raise ValueError(
            f"architecture {arch!r} is unknown to NVRTC {version}, which has {', '.join(known)}"
        )
    headers = [header.read_text(encoding="utf-8") for header in included_headers(source)]
    digest = hashlib.sha256()
    for part in ("1", source, *headers, arch, name, str(contract), version):
        digest.update(part.encode() + b"\0")
    # The log is written first: where the cubin is, the log is there too.
    folder, key = cache_folder() / "nvrtc", digest.hexdigest()[:32]
    if cache:
        path = intact_file(folder, f"{key}-code.cubin")
        log_path = intact_file(folder, f"{key}-log.log")
        if path is not None and log_path is not None:
            log = log_path.read_text(encoding="utf-8")
            return Cubin(name, arch, path.read_bytes(), log, _parse_resources(log))
    code, log = _compile(source, arch, name, contract)
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
    """The architectures this NVRTC compiles for: ``["sm_75", "sm_80", …]``.

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


def _compile(source: str, arch: str, name: str, contract: bool) -> tuple[bytes, str]:
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
