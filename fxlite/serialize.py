"""Saving graphs as data: one ``.fxl`` file holds the graph as JSON and the weights as safetensors.

In: a GraphModule. Out: a file, or bytes for pickle; and back, the identical graph: names, order,
types, scope, loc, meta, tied weights. Loading traces nothing and runs no code from the file: names
must be identifiers, ops must be in the registry, and the graph is linted.

A ``.fxl`` file is a zip archive of ``graph.json`` (below) and ``weights.safetensors``::

    {"format": "fxlite", "version": 1, "name": ..., "training": ...,
     "weights": {path: {"kind": "parameter" | "buffer", "same_as": path}},
     "scopes": [[path, class]], "locations": [[file, line, function, expression]],
     "nodes": [{"name", "op", "target", "args", "kwargs", "type", "scope", "loc", "meta"}]}
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fxlite.errors import FileFormatError, FxliteError
from fxlite.graph import OPCODES, Graph, Node
from fxlite.graph_module import GraphModule
from fxlite.json_values import decode, encode
from fxlite.location import Location, Scope
from fxlite.nn.module import Module, Parameter
from fxlite.op import Op, lookup

VERSION = 1
_GRAPH, _WEIGHTS = "graph.json", "weights.safetensors"


# -- safetensors -----------------------------------------------------------------------------------
def load_safetensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """name -> array, writable. bfloat16 arrays have ml_dtypes' dtype.

    Raises FileNotFoundError, and FileFormatError for a file that is not safetensors."""
    return _arrays(Path(path).read_bytes(), os.fspath(path))


def _arrays(data: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file. (The library's NumPy reader knows no bfloat16.)"""
    from safetensors import deserialize

    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise FileFormatError(f"{name} is not a safetensors file: {error}") from None
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, tensor in tensors:
        if tensor["dtype"] not in _DTYPES:
            raise FileFormatError(f"{name}: {key} has dtype {tensor['dtype']}, which NumPy lacks")
        flat = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
        arrays[key] = flat.reshape(tensor["shape"]).copy()
    return arrays


_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_), "BF16": np.dtype(ml_dtypes.bfloat16), "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32), "F64": np.dtype(np.float64), "U8": np.dtype(np.uint8),
    "U16": np.dtype(np.uint16), "U32": np.dtype(np.uint32), "U64": np.dtype(np.uint64),
    "I8": np.dtype(np.int8), "I16": np.dtype(np.int16), "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64), "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip


def save_safetensors(arrays: dict[str, np.ndarray[Any, Any]], path: str | os.PathLike[str]) -> None:
    """Write name -> array, as ``model.state_dict()`` gives it."""
    Path(path).write_bytes(_weights_bytes(arrays))


def _weights_bytes(arrays: dict[str, Any]) -> bytes:
    from safetensors.numpy import save as to_bytes

    return bytes(
        to_bytes({k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in arrays.items()})
    )


# -- a whole module --------------------------------------------------------------------------------
def save(gm: GraphModule, path: str | os.PathLike[str]) -> None:
    """Write ``gm`` to one ``.fxl`` file.

    Raises FileFormatError for a graph that calls leaf modules, whose code cannot be stored as data.
    Entries of ``node.meta`` that JSON cannot hold are left out, with a warning that names them."""
    Path(path).write_bytes(to_bytes(gm))


def load(path: str | os.PathLike[str]) -> GraphModule:
    """Read a ``.fxl`` file. Raises FileNotFoundError, and FileFormatError for a file that is not
    one, is damaged, or comes from a newer version."""
    return from_bytes(Path(path).read_bytes(), os.fspath(path))


def load_if_saved(root: Any) -> Any:
    """A path that ends in ``.fxl`` loaded; anything else as it is."""
    if isinstance(root, (str, os.PathLike)):
        path = os.fspath(root)
        if not path.endswith(".fxl"):
            raise FileFormatError(
                f"{path!r} is not a .fxl file; give a model, or a file from fx.save"
            )
        return load(path)
    return root


