"""The functions of higher folders that lower ones call: the only place where such names are listed.

A folder imports only those below it. But users look for ``graph.draw`` in the graph, which knows nothing
about pictures. In: the name of a function in this table. Out: the function, from its module, which is
imported on demand.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

#: Module -> its functions. ``tests/test_repo_shape.py`` allows no other names of higher layers.
_FUNCTIONS = {
    # float32[B, T] is a type
    "fxlite.types.tensor_type": "array_type",
    # methods of graphs, nodes and modules
    "fxlite.show.query.search": "find",
    "fxlite.show.comparison.compare": "first_difference",
    "fxlite.show.text.reading": "text_of print_graph print_table code_text readable print_readable",
    "fxlite.show.text.pretty": "node_line words_in_code compile_forward",
    "fxlite.show.drawing.draw": "draw to_dot in_notebook",
    "fxlite.show.summary": "summarize",
    "fxlite.files.serialize": "to_bytes from_bytes load_if_saved",
    "fxlite.codegen.python.source": "python_source save_python program_in",
    # proxies of the nodes of a graph, and the type of a node that calls a leaf module
    "fxlite.tracing.tracer": "appending_tracer call_method leaf_result_type",
    # programs and ops of programs that have to be traced
    "fxlite.tracing.symbolic_trace": "specialize traced_type traced_call",
    # str(kernel)
    "fxlite.codegen.kernel.printer": "kernel_text",
    # the built-in back ends, and functions of code generation for profiles and plans
    "fxlite.codegen.backends": "built_in_backends",
    "fxlite.compiler": "compile standard_passes random_inputs machine_roofs",
    # weights by the names of a module, from a file
    "fxlite.files.weights.read": "state_of",
}
#: Function -> the module that has it.
ABOVE = {name: module for module, names in _FUNCTIONS.items() for name in names.split()}


def above(name: str) -> Callable[..., Any]:
    """The function with that name in :data:`ABOVE`."""
    return getattr(importlib.import_module(ABOVE[name]), name)  # type: ignore[no-any-return]
