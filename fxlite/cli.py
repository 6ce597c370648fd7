"""The command line: ``fxlite trace``, ``fxlite compile`` and ``fxlite info``.

In: arguments. Out: text on standard output, files, and an exit status: 0 OK, 1 the user's program
or files are at fault (one message, no traceback; ``--debug`` shows it), 2 the arguments are.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fxlite.errors import FxliteError

if TYPE_CHECKING:
    from rich.console import Console

_EXAMPLES = """\
examples:
  fxlite trace model.py:Net --input "x=f32[B,3,224,224]"
  fxlite compile model.py:Net --input "x=f32[B,3,224,224]" --weights net.safetensors -o out/
  fxlite info

A type is a dtype and a shape, f32[B,3,4*D]; a name in it is a size that is known when the model
runs. dtypes: bool u8 i8 i16 i32 i64 f16 bf16 f32 f64. A program is FILE.py:NAME (a Module class,
an instance, a function, or a function without arguments that makes a model), or a FILE.fxl.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from rich.console import Console

    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        return int(options.run(options, console))
    except BrokenPipeError:
        # the reader has gone, as in `fxlite trace ... | head`; nothing is left to be flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except Exception as error:
        if options.debug:
            raise
        _complain(_message(error))
        return 1


def _message(error: Exception) -> str:
    """The error's own text; for errors that are not fxlite's, their sort, place and how to see
    more."""
    if isinstance(error, FxliteError) or type(error).__module__.startswith("fxlite."):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    from fxlite.program_file import describe

    return f"{describe(error)}\n  --debug shows the traceback"


def _complain(message: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    console.print("[bold red]error:[/]", end=" ", soft_wrap=True)
    console.print(message, markup=False, soft_wrap=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fxlite", description="See, rewrite and compile models written with NumPy.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    import fxlite

    parser.add_argument("--version", action="version", version=f"fxlite {fxlite.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    trace = commands.add_parser("trace", help="print a program's graph with a type on every value")
    _program_options(trace)
    trace.add_argument("--table", action="store_true", help="print a table instead of code")
    trace.add_argument(
        "--draw", metavar="FILE", help="write a picture instead: .svg, .dot, .png or .pdf"
    )
    trace.set_defaults(run=_trace)

    compile = commands.add_parser(
        "compile", help="turn a program into optimized source files, checked and timed"
    )
    _program_options(compile)
    compile.add_argument("-o", "--output", required=True, metavar="FOLDER", help="where to write")
    compile.add_argument(
        "--backend", default="c", metavar="NAME", help="c (default), python or cuda"
    )
    compile.add_argument(
        "--threads", type=_positive, metavar="N",
        help="threads of compiled code; default OMP_NUM_THREADS, else the usable processors",
    )  # fmt: skip
    compile.add_argument(
        "--device", metavar="DEVICE",
        help="for cuda: number of a GPU, sm_90 (compile only), or shim (run on the CPU, slowly)",
    )  # fmt: skip
    compile.add_argument(
        "--size", action="append", default=[], metavar="DIM=N", type=_size,
        help="size of a named dim to check and time with; repeat for each",
    )  # fmt: skip
    compile.add_argument(
        "--data", action="append", default=[], metavar="NAME=FILE.npy", type=_pair("NAME=FILE.npy"),
        help="a real input to check with and to store in the self-test; default random numbers",
    )  # fmt: skip
    compile.add_argument(
        "--force", action="store_true", help="write into a folder that holds other files, too"
    )
    compile.set_defaults(run=_compile)

    info = commands.add_parser("info", help="version, compiler, CPU, cache and devices")
    info.add_argument("--clear-cache", action="store_true", help="remove all cached builds")
    info.set_defaults(run=_info)
    for command in (trace, compile, info):
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
    return parser


def _program_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="FILE.py:NAME or FILE.fxl")
    parser.add_argument(
        "-i", "--input", action="append", default=[], metavar="NAME=TYPE", type=_input,
        help='an input and its type, "x=f32[B,3,224,224]"; repeat for each',
    )  # fmt: skip
    parser.add_argument("-w", "--weights", metavar="FILE", help="a safetensors file to load")


# -- values of options -----------------------------------------------------------------------------
def _pair(form: str) -> Any:
    def parse(text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip().isidentifier() or not value.strip():
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        return name.strip(), value.strip()

    return parse


def _input(text: str) -> tuple[str, Any]:
    from fxlite.errors import ParseError
    from fxlite.types import parse_type

    name, value = _pair('NAME=TYPE, such as "x=f32[B,3,224,224]"')(text)
    try:
        return name, parse_type(value)
    except ParseError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _size(text: str) -> tuple[str, int]:
    name, value = _pair("DIM=N, such as B=8")(text)
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{value!r} in {text!r} is not a size")
    return name, int(value)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of threads")
    return int(text)


# -- commands --------------------------------------------------------------------------------------
def _trace(options: argparse.Namespace, console: Console) -> int:
    from fxlite.console import print_code, show
    from fxlite.pretty import fitted_text, node_table
    from fxlite.program_file import trace_program

    _, module = trace_program(options.program, options.weights, options.input)
    if options.draw:
        module.graph.draw(options.draw)
        console.print(f"{options.draw} written", soft_wrap=True, markup=False)
    elif options.table:
        show(console, node_table(module.graph))
    else:
        text = str(module.graph)
        if console.is_terminal:
            text = fitted_text(module.graph, console.width)
        print_code(console, text)
    return 0


def _compile(options: argparse.Namespace, console: Console) -> int:
    from fxlite.codegen.command import compile_command

    return compile_command(options, console)


def _info(options: argparse.Namespace, console: Console) -> int:
    from fxlite.codegen.command import clear_cache, info_table
    from fxlite.console import show

    show(console, clear_cache() if options.clear_cache else info_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
