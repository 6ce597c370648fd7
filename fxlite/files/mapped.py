"""Weights that stay in their file until they are read.

In: a safetensors file. Out: arrays whose memory is the file's, mapped; the system reads a page when
it is touched, shares it between processes, and may take it back. :func:`release` gives pages back
at once: what has gone through the processor's cache once need not stay in this process.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base.errors import FileFormatError
from fxlite.base.outside_text import line, lines

Array = np.ndarray[Any, Any]


def map_safetensors(
    path: str | os.PathLike[str], dtypes: dict[str, np.dtype[Any]]
) -> dict[str, Array]:
    """name -> array in the mapped file, read-only. ``dtypes``: the names that the format has for
    them. Raises FileFormatError, and OSError where the file cannot be read.

    The format: the header's length in 8 bytes, the header as JSON, then the arrays
    (https://github.com/huggingface/safetensors#format)."""
    name = os.fspath(path)
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise FileFormatError(f"{name} is not a safetensors file: its header is incomplete")
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            found = {key: _place(entry, dtypes) for key, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            what = lines(f"{type(error).__name__}: {error}")[:500]
            raise FileFormatError(f"{name} is not a safetensors file: {what}") from None
        except RecursionError:
            raise FileFormatError(
                f"{name} is not a safetensors file: its header is nested too deeply"
            ) from None
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays: dict[str, Array] = {}
    place = 0
    for key, (dtype, shape, start, end) in sorted(found.items(), key=lambda item: item[1][2:]):
        key = line(key)
        count = math.prod(shape)
        if not 0 <= start <= end <= size - 8 - length or end - start != count * dtype.itemsize:
            raise FileFormatError(
                f"{name} is damaged: {key}, {dtype.name}{list(shape)}, cannot be bytes {start} to "
                f"{end} of {size - 8 - length}"
            )
        if start != place:
            raise FileFormatError(f"{name} is damaged: {key} begins at byte {start}, not {place}")
        place = end
        flat = np.frombuffer(memory, dtype, count, 8 + length + start) if count else _none(dtype)
        try:
            arrays[key] = flat.reshape(shape)
        except (ValueError, OverflowError) as error:
            raise FileFormatError(f"{name}: {key} has a shape that NumPy lacks: {error}") from None
    return {key: arrays[line(key)] for key in found}


def _place(
    entry: dict[str, Any], dtypes: dict[str, np.dtype[Any]]
) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """Dtype, shape, first byte and end of one array. Raises KeyError, TypeError, ValueError."""
    start, end = map(int, entry["data_offsets"])
    shape = tuple(map(int, entry["shape"]))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {list(shape)}")
    return dtypes[entry["dtype"]], shape, start, end


def _none(dtype: np.dtype[Any]) -> Array:
    empty = np.empty(0, dtype)
    empty.flags.writeable = False
    return empty


def release(array: Array) -> None:
    """Let go of the whole pages of a contiguous array that lies in a mapped file and is read-only:
    they are read from the file when they are touched again. Does nothing to other arrays."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    if not isinstance(owner, mmap.mmap) or not memoryview(owner).readonly:
        return
    origin = np.frombuffer(owner, np.uint8).ctypes.data
    page = mmap.PAGESIZE
    first = -(-(array.ctypes.data - origin) // page) * page
    last = (array.ctypes.data - origin + array.nbytes) // page * page
    if last > first and hasattr(owner, "madvise"):
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
