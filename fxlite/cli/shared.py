"""Options that several commands take, and passes named on the command line.

In: the parser of a command, or names such as ``cse,my_pass.py:my_pass``, with commas between them:
of registered passes, or FILE.py:NAME for a pass (or a plain function of a GraphModule) in a file,
which is run. Out: its options; passes.
"""

from __future__ import annotations

import argparse
from typing import Any

from fxlite.backend import backends, declared_options
from fxlite.base.errors import FxliteError
from fxlite.cli import option_values as value
from fxlite.cli.program_file import ProgramError, find_object
from fxlite.graph.graph_module import GraphModule
from fxlite.passes.base import Pass, as_pass


class UsageError(FxliteError):
    """The options of a command do not go together."""


def program_options(parser: argparse.ArgumentParser) -> None:
    """The program, types of its inputs, its weights."""
    parser.add_argument("program", metavar="PROGRAM", help="FILE.py:NAME or FILE.fxl")
    parser.add_argument(
        "-i",
        "--input",
        action="append",
        default=[],
        metavar="NAME=TYPE",
        type=value.typed_input,
        help='an input and its type, "x=f32[B,3,224,224]"; repeat for each',
    )
    parser.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="DIM=FACTS",
        type=value.facts,
        help='what is known of a named dim of the inputs: "T=1..512", "T=8..512%%8" (a multiple of '
        '8), "T=1..", "T=%%8"; repeat for each',
    )
    parser.add_argument("-w", "--weights", metavar="FILE", help="weights to load: safetensors, torch, GGUF or npz")


def backend_option(
    parser: argparse.ArgumentParser, purpose: str, default: str | None = None, timed: bool = False
) -> None:
    """The name of a back end; ``timed``: of one whose parts can be timed."""
    names = [b.name for b in backends() if b.is_measured or not timed]
    text = f"{purpose}: {', '.join(names)}" + (f"; default {default}" if default else "")
    parser.add_argument("--backend", default=default, metavar="NAME", help=text)


def backend_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """Options that back ends declare for the command line: these, or all."""
    for name, found in declared_options().items():
        option = found[0][1]
        if option.metavar is None or (names and name not in names):
            continue
        text = f"{option.help} ({', '.join(backend.name for backend, _ in found)})"
        given: dict[str, Any] = {"default": option.default, "help": text}
        if option.type is bool:
            given["action"] = "store_true"
        elif isinstance(option.type, tuple):
            given["choices"] = option.type
        else:
            given |= {"metavar": option.metavar, "type": value.positive if option.type is int else option.type}
        parser.add_argument(f"--{name.replace('_', '-')}", **given)


def size_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Sizes of named dims, ``purpose``."""
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="DIM=N",
        type=value.size,
        help=f"size of a named dim {purpose}; repeat for each",
    )


def data_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Real inputs, ``purpose``."""
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        type=value.pair("NAME=FILE.npy"),
        help=f"a real input {purpose}; default random numbers",
    )


def passes_option(parser: argparse.ArgumentParser) -> None:
    """``--passes``: what is run before all else; see :func:`after_passes`."""
    parser.add_argument(
        "--passes", metavar="NAME,NAME", default="", help="run these passes first; one of your own is FILE.py:NAME"
    )


def after_passes(module: GraphModule, text: str) -> GraphModule:
    """The module after the passes that ``text`` names; itself where it names none. Raises what
    :func:`find_passes` and the passes raise."""
    if not text:
        return module
    from fxlite.passes.manager import PassManager

    return PassManager(find_passes(text))(module)


def find_passes(text: str) -> list[Pass]:
    """The passes that ``text`` names, in order. Raises PassError for an unknown name, ProgramError
    for a file that cannot be imported or has no such pass."""
    return [_find(name.strip()) for name in text.split(",") if name.strip()]


def _find(text: str) -> Pass:
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return as_pass(text)
    found = find_object(path, name)
    if isinstance(found, type) or not callable(found):
        raise ProgramError(f"{text} is not a pass, but a {type(found).__name__}")
    return as_pass(found)
