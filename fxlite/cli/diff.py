"""``fxlite diff``: the changes from one program to another, or those that passes make.

In: parsed options and a console. Out: the changes from one program to another, or from a program
to itself after some passes, optionally as HTML and JSON, too; and the exit status: 0 if nothing
changed, 1 if something did, 2 if the programs cannot be compared or the arguments are wrong.

``fxlite textconv``: a saved graph as text, for ``git diff`` and people: the graph, its dims, the
passes that made it, and a line for each weight with path, type, kind and digest.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator

import numpy as np
from rich.console import Console

from fxlite.base.console import write_whole
from fxlite.cli.program_file import trace_program
from fxlite.cli.shared import UsageError, find_passes, number, passes_option, program_options, say
from fxlite.files.serialize import collect_weights, load
from fxlite.graph.graph_module import GraphModule, passes_of
from fxlite.passes import PassManager
from fxlite.show.comparison.graph_diff import GraphDiff, diff
from fxlite.types.tensor_type import type_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite diff``."""
    parser.epilog = "Status, like that of diff(1): 0 the same, 1 different, 2 something is wrong."
    program_options(parser)
    parser.add_argument("other", metavar="OTHER", nargs="?", help="the program to compare with, after the first")
    passes_option(parser, "in place of OTHER: compare before and after these passes; your own: FILE.py:NAME")
    parser.add_argument("--html", metavar="FILE", help="also write a page that needs no other file")
    parser.add_argument("--json", metavar="FILE", help="also write the diff as JSON; - prints it")
    parser.add_argument("--full", action="store_true", help="show each of the layers that change in the same way")
    text = "unchanged lines shown around a change; default 3"
    parser.add_argument("--context", type=number(0, "of lines"), default=3, metavar="N", help=text)


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite diff A B`` and ``fxlite diff A --passes cse,dce``. Returns the exit status; raises
    UsageError, and the errors of loading, tracing and passes."""
    found = diff(*_modules(options), context=options.context, fold=not options.full)
    if options.html:
        found.to_html(options.html)
    if options.json == "-":
        print(json.dumps(found.to_json(), indent=1))
        return int(bool(found))
    if options.json:
        text = json.dumps(found.to_json(), indent=1, ensure_ascii=False)
        write_whole(options.json, f"{text}\n")
    _print(found, console)
    say(console, *(f"{path} written" for path in (options.html, options.json) if path))
    return int(bool(found))


def _modules(options: argparse.Namespace) -> tuple[GraphModule, GraphModule]:
    """The two modules to compare."""
    if bool(options.passes) == (options.other is not None):
        raise UsageError("give two programs, fxlite diff A B, or one and passes, fxlite diff A --passes cse,dce")
    _, before = trace_program(options.program, options.weights, options.input)
    if options.other is not None:
        return before, trace_program(options.other, options.weights, options.input)[1]
    return before, PassManager(find_passes(options.passes))(before)


def _print(found: GraphDiff, console: Console) -> None:
    if console.is_terminal:
        console.print(found)
    else:  # into a file or a pipe, the text as it is, whatever the terminal's width
        sys.stdout.write(f"{found}\n")


# -- textconv --------------------------------------------------------------------------------------
_DIGITS = 16  # of a digest


def textconv_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite textconv``."""
    parser.description = "Print a saved graph as text. Equal files give equal text."
    parser.epilog = (
        'For git: write "*.fxl diff=fxlite" into .gitattributes, and run git config '
        'diff.fxlite.textconv "fxlite textconv"'
    )
    parser.add_argument("file", metavar="FILE.fxl", help="a file from fx.save")


def textconv_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite textconv``. Raises the errors of loading."""
    module = load(options.file)
    sys.stdout.write("".join(f"{line}\n" for line in (*_graph(module, ""), *_weights(module))))
    return 0


def _graph(module: GraphModule, path: str) -> Iterator[str]:
    """The text of a module and of the modules that it calls."""
    yield f"module {path}: {module.name}" if path else f"program {module.name}"
    graph = module.graph
    if passes_of(module):
        yield f"passes: {', '.join(passes_of(module))}"
    for name, symbol in graph.declared_dims.items():
        yield f"dim {name}: {symbol.facts}"
    for name, size in graph.specialized.items():
        yield f"dim {name}: {size}"
    yield from ("", *graph.text(full=True).rstrip("\n").split("\n"), "")
    for target in dict.fromkeys(n.target for n in graph.find_nodes(op="call_module")):
        inner = module.get_submodule(target)
        assert isinstance(inner, GraphModule)  # files hold no others
        yield from _graph(inner, f"{path}.{target}".removeprefix("."))


def _weights(module: GraphModule) -> Iterator[str]:
    arrays, entries = collect_weights(module)
    yield "weights"
    for path, entry in entries.items():
        if path in arrays:
            array = np.ascontiguousarray(arrays[path])
            digest = hashlib.sha256(array.view(np.uint8).data if array.size else b"").hexdigest()
            yield f"{path}  {type_of(array)}  {entry['kind']}  sha256 {digest[:_DIGITS]}"
        else:
            said = f"same as {entry['same_as']}" if "same_as" in entry else "none"
            yield f"{path}  {entry['kind']}  {said}"
