"""The table of ATen's ops, which expresses each in terms of fxlite's ops, and the arguments of its entries.

In: entries by name: ``"add"`` for all overloads of ``aten.add``, or ``"clamp.Tensor"`` for one. Out: :func:`entry_of` a
target. An entry gets a :class:`Call` and the arguments of ATen's schema, with proxies, arrays, numbers and named sizes
for the values of nodes.

Tensors on the CPU and arrays are converted into each other over the same memory. NumPy's own conversion does not
support bfloat16 and float8; these are passed as integers of their size and read as types of ml_dtypes. Tensors of
float8, which fxlite lacks, become arrays of float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import torch

from fxlite.base.errors import DTypeError, TraceError
from fxlite.base.state import active_tracer, is_traced
from fxlite.ops.op import Op, lookup
from fxlite.tracing.capture.answers import counted
from fxlite.tracing.selections.masked import Masked
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.shapes import NamedDim

#: fxlite's dtype for each of torch's.
DTYPES: dict[Any, DType] = {getattr(torch, own.numpy.name): own for own in dtypes.ALL}
TORCH = {own: theirs for theirs, own in DTYPES.items()}
#: Dtypes of torch that fxlite lacks, as those of ml_dtypes; float32 holds their elements.
NARROW = {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name))
    for name in "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
}


def dtype_of(torch_dtype: Any) -> DType:
    """fxlite's dtype for a torch dtype. Raises DTypeError if there is none."""
    if torch_dtype in NARROW:
        return dtypes.float32
    if torch_dtype not in DTYPES:
        other = "complex64" if torch_dtype.is_complex else "bfloat16" if torch_dtype.is_floating_point else "int8"
        raise DTypeError(f"fxlite has no dtype for {torch_dtype}; convert it before, with .to(torch.{other})")
    return DTYPES[torch_dtype]


