"""Models and weights in other formats: ``fxlite import`` and ``fxlite export`` of ONNX models, and
``fxlite weights``, which lists the contents of a file of weights.

In: parsed options and a console. Out: for an import, a table of the model's ops and which of them are
supported, then the graph, a picture and a report; for an export, the file, and a line about its
contents; for a file of weights that ``fx.load_weights`` reads, a table of its arrays, whose numbers
are not read; nothing in the file is run.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fxlite.base.console import borderless, show
from fxlite.base.errors import ArgumentError, number_of
from fxlite.cli.shared import UsageError, after_passes, passes_option, program_options, repeated, say


# -- import ----------------------------------------------------------------------------------------
def import_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite import``."""
    parser.add_argument("model", metavar="MODEL.onnx", help="the model; its external data must be beside it")
    text = "for a dim, a number or another name (batch=B, seq=128); for an input, its type (x=f32[B,3,224,224]); repeat"
    repeated(parser, "--size", metavar="NAME=VALUE", help=text)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where to write NAME.fxl, NAME.svg and NAME.html")
    parser.add_argument(
        "--check", action="store_true", help="only print what the model contains; status 1 if anything is not supported"
    )


def import_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite import``. Raises ModelImportError for a model that cannot be imported, ArgumentError for
    wrong sizes."""
    from fxlite.importing.onnx.model import coverage, from_onnx

    rows = coverage(options.model)
    table = borderless(("op", "support"), ("count",))
    for op, count, verdict in rows:
        table.add_row(Text(op), verdict, str(count))
    show(console, table)
    if options.check:
        return int(any(verdict == "not" for _, _, verdict in rows))
    module = from_onnx(options.model, dict(map(_size, options.size)))
    nodes = sum(node.op == "call_function" for node in module.graph.nodes)
    say(console, f"{module.name}: {number_of(nodes, 'call')} of ops, {number_of(len(module.state_dict()), 'weight')}")
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
    say(console, *(f"{stem}{suffix} written" for suffix in (".fxl", ".svg", ".html")))
    return 0


def _size(text: str) -> tuple[str, Any]:
    name, equal, value = text.partition("=")
    if not equal or not value:
        raise ArgumentError(f"--size {text}: write NAME=VALUE, batch=8 or batch=B")
    return name, int(value) if value.lstrip("-").isdecimal() else value


# -- export ----------------------------------------------------------------------------------------
def export_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite export``."""
    program_options(parser)
    parser.add_argument("output", metavar="MODEL.onnx", help="the file to write; large weights go beside it")
    passes_option(parser)
    parser.add_argument("--opset", type=int, default=21, help="the opset version, 18 or later; default 21")
    parser.add_argument("--external-data", action="store_true", help="put weights into MODEL.onnx.data, however small")


def export_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite export``. Raises ModelExportError for a program that ONNX cannot express."""
    from fxlite.cli.program_file import trace_program
    from fxlite.codegen.onnx.model import to_onnx

    if not options.output.endswith(".onnx"):
        raise UsageError(f"an ONNX model is a file {Path(options.output).stem}.onnx, not {options.output}")
    _, module = trace_program(options.program, options.weights, options.input)
    module = after_passes(module, options.passes)
    model = to_onnx(module, options.output, options.opset, options.external_data or None)
    held = number_of(len(model.graph.node), "node"), number_of(len(model.graph.initializer), "weight")
    say(console, f"{options.output} written", f"{', '.join(held)}, opset {options.opset}")
    return 0


# -- weights ---------------------------------------------------------------------------------------
def weights_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite weights``."""
    parser.add_argument(
        "file", metavar="FILE", help=".safetensors, .pt, .pth, .bin, .gguf, .npz, or the .json index of several"
    )


def weights_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite weights``."""
    from fxlite.files.weights.read import weight_entries

    entries = weight_entries(options.file)
    table = Table("name", "dtype", "shape", "bytes", box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.no_wrap = True
    table.columns[3].justify = "right"
    for entry in entries:
        shape = "×".join(map(str, entry.shape)) or "scalar"
        table.add_row(Text(entry.name), entry.dtype, shape, f"{entry.nbytes:,}")
    numbers, nbytes = sum(math.prod(e.shape) for e in entries), sum(e.nbytes for e in entries)
    show(console, table)
    console.print(f"\n{number_of(len(entries), 'array')}, {number_of(numbers, 'element')}, {number_of(nbytes, 'byte')}")
    return 0
