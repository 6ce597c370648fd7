"""Compiles emitted C, once: shared objects to load into Python, and stand-alone executables.

In come the texts of C files (and headers) and, for a shared object, the `Entry` they define. Out
comes a file in the cache folder, `<key>/<name>.<digest>.so`. The key covers everything that decides
what the file holds; the digest is of the file itself, so that a truncated one is noticed and built
anew, and two processes that build the same thing at once both leave a good file. Work goes on in a
temporary folder inside the cache, and one rename publishes the result.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fxlite.base.errors import FxliteError
from fxlite.codegen.runtime.abi import Entry
from fxlite.codegen.runtime.cache import cache_folder, intact_file, make_folder, name_with_digest
from fxlite.codegen.runtime.cache import spare_folder as _spare_folder
from fxlite.codegen.runtime.cache_limit import is_entry, mark_used, trim_cache
from fxlite.codegen.runtime.extension import (
    HEADER_NAME,
    entry_header,
    entry_source,
    extension_source,
)
from fxlite.codegen.runtime.target import compile_flags, cpu_identity
from fxlite.codegen.runtime.team import team_source
from fxlite.codegen.runtime.toolchain import (
    OPENMP_FLAG,
    SHARED_FLAGS,
    TEAM_LIBRARIES,
    Compiler,
    find_compiler,
)

_ENTRY_FILE = "fxlite_entry.c"
_EXTENSION = "fxlite_extension"
_TEAM = "fxlite_team"
_ABANDONED_AFTER = 24 * 3600  # seconds until the work folder of a killed build is removed
_FULL_DISK = ("No space left on device", "Disk quota exceeded")


class BuildError(FxliteError, RuntimeError):
    """The C compiler refused the code, or there was no place to put the result."""


@dataclass(frozen=True)
class Library:
    """A compiled shared object: where it lies, and whether its parallel loops run in parallel."""

    path: Path
    openmp: bool = True


@dataclass(frozen=True)
class _Job:
    """Everything that decides what one build makes."""

    compiler: Compiler
    files: Mapping[str, str]
    flags: tuple[str, ...]  # for compiling and linking
    link_flags: tuple[str, ...]
    name: str  # of an object, `.o`, which is compiled from one file and not linked, or a program
    file_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    parts: tuple[_Job, ...] = ()
    """Objects that are linked in and that the cache has, too, for many programs share them."""
    optional: bool = False
    """A part that may fail to compile and is then left out."""

    def key(self) -> str:
        facts = [
            self.compiler.identity,
            self.compiler.version,
            cpu_identity(),
            sys.implementation.cache_tag,
            *(self.flags, self.link_flags, self.name, [part.key() for part in self.parts]),
            sorted(self.files.items()),
            sorted((name, list(flags)) for name, flags in self.file_flags.items()),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def build(
    files: Mapping[str, str],
    entry: Entry,
    *,
    flags: Sequence[str] = (),
    file_flags: Mapping[str, Sequence[str]] | None = None,
    openmp: bool = True,
) -> Library:
    """Compile a model's C files into a shared object, or find it in the cache.

    `files` maps file names to texts; those that end in `.c` are compiled, each by its own run of
    the compiler, the others (headers) lie beside them. `flags` come after the standard ones, and
    `file_flags[name]` after those for one file. Raises `CompilerNotFound`; `BuildError` with the
    command and the compiler's first lines; `ValueError` for file names that are not plain.
    """
    _check_names(files)
    compiler = find_compiler()
    openmp = openmp and compiler.openmp
    flags = (*compile_flags(), *((OPENMP_FLAG,) if openmp else ()), *flags)
    parts, libraries = _team(compiler, files.values(), flags)
    texts = dict(files)
    if include := _python_headers():
        texts |= {_ENTRY_FILE: entry_source(entry), HEADER_NAME: entry_header()}
        extension = {f"{_EXTENSION}.c": extension_source(), HEADER_NAME: entry_header()}
        including = (*flags, f"-I{include}")
        made = f"{_EXTENSION}.o"
        parts = (*parts, _Job(compiler, extension, including, (), made, optional=True))
    by_file = dict(file_flags or {})
    job = _Job(
        compiler, texts, flags, (*SHARED_FLAGS, *libraries), f"{entry.name}.so", by_file, parts
    )
    return Library(_cached(job), openmp)


def build_shared(files: Mapping[str, str], name: str) -> Path:
    """Compile C files as `build` does, but without its extension: a shared object for ctypes.
    Raises as `build` does."""
    _check_names(files)
    compiler = find_compiler()
    flags = (*compile_flags(), *((OPENMP_FLAG,) if compiler.openmp else ()))
    parts, libraries = _team(compiler, files.values(), flags)
    return _cached(_Job(compiler, files, flags, (*SHARED_FLAGS, *libraries), name, parts=parts))


def _team(
    compiler: Compiler, texts: Iterable[str], flags: tuple[str, ...]
) -> tuple[tuple[_Job, ...], tuple[str, ...]]:
    """What sources are linked with that were compiled with these flags: objects, and libraries."""
    team = team_source(compiler, texts) if OPENMP_FLAG in flags else None
    if team is None:
        return (), ("-lm",)
    return (_Job(compiler, {f"{_TEAM}.c": team}, flags, (), f"{_TEAM}.o"),), TEAM_LIBRARIES


def build_executable(
    files: Mapping[str, str],
    *,
    flags: Sequence[str] = (),
    libs: Sequence[str] = ("-lm",),
    openmp: bool = True,
    name: str = "program",
) -> Path:
    """Compile C files, one of them with a `main`, into an executable, or find it in the cache.

    Meant for sanitizers, `flags=("-fsanitize=address,undefined",)`, which cannot be loaded into a
    running Python. Raises as `build` does.
    """
    _check_names(files)
    compiler = find_compiler()
    parallel = (OPENMP_FLAG,) if openmp and compiler.openmp else ()
    return _cached(_Job(compiler, files, (*compile_flags(), *parallel, *flags), tuple(libs), name))


def find_library(folder: str, entry: Entry, openmp: bool) -> Library | None:
    """The library of that entry in a folder of the cache, by the folder's name, if it is whole."""
    if not is_entry(folder):
        return None
    root = cache_folder() / folder
    found = intact_file(root, f"{entry.name}.so")
    if found is None:
        return None
    mark_used(root)
    return Library(found, openmp)