def why_no_array(tensor: Any) -> str:
    """Why a tensor is no array of fxlite, and what to do; an empty text if it is one, or a fake tensor."""
    if tensor.is_nested:
        return "is nested: give torch.nested.to_padded_tensor(x, 0.0), and a mask of what is there"
    if tensor.is_quantized:
        return f"is quantized ({tensor.dtype}): give x.dequantize(), or quantize the model by torchao or pt2e"
    if tensor.layout is not torch.strided:
        return f"is not dense ({tensor.layout}): give x.to_dense()"
    try:
        dtype_of(tensor.dtype)
    except DTypeError as error:
        return f"cannot be an array: {error}"
    return ""


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """An array over a tensor's memory; a tensor on another device, or of float8, is copied. Raises DTypeError for a
    tensor that is not dense, or has no values."""
    plain = tensor.detach()
    if problem := why_no_array(plain):
        raise DTypeError(f"a tensor {problem}")
    if plain.is_meta:
        raise DTypeError("a tensor on the device meta has no values: load the weights, or give it values, first")
    plain = plain.cpu().resolve_conj().resolve_neg()
    if plain.dtype in NARROW:
        narrow: np.ndarray[Any, Any] = plain.view(torch.uint8).numpy().view(NARROW[plain.dtype])
        return narrow.astype(np.float32)
    if plain.dtype is torch.bfloat16:
        return plain.view(torch.int16).numpy().view(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return plain.numpy()  # type: ignore[no-any-return]


def tensor_of(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over an array's memory."""
    array = np.asarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


# -- the table --------------------------------------------------------------------------------------
Entry = Callable[..., Any]
#: Name of an op, with its overload or for all -> its entry.
ENTRIES: dict[str, Entry] = {}


def aten(*names: str) -> Callable[[Entry], Entry]:
    """A decorator that adds an entry to the table under these names."""

    def enter(entry: Entry) -> Entry:
        for name in names:
            assert name not in ENTRIES, name
            ENTRIES[name] = entry
        return entry

    return enter


def same(names: str, function: Callable[..., Any]) -> None:
    """Add a function that takes the same arguments as these ATen ops, with attributes by ATen's names."""
    aten(*names.split())(lambda c, *args, **named: function(*args, **named))


def each(text: str) -> Iterator[tuple[str, str]]:
    """(ATen's name, fxlite's op) for words such as ``mul``, if both have the same name, or ``multiply=mul``."""
    for word in text.split():
        name, _, own = word.partition("=")
        yield name, own or name


def entry_of(target: Any) -> Entry | None:
    """The entry for a torch op; None if there is none. An op that writes in place, ``add_``, has the entry of the one
    that does not."""
    full = getattr(target, "_schema", None)
    if full is None:
        return None
    space, _, name = full.name.partition("::")
    name = name if space in ("aten", "prims") else f"{space}.{name}"
    for wanted in (name, name[:-1]) if name.endswith("_") and not name.endswith("__") else (name,):
        found = ENTRIES.get(f"{wanted}.{full.overload_name or 'default'}") or ENTRIES.get(wanted)
        if found is not None:
            return found
    return None


class Call:
    """A node of torch's graph while it runs, with its types, and the parts of the run that entries need."""

    def __init__(self, node: Any, run: Any) -> None:
        self.node, self.run = node, run
        self.value = node.meta.get("val")

    @property
    def name(self) -> str:
        """The name of the op in ATen; for ``add_`` that of ``add``."""
        found = str(self.node.target._schema.name.partition("::")[2])
        return found if found.startswith("__") else found.rstrip("_")

    @property
    def dtype(self) -> DType:
        """The dtype of the result, or of the first one."""
        value = self.value[0] if isinstance(self.value, (tuple, list)) else self.value
        return dtype_of(value.dtype)

    @property
    def rank(self) -> int:
        """The number of axes of the result, or of the first one."""
        value = self.value[0] if isinstance(self.value, (tuple, list)) else self.value
        return int(value.dim())

    def promoted(self, first: int = 0, second: int = 1) -> DType:
        """The dtype in which two operands are computed by torch's rules."""
        values = [self.node.args[i] for i in (first, second)]
        plain = [v.meta["val"] if isinstance(v, torch.fx.Node) else v for v in values]
        plain = [1 if isinstance(v, torch.SymInt) else v for v in plain]
        return dtype_of(torch.result_type(*plain))

    def options(self, args: Any, named: Mapping[str, Any], *names: str) -> list[bool]:
        """Options that are given by position (in order) or by name; those that are not given are False."""
        return [bool(args[i] if i < len(args) else named.get(name, False)) for i, name in enumerate(names)]

    @property
    def bounds(self) -> tuple[int, int | None]:
        """Torch's bounds for a result that is a size, or for the unknown size of a result. The upper bound is None if
        there is none."""
        sizes = [self.value] if isinstance(self.value, torch.SymInt) else getattr(self.value, "shape", ())
        found = [self.run.exported.range_constraints.get(s.node.expr) for s in sizes if isinstance(s, torch.SymInt)]
        if len(found) != 1 or found[0] is None or not found[0].lower.is_Integer or not found[0].upper.is_Integer:
            return 0, None
        low, high = int(found[0].lower), int(found[0].upper)
        return low, high if high < 1 << 31 else None

    def refuse(self, what: str) -> TraceError:
        """The error for arguments of an op that fxlite does not support."""
        return TraceError(what)


def op(name: str) -> Op:
    """An op of fxlite."""
    return lookup(name)


def is_number(value: Any) -> bool:
    """Whether it is a Python number or a size."""
    return isinstance(value, (bool, int, float, complex, NamedDim))


def dtype_of_value(value: Any) -> DType:
    """The dtype of a traced value, an array, or a number."""
    if is_traced(value):
        return value.type.dtype
    return dtypes.dtype(value.dtype if isinstance(value, Masked) else np.asarray(value).dtype)


def cast(value: Any, dtype: DType | None) -> Any:
    """A value cast to a dtype. A number stays a number, which takes the dtype of the other operand; an integer that
    the dtype cannot represent loses its upper bits, as in torch."""
    if dtype is not None and dtype.is_integer and type(value) is int:
        return int(np.asarray(value).astype(dtype.numpy))
    if dtype is None or is_number(value):
        return value
    return value if dtype_of_value(value) is dtype else op("cast")(value, dtype=dtype)


def as_array(value: Any, dtype: DType) -> Any:
    """A number as an array of rank 0; any other value cast to the dtype."""
    if isinstance(value, NamedDim):
        return op("full")((), value, dtype)
    return np.asarray(value, dtype.numpy) if is_number(value) else cast(value, dtype)


def shape_of(value: Any) -> tuple[Any, ...]:
    """The sizes of a value."""
    return tuple(value.shape)


def same_sizes(one: Any, other: Any) -> bool:
    """Whether two shapes are known to be the same for all sizes."""
    if any(map(is_traced, (*one, *other))):  # a computed number of elements
        return False
    return len(one) == len(other) and all(shapes.normalize(a) == shapes.normalize(b) for a, b in zip(one, other))


def is_array(value: Any) -> bool:
    """Whether a value is an array, or stands for one or for a selected part of one."""
    return is_traced(value) or isinstance(value, (np.ndarray, Masked))


def identity(sizes: tuple[Any, ...], dtype: DType) -> Any:
    """A matrix with ones on its diagonal; a constant if its sizes are numbers."""
    if all(type(size) is int for size in sizes):
        return np.eye(*sizes, dtype=dtype.numpy)
    down, across = (op("arange")(0, size, 1, dtypes.int64) for size in sizes)
    return cast(op("eq")(down[:, None], across), dtype)


def sized(shape: Any, whole: Callable[[tuple[Any, ...]], Any]) -> Any:
    """The array that ``whole`` makes for a shape, one size of which may be computed; then its first elements."""
    tracer: Any = active_tracer.get()
    if not any(map(is_traced, shape)):
        return whole(tuple(shape))
    return counted(tracer, tuple(shape), lambda sizes: tracer.constant(whole(sizes)))


def bounded(value: Any, bounds: tuple[int, int | None]) -> Any:
    """A number that must be between bounds (inclusive); otherwise an error is raised at run time."""
    low, high = bounds
    if high is None or not is_traced(value):
        return value
    wrong = op("logical_or")(op("lt")(value, low), op("gt")(value, high))
    value = value.tracer.unless(
        value, wrong, ValueError(f"a size is not between {low} and {high}, as torch.export has it")
    )
    value.tracer.ranges[value.node] = (low, high + 1)
    return value


def rank_of(value: Any) -> int:
    """The number of axes of a value."""
    return len(value.shape)


def axis_of(value: Any, axis: int) -> int:
    """An axis counted from 0."""
    return axis % max(rank_of(value), 1)


def along(value: Any, axis: int, index: Any) -> tuple[Any, ...]:
    """The subscript with an index, or a slice, for one axis."""
    return (*[slice(None)] * axis_of(value, axis), index)


def ints(value: Any) -> Any:
    """A list of numbers as a tuple; a list with one number as that number."""
    if isinstance(value, (list, tuple)):
        return tuple(value) if len(value) != 1 else value[0]
    return value


def pair(value: Any, count: int) -> tuple[Any, ...]:
    """A number for each of ``count`` axes, from a number or a list."""
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return found * count if len(found) == 1 else found


def axes_of(value: Any, rank: int) -> tuple[int, ...]:
    """The axes of a reduction, counted from 0; all if none are given."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return tuple(range(rank))
    return tuple(a % max(rank, 1) for a in (value if isinstance(value, (list, tuple)) else (value,)))
