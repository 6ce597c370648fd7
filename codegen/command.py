"""What ``fxlite compile`` and ``fxlite info`` do.

In: parsed options and a console. Out: printed steps, a folder of source files, and the summary
table.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import math
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

import fxlite
from fxlite.base.console import print_code, show
from fxlite.base.errors import FxliteError
from fxlite.cli.program_file import ProgramError, trace_program, unique
from fxlite.codegen.c.bundle import facts, write_bundle
from fxlite.codegen.folder import check_writable, write_folder
from fxlite.codegen.program import example_inputs as examples
from fxlite.codegen.python.source import module_name, python_program, save_python
from fxlite.codegen.reporting import check_and_time as report
from fxlite.codegen.runtime import target, toolchain
from fxlite.codegen.runtime.cache import cache_folder, named_folder
from fxlite.codegen.runtime.cache_limit import PROGRAMS, STAMP, cache_limit, is_entry
from fxlite.compiler import check_autotune, check_backend
from fxlite.compiler import compile as compile_program
from fxlite.graph.graph_module import GraphModule
from fxlite.show.text.pretty import fitted_text

#: Lines of a graph that are printed; the whole is in graph.txt.
MOST_LINES = 200
#: Lines of the list of weights that are printed.
WEIGHT_LINES = 6
_NAMES = {"c": "C", "python": "Python", "cuda": "CUDA"}


class Step:
    """A step that runs: ``said`` is printed when it is done, ``advance`` moves the progress bar."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task
        self.said: list[str] = []

    def advance(self, what: str) -> None:
        """One more part is done; the next is ``what``."""
        self.progress.advance(self.task)
        self.progress.update(self.task, what=what)


