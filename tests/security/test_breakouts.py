"""No text of a saved graph gets out of where it is printed: every text of a file, found by walking
it, is replaced by texts that try, and every output is parsed.

A file is refused with an error that names it, or its outputs have the structure of those of a
harmless file. ``python -m tests.security`` tries every text at every place; here each place gets
some.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fxlite as fx
from fxlite.base import outside_text
from fxlite.base.errors import FileFormatError, GraphError
from fxlite.codegen.python.source import python_program
from fxlite.files.serialize import from_bytes, to_bytes
from tests.security import parses
from tests.security.breakouts import FIELDS, PRINTED, accepted, compare, groups, load
from tests.security.specimen import BREAKOUTS, packed, specimen, with_text

EACH = 1  # texts for each place
ROUNDS = 4  # files in which every place that may say anything has another text


def test_places_that_may_say_anything() -> None:
    """Those that only people read; names, types, ops and equations are not among them."""
    kinds = {path[1] for path in accepted() if path[0] == "graph"}
    assert kinds == {"scopes", "locations", "guards", "meta", "interface", "calls", "types"}
    assert {path for path in accepted() if path[0] != "graph"} == {("name",)}


@pytest.mark.parametrize("number", range(ROUNDS))
def test_outputs_have_the_structure_of_harmless_ones(number: int, tmp_path: Path) -> None:
    texts = {path: PRINTED[(place + 13 * number) % len(PRINTED)] for place, path in enumerate(accepted()[:-2])}
    same = PRINTED[17 * number % len(PRINTED)]  # a key of the result stands in two places
    assert compare(texts | dict.fromkeys(accepted()[-2:], same), tmp_path) >= 29


def test_each_place_is_checked_when_it_is_read() -> None:
    """No text at no place makes another error than the one of a file that is not right."""
    refused = [
        load(dict.fromkeys(paths, BREAKOUTS[(place * 7 + turn * 31) % len(BREAKOUTS)])) is None
        for place, paths in enumerate(groups().values())
        for turn in range(EACH)
    ]
    assert len(FIELDS) > 200 and refused.count(True) > 150 and refused.count(False) > 25


# -- the attacks themselves ------------------------------------------------------------------------
_RUN = '{ extern int system(const char *); system("touch evil"); }'
ATTACKS = {
    "a splice in a guard": (("guards", 0, 1, 3), f"*\\\n/ {_RUN} //"),
    "a trigraph": (("guards", 0, 1, 3), "*??/\n/ #error evil //"),
    "the file of a guard": (("guards", 0, 1, 0), "{__import__('os').system('touch evil')}.py"),
    "the scope of a value": (("scopes", 2, 0), "x */ #error evil /*"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_loaded_file_runs_no_code(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled, called and regenerated in a folder, which then has no file that the texts make."""
    monkeypatch.chdir(tmp_path)
    path, text = ATTACKS[name]
    content, weights = specimen()
    gm = from_bytes(packed(with_text(content, {("graph", *path): text}), weights))
    ones = [np.ones((rows, 4), np.float32) for rows in (3, 4)]
    compiled, regenerated = fx.compile(gm), python_program(gm)
    compiled({"values": ones[0]}, ones[1])
    regenerated({"values": ones[0]}, ones[1])
    many = np.ones((9, 4), np.float32)  # more rows than the guard allows
    with pytest.raises(ValueError, match="is required by"):
        compiled({"values": many}, ones[1])
    with pytest.raises(ValueError, match="is required by"):
        regenerated({"values": many}, ones[1])
    assert not (tmp_path / "evil").exists()


