"""Weights of GGUF files, as llama.cpp writes them.

In: a file of version 2 or 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Out: entries. Floats stay in
the mapped file, and quantized blocks become float32 when an array is requested. Shapes are in NumPy's order: the dims
in the file, the first of which varies fastest, reversed.

A block has 32 numbers (256 in K types) and its own scales. The meaning of its bytes is defined in ggml-quants.c,
``dequantize_row_*``. q is a number of the block; d and m are its float16 scale and minimum::

    q4_0  d, 16 bytes of two q             (q - 8) d
    q4_1  d, m, 16 bytes                   q d + m
    q5_0  d, 4 bytes of fifth bits, 16     (q - 16) d
    q5_1  d, m, 4 bytes, 16                q d + m
    q8_0  d, 32 signed bytes               q d
    q4_K  d, m, 12 bytes of 6-bit scales and minima of 8 parts, 128     q d s - m t
    q5_K  d, m, 12 bytes, 32 of fifth bits, 128                        q d s - m t
    q6_K  128 bytes of 4 bits, 64 of 2 bits, 16 signed scales, d       (q - 32) d s
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from fxlite.base import outside_text
from fxlite.base.errors import FileFormatError
from fxlite.files.weights.entry import Array, Entry, MappedFile, shaped, shown

MAGIC = b"GGUF"
_LONGEST = 1 << 16  # bytes of a name
#: Sizes of numbers in the metadata, by type; 8 is a text, 9 an array.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _ARRAY = 8, 9


@dataclass(frozen=True)
class _Form:
    """How numbers of a type are stored: ``count`` numbers take ``nbytes`` together. ``plain`` is their NumPy dtype,
    or None if ``decode`` converts [blocks, nbytes] bytes to [blocks, count] float32."""

    name: str
    count: int
    nbytes: int
    plain: np.dtype[Any] | None = None
    decode: Callable[[Array], Array] | None = None


# -- blocks ----------------------------------------------------------------------------------------
def _half(blocks: Array, start: int) -> Array:
    """The float16 at a position in bytes of each block, as float32 [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: Array) -> Array:
    """The lower halves of bytes, followed by the upper ones, along the last axis."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth_bits(blocks: Array, start: int) -> Array:
    """32 bits of each block, as the numbers 0 and 16."""
    return np.unpackbits(blocks[:, start : start + 4], axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Array) -> Array:
    return (_nibbles(blocks[:, 2:]).astype(np.float32) - 8) * _half(blocks, 0)


def _q4_1(blocks: Array) -> Array:
    return _nibbles(blocks[:, 4:]).astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Array) -> Array:
    return ((_nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).astype(np.float32) - 16) * _half(blocks, 0)


def _q5_1(blocks: Array) -> Array:
    number = (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)).astype(np.float32)
    return number * _half(blocks, 0) + _half(blocks, 2)


def _q8_0(blocks: Array) -> Array:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32) * _half(blocks, 0)


def _parts(blocks: Array) -> tuple[Array, Array]:
    """The scales and minima of the 8 parts of a K block, [blocks, 8, 1]. The upper two bits of the last four are in
    the bytes of the first four."""
    low, high, both = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([low & 63, (both & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([high & 63, (both >> 4) | (high >> 6 << 4)], axis=1)
    scaled = _half(blocks, 0) * scales.astype(np.float32), _half(blocks, 2) * minima.astype(np.float32)
    return scaled[0][:, :, None], scaled[1][:, :, None]


def _q4_k(blocks: Array) -> Array:
    scale, least = _parts(blocks)
    number = _nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return (number.astype(np.float32) * scale - least).reshape(-1, 256)


def _q5_k(blocks: Array) -> Array:
    scale, least = _parts(blocks)
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None] & 1) << 4
    number = (_nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32) | fifth).astype(np.float32)
    return np.asarray(number * scale - least).reshape(-1, 256)


def _q6_k(blocks: Array) -> Array:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    number = (low | high << 4).astype(np.float32) - 32
    scale = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32) * _half(blocks, 208)
    return np.asarray(number.reshape(-1, 16, 16) * scale[:, :, None]).reshape(-1, 256)


_FORMS = {
    0: _Form("f32", 1, 4, np.dtype("<f4")),
    1: _Form("f16", 1, 2, np.dtype("<f2")),
    2: _Form("q4_0", 32, 18, decode=_q4_0),
    3: _Form("q4_1", 32, 20, decode=_q4_1),
    6: _Form("q5_0", 32, 22, decode=_q5_0),
    7: _Form("q5_1", 32, 24, decode=_q5_1),
    8: _Form("q8_0", 32, 34, decode=_q8_0),
    12: _Form("q4_K", 256, 144, decode=_q4_k),
    13: _Form("q5_K", 256, 176, decode=_q5_k),
    14: _Form("q6_K", 256, 210, decode=_q6_k),
    24: _Form("i8", 1, 1, np.dtype("i1")),
    25: _Form("i16", 1, 2, np.dtype("<i2")),
    26: _Form("i32", 1, 4, np.dtype("<i4")),
    27: _Form("i64", 1, 8, np.dtype("<i8")),
    28: _Form("f64", 1, 8, np.dtype("<f8")),
    30: _Form("bf16", 1, 2, np.dtype(ml_dtypes.bfloat16)),
}


# -- the file --------------------------------------------------------------------------------------
class _Header:
    """Reads numbers and texts in sequence."""

    def __init__(self, file: MappedFile) -> None:
        self.file, self.place = file, len(MAGIC)

    def skip(self, count: int) -> None:
        self.place += count
        if not 0 <= self.place <= self.file.size:
            raise self.file.damaged("its header is incomplete")

    def number(self, form: str) -> int:
        start = self.place
        self.skip(struct.calcsize(f"<{form}"))
        return int(struct.unpack(f"<{form}", self.file.bytes[start : self.place])[0])

    def text(self) -> str:
        length = self.number("Q")
        start = self.place
        self.skip(min(length, 1 << 62))
        if length > _LONGEST:
            return ""  # not a name, but a document, such as a chat template
        return bytes(self.file.bytes[start : self.place]).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> int | None:
        """Skip a value of the metadata; an integer is returned."""
        if kind == _TEXT:
            self.text()
        elif kind == _ARRAY and depth < 8:
            inner, count = self.number("I"), self.number("Q")
            if inner in _SIZES:
                self.skip(min(count * _SIZES[inner], 1 << 62))
            else:
                for _ in range(count):
                    self.value(inner, depth + 1)
        elif kind == 4:
            return self.number("I")
        elif kind in _SIZES:
            self.skip(_SIZES[kind])
        else:
            raise self.file.damaged(f"a value of the unknown type {kind}")
        return None


def read_gguf(file: MappedFile) -> list[Entry]:
    """The tensors of a GGUF file. Raises FileFormatError."""
    header = _Header(file)
    version = header.number("I")
    if version not in (2, 3):
        raise FileFormatError(f"{file.name} is a GGUF file of version {version}; versions 2 and 3 are read")
    count, facts = header.number("Q"), header.number("Q")
    alignment = 32
    for _ in range(facts):
        name = header.text()
        value = header.value(header.number("I"))
        if name == "general.alignment" and value is not None:
            alignment = value
    if not 0 < alignment <= 1 << 20:
        raise file.damaged(f"its arrays are aligned to {alignment} bytes")
    found = [_described(header) for _ in range(count)] if count * 24 <= file.size else None
    if found is None:
        raise file.damaged(f"{count:,} tensors cannot be in {file.size:,} bytes")
    start = -(-header.place // alignment) * alignment
    entries = [_entry(name, shape, kind, start + offset, file) for name, shape, kind, offset in found]
    if sum(entry.nbytes for entry in entries) > file.size:
        raise file.damaged("its tensors have more bytes than the file")
    return entries


def _described(header: _Header) -> tuple[str, tuple[int, ...], int, int]:
    """The name, shape, type and offset of the next tensor."""
    name = header.text()
    rank = header.number("I")
    if not name or rank > 32:
        raise header.file.damaged(f"a tensor {shown(name)!r} of {rank} axes")
    shape = tuple(header.number("Q") for _ in range(rank))[::-1]
    return outside_text.line(name), shape, header.number("I"), header.number("Q")


def _entry(name: str, shape: tuple[int, ...], kind: int, start: int, file: MappedFile) -> Entry:
    form = _FORMS.get(kind)
    if form is None:
        raise FileFormatError(
            f"{file.name}: {shown(name)} is stored as ggml type {kind}, which is not read; known are "
            f"{', '.join(f.name for f in _FORMS.values())}"
        )
    count = math.prod(shape)
    if count % form.count or (shape and shape[-1] % form.count):
        raise file.damaged(f"{name}{list(shape)} does not divide into blocks of {form.count}")
    nbytes = count // form.count * form.nbytes
    file.array(np.dtype("u1"), nbytes, start, name)
    return Entry(name, form.name, shape, nbytes, functools.partial(_loaded, form, count, start, shape, name, file))


def _loaded(form: _Form, count: int, start: int, shape: tuple[int, ...], name: str, file: MappedFile) -> Array:
    if form.decode is None:
        assert form.plain is not None
        return shaped(file.array(form.plain, count, start, name), shape, name, file)
    blocks = file.array(np.dtype("u1"), count // form.count * form.nbytes, start, name)
    with np.errstate(all="ignore"):  # a scale may be infinite
        numbers = form.decode(blocks.reshape(-1, form.nbytes)).reshape(-1)
    return shaped(numbers, shape, name, file)
