"""What the parsers of commands share: options that several take, and how a body is found that
stands in code generation.

In: the parser of a command. Out: its options.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from fxlite.cli import option_values as value

if TYPE_CHECKING:
    from rich.console import Console

#: What the parser of a command is added to.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def program_options(parser: argparse.ArgumentParser) -> None:
    """The program, types of its inputs, its weights."""
    parser.add_argument("program", metavar="PROGRAM", help="FILE.py:NAME or FILE.fxl")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="NAME=TYPE", type=value.typed_input,
        help='an input and its type, "x=f32[B,3,224,224]"; repeat for each',
    )  # fmt: skip
    parser.add_argument(
        "--dim", action="append", default=[], metavar="DIM=FACTS", type=value.facts,
        help='what is known of a named dim of the inputs: "T=1..512", "T=8..512%%8" (a multiple of '
        '8), "T=1..", "T=%%8"; repeat for each',
    )  # fmt: skip
    parser.add_argument("-w", "--weights", metavar="FILE", help="a safetensors file to load")


def precision_option(parser: argparse.ArgumentParser) -> None:
    """How products of floats are computed."""
    parser.add_argument(
        "--matmul-precision", choices=("highest", "high", "medium"), default="highest",
        help="medium: products with constant weights round their operands to bf16 (c only); high: "
        "three products of bf16 where the processor has AMX, else as highest (default)",
    )  # fmt: skip


def autotune_option(parser: argparse.ArgumentParser) -> None:
    """Whether kernels are measured while compiling."""
    parser.add_argument(
        "--autotune", action="store_true",
        help="where there are several ways to compute a kernel, measure them (at --size) and take "
        "the fastest, not the one that a model predicts; choices are kept in the cache (c only)",
    )  # fmt: skip


def size_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Sizes of named dims, ``purpose``."""
    parser.add_argument(
        "--size", action="append", default=[], metavar="DIM=N", type=value.size,
        help=f"size of a named dim {purpose}; repeat for each",
    )  # fmt: skip


def threads_option(parser: argparse.ArgumentParser) -> None:
    """Threads of compiled code."""
    parser.add_argument(
        "--threads", type=value.positive, metavar="N",
        help="threads of compiled code; default OMP_NUM_THREADS, else the usable processors",
    )  # fmt: skip


def data_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Real inputs, ``purpose``."""
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=FILE.npy",
        type=value.pair("NAME=FILE.npy"),
        help=f"a real input {purpose}; default random numbers",
    )  # fmt: skip


def deferred(module: str, function: str) -> Callable[[argparse.Namespace, Console], int]:
    """A command whose body stands in a file of code generation, imported when it is run."""

    def run(options: argparse.Namespace, console: Console) -> int:
        found = getattr(importlib.import_module(f"fxlite.codegen.{module}"), function)
        return int(found(options, console))

    return run
