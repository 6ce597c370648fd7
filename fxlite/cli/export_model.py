"""``fxlite export``: a program as a model of ONNX.

In: parsed options and a console. Out: the model, and a line that says what it holds.
"""

from __future__ import annotations

import argparse

from rich.console import Console

from fxlite.cli.shared import after_passes, passes_option, program_options


def export_add_arguments(parser: argparse.ArgumentParser) -> None:
    """The parser of ``fxlite export``."""
    program_options(parser)
    parser.add_argument("output", metavar="MODEL.onnx", help="the file to write; large weights go beside it")
    passes_option(parser)
    parser.add_argument("--opset", type=int, default=21, help="the version of ONNX's ops, 18 or later; default 21")
    parser.add_argument("--external-data", action="store_true", help="put weights into MODEL.onnx.data in any case")


def export_run(options: argparse.Namespace, console: Console) -> int:
    """``fxlite export``. Raises ModelExportError for what ONNX cannot compute."""
    from fxlite.cli.program_file import trace_program
    from fxlite.codegen.onnx.model import to_onnx

    _, module = trace_program(options.program, options.weights, options.input)
    module = after_passes(module, options.passes)
    model = to_onnx(module, options.output, options.opset, options.external_data or None)
    held = f"{len(model.graph.node)} nodes, {len(model.graph.initializer)} weights, opset {options.opset}"
    console.print(f"{options.output} written: {held}", soft_wrap=True, markup=False)
    return 0
