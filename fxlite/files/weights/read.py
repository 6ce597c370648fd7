"""``fx.load_weights``: reads arrays by name from any file of weights.

In: a path. The contents of the file determine how it is read, whatever its name: safetensors, files of ``torch.save``,
GGUF, NumPy's ``.npz``, or the index (``.json``) of a model in several files, which must be next to it. Out: a dict from
name to array. Nothing in a file is executed.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base import outside_text
from fxlite.base.checked import checked
from fxlite.base.errors import FileFormatError, OptionError
from fxlite.files.archive import load_limit
from fxlite.files.serialize import load_safetensors
from fxlite.files.weights.entry import Array, Entry, MappedFile, shaped, shown
from fxlite.files.weights.gguf import MAGIC, read_gguf
from fxlite.files.weights.torch_file import LEGACY, read_torch
from fxlite.types import dtypes

_MOST_INDEX = 100 << 20  # bytes


@checked
def load_weights(path: str | os.PathLike[str]) -> dict[str, Array]:
    """Read a file of weights as a dict from name to array: ``.safetensors``, ``.pt``/``.pth``/``.bin`` of torch,
    ``.gguf``, ``.npz``, or the index of a model in several files (``….index.json``).

    The arrays are read-only and stay in the file, which is mapped and must not be written to meanwhile. However,
    blocks of GGUF's quantized types become float32, and compressed members of an ``.npz`` are unpacked.
    ``model.load_state_dict(path)`` copies the arrays into a model.

    Raises FileNotFoundError, and FileFormatError for a file that has another format, is damaged, or, for torch's files,
    contains anything but tensors and containers: code in a file is never executed."""
    return {entry.name: entry.load() for entry in weight_entries(path)}


def weight_entries(path: str | os.PathLike[str]) -> list[Entry]:
    """The entries of a file of weights, in order. Raises what :func:`load_weights` raises."""
    name = os.fspath(path)
    if name.endswith(".json"):
        return _of_index(Path(name))
    file = MappedFile(path)
    start = bytes(file.bytes[:16])
    if start.startswith(MAGIC):
        entries = read_gguf(file)
    elif start.startswith(LEGACY):
        entries = read_torch(file)
    elif start.startswith(b"PK\x03\x04"):
        entries = _of_archive(file)
    elif start.startswith(b"\x80") and b"}" in start[:8]:
        raise FileFormatError(
            f"{name} is a pickle, but not one of torch.save; other pickles are not read, because they run code"
        )
    else:
        entries = [_entry(key, array) for key, array in load_safetensors(path, mapped=True).items()]
    if len({entry.name for entry in entries}) < len(entries):
        raise file.damaged("two arrays have the same name")
    return entries


def _entry(name: str, array: Array) -> Entry:
    known = dtypes.BY_NUMPY.get(array.dtype)
    return Entry(name, known.name if known else array.dtype.name, array.shape, array.nbytes, lambda: array)


# -- several files ---------------------------------------------------------------------------------
def _of_index(path: Path) -> list[Entry]:
    """The entries of the files that an index names: ``{"weight_map": {name: file}}``. The files must be next to the
    index. Raises FileFormatError."""
    if path.stat().st_size > _MOST_INDEX:
        raise FileFormatError(f"{path} is too large for an index of weights")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not an index of weights: {shown(str(error))}") from None
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise FileFormatError(f'{path} is not an index of weights: it has no "weight_map" from names to files')
    found: dict[str, dict[str, Entry]] = {}
    for shard in dict.fromkeys(places.values()):
        if Path(shard).name != shard or shard == ".." or "\\" in shard or "\0" in shard or shard.endswith(".json"):
            raise FileFormatError(f"{path} is refused: {shown(repr(shard))} is not the name of a file beside it")
        if not os.path.isfile(path.parent / shard):  # False for a name that is too long, too
            raise FileFormatError(f"{path} names the file {shown(shard)}, which is not beside it")
        found[shard] = {entry.name: entry for entry in weight_entries(path.parent / shard)}
    missing = [name for name, shard in places.items() if outside_text.line(name) not in found[shard]]
    if missing:
        raise FileFormatError(f"{path}: {shown(missing[0])} is not in {shown(places[missing[0]])}")
    return [found[shard][outside_text.line(name)] for name, shard in places.items()]


# -- archives --------------------------------------------------------------------------------------
def _of_archive(file: MappedFile) -> list[Entry]:
    """The entries of an archive of torch tensors or NumPy arrays."""
    members = file.members()
    if any(name.endswith("/data.pkl") for name in members) or not all(name.endswith(".npy") for name in members):
        return read_torch(file)
    unpacked, limit = sum(info.file_size for info in members.values()), max(load_limit(), 8 * file.size)
    if unpacked > limit:
        raise FileFormatError(f"{file.name} is refused: unpacked it would have {unpacked:,} bytes")
    return [_npy(file, name, info) for name, info in members.items()]


def _npy(file: MappedFile, member: str, info: Any) -> Entry:
    """An array of an ``.npz`` file; uncompressed arrays stay in the file."""
    name = outside_text.line(member.removesuffix(".npy"))
    packed = info.compress_type != 0
    if packed and info.file_size > max(load_limit(), file.size):
        file.unpacked(info)  # raises the error
    start = 0 if packed else file.place(info)
    stream = io.BytesIO(file.unpacked(info) if packed else file.bytes[start : start + min(info.file_size, 20_000)])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except Exception as error:  # including those of Python's tokenizer and parser
        raise file.damaged(f"{member}: {error}") from None
    if dtype.hasobject or dtype.newbyteorder("=") not in dtypes.BY_NUMPY:
        raise FileFormatError(f"{file.name}: {shown(name)} has dtype {dtype}, which no weight has")
    count, behind = 1, stream.tell()
    for size in shape:
        count *= size
    if behind + count * dtype.itemsize != info.file_size:
        raise file.damaged(f"{member} has {info.file_size:,} bytes, and not those of {dtype}{list(shape)}")

    def load() -> Array:
        if packed:
            flat = np.frombuffer(file.unpacked(info), dtype, count, behind) if count else np.empty(0, dtype)
        else:
            flat = file.array(dtype, count, start + behind, name)
        made = shaped(flat, shape[::-1], name, file).T if is_fortran else shaped(flat, shape, name, file)
        return made if dtype.isnative else made.astype(dtype.newbyteorder("="))

    return Entry(name, dtypes.BY_NUMPY[dtype.newbyteorder("=")].name, shape, count * dtype.itemsize, load)


# -- into a module ---------------------------------------------------------------------------------
def state_of(given: Any, rename: Any) -> Mapping[str, Any]:
    """The argument of ``load_state_dict`` as arrays by the module's names. A path is read, and ``rename`` (a function
    on names, or a dict of those that differ) gives the module's name for the one in the file. Raises OptionError if
    two arrays get the same name."""
    state: Mapping[str, Any] = load_weights(given) if isinstance(given, (str, os.PathLike)) else given
    if rename is None:
        return state
    new = rename if callable(rename) else lambda name: rename.get(name, name)
    made: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, array in state.items():
        key = new(name)
        if key is None:
            continue
        if key in made:
            raise OptionError(f"rename= gives {origin[key]!r} and {name!r} one name, {key!r}")
        made[key], origin[key] = array, name
    return made
