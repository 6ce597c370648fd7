"""Compiles emitted C, once: shared objects to load into Python, and stand-alone executables.

In come the texts of C files (and headers) and, for a shared object, the `Entry` they define. Out comes
a file in the cache folder, `<key>/<name>.<digest>.so`. The key covers everything that determines the
content of the file. The digest is that of the file itself, so that a truncated file is noticed and
built again, and two processes that build the same thing simultaneously both leave a valid file. Work is
done in a temporary folder inside the cache, and one rename publishes the result.

The C through which Python calls a compiled model consists of `extension.c`, which is the same for all
models, and an entry specific to the model, at the end of the model's file, because starting the
compiler takes longer than compiling the entry. With GCC on Linux, `team.c` replaces libgomp if it
implements everything that the sources need of OpenMP.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from fxlite.base.errors import FxliteError
from fxlite.base.outside_text import comment
from fxlite.codegen.c.tiles.library import apart, error_type, instantiated, library, needed, scalar_functions
from fxlite.codegen.runtime.abi import ArgSpec, Binding, Dim, DimText, Entry, c_variable
from fxlite.codegen.runtime.cache import (
    WORK,
    cache_folder,
    intact_file,
    is_entry,
    make_folder,
    mark_used,
    name_with_digest,
    trim_cache,
)
from fxlite.codegen.runtime.cache import spare_folder as _spare_folder
from fxlite.codegen.runtime.toolchain import (
    OPENMP_FLAG,
    SHARED_FLAGS,
    TEAM_LIBRARIES,
    Compiler,
    compile_flags,
    cpu_identity,
    find_compiler,
)
from fxlite.types.dtypes import dtype

# -- the Python extension --------------------------------------------------------------------------
MODULE_NAME = "fxlite_entry"
HEADER_NAME = "fxlite_entry.h"


@cache
def extension_source() -> str:
    """The C file of the extension; it includes `HEADER_NAME` and calls an entry."""
    return _read("extension.c")


@cache
def entry_header() -> str:
    """The header that the extension and an entry include as `HEADER_NAME`."""
    return f"{error_type()}\n{_read('entry.h')}"


def entry_source(entry: Entry, model: str = "") -> str:
    """C for the end of the file that defines an entry point; it includes `HEADER_NAME`. `model` is the
    text of the model's files, whose helpers the entry calls as well."""
    name = entry.name
    called = [*(["largest_bytes"] if entry.values else []), "workspace_bytes", "run"]
    axes = [dim for spec in entry.outputs for dim in spec.shape]
    checks = "\n    ".join((*_checks(entry), *_size_checks(axes)))
    sizes = "\n    ".join(f"sizes[{i}] = {_c(dim)};" for i, dim in enumerate(axes))
    numbers = range(len(entry.inputs) + len(entry.outputs))
    counts = (len(entry.inputs), len(entry.outputs), len(entry.dims), int(entry.single_output))
    helpers = needed(checks + sizes)
    if helpers:
        helpers = needed(checks + sizes, [d for d in library() if d.text not in model])
    values = {
        "MODEL": name,
        "SIGNATURE": comment(str(entry)),
        "HELPERS": helpers,
        "CALLED": "\n".join(f"fx_separate({name}_{function});" for function in called),
        "COUNTS": ", ".join(map(str, counts)),
        "INPUTS": "\n    ".join(map(_input_row, entry.inputs)) or "{0, 0, 0}",
        "RANKS": ", ".join(str(len(spec.shape)) for spec in entry.outputs) or "0",
        "N_SIZES": str(len(axes)),
        "CHECKS": checks,
        "FOUND_DIMS": "\n    ".join(f"dims[{i}] = {c_variable(dim, 'dim_')};" for i, dim in enumerate(entry.dims)),
        "FOUND_SIZES": sizes,
        "ARRAYS": " ".join(f"arrays[{i}]," for i in numbers),
        "DIMS": " ".join(f"dims[{i}]," for i in range(len(entry.dims))),
    }
    return instantiated(files("fxlite.codegen.runtime").joinpath("entry.c"), values)


