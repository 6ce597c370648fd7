"""Digests of large data: as defined, and different wherever a byte is."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from fxlite.codegen.runtime.kept import _key, fingerprint

Array = np.ndarray[Any, Any]
LARGE = (1 << 20) + 1500


def data(size: int) -> Array:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


def by_definition(array: Array) -> bytes:
    """NH with four keys, of blocks of 256 words, in NumPy's integers that wrap around."""
    padded = np.zeros(-(-array.size // 1024) * 1024, np.uint8)
    padded[: array.size] = array
    words = padded.view(np.uint32).reshape(-1, 256)
    lanes = []
    for lane in range(4):
        both = (words + _key()[16 * lane : 16 * lane + 256]).astype(np.uint64)
        lanes.append((both[:, ::2] * both[:, 1::2]).sum(axis=1, dtype=np.uint64))
    whole = array.size.to_bytes(8, "little") + np.stack(lanes, axis=1).tobytes()
    return hashlib.sha256(whole).digest()


@pytest.mark.parametrize("size", [1 << 20, LARGE, LARGE - 476])
@pytest.mark.parametrize("start", [0, 1, 12])
def test_as_defined(size: int, start: int) -> None:
    array = data(size + start)[start:]
    assert fingerprint(array) == by_definition(array)


def test_little_data() -> None:
    found = {fingerprint(data(size)) for size in (0, 1, 2, 1000, (1 << 20) - 1)}
    assert len(found) == 5


def test_every_change_is_found() -> None:
    """One bit anywhere, zeros at the end, two pieces that change places."""
    array = data(LARGE)
    found = {fingerprint(array), fingerprint(np.append(array, np.uint8(0)))}
    places = [0, 1023, 1024, 500_000, LARGE - 1]
    for place in places:
        for bit in (1, 128):
            changed = array.copy()
            changed[place] ^= bit
            found.add(fingerprint(changed))
    swapped = array.reshape(-1)[: 1 << 20].reshape(-1, 4)[::-1].ravel()
    found.add(fingerprint(np.append(swapped, array[1 << 20 :])))
    assert len(found) == 2 + 2 * len(places) + 1
