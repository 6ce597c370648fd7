"""What tells one compiled program from another: the key under which it is kept.

In: a traced module and the options of the back end. Out: a digest of everything that decides what
compiling makes of it: the graph with types, scopes and places in the user's program; every byte of
the weights; the options; fxlite's own source; compiler, flags and processor.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fxlite
from fxlite.base.errors import FxliteError
from fxlite.base.state import paused_gc
from fxlite.codegen.runtime.kept import fingerprint
from fxlite.codegen.runtime.target import compile_flags, cpu_identity
from fxlite.codegen.runtime.toolchain import find_compiler, usable_cpus
from fxlite.files.archive import release
from fxlite.files.serialize import collect_weights, describe_module
from fxlite.graph.graph_module import GraphModule
from fxlite.ops.op import Op

Array = np.ndarray[Any, Any]
_IMPORT_SECONDS = 5  # what importing fxlite takes at most
_PIECE = 1 << 23  # bytes that one thread digests at a time


def program_key(module: GraphModule, options: Mapping[str, Any]) -> str | None:
    """The key, or None for a program that must be compiled anew: it calls ops of the user, whose
    code is not looked at, or holds what cannot be written down; or fxlite's source was edited while
    this process was running; or there is no compiler."""
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
    except (FxliteError, TypeError, ValueError):  # compiling says what is wrong
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
    """A digest of the elements of arrays, one after another, in C order. Pages of files that are
    mapped leave this process's memory again."""

    def digest(piece: Array) -> bytes:
        found = fingerprint(piece)
        release(piece)
        return found

    with ThreadPoolExecutor(usable_cpus()) as pool:  # ctypes calls without the GIL
        return hashlib.sha256(b"".join(pool.map(digest, _pieces(arrays)))).digest()


def _pieces(arrays: Iterable[Array]) -> Iterator[Array]:
    for array in arrays:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for start in range(0, max(data.size, 1), _PIECE):
            yield data[start : start + _PIECE]


def _calls_own_ops(module: GraphModule) -> bool:
    """Whether all ops are fxlite's, here and in the modules it calls."""
    for each in module.modules():
        if isinstance(each, GraphModule):
            ops = {n.target for n in each.graph.nodes if isinstance(n.target, Op)}
            if not all(map(_is_own, ops)):
                return False
    return True


def _is_own(op: Op) -> bool:
    """False for ops that a user registered, and for functions under ``fx.wrap``."""
    return type(op) is Op and op.reference.__module__.startswith("fxlite.")


@cache
def _source_identity() -> str | None:
    """A digest of names, sizes and times of fxlite's files; None if one is newer than the import of
    fxlite, so that what runs may be an older one."""
    facts: list[tuple[str, int, int]] = []
    for folder, _, names in os.walk(Path(fxlite.__file__).parent, followlinks=True):
        for name in names:
            if name.endswith((".py", ".h", ".c")):
                found = os.stat(os.path.join(folder, name))
                if found.st_mtime > fxlite.IMPORTED_AT - _IMPORT_SECONDS:
                    return None
                facts.append((os.path.join(folder, name), found.st_size, found.st_mtime_ns))
    return hashlib.sha256(repr(sorted(facts)).encode()).hexdigest()
