"""What a graph knows and requires of its named dims: declared facts, guards, and which dims were
replaced by numbers.

In: the types of its inputs, guards. Out: :class:`DimConditions`, the part of a graph that holds
them and lets the graph have one symbol for each name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fxlite.base.errors import ArgumentError
from fxlite.graph.node import Node, immutable_dict, stored_kwargs
from fxlite.types import shapes
from fxlite.types.guards import Guard, of_facts
from fxlite.types.symbols import FactSymbol, ordered_facts
from fxlite.types.tensor_type import TensorType


class DimConditions:
    """The conditions on the named dims of a graph. ``record`` takes what undoes an edit of them."""

    def __init__(self, record: Callable[[Any], None]) -> None:
        #: Named dims with facts, by name: the graph has one symbol for each name.
        self.declared: dict[str, FactSymbol] = {}
        #: Named dims that :meth:`GraphModule.specialize` replaced, for messages.
        self.specialized: Mapping[str, Any] = {}
        self._guards: tuple[Guard, ...] = ()
        self._record = record

    def become(self, other: DimConditions) -> None:
        """Take the place of another graph's, unrecorded."""
        self.declared, self.specialized = dict(other.declared), other.specialized
        self._guards = other._guards

    @property
    def guards(self) -> tuple[Guard, ...]:
        """What a call must fulfil besides the facts of ``declared``."""
        return self._guards

    @guards.setter
    def guards(self, guards: Iterable[Guard]) -> None:
        own = [g.substitute(self.declared) if self.declared else g for g in guards]
        self._record((DimConditions._restore_guards, self, self._guards))
        self._guards = tuple(dict.fromkeys(own))

    def _restore_guards(self, guards: tuple[Guard, ...]) -> None:
        self.guards = guards

    def all(self) -> list[Guard]:
        """All that the named dims must fulfil: declared facts and guards."""
        facts = [g for dim in self.declared.values() for g in of_facts(dim)]
        return [*facts, *self._guards]

    def take(self, other: DimConditions, names: frozenset[str] | None) -> None:
        """Add those of another graph (``names``: on these dims)."""
        chosen = {n: d for n, d in other.declared.items() if names is None or n in names}
        self.declared |= chosen
        self.specialized = other.specialized
        if other._guards:
            kept = (g for g in other._guards if names is None or g.names <= names)
            self.guards = (*self._guards, *kept)

    def with_own_dims(self, kwargs: Mapping[str, Any]) -> immutable_dict:
        """Attributes with the graph's symbols for its named dims."""
        own = self.declared
        if shapes.names(list(kwargs.values())).isdisjoint(own):
            return stored_kwargs(kwargs)
        return stored_kwargs({k: shapes.substitute(v, own) for k, v in kwargs.items()})

    def declare(self, target: str, type: TensorType, inputs: Iterable[Node]) -> TensorType:
        """Enter the named dims of a new input beside ``inputs``; its type with the graph's symbols.
        Raises ArgumentError for a name that was declared with other facts."""
        for dim in ordered_facts(type.shape):
            name = dim.name
            known = self.declared.get(name)
            if known == dim:
                continue
            for other in inputs:
                shape = other.type.shape if isinstance(other.type, TensorType) else ()
                if name in shapes.names(shape):
                    said = f"it is {known.facts}" if known is not None else "nothing is known of it"
                    raise ArgumentError(
                        f"the named dim {name} is declared twice: in the input {other.target} "
                        f"{said}, in {target} it is {dim.facts}; use one fx.dims for both"
                    )
            self.declared[name] = dim
        if self.declared and not shapes.names(type.shape).isdisjoint(self.declared):
            return type.substitute(self.declared)
        return type
