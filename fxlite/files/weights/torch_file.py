"""Reads weights that ``torch.save`` wrote (``.pt``, ``.pth``, ``.bin``) without torch and without unpickling.

In: a file in the format of torch 1.6 and newer, which is an archive of ``data.pkl`` and a member for each storage, or
in the older format, which consists of pickles followed by the storages. Out: entries; storages stay in the mapped
file. The pickle describes each tensor by a storage, an offset, sizes and strides (torch/_utils.py,
``_rebuild_tensor_v2``; torch/serialization.py has the formats).

Tensors may be nested in dicts and lists, together with numbers and texts, which are not weights; the parts of their
names are then separated by dots. If a checkpoint has the model's weights under a usual name, and other things as well
(an optimizer's state), only the model's weights are read.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from fxlite.base import outside_text
from fxlite.base.errors import FileFormatError
from fxlite.files.weights.entry import Array, Entry, MappedFile
from fxlite.files.weights.pickles import checked_key, read_pickle
from fxlite.types import dtypes

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 "
        "float8_e4m3fn float8_e5m2"
    ).split()
}
#: Classes of storages whose names give the dtype.
_STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
#: Entries of checkpoints that hold the weights of a model beside other things.
_OF_MODELS = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "model_state", "ema_state_dict")
LEGACY = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of the older format's magic number
_MOST_PARTS = 1 << 20
_MOST = 1 << 24  # elements of a tensor that repeats those of a smaller storage


@dataclass(frozen=True)
class _Kind:
    """The dtype for a storage class or a torch dtype; None for bytes."""

    dtype: np.dtype[Any] | None


@dataclass(frozen=True)
class _Storage:
    """Elements of a dtype in the file: ``key`` identifies their place, and ``count`` is their number."""

    kind: _Kind
    key: str
    count: int
    start: int = 0


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch(file: MappedFile) -> list[Entry]:
    """The tensors of a file that ``torch.save`` wrote. Raises FileFormatError."""
    if bytes(file.bytes[: len(LEGACY)]) == LEGACY:
        value, places, order = _legacy(file)
    else:
        value, places, order = _archive(file)
    if not isinstance(value, (_Tensor, dict, list, tuple)):
        raise FileFormatError(f"{file.name} holds a {type(value).__name__}, and no tensors")
    tensors = list(_tensors(_weights_in(value), "", [_MOST_PARTS], file))
    return [_entry(name, tensor, places, order, file) for name, tensor in tensors]


# -- the two formats -------------------------------------------------------------------------------
def _archive(file: MappedFile) -> tuple[Any, dict[str, tuple[int, int]], str]:
    """The value; the positions and lengths (in bytes) of storages by key; and the byte order."""
    members = file.members()
    root = next((name.removesuffix("data.pkl") for name in members if name.endswith("/data.pkl")), None)
    if root is None:
        raise FileFormatError(f"{file.name} is an archive, but neither of torch.save nor of NumPy arrays")
    value, _ = read_pickle(file.unpacked(members[f"{root}data.pkl"]), 0, _known(), _found, file.name)
    order = "little"
    if f"{root}byteorder" in members:
        order = file.unpacked(members[f"{root}byteorder"])[:20].decode("ascii", "replace")
    start = f"{root}data/"
    stored = {n.removeprefix(start): i for n, i in members.items() if n.startswith(start)}
    if any(info.compress_type for info in stored.values()):
        raise FileFormatError(f"{file.name} was packed again; unpack it, and keep its members as they are (zip -0)")
    places = {key: (file.place(info), info.file_size) for key, info in stored.items()}
    return value, places, order


def _legacy(file: MappedFile) -> tuple[Any, dict[str, tuple[int, int]], str]:
    """Like :func:`_archive`, for the older format: pickles of a magic number, the version, the system, the value, and
    the keys of the storages, followed by the storages, each after the count of its elements."""
    place = len(LEGACY)
    found: list[Any] = []
    itemsizes: dict[str, int] = {}

    def noted(said: Any) -> Any:
        storage = _found(said)
        itemsizes[storage.key] = storage.kind.dtype.itemsize if storage.kind.dtype is not None else 1
        return storage

    for _ in range(4):
        value, place = read_pickle(file.bytes, place, _known(), noted, file.name)
        found.append(value)
    version, system, value, keys = found
    if version != 1001 or not isinstance(system, dict) or not isinstance(keys, list):
        raise file.damaged("its version or its list of storages")
    places: dict[str, tuple[int, int]] = {}
    for key in keys:
        if key not in itemsizes:
            raise file.damaged(f"the storage {key!r} is of no tensor")
        count = int(file.array(np.dtype("<i8"), 1, place, "the length of a storage")[0])
        place += 8
        length = count * itemsizes[key]
        file.array(np.dtype("u1"), length, place, f"the storage {key}")
        places[key] = place, length
        place += length
    return value, places, "little" if system.get("little_endian", True) else "big"


# -- contents that a pickle of tensors may have ----------------------------------------------------
def _known() -> dict[str, Any]:
    known: dict[str, Any] = {
        "collections.OrderedDict": _ordered,
        "torch._utils._rebuild_tensor": _tensor,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
        "torch._utils._rebuild_parameter": _parameter,
        "torch._utils._rebuild_parameter_with_state": _parameter,
        "torch.Size": _size,
        "torch.device": _device,
        "torch.storage.UntypedStorage": _Kind(None),
        "torch.UntypedStorage": _Kind(None),
    }
    known |= {f"torch.{name}": _Kind(dtype) for name, dtype in _DTYPES.items()}
    return known | {f"torch.{name}Storage": _Kind(_DTYPES[dtype]) for name, dtype in _STORAGES.items()}


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    if not isinstance(items, (list, tuple)):
        raise TypeError("what is in an OrderedDict")
    return OrderedDict((checked_key(key), value) for key, value in items)


def _found(said: Any) -> _Storage:
    """A storage from a pickle's description of it: ("storage", class, key, device, count[, view])."""
    if not isinstance(said, tuple) or len(said) < 5 or said[0] != "storage" or not isinstance(said[1], _Kind):
        raise TypeError("a storage is not described as torch does")
    _, kind, key, _, count, *view = said
    if not isinstance(key, str) or type(count) is not int or count < 0:
        raise TypeError("the key or the length of a storage")
    if view and view[0] is not None:
        if not isinstance(view[0], tuple) or len(view[0]) != 3 or type(view[0][1]) is not int:
            raise TypeError("a view of a storage")
        return _Storage(kind, key, count, view[0][1])
    return _Storage(kind, key, count)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *others: Any) -> _Tensor:
    if not isinstance(storage, _Storage) or storage.kind.dtype is None:
        raise TypeError("a tensor has no storage of numbers")
    return _made(storage, storage.kind.dtype, offset, shape, strides)


