"""Fuzzing of what is read from outside: saved graphs, graphs as text, plans, weights in all formats, and models of
ONNX and PyTorch, where their packages are installed.

In: a number of files and a seed. Out: counts, and what went wrong. Each file is a mutation of a
good one: of its bytes, or of the JSON, the text or the header in it, with texts that try to run
code. A worker process with 2 GB of memory and 5 seconds of processor time for each (15 for a model) reads it and, if
it is accepted, saves it again, prints it, draws it and emits Python and C; some of it is compiled.

A file must be refused with an error of fxlite, or all of that must work. Audit hooks of Python tell
of programs that are started, modules that are imported and files that are written.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import random
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MEMORY = 2 << 30  # bytes of address space beside that of the libraries
_WALL = 120  # seconds until a worker that says nothing is stopped
CANARY = "fxlite_canary"  # a module that nothing imports and a file that nothing writes
#: Kinds of files and, for those of another package, that package.
_PACKAGES = {"archive": "", "json": "", "text": "", "weights": "", "plan": "", "onnx": "onnx", "pt2": "torch"}
KINDS = tuple(kind for kind, package in _PACKAGES.items() if not package or importlib.util.find_spec(package))
#: Seconds of processor time that a file of a kind may take.
SECONDS = {kind: 15 if package else 5 for kind, package in _PACKAGES.items()}


@dataclass
class FileCounts:
    """What was tried: files by kind and by what became of them; ``failures`` are (seed, what)."""

    files: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def __str__(self) -> str:
        listed = "\n".join(f"  {name}: {count:,}" for name, count in sorted(self.files.items()))
        return f"{self.files.total():,} files, {len(self.failures)} failures\n{listed}"


# -- the parent ------------------------------------------------------------------------------------
def check_files(count: int, seed: int, counts: FileCounts) -> None:
    """Try the files with seeds from ``seed`` on, each in a worker."""
    number, stop = seed, seed + count
    while number < stop:
        number = _run_worker(number, stop, counts)


def _run_worker(number: int, stop: int, counts: FileCounts) -> int:
    """Let a worker go on from a seed; the next one after it ended, as it should or not."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.fuzz.files", str(number), str(stop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as worker:
        assert worker.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(worker.stdout, selectors.EVENT_READ)
            while number < stop:
                line = worker.stdout.readline() if waiting.select(_WALL) else b"hang"
                if line in (b"", b"hang"):
                    worker.kill()
                    what = "it hangs" if line else f"the worker ended with {worker.wait()}"
                    counts.failures.append((number, what))
                    counts.files["ended"] += 1
                    if len(counts.failures) > 100:
                        raise AssertionError(f"too many failures: {counts.failures[-3:]}")
                    return number + 1
                kind, outcome, problem = json.loads(line)
                counts.files[f"{kind}, {outcome}"] += 1
                if problem:
                    counts.failures.append((number, f"{kind}: {problem}"))
                number += 1
                if number % 1000 == 0:
                    print(f"{number - 1:,}: {len(counts.failures)} failures", file=sys.stderr)
    return number


# -- the worker ------------------------------------------------------------------------------------
def _work(first: int, stop: int) -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # what fxlite prints goes to the terminal, answers to the parent
    os.environ["FXLITE_CACHE"] = os.environ.get("FXLITE_CACHE") or tempfile.mkdtemp()
    from tests.fuzz.mutations import Subjects, mutated, read

    subjects = Subjects.make()
    for kind in KINDS:  # whatever reading needs is imported before its memory is limited
        read(kind, subjects.good[kind], Path(tempfile.gettempdir()), subjects, 0, contextlib.nullcontext)
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").is_file() else 0
    limit = MEMORY + pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        watch = _Watch(Path(folder))
        for number in range(first, stop):
            choose = random.Random(number)
            kind = KINDS[number % len(KINDS)]
            watch.found.clear()
            try:
                data = mutated(kind, subjects, choose)
                use = functools.partial(read, kind, data, Path(folder), subjects, number, watch.compiling)
                outcome, problem = _judged(use, SECONDS[kind])
            except RecursionError:  # the mutation itself nests deeper than can be written
                outcome, problem = "refused", ""
            if watch.found:
                outcome, problem = "failed", f"it ran code: {watch.found[:3]}"
            os.write(answers, (json.dumps([kind, outcome, problem]) + "\n").encode())


def _judged(read: Callable[[], bool], seconds: int) -> tuple[str, str]:
    from fxlite.base.errors import FxliteError

    def stop(*_: Any) -> None:
        raise _TooSlow

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return ("accepted" if read() else "refused"), ""
    except _TooSlow:
        return "failed", f"more than {seconds} s, in {_places()}"
    except FxliteError as error:  # what cannot be emitted, say, is said
        return "accepted", "" if len(str(error)) > 20 else f"the error says little: {error!r}"
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {str(error)[:200]} in {_places()}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class _TooSlow(BaseException):
    """The time is over."""


def _places() -> str:
    frames = traceback.extract_tb(sys.exc_info()[2])
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[:-7:-1])


class _Watch:
    """Notes events that no file may cause. ``compiling`` is a context in which programs may be
    started."""

    _ALWAYS = (
        "os.system",
        "os.exec",
        "os.spawn",
        "os.posix_spawn",
        "subprocess.Popen",
        "os.fork",
        "socket.connect",
        "ctypes.dlopen",
        "pty.spawn",
    )

    def __init__(self, folder: Path) -> None:
        self.found: list[str] = []
        self._folder, self._allowed = str(folder), False
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """For as long as a compiler may run."""
        self._allowed = True
        try:
            yield
        finally:
            self._allowed = False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._allowed:
            return
        if event in self._ALWAYS:
            self.found.append(event)
        elif event == "import" and arguments[0] == CANARY:
            self.found.append(f"import {arguments[0]}")
        elif event == "open" and isinstance(arguments[0], (str, bytes)):
            path, mode = os.fsdecode(arguments[0]), arguments[1] or ""
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            if (writes and not path.startswith((self._folder, "/dev/"))) or CANARY in path:
                self.found.append(f"open {path} {mode}")


if __name__ == "__main__":
    _work(int(sys.argv[1]), int(sys.argv[2]))
