"""The command line: ``fxlite trace``, ``compile``, ``diff``, ``check``, ``cost``, ``profile`` and
others.

In: arguments. Out: text on standard output, files, and an exit status: 0 success, 1 the user's program
or files are at fault (one message and no traceback, which ``--debug`` shows), 2 the arguments are
wrong, 130 interrupted. The status of ``fxlite diff`` is that of diff(1): 0 the same, 1 different, 2
something is at fault. Shells complete commands and options with argcomplete if it is installed (the
extra "completion"). Unlike tools that write a script once, it asks the parser, whose options depend on
the command, and it supports fish, too.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
import textwrap
from collections.abc import Sequence

from fxlite.base.console import output_console, output_width
from fxlite.base.errors import FxliteError
from fxlite.base.location import described
from fxlite.types.dtypes import ALL

#: An example of each command, which the command's help shows, too.
_EXAMPLES = {
    "trace": 'fxlite trace model.py:Net --input "x=f32[B,3,224,224]"',
    "compile": 'fxlite compile model.py:Net --input "x=f32[B,3,224,224]" --weights net.safetensors -o out/',
    "diff": 'fxlite diff model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,cse --html diff.html',
    "check": 'fxlite check model.py:Net --input "x=f32[8,3,224,224]" --no-match dropout --max-peak 200MB',
    "passes": "fxlite passes",
    "new-pass": "fxlite new-pass my_pass",
    "bisect": 'fxlite bisect model.py:Net --input "x=f32[8,3,224,224]" --passes my_pass.py:my_pass,cse',
    "cost": 'fxlite cost model.py:Net --input "x=f32[B,T,64]" --size B=8 --range T=64,128,256',
    "profile": 'fxlite profile model.py:Net --input "x=f32[B,3,224,224]" --size B=8 --backend c --by module',
    "blame": 'fxlite blame model.py:Net --input "x=f32[8,3,224,224]"',
    "report": 'fxlite report model.py:Net --input "x=f32[B,3,224,224]" --size B=8 -o report.html',
    "step": 'fxlite step model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn,simplify',
    "quantize": 'fxlite quantize model.py:Net --input "x=f32[B,64]" --data calib.npz --min-sqnr 30 -o net.fxl',
    "regenerate": 'fxlite regenerate model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn -o out/',
    "reimport": 'fxlite reimport model.py:Net out/net.py --input "x=f32[B,3,224,224]" -o edited.fxl',
    "optimize": 'fxlite optimize model.py:Net --input "x=f32[B,3,224,224]" --passes fuse_conv_bn --diff',
    "migrate": "fxlite migrate my_torch_fx_passes.py -o ported/",
    "import": "fxlite import bert.onnx --size batch=B -o out/",
    "export": 'fxlite export model.py:Net net.onnx --input "x=f32[B,3,224,224]"',
    "weights": "fxlite weights net.safetensors",
    "textconv": "fxlite textconv net.fxl",
    "info": "fxlite info",
    "doctor": "fxlite doctor",
    "completion": 'eval "$(fxlite completion bash)"',
}

_ABOUT = (
    "A type is a dtype and a shape, such as f32[B,3,4*D]; a name in it stands for a size that is known when "
    f"the model runs. The dtypes are {' '.join(d.name for d in ALL)}. A program is FILE.py:NAME (a Module class, an "
    "instance, a function, or a function without arguments that makes a model) or FILE.fxl.",
    "Exit status: 0 success; 1 the program or one of its files is at fault, or what was asked about does not "
    "hold (check, trace --doctor, doctor); 2 the arguments are wrong; 130 interrupted. fxlite diff: 0 the graphs "
    "are the same, 1 they differ, 2 something is at fault.",
)

#: The purpose of each command, in the order in which help lists them. The file of the same name has its
#: parser and body, ``add_arguments`` and ``run``, and is imported when the command is given.
_COMMANDS = {
    "trace": "print a program's graph with a type on every value",
    "compile": "turn a program into optimized source files, checked and timed",
    "diff": "show what differs between two programs, or before and after passes",
    "check": "fail if a graph contains what it must not, or exceeds a limit",
    "passes": "list the passes that can be named, and where they come from",
    "new-pass": "write a pass (or a rule) that works, with examples and a test, to edit",
    "bisect": "run passes one by one, each checked, and name the first that is wrong and where",
    "cost": "compute FLOPs, bytes, parameters and memory, as formulas in the named dims or as numbers",
    "profile": "measure where the time of a call goes, and compare it with the machine's limits",
    "blame": "print a program's file with the time that each line takes",
    "report": "write one HTML page: the graph to explore with costs, times, memory, source",
    "step": "run passes and look at each rewrite, forward and backward",
    "quantize": "quantize a program to integers, by a scheme, a plan or a budget",
    "regenerate": "write a program, or what passes made of it, as Python source",
    "reimport": "read regenerated source that was edited: show what changed, and save the graph",
    "optimize": "show or apply what passes do as a patch on the program's own files",
    "migrate": "port a file written for torch.fx, and list what has to be ported by hand",
    "import": "read an ONNX model and write its graph, a picture and a report",
    "export": "write a program, or what passes made of it, as an ONNX model",
    "weights": "list the arrays of a file of weights",
    "textconv": "print a saved graph as text, for git diff",
    "info": "show the version, the compiler, the CPU, the cache and devices",
    "doctor": "check what fxlite uses on this machine, and say how to get what is missing",
    "completion": "print a script with which a shell completes the commands and their options",
}

#: Exit statuses of commands whose meaning differs from 0 success, 1 a fault and 2 wrong arguments.
_STATUS = {
    "check": "Status: 0 all checks passed, 1 one failed or the program is at fault, 2 the arguments are wrong.",
    "doctor": "Status: 0 all that is needed works, 1 something does not.",
}

#: Commands that read neither programs nor graphs.
_READ_NO_PROGRAM = ("new-pass", "migrate", "import", "weights", "info", "doctor", "completion")


#: Commands that are in the file of another one, where their functions begin with their names.
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
    "doctor": "info",
    "completion": "info",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the encoding lacks become `?`
            stream.reconfigure(errors="replace")
    given = sys.argv[1:] if arguments is None else list(arguments)
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    options = _parser(given).parse_args(given)
    console = output_console()
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
        # the reader has gone, as in `fxlite trace ... | head`; nothing may be flushed at exit
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


def _complete() -> None:
    """Tell a shell how a line may go on, and exit."""
    import shlex

    import argcomplete

    line = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    try:
        words = shlex.split(line)
    except ValueError:  # a quotation that is not finished
        words = line.split()
    argcomplete.autocomplete(_parser(words[1:]))


def _message(error: Exception) -> str:
    """The error's own text; for errors that are not fxlite's, their kind and place, and how to see more."""
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


def _filled(text: str) -> str:
    """A paragraph of help, in lines that fit the terminal and are not too long to read."""
    return textwrap.fill(text, min(95, output_width() - 2), break_on_hyphens=False)


def _example(text: str) -> str:
    """A command line for help, which a shell accepts as it is, even if it is broken into several lines; an option
    and its value stay together."""
    whole = re.sub(r"(?<= )(--?[a-z][a-z-]*) (?=[^-])", "\\1\0", text)
    lines = textwrap.wrap(
        whole, output_width() - 8, initial_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return " \\\n      ".join(lines).replace("\0", " ")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the one that is given."""
    parser = argparse.ArgumentParser(
        prog="fxlite",
        description="See, rewrite and compile models written with NumPy.",
        epilog="\n\n".join(["\n".join(["examples:", *map(_example, _EXAMPLES.values())]), *map(_filled, _ABOUT)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    import fxlite

    parser.add_argument("-V", "--version", action="version", version=f"fxlite {fxlite.__version__}")
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

                what = "import this first, FILE.py or a.b, for the ops and passes that it registers; repeat for each"
                repeated(command, "--import", metavar="MODULE", dest="imports", help=what)
            command.add_argument("--debug", action="store_true", help="show tracebacks of errors")
            is_raw = command.formatter_class is argparse.RawDescriptionHelpFormatter
            rest = command.epilog if is_raw else _filled(command.epilog or "")
            command.description = _filled(command.description or f"{text[0].upper()}{text[1:]}.")
            example = f"example:\n{_example(_EXAMPLES[name])}"
            command.epilog = "\n\n".join(filter(None, [example, rest, _filled(_STATUS.get(name, ""))]))
            command.formatter_class = argparse.RawDescriptionHelpFormatter
            run = getattr(found, f"{start}run")
            command.set_defaults(run=run, trouble=2 if name == "diff" else 1)
    return parser
