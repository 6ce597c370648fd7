"""Values in graph queries (``3``, ``(1, 2)``, ``f32``, ``"same"``, ``f32[B,3,*,*]``, ``1MB``), and how
attributes of nodes compare with them.

In: the text after a sign; attributes and types of nodes. Out: :func:`parse_value`, and
:func:`is_equal` and :func:`is_ordered`, which know that dims are expressions in named sizes.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fxlite.base.errors import ParseError, QueryError
from fxlite.base.on_demand import is_expression
from fxlite.base.outside_text import syntax_tree
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType

#: Attributes that are read off the type of a node's result.
VALUE_WORDS = ("dtype", "rank", "shape", "size", "bytes")

_PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
#: Unit -> what a quantity of it is called, and how it is written.
_QUANTITIES = {
    "B": "number of bytes; write 200MB, 64MiB, 5G or 1000000",
    "FLOPs": "number of FLOPs; write 200MFLOPs, 5G or 1000000",
    "": "count; write 100 or 5k",
}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE]\d\d?)?)\s*([kKMGT]?i?)(B|FLOPs?)?\s*")


@dataclass(frozen=True)
class Word:
    """A bare word: a string, a dtype or a named dim, depending on the attribute."""

    text: str


@dataclass(frozen=True)
class ShapePattern:
    """``f32[B,3,*,*]`` or ``(B,...,3)``: dims, with ``*`` for any and ``...`` for any number of them."""

    dtype: DType | None
    dims: tuple[Any, ...]

    def matches(self, type: TensorType, sizes: Mapping[str, int]) -> bool:
        """True if a type has this dtype and shape."""
        if self.dtype is not None and self.dtype is not type.dtype:
            return False
        if "..." not in self.dims:
            return self._same(self.dims, type.shape, sizes)
        cut = self.dims.index("...")
        before, after = self.dims[:cut], self.dims[cut + 1 :]
        if len(before) + len(after) > type.rank:
            return False
        back = type.shape[type.rank - len(after) :]
        return self._same(before, type.shape[:cut], sizes) and self._same(after, back, sizes)

    @staticmethod
    def _same(wanted: tuple[Any, ...], dims: tuple[Dim, ...], sizes: Mapping[str, int]) -> bool:
        return len(wanted) == len(dims) and all(
            w == "*" or shapes.equal(*_in_same_dims(w, d, sizes)) for w, d in zip(wanted, dims)
        )


def _in_same_dims(wanted: Any, value: Any, sizes: Mapping[str, int]) -> tuple[Any, Any]:
    """The value of a query and that of a graph, with sizes in place of named dims. The other names in the
    query mean the graph's dims, whatever is known of those."""
    value = shapes.substitute(value, sizes)
    known = {dim.name: dim for dim in symbols.fact_symbols(value)}
    return shapes.substitute(wanted, {**known, **sizes}), value