def to_bytes(gm: GraphModule) -> bytes:
    """The contents of a ``.fxl`` file."""
    arrays, weights = _collect_weights(gm)
    content = _describe(gm) | {"weights": weights}
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        archive.writestr(_entry(_GRAPH), text, zipfile.ZIP_DEFLATED, 1)
        archive.writestr(_entry(_WEIGHTS), _weights_bytes(arrays), zipfile.ZIP_STORED)
    return target.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name)  # with the fixed date 1980: equal graphs give equal files


def from_bytes(data: bytes, name: str = "the data") -> GraphModule:
    """The module from :func:`to_bytes`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            content = json.loads(archive.read(_GRAPH))
            _check_header(content, name)
            arrays = _arrays(archive.read(_WEIGHTS), name)
        return _rebuild(content, arrays)
    except FileFormatError:
        raise
    except zipfile.BadZipFile:
        raise FileFormatError(f"{name} is not a .fxl file, or it is damaged") from None
    except FxliteError as error:
        raise FileFormatError(f"{name} holds an invalid graph: {error}") from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{name} is damaged or not a .fxl file: {what}") from error


def _check_header(content: Any, name: str) -> None:
    if not isinstance(content, dict) or content.get("format") != "fxlite":
        raise FileFormatError(f"{name} is an archive, but not one of fxlite")
    version = content.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise FileFormatError(
            f"{name} has format version {version}, this fxlite reads up to {VERSION}: upgrade it"
        )


# -- writing ---------------------------------------------------------------------------------------
def _collect_weights(gm: GraphModule) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays to store, and for every path its kind and, for tied ones, the path it shares."""
    arrays: dict[str, Any] = {}
    weights: dict[str, Any] = {}
    first: dict[Any, str] = {}
    for path, module in gm.named_modules(remove_duplicate=False):
        dot = f"{path}." if path else ""
        for kind, group in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, value in group.items():
                entry: dict[str, Any] = {"kind": kind}
                if isinstance(value, Parameter) and not value.requires_grad:
                    entry["requires_grad"] = False
                if name in module._non_persistent:
                    entry["persistent"] = False
                weights[dot + name] = entry
                if value is None:
                    entry["none"] = True
                    continue
                memory = value.__array_interface__["data"][0]
                key = (memory, value.shape, value.strides, value.dtype) if value.size else id(value)
                if first.setdefault(key, dot + name) != dot + name:
                    entry["same_as"] = first[key]
                else:
                    arrays[dot + name] = np.asarray(value)
    return arrays, weights


def _describe(gm: GraphModule) -> dict[str, Any]:
    scopes: dict[Scope, int] = {}
    places: dict[Location, int] = {}
    dropped: list[str] = []
    nodes = []
    for node in gm.graph.nodes:
        if node.op == "call_module":
            raise FileFormatError(
                f"{node.describe()} calls the leaf module self.{node.target}, whose code cannot be "
                f"saved as data; trace without leaf="
            )
        entry: dict[str, Any] = {"name": node.name, "op": node.op}
        entry["target"] = node.target.name if isinstance(node.target, Op) else node.target
        entry["args"] = [encode(a) for a in node.args]
        if node.kwargs:
            entry["kwargs"] = {k: encode(v) for k, v in node.kwargs.items()}
        if node.type is not None:
            entry["type"] = encode(node.type)
        if node.scope is not None:
            entry["scope"] = scopes.setdefault(node.scope, len(scopes))
        if node.loc is not None:
            entry["loc"] = places.setdefault(node.loc, len(places))
        meta = _encode_meta(node, dropped)
        if meta:
            entry["meta"] = meta
        nodes.append(entry)
    if dropped:
        more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
        warnings.warn(f"not saved: {', '.join(dropped[:5])}{more}", stacklevel=4)
    return {
        "format": "fxlite", "version": VERSION, "name": gm.name, "training": gm.training,
        "scopes": [[s.path, s.class_name] for s in scopes],
        "locations": [[p.file, p.line, p.function, p.expression] for p in places], "nodes": nodes,
    }  # fmt: skip


