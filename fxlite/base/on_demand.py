"""Modules that are imported when one of their names is first read.

In: the name of a module. Out: :class:`OnDemand`, which stands for it. sympy takes longer to import
than everything else that ``import fxlite`` needs, and a program whose sizes are all numbers never
uses it; so files that are always imported use ``from fxlite.base.on_demand import sympy``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


class OnDemand:
    """A module that is imported when one of its names is first read. Names that were read before are
    attributes, as fast as those of the module itself."""

    def __init__(self, module: str) -> None:
        self.__dict__["_module"] = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._module), name)
        self.__dict__[name] = value
        return value

    def __repr__(self) -> str:
        return f"<{self._module}, imported on demand>"


sympy: Any = OnDemand("sympy")


def is_expression(value: Any) -> bool:
    """Whether a value is a sympy expression; False for any value if sympy is not imported yet."""
    return "sympy" in sys.modules and isinstance(value, sympy.Expr)
