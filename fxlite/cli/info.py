"""``fxlite info``: the environment that fxlite finds on this machine.

In: parsed options and a console. Out: a table of versions, compilers, processor, cache and devices;
or the limits of the machine; or an empty cache.

``fxlite doctor``: a line for each part of the environment, which is tried if possible, with advice on
those that do not work. ``fxlite completion``: a script for a shell.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import fxlite
from fxlite.backend import backends
from fxlite.base.console import show
from fxlite.base.errors import FxliteError, number_of
from fxlite.cli.shared import UsageError
from fxlite.codegen.runtime import toolchain
from fxlite.codegen.runtime.cache import PROGRAMS, STAMP, cache_folder, cache_limit, is_entry, named_folder
from fxlite.codegen.runtime.roofs import machine_roofs
from fxlite.compiler import compile as compile_program
from fxlite.show.node_cost import quantity_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite info``."""
    parser.add_argument(
        "--roofs", action="store_true", help="measure the limits of arithmetic and memory (takes some seconds)"
    )
    parser.add_argument("--clear-cache", action="store_true", help="remove all cached builds")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite info``."""
    if options.roofs:
        show(console, machine_roofs(refresh=True))
    else:
        show(console, clear_cache() if options.clear_cache else info_table())
    return 0


def info_table() -> Table:
    """A table of what fxlite finds on this machine."""
    table = Table.grid(padding=(0, 2))
    table.add_row("fxlite", fxlite.__version__)
    table.add_row("Python", f"{platform.python_version()} ({platform.system()})")
    for package in ("numpy", "sympy"):
        table.add_row(package, _version(package) or "not installed")
    try:
        cpu = f"{toolchain.processor_name()}, {toolchain.usable_cpus()} usable"
        table.add_row("CPU", cpu)
    except FxliteError as error:
        table.add_row("CPU", Text(str(error)))
    folder = cache_folder()
    table.add_row("cache", f"{folder}: {_cache_content(folder)} ({_limit_text()})")
    for backend in backends():
        for name, value in backend.describe().items():
            table.add_row(name, Text(value))
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cache_content(folder: Path) -> str:
    """The numbers of cached builds and kept programs, and the size of all files."""
    count = {folder: 0, folder / PROGRAMS: 0}
    size = 0
    for path, folders, files in os.walk(folder):
        if Path(path) in count:
            count[Path(path)] = sum(map(is_entry, folders))
        for name in files:
            with contextlib.suppress(OSError):  # another process has just removed it
                size += os.stat(os.path.join(path, name)).st_size
    builds, programs = count.values()
    return f"{number_of(builds, 'build')}, {number_of(programs, 'program')}, {quantity_text(size, 'B')}"


def _limit_text() -> str:
    limit = cache_limit()
    return "no limit" if math.isinf(limit) else f"at most {quantity_text(int(limit), 'B')}"


#: Folders of the cache besides those of builds.
_FOLDERS = (PROGRAMS, "failed", "compilers", "roofs", "tuning", "nvrtc", "cuda_shim")


def clear_cache() -> str:
    """Remove what fxlite has put into its cache folder, and nothing else; returns a text that says how much
    it was."""
    folder = named_folder()
    content = _cache_content(folder)
    if folder.is_dir():
        for path in folder.iterdir():
            if is_entry(path.name) or path.name in _FOLDERS or path.name.startswith("work-"):
                shutil.rmtree(path, ignore_errors=True)
        (folder / STAMP).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return f"removed {content}, from {folder}"


# -- doctor ----------------------------------------------------------------------------------------
def doctor_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite doctor``, which has no options."""
    parser.description = "Try what fxlite uses on this machine, and say what to do about what is missing."


