"""Compiled programs that are kept for the next process, which then plans, prints and packs nothing.

In: a traced module, the options of the back end (:func:`program_key`), and the results of a
compilation: the entry point, the shared object, the packed weights. Out: the folder ``programs/<key>``
of the cache with ``program.json`` and ``weights.bin``, published by one rename; and from it again the
entry point, the shared object, and the weights mapped from the file, so that only pages that are read
take memory, and all processes share them.

The key is a digest of everything that determines the result of compiling a program: the graph with
types, scopes and places in the user's program; every byte of the weights; the options; fxlite's own
source; compiler, flags and processor.

A file that was truncated or written to since is noticed by its size and times. If those differ because
the folder was copied, a digest of its content decides. Pages that a crash of the machine left empty are
found by samples. Damaged entries are removed and made again.

Large arrays are digested at the speed at which memory is read: a C function reduces each KiB to 32
bytes (see fingerprint.c), and SHA-256 is computed of those. It is meant to find changes, not to
withstand attacks.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import fxlite
from fxlite.base.errors import FxliteError
from fxlite.base.state import paused_gc
from fxlite.codegen.runtime.abi import ArgSpec, Array, Condition, Dim, DimText, Entry
from fxlite.codegen.runtime.build import Library, build_shared, find_library
from fxlite.codegen.runtime.cache import PROGRAMS, cache_folder, make_folder, mark_used, sealed, unsealed
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.codegen.runtime.toolchain import compile_flags, cpu_identity, find_compiler, usable_cpus
from fxlite.files.archive import release
from fxlite.files.serialize import collect_weights, describe_module
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.subgraph import nodes_inside
from fxlite.ops.op import Op

# -- digests of large arrays -----------------------------------------------------------------------
_LITTLE = 1 << 20  # bytes, for which SHA-256 takes half a millisecond
_BLOCK, _DIGEST, _KEY_WORDS = 1024, 4, 304  # bytes, 64-bit words and 32-bit words, as in the C file


def fingerprint(data: Array) -> bytes:
    """32 bytes that almost certainly differ if the bytes or their number do. The elements of ``data`` are
    bytes; small data is digested by SHA-256 alone.

    Raises CompilerNotFound and BuildError if the C function cannot be built."""
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


# -- programs --------------------------------------------------------------------------------------
_FACTS, _WEIGHTS = "program.json", "weights.bin"
_SAMPLES, _SAMPLE_BYTES, _PIECE = 256, 4096, 1 << 22


@dataclass(frozen=True)
class KeptProgram:
    """A program found in the cache. ``weights`` are mapped; changes to them stay in this process.
    ``sources`` is the digest of the C files from which it was compiled."""

    entry: Entry
    library: Library
    weights: Array
    sources: str


def digest_sources(sources: Mapping[str, str]) -> str:
    """A digest of C files, which shows whether they are those of a kept program."""
    return hashlib.sha256(json.dumps(sorted(sources.items())).encode()).hexdigest()


def find_program(key: str) -> KeptProgram | None:
    """The program with this key, if it exists and is complete."""
    folder = cache_folder() / PROGRAMS / key
    try:
        if not folder.exists() or folder.is_symlink():
            return None
        facts = unsealed((folder / _FACTS).read_text(encoding="utf-8"))
        entry = _entry(facts["entry"])
        library = find_library(facts["build"], entry, facts["openmp"])
        if library is not None and _is_intact(folder / _WEIGHTS, facts["weights"]):
            mark_used(folder)
            return KeptProgram(entry, library, _mapped(folder / _WEIGHTS), facts["sources"])
    except (OSError, ValueError, KeyError, TypeError, FxliteError):
        pass  # damaged
    shutil.rmtree(folder, ignore_errors=True)
    return None


def keep_program(key: str, entry: Entry, library: Library, weights: Array, sources: Mapping[str, str]) -> None:
    """Put a program into the cache; does nothing if the cache cannot be written or is full."""
    root = cache_folder()
    if library.path.parent.parent != root:  # it was built elsewhere, for this process only
        return
    try:
        if shutil.disk_usage(root).free < 2 * weights.nbytes:
            return
        make_folder(root / PROGRAMS)
        work = Path(tempfile.mkdtemp(prefix="work-", dir=root))
    except OSError:
        return
    try:
        with (work / _WEIGHTS).open("wb") as file:
            file.write(weights.data)
        facts = {
            "entry": _entry_data(entry),
            "build": library.path.parent.name,
            "openmp": library.openmp,
            "weights": _facts_of(work / _WEIGHTS),
            "sources": digest_sources(sources),
        }
        (work / _FACTS).write_text(sealed(facts), encoding="utf-8")
        os.rename(work, root / PROGRAMS / key)
    except (OSError, FxliteError):  # another process was faster, the disk is full, or there is no digest
        shutil.rmtree(work, ignore_errors=True)


def _mapped(path: Path) -> Array:
    """The file's bytes, mapped. Writing to them is possible and does not change the file."""
    if path.stat().st_size == 0:
        return aligned_empty(0)
    return np.memmap(path, np.uint8, "c")


# -- whether a file is what it was ---------------------------------------------------------------
def _facts_of(path: Path) -> dict[str, Any]:
    found = path.stat()
    return {
        "size": found.st_size,
        "state": _state(found),
        "samples": _sampled(path, found.st_size),
        "digest": _digest(path),
    }


def _is_intact(path: Path, facts: Mapping[str, Any]) -> bool:
    found = path.stat()
    if found.st_size != facts["size"]:
        return False
    if _state(found) != facts["state"]:
        return bool(_digest(path) == facts["digest"])
    return bool(_sampled(path, found.st_size) == facts["samples"])


