"""Saving graphs as data: a single ``.fxl`` file has the graph as JSON and the weights as safetensors.

In: a GraphModule. Out: a file, or bytes for pickle; and back, the identical graph, with names, order, types, scopes,
locations, meta and tied weights. Loading traces nothing and runs no code from the file: names must be identifiers, ops
must be in the registry, and types must agree with the ops' rules.

A ``.fxl`` file is a zip archive of ``manifest.json`` (versions and digests, see ``archive.py``),
``weights.safetensors`` and ``graph.json``::

    {"name": ..., "training": ..., "passes": ["fuse_conv_bn", ...],
     "weights": {path: {"kind": "parameter" | "buffer", "same_as": path}},
     "graph": {see graph_data.py}, "modules": {path: {"name", "training", "graph"}}}

``modules`` are the GraphModules that the graph calls.

Files of format version 1 have one object for each node, ``{"nodes": [{"name", "op", "target", "args",
"kwargs", "type", "scope", "loc", "meta"}], ...}``, with operands by name; they are converted to the current form, which
is then checked. Files of version 2 have no manifest; its entries on the format are in ``graph.json``. Both can be read.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import fxlite
from fxlite.base import outside_text
from fxlite.base.checked import checked
from fxlite.base.console import write_whole
from fxlite.base.errors import FileFormatError, FxliteError, expect
from fxlite.base.state import paused_gc
from fxlite.files.archive import MINOR, NOTES, VERSION, map_safetensors, pack, real_parts, unpack, whole_numbers
from fxlite.files.graph_data import check_keys, check_path, describe, rebuild, skipped
from fxlite.graph.graph_module import GraphModule, passes_of, set_passes
from fxlite.nn.module import Parameter
from fxlite.types import dtypes
from fxlite.types.tensor_type import type_of


# -- format version 1 ------------------------------------------------------------------------------
def from_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a version-1 file in the form of version 2. Raises FileFormatError, or errors such as KeyError
    for other JSON."""
    calls: dict[str, int] = {}
    types: dict[str, int] = {"null": 0}
    columns: dict[str, list[Any]] = {"name": [], "call": [], "type": [], "scope": [], "loc": [], "inputs": []}
    positions: dict[str, int] = {}
    meta: dict[str, Any] = {}
    for entry in content["nodes"]:
        operands: list[str] = []
        args = _numbered(entry["args"], operands)
        kwargs = {k: _numbered(v, operands) for k, v in entry.get("kwargs", {}).items()}
        call = [entry["op"], entry["target"], args, kwargs]
        for operand in operands:
            if operand not in positions:
                raise FileFormatError(f"the value {operand!r} is used before it is computed")
        columns["inputs"] += [positions[operand] for operand in operands]
        columns["name"].append(entry["name"])
        columns["call"].append(calls.setdefault(json.dumps(call), len(calls)))
        columns["type"].append(types.setdefault(json.dumps(entry.get("type")), len(types)))
        columns["scope"].append(entry.get("scope", -1) + 1)
        columns["loc"].append(entry.get("loc", -1) + 1)
        positions[entry["name"]] = len(positions)
        if "meta" in entry:
            meta[entry["name"]] = entry["meta"]
    graph = columns | {
        "types": list(map(json.loads, types)),
        "calls": list(map(json.loads, calls)),
        "scopes": [None, *content["scopes"]],
        "locations": [None, *content["locations"]],
        "meta": meta,
    }
    return {key: content[key] for key in ("name", "training", "weights")} | {"graph": graph}


def _numbered(value: Any, operands: list[str]) -> Any:
    """``value`` with ``{"input": number}`` in place of each ``{"node": name}``; the names are appended to
    ``operands``."""
    if isinstance(value, list):
        return [_numbered(v, operands) for v in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"node"}:
        operands.append(value["node"])
        return {"input": len(operands) - 1}
    return {k: _numbered(v, operands) for k, v in value.items()}


