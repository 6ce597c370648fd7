"""``fxlite passes``: the passes that can be named on the command line, and where they come from; and
``fxlite new-pass``: a working pass to edit.

In: parsed options and a console. Out: a table of the passes of fxlite, of imported modules and of
installed distributions, or a description of some of them, which imports those; or a file with a new
pass (or, with ``--rule``, a rule), one with its test, and what to do next. The pass has an example and
a counterexample, which its test checks.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import keyword
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxlite.base.console import show
from fxlite.base.errors import FxliteError
from fxlite.cli.shared import say
from fxlite.passes.base import GROUP, PASSES, Pass, PassError, as_pass, installed_passes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite passes``."""
    parser.description = (
        "List the passes that --passes accepts: those of fxlite, of modules given to --import, and "
        f"of installed distributions (entry points {GROUP}), which are not imported. With names, import "
        "these passes and describe them; the exit status is 1 if one cannot be imported."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="NAME or DISTRIBUTION:NAME")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite passes``. For a single name, raises the errors of :func:`as_pass`."""
    if not options.names:
        show(console, _table())
        return 0
    if len(options.names) == 1:
        _describe(console, options.names[0], as_pass(options.names[0]))
        return 0
    status = 0
    for number, name in enumerate(options.names):
        if number:
            console.print()
        try:
            _describe(console, name, as_pass(name))
        except PassError as error:
            say(console, f"{name}: {error}")
            status = 1
    return status


def _table() -> Table:
    table = Table.grid(padding=(0, 2))
    for name, item in sorted(PASSES.items()):
        table.add_row(name, _origin(item), Text(_plain(item.summary)))
    for found in installed_passes():
        name = found.full_name if found.name in PASSES else found.name
        table.add_row(Text(name), Text(f"{found.distribution} {found.version}"), Text(f"({found.where})"))
    return table


def _plain(text: str) -> str:
    """A text of the documentation, as it is shown on a terminal."""
    return text.removesuffix(".").replace("``", "`")


def _origin(item: Pass) -> str:
    module = item.__module__ or "?"
    return "fxlite" if module.split(".")[0] == "fxlite" else module


def _describe(console: Console, name: str, item: Pass) -> None:
    """Print the options of a pass and its docstring."""
    options = [
        p
        for p in list(inspect.signature(item.function).parameters.values())[1:]
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    lines = [f"{name} ({item.exactness}), from {_origin(item)}"]
    if options:
        lines.append(f"options: {', '.join(map(str, options))}")
    say(console, "\n".join(lines))
    for paragraph in inspect.cleandoc(item.__doc__ or "It has no documentation.").replace("``", "`").split("\n\n"):
        console.print()
        is_text = not any(line.startswith(" ") for line in paragraph.splitlines())
        show(console, Text(" ".join(paragraph.split()) if is_text else paragraph))


# -- new-pass --------------------------------------------------------------------------------------
class NewPassError(FxliteError):
    """The files cannot be written: the name is not valid, or they exist."""


_PASS = '''\
"""NAME: say here what the pass is for.

Before::

    neg: f32[4] = -x
    abs: f32[4] = ops.abs(neg)

After::

    abs: f32[4] = ops.abs(x)
"""

from __future__ import annotations

import numpy as np

import fxlite as fx
from fxlite.passes import graph_pass, refuse


@graph_pass(exactness="exact")  # or "allclose", if results may differ by rounding
def NAME(gm: fx.GraphModule) -> None:
    """Let abs read what is negated: abs(-x) is abs(x)."""
    for node in gm.graph.find_nodes(op="call_function", target="abs"):
        (negated,) = node.all_input_nodes
        if negated.op != "call_function" or negated.target is not fx.ops.neg:
            continue
        if len(negated.users) > 1:  # for the ledger: passes.ledger(gm) shows what a pass refused
            refuse(gm, "NAME", node, f"{negated.name} is read elsewhere too")
            continue
        node.replace_input_with(negated, negated.args[0])
        gm.graph.erase_node(negated)


# It must change these, and their results must stay the same ...
NAME.example(lambda x: np.abs(-x), "the sign is lost", x="f32[4]")

# ... and leave these as they are.
NAME.counterexample(lambda x: np.exp(-x), "exp tells the signs apart", x="f32[4]")
'''

_RULE = '''\
"""NAME: say here what the rule is for."""

from __future__ import annotations

from typing import Any

import fxlite.nn.functional as F
from fxlite.passes import predicates, rule


@rule(exactness="allclose")  # or "exact", if results must be the same bit for bit
def NAME(x: Any) -> Any:
    """x * sigmoid(x) is silu(x)."""
    return x * F.sigmoid(x)


@NAME.replacement
def _(x: Any) -> Any:
    return F.silu(x)


@NAME.where  # as many conditions as you like, or none
def _(x: Any) -> bool | str:
    return predicates.is_float(x) or "x is not a float tensor"


# It must change these, and their results must stay the same ...
NAME.example(lambda x: x * F.sigmoid(x), "the gate is the value itself", x="f32[4]")

# ... and leave these as they are.
NAME.counterexample(lambda x, y: x * F.sigmoid(y), "the gate is another value", x="f32[4]", y="f32[4]")
'''

_TEST = '''\
"""NAME does on its examples what they are there to show."""

from __future__ import annotations

from NAME import NAME

from fxlite.passes import check_examples


def test_examples() -> None:
    check_examples(NAME)
'''

_NEXT = """\
{file} and {test} written. Next:
  pytest {test}
  fxlite trace MODEL.py:NAME --input "x=f32[...]" --passes {file}:{name}
  edit {file}: what it does, its examples, and what it must leave alone"""


def new_pass(name: str, folder: str | Path = ".", rule: bool = False) -> tuple[Path, Path]:
    """Write NAME.py and test_NAME.py into ``folder``, which is made if needed; returns the two paths.
    Raises NewPassError, and OSError if the folder cannot be written to."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise NewPassError(f"{name!r} cannot be the name of a pass: write letters, digits and _")
    if name in PASSES:
        raise NewPassError(f"there is a pass {name} already; choose another name")
    paths = Path(folder, f"{name}.py"), Path(folder, f"test_{name}.py")
    for path in paths:
        if path.exists():
            raise NewPassError(f"{path} exists; choose another name or folder (-o)")
    if importlib.util.find_spec(name) is not None:
        raise NewPassError(f"{name}.py would hide the module {name}; choose another name")
    Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in zip(paths, (_RULE if rule else _PASS, _TEST)):
        path.write_text(text.replace("NAME", name), encoding="utf-8")
    return paths


def new_pass_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite new-pass``."""
    parser.add_argument("name", metavar="NAME", help="name of the pass, and of its file")
    parser.add_argument("--rule", action="store_true", help="write a rule: a pattern and its replacement")
    text = "where to write; default: the current folder"
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER", help=text)


def new_pass_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite new-pass``."""
    file, test = new_pass(options.name, options.output, options.rule)
    say(console, _NEXT.format(name=options.name, file=file, test=test))
    return 0
