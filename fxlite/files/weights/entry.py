"""The common part of all formats of weights: an entry for each array, and mapped files with arrays in them.

In: a path. Out: entries with the facts for a listing, whose arrays are made on demand: views of the mapped file if
NumPy has its dtype, and otherwise computed from it.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base import outside_text
from fxlite.base.errors import FileFormatError
from fxlite.files.archive import LIMIT_VARIABLE, load_limit

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Entry:
    """An array in a file: its name, the name of its dtype or storage format (such as ``q4_K``), its shape, and its
    size in the file in bytes. ``load`` makes the array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    load: Callable[[], Array]


class MappedFile:
    """A mapped file, read-only; ``name`` is its name in messages."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name = os.fspath(path)
        with Path(path).open("rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # an empty file cannot be mapped
            self.bytes: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""

    def array(self, dtype: np.dtype[Any], count: int, start: int, what: str) -> Array:
        """``count`` numbers from byte ``start`` on, read-only. Raises FileFormatError if the file is too short."""
        if count < 0 or start < 0 or start + count * dtype.itemsize > self.size:
            raise self.damaged(
                f"{what} would be bytes {start:,} to {start + count * dtype.itemsize:,} of {self.size:,}"
            )
        if not count:
            empty = np.empty(0, dtype)
            empty.flags.writeable = False
            return empty
        return np.frombuffer(self.bytes, dtype, count, start)

    def damaged(self, what: str) -> FileFormatError:
        """The error for a damaged file; ``what`` names the fault."""
        return FileFormatError(f"{self.name} is damaged: {shown(what)}")

    def members(self) -> dict[str, zipfile.ZipInfo]:
        """The members of a zip archive, by name. Raises FileFormatError."""
        try:
            with zipfile.ZipFile(self.name) as archive:
                found = archive.infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError, struct.error) as error:
            raise self.damaged(f"{error}") from None
        if len({info.filename for info in found}) < len(found):
            raise self.damaged("two members of the archive have the same name")
        return {info.filename: info for info in found}

    def place(self, info: zipfile.ZipInfo) -> int:
        """The position of the first byte of a member. Raises FileFormatError.

        A member has its own header of 30 bytes, followed by its name and an extra field, whose lengths are in the
        header (PKWARE's APPNOTE.TXT, 4.3.7)."""
        start = info.header_offset
        if start < 0 or bytes(self.bytes[start : start + 4]) != b"PK\x03\x04":
            raise self.damaged(f"the member {info.filename} is not where the archive says")
        lengths = self.bytes[start + 26 : start + 30]
        start += 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        is_stored = info.compress_type == zipfile.ZIP_STORED
        if start + info.compress_size > self.size or (is_stored and info.compress_size != info.file_size):
            raise self.damaged(f"the member {info.filename} does not have the bytes that the archive says")
        return start

    def unpacked(self, info: zipfile.ZipInfo) -> bytes:
        """The bytes of a member, after verifying its checksum. Raises FileFormatError, also for a member that would
        exceed the memory limit (:func:`load_limit`)."""
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self.damaged(f"the member {info.filename} is packed by a method other than deflate")
        limit = max(load_limit(), self.size)
        if info.file_size > limit:
            raise FileFormatError(
                f"{self.name}: {shown(info.filename)} has {info.file_size:,} bytes when it is unpacked, more than the "
                f"{limit:,.0f} that are allowed; set {LIMIT_VARIABLE} to more megabytes if you trust it"
            )
        start = self.place(info)
        content = bytes(self.bytes[start : start + info.compress_size])
        if info.compress_type == zipfile.ZIP_DEFLATED:
            try:
                content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, info.file_size + 1)
            except zlib.error as error:
                raise self.damaged(f"{info.filename}: {error}") from None
        if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
            raise self.damaged(f"the checksum of {info.filename} does not match")
        return content


def shown(text: str) -> str:
    """A text from a file for a message: shortened, and on one line."""
    text = outside_text.line(text)
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"


def shaped(flat: Array, shape: Sequence[int], what: str, file: MappedFile) -> Array:
    """A flat array in a shape with the same number of elements. Raises FileFormatError for another shape."""
    if min(shape, default=0) < 0 or math.prod(shape) != flat.size:
        raise file.damaged(f"{what} has shape {list(shape)}, and {flat.size:,} numbers")
    try:
        return flat.reshape(tuple(shape))
    except (ValueError, OverflowError) as error:
        raise file.damaged(f"{what} has a shape that NumPy does not support: {error}") from None
