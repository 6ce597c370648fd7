"""``fxlite import``: a model of ONNX as a graph: what it holds and what of it is supported, then the
graph, a picture and a report.

In: parsed options and a console. Out: a table, and files.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from fxlite.base.errors import ArgumentError


def import_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite import``."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the model; external data lies beside it")
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of a dim a number or another name (batch=B, seq=128), of an input its type (x=f32[B,3,224,224]); repeat",
    )
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where NAME.fxl, NAME.svg and NAME.html go")
    parser.add_argument(
        "--check", action="store_true", help="only say what the model holds; status 1 if anything is not supported"
    )


def import_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite import``. Raises ModelImportError for what cannot be imported, ArgumentError for
    wrong sizes."""
    from rich.table import Table

    from fxlite.base.console import show
    from fxlite.importing.onnx.model import coverage, from_onnx

    rows = coverage(options.model)
    table = Table("op", "count", "")
    for op, count, verdict in rows:
        table.add_row(op, str(count), verdict)
    show(console, table)
    if options.check:
        return int(any(verdict == "not" for _, _, verdict in rows))
    module = from_onnx(options.model, dict(map(_size, options.size)))
    nodes = sum(node.op == "call_function" for node in module.graph.nodes)
    console.print(
        f"{module.name}: {nodes} calls of ops, {len(module.state_dict())} weights", soft_wrap=True, markup=False
    )
    if options.output is None:
        return 0
    from fxlite.codegen.reporting.report import report
    from fxlite.files.serialize import save

    folder = Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / Path(options.model).stem
    save(module, f"{stem}.fxl")
    module.graph.draw(f"{stem}.svg")
    report(module, profile=False).to_html(f"{stem}.html")
    for suffix in (".fxl", ".svg", ".html"):
        console.print(f"{stem}{suffix} written", soft_wrap=True, markup=False)
    return 0


def _size(text: str) -> tuple[str, Any]:
    name, equal, value = text.partition("=")
    if not equal or not value:
        raise ArgumentError(f"--size {text}: write NAME=VALUE, batch=8 or batch=B")
    return name, int(value) if value.lstrip("-").isdecimal() else value
