"""Where tests run emitted CUDA: on the CPU shim, in both orders of threads, and on a GPU where there
is one.

In: CUDA C. Out: launchers by what messages call them. ``FXLITE_TEST_CUDA=device`` leaves the shim
out and fails where no GPU is found (for the hours of a borrowed one), ``shim`` leaves the GPU out.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.codegen.cuda.emit import CudaProgram, emit
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.cuda_device import CudaDeviceNotFound, CudaModule, find_device
from fxlite.codegen.runtime.cuda_shim import Order, ShimModule
from fxlite.codegen.runtime.launcher import Launcher

ORDERS: tuple[Order, ...] = ("forward", "backward")


def emitted(program: Any, *types: Any, name: str = "model") -> CudaProgram:
    """What the back end emits for a program."""
    return emit(optimize(fx.symbolic_trace(program, *types))[0], name)


@functools.cache
def places() -> tuple[str, ...]:
    """Some of ``forward``, ``backward`` (the shim's orders of threads) and ``device``."""
    wanted = os.environ.get("FXLITE_TEST_CUDA", "")
    if wanted not in ("", "shim", "device"):
        raise ValueError(f"FXLITE_TEST_CUDA must be shim or device, not {wanted!r}")
    if wanted == "shim":
        return ORDERS
    try:
        find_device()
    except CudaDeviceNotFound:
        if wanted:
            raise
        return ORDERS
    return ("device",) if wanted else (*ORDERS, "device")


def launcher(source: str, place: str, flags: Sequence[str] = ()) -> Launcher:
    """The kernels of a source, ready to run. ``flags`` are for the shim's compiler."""
    if place == "device":
        return CudaModule(source)
    return ShimModule(source, order=place, flags=flags)  # type: ignore[arg-type]


def launchers(source: str) -> Iterator[tuple[str, Launcher]]:
    """A launcher for each of the :func:`places`."""
    for place in places():
        yield f"cuda {place}", launcher(source, place)


def device_option() -> int | str:
    """``device=`` of ``fx.compile``: the GPU where there is one, else the shim."""
    return 0 if "device" in places() else "shim"


def launch_on_arrays(
    module: Launcher, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int = 0
) -> None:
    """Launch a kernel on arrays in the host's memory; what it writes stands in them afterwards."""
    held = [module.upload(a) if isinstance(a, np.ndarray) else a for a in arguments]
    module.launch(kernel, grid, block, shared, held)
    for given, buffer in zip(arguments, held):
        if isinstance(given, np.ndarray):
            given[...] = module.download(buffer, given.shape, given.dtype)
            module.free(buffer)