@cache
def _python_headers() -> str | None:
    """The folder of Python.h, or None where the extension cannot be built."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None  # the limited API needs CPython with a GIL
    include = sysconfig.get_path("include")
    return include if os.path.exists(os.path.join(include, "Python.h")) else None


def _check_names(files: Mapping[str, str]) -> None:
    for name in files:
        if Path(name).name != name:
            raise ValueError(f"{name!r} is not a plain file name")
    if not any(name.endswith(".c") for name in files):
        raise ValueError(f"no .c file among {sorted(files)}")


def _cached(job: _Job) -> Path:
    """The file that the job makes: from the cache, else built there, else in a temporary folder."""
    folder = cache_folder()
    try:
        return _find_or_build(job, folder)
    except OSError as error:
        reason = error
    try:
        spare = _spare_folder()
        warnings.warn(
            f"cannot write to the cache folder {folder} ({reason}); compiling in {spare} instead, "
            "for this process only. Set FXLITE_CACHE to a folder that can be written.",
            stacklevel=3,
        )
        return _find_or_build(job, spare)
    except OSError as error:
        raise BuildError(
            f"no place for compiled code: {folder}: {reason}; temporary folder: {error}. "
            "Free some space, or set FXLITE_CACHE or TMPDIR to a folder that can be written."
        ) from None


def _find_or_build(job: _Job, root: Path) -> Path:
    """Raises `OSError` when the folder cannot be used, `BuildError` when the code cannot."""
    folder = root / job.key()
    if found := intact_file(folder, job.name):
        mark_used(folder)
        return found
    make_folder(root)
    _remove_abandoned(root)
    work = Path(tempfile.mkdtemp(prefix="work-", dir=root))
    try:
        for name, text in job.files.items():
            (work / name).write_text(text, encoding="utf-8")
        _make(job, work, root)
        product = work / job.name
        target = folder / name_with_digest(job.name, product)
        make_folder(folder)
        for name in job.files:  # kept beside the result, for debuggers and readers
            os.replace(work / name, folder / name)
        os.replace(product, target)
        trim_cache(root)
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
    for folder in root.glob("work-*"):
        try:
            if time.time() - folder.stat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # its owner has just removed it


def _make(job: _Job, work: Path, root: Path) -> None:
    """Compile every C file, two at a time, and link them to `work / job.name`."""
    from concurrent.futures import ThreadPoolExecutor  # not needed when the cache has it

    start, failed = [*job.compiler.command, *job.flags], root / "failed" / job.key()
    is_object = job.name.endswith(".o")
    objects = {n: job.name if is_object else f"{n}.o" for n in job.files if n.endswith(".c")}
    commands = [
        [*start, *job.file_flags.get(name, ()), "-c", name, "-o", made]
        for name, made in objects.items()
    ]
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda command: _run(command, work), commands)
        parts = [pool.submit(_find_or_build, part, root) for part in job.parts]
    for name, run in zip(objects, runs):
        if run.returncode != 0:
            raise _failure(name, run, work, failed)
    linked = [*objects.values()]
    for part, made in zip(job.parts, parts):
        try:
            linked.append(str(made.result()))
        except BuildError as error:
            if not part.optional:
                raise
            warnings.warn(
                f"the Python extension of {job.name} does not compile, so that calls go through "
                f"ctypes, which is slower:\n{error}",
                stacklevel=5,
            )
    if not is_object:
        run = _run([*start, *linked, *job.link_flags, "-o", job.name], work)
        if run.returncode != 0 or not (work / job.name).exists():  # `true` makes nothing
            raise _failure(job.name, run, work, failed)


_Run = subprocess.CompletedProcess[str]


def _run(command: Sequence[str], work: Path) -> _Run:
    """Run the compiler. Raises `OSError` when it finds the disk full."""
    environment = {**os.environ, "LC_ALL": "C"}
    run = subprocess.run(
        command, cwd=work, env=environment, capture_output=True, text=True, errors="replace"
    )
    if run.returncode != 0 and any(text in run.stderr for text in _FULL_DISK):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(work))
    return run


def _first_lines(run: _Run) -> str:
    lines = (run.stderr or run.stdout).splitlines()
    return "\n".join(f"    {text}" for text in lines[:12]) or "    (no message)"


def _failure(what: str, run: _Run, work: Path, failed: Path) -> BuildError:
    """The error for a failed run; the sources go to the folder `failed`, to look at."""
    command = shlex.join(run.args)
    try:
        shutil.copytree(work, failed, dirs_exist_ok=True)
        (failed / "log.txt").write_text(f"{command}\n\n{run.stdout}{run.stderr}", encoding="utf-8")
        kept = f"the sources and the whole log are in {failed}"
    except (OSError, shutil.Error) as error:
        kept = f"the sources could not be kept: {error}"
    return BuildError(
        f"the C compiler failed on {what} (exit status {run.returncode})\n{_first_lines(run)}\n"
        f"  command: {command}\n  {kept}"
    )