def _tensor_of_dtype(
    storage: Any, offset: Any, shape: Any, strides: Any, grad: Any, hooks: Any, kind: Any, *others: Any
) -> _Tensor:
    if not isinstance(storage, _Storage) or not isinstance(kind, _Kind) or kind.dtype is None:
        raise TypeError("a tensor has no storage or dtype")
    return _made(storage, kind.dtype, offset, shape, strides)


def _made(storage: _Storage, dtype: np.dtype[Any], offset: Any, shape: Any, strides: Any) -> _Tensor:
    numbers = (offset, *shape, *strides)
    if len(shape) != len(strides) or any(type(n) is not int or not 0 <= n < 1 << 48 for n in numbers):
        raise ValueError(f"a tensor has offset {offset}, shape {shape} and strides {strides}")
    return _Tensor(storage, dtype, offset, tuple(shape), tuple(strides))


def _parameter(data: Any, *others: Any) -> Any:
    return data


def _size(sizes: Any = ()) -> tuple[Any, ...]:
    return tuple(sizes)


def _device(*said: Any) -> str:
    return "device"


# -- entries ---------------------------------------------------------------------------------------
def _weights_in(value: Any) -> Any:
    """The model's weights in a checkpoint that may also have other things."""
    if isinstance(value, dict) and not any(isinstance(v, _Tensor) for v in value.values()):
        for name in _OF_MODELS:
            if isinstance(value.get(name), dict) and any(isinstance(v, _Tensor) for v in value[name].values()):
                return value[name]
    return value


def _tensors(value: Any, path: str, left: list[int], file: MappedFile, depth: int = 0) -> Iterator[tuple[str, _Tensor]]:
    """The tensors in nested dicts, lists and tuples, with dotted names. ``left`` is the number of parts that may
    still be examined, because a list that contains another one twice, and so on, has exponentially many."""
    left[0] -= 1
    if left[0] < 0 or depth > 50:
        raise file.damaged("a container holds itself, or containers are nested too deeply")
    if isinstance(value, _Tensor):
        yield path or "tensor", value
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, (_Tensor, dict, list, tuple)):
            yield from _tensors(inner, f"{path}.{key}" if path else str(key), left, file, depth + 1)


def _entry(name: str, tensor: _Tensor, places: dict[str, tuple[int, int]], order: str, file: MappedFile) -> Entry:
    name = outside_text.line(name)
    if tensor.storage.key not in places:
        raise file.damaged(f"{name} is in the storage {tensor.storage.key}, which is not there")
    start, length = places[tensor.storage.key]
    itemsize = tensor.dtype.itemsize
    count = math.prod(tensor.shape)
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides))
    first = (tensor.storage.start + tensor.offset) * itemsize
    if count and first + (last + 1) * itemsize > length:
        raise file.damaged(f"{name}{list(tensor.shape)} would end after the {length:,} bytes of its storage")
    if count > max(length // itemsize, _MOST):
        raise file.damaged(f"{name}{list(tensor.shape)} repeats the {length:,} bytes of its storage")

    def load() -> Array:
        dtype = tensor.dtype.newbyteorder("<" if order == "little" else ">")
        if not count:
            return np.empty(tensor.shape, tensor.dtype)
        flat = file.array(dtype, last + 1, start + first, name)
        strides = [s * itemsize for s in tensor.strides]
        made = as_strided(flat, tensor.shape, strides, writeable=False)
        return made if dtype.isnative else made.astype(tensor.dtype)

    shown = dtypes.dtype(tensor.dtype).name if tensor.dtype in dtypes.BY_NUMPY else tensor.dtype.name
    return Entry(name, shown, tensor.shape, count * itemsize, load)
