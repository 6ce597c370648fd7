"""What other programs understand of a text: C tokens, Python syntax, elements, values.

In: a text that fxlite printed. Out: its structure without the texts inside it (comments, literals,
what stands between tags), so that two outputs which differ in names of places alone are equal, and
text that became code is not.
"""

from __future__ import annotations

import ast
import io
import json
import re
import tomllib
import zipfile
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

_TRIGRAPHS = dict(zip("=/'()!<>-", "#\\^[]|{}~"))
_C = re.compile(
    r'//[^\n]*|/\*.*?\*/|/\*|(?P<text>(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<word>[\w$]+)|(?P<space>\s+)|(?P<sign>.)",
    re.DOTALL,
)


def opened(data: bytes) -> tuple[Any, bytes]:
    """The JSON and the weights of a saved graph."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read("graph.json")), archive.read("weights.safetensors")


def c_tokens(text: str) -> list[Any]:
    """The tokens outside comments, as the phases of translation of C have it: trigraphs, then
    splices of lines, then comments. (GCC splices at a backslash with spaces behind it, too.) A
    number for each word in the order in which they come first: which names are chosen is not
    structure. Of the words in literals none are kept."""
    text = re.sub(r"\?\?([=/'()!<>-])", lambda found: _TRIGRAPHS[found[1]], text)
    text = re.sub(r"\\[ \t\f\v]*\r?\n", "", text)
    found = list(_C.finditer(text))
    assert not any(token[0] == "/*" for token in found), "a comment that does not end"
    numbers: dict[str, int] = {}
    made: list[Any] = []
    for token in found:
        if token.lastgroup == "word":
            made.append(numbers.setdefault(token[0], len(numbers)))
        elif token.lastgroup == "text":
            made.append(re.sub(r"\w+", "w", token[0]))
        elif token.lastgroup == "sign":
            made.append(token[0])
    return made


def make_words(text: str) -> list[str]:
    """Words of a Makefile, without the names in them."""
    return [re.sub(r"\w+", "w", word) for word in re.split(r"[ ]+", text)]


class _WithoutTexts(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("text") if isinstance(node.value, str) else node


def python_syntax(text: str) -> str:
    """The syntax tree, with one text in place of all, and a number for each name."""
    for number, line in enumerate(text.splitlines()[:2]):
        assert not re.match(r"[ \t\f]*#.*?coding[:=]", line), (number, line)
    tree = ast.dump(_WithoutTexts().visit(ast.parse(text.encode())))
    numbers: dict[str, int] = {}
    return re.sub(r"'\w+'", lambda found: str(numbers.setdefault(found[0], len(numbers))), tree)


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.seen: list[Any] = []
        self.scripts: list[str] = []
        self._kind = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert not any(name.startswith("on") for name in names), (tag, names)
        links = [value for name, value in attrs if name in ("href", "src", "action")]
        self.seen.append((tag, names, links))
        self._kind = dict(attrs).get("type") or "" if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        self.seen.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.seen.append(("comment", data))

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("script", "style") and data.strip():
            is_data = self._kind == "application/json"
            self.seen.append(json_structure(data) if is_data else data)


def html_elements(text: str) -> list[Any]:
    """Elements with the names of their attributes, links, scripts and styles, in order."""
    parser = _Elements()
    parser.feed(text)
    parser.close()
    return parser.seen


def xml_elements(text: str) -> list[Any]:
    """Elements with the names of their attributes, in order."""
    return [(e.tag, sorted(e.attrib)) for e in ElementTree.fromstring(text).iter()]


def json_structure(text: str) -> Any:
    """The value with one text in place of all; numbers, which may be widths of texts, too."""
    return _structure(json.loads(text))


def toml_structure(text: str) -> Any:
    """As :func:`json_structure`, of TOML."""
    return _structure(tomllib.loads(text))


def _structure(value: Any) -> Any:
    if isinstance(value, dict):
        return [(_structure(k), _structure(v)) for k, v in value.items()]
    if isinstance(value, list):
        return [_structure(v) for v in value]
    return type(value).__name__


def dot_tokens(text: str) -> list[str]:
    """Tokens of DOT; a text is one, whatever it says."""
    found = re.findall(r'"(?:\\.|[^"\\])*"|[\w#.]+|\s+|.', text, re.DOTALL)
    return ["text" if t[0] == '"' else t for t in found if not t.isspace()]


def plain_lines(text: str) -> int:
    """The number of lines of a text for people, which acts on no terminal."""
    found = re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)
    assert found is None, repr(text[max(0, found.start() - 40) : found.end() + 40])
    text.encode()
    return 0
