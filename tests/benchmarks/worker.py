"""One engine on one workload in a process of its own, pinned to as many cores as it has threads.

In: names and a number of cores. Out: what the first result took, what it was, blocks of repetitions
(:mod:`tests.benchmarks.timing`) and memory. Processes keep the engines' thread pools apart (a pool
that spins for work would take a core from its competitor), their memory, and their crashes.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fxlite.show.node_cost import Roofs
from tests.benchmarks.engines import find_engine
from tests.benchmarks.timing import Block, block
from tests.benchmarks.why import Explanation, explain
from tests.benchmarks.workloads import Job, as_arrays, error, sqnr


class Failed(RuntimeError):
    """An engine could not do what it was asked: its error, a crash, or too much time."""


@dataclass(frozen=True)
class First:
    """The first result: ``seconds`` from a model in memory to it, its ``error`` against float64,
    the ``precision`` the engine says it computes in, the signal-to-noise ratio in dB, and the
    ``megabytes`` of the model's files (NaN: it was in memory)."""

    seconds: float
    error: float
    precision: str
    sqnr: float = math.nan
    megabytes: float = math.nan


class Worker:
    """A process with an engine; answers one request at a time. ``patience``: seconds for an answer,
    after which the process is ended. Requests raise Failed."""

    def __init__(self, engine: str, job: Job, cores: list[int], patience: float) -> None:
        context = get_context("spawn")
        self.patience = patience
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(engine, job, cores, other), daemon=True)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(len(cores))  # read by the libraries' first import
        self.process.start()
        other.close()
        self.pipe.send(("open",))

    def ready(self) -> None:
        """Wait until the engine's modules are imported and the model is in memory."""
        self._answer()

    def first(self) -> First:
        """Build, and call once."""
        return self._ask("first")  # type: ignore[no-any-return]

    def run(self, seconds: float) -> Block:
        """One block of repetitions."""
        return self._ask("run", seconds)  # type: ignore[no-any-return]

    def memory(self) -> float:
        """Most megabytes resident since the imports beyond what was resident after them; NaN where
        the system does not say."""
        return self._ask("memory")  # type: ignore[no-any-return]

    def explain(self, roofs: Roofs) -> Explanation | None:
        """What fxlite's kernels have to do, and how far from the roofs they are."""
        return self._ask("explain", roofs)  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process, kindly where it still listens."""
        self.pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _ask(self, *request: Any) -> Any:
        with contextlib.suppress(OSError):  # then there is no answer either
            self.pipe.send(request)
        return self._answer()

    def _answer(self) -> Any:
        try:
            if not self.pipe.poll(self.patience):
                self.process.kill()
                raise Failed(f"no answer in {self.patience:g} s")
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(timeout=5)
            raise Failed(f"its process ended with {self.process.exitcode}") from None
        if isinstance(answer, Failed):
            raise answer
        return answer


def _serve(engine: str, job: Job, cores: list[int], pipe: Connection) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    answer = _Server(engine, job, len(cores))
    while True:
        try:
            request, *values = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(getattr(answer, request)(*values))
        except Exception as problem:
            text = str(problem).strip().splitlines() or [""]
            pipe.send(Failed(f"{type(problem).__name__}: {text[0][:200]}"))


class _Server:
    """What goes on in the process; the methods are the requests."""

    def __init__(self, engine: str, job: Job, threads: int) -> None:
        self.engine, self.job, self.threads = engine, job, threads
        self.call: Callable[[], Any] = lambda: None
        self.module: Any = None
        self.base = 0.0

    def open(self) -> None:
        found = find_engine(self.engine)
        for module in found.modules:
            importlib.import_module(module)
        self.base = _resident("VmRSS")
        self.build = found.open(self.job, self.threads)
        _forget_peak()

    def first(self) -> First:
        start = time.perf_counter()
        loaded = self.build()
        result = loaded.call()
        seconds = time.perf_counter() - start
        self.call, self.module = loaded.call, loaded.module
        arrays, expected = as_arrays(result), self.job.reference()
        return First(seconds, error(arrays, expected), loaded.precision, sqnr(arrays, expected), loaded.megabytes)

    def run(self, seconds: float) -> Block:
        return block(self.call, seconds)

    def memory(self) -> float:
        return _resident("VmHWM") - self.base

    def explain(self, roofs: Roofs) -> Explanation | None:
        return explain(self.job, self.threads, roofs, self.module)


def _resident(field: str) -> float:
    """Megabytes of this process now (``VmRSS``) or at most (``VmHWM``); NaN if unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(s.split()[1]) for s in lines if s.startswith(field)) / 1024
    except (OSError, StopIteration):
        return float("nan")


def _forget_peak() -> None:
    """Let ``VmHWM`` begin anew: what drawing and reading weights took does not count, nor what the
    allocator kept of it."""
    with contextlib.suppress(OSError, AttributeError):  # it is glibc's
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return  # then it counts
