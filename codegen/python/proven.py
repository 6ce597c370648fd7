"""NumPy's spellings in the dialect "fxlite", where tracing the text has to give the graph again.

In: a node, and what prints its operands. Out: text, as people write it, or None. That a spelling of
:class:`NumpyText` means the op is proven by tracing it on values of the operands' types: it has to
give the same node. So nothing here needs conditions, and what is not proven is not written.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy

from fxlite import ops
from fxlite.base.errors import FxliteError
from fxlite.codegen.python.numpy_text import NumpyText
from fxlite.codegen.python.text import CALL, Text, with_numbers
from fxlite.graph.graph import Node, map_nodes, nodes_in
from fxlite.ops.own.foreign import ForeignOp
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

_proven: dict[Any, bool] = {}
_MOST_PROVEN = 100_000
_MODULES = {"np": np, "ops": ops, "shapes": shapes}


class FxliteText(NumpyText):
    """Writes ops as NumPy spells them where that is proven, else as ``nn.functional`` or
    ``ops`` do."""

    extremum_text, dtype = Text.extremum_text, Text.dtype

    def spelled(self, node: Node) -> tuple[str, int]:
        return Text.call(self, node), Text.level(self, node)

    def in_numpy(self, node: Node) -> str | None:
        """See :meth:`Text.in_numpy`; None also where types are unknown."""
        if isinstance(node.target, ForeignOp):
            return None
        operand = node.args[0] if node.args else None
        is_typed = isinstance(operand, Node) and isinstance(operand.type, TensorType)
        chain = self.subscripts(node) if is_typed else [node]
        while chain:
            if self._is_proven(chain):
                return self._in_table(chain)
            chain = chain[1:]
        return None

    def _in_table(self, chain: Sequence[Node]) -> str | None:
        """The text for nodes of which each reads the one before."""
        target = chain[0].target
        if self.is_subscript(chain[0]):
            return self.subscript(chain)
        if target.symbol and target.ufunc is not None:  # where an operator cannot stand
            return self.by_spelling(chain[0], self.default_spelling(target))
        text, level = self.plain(chain[0])
        return text if level == CALL else None

    def cast(self, text: str, dtype: DType) -> str:
        return f"{text}.astype({NumpyText.dtype(self, dtype)})"

    def op_full(self, node: Node, shape: Any, value: Any, dtype: Any) -> str:
        given = [] if dtype is None else [f"dtype={self.value(dtype)}"]
        return self.filled("ops", shape, value, *given)

    # -- the proof -------------------------------------------------------------------------------
    def _is_proven(self, chain: Sequence[Node]) -> bool:
        """Whether the text gives the nodes of a chain, and NumPy rounds as they do."""
        operands = _operands(chain)
        types = [n.type for n in operands]
        if not all(isinstance(type, TensorType) for type in types):
            return False
        key = (repr(_calls(chain, operands)), *types)
        if key not in _proven:
            if len(_proven) >= _MOST_PROVEN:
                _proven.clear()
            is_rounded = any(self.cast_operands(node)[0] for node in chain)
            _proven[key] = not is_rounded and self._gives(chain, operands)
        return _proven[key]

    def _gives(self, chain: Sequence[Node], operands: Sequence[Node]) -> bool:
        """Trace a spelling, and compare."""
        proof = copy.copy(self)
        proof.listed = {}
        types = {f"_{i}": node.type for i, node in enumerate(operands)}
        proof.inlined = {node: (name, 99) for node, name in zip(operands, types)}
        own: dict[str, Any] = {alias: _MODULES.get(n) for n, alias in self.file.imports.items()}
        for value in (v for node in chain for v in node.kwargs.values()):
            own |= {s.name: shapes.for_user(s) for s in _symbols(value)}
        try:
            code = proof._in_table(chain)
            if code is None:
                return False
            program = eval(f"lambda {', '.join(types)}: {with_numbers(code)}", own)
            graph = Tracer().trace(program, inputs=types)
        except (FxliteError, AttributeError, LookupError, SyntaxError, TypeError, ValueError):
            return False
        made = [n for n in graph.nodes if n.op == "call_function"]
        parts = made[len(chain) :]
        if len(made) < len(chain) or any(n.target.name != "getitem" for n in parts):
            return False
        made = made[: len(chain)]
        return repr(_calls(made, graph.placeholders)) == repr(_calls(chain, operands))


def _symbols(value: Any) -> Iterator[Any]:
    """The named dims in an attribute."""
    if isinstance(value, tuple):
        for part in value:
            yield from _symbols(part)
    elif isinstance(value, sympy.Expr):
        yield from value.free_symbols


def _operands(chain: Sequence[Node]) -> list[Node]:
    """What a chain reads from outside, each once."""
    read = (n for node in chain for n in nodes_in((node.args, node.kwargs)))
    return [n for n in dict.fromkeys(read) if n not in chain]


def _calls(chain: Sequence[Node], operands: Sequence[Node]) -> list[Any]:
    """What calls do, whatever their operands and results are called."""
    names = {node: f"\2{i}" for i, node in enumerate((*operands, *chain))}
    return [(n.target.name, map_nodes((n.args, n.kwargs), names.__getitem__)) for n in chain]