def _read(name: str) -> str:
    return files("fxlite.codegen.runtime").joinpath(name).read_text(encoding="utf-8")


def _input_row(spec: ArgSpec) -> str:
    kind = dtype(spec.dtype)
    rank = len(spec.shape)
    return f'{{"{kind.buffer}", {kind.itemsize}, {rank}}}, /* {comment(str(spec))} */'


def _checks(entry: Entry) -> Iterator[str]:
    """C that declares `dim_NAME` for each dim and returns 0 unless every axis agrees and
    every condition holds."""
    solved = set()
    for binding in entry.bindings:
        yield from _solve(binding)
        solved.add((binding.argument, binding.axis))
    for argument, spec in enumerate(entry.inputs):
        for axis, dim in enumerate(spec.shape):
            if (argument, axis) not in solved:
                yield from _divisor_checks(dim)
                yield f"if (shapes[{argument}][{axis}] != {_c(dim)}) return 0;"
    for condition in entry.conditions:
        for side in (condition.left, condition.right):
            yield from _divisor_checks(side)
        yield f"if (!({condition.c('dim_')})) return 0; /* {comment(condition.reason)} */"
    yield from _counted(entry)


def _counted(entry: Entry) -> Iterator[str]:
    """C that returns 0 if the size of a value overflows or exceeds the memory limit."""
    if entry.values:
        dims = ", ".join(c_variable(dim, "dim_") for dim in entry.dims)
        yield f"int64_t largest = {entry.name}_largest_bytes({dims});"
        yield "if (largest < 0 || largest > most_bytes) return 0;"


def _solve(binding: Binding) -> Iterator[str]:
    name, scale = c_variable(binding.dim, "dim_"), binding.scale
    size = f"shapes[{binding.argument}][{binding.axis}]"
    if (scale, binding.offset) == (1, 0):
        yield f"int64_t {name} = {size};"
        return
    rest = f"({size} - ({binding.offset}))"
    yield f"int64_t {name} = {rest} / ({scale});"
    yield f"if ({name} < 0 || {name} * ({scale}) != {rest}) return 0;"


def _size_checks(axes: Sequence[Dim]) -> Iterator[str]:
    """C that returns 0 if a size of an output cannot be computed."""
    for dim in axes:
        yield from _divisor_checks(dim)


def _divisor_checks(dim: Dim) -> Iterator[str]:
    for divisor in dim.divisors if isinstance(dim, DimText) else ():
        yield f"if ({_c(divisor)} <= 0) return 0;"


def _c(dim: Dim) -> str:
    return str(dim) if isinstance(dim, int) else dim.c("dim_")


# -- in place of libgomp ---------------------------------------------------------------------------
# The words of OpenMP that team.c implements, besides all of `omp simd`.
_WORDS = frozenset("parallel for simd barrier named_lock num_threads if collapse static_schedule nowait".split())
_FUNCTIONS = frozenset(("omp_get_thread_num", "omp_get_num_threads"))


def team_source(compiler: Compiler, texts: Iterable[str]) -> str | None:
    """The text of `team.c`, if a shared object of these sources can do without libgomp."""
    if not (compiler.is_gcc and all(map(_is_known, texts))):
        return None
    return files("fxlite.codegen.runtime").joinpath("team.c").read_text(encoding="utf-8")


@lru_cache(64)  # fx_math.h, which is the longest, is the same for all programs
def _is_known(text: str) -> bool:
    """Whether `team.c` implements everything that a source needs of OpenMP."""
    joined = text.replace("\\\n", " ")
    for directive in re.findall(r"#\s*pragma\s+omp\b([^\n]*)", joined):
        words = re.sub(r"schedule\s*\(static(, *\d+)?\)", "static_schedule", directive)
        words = re.sub(r"critical\s*\(\w+\)", "named_lock", words)
        while words != (words := re.sub(r"\([^()]*\)", " ", words)):  # innermost ones first
            pass
        if words.split()[0] != "simd" and not _WORDS.issuperset(words.split()):
            return False
    return _FUNCTIONS.issuperset(re.findall(r"\bomp_\w+(?=\()", joined))


