"""Options that several commands have, their values, and passes named on the command line.

In: the parser of a command, or names such as ``cse,my_pass.py:my_pass``, separated by commas: of
registered passes, or FILE.py:NAME for a pass (or a plain function of a GraphModule) in a file, which
is run. Out: its options; passes. Values are made from the text of an option, ``B=8``, ``x=f32[B,3]``
or ``200MB``; ArgumentTypeError says what is wrong with it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxlite.backend import backends, declared_options
from fxlite.base.errors import FxliteError
from fxlite.cli.program_file import ProgramError, find_object
from fxlite.graph.graph_module import GraphModule

if TYPE_CHECKING:
    from fxlite.passes.base import Pass


#: What the command line says below a graph whose weights are only counted.
WEIGHTS_HINT = "fxlite trace --all-weights lists them"


class UsageError(FxliteError):
    """The options of a command do not go together."""


def say(console: Any, *texts: str) -> None:
    """Print texts as they are, each on lines of its own, which are not wrapped."""
    for text in texts:
        console.print(text, soft_wrap=True, markup=False)


# -- options ---------------------------------------------------------------------------------------
def program_options(parser: argparse.ArgumentParser) -> None:
    """Options for the program, the types of its inputs, and its weights."""
    parser.add_argument("program", metavar="PROGRAM", help="FILE.py:NAME or FILE.fxl")
    text = 'an input and its type, "x=f32[B,3,224,224]"; repeat for each'
    repeated(parser, "-i", "--input", metavar="NAME=TYPE", type=typed_input, help=text)
    text = (
        'what is known about a named dim of the inputs: "T=1..512", "T=8..512%%8" (a multiple of '
        '8), "T=1..", "T=%%8"; repeat for each'
    )
    repeated(parser, "--dim", metavar="DIM=FACTS", type=dim_facts, help=text)
    parser.add_argument("-w", "--weights", metavar="FILE", help="weights to load: safetensors, torch, GGUF or npz")


def repeated(parser: Any, *names: str, **given: Any) -> None:
    """An option that may be repeated; its values form a list."""
    parser.add_argument(*names, action="append", default=[], **given)


def backend_option(
    parser: argparse.ArgumentParser, purpose: str, default: str | None = None, timed: bool = False
) -> None:
    """An option for the name of a back end; with ``timed``, of one whose parts can be timed."""
    names = [b.name for b in backends() if b.is_measured or not timed]
    text = f"{purpose}: {', '.join(names)}" + (f"; default {default}" if default else "")
    parser.add_argument("--backend", default=default, metavar="NAME", help=text)


def backend_options(parser: argparse.ArgumentParser, *names: str) -> None:
    """The options that back ends declare for the command line: those in ``names``, or all."""
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
            given |= {"metavar": option.metavar, "type": positive if option.type is int else option.type}
        parser.add_argument(f"--{name.replace('_', '-')}", **given)


def size_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """An option for sizes of named dims."""
    text = f"size of a named dim {purpose}; repeat for each"
    repeated(parser, "--size", metavar="DIM=N", type=dim_size, help=text)


def data_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """An option for real inputs."""
    form = "NAME=FILE.npy"
    text = f"a real input {purpose}; default: random numbers"
    repeated(parser, "--data", metavar=form, type=functools.partial(_pair, form=form), help=text)


# -- passes ----------------------------------------------------------------------------------------
def passes_option(
    parser: argparse.ArgumentParser,
    purpose: str = "run these passes first; one of your own is FILE.py:NAME",
    required: bool = False,
) -> None:
    """The option ``--passes``; see :func:`after_passes` and :func:`find_passes`."""
    parser.add_argument("--passes", metavar="NAME,NAME", default="", required=required, help=purpose)


def after_passes(module: GraphModule, text: str) -> GraphModule:
    """The module after the passes that ``text`` names, or the module itself if it names none. Raises the
    errors of :func:`find_passes` and the passes."""
    if not text:
        return module
    from fxlite.passes.manager import PassManager

    return PassManager(find_passes(text))(module)


def find_passes(text: str) -> list[Pass]:
    """The passes that ``text`` names, in order. Raises PassError for an unknown name, ProgramError
    for a file that cannot be imported or has no such pass, and UsageError if it names none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise UsageError(f"--passes {text!r} names no pass; `fxlite passes` lists those that there are")
    return [_find(name) for name in names]


def _find(text: str) -> Pass:
    from fxlite.passes.base import as_pass

    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        return as_pass(text)
    found = find_object(path, name)
    if isinstance(found, type) or not callable(found):
        raise ProgramError(f"{text} is not a pass, but a {type(found).__name__}")
    return as_pass(found)


# -- values ----------------------------------------------------------------------------------------
def _pair(text: str, form: str) -> tuple[str, str]:
    """Two texts with ``=`` between them; ``form`` describes them in an error."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip().isidentifier() or not value.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
    return name.strip(), value.strip()


@contextlib.contextmanager
def _told(start: str = "") -> Any:
    """Inside, argparse reports errors of fxlite as errors of a value."""
    try:
        yield
    except FxliteError as error:
        raise argparse.ArgumentTypeError(f"{start}{error}") from None


def typed_input(text: str) -> tuple[str, Any]:
    """``x=f32[B,3,224,224]``: a name and a type."""
    from fxlite.types.tensor_type import parse_type

    name, value = _pair(text, 'NAME=TYPE, such as "x=f32[B,3,224,224]"')
    with _told():
        return name, parse_type(value)


def dim_size(text: str) -> tuple[str, int]:
    """``B=8``: a dim and its size."""
    name, value = _pair(text, "DIM=N, such as B=8")
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{value!r} in {text!r} is not a size")
    return name, int(value)


def dim_sizes(text: str) -> tuple[str, list[int]]:
    """``T=64,128,256``: a dim and sizes of it, each at least 1."""
    name, value = _pair(text, "DIM=N,N,..., such as T=64,128,256")
    parts = value.split(",")
    for part in parts:
        if not part.strip().isdecimal() or int(part) < 1:
            raise argparse.ArgumentTypeError(f"{part!r} in {text!r} is not a size from 1 on")
    return name, [int(part) for part in parts]


def dim_facts(text: str) -> tuple[str, Any]:
    """``T=1..512%8``: a dim and facts about it."""
    from fxlite.types.facts import parse_facts

    name, value = _pair(text, 'DIM=FACTS, such as "T=1..512%8"')
    with _told(f"{text!r}: "):
        return name, parse_facts(value)


def checked_query(text: str) -> str:
    """The text of a query, which is valid."""
    from fxlite.show.query.parser import parse_query

    with _told():
        parse_query(text)
    return text


def amount(unit: str) -> Callable[[str], int]:
    """A function that reads quantities in a unit, ``200MB``: a number, optionally with a prefix and the unit."""

    def parse(text: str) -> int:
        from fxlite.show.query.values import parse_quantity

        with _told():
            return parse_quantity(text, unit)

    return parse


def seconds(text: str) -> float:
    """``200us``: a time in s, ms or us."""
    for unit, factor in (("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                return float(text.removesuffix(unit)) * factor
            break
    raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 200us, 3.5ms or 1s")


def number(least: int, what: str) -> Callable[[str], int]:
    """A function that reads numbers of at least ``least``."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {what}")
        return int(text)

    return parse


positive = number(1, "from 1 on")


def numbers(text: str) -> list[int]:
    """``1,3``: numbers, each at least 1."""
    return [positive(part) for part in text.split(",")]
