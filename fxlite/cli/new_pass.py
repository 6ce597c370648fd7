"""``fxlite new-pass``: a pass that works, to edit.

In: parsed options and a console. Out: a file with the pass, one with its test, and what to do next.

A pass (or, with ``rule``, a rule) works, with an example and a counterexample; its test checks
these. Both files are meant to be edited.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from pathlib import Path

from rich.console import Console

from fxlite.base.errors import FxliteError
from fxlite.passes.base import PASSES


# -- the files -------------------------------------------------------------------------------------
class NewPassError(FxliteError):
    """The files cannot be written: the name will not do, or they exist."""


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
    """Write NAME.py and test_NAME.py into ``folder``, which is made if need be; returns the two
    paths. Raises NewPassError, and OSError where the folder cannot be written to."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise NewPassError(f"{name!r} is no name for a pass: write letters, digits and _")
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


def next_steps(name: str, file: Path, test: Path) -> str:
    """What to do with the files."""
    return _NEXT.format(name=name, file=file, test=test)


# -- the command -----------------------------------------------------------------------------------
def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite new-pass``."""
    parser.add_argument("name", metavar="NAME", help="name of the pass, and of its file")
    parser.add_argument("--rule", action="store_true", help="a rule: a pattern and what to put in its place")
    parser.add_argument("-o", "--output", default=".", metavar="FOLDER", help="where to write; default here")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite new-pass``."""
    files = new_pass(options.name, options.output, options.rule)
    console.print(next_steps(options.name, *files), soft_wrap=True, markup=False)
    return 0
