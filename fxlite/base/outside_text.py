"""Text from outside: reading it in bounded time and depth, and quoting it in the output of fxlite.

In: names, places, expressions, reasons and other texts that come from the user's program or from a
file of other people. Out: the same as a comment, a literal, markup and so on, quoted so that it can never
act as code or markup. Everything that prints C, CUDA, Python, HTML, SVG, DOT, JSON or TOML uses these
functions, and readers of files reject the characters that :func:`forbidden_in` finds. Identifiers are
not quoted: they must be names (:func:`is_name`). Text that is nested too deeply for a parser is an
error like any other (:func:`bounded`).
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, TypeVar

from fxlite.base.errors import FxliteError, ParseError

#: Invisible characters that affect what reads the text: control characters except tab and newline, halves
#: of surrogate pairs, those that reverse the direction of writing, line and paragraph separators, tags, and
#: noncharacters. Compilers, terminals and parsers treat them differently.
_FORBIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f"
)
_FORBIDDEN_CHARACTER = re.compile(f"[{_FORBIDDEN}]")
_WHITE_SPACE = re.compile(r"\s")
#: Characters that would end or open a C comment, or begin a trigraph, which is read before comments are.
_OF_COMMENTS = re.compile(r"\*(?=/)|/(?=\*)|\?(?=\?)")
LONGEST_NAME = 1000  # characters


# -- reading ---------------------------------------------------------------------------------------
def forbidden_in(text: str) -> str | None:
    """The first forbidden character in a text, written like ``U+202E``; None if there is none."""
    found = _FORBIDDEN_CHARACTER.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def is_name(text: object) -> bool:
    """Whether a text is a name for a Python variable that Python does not change: an identifier in
    normalized form (NFKC), and not a keyword."""
    return (
        isinstance(text, str)
        and text.isidentifier()
        and text not in _NO_NAMES
        and len(text) <= LONGEST_NAME
        and (text.isascii() or unicodedata.normalize("NFKC", text) == text)
    )


def is_number(text: str) -> bool:
    """Whether a text is a number as Python writes it, which can name a module in a list: ``0`` or ``12``,
    but not ``01``, and no other kinds of digits, such as superscripts."""
    return text.isascii() and text.isdecimal() and str(int(text)) == text


def is_path_part(text: object) -> bool:
    """Whether a text can be the name of a parameter, buffer or module. It need not be a Python name
    (``a-b``, ``²``), but must be visible text on one line without dots, which separate parts."""
    return isinstance(text, str) and text.isprintable() and 0 < len(text) <= LONGEST_NAME and "." not in text


_NO_NAMES = frozenset((*keyword.kwlist, "__debug__"))


def are_names(texts: Collection[Any]) -> bool:
    """Whether all of many texts are names (:func:`is_name`). ASCII texts are checked all at once."""
    if not {*map(type, texts)} <= {str}:
        return False
    if not "".join(texts).isascii():
        return all(map(is_name, texts))
    longest = max(map(len, texts), default=0)
    fit = all(map(str.isidentifier, texts)) and _NO_NAMES.isdisjoint(texts)
    return fit and longest <= LONGEST_NAME


# -- plain text ------------------------------------------------------------------------------------
def lines(text: str) -> str:
    """Text that may have several lines, with ``U+FFFD`` for each forbidden character."""
    return _FORBIDDEN_CHARACTER.sub("\ufffd", text)


def line(text: str) -> str:
    """Text on one line: a space for each tab, line end and other white space."""
    if text.isprintable():  # then its only white space is spaces, and no character is forbidden
        return text
    return lines(_WHITE_SPACE.sub(" ", text))


# -- programs --------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)  # many nodes share the same place
def comment(text: str) -> str:
    """Text for a comment on one line in C, CUDA, Python or TOML: without backslashes, which would continue
    it on the next line, trigraphs, and anything that starts or ends a comment."""
    return _OF_COMMENTS.sub(lambda found: f"{found[0]} ", line(text).replace("\\", "/"))


def docstring(text: str) -> str:
    """Text for a line of a Python docstring between three double quotes."""
    return comment(text).replace('"', "'")


def python_string(text: str) -> str:
    """A Python literal, in double quotes if that needs no backslash."""
    plain = text.isprintable() and not {'"', "\\"} & {*text}
    return f'"{text}"' if plain else repr(text)


def format_text(text: str) -> str:
    """Text for a Python f-string in double quotes; it can neither end the string nor insert a value."""
    return docstring(text).replace("{", "{{").replace("}", "}}")


# -- markup and data -------------------------------------------------------------------------------
def markup(text: str) -> str:
    """Text for HTML, SVG and XML, as content or between the quotes of an attribute."""
    import html

    return html.escape(lines(text))


def json_in_html(data: Any) -> str:
    """Data as JSON for a script element, which nothing in the data can close."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return lines(text)


def dot_string(text: str) -> str:
    """A string in DOT, which Graphviz shows literally."""
    escaped = lines(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def toml_string(text: str) -> str:
    """A basic string in TOML."""
    return json.dumps(lines(text), ensure_ascii=False)


# -- data that was read ----------------------------------------------------------------------------
def forbidden_texts(data: Any) -> Iterator[tuple[str, str]]:
    """(path, character) for each text or key with a forbidden character in nested dicts and lists, such as
    ``("graph.locations[3][2]", "U+0000")``."""
    work: list[tuple[str, Any]] = [("", data)]
    while work:
        where, value = work.pop()
        if isinstance(value, str):
            if (found := forbidden_in(value)) is not None:
                yield where, found
        elif isinstance(value, dict):
            for key, inner in value.items():
                name = line(str(key))
                if (found := forbidden_in(str(key))) is not None:
                    yield f"{where}: the key {name!r}", found
                work.append((f"{where}.{name}".removeprefix("."), inner))
        elif isinstance(value, (list, tuple)):
            work += [(f"{where}[{n}]", v) for n, v in enumerate(value) if not isinstance(v, int)]


# -- read in bounded time and depth ----------------------------------------------------------------
Function = TypeVar("Function", bound=Callable[..., Any])
#: The largest size, count or line number.
LARGEST_INT = (1 << 63) - 1


def bounded(error: type[FxliteError], what: str) -> Callable[[Function], Function]:
    """A decorator for recursive parsers: text that is nested too deeply for Python's stack, or for Python's
    own parser, raises ``error`` with a message about ``what``."""

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def parse(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (RecursionError, MemoryError):
                raise error(f"{what} is nested too deeply") from None

        return parse  # type: ignore[return-value]

    return decorate


def syntax_tree(text: str, mode: Literal["eval", "exec"] = "eval") -> Any:
    """The syntax tree of an expression or a program. Raises ParseError for text that is nested too deeply,
    and SyntaxError for any other fault."""
    if "\0" in text:
        raise SyntaxError("the text holds a NUL character")
    try:
        return ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise ParseError("the text is nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python converts
        raise SyntaxError(str(error)) from None


def assigned(statement: ast.stmt | None) -> ast.expr | None:
    """The target of a plain or annotated assignment, if there is exactly one."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0]
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def assigned_name(statement: ast.stmt | None) -> str | None:
    """The name that an assignment defines."""
    target = assigned(statement)
    return target.id if isinstance(target, ast.Name) else None
