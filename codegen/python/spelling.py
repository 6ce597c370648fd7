"""NumPy's spellings of ops in regenerated Python: ``x[:, 0]`` for ``ops.select(x, axis=1,
index=0)``, ``np.concatenate``, ``x.mean(axis=1)``.

In: a node, and what prints its operands. Out: text, as people write it, or None. The record of an
op, or a function here, says what it may be called; that this means the op is proven by tracing it
on values of the operands' types: it has to give the same node. So nothing here needs conditions,
and what is not proven is not written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import sympy

from fxlite import ops
from fxlite.base.errors import FxliteError
from fxlite.codegen.python.text import Text, slice_text, with_numbers
from fxlite.graph.graph import Node, map_nodes, nodes_in
from fxlite.ops.wrapping import WrappedOp
from fxlite.tracing.tracer import Tracer
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

Spelling = Callable[..., str | None]


class NumpyText(Text):
    """Writes ops as NumPy spells them."""

    def in_numpy(self, node: Node) -> str | None:
        """See :meth:`Text.in_numpy`; None also where types are unknown."""
        if isinstance(node.target, WrappedOp):
            return None
        chain = _subscripts(self, node)
        while len(chain) > 1:  # x[:, None, 0] in place of x[:, None][:, :, 0]
            if _is_proven(self, _subscript, chain):
                return _subscript(self, *chain)
            chain = chain[1:]
        for spelling in (_OWN.get(node.target.name, _call), _call):
            if _is_proven(self, spelling, [node]):
                return spelling(self, node)
        return None


# -- the table -------------------------------------------------------------------------------------
_OWN: dict[str, Spelling] = {}


def _spells(*names: str) -> Callable[[Spelling], Spelling]:
    """What is more than a call with the op's own operands and attributes."""

    def enter(spelling: Spelling) -> Spelling:
        _OWN.update(dict.fromkeys(names, spelling))
        return spelling

    return enter


def _call(text: Text, node: Node) -> str | None:
    """``np.where(c, x, y)``, ``x.mean(axis=1)``: as the record of the op says. Attributes but for
    axes stand by position."""
    own = node.target.ufunc
    called = node.target.numpy or ("" if own is None else f"np.{own.__name__}")
    owner, _, name = called.partition(".")
    if not name or (node.target.kind in ("reduction", "scan") and _is_half(node)):
        return None  # sums of half types are rounded once here, and in NumPy at each step
    parts = [text.value(a) for a in node.args[owner == "x" :]]
    for key, value in node.kwargs.items():
        parts.append(f"{key}={text.value(value)}" if key in _NAMED else text.value(value))
    first = text.file.imports["np"] if owner == "np" else text.owner(node.args[0])
    return f"{first}.{'abs' if name == 'absolute' else name}({', '.join(parts)})"


_NAMED = frozenset(("axis", "keepdims"))


def _is_half(node: Node) -> bool:
    types = [n.type for n in node.all_input_nodes if isinstance(n.type, TensorType)]
    return any(type.dtype.compute is not type.dtype for type in types)


@_spells("einsum")
def _einsum(text: Text, node: Node) -> str:
    bound = node.bound
    operands = ", ".join(map(text.value, bound["operands"]))
    return f"{text.file.imports['np']}.einsum({text.value(bound['equation'])}, {operands})"


@_spells("split")
def _split(text: Text, node: Node) -> str:
    """``np.split(x, 3, axis=-1)``, or the places where it is cut."""
    sizes, axis = node.bound["sizes"], node.bound["axis"]
    cuts: Any = len(sizes)
    if len({*sizes}) > 1:
        cuts = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    place = f", axis={text.value(axis)}" if axis else ""
    shown = str(cuts) if isinstance(cuts, int) else text.value(cuts)
    return f"{text.file.imports['np']}.split({text.value(node.args[0])}, {shown}{place})"


@_spells("cast")
def _cast(text: Text, node: Node) -> str:
    """``x.astype(np.float32)``"""
    target: DType = node.bound["dtype"]
    name = "bool" if target.is_bool else f"{text.file.imports['np']}.{target.long_name}"
    return f"{text.owner(node.args[0])}.astype({name})"


@_spells("take")
def _indexed(text: Text, node: Node) -> str | None:
    """``table[tokens]``"""
    operand, index = node.args
    return None if node.bound["axis"] else f"{text.owner(operand)}[{text.value(index)}]"