# -- files -----------------------------------------------------------------------------------------
_KEYS = ("format", "version", "weights", "name", "training", "passes", "graph", "modules")
_WEIGHT_KEYS = ("kind", "requires_grad", "persistent", "none", "same_as")


# -- safetensors -----------------------------------------------------------------------------------
@checked
def load_safetensors(path: str | os.PathLike[str], mapped: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Read a safetensors file: a dict from name to writable array. bfloat16 arrays have the dtype of ml_dtypes.

    With ``mapped``, the arrays are read-only and stay in the file, from which they are read when they are first
    accessed. This takes no time and, with ``load_state_dict(..., assign=True)``, memory only for weights that are
    used. The file must not be written to meanwhile.

    Raises FileNotFoundError, and FileFormatError for a file that is not safetensors."""
    if mapped:
        return map_safetensors(path, _DTYPES)
    return _arrays(Path(path).read_bytes(), os.fspath(path))


def _arrays(data: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a safetensors file. (The library's NumPy reader does not support bfloat16.)"""
    from safetensors import deserialize

    try:
        tensors = deserialize(data)  # type: ignore[no-untyped-call]
    except Exception as error:
        what = _shown(str(error))
        raise FileFormatError(f"{name} is not a safetensors file: {what}") from None
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for key, tensor in tensors:
        if tensor["dtype"] not in _DTYPES:
            what = f"{outside_text.line(key)} has dtype {tensor['dtype']}"
            raise FileFormatError(f"{name}: {what}, which NumPy does not support")
        flat = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
        try:
            shaped = flat.reshape(tensor["shape"])
        except (ValueError, OverflowError) as error:
            what = f"{outside_text.line(key)} has a shape that NumPy does not support"
            raise FileFormatError(f"{name}: {what}: {error}") from None
        # a copy if the library returns bytes, which newer versions do not
        arrays[key] = np.require(shaped, requirements="W")
    length = int.from_bytes(data[:8], "little")
    return whole_numbers(arrays, json.loads(data[8 : 8 + length]).get(NOTES), name)


_DTYPES: dict[str, np.dtype[Any]] = {d.name.upper(): d.numpy for d in dtypes.ALL} | {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


@checked
def save_safetensors(arrays: dict[str, np.ndarray[Any, Any]], path: str | os.PathLike[str]) -> None:
    """Write a dict from name to array, such as ``model.state_dict()``, as a safetensors file."""
    expect(arrays, Mapping, "the saved value", "give arrays by name: model.state_dict()")
    for name, array in arrays.items():
        expect(name, str, "the name of an array")
        expect(array, (np.ndarray, np.generic, int, float), f"the array {name!r}")
    write_whole(path, _weights_bytes(arrays))


def _weights_bytes(arrays: dict[str, Any]) -> bytes:
    from safetensors.numpy import save as to_bytes

    plain = {k: np.ascontiguousarray(v).reshape(np.shape(v)) for k, v in arrays.items()}
    stored, notes = real_parts(plain)
    return bytes(to_bytes(stored, notes))


# -- a whole module --------------------------------------------------------------------------------
@checked
def save(gm: GraphModule, path: str | os.PathLike[str]) -> None:
    """Write ``gm`` to a single ``.fxl`` file.

    Entries of ``node.meta`` that JSON cannot represent are left out, with a warning that names them. Raises
    FileFormatError for a graph that calls leaf modules, whose code cannot be stored as data."""
    expect(gm, GraphModule, "the saved value", "trace it first: fx.symbolic_trace(...)")
    write_whole(path, to_bytes(gm))


@checked
def load(path: str | os.PathLike[str]) -> GraphModule:
    """Read a ``.fxl`` file. Raises FileNotFoundError, and FileFormatError for a file that is of another kind,
    damaged, or from a newer version."""
    return from_bytes(Path(path).read_bytes(), os.fspath(path))


def load_if_saved(root: Any) -> Any:
    """The module loaded from a path that ends in ``.fxl``; any other value unchanged."""
    if isinstance(root, (str, os.PathLike)):
        path = os.fspath(root)
        if not path.endswith(".fxl"):
            raise FileFormatError(f"{path!r} is not a .fxl file; give a model, or a file from fx.save")
        return load(path)
    return root


def to_bytes(gm: GraphModule) -> bytes:
    """The contents of a ``.fxl`` file."""
    arrays, weights = collect_weights(gm)
    for path in weights:
        check_path(path)
    dropped: list[str] = []
    try:
        content = describe_module(gm, dropped) | {"weights": weights}
    except RecursionError:
        raise FileFormatError("the graph cannot be saved: a value is nested too deeply") from None
    if dropped:
        more = f" and {len(dropped) - 5} more" if len(dropped) > 5 else ""
        warnings.warn(f"not saved: {', '.join(dropped[:5])}{more}", stacklevel=3)
    return pack(content, _weights_bytes(arrays), f"fxlite {fxlite.__version__}")


def from_bytes(data: bytes, name: str = "the data") -> GraphModule:
    """The module from :func:`to_bytes`."""
    try:
        with paused_gc():
            content, weights, manifest = unpack(data, name)
            if manifest["version"] == 1:
                content = from_version_1(content)
            arrays = _arrays(weights, name)
            is_newer = manifest["version"] == VERSION and manifest["minor"] > MINOR
            token = skipped.set([] if is_newer else None)
            try:
                made = _rebuild_module(content, _weights(content["weights"], arrays))
                if is_newer:
                    _warn(name, manifest["minor"], skipped.get() or [])
                return made
            finally:
                skipped.reset(token)
    except zipfile.BadZipFile:
        raise FileFormatError(f"{name} is not a .fxl file, or it is damaged") from None
    except FileFormatError as error:
        text = _shown(str(error))
        raise FileFormatError(text if text.startswith(name) else f"{name}: {text}") from error
    except FxliteError as error:
        what = _shown(str(error))
        raise FileFormatError(f"{name} holds an invalid graph: {what}") from error
    except RecursionError:
        raise FileFormatError(f"{name} is damaged: a value in it is nested too deeply") from None
    except Exception as error:
        what = _problem(error)
        raise FileFormatError(f"{name} is damaged or not a .fxl file: {what}") from error


def _problem(error: Exception) -> str:
    """A description of the fault in data that does not have the expected form."""
    if isinstance(error, KeyError):
        return _shown(f"an entry refers to {error}, or needs it, and it is not there")
    if isinstance(error, MemoryError):
        return "it declares sizes that do not fit into memory"
    kind = {"AttributeError": "kind", "TypeError": "kind"}.get(type(error).__name__, "form")
    return _shown(f"an entry is not of the expected {kind}: {error}")


def _shown(message: str) -> str:
    """A text from a file for a message: shortened, and without characters that affect a terminal."""
    text = outside_text.lines(message)
    return text if len(text) <= 1500 else f"{text[:1000]} ... {text[-400:]}"


def _warn(name: str, minor: int, left_out: list[str]) -> None:
    said = "; ".join(dict.fromkeys(left_out).keys()) or "nothing that this graph needs"
    warnings.warn(
        f"{name} has format version {VERSION}.{minor}, this fxlite reads {VERSION}.{MINOR}; "
        f"left out: {_shown(said)[:500]}",
        stacklevel=4,
    )


# -- writing ---------------------------------------------------------------------------------------
def collect_weights(gm: GraphModule) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays to store by path, each once; and for every path its kind and, for tied weights, the path with which it
    shares the array."""
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


def describe_module(gm: GraphModule, dropped: list[str]) -> dict[str, Any]:
    """The graph, and those of the modules that it calls, as data. Names of ``meta`` entries that are left out are
    added to ``dropped``. Raises FileFormatError if it calls a leaf module."""
    modules: dict[str, Any] = {}
    for node in gm.graph.find_nodes(op="call_module"):
        module = gm.get_submodule(node.target)
        if not isinstance(module, GraphModule):
            raise FileFormatError(
                f"{node.describe()} calls the leaf module self.{node.target}, whose code cannot be "
                f"saved as data; {module.leaf_advice}"
            )
        if node.target not in modules:
            modules[node.target] = describe_module(module, dropped)
    content: dict[str, Any] = {"name": gm.name, "training": gm.training}
    if passes_of(gm):
        content["passes"] = list(passes_of(gm))
    content["graph"] = describe(gm.graph, dropped)
    return content | {"modules": modules} if modules else content


# -- reading ---------------------------------------------------------------------------------------
def _rebuild_module(content: dict[str, Any], weights: dict[str, _Weight]) -> GraphModule:
    """A module from its graph and weights; the weights of a module that it calls are below that module's path."""
    check_keys(content, _KEYS, "a module")
    modules = content.get("modules", {})
    holder: dict[str, Any] = {path: weight.value for path, weight in weights.items()}
    for path, inner in modules.items():
        check_path(path)
        dot = f"{path}."
        own = {p.removeprefix(dot): w for p, w in weights.items() if p.startswith(dot)}
        holder[path] = _rebuild_module(inner, own)
    graph = rebuild(content["graph"])
    for node in graph.find_nodes(op="call_module"):
        if node.target not in modules:
            raise FileFormatError(f"{node.name} calls self.{node.target}, which is not a module of the file")
    title = content["name"]
    if not isinstance(title, str) or len(title) > outside_text.LONGEST_NAME:
        raise FileFormatError(f"{str(title)[:80]!r} cannot be the name of a module")
    gm = GraphModule(holder, graph, outside_text.line(title))
    for path, weight in weights.items():
        if not weight.persistent:
            parent, _, name = path.rpartition(".")
            gm.get_submodule(parent)._non_persistent.add(name)
    if not isinstance(content["training"], bool):
        raise FileFormatError(f"'training' must be true or false, not {content['training']!r}")
    gm.training = content["training"]
    set_passes(gm, map(_pass_name, content.get("passes", ())))
    _check_weight_types(gm)
    return gm


def _pass_name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > outside_text.LONGEST_NAME:
        raise FileFormatError(f"{str(name)[:80]!r} cannot be the name of a pass")
    return outside_text.line(name)


@dataclass(frozen=True)
class _Weight:
    value: Any
    persistent: bool


def _weights(entries: dict[str, Any], arrays: dict[str, Any]) -> dict[str, _Weight]:
    made: dict[str, _Weight] = {}
    for path, entry in entries.items():
        check_path(path)
        check_keys(entry, _WEIGHT_KEYS, f"the weight {path}")
        if entry["kind"] not in ("parameter", "buffer"):
            raise FileFormatError(f"the weight {path} is neither a parameter nor a buffer")
        same_as, is_parameter = entry.get("same_as", path), entry["kind"] == "parameter"
        if entry.get("none"):
            value = None
        elif same_as != path and entry["kind"] == entries[same_as]["kind"]:
            value = made[same_as].value
        elif is_parameter:
            value = Parameter(arrays[same_as], entry.get("requires_grad", True))
        else:
            value = arrays[same_as]
        made[path] = _Weight(value, entry.get("persistent", True))
    return made


def _check_weight_types(gm: GraphModule) -> None:
    for node in gm.graph.find_nodes(op="get_attr"):
        actual = type_of(gm.get_attribute(node.target))
        if node.type is not None and actual != node.type:
            raise FileFormatError(f"the weight {node.target} is {actual}, the graph says {node.type}")
    types = {node.target: node.type for node in gm.graph.placeholders}
    for target, path in gm.states:
        try:
            actual = type_of(gm.get_buffer(path))
        except AttributeError as error:
            raise FileFormatError(f"the state {path} is not a buffer: {error}") from None
        if actual != types.get(target):
            raise FileFormatError(f"the state {path} is {actual}, the graph says {types.get(target)}")
