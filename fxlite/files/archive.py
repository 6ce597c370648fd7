"""The archive format of ``.fxl`` files: three members, which are read within limits.

In: bytes that other people may have made. Out: the graph's JSON and the bytes of the weights, whose digests match those
in the file. An archive with other contents, or with more data than the limit after unpacking, is rejected before memory
is allocated for it. ``docs/file_format.md`` describes the format.

Weights in a separate safetensors file are mapped: the system reads a page when it is first accessed, shares it between
processes, and may discard it. :func:`release` discards pages at once, for weights that are only read once.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import mmap
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fxlite.base import outside_text
from fxlite.base.errors import FileFormatError
from fxlite.base.outside_text import line, lines

#: The entry in the header of a safetensors file for texts that mean nothing to the format.
NOTES = "__metadata__"
MANIFEST, GRAPH, WEIGHTS = "manifest.json", "graph.json", "weights.safetensors"
#: The version that is written. A reader refuses a newer major version, and leaves out entries of a newer
#: minor version that it does not know.
VERSION, MINOR = 3, 1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # unpacking others may take gigabytes
_DEFAULT_LIMIT = 256.0  # megabytes, 2.5 million nodes
LIMIT_VARIABLE = "FXLITE_LOAD_LIMIT"


def load_limit() -> float:
    """The number of bytes that an unpacked member may have, unless the file itself is as large: ``FXLITE_LOAD_LIMIT``
    megabytes (256 if it is not set, 0 for no limit)."""
    try:
        megabytes = float(os.environ.get(LIMIT_VARIABLE, _DEFAULT_LIMIT))
    except ValueError:
        megabytes = _DEFAULT_LIMIT
    return megabytes * 1e6 if megabytes > 0 else math.inf


def pack(content: dict[str, Any], weights: bytes, writer: str = "fxlite") -> bytes:
    """The archive as bytes. Raises FileFormatError for texts that :func:`unpack` would reject."""
    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    except RecursionError:
        raise FileFormatError("the graph cannot be saved: a value is nested too deeply") from None
    if "\\" in text:
        _check_texts(content, "the graph cannot be saved")
    target = io.BytesIO()
    graph = text.encode()
    manifest = {
        "format": "fxlite",
        "version": VERSION,
        "minor": MINOR,
        "writer": writer,
        "sha256": {GRAPH: _digest(graph), WEIGHTS: _digest(weights)},
    }
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr(_entry(MANIFEST), f"{json.dumps(manifest, indent=1)}\n")
        archive.writestr(_entry(GRAPH), graph, zipfile.ZIP_DEFLATED, 1)
        archive.writestr(_entry(WEIGHTS), weights, zipfile.ZIP_STORED)
    return target.getvalue()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # the date is always 1980, so that equal graphs give equal files
    entry.create_system = 3  # the same on all systems
    return entry


def unpack(data: bytes, name: str) -> tuple[Any, bytes, dict[str, Any]]:
    """The JSON of the graph, the bytes of the weights, and the manifest, which has ``version`` and ``minor``. Raises
    FileFormatError, and what :mod:`zipfile` raises, for a damaged archive; ``name`` is that of the file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = sorted(info.filename for info in archive.infolist())
        if found == [GRAPH, WEIGHTS]:  # versions 1 and 2
            graph, weights = (_member(archive, m, len(data), name) for m in found)
            content = _parsed(graph, name, GRAPH)
            return content, weights, _checked_header(content, name, 1, 2) | {"minor": 0}
        if not {MANIFEST, GRAPH, WEIGHTS} <= {*found} or len({*found}) < len(found):
            _refuse_members(found, name)
        manifest = _parsed(_member(archive, MANIFEST, len(data), name), name, MANIFEST)
        _checked_header(manifest, name, 3, VERSION)
        digests, minor = manifest.get("sha256"), manifest.get("minor")
        if type(minor) is not int or minor < 0 or not isinstance(digests, dict):
            raise FileFormatError(f"{name} is damaged: {MANIFEST} says no minor version or digests")
        if minor <= MINOR and len(found) > 3:
            _refuse_members(found, name)
        members = {m: _member(archive, m, len(data), name) for m in (GRAPH, WEIGHTS)}
    for member, content in members.items():
        if digests.get(member) != _digest(content):
            raise FileFormatError(
                f"{name} is damaged: the SHA-256 digest of {member} is {_digest(content)[:16]}..., "
                f"and {MANIFEST} says {outside_text.line(str(digests.get(member)))[:16]}..."
            )
    return _parsed(members[GRAPH], name, GRAPH), members[WEIGHTS], manifest


def _refuse_members(found: list[str], name: str) -> None:
    listed = outside_text.line(", ".join(found[:4])) + (", ..." if len(found) > 4 else "")
    raise FileFormatError(
        f"{name} is damaged or not a .fxl file: it must hold {MANIFEST}, {GRAPH} and {WEIGHTS}, "
        f"once each and nothing else, and holds {listed[:200] or 'nothing'}"
    )


