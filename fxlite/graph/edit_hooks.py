"""Functions that are called at the edits of a module's graph, as torch.fx's hooks are.

In: functions, registered on a GraphModule. Out: calls of them when a node is made or erased, and
when a reader of one node is made to read another. A graph without hooks pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fxlite.base.errors import ArgumentError, expect

if TYPE_CHECKING:
    from fxlite.graph.graph import Graph, Node

NodeHook = Callable[["Node"], object]
#: Called with ``old`` (a node), ``new`` (the name of a node) and ``user`` (a node).
ReplaceHook = Callable[..., object]
#: Hooks by the edit that they are called at.
Hooks = dict[str, list[Any]]


class EditHooks:
    """What a GraphModule has of this. Hooks belong to the module, whatever its graph; copies have
    none. Undoing an edit is an edit."""

    if TYPE_CHECKING:

        @property
        def graph(self) -> Graph: ...

    def register_create_node_hook(self, f: NodeHook) -> None:
        """Call ``f(node)`` for each node that is made from now on."""
        self._change_hooks("create", f, add=True)

    def unregister_create_node_hook(self, f: NodeHook) -> None:
        """Take back :meth:`register_create_node_hook`. Raises ArgumentError for another
        function."""
        self._change_hooks("create", f, add=False)

    def register_erase_node_hook(self, f: NodeHook) -> None:
        """Call ``f(node)`` for each node that is erased from now on."""
        self._change_hooks("erase", f, add=True)

    def unregister_erase_node_hook(self, f: NodeHook) -> None:
        """Take back :meth:`register_erase_node_hook`. Raises ArgumentError for another function."""
        self._change_hooks("erase", f, add=False)

    def register_replace_node_hook(self, f: ReplaceHook) -> None:
        """Call ``f(old=node, new=name, user=node)`` before a reader of ``old`` is made to read the
        node with that name, by ``replace_all_uses_with`` or ``replace_input_with``."""
        self._change_hooks("replace", f, add=True)

    def unregister_replace_node_hook(self, f: ReplaceHook) -> None:
        """Take back :meth:`register_replace_node_hook`. Raises ArgumentError for another
        function."""
        self._change_hooks("replace", f, add=False)

    def _change_hooks(self, kind: str, f: Callable[..., object], add: bool) -> None:
        expect(f, Callable, f"a hook for {kind}")
        hooks: Hooks = self.__dict__.setdefault("_edit_hooks", {})
        if add:
            hooks.setdefault(kind, []).append(f)
        elif f in hooks.get(kind, ()):
            hooks[kind].remove(f)
        else:
            raise ArgumentError(f"{f} is no hook for {kind} of {getattr(self, 'name', self)}")
        self.graph._store.watch(hooks)
