"""Digests of large arrays, at the speed at which memory is read.

In: bytes in memory. Out: a digest of all of them. A C function reduces each KiB to 32 bytes (see
fingerprint.c), of which SHA-256 is taken. It is meant to find changes, not to withstand attacks.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from fxlite.codegen.runtime.abi import Array
from fxlite.codegen.runtime.build import build_shared

_LITTLE = 1 << 20  # bytes that SHA-256 takes half a millisecond for
_BLOCK, _DIGEST, _KEY_WORDS = 1024, 4, 304  # bytes; words of 64 bits and of 32, as in the C file


def fingerprint(data: Array) -> bytes:
    """32 bytes that differ, in all likelihood, where the bytes or their number do. The elements of
    ``data`` are bytes; little data goes to SHA-256 itself.

    Raises CompilerNotFound and BuildError where the C function cannot be built."""
    if data.size < _LITTLE:
        return hashlib.sha256(data.data).digest()
    digests = np.empty((-(-data.size // _BLOCK), _DIGEST), np.uint64)
    key = _key()
    _function()(data.ctypes.data, data.size, key.ctypes.data, digests.ctypes.data)
    whole = hashlib.sha256(data.size.to_bytes(8, "little"))
    whole.update(digests.data)
    return whole.digest()


@cache
def _key() -> Array:
    return np.frombuffer(hashlib.shake_128(b"fxlite").digest(4 * _KEY_WORDS), np.uint32)


@cache
def _function() -> Any:
    source = files("fxlite.codegen.runtime").joinpath("fingerprint.c").read_text(encoding="utf-8")
    library = build_shared({"fingerprint.c": source}, "fingerprint.so")
    function = ctypes.CDLL(str(library)).fingerprint
    pointer = ctypes.c_void_p
    function.argtypes, function.restype = [pointer, ctypes.c_int64, pointer, pointer], None
    return function
