"""Lists and dicts that cannot be edited in place: the containers inside a node's arguments.

In: a list or dict of arguments. Out: the same as a list or dict whose editing methods raise a
TypeError that says what to write instead. (The graph keeps use-lists, types and a journal of edits;
an edit behind its back would make all three wrong.)
"""

from __future__ import annotations

from typing import Any, NoReturn


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    kind = "list" if isinstance(self, list) else "dict"
    raise TypeError(
        f"this {kind} belongs to a node's arguments and cannot be edited in place; assign a new "
        f"one: node.args = (...), node.kwargs = {{...}}, node.update_arg(index, value) or "
        f"node.update_kwarg(name, value)"
    )


class immutable_list(list[Any]):  # torch.fx's name
    """A list that refuses every edit; copies and slices are plain lists."""

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_list, (list(self),))


class immutable_dict(dict[str, Any]):  # torch.fx's name
    """A dict that refuses every edit; copies are plain dicts."""

    update = setdefault = pop = popitem = clear = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (immutable_dict, (dict(self),))


#: The keyword arguments of every node that has none.
NO_KWARGS = immutable_dict()


def immutable(value: Any) -> Any:
    """``value`` with the lists and dicts in it made immutable."""
    if isinstance(value, tuple):
        items = tuple(map(immutable, value))
        return type(value)(*items) if hasattr(value, "_fields") else items
    if isinstance(value, list):
        return immutable_list(map(immutable, value))
    if isinstance(value, dict):
        return immutable_dict({k: immutable(v) for k, v in value.items()})
    return value
