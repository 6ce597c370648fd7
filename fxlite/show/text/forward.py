"""The function that runs a GraphModule: its graph's code, compiled.

In: a graph. Out: ``forward(self, ...)``. Tracebacks and debuggers show the readable text of the
graph, which is written only when somebody looks.
"""

from __future__ import annotations

import itertools
import linecache
import re
import weakref
from collections.abc import Callable
from typing import Any

from fxlite.graph.graph import Graph
from fxlite.show.text.pretty import executable_code, forward_code

_numbers = itertools.count()


def compile_forward(graph: Graph, name: str) -> Callable[..., Any]:
    """The graph's code as a function of the module and the inputs; ``name`` is for tracebacks."""
    from fxlite.show.text import words

    # not "<...>" from end to end: linecache asks nobody for the lines of such files
    filename = f"<fxlite>/{re.sub(r'[^ -~]', '_', name)}_{next(_numbers)}.py"
    namespace: dict[str, Any] = {word: getattr(words, word) for word in words.USUAL._fields}
    exec(compile(executable_code(graph), filename, "exec"), namespace)
    reference = weakref.ref(graph)

    def source() -> str | None:
        found = reference()
        return forward_code(found) if found is not None else None

    linecache.cache[filename] = (source,)
    weakref.finalize(namespace["forward"], linecache.cache.pop, filename, None)
    return namespace["forward"]  # type: ignore[no-any-return]
