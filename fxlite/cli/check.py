"""``fxlite check``: what a graph must hold, what not, and its limits.

In: the parsers of the command line. Out: its parser among them; `codegen.check_command` has the
body.
"""

from __future__ import annotations

import argparse

from fxlite.cli import option_values as value
from fxlite.cli.shared import Commands, deferred, program_options, size_option

_QUERIES = """\
queries:
  conv2d                        calls of an op; placeholder, get_attr, output; * for any node
  conv2d > relu                 a relu that reads a conv2d; >> through any number of nodes
  (conv1d|conv2d)               one or the other
  batch_norm[training=True]     by an attribute or operand: = != < <= > >=, or [bias] alone
  [dtype=f64] [shape=f32[B,3,*,*]] [rank=4] [bytes>1MB]     by the type of the result
  :users(>1) :constant :random :dead :first :last :not(...)
  :in("layers.*.attn") :at("model.py:31")                   by module, by line
  module("encoder.*") a > b     a chain inside a module
  a > b, c                      several queries
  pydoc fxlite.show.query                   the whole language

Status: 0 all checks passed, 1 one failed or the program is at fault, 2 the arguments are.
"""


def add_check(commands: Commands) -> None:
    """The parser of ``fxlite check``."""
    parser = commands.add_parser(
        "check", help="fail where a graph holds what it must not, or is larger than a limit",
        epilog=_QUERIES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    program_options(parser)
    for option, text in (
        ("--match", "fail unless this finds something; repeat for each"),
        ("--no-match", "fail if this finds something; repeat for each"),
    ):
        parser.add_argument(
            option, action="append", default=[], metavar="QUERY", type=value.query, help=text
        )
    for option, metavar, text in (
        ("--max-peak", "BYTES", "memory of computed values, when it is largest: 200MB, 64MiB"),
        ("--max-flops", "FLOPS", "arithmetic operations of one run: 5G"),
        ("--max-weights", "BYTES", "bytes of the weights that are read"),
        ("--max-nodes", "N", "nodes of the graph"),
    ):
        parser.add_argument(option, metavar=metavar, type=value.quantity, help=text)
    parser.add_argument(
        "--lint", action="store_true", help="fail if the graph breaks its own rules"
    )
    size_option(parser, "that a limit depends on")
    parser.set_defaults(run=deferred("check_command", "check_command"))