def test_arguments_of_a_module_are_names() -> None:
    """They stand in the function that a loaded graph runs."""
    inner = fx.symbolic_trace(lambda x: np.exp(x), x="f32[3]")
    graph = fx.Graph()
    x = graph.placeholder("x", fx.dtypes.float32[3])
    call = graph.call_module("inner", (), {"x": x}, fx.dtypes.float32[3])
    graph.output(call)
    data = to_bytes(fx.GraphModule({"inner": inner}, graph))
    evil = "x=__import__('os').system('touch evil'), y"
    content, weights = parses.opened(data)
    at = {("graph", "calls", 1, 3, ("key", "x")): evil}
    with pytest.raises(FileFormatError, match="cannot be the name of an argument"):
        from_bytes(packed(with_text(content, at), weights))
    for wrong in (evil, "3", "class", "ﬁ"):
        with pytest.raises(GraphError, match="an argument named"):
            graph.call_module("inner", (), {wrong: x})


# -- the functions that quote ----------------------------------------------------------------------
def _dot(text: str) -> str:
    return f"digraph {{ a [label={outside_text.dot_string(text)}]; }}"


QUOTED: dict[str, tuple[Callable[[str], str], Callable[[str], object]]] = {
    "C": (lambda t: f"a /* {outside_text.comment(t)} */ b", parses.c_tokens),
    "C line": (lambda t: f"a // {outside_text.comment(t)}\nb", parses.c_tokens),
    "Python": (lambda t: f"a  # {outside_text.comment(t)}\nb", parses.python_syntax),
    "docstring": (lambda t: f'"""{outside_text.docstring(t)}"""', parses.python_syntax),
    "literal": (lambda t: f"a = {outside_text.python_string(t)}", parses.python_syntax),
    "f-string": (lambda t: f'f"x{outside_text.format_text(t)}{{a}}"', parses.python_syntax),
    "element": (lambda t: f"<p>{outside_text.markup(t)}</p>", parses.html_elements),
    "attribute": (lambda t: f'<p id="{outside_text.markup(t)}"/>', parses.xml_elements),
    "script": (
        lambda t: f'<script type="application/json">{outside_text.json_in_html([t])}</script>',
        parses.html_elements,
    ),
    "DOT": (_dot, parses.dot_tokens),
    "TOML": (lambda t: f"a = {outside_text.toml_string(t)}", parses.toml_structure),
    "TOML comment": (lambda t: f"# {outside_text.comment(t)}\na = 1", parses.toml_structure),
    "terminal": (outside_text.line, parses.plain_lines),
}


@pytest.mark.parametrize("name", QUOTED)
def test_quoted(name: str) -> None:
    """Each text, and each after a letter and between others, is as any other text there."""
    quote, read = QUOTED[name]
    wanted = read(quote("harmless"))
    for text in BREAKOUTS:
        for shown in (text, f"x{text}", f"*{text}/", f'"{text}"', f"{text}\\", text * 2):
            assert read(quote(shown)) == wanted, ascii(shown)


def test_what_reads_the_outputs_finds_code() -> None:
    """The parsers see what a compiler sees: with a way out their answers differ."""
    splice = "a /* *\\\n/ system(); /* */ b"
    assert parses.c_tokens(splice) != parses.c_tokens("a /* x */ b")
    assert parses.c_tokens("a // x??/\nb\nc") != parses.c_tokens("a // x\nb\nc")
    assert parses.python_syntax("a  # x\nb()") != parses.python_syntax("a  # x\n")
    assert parses.html_elements("<p><b></p>") != parses.html_elements("<p></p>")
    assert parses.dot_tokens('"a"]; b') != parses.dot_tokens('"a];b"')


@pytest.mark.parametrize("name", ["x", "größe", "_", "T0"])
def test_names(name: str) -> None:
    assert outside_text.is_name(name)


@pytest.mark.parametrize("name", ["", "3", "a b", "class", "__debug__", "ｓelf", "ﬁ", "²", "x" * 2000, 3, None])
def test_what_is_no_name(name: object) -> None:
    assert not outside_text.is_name(name)


def test_texts_that_cannot_be_read_are_not_written() -> None:
    gm = fx.symbolic_trace(lambda x: {"a\0b": np.exp(x)}, x="f32[3]")
    with pytest.raises(FileFormatError, match=r"cannot be saved: the text at .* U\+0000"):
        to_bytes(gm)
