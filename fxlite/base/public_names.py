"""What ``dir()`` and tab completion show of a module: what it defines for its users, and not what
it imports to do so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any


def public_names(space: Mapping[str, Any]) -> list[str]:
    """The names of ``__all__``, else those that the module with these globals defines: functions,
    classes, and what is written in capitals."""
    if "__all__" in space:
        return sorted(space["__all__"])
    return sorted(name for name, value in space.items() if _is_public(name, value, space))


def _is_public(name: str, value: Any, space: Mapping[str, Any]) -> bool:
    if name.startswith("_") or isinstance(value, ModuleType):
        return False
    if callable(value):
        return bool(getattr(value, "__module__", None) == space["__name__"])
    return name.isupper() and name != "TYPE_CHECKING"
