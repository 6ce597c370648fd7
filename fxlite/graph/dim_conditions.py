"""What a graph knows and requires of its named dims: declared facts, guards, and which dims were
replaced by numbers.

In: the types of its inputs, guards. Out: :class:`DimConditions`, the part of a graph that holds
them and lets the graph have one symbol for each name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fxlite.base.checked import checked_methods
from fxlite.base.errors import ArgumentError
from fxlite.base.immutable_collections import immutable_dict
from fxlite.graph.node import stored_kwargs
from fxlite.graph.node_store import NodeStore
from fxlite.types import shapes
from fxlite.types.guards import Guard, of_facts
from fxlite.types.symbols import FactSymbol, ordered_facts
from fxlite.types.tensor_type import TensorType


@checked_methods
class DimConditions(NodeStore):
    """The nodes of a graph, and the conditions on its named dims."""

    def __init__(self) -> None:
        super().__init__()
        #: Named dims with facts, by name: the graph has one symbol for each name.
        self.declared_dims: dict[str, FactSymbol] = {}
        #: Named dims that :meth:`GraphModule.specialize` replaced, for messages.
        self.specialized: Mapping[str, Any] = {}
        self._guards: tuple[Guard, ...] = ()

    @property
    def guards(self) -> tuple[Guard, ...]:
        """Conditions on named dims that a call must fulfil, besides the facts of
        ``declared_dims``."""
        return self._guards

    @guards.setter
    def guards(self, guards: Iterable[Guard]) -> None:
        own = [g.substitute(self.declared_dims) if self.declared_dims else g for g in guards]
        self._record((DimConditions._restore_guards, self, self._guards))
        self._guards = tuple(dict.fromkeys(own))

    def _restore_guards(self, guards: tuple[Guard, ...]) -> None:
        self.guards = guards

    def declare_dims(self, dims: Mapping[str, FactSymbol]) -> None:
        """Let the named dims of the inputs that are made from now on have these facts."""
        self.declared_dims |= dims

    def conditions(self) -> list[Guard]:
        """All that the named dims must fulfil: declared facts and guards."""
        facts = [g for dim in self.declared_dims.values() for g in of_facts(dim)]
        return [*facts, *self._guards]

    def take_conditions(self, graph: DimConditions, names: frozenset[str] | None = None) -> None:
        """Take over what ``graph`` knows and requires of its named dims (``names``: of these)."""
        chosen = {n: d for n, d in graph.declared_dims.items() if names is None or n in names}
        self.declare_dims(chosen)
        self.specialized = graph.specialized
        if graph._guards:
            kept = (g for g in graph._guards if names is None or g.names <= names)
            self.guards = (*self._guards, *kept)

    def _with_own_dims(self, kwargs: Mapping[str, Any]) -> immutable_dict:
        """Attributes with the graph's symbols for its named dims."""
        own = self.declared_dims
        if shapes.names(list(kwargs.values())).isdisjoint(own):
            return stored_kwargs(kwargs)
        return stored_kwargs({k: shapes.substitute(v, own) for k, v in kwargs.items()})

    def _declare_dims_of(self, target: str, type: TensorType) -> TensorType:
        """Enter the named dims of a new input; its type with the graph's symbols. Raises
        ArgumentError for a name that was declared with other facts."""
        for dim in ordered_facts(type.shape):
            name = dim.name
            known = self.declared_dims.get(name)
            if known == dim:
                continue
            for other in (n for n in self.nodes if n.op == "placeholder"):
                shape = other.type.shape if isinstance(other.type, TensorType) else ()
                if name in shapes.names(shape):
                    said = f"it is {known.facts}" if known is not None else "nothing is known of it"
                    raise ArgumentError(
                        f"the named dim {name} is declared twice: in the input {other.target} "
                        f"{said}, in {target} it is {dim.facts}; use one fx.dims for both"
                    )
            self.declared_dims[name] = dim
        if self.declared_dims and not shapes.names(type.shape).isdisjoint(self.declared_dims):
            return type.substitute(self.declared_dims)
        return type
