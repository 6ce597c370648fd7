"""The functions of higher folders that lower ones call: the only place where such names are listed.

A folder imports only those below it. But users look for ``graph.draw`` in the graph, which knows nothing
about pictures. In: the name of a function in this table. Out: the function, from its module, which is
imported on demand.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

#: Function -> the module that has it. ``tests/test_repo_shape.py`` allows no other names of higher layers.
ABOVE = {
    # float32[B, T] is a type
    "array_type": "fxlite.types.tensor_type",
    # methods of graphs and nodes
    "find": "fxlite.show.query.search",
    "first_difference": "fxlite.show.comparison.compare",
    "text_of": "fxlite.show.text.reading",
    "print_graph": "fxlite.show.text.reading",
    "node_line": "fxlite.show.text.pretty",
    "print_table": "fxlite.show.text.reading",
    "draw": "fxlite.show.drawing.draw",
    "to_dot": "fxlite.show.drawing.draw",
    "in_notebook": "fxlite.show.drawing.draw",
    # methods of modules
    "code_text": "fxlite.show.text.reading",
    "words_in_code": "fxlite.show.text.pretty",
    "compile_forward": "fxlite.show.text.pretty",
    "readable": "fxlite.show.text.reading",
    "print_readable": "fxlite.show.text.reading",
    "summarize": "fxlite.show.summary",
    "specialize": "fxlite.tracing.symbolic_trace",
    "to_bytes": "fxlite.files.serialize",
    "from_bytes": "fxlite.files.serialize",
    "python_source": "fxlite.codegen.python.source",
    "save_python": "fxlite.codegen.python.source",
    "program_in": "fxlite.codegen.python.source",
    # proxies of the nodes of a graph
    "appending_tracer": "fxlite.tracing.tracer",
    "call_method": "fxlite.tracing.tracer",
    # the type of a node that calls a leaf module, which has to be traced
    "leaf_result_type": "fxlite.tracing.tracer",
    # the types of an op of a program, which has to be traced
    "traced_type": "fxlite.tracing.symbolic_trace",
    # the ops that an op consists of, for operands with selected positions
    "traced_call": "fxlite.tracing.symbolic_trace",
    # str(kernel)
    "kernel_text": "fxlite.codegen.kernel.printer",
    # the built-in back ends, and functions of code generation for profiles and plans
    "built_in_backends": "fxlite.codegen.backends",
    "compile": "fxlite.compiler",
    "standard_passes": "fxlite.compiler",
    "random_inputs": "fxlite.compiler",
    "machine_roofs": "fxlite.compiler",
    # weights by the names of a module, from a file
    "state_of": "fxlite.files.weights.read",
    # the program in a file, which may be given wherever a program may
    "load_if_saved": "fxlite.files.serialize",
}


def above(name: str) -> Callable[..., Any]:
    """The function with that name in :data:`ABOVE`."""
    return getattr(importlib.import_module(ABOVE[name]), name)  # type: ignore[no-any-return]