# -- builds ----------------------------------------------------------------------------------------
_EXTENSION = "fxlite_extension"
_TEAM = "fxlite_team"
_MATH = "fx_math.h"
_FULL_DISK = ("No space left on device", "Disk quota exceeded")


class BuildError(FxliteError, RuntimeError):
    """The C compiler rejected the code, or there was no place to store the result."""


@dataclass(frozen=True)
class Library:
    """A compiled shared object: its path, and whether its parallel loops run in parallel."""

    path: Path
    openmp: bool = True


@dataclass(frozen=True)
class _Job:
    """Everything that determines the result of a build."""

    compiler: Compiler
    files: Mapping[str, str]
    flags: tuple[str, ...]  # for compiling and linking
    link_flags: tuple[str, ...]
    name: str  # of the result: a program, or an object `.o`, compiled from one file and not linked
    parts: tuple[_Job, ...] = ()
    """Objects to link in, which are cached separately because many programs share them."""
    optional: bool = False
    """A part that is left out if it does not compile."""

    def key(self) -> str:
        facts = [
            self.compiler.identity,
            self.compiler.version,
            cpu_identity(),
            sys.implementation.cache_tag,
            *(self.flags, self.link_flags, self.name, [part.key() for part in self.parts]),
            sorted(self.files.items()),
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def build(files: Mapping[str, str], entry: Entry, *, flags: Sequence[str] = (), openmp: bool = True) -> Library:
    """Compile a model's C files into a shared object, or find it in the cache.

    `files` maps file names to texts. Those ending in `.c` are compiled, each by its own run of the
    compiler; the others (headers) are placed beside them. The first compiled file defines the functions
    of the entry. `flags` come after the standard ones. Raises `CompilerNotFound`; `BuildError` with the
    command and the compiler's first lines; `ValueError` for file names that are not plain.
    """
    _check_names(files)
    compiler = find_compiler()
    openmp = openmp and compiler.openmp
    flags = (*compile_flags(), *((OPENMP_FLAG,) if openmp else ()), *flags)
    parts, libraries = _team(compiler, files.values(), flags)
    texts, tiles = _tiles(compiler, files, flags)
    parts = (*parts, *tiles)
    if include := _python_headers():
        model = next(name for name in files if name.endswith(".c"))
        own = entry_source(entry, "\n".join(text for name, text in texts.items() if name != _MATH))
        texts[model] = f"{texts[model]}\n{own}"
        texts[HEADER_NAME] = entry_header()
        extension = {f"{_EXTENSION}.c": extension_source(), HEADER_NAME: entry_header()}
        including = (*flags, f"-I{include}")
        made = f"{_EXTENSION}.o"
        parts = (*parts, _Job(compiler, extension, including, (), made, optional=True))
    job = _Job(compiler, _reached(texts), flags, (*SHARED_FLAGS, *libraries), f"{entry.name}.so", parts)
    return Library(_cached(job), openmp)


def build_shared(files: Mapping[str, str], name: str) -> Path:
    """Compile C files as `build` does, but without its extension, into a shared object for ctypes.
    Raises what `build` raises."""
    _check_names(files)
    compiler = find_compiler()
    flags = (*compile_flags(), *((OPENMP_FLAG,) if compiler.openmp else ()))
    parts, libraries = _team(compiler, files.values(), flags)
    texts, tiles = _tiles(compiler, files, flags)
    parts = (*parts, *tiles)
    return _cached(_Job(compiler, _reached(texts), flags, (*SHARED_FLAGS, *libraries), name, parts=parts))


def _team(compiler: Compiler, texts: Iterable[str], flags: tuple[str, ...]) -> tuple[tuple[_Job, ...], tuple[str, ...]]:
    """The objects and libraries to link with sources that were compiled with these flags."""
    team = team_source(compiler, texts) if OPENMP_FLAG in flags else None
    if team is None:
        return (), ("-lm",)
    return (_Job(compiler, {f"{_TEAM}.c": team}, flags, (), f"{_TEAM}.o"),), TEAM_LIBRARIES


def _tiles(
    compiler: Compiler, files: Mapping[str, str], flags: tuple[str, ...]
) -> tuple[dict[str, str], tuple[_Job, ...]]:
    """The files with their tiles declared instead of defined, and the objects that define them."""
    texts, sources = apart({name: text for name, text in files.items() if name != _MATH})
    return {**files, **texts}, tuple(
        _Job(compiler, _reached({f"{name}.c": text, _MATH: files.get(_MATH, "")}), flags, (), f"{name}.o")
        for name, text in sources.items()
    )


def _reached(files: Mapping[str, str]) -> dict[str, str]:
    """The files, with those functions of fx_math.h that the others call."""
    others = {name: text for name, text in files.items() if name != _MATH}
    return {**others, _MATH: scalar_functions("\n".join(others.values()))} if _MATH in files else others


def build_executable(
    files: Mapping[str, str], *, flags: Sequence[str] = (), openmp: bool = True, name: str = "program"
) -> Path:
    """Compile C files, one of them with a `main`, into an executable, or find it in the cache.

    Meant for sanitizers, `flags=("-fsanitize=address,undefined",)`, which cannot be loaded into a
    running Python. Raises what `build` raises.
    """
    _check_names(files)
    compiler = find_compiler()
    parallel = (OPENMP_FLAG,) if openmp and compiler.openmp else ()
    flags = (*compile_flags(), *parallel, *flags)
    texts, tiles = _tiles(compiler, files, flags)
    return _cached(_Job(compiler, _reached(texts), flags, ("-lm",), name, parts=tiles))


def find_library(folder: str, entry: Entry, openmp: bool) -> Library | None:
    """The library of the entry in a folder of the cache, given by name, if it is complete."""
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
    """The folder of Python.h, or None if the extension cannot be built."""
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
    """The result of the job: from the cache, or else built there, or else in a temporary folder."""
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
    """Find or build the result. Raises `OSError` if the folder cannot be used, `BuildError` if the code fails."""
    folder = root / job.key()
    if found := intact_file(folder, job.name):
        mark_used(folder)
        return found
    make_folder(root)
    work = Path(tempfile.mkdtemp(prefix=WORK, dir=root))
    try:
        for name, text in job.files.items():
            (work / name).write_text(text, encoding="utf-8")
        _make(job, work, root)
        product = work / job.name
        target = folder / name_with_digest(job.name, product)
        make_folder(folder)
        for name in job.files:  # stored beside the result for debuggers and readers
            os.replace(work / name, folder / name)
        os.replace(product, target)
        trim_cache(root)
        return target
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _make(job: _Job, work: Path, root: Path) -> None:
    """Compile every C file, two at a time, and link them to `work / job.name`."""
    from concurrent.futures import ThreadPoolExecutor  # not needed if the result is cached

    start, failed = [*job.compiler.command, *job.flags], root / "failed" / job.key()
    is_object = job.name.endswith(".o")
    objects = {n: job.name if is_object else f"{n}.o" for n in job.files if n.endswith(".c")}
    commands = [[*start, "-c", name, "-o", made] for name, made in objects.items()]
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
        if run.returncode != 0 or not (work / job.name).exists():  # CC=true succeeds without output
            raise _failure(job.name, run, work, failed)


_Run = subprocess.CompletedProcess[str]


def _run(command: Sequence[str], work: Path) -> _Run:
    """Run the compiler. Raises `OSError` if the disk is full."""
    environment = {**os.environ, "LC_ALL": "C"}
    run = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, errors="replace")
    if run.returncode != 0 and any(text in run.stderr for text in _FULL_DISK):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(work))
    return run


def _first_lines(run: _Run) -> str:
    lines = (run.stderr or run.stdout).splitlines()
    return "\n".join(f"    {text}" for text in lines[:12]) or "    (no message)"


def _failure(what: str, run: _Run, work: Path, failed: Path) -> BuildError:
    """The error for a failed run; the sources are kept in the folder `failed` for inspection."""
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
