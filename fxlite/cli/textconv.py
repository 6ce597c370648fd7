"""``fxlite textconv``: a saved graph as text, for ``git diff`` and people.

In: parsed options. Out: on standard output the graph, its dims, the passes that made it, and a line
for each weight: path, type, kind, digest.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator

import numpy as np
from rich.console import Console

from fxlite.files.serialize import collect_weights, load
from fxlite.graph.graph_module import GraphModule, passes_of
from fxlite.types.tensor_type import type_of

_DIGITS = 16  # of a digest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite textconv``."""
    parser.description = "Print a saved graph as text. Equal files give equal text."
    parser.epilog = (
        'For git: write "*.fxl diff=fxlite" into .gitattributes, and run git config '
        'diff.fxlite.textconv "fxlite textconv"'
    )
    parser.add_argument("file", metavar="FILE.fxl", help="a file from fx.save")


def run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite textconv``. Raises what loading raises."""
    module = load(options.file)
    sys.stdout.write("".join(f"{line}\n" for line in (*_graph(module, ""), *_weights(module))))
    return 0


def _graph(module: GraphModule, path: str) -> Iterator[str]:
    """The text of a module, and of those that it calls."""
    yield f"module {path}: {module.name}" if path else f"program {module.name}"
    graph = module.graph
    if passes_of(module):
        yield f"passes: {', '.join(passes_of(module))}"
    for name, symbol in graph.declared_dims.items():
        yield f"dim {name}: {symbol.facts}"
    for name, size in graph.specialized.items():
        yield f"dim {name}: {size}"
    yield from ("", *str(graph).rstrip("\n").split("\n"), "")
    for target in dict.fromkeys(n.target for n in graph.find_nodes(op="call_module")):
        inner = module.get_submodule(target)
        assert isinstance(inner, GraphModule)  # as files hold no others
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
