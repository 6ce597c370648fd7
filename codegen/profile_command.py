"""What ``fxlite profile`` and ``fxlite blame`` do: measure a program and print where its time goes.

In: parsed options and a console. Out: the table that ``--by`` names, and with ``--trace`` a file
for ``chrome://tracing`` and Perfetto; or the program's file with the time of each line.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.codegen import examples
from fxlite.compiler import check_backend
from fxlite.console import show
from fxlite.passes.profiling.blame import blame_text
from fxlite.passes.profiling.profile import profile
from fxlite.passes.profiling.record import Profile
from fxlite.program_file import ProgramError, trace_program, unique


def profile_command(options: argparse.Namespace, console: Console) -> int:
    """``fxlite profile``."""
    found = _measured(options)
    show(console, found.table(options.by, console.width))
    if options.trace:
        found.to_chrome_trace(options.trace)
        console.print(f"{options.trace} written", soft_wrap=True, markup=False)
    return 0


def blame_command(options: argparse.Namespace, console: Console) -> int:
    """``fxlite blame``."""
    path = options.program.rpartition(":")[0]
    if not path.endswith(".py"):
        raise ProgramError(f"{options.program!r} names no source file; write FILE.py:NAME")
    console.print(blame_text(_measured(options), path), soft_wrap=True)
    return 0


def _measured(options: argparse.Namespace) -> Profile:
    """The profile of the program that the options name. Raises what tracing, loading data and
    running raise."""
    data = examples.load_data(unique(options.data, "--data"))
    sizes = unique(options.size, "--size")
    check_backend(options.backend)
    _, module = trace_program(options.program, options.weights, options.input, need_types=True)
    inputs = examples.make_cases(module, sizes, data)[-1].inputs
    return profile(
        module, inputs=inputs, backend=options.backend, repeat=options.repeat,
        threads=options.threads,
    )  # fmt: skip