def doctor_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite doctor``. Returns 1 if something that is installed does not work."""
    found = list(findings())
    marks = {"works": ("works", "green"), "missing": ("missing", "yellow"), "broken": ("BROKEN", "bold red")}
    table = Table.grid(padding=(0, 2))
    for finding in found:
        mark, style = marks[finding.state]
        advice = f"\n→ {finding.advice}" if finding.advice else ""
        table.add_row(Text(mark, style=style), finding.part, Text(f"{finding.said}{advice}"))
    show(console, table)
    return int(any(finding.state == "broken" for finding in found))


@dataclass(frozen=True)
class Finding:
    """The state of a part of the environment: "works", "missing" (all that does not use it works) or
    "broken". ``advice`` says what to do about it."""

    part: str
    state: str
    said: str
    advice: str = ""


def findings() -> Iterator[Finding]:
    """A finding for each part of the environment."""
    yield Finding(
        "Python", "works", f"{platform.python_version()}, NumPy {_version('numpy')}, fxlite {fxlite.__version__}"
    )
    yield _processor()
    yield from _compiler()
    yield _cache()
    for backend in backends():
        for name, value in backend.describe().items():
            if name in ("CUDA", "GPU"):
                yield Finding(
                    name,
                    "missing" if value.startswith(("none", "not")) else "works",
                    value,
                    _ADVICE[name] * value.startswith(("none", "not")),
                )
    for package, (extra, purpose) in _PACKAGES.items():
        version = _version(package)
        advice = "" if version else f"pip install 'fxlite[{extra}]'"
        yield Finding(
            package, "works" if version else "missing", f"{version}, {purpose}" if version else purpose, advice
        )
    dot = shutil.which("dot")
    purpose = "for PNG and PDF without resvg-py and cairosvg"
    advice = "" if dot else "install Graphviz: apt install graphviz, brew install graphviz"
    yield Finding("dot", "works" if dot else "missing", f"{dot}, {purpose}" if dot else purpose, advice)


#: Packages that fxlite uses if they are installed: the extra that installs each, and its purpose.
_PACKAGES = {
    "libcst": ("patch", "for fxlite optimize, which edits your files"),
    "resvg-py": ("draw", "for pictures as PNG"),
    "cairosvg": ("draw", "for pictures as PDF"),
    "onnx": ("onnx", "for models of ONNX"),
    "torch": ("torch", "for models of PyTorch"),
    "argcomplete": ("completion", "for fxlite completion"),
}
_ADVICE = {
    "CUDA": "pip install 'fxlite[cuda]' to compile CUDA C; that needs no GPU",
    "GPU": "CUDA C can be written and compiled without one, and runs on another machine",
}


def _processor() -> Finding:
    try:
        sets = toolchain.instruction_sets()
        tiers = [name for name in _TIERS if name in sets]
        said = f"{toolchain.processor_name()}, {toolchain.usable_cpus()} usable"
        return Finding("processor", "works", f"{said}; {', '.join(tiers) or 'no vector instructions that are known'}")
    except FxliteError as error:
        return Finding("processor", "broken", str(error), "set FXLITE_MARCH to a processor that the compiler knows")


#: The instruction sets that decide which kernels are chosen, oldest first.
_TIERS = ("sse41", "avx2", "fma", "avx512f", "avx512vnni", "avx512bf16", "amxint8", "amxbf16")


def _compiler() -> Iterator[Finding]:
    """The C compiler, which is tried on a program, and OpenMP."""
    try:
        compiler = toolchain.find_compiler()
    except FxliteError as error:
        yield Finding("C compiler", "missing", str(error), "install gcc or clang, or set CC; Python runs without")
        return
    name = f"{' '.join(compiler.command)}: {compiler.version.splitlines()[0]}"
    try:
        x = np.arange(4, dtype=np.float32)
        made = compile_program(fxlite.symbolic_trace(lambda x: x * 2 + 1, x="f32[4]"), backend="c")
        is_right = np.array_equal(made(x), x * 2 + 1)
        yield Finding(
            "C compiler",
            "works" if is_right else "broken",
            f"{name}; a program was built and is right" if is_right else f"{name}: a program that it built is wrong",
        )
    except FxliteError as error:
        yield Finding("C compiler", "broken", f"{name}: {error}", "set CC to another compiler")
    if compiler.openmp:
        yield Finding("OpenMP", "works", "programs run on several threads")
    else:
        yield Finding(
            "OpenMP",
            "missing",
            "programs run on one thread",
            "install the compiler's OpenMP: libgomp, or libomp for clang",
        )


def _cache() -> Finding:
    """The folder of the cache, which is tried by writing a file."""
    folder = cache_folder()
    said = f"{folder}: {_cache_content(folder)} ({_limit_text()})"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return Finding("cache", "works", said)
    except OSError as error:
        return Finding(
            "cache", "broken", f"{said}; {error.strerror}", "set FXLITE_CACHE to a folder that can be written"
        )


# -- completion ------------------------------------------------------------------------------------
def completion_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite completion``."""
    parser.epilog = (
        "bash and zsh: put the line of the example, with the shell's name, into ~/.bashrc or ~/.zshrc. fish: fxlite "
        "completion fish > ~/.config/fish/completions/fxlite.fish"
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="which shell")


def completion_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite completion``. Raises UsageError without argcomplete."""
    try:
        from argcomplete import shellcode
    except ImportError:
        raise UsageError('completion needs the package argcomplete: pip install "fxlite[completion]"') from None
    print(shellcode(["fxlite"], shell=options.shell))
    return 0
