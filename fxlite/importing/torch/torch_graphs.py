"""torch.fx's graphs of modules that :func:`fxlite.to_torch` wrote.

What torch.fx cannot follow becomes a node: a function of the module's file that looks at values or types, and a check
of sizes (``if H < 2: raise ValueError(...)``) at the beginning of ``forward``.
"""

from __future__ import annotations

import inspect
import linecache
import re
from typing import Any

import torch.fx
from torch.fx.node import has_side_effect


@has_side_effect
def refuse(fails: bool, message: str) -> None:
    """A check of sizes. Raises ValueError if it fails."""
    if fails:
        raise ValueError(message)


class _Tracer(torch.fx.Tracer):
    """Follows a module; ``own`` are functions that are nodes."""

    def __init__(self, module: Any, own: tuple[Any, ...]) -> None:
        super().__init__(autowrap_functions=own)
        self._file = module.forward.__code__.co_filename

    def to_bool(self, obj: Any) -> bool:
        """Called where the module asks whether a traced value is true. A check passes, and is a node."""
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        after = "" if frame is None else "".join(linecache.getline(self._file, frame.f_lineno + i) for i in (1, 2))
        said = re.match(r'\s*raise ValueError\(\s*f"(.*); got', after)
        if not said:
            return super().to_bool(obj)
        self.create_node("call_function", refuse, (obj.node, said[1]), {})
        return False


def torch_graph(module: Any) -> Any:
    """A ``torch.fx.GraphModule`` of a module that :func:`fxlite.to_torch` made. Raises what torch.fx raises."""
    functions = tuple(v for v in type(module).forward.__globals__.values() if inspect.isfunction(v))
    for own in ((), functions):
        try:
            graph = _Tracer(module, own).trace(module)
            break
        except Exception:
            if own is functions:
                raise
    return torch.fx.GraphModule(module, graph, type(module).__name__)