def _state(found: os.stat_result) -> list[int]:
    """Numbers that change whenever a file is written to or replaced."""
    return [found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _sampled(path: Path, size: int) -> str:
    """A digest of sample pages from the whole file."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        for number in range(_SAMPLES):
            file.seek(number * size // _SAMPLES)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def _digest(path: Path) -> str:
    """A digest of a whole file: of the digests of its pieces, which several threads read."""
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(usable_cpus()) as pool:

        def digest(start: int) -> bytes:
            return fingerprint(np.frombuffer(os.pread(file.fileno(), _PIECE, start), np.uint8))

        pieces = pool.map(digest, range(0, path.stat().st_size, _PIECE))
        return hashlib.sha256(b"".join(pieces)).hexdigest()


# -- the entry point as data ---------------------------------------------------------------------
def _entry_data(entry: Entry) -> dict[str, Any]:
    def arguments(specs: tuple[ArgSpec, ...]) -> list[Any]:
        return [[s.name, s.dtype, list(map(_dim_data, s.shape))] for s in specs]

    return {
        "name": entry.name,
        "inputs": arguments(entry.inputs),
        "outputs": arguments(entry.outputs),
        "dims": entry.dims,
        "locations": entry.locations,
        "single_output": entry.single_output,
        "conditions": [[_dim_data(c.left), c.relation, _dim_data(c.right), c.reason] for c in entry.conditions],
        "note": entry.note,
        "values": [
            [v.name, v.dtype, v.itemsize, list(map(_dim_data, v.shape)), v.where, v.stored] for v in entry.values
        ],
    }


def _entry(data: Mapping[str, Any]) -> Entry:
    def arguments(specs: list[Any]) -> tuple[ArgSpec, ...]:
        return tuple(ArgSpec(name, dtype, tuple(map(_dim, dims))) for name, dtype, dims in specs)

    return Entry(
        data["name"],
        arguments(data["inputs"]),
        arguments(data["outputs"]),
        tuple(data["dims"]),
        tuple(data["locations"]),
        data["single_output"],
        tuple(Condition(_dim(a), relation, _dim(b), why) for a, relation, b, why in data["conditions"]),
        data["note"],
        tuple(
            ValueSize(name, dtype, itemsize, tuple(map(_dim, dims)), where, stored)
            for name, dtype, itemsize, dims, where, stored in data["values"]
        ),
    )


def _dim_data(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else dim.python


def _dim(data: int | str) -> Dim:
    return data if isinstance(data, int) else DimText(data)


_IMPORT_SECONDS = 5  # importing fxlite takes at most so long
_PIECE = 1 << 23  # bytes that one thread digests at a time


def program_key(module: GraphModule, options: Mapping[str, Any]) -> str | None:
    """The key, or None for a program that must be compiled again each time: it calls ops of the user,
    whose code is not examined, or contains something that cannot be serialized; or fxlite's source was
    edited while this process was running; or there is no compiler."""
    source = _source_identity()
    if source is None or not _calls_own_ops(module):
        return None
    dropped: list[str] = []
    arrays, weights = collect_weights(module)
    try:
        compiler = find_compiler()
        with paused_gc():
            graph = json.dumps(describe_module(module, dropped))
        content = digest_arrays(arrays.values()).hex()
    except (FxliteError, TypeError, ValueError):  # compiling will report the problem
        return None
    if dropped:
        return None
    facts = [
        *(graph, weights, sorted((n, repr(v)) for n, v in options.items()), source),
        *(compiler.identity, compiler.version, compile_flags(), cpu_identity()),
        *(np.__version__, sys.version, sys.byteorder),
        *(content, [(name, a.dtype.name, a.shape) for name, a in arrays.items()]),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def digest_arrays(arrays: Iterable[Array]) -> bytes:
    """A digest of the elements of arrays, one after another, in C order. Pages of mapped files are
    released from this process's memory again."""

    def digest(piece: Array) -> bytes:
        found = fingerprint(piece)
        release(piece)
        return found

    with ThreadPoolExecutor(usable_cpus()) as pool:  # ctypes releases the GIL during calls
        return hashlib.sha256(b"".join(pool.map(digest, _pieces(arrays)))).digest()


def _pieces(arrays: Iterable[Array]) -> Iterator[Array]:
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, max(data.size, 1), _PIECE):
            yield data[start : start + _PIECE]


def _calls_own_ops(module: GraphModule) -> bool:
    """Whether any op, here and in the modules it calls, is the user's."""
    for each in module.modules():
        if isinstance(each, GraphModule):
            ops = {n.target for n in nodes_inside(each.graph) if isinstance(n.target, Op)}
            if not all(map(_is_own, ops)):
                return False
    return True


def _is_own(op: Op) -> bool:
    """False for ops that a user registered, and for functions under ``fx.wrap``."""
    return type(op) is Op and op.reference.__module__.startswith("fxlite.")


@cache
def _source_identity() -> str | None:
    """A digest of names, sizes and times of fxlite's files; None if one is newer than the import of
    fxlite, so that the running code may be older."""
    facts: list[tuple[str, int, int]] = []
    for folder, _, names in os.walk(Path(fxlite.__file__).parent, followlinks=True):
        for name in names:
            if name.endswith((".py", ".h", ".c", ".txt")):
                found = os.stat(os.path.join(folder, name))
                if found.st_mtime > fxlite.IMPORTED_AT - _IMPORT_SECONDS:
                    return None
                facts.append((os.path.join(folder, name), found.st_size, found.st_mtime_ns))
    return hashlib.sha256(repr(sorted(facts)).encode()).hexdigest()