def _encode_meta(node: Node, dropped: list[str]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    for key, value in node.meta.items():
        try:
            if not isinstance(key, str):
                raise TypeError
            meta[key] = encode(value)
        except TypeError:
            dropped.append(f"meta[{key!r}] of {node.name} ({type(value).__name__})")
    return meta


# -- reading ---------------------------------------------------------------------------------------
def _rebuild(content: dict[str, Any], arrays: dict[str, Any]) -> GraphModule:
    holder = _weights(content["weights"], arrays)
    scopes = [Scope(_line(path), _line(name)) for path, name in content["scopes"]]
    places = [
        Location(resolved=(_line(file), int(line), _line(function), str(expression)))
        for file, line, function, expression in content["locations"]
    ]
    owner = Module()
    graph = Graph(owner)
    nodes: dict[str, Node] = {}
    for entry in content["nodes"]:
        name, op, target = entry["name"], entry["op"], entry["target"]
        _check_names(name, op, target)
        args = tuple(decode(a, nodes) for a in entry["args"])
        kwargs = {k: decode(v, nodes) for k, v in entry.get("kwargs", {}).items()}
        scope, loc = entry.get("scope"), entry.get("loc")
        graph.current_origin = (
            None if scope is None else scopes[scope],
            None if loc is None else places[loc],
        )
        stored = decode(entry["type"], nodes) if "type" in entry else None
        function = lookup(target) if op == "call_function" else target
        graph.owning_module = None  # types come from the file, and lint compares them
        node = graph.create_node(op, function, args, kwargs, name, stored)
        if node.name != name:
            raise FileFormatError(f"the name {name!r} is used twice or not allowed")
        node.meta = {k: decode(v, nodes) for k, v in entry.get("meta", {}).items()}
        nodes[name] = node
    graph.current_origin = None
    gm = GraphModule(holder, graph, str(content["name"]))
    for path, entry in content["weights"].items():
        if entry.get("persistent") is False:
            parent = gm.get_submodule(path.rpartition(".")[0])
            parent._non_persistent.add(path.rpartition(".")[2])
    gm.training = bool(content["training"])
    graph.lint()
    _check_weight_types(gm)
    return gm


def _weights(entries: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
    holder: dict[str, Any] = {}
    for path, entry in entries.items():
        _check_path(path)
        if entry.get("none"):
            holder[path] = None
            continue
        value = arrays[entry.get("same_as", path)]
        if "same_as" in entry and entry["kind"] == entries[entry["same_as"]]["kind"]:
            holder[path] = holder[entry["same_as"]]
        elif entry["kind"] == "parameter":
            holder[path] = Parameter(value, entry.get("requires_grad", True))
        else:
            holder[path] = value
    return holder


def _check_names(name: Any, op: Any, target: Any) -> None:
    """Names end in the regenerated source, so they must be what they seem to be."""
    if op not in OPCODES or op == "call_module":
        raise FileFormatError(f"unknown opcode {op!r}")
    if not isinstance(name, str) or not name.isidentifier():
        raise FileFormatError(f"{name!r} cannot be the name of a value")
    if op == "placeholder" and not (isinstance(target, str) and target.isidentifier()):
        raise FileFormatError(f"{target!r} cannot be the name of an input")
    if op == "get_attr":
        _check_path(target)


_RESERVED = frozenset(Module().__dict__) | {"_graph", "_code", "_forward", "_signature", "_ledger"}


def _check_path(path: Any) -> None:
    parts = path.split(".") if isinstance(path, str) else [""]
    for part in parts:
        if not (part.isidentifier() or part.isdigit()) or part in _RESERVED:
            raise FileFormatError(f"{path!r} cannot be the path of a weight")


def _line(value: Any) -> str:
    """Text for comments, which must stay on one line."""
    return " ".join(str(value).split())


def _check_weight_types(gm: GraphModule) -> None:
    from fxlite.types import type_of

    for node in gm.graph.find_nodes(op="get_attr"):
        actual = type_of(gm.get_attribute(node.target))
        if node.type is not None and actual != node.type:
            raise FileFormatError(
                f"the weight {node.target} is {actual}, the graph says {node.type}"
            )
