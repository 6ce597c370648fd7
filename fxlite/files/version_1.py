"""Reading files of format version 1, which had one object per node.

In: the JSON of such a file, ``{"nodes": [{"name", "op", "target", "args", "kwargs", "type",
"scope", "loc", "meta"}], ...}``, operands by name. Out: the same in the form of version 2 (see
``graph_data.py``), which is where everything is checked.
"""

from __future__ import annotations

import json
from typing import Any

from fxlite.base.errors import FileFormatError


def from_version_1(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a version-1 file as version 2 has it. Raises FileFormatError, or KeyError and
    the like for JSON that is neither."""
    calls: dict[str, int] = {}
    types: dict[str, int] = {"null": 0}
    columns: dict[str, list[Any]] = {
        "name": [], "call": [], "type": [], "scope": [], "loc": [], "inputs": []
    }  # fmt: skip
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
        "types": list(map(json.loads, types)), "calls": list(map(json.loads, calls)),
        "scopes": [None, *content["scopes"]], "locations": [None, *content["locations"]],
        "meta": meta,
    }  # fmt: skip
    return {key: content[key] for key in ("name", "training", "weights")} | {"graph": graph}


def _numbered(value: Any, operands: list[str]) -> Any:
    """``{"node": name}`` anywhere in ``value`` as ``{"input": number}``; notes the names."""
    if isinstance(value, list):
        return [_numbered(v, operands) for v in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"node"}:
        operands.append(value["node"])
        return {"input": len(operands) - 1}
    return {k: _numbered(v, operands) for k, v in value.items()}