def _checked_header(content: Any, name: str, least: int, most: int) -> dict[str, Any]:
    """The object with format and version, after checking it. Raises FileFormatError."""
    if not isinstance(content, dict) or content.get("format") != "fxlite":
        raise FileFormatError(f"{name} is an archive, but not one of fxlite")
    version = content.get("version")
    if type(version) is not int or not least <= version <= most:
        raise FileFormatError(
            f"{name} has format version {outside_text.line(str(version))[:40]}, this fxlite reads "
            f"up to {VERSION}.{MINOR}: upgrade it"
        )
    return content


def _member(archive: zipfile.ZipFile, member: str, room: int, name: str) -> bytes:
    """The bytes of a member: at most the size of the file itself, or the limit. The declared size decides, and no
    more than that is unpacked."""
    info = archive.getinfo(member)
    if info.compress_type not in _METHODS:
        raise FileFormatError(f"{name} is not a .fxl file: {member} is packed by an unsupported method")
    limit = max(load_limit(), room)
    if info.file_size > limit:
        raise FileFormatError(
            f"{name}: {member} has {info.file_size:,} bytes when it is unpacked, more than the "
            f"{limit:,.0f} that are allowed; set {LIMIT_VARIABLE} to more megabytes if you trust it"
        )
    with archive.open(info) as stream:
        return stream.read(info.file_size + 1)  # reading to the end verifies the checksum


def _parsed(graph: bytes, name: str, member: str) -> Any:
    try:
        text = graph.decode("utf-8")
        content = json.loads(text)
    except RecursionError:
        raise FileFormatError(f"{name} is damaged: {member} is nested too deeply") from None
    except ValueError as error:
        raise FileFormatError(f"{name} is damaged: {member}: {error}") from None
    if "\\" in text or not text.isascii() or not text.isprintable():
        _check_texts(content, f"{name} is refused")
    return content


def _check_texts(content: Any, what: str) -> None:
    for where, character in outside_text.forbidden_texts(content):
        raise FileFormatError(
            f"{what}: the text at {where or 'the top'} holds the character {character}, which no "
            "name, place or expression has: control characters, halves of surrogate pairs and "
            "marks that turn the direction of writing are not stored"
        )


# -- mapped weights --------------------------------------------------------------------------------
Array = np.ndarray[Any, Any]


def map_safetensors(path: str | os.PathLike[str], dtypes: dict[str, np.dtype[Any]]) -> dict[str, Array]:
    """A dict from name to a read-only array in the mapped file. ``dtypes`` maps the format's names to dtypes. Raises
    FileFormatError, and OSError if the file cannot be read.

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
            notes = header.pop(NOTES, None)
            found = {key: _place(entry, dtypes) for key, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            what = lines(f"{type(error).__name__}: {error}")[:500]
            raise FileFormatError(f"{name} is not a safetensors file: {what}") from None
        except RecursionError:
            raise FileFormatError(f"{name} is not a safetensors file: its header is nested too deeply") from None
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
            raise FileFormatError(f"{name}: {key} has a shape that NumPy does not support: {error}") from None
    return whole_numbers({key: arrays[line(key)] for key in found}, notes, name)


#: The name of the text that fxlite writes into a header.
_COMPLEX = "complex"


def real_parts(arrays: dict[str, Array]) -> tuple[dict[str, Array], dict[str, str] | None]:
    """The arrays in a form that the format supports, and texts for the header. Complex numbers, some of which only
    newer versions of the format have, are stored as real ones with an additional axis for their parts."""
    names = [name for name, array in arrays.items() if array.dtype.kind == "c"]
    parts = {n: arrays[n].reshape(*arrays[n].shape, 1).view(arrays[n].real.dtype) for n in names}
    return {**arrays, **parts}, {_COMPLEX: json.dumps(sorted(names))} if names else None


def whole_numbers(arrays: dict[str, Array], notes: Any, name: str) -> dict[str, Array]:
    """The original arrays from those of :func:`real_parts`, given the texts of the header. Raises FileFormatError."""
    text = notes.get(_COMPLEX) if isinstance(notes, dict) else None
    if text is None:
        return arrays
    try:
        made = {key: _joined(arrays[line(key)]) for key in json.loads(text)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = lines(f"{type(error).__name__}: {error}")[:500]
        raise FileFormatError(f"{name} is damaged: complex numbers: {what}") from None
    return {**arrays, **made}


def _joined(parts: Array) -> Array:
    kinds = {"float32": "complex64", "float64": "complex128"}
    if not parts.ndim or parts.shape[-1] != 2 or parts.dtype.name not in kinds:
        raise ValueError(f"{parts.dtype}{list(parts.shape)} are not the parts of complex numbers")
    return parts.view(kinds[parts.dtype.name])[..., 0]


def _place(entry: dict[str, Any], dtypes: dict[str, np.dtype[Any]]) -> tuple[np.dtype[Any], tuple[int, ...], int, int]:
    """The dtype, shape, first byte and end of one array. Raises TypeError or ValueError."""
    for key in ("data_offsets", "shape", "dtype"):
        if key not in entry:
            raise ValueError(f"an array lacks its {key}")
    if entry["dtype"] not in dtypes:
        raise ValueError(f"no dtype {entry['dtype']!r}; there are {', '.join(dtypes)}")
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
    """Discard the whole pages of a contiguous, read-only array in a mapped file: they are read from the file again
    when they are next accessed. Other arrays are not affected."""
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
