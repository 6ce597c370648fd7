"""The command line: ``fxlite trace``, ``compile``, ``diff``, ``check``, ``cost``, ``profile`` and
others.

In: arguments. Out: text on standard output, files, and an exit status: 0 OK, 1 the user's program
or files are at fault (one message, no traceback; ``--debug`` shows it), 2 the arguments are.
``fxlite diff`` answers as diff(1) does: 0 the same, 1 different, 2 something is at fault.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from fxlite.base.errors import FxliteError
from fxlite.base.location import described
from fxlite.types.dtypes import ALL

_EXAMPLES = f"""\
examples:
  fxlite trace model.py:Net --input "x=f32[B,3,224,224]"
  fxlite compile model.py:Net --input "x=f32[B,3,224,224]" --weights net.safetensors -o out/
  fxlite check model.py:Net --input "x=f32[8,3,224,224]" --no-match dropout --max-peak 200MB
  fxlite diff model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,cse --html diff.html
  fxlite step model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,simplify
  fxlite new-pass my_pass
  fxlite cost model.py:Net --input "x=f32[B,T,64]" --size B=8 --range T=64,128,256
  fxlite profile model.py:Net --input "x=f32[B,3,224,224]" --size B=8 --backend c --by module
  fxlite blame model.py:Net --input "x=f32[8,3,224,224]"
  fxlite report model.py:Net --input "x=f32[B,3,224,224]" --size B=8 -o report.html
  fxlite quantize model.py:Net --input "x=f32[B,64]" --data calib.npz --min-sqnr 30 -o net.fxl
  fxlite regenerate model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn -o out/
  fxlite reimport model.py:Net out/net.py --input "x=f32[B,3,224,224]" -o edited.fxl
  fxlite optimize model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn --diff
  fxlite migrate my_torch_fx_passes.py -o ported/
  fxlite import bert.onnx --size batch=B -o out/
  fxlite export model.py:Net net.onnx --input "x=f32[B,3,224,224]"
  fxlite weights net.safetensors
  fxlite passes
  fxlite info

A type is a dtype and a shape, f32[B,3,4*D]; a name in it is a size that is known when the model
runs. dtypes: {" ".join(d.name for d in ALL)}. A program is FILE.py:NAME (a Module class,
an instance, a function, or a function without arguments that makes a model), or a FILE.fxl.
"""

#: In the order in which help lists the commands, what each does. The file of its name has its
#: parser and body, ``add_arguments`` and ``run``, and is imported when the command is given.
_COMMANDS = {
    "trace": "print a program's graph with a type on every value",
    "compile": "turn a program into optimized source files, checked and timed",
    "diff": "what changed from one program to another, or by running passes",
    "check": "fail where a graph holds what it must not, or is larger than a limit",
    "passes": "list the passes that can be named, and where they come from",
    "new-pass": "write a pass (or a rule) that works, with examples and a test, to edit",
    "bisect": "run passes one by one, checked; name the first that is wrong, and where",
    "cost": "FLOPs, bytes, parameters and memory, as formulas in the named dims or numbers",
    "profile": "measure where the time of a call goes, beside the machine's limits",
    "blame": "print a program's file with the time that each line takes",
    "report": "write one HTML page: the graph to explore with costs, times, memory, source",
    "step": "run passes, and look at each rewrite, forward and backward",
    "quantize": "make a program of integers, by a scheme, a plan or a budget",
    "regenerate": "write a program, or what passes made of it, as Python source",
    "reimport": "read regenerated source that was edited: what changed, and the graph",
    "optimize": "show or apply what passes do as a patch on the program's own files",
    "migrate": "port a file written for torch.fx, and list what is left to a person",
    "import": "a model of ONNX as a graph, a picture and a report; what it holds first",
    "export": "write a program, or what passes made of it, as a model of ONNX",
    "weights": "list the arrays of a file of weights",
    "textconv": "print a saved graph as text, for git diff",
    "info": "version, compiler, CPU, cache and devices",
}

#: Commands that read neither programs nor graphs.
_READ_NO_PROGRAM = ("new-pass", "migrate", "import", "weights", "info")


#: Commands that stand in the file of others, with their names before those of its functions.
_BESIDE = {
    "new-pass": "passes",
    "blame": "profile",
    "report": "profile",
    "reimport": "regenerate",
    "migrate": "regenerate",
    "textconv": "diff",
    "import": "exchange",
    "export": "exchange",
    "weights": "exchange",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    from rich.console import Console

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks is a `?`
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(given).parse_args(given)
    console = Console(highlight=False)
    try:
        if getattr(options, "imports", None):
            from fxlite.cli.program_file import import_named

            for module in options.imports:
                import_named(module)
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
    return f"{described(error)}\n  --debug shows the traceback"


def _complain(message: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    console.print("[bold red]error:[/]", end=" ", soft_wrap=True)
    console.print(message, markup=False, soft_wrap=True)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the one that is given."""
    parser = argparse.ArgumentParser(
        prog="fxlite",
        description="See, rewrite and compile models written with NumPy.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    import fxlite

    parser.add_argument("--version", action="version", version=f"fxlite {fxlite.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    chosen = next((word for word in given if not word.startswith("-")), None)
    for name, text in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        if name == chosen:
            own = name.replace("-", "_")
            file, start = (_BESIDE[name], f"{own}_") if name in _BESIDE else (own, "")
            found = importlib.import_module(f"fxlite.cli.{file}")
            getattr(found, f"{start}add_arguments")(command)
            if name not in _READ_NO_PROGRAM:
                from fxlite.cli.shared import repeated

                text = "import this first, FILE.py or a.b, for the ops and passes that it registers; repeat for each"
                repeated(command, "--import", metavar="MODULE", dest="imports", help=text)
            command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
            run = getattr(found, f"{start}run")
            command.set_defaults(run=run, trouble=2 if name == "diff" else 1)
    return parser
