"""The table of ONNX ops, with a function for each op that expresses it in fxlite's ops.

A function gets the call (attributes with their defaults, the opset, values that are known while importing) and the
op's inputs: proxies, constant arrays, arrays of named sizes, lists for sequences, and None for an input that is left
out. It returns the result, or a tuple of results. It also handles differences between opsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ModelImportError
from fxlite.base.state import is_traced
from fxlite.importing.onnx.exact import sizes_of
from fxlite.ops.op import REGISTRY, Op, lookup
from fxlite.tracing.capture.answers import counted
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.selections.bounds import most_of
from fxlite.tracing.selections.masked import Masked
from fxlite.types.shapes import NamedDim

if TYPE_CHECKING:
    from fxlite.importing.onnx.walk import Walk


@dataclass(frozen=True)
class Row:
    """The entry of the table for one op. ``partly``: the unsupported part, in words. ``moves``: its result consists of
    unchanged elements of its first input. ``folds``: it is computed while importing if all inputs are small constants.
    ``sizes``: the inputs that may be arrays of named sizes."""

    name: str
    domain: str
    function: Callable[..., Any]
    partly: str = ""
    moves: bool = False
    folds: bool = True
    sizes: tuple[int, ...] = ()


def counterparts() -> Iterator[tuple[Op, str, dict[str, str]]]:
    """The ops that exist in ONNX, too, according to their records: fxlite's op, the name in ONNX, and ONNX's
    attributes with the corresponding parameters. The importer adds them to the table; the ONNX exporter
    (fxlite.codegen.onnx) also reads them."""
    for op in REGISTRY.values():
        if op.onnx:
            name, *attributes = op.onnx.split()
            yield op, name, dict(a.split("=") for a in attributes)


#: The rows by domain and name of an op.
TABLE: dict[tuple[str, str], Row] = {}
MICROSOFT = "com.microsoft"


def onnx_op(
    *names: str,
    domain: str = "",
    partly: str = "",
    moves: bool = False,
    folds: bool = True,
    sizes: tuple[int, ...] = (),
    traced: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a function to the table under these names of ops. ``traced``: it gets all of its inputs as traced values."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        def on_proxies(n: Call, *values: Any) -> Any:
            return function(n, *n.proxies(values))

        for name in names:
            TABLE[domain, name] = Row(name, domain, on_proxies if traced else function, partly, moves, folds, sizes)
        return function

    return enter


def same(name: str, function: Callable[..., Any], *attributes: str, **facts: Any) -> None:
    """Add a function that takes the inputs, followed by these attributes."""

    @onnx_op(name, **facts)
    def call(n: Call, *values: Any) -> Any:
        return function(*values, *(n[a] for a in attributes))


class Unknown(ModelImportError):
    """A value must be known while importing, but is not; ``inputs`` are the inputs of the model from which it is
    computed."""

    inputs: tuple[str, ...] = ()


@dataclass
class Call:
    """One node while it is imported."""

    walk: Walk
    op: str
    name: str
    opset: int
    attributes: dict[str, Any]
    defaults: dict[str, Any]
    n_outputs: int
    wanted: tuple[bool, ...]
    """For each output, whether it is read."""
    env: Any = None
    """The surrounding values, which are visible in graphs among the attributes."""

    def __getitem__(self, attribute: str) -> Any:
        """An attribute, its default in this opset, or None."""
        return self.attributes.get(attribute, self.defaults.get(attribute))

    def of_axes(self, attribute: str, count: int, default: int = 1) -> list[int]:
        """An attribute that has a number for each of so many axes, and may be left out."""
        return list(self[attribute] or [default] * count)

    def wants(self, output: int) -> bool:
        """Whether the output with that number is read."""
        return output < len(self.wanted) and self.wanted[output]

    def refuse(self, problem: str) -> ModelImportError:
        """The error for an unsupported use of an op; the caller adds the name of the node."""
        return ModelImportError(problem)

    # -- values -------------------------------------------------------------------------------
    def sizes(self, value: Any, what: str) -> list[Any]:
        """Integers that must be known while importing (numbers or named sizes), such as a shape, axes or paddings.
        Raises Unknown, which names the inputs of the model on which they depend."""
        found = self.known(value, what)
        flat = np.asarray(found).reshape(-1)
        return [v if is_named(v) else int(v) for v in flat]

    def bounds(self, value: Any, what: str, limited: bool = False) -> list[Any]:
        """Integers that are known while importing, or computed from inputs, such as the bounds of a slice.
        ``limited``: they are sizes, and the largest possible value of each must be known."""
        try:
            return self.sizes(value, what)
        except Unknown:
            found = [self._element(value, place) for place in range(value.size)]
            if limited and any(is_traced(size) and most_of(size) is None for size in found):
                raise
            return found

    def _element(self, value: Any, place: int) -> Any:
        """An element of a traced array of one axis, which is a number if it is known; of joined arrays, that of its
        part."""
        node = value.node
        while node.op == "call_function" and node.target is lookup("concat"):
            for part in node.bound["tensors"]:
                if place < part.type.shape[0]:
                    break
                place -= part.type.shape[0]
            node = part
        found = value.tracer.proxy(node)
        known = known_value(found)
        if node.op == "get_attr":
            owner, _, name = node.target.rpartition(".")
            known = self.walk.importer.root.get_submodule(owner)._buffers.get(name)
        return int(known.reshape(-1)[place]) if known is not None else found[place] if found.ndim else found

    def numbers(self, value: Any, what: str) -> list[int]:
        """Integers that must be known while importing and must not depend on named sizes."""
        found = self.sizes(value, what)
        if any(map(is_named, found)):
            raise self.refuse(f"{what} is {found}, and must be numbers")
        return found

    def known(self, value: Any, what: str) -> np.ndarray[Any, Any]:
        """The array of a value that does not depend on inputs. Raises Unknown."""
        if not is_traced(value):
            return np.asarray(value)
        found = known_value(value)
        if found is not None:
            return found
        inputs, sizes = self.walk.sources_of(value)
        if not inputs and (formula := sizes_of(value)) is not None:
            return formula
        given = [*(f"{name!r}: array" for name in inputs), *(f"{name!r}: number" for name in sizes)]
        sources = ", ".join((*inputs, *sizes)) or "other values"
        error = Unknown(
            f"{what} must be known while importing, but this is computed from {sources}"
            + (f"; give the value: sizes={{{', '.join(given)}}}" if given else "")
        )
        error.inputs = inputs
        raise error

    def dtype(self, value: Any) -> np.dtype[Any]:
        """The element type of a value in ONNX, even if it is computed in a wider dtype."""
        return self.walk.dtype_of(value)

    def stored_as(self, value: Any, dtype: np.dtype[Any]) -> Any:
        """A value whose elements have ``dtype`` in ONNX and a wider dtype here."""
        return self.walk.stored_as(value, dtype)

    def proxy(self, value: Any) -> Any:
        """A value as a traced value."""
        return self.walk.as_proxy(value)

    def proxies(self, values: Sequence[Any]) -> list[Any]:
        """Values as traced values."""
        return [self.proxy(v) for v in values]


def rank(value: Any) -> int:
    """The number of axes of a value."""
    return int(value.ndim)


def shape(value: Any) -> tuple[Any, ...]:
    """The sizes of a value: numbers, and named sizes."""
    return tuple(value.shape)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from 0. Raises ModelImportError if it does not exist."""
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def is_one(size: Any) -> bool:
    """Whether a size is the number 1; False for a named size, which cannot be compared."""
    return type(size) is int and size == 1


def is_sizes(value: Any) -> bool:
    """Whether a value is an array of named sizes."""
    return isinstance(value, np.ndarray) and value.dtype == object


def as_sizes(values: Any) -> np.ndarray[Any, Any]:
    """Sizes as an array, of int64 if all are numbers, else of objects."""
    found = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # NumPy would search them for arrays
        found[place] = value if is_named(value) else int(value)
    return settled(found)


def is_named(size: Any) -> bool:
    """Whether a size is not a number, because it is named or computed."""
    return isinstance(size, NamedDim) or is_traced(size)


def broadcast(value: Any, sizes: tuple[Any, ...]) -> Any:
    """A value broadcast to a shape, one size of which may be computed."""
    if isinstance(value, Masked) or not any(map(is_traced, sizes)):
        return np.broadcast_to(value, sizes)
    return counted(value.tracer, sizes, lambda known: np.broadcast_to(value, known))


def settled(found: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of sizes, as int64 if all of them are numbers."""
    return found if any(map(is_named, found.flat)) else found.astype(np.int64)