class Steps:
    """Prints one line for each step of the work; a progress bar says what runs meanwhile."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def __call__(self, name: str, parts: int | None = None) -> Iterator[Step]:
        """``with steps("write") as step: step.said.append("out/")``"""
        start = time.perf_counter()
        with self.running(name, parts) as step:
            yield step
        self.line(name, step.said, time.perf_counter() - start)

    @contextlib.contextmanager
    def running(self, name: str, parts: int | None = None) -> Iterator[Step]:
        """Shows on a terminal that something runs, of how many parts, and for how long."""
        columns = (
            SpinnerColumn(), TextColumn(name), BarColumn(20), TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )  # fmt: skip
        quiet = not self.live.is_terminal
        with Progress(*columns, console=self.live, transient=True, disable=quiet) as progress:
            yield Step(progress, progress.add_task(name, total=parts, what=""))

    def line(self, name: str, said: Sequence[str], seconds: float) -> None:
        """Print what a step did and how long it took."""
        taken = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
        table = Table.grid(expand=True, padding=(0, 1, 0, 0))
        table.add_column(width=8, style="bold")
        table.add_column(ratio=1)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_row(name, ", ".join(said), taken)
        show(self.console, table)


def compile_command(options: argparse.Namespace, console: Console) -> int:
    """``fxlite compile``: trace, optimize, emit, build, check against NumPy, time, write."""
    steps = Steps(console)
    check_writable(options.output, options.force)
    data = examples.load_data(unique(options.data, "--data"))
    sizes = unique(options.size, "--size")
    if options.backend == "c":
        toolchain.find_compiler()
    with steps("trace") as step:
        said = step.said
        program, module = trace_program(
            options.program, options.weights, options.input, need_types=True
        )
        said.append(f"{options.program}, {len(module.graph)} nodes")
        weights = [n for n in module.graph.nodes if n.op == "get_attr"]
        if weights:
            size = sum(int(n.type.nbytes) for n in weights)
            said.append(f"{len(weights)} weights of {report.quantity(size, 'B')}")
        if weights and options.weights is None and not options.program.endswith(".fxl"):
            said[-1] += " as the program makes them (no --weights)"
    check_backend(options.backend)
    if options.autotune:
        check_autotune(options.backend)
    cases = examples.make_cases(module, sizes, data)
    console.print()
    _print_graph(console, module)
    console.print()
    function = _compiled(options, module, steps, cases[-1].dims)
    checked = _check(options, program, function, cases, steps)
    if checked:
        with steps("time", len(checked)) as step:
            for item in checked:
                report.measure(program, function, item)
                step.advance(item.case.label)
            step.said.append("NumPy and the compiled model in turns")
    with steps("write") as step:
        _write(options, function, module, [c.case for c in checked][-2:])
        step.said.append(f"{options.output}")
    console.print()
    name = _NAMES.get(options.backend, options.backend)
    if options.autotune:
        show(console, function.tuning)
        console.print()
    show(console, report.summary(function, checked, name))
    if checked:
        console.print(report.notes(function, checked))
    console.print()
    _print_files(console, options, function, module)
    return 0


def _print_graph(console: Console, module: GraphModule) -> None:
    lines = fitted_text(module.graph, console.width, WEIGHT_LINES).splitlines()
    if len(lines) > MOST_LINES:
        left_out = len(lines) - MOST_LINES
        middle = f"    # ... {left_out} lines more: they are in graph.txt ..."
        lines = [*lines[: MOST_LINES - 20], middle, *lines[-20:]]
    print_code(console, "\n".join(lines))


def _compiled(
    options: argparse.Namespace, module: GraphModule, steps: Steps, sizes: Mapping[str, int]
) -> Any:
    """The compiled function, tuned at ``sizes``; says what each step of the back end did."""
    from fxlite.codegen.backends import CFunction
    from fxlite.codegen.cuda.function import CudaFunction

    seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        start = time.perf_counter()
        with steps.running(name):
            yield
        seconds[name] = time.perf_counter() - start

    function: Any
    if options.backend == "c":
        function = CFunction(
            module, options.threads, stage, matmul_precision=options.matmul_precision,
            autotune=options.autotune, tune_sizes=sizes if options.autotune else None,
        )  # fmt: skip
    elif options.backend == "cuda":
        device = options.device
        number = int(device) if device is not None and device.isdecimal() else device
        function = CudaFunction(module, options.threads, number, stage)
    else:
        return compile_program(module, backend=options.backend, threads=options.threads)
    for name, taken in seconds.items():
        said = _described(name, function, options.backend)
        if name == "build" and options.backend == "c" and taken < 1:
            said += (
                ["found in the cache"] if _is_older(function.function.library.path, taken) else []
            )
        steps.line(name, said, taken)
    return function


def _described(stage: str, function: Any, backend: str) -> list[str]:
    """What a step of a back end did."""
    if stage == "optimize":
        changed = dict.fromkeys(s.name for s in function.passes.report if s.changes != "-")
        count = f"{len(function.graph_module.graph)} -> {len(function.optimized.graph)} nodes"
        return [count + (f" by {', '.join(changed)}" if changed else "")]
    if stage == "tune":
        return [f"{len(function.tuning.kernels)} kernels, {function.tuning.measured} measured now"]
    if stage == "emit":
        lines = sum(text.count("\n") for text in function.sources.values())
        return [f"{lines} lines of {'C' if backend == 'c' else 'CUDA C'}"]
    if backend != "c":
        return ["NVRTC"] if function.function is None or not _is_shim(function) else ["CPU shim"]
    version = toolchain.find_compiler().version.splitlines()[0]
    return [version, "OpenMP" if function.function.library.openmp else "no OpenMP"]


def _is_older(path: Path, seconds: float) -> bool:
    """True if a file was made before the last ``seconds`` (and a second of tolerance)."""
    return time.time() - path.stat().st_mtime > seconds + 1


def _is_shim(function: Any) -> bool:
    return "shim" in type(function.function.launcher).__name__.lower()


def _check(
    options: argparse.Namespace,
    program: Any,
    function: Any,
    cases: list[examples.Case],
    steps: Steps,
) -> list[report.Checked]:
    """Compare with eager NumPy in all cases; random ones of a size the program cannot do are left
    out. Raises Disagreement, or ProgramError when no case is left."""
    checked: list[report.Checked] = []
    if getattr(function, "function", True) is None:
        return checked  # compiled for another machine
    refused: list[str] = []
    regenerated = python_program(function.graph_module)
    with steps("check", len(cases)) as step:
        for case in cases:
            functions = [function] if case is not cases[-1] else [function, regenerated]
            try:
                checked.append(report.check(program, functions, case))
            except FxliteError:
                raise
            except Exception as error:
                if not case.is_random:
                    raise
                refused.append(f"{case.label}: {type(error).__name__}: {error}")
            step.advance(case.label)
        if not checked:
            raise ProgramError(
                "the program itself fails on random inputs; give real ones with --data and sizes "
                f"with --size\n  {refused[-1]}"
            )
        name = _NAMES.get(options.backend, options.backend)
        both = "Python agrees" if name == "Python" else f"{name} and Python agree"
        step.said.append(f"{both} with NumPy at {'; '.join(c.case.label for c in checked)}")
        if refused:
            step.said.append(f"not tried, since NumPy fails: {'; '.join(refused)}")
    return checked


def _write(
    options: argparse.Namespace, function: Any, module: GraphModule, cases: list[examples.Case]
) -> None:
    def write(work: Path) -> None:
        (work / "graph.txt").write_text(f"{module.graph}\n", encoding="utf-8")
        if options.backend == "c":
            write_bundle(function, work, cases)
            (work / "graph_optimized.txt").write_text(
                f"{function.optimized.graph}\n", encoding="utf-8"
            )
        elif options.backend != "python":
            function.save(work / options.backend)
        save_python(module, work / "python")

    described: Mapping[str, Any] = facts(function) if options.backend == "c" else {}
    write_folder(options.output, write, described, options.force)


def _print_files(
    console: Console, options: argparse.Namespace, function: Any, module: GraphModule
) -> None:
    folder = Path(options.output)
    table = Table.grid(padding=(0, 2))
    if options.backend == "c":
        table.add_row("README.txt", f"how to build and call {function.program.name}.c; "
                      f"make -C {folder} test")  # fmt: skip
    elif options.backend != "python":
        table.add_row(f"{options.backend}/", "sources")
    table.add_row("python/", f"{module_name(module.name)}.py, the model as Python, and its weights")
    table.add_row("graph.txt", "the graph as printed above")
    console.print(f"[bold]{folder}[/] holds")
    show(console, table)


# -- info ------------------------------------------------------------------------------------------
def info_table() -> Table:
    """What fxlite finds on this machine."""
    table = Table.grid(padding=(0, 2))
    table.add_row("fxlite", fxlite.__version__)
    table.add_row("Python", f"{platform.python_version()} ({platform.system()})")
    for package in ("numpy", "sympy"):
        table.add_row(package, _version(package) or "not installed")
    try:
        compiler = toolchain.find_compiler()
        table.add_row(
            "C compiler", f"{' '.join(compiler.command)}: {compiler.version.splitlines()[0]}"
        )
        table.add_row("OpenMP", "yes" if compiler.openmp else "no")
    except FxliteError as error:
        table.add_row("C compiler", Text(str(error)))
    try:
        cpu = f"{target.processor_name()}, {toolchain.usable_cpus()} usable"
        table.add_row("CPU", cpu)
    except FxliteError as error:
        table.add_row("CPU", Text(str(error)))
    folder = cache_folder()
    table.add_row("cache", f"{folder}: {_cache_content(folder)} ({_limit_text()})")
    for name, value in _cuda().items():
        table.add_row(name, Text(value) if isinstance(value, str) else value)
    return table


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda() -> dict[str, str]:
    packages = {p: _version(p) for p in ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc")}
    found = [f"{p} {v}" for p, v in packages.items() if v]
    missing = [p for p, v in packages.items() if not v]
    text = ", ".join(found) or "no packages"
    if missing:
        text += f"; missing: {', '.join(missing)} (pip install 'fxlite[cuda]')"
    return {"CUDA": text, "GPU": _devices()}


def _devices() -> str:
    from fxlite.codegen.runtime.cuda_device import CudaDeviceNotFound, find_device

    found: list[str] = []
    try:
        while True:
            found.append(str(find_device(len(found)).name))
    except CudaDeviceNotFound as error:
        reason = str(error).removeprefix("no CUDA device can be used: ").partition(". ")[0]
        return ", ".join(found) or f"none: {reason}"


def _cache_content(folder: Path) -> str:
    """Numbers of cached builds and kept programs, and the size of all files."""
    count = {folder: 0, folder / PROGRAMS: 0}
    size = 0
    for path, folders, files in os.walk(folder):
        if Path(path) in count:
            count[Path(path)] = sum(map(is_entry, folders))
        for name in files:
            with contextlib.suppress(OSError):  # another process has just removed it
                size += os.stat(os.path.join(path, name)).st_size
    builds, programs = count.values()
    return f"{builds} builds, {programs} programs, {report.quantity(size, 'B')}"


def _limit_text() -> str:
    limit = cache_limit()
    return "no limit" if math.isinf(limit) else f"at most {report.quantity(int(limit), 'B')}"


_FOLDERS = ("failed", "compilers", "roofs", "tuning", "nvrtc", "cuda_shim")


def clear_cache() -> str:
    """Remove what fxlite put into its cache folder, and nothing else; says how much that was."""
    folder = named_folder()
    content = _cache_content(folder)
    if folder.is_dir():
        for path in folder.iterdir():
            if (
                is_entry(path.name)
                or path.name
                in (PROGRAMS, "failed", "compilers", "roofs", "tuning", "nvrtc", "cuda_shim")
                or path.name.startswith("work-")
            ):
                shutil.rmtree(path, ignore_errors=True)
        (folder / STAMP).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return f"removed {content}, from {folder}"