class Undecided(Exception):
    """Whether a comparison holds depends on the named dims in ``names``."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


def parse_quantity(text: str, unit: str = "B") -> int:
    """``"200MB"`` -> 200_000_000: a number, optionally with a prefix, k M G T (powers of 1000) or Ki Mi
    Gi Ti (powers of 1024), and a unit, ``B`` or ``FLOPs``, or none for a plain count. Raises QueryError."""
    found = _QUANTITY.fullmatch(text)
    prefix = found[2].replace("K", "k") if found else ""
    prefix = "Ki" if prefix == "ki" else prefix
    if found is None or prefix not in _PREFIXES or (found[3] or unit).rstrip("s") != unit.rstrip("s"):
        raise QueryError(f"{text!r} is not a {_QUANTITIES[unit]}")
    return round(float(found[1]) * _PREFIXES[prefix])


def parse_value(attribute: str, sign: str, text: str) -> Any:
    """The value after ``[attribute sign``. Raises QueryError, which says what is allowed there."""
    if not text:
        raise QueryError(f"a value is needed after {sign!r}")
    if attribute in ("dtype", "shape") and sign not in ("=", "!="):
        raise QueryError(f"a {attribute} is equal to another or is not: use = or !=")
    if attribute == "dtype":
        return _dtype(text.strip("\"'"))
    if attribute == "shape":
        return _shape(text)
    if attribute in ("rank", "size", "bytes") and _QUANTITY.fullmatch(text):
        return parse_quantity(text, "B" if attribute == "bytes" else "")
    value = _literal(text)
    if (attribute in ("rank", "size", "bytes") or sign not in ("=", "!=")) and not _is_number(_as_dim(value)):
        raise QueryError(f"{sign!r} needs a number here, such as 3, 1MB or 4*D, not {text}")
    return _as_dim(value) if sign not in ("=", "!=") or attribute in VALUE_WORDS else value


def _dtype(text: str) -> DType:
    found = dtypes.BY_NAME.get(text)
    if found is None:
        raise QueryError(f"{text!r} is not a dtype; use one of: {' '.join(map(repr, dtypes.ALL))}")
    return found


def _shape(text: str) -> ShapePattern:
    found = re.compile(r"\s*(\w*)\s*(?:\[(.*)\]|\((.*)\))\s*", re.DOTALL).fullmatch(text)
    if found is None or (found[1] and found[2] is None):
        raise QueryError("a shape is written f32[B,3,*,*], [B,3,*,*] or (B,...,3)")
    inner = (found[2] if found[2] is not None else found[3]).strip().removesuffix(",")
    parts = [part.strip() for part in inner.split(",")] if inner else []
    if parts.count("...") > 1:
        raise QueryError('a shape has "..." once at most')
    dims = tuple(part if part in ("*", "...") else _dim(part) for part in parts)
    return ShapePattern(_dtype(found[1]) if found[1] else None, dims)


def _dim(text: str) -> Dim:
    try:
        return shapes.parse(text)
    except ParseError as error:
        raise QueryError(str(error)) from None


def _literal(text: str) -> Any:
    if text.isidentifier() and text not in ("None", "True", "False"):
        return Word(text)
    try:
        tree = syntax_tree(text.strip()).body
    except (SyntaxError, ParseError):
        raise QueryError(_NOT_A_VALUE.format(text)) from None
    return _from_ast(tree, text)


_NOT_A_VALUE = '{} is not a value; write a number, True, None, a word, "text", (1, 2) or 4*D'


def _from_ast(tree: ast.expr, text: str) -> Any:
    if isinstance(tree, ast.Tuple | ast.List):
        return tuple(_from_ast(item, text) for item in tree.elts)
    if isinstance(tree, ast.Name):
        return Word(tree.id)
    try:
        return ast.literal_eval(tree)
    except ValueError:
        pass
    try:
        return shapes.from_ast(tree, text)
    except ParseError:
        raise QueryError(_NOT_A_VALUE.format(text)) from None


def _as_dim(value: Any) -> Any:
    return symbols.symbol(value.text) if isinstance(value, Word) else value


def _is_number(value: Any) -> bool:
    return (isinstance(value, int | float) or is_expression(value)) and not isinstance(value, bool)


def is_equal(value: Any, wanted: Any, sizes: Mapping[str, int]) -> bool:
    """True if an attribute equals a value of a query. Dims are equal if that can be proved; a number
    equals a tuple that repeats it, as ``stride=2`` is ``stride=(2, 2)``."""
    if isinstance(wanted, Word):
        if isinstance(value, DType):
            return wanted.text in (value.name, value.long_name)
        if isinstance(value, str):
            return value == wanted.text
        wanted = _as_dim(wanted)
    if isinstance(value, tuple):
        if isinstance(wanted, tuple):
            pairs = zip(value, wanted)
            return len(value) == len(wanted) and all(is_equal(v, w, sizes) for v, w in pairs)
        return bool(value) and all(is_equal(v, wanted, sizes) for v in value)
    if isinstance(wanted, tuple):
        return bool(wanted) and all(is_equal(value, w, sizes) for w in wanted)
    if isinstance(value, DType) and isinstance(wanted, str):
        return wanted in (value.name, value.long_name)
    if not (_is_number(value) and _is_number(wanted)):
        return type(value) is type(wanted) and bool(value == wanted)
    wanted, value = _in_same_dims(wanted, value, sizes)
    if is_expression(value) or is_expression(wanted):
        return bool(value == wanted) or shapes.normalize(value - wanted) == 0
    return bool(value == wanted)


#: The comparisons of two plain numbers by sign.
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_ordered(value: Any, sign: str, wanted: Any, sizes: Mapping[str, int]) -> bool:
    """``value < wanted`` and so on; for a tuple, it holds for every item. False if the value is not a
    number.

    Raises Undecided if the answer depends on named dims that ``sizes`` does not give."""
    if isinstance(value, tuple):
        return bool(value) and all(is_ordered(item, sign, wanted, sizes) for item in value)
    if not _is_number(value):
        return False
    wanted, value = _in_same_dims(wanted, value, sizes)
    if not (is_expression(value) or is_expression(wanted)):
        return COMPARE[sign](value, wanted)
    low, high = (wanted, value) if sign in (">", ">=") else (value, wanted)
    step = 1 if sign in (">", "<") else 0
    if shapes.at_least(high, low + step):
        return True
    if shapes.at_least(low, high + 1 - step):
        return False
    raise Undecided(shapes.names(value) | shapes.names(wanted))


def is_same_axis(value: Any, wanted: Any, rank: int | None, is_reduction: bool) -> bool:
    """True if axes are equal modulo the rank (None: unknown). For a reduction their order does not
    matter, one axis equals a tuple of it, and None means all axes."""
    if is_reduction and rank is not None:
        everything = tuple(range(rank))
        value = everything if value is None else value
        wanted = everything if wanted is None else wanted
    if value is None or wanted is None:
        return value is wanted
    one, other = _plain_axes(value, rank), _plain_axes(wanted, rank)
    if is_reduction:
        return set(one) == set(other)
    return one == other and isinstance(value, tuple) is isinstance(wanted, tuple)


def _plain_axes(value: Any, rank: int | None) -> list[Any]:
    axes = value if isinstance(value, tuple) else (value,)
    return [a % rank if rank and type(a) is int else a for a in axes]
