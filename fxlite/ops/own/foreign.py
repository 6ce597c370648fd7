"""Ops that call a function of a program: the facts about its origin that files and generated source need."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fxlite.ops.op import Op


class ForeignOp(Op):
    """An op that calls :attr:`function`, which belongs to a program."""

    function: Callable[..., Any]
    #: True if the function takes its arguments in the order in which nodes store them.
    takes_in_order = True
    #: Advice for compiled code, which would have to call the function.
    way_out = "write it with NumPy"
    #: Advice if the op has to be expressed by other ops.
    said_by = "write it with NumPy"

    @property
    def module(self) -> str:
        """The module whose import creates the op."""
        return getattr(self.function, "__module__", None) or "__main__"

    @property
    def is_importable(self) -> bool:
        """True if other files can import the function, or the op, from its module by name."""
        found = getattr(sys.modules.get(self.module), self.function.__name__, None)
        is_it = found is self.function or found is self
        is_it = is_it or getattr(found, "wrapped_op", None) is self
        return is_it and self.module != "__main__"

    @property
    def title(self) -> str:
        """The name in messages: ``helpers.scale``."""
        return f"{self.module}.{self.function.__qualname__}"
