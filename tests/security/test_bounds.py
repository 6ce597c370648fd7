"""Files and texts that ask for more time or memory than they are worth are refused, and say why."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, FileFormatError, FxliteError, ParseError, QueryError
from fxlite.codegen.runtime.abi import DimText
from fxlite.files import archive
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.passes.quantize import QConfigError, load_plan
from fxlite.show.query.parser import parse_query
from fxlite.types import guards, shapes
from fxlite.types.facts import Facts, parse_facts
from tests.security.parses import opened
from tests.security.specimen import packed, specimen, with_text

_DEEP = "-" * 3000 + "1"
_PRODUCT = "*".join(f"(a{i}+1)" for i in range(30))
_NESTED = "Max(" * 40 + "a" + "".join(f",a{i})" for i in range(40))
_HEAD = "def forward(self, x: f32[3]):\n    return "
DIMS = {
    "a tower of powers": "9**9**9",
    "a large power": "T**65",
    "a named exponent": "2**T",
    "many terms": _PRODUCT,
    "a power of a sum": "(a+b+c+d+e)**20",
    "many signs": _DEEP,
    "a long number": "9" * 5000,
    "64 bits": "9223372036854775808",
    "hexadecimal": "0x" + "f" * 99,
    "large factors": "*".join(["9223372036854775807*A"] * 9),
    "division by zero": "4//0",
    "a name by zero": "B//0",
    "remainder by zero": "B % 0",
    "nested maxima": _NESTED,
    "many maxima": f"Min({','.join(f'a{i}' for i in range(90))})",
    "NUL": "a\0b",
    "parentheses": "(" * 3000 + "1" + ")" * 3000,
    "many names": "+".join(map("a{}".format, range(9999))),
    "a keyword": "lambda",
    "a float": "1.5",
    "code": "__import__('os').getcwd()",
}


@pytest.mark.parametrize("name", DIMS)
def test_dims(name: str) -> None:
    """In each place that a dim may be written."""
    text = DIMS[name]
    readers: list[Callable[[], Any]] = [
        lambda: shapes.parse(text),
        lambda: fx.parse_type(f"f32[{text}]"),
        lambda: fx.parse_type(f"f32[B,{text}]"),
        lambda: guards.parse(f"{text} < T"),
        lambda: fx.parse(f"def forward(self, x: f32[{text}]):\n    return x"),
        lambda: fx.parse(f"{_HEAD}ops.reshape(x, shape=({text},))"),
    ]
    for read in readers:
        with pytest.raises((ParseError, FxliteError)) as error:
            read()
        assert len(str(error.value)) < 90_000  # a line of a graph is quoted whole


def test_a_type_of_a_file_is_bounded() -> None:
    content, weights = specimen()
    file = packed(with_text(content, {("graph", "types", 0, "type"): "f32[9**9**9]"}), weights)
    with pytest.raises(FileFormatError, match="the exponent 387420489 is not a number from 0"):
        from_bytes(file, "x.fxl")


@pytest.mark.parametrize("text", [f"{_HEAD}{'-' * 3000}x", f"{_HEAD}{'x+' * 3000}x", "(" * 9999, "\0"])
def test_deep_graphs_as_text(text: str) -> None:
    with pytest.raises(ParseError):
        fx.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 3000,
        f"add[axis={_DEEP}]",
        f"add:users(>{'9' * 5000})",
        ":not(" * 3000 + "add",
        f"reshape[shape={_DEEP}]",
        "reshape[shape=9**9**9]",
    ],
)
def test_queries(text: str) -> None:
    with pytest.raises(QueryError):
        parse_query(text)


def test_numbers_elsewhere() -> None:
    for text in (_DEEP, "9" * 5000):
        with pytest.raises(ValueError, match="dim"):
            DimText(text)
    with pytest.raises(ArgumentError):
        parse_facts("9" * 5000 + "..")
    with pytest.raises(ArgumentError, match="bits"):
        Facts(maximum=1 << 63)
    assert fx.parse_type("f32[9223372036854775807]").shape == (9223372036854775807,)
    assert str(fx.parse_type("f32[(a+b)**3]")) == "f32[a**3+3*a**2*b+3*a*b**2+b**3]"


def test_what_is_printed_is_read() -> None:
    """The bounds leave room for what tracing makes: long sums, chains of slices."""
    names = " ".join(f"a{i}" for i in range(150))
    total = sum(fx.dims(names))
    assert shapes.parse(str(total)) == total
    gm = fx.symbolic_trace(lambda x: x[2:][:-3][1:9][::2][5:], x="f32[N]")
    assert from_bytes(to_bytes(gm)).graph == gm.graph


# -- archives --------------------------------------------------------------------------------------
def _archive(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as made:
        for name, data in members:
            made.writestr(name, data)
    return target.getvalue()


def _small() -> tuple[bytes, bytes]:
    content, weights = specimen()
    content |= {"format": "fxlite", "version": 2}  # the last one without a manifest
    return json.dumps(content).encode(), weights


def _members(**more: bytes) -> list[tuple[str, bytes]]:
    graph, weights = _small()
    return [(archive.GRAPH, graph), (archive.WEIGHTS, weights), *more.items()]


def _declared(data: bytes, size: int) -> bytes:
    """The archive with another size of the first member in its directory."""
    place = data.index(b"PK\x01\x02")
    return data[: place + 24] + struct.pack("<I", size) + data[place + 28 :]


_EMPTY = (archive.WEIGHTS, b"")
ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a bomb in the graph": (lambda: _archive([(archive.GRAPH, b" " * 9_000_000), (archive.WEIGHTS, b"")]), "more than"),
    "a bomb in the weights": (
        lambda: _archive([(archive.GRAPH, _small()[0]), (archive.WEIGHTS, bytes(9_000_000))]),
        "more than",
    ),
    "a bomb that declares little": (
        lambda: _declared(_archive([(archive.GRAPH, b" " * 9_000_000), _EMPTY]), 99),
        "damaged",
    ),
    "another method": (lambda: _archive(_members(), zipfile.ZIP_LZMA), "unsupported method"),
    "a path upwards": (lambda: _archive([("../graph.json", b"")]), "it must hold"),
    "an absolute path": (lambda: _archive([*_members(), ("/etc/evil", b"")]), "it must hold"),
    "one more member": (lambda: _archive(_members(readme=b"hello")), "it must hold"),
    "many members": (lambda: _archive([(f"m{i}", b"") for i in range(999)]), "it must hold"),
    "nesting": (lambda: _archive([(archive.GRAPH, b"[" * 10**6), (archive.WEIGHTS, b"")]), "nested too deeply"),
    "a long number": (lambda: _archive([(archive.GRAPH, b"9" * 9999), (archive.WEIGHTS, b"")]), "graph.json"),
    "no UTF-8": (lambda: _archive([(archive.GRAPH, b"\xff\xfe{\0"), (archive.WEIGHTS, b"")]), "graph.json"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, message = ARCHIVES[name]
    monkeypatch.setenv(archive.LIMIT_VARIABLE, "5")
    with pytest.raises(FileFormatError, match=message):
        from_bytes(make(), "x.fxl")


def test_a_member_that_stands_twice() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        data = _archive([*_members(), (archive.GRAPH, b"{}")])
    with pytest.raises(FileFormatError, match="once each"):
        from_bytes(data, "x.fxl")


def test_the_limit_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, weights = _small()
    data = _archive([(archive.GRAPH, graph + b" " * 3_000_000), (archive.WEIGHTS, weights)])
    monkeypatch.setenv(archive.LIMIT_VARIABLE, "1")
    with pytest.raises(FileFormatError, match=r"set FXLITE_LOAD_LIMIT to more megabytes"):
        from_bytes(data, "x.fxl")
    for enough in ("4", "0", "many"):
        monkeypatch.setenv(archive.LIMIT_VARIABLE, enough)
        assert from_bytes(data).graph == from_bytes(packed(*specimen())).graph


def test_values_that_are_nested_deeply() -> None:
    content, weights = specimen()
    for depth, fits in ((90, True), (150, False), (900, False)):
        value: Any = 1
        for _ in range(depth):
            value = [value]
        content["graph"]["meta"] = {"tanh": {"deep": value}}
        data = packed(content, weights)
        if fits:
            assert opened(to_bytes(from_bytes(data)))[0]["graph"]["meta"]["tanh"]["deep"] == value
        else:
            with pytest.raises(FileFormatError, match="nested"):
                from_bytes(data, "x.fxl")
    gm = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    deep: Any = 1
    for _ in range(5000):
        deep = (deep,)
    gm.graph.output_node().meta["deep"] = deep
    with pytest.raises(FileFormatError, match="nested too deeply"):
        to_bytes(gm)


# -- weights ---------------------------------------------------------------------------------------
def _weights(header: dict[str, Any] | bytes, data: bytes = bytes(16), length: int = -1) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length < 0 else length) + text + data


def _entry(shape: list[Any], start: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


WEIGHTS = {
    "offsets that overlap": _weights({"a": _entry([4], 0, 16), "b": _entry([4], 0, 16)}),
    "an offset behind the end": _weights({"a": _entry([8], 0, 32)}),
    "a negative offset": _weights({"a": _entry([4], -16, 0)}),
    "a huge offset": _weights({"a": _entry([4], 1 << 62, (1 << 62) + 16)}),
    "a product that wraps": _weights({"a": _entry([1 << 32, 1 << 32], 0, 16)}),
    "a shape that NumPy does not support": _weights({"a": _entry([0, 1 << 63], 0, 0)}, b""),
    "a hole": _weights({"a": _entry([2], 8, 16)}),
    "an infinite shape": _weights(b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,4]}}'),
    "nesting": _weights(b'{"a":' + b"[" * 100_000),
    "a long header": _weights({}, b"", 1 << 62),
    "many axes": _weights({"a": _entry([1] * 100, 0, 4)}, bytes(4)),
    "another dtype": _weights({"a": _entry([4], 0, 16, "F\x1b[2J")}),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(name: str, mapped: bool, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(WEIGHTS[name])
    with pytest.raises(FileFormatError, match=r"x\.safetensors") as error:
        fx.load_safetensors(tmp_path / "x.safetensors", mapped)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", str(error.value))


# -- plans -----------------------------------------------------------------------------------------
PLANS = {
    "nesting": "a = " + "[" * 5000,
    "a long number": f"a = {'9' * 5000}",
    "NUL": "a = '\0'",
    "a preset that is a list": '[schemes]\ns = { preset = ["static_int8"] }',
    "a size that is no number": '[schemes]\ns = { preset = "static_int8", percentile = "x" }',
    "a huge size": '[schemes]\ns = { preset = "weight_only_int4", group_size = -1 }',
    "layers that are a list": "layers = []",
}


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLANS[name])
    gm = from_bytes(packed(*specimen()))
    with pytest.raises(QConfigError, match=r"plan\.toml"):
        load_plan(tmp_path / "plan.toml", gm)


# -- files of the program --------------------------------------------------------------------------
def test_a_page_shows_no_other_files_than_sources(tmp_path: Path) -> None:
    """A location of a saved graph may name any file; a report is to be shown to others."""
    secret, source = tmp_path / "secret.txt", tmp_path / "model.py"
    for file in (secret, source):
        file.write_text("line one\nline two\n")
    content, weights = specimen()
    paths = {("graph", "locations", 2, 0): str(secret), ("graph", "locations", 4, 0): str(source)}
    changed = with_text(content, paths)
    changed["graph"]["locations"][2][1] = changed["graph"]["locations"][4][1] = 1
    gm = from_bytes(packed(changed, weights))
    lines = {node.name: node.loc.file_lines() for node in gm.graph.nodes if node.loc is not None}
    assert lines["tanh"] == [] and lines["einsum"] == ["line one\n", "line two\n"]