@_spells("full")
def _full(text: Text, node: Node) -> str:
    """``ops.zeros((B, 4), dtype="f32")``"""
    bound, ops = node.bound, text.file.imports["ops"]
    value = bound["value"]
    name = {"0": "zeros", "1": "ones"}.get(str(value * 1.0).removesuffix(".0"), "full")
    given = [text.value(bound["shape"]), *([text.value(value)] if name == "full" else [])]
    given += [] if bound["dtype"] is None else [f"dtype={text.value(bound['dtype'])}"]
    return f"{ops}.{name}({', '.join(given)})"


@_spells("clip")
def _clip(text: Text, node: Node) -> str:
    low, high = node.bound["min"], node.bound["max"]
    given = [text.value(low)] if low is not None else []
    if high is not None:
        given.append(text.value(high) if given else f"max={text.value(high)}")
    return f"{text.owner(node.args[0])}.clip({', '.join(given)})"


@_spells("slice", "select", "unsqueeze")
def _subscript(text: Text, *chain: Node) -> str:
    """``x[:, 0]``: slices, ints and new axes, of which each applies to the result of the one
    before."""
    operand = chain[0].args[0]
    items = [":"] * operand.type.rank
    for node in chain:
        bound, rank = node.bound, sum(not _is_int(i) for i in items)
        axis = bound["axis"] + (rank + (node.target.name == "unsqueeze")) * (bound["axis"] < 0)
        places = [i for i, item in enumerate(items) if not _is_int(item)]
        if node.target.name == "unsqueeze":
            items.insert(places[axis] if axis < rank else len(items), "None")
        elif node.target.name == "select":
            items[places[axis]] = f"\2{text.value(bound['index'])}"
        else:
            items[places[axis]] = _slice_text(text, **{k: bound[k] for k in _BOUNDS})
    whole = next(i for i, item in enumerate(items) if item != ":")
    if items[-1] == ":":
        while items[-1] == ":":
            items.pop()
    elif whole > 1:
        items = ["...", *items[whole:]]
    return f"{text.owner(operand)}[{', '.join(items).replace(_INT, '')}]"


_INT = "\2"
_BOUNDS = ("start", "stop", "step")


def _is_int(item: str) -> bool:
    return item.startswith(_INT)


def _slice_text(text: Text, start: Any, stop: Any, step: Any) -> str:
    """``2:5``, what is not said left out."""
    first = "" if start == 0 else text.value(start)
    last = "" if stop is None else text.value(stop)
    return slice_text(first, last, "" if step == 1 else text.value(step))


def _subscripts(text: Text, node: Node) -> list[Node]:
    """The node and those before it that are written as one subscript of its operand."""
    chain = [node]
    while _is_subscript(chain[0]):
        operand = chain[0].args[0]
        if operand not in text.inlined or not _is_subscript(operand):
            return chain
        chain.insert(0, operand)
    return chain


def _is_subscript(node: Node) -> bool:
    return node.op == "call_function" and _OWN.get(node.target.name) is _subscript


# -- the proof -------------------------------------------------------------------------------------
_proven: dict[Any, bool] = {}
_MOST_PROVEN = 100_000
_MODULES = {"np": np, "ops": ops, "shapes": shapes}


def _is_proven(text: Text, spelling: Spelling, chain: Sequence[Node]) -> bool:
    """Whether the spelling gives the nodes of a chain, each of which reads the one before."""
    operands = _operands(chain)
    types = [n.type for n in operands]
    key = (spelling, repr(_calls(chain, operands)), *types)
    if key not in _proven:
        if len(_proven) >= _MOST_PROVEN:
            _proven.clear()
        is_typed = all(isinstance(type, TensorType) for type in types)
        _proven[key] = is_typed and _gives(text, spelling, chain, operands)
    return _proven[key]


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


def _gives(text: Text, spelling: Spelling, chain: Sequence[Node], operands: Sequence[Node]) -> bool:
    """Trace a spelling, and compare."""
    proof = copy.copy(text)
    types = {f"_{i}": node.type for i, node in enumerate(operands)}
    proof.inlined = {node: (name, 99) for node, name in zip(operands, types)}
    code = spelling(proof, *chain)
    if code is None:
        return False
    own: dict[str, Any] = {alias: _MODULES.get(n) for n, alias in text.file.imports.items()}
    for value in (v for node in chain for v in node.kwargs.values()):
        own |= {s.name: shapes.for_user(s) for s in _symbols(value)}
    try:
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
