"""The command line: ``fxlite trace``, ``compile``, ``diff``, ``check``, ``cost``, ``profile`` and
others.

In: arguments. Out: text on standard output, files, and an exit status: 0 OK, 1 the user's program
or files are at fault (one message, no traceback; ``--debug`` shows it), 2 the arguments are.
``fxlite diff`` answers as diff(1) does: 0 the same, 1 different, 2 something is at fault.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from fxlite.base.errors import FxliteError
from fxlite.cli.check import add_check
from fxlite.cli.compile import add_compile
from fxlite.cli.cost import add_cost
from fxlite.cli.diff import add_diff
from fxlite.cli.info import add_info
from fxlite.cli.passes import add_bisect, add_new_pass
from fxlite.cli.profile import add_blame, add_profile, add_report
from fxlite.cli.quantize import add_quantize
from fxlite.cli.trace import add_trace
from fxlite.types.dtypes import ALL

_EXAMPLES = f"""\
examples:
  fxlite trace model.py:Net --input "x=f32[B,3,224,224]"
  fxlite compile model.py:Net --input "x=f32[B,3,224,224]" --weights net.safetensors -o out/
  fxlite check model.py:Net --input "x=f32[8,3,224,224]" --no-match dropout --max-peak 200MB
  fxlite diff model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,cse --html diff.html
  fxlite new-pass my_pass
  fxlite cost model.py:Net --input "x=f32[B,T,64]" --size B=8 --range T=64,128,256
  fxlite profile model.py:Net --input "x=f32[B,3,224,224]" --size B=8 --backend c --by module
  fxlite blame model.py:Net --input "x=f32[8,3,224,224]"
  fxlite report model.py:Net --input "x=f32[B,3,224,224]" --size B=8 -o report.html
  fxlite quantize model.py:Net --input "x=f32[B,64]" --data calib.npz --min-sqnr 30 -o net.fxl
  fxlite info

A type is a dtype and a shape, f32[B,3,4*D]; a name in it is a size that is known when the model
runs. dtypes: {" ".join(d.name for d in ALL)}. A program is FILE.py:NAME (a Module class,
an instance, a function, or a function without arguments that makes a model), or a FILE.fxl.
"""

#: In the order in which help lists the commands.
_COMMANDS = (
    add_trace, add_compile, add_diff, add_check, add_new_pass, add_bisect,
    add_cost, add_profile, add_blame, add_report, add_quantize, add_info,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is a `?`
            stream.reconfigure(errors="replace")
    parser = _parser()
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        if getattr(options, "dim", None):
            from fxlite.cli.program_file import with_facts

            options.input = with_facts(options.input, options.dim)
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
        return int(options.trouble)


def _message(error: Exception) -> str:
    """The error's own text; for errors that are not fxlite's, their sort, place and how to see
    more."""
    if isinstance(error, FxliteError) or type(error).__module__.startswith("fxlite."):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}; give smaller sizes"
    from fxlite.cli.program_file import describe

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
    for add_command in _COMMANDS:
        add_command(commands)
    for name, command in commands.choices.items():
        command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
        command.set_defaults(trouble=2 if name == "diff" else 1)
    return parser
