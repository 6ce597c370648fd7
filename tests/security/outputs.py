"""Everything that fxlite prints of a graph, each with what reads it.

In: the graph of :mod:`.specimen` and a folder. Out: texts, with the functions of :mod:`.parses`
that read them.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import passes
from fxlite.codegen.c import templates
from fxlite.codegen.c.bundle import build_files
from fxlite.codegen.c.emit import emit
from fxlite.codegen.c.selftest import selftest_source
from fxlite.codegen.cuda.emit import emit as emit_cuda
from fxlite.codegen.cuda.function import readme as cuda_readme
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.program.program import optimize
from fxlite.codegen.python.source import python_source
from fxlite.codegen.runtime.build import entry_source
from fxlite.passes.checking.minimize import write_repro
from fxlite.passes.quantize import Plan, PlannedLayer
from fxlite.passes.quantize.planning.mixed_plan import plan_text
from fxlite.show.text.pretty import executable_code
from tests.roofs import ROOFS
from tests.security import parses

SIZES = {"N": 3, "M": 4}


def outputs(gm: fx.GraphModule, folder: Path) -> Iterator[tuple[str, Callable[[str], Any], str]]:
    """(name, what reads it, text) of each output."""
    values = {
        n.target: np.ones([SIZES.get(str(d), d) for d in n.type.shape], np.float32) for n in gm.graph.placeholders
    }
    compiled, _ = optimize(gm, keep=templates.claims)
    program = emit(compiled)
    for file in (f"{program.name}.c", f"{program.name}.h"):
        yield f"C: {Path(file).suffix}", parses.c_tokens, program.sources[file]
    yield "C: entry", parses.c_tokens, entry_source(program.entry)
    cases = make_cases(gm)[-1:]
    yield "C: self-test", parses.c_tokens, selftest_source(program, cases)
    for file, text in build_files(program.name, program.sources[f"{program.name}.h"], "", "").items():
        parser = parses.c_tokens if file.endswith(".c") else parses.make_words
        yield f"C: {file.replace(program.name, 'NAME')}", parser, text
    cuda = emit_cuda(optimize(gm)[0])
    for file, text in cuda.sources.items():
        yield f"CUDA: {Path(file).suffix}", parses.c_tokens, text
    yield "CUDA: README", parses.plain_lines, cuda_readme(cuda)
    programs = {
        "regenerated": python_source(gm),
        "executable": executable_code(gm.graph),
        "code": gm.code,
        "printed": gm.graph.text(full=True),
        "fitted": gm.graph.text(weights=True),
        "class": gm.print_readable(False),
    }
    for name, text in programs.items():
        yield f"Python: {name}", parses.python_syntax, text
    yield (
        "Python: repro",
        parses.python_syntax,
        write_repro(folder / "repro.py", gm, None, _nested(gm, values)).read_text(),
    )
    yield "printed graph", lambda text: len(fx.parse(text)), gm.graph.text(full=True)
    yield "SVG", parses.xml_elements, _drawn(gm, folder, "svg")
    yield "DOT", parses.dot_tokens, gm.graph.to_dot()
    yield "HTML: picture", parses.html_elements, _drawn(gm, folder, "html")
    found = fx.report(gm, sizes=SIZES, profile=False, roofs=ROOFS, inputs=None)
    yield "HTML: report", parses.html_elements, found.to_html()
    yield "report", parses.plain_lines, str(found)
    diff = fx.diff(gm, optimize(gm)[0])
    yield "HTML: diff", parses.html_elements, diff.to_html()
    yield "diff", parses.plain_lines, str(diff)
    yield "JSON: diff", parses.json_structure, json.dumps(diff.to_json())
    layers = [
        PlannedLayer(n.scope.path if n.scope else "", "float")
        for n in gm.graph.find_nodes(op="call_function", target="linear")
    ]
    paths = {layer.path: layer for layer in layers if layer.path}
    plan = Plan(gm.name, {}, tuple(paths.values()), PlannedLayer("", "float"))
    yield "TOML: plan", parses.toml_structure, plan_text(plan)
    table = io.StringIO()
    with contextlib.redirect_stdout(table):
        gm.graph.print_tabular()
    yield "table", parses.plain_lines, table.getvalue()
    yield "summary", parses.plain_lines, str(gm.summary())
    yield "ledger", parses.plain_lines, str(passes.ledger(compiled))
    yield "interface", parses.plain_lines, repr(gm.graph.interface)


def _nested(gm: fx.GraphModule, values: dict[str, Any]) -> list[Any]:
    first, second = values.values()
    (key,) = gm.graph.interface.parameters[0][2].keys
    return [{key: first}, second]


def _drawn(gm: fx.GraphModule, folder: Path, ending: str) -> str:
    path = folder / f"graph.{ending}"
    gm.graph.draw(path)
    return path.read_text()
