"""Text from outside: how it is read in bounded time and depth, and how it may stand in what fxlite
writes.

In: names, places, expressions, reasons and other texts that come from the user's program or from a
file that other people made. Out: the same as a comment, a literal, markup, ... in which no text
can be more than text. Whoever prints C, CUDA, Python, HTML, SVG, DOT, JSON or TOML quotes by these
functions, and readers of files refuse what :func:`forbidden_in` finds. Identifiers are not quoted:
what is to be one must be a name (:func:`is_name`). Text that is nested too deeply for a parser is
an error like any other (:func:`bounded`).
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

#: Characters that show nothing and act on what reads the text: control characters but for tab and
#: newline, half of a surrogate pair, what turns the direction of writing, line and paragraph
#: separators, tags, what is not a character. Compilers, terminals and parsers differ about them.
_FORBIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\ufdd0-\ufdef\ufeff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f"
)
_FORBIDDEN_CHARACTER = re.compile(f"[{_FORBIDDEN}]")
_WHITE_SPACE = re.compile(r"\s")
#: What would end or open a C comment, or begin a trigraph, which is read before comments are.
_OF_COMMENTS = re.compile(r"\*(?=/)|/(?=\*)|\?(?=\?)")
LONGEST_NAME = 1000  # characters


# -- reading ---------------------------------------------------------------------------------------
def forbidden_in(text: str) -> str | None:
    """The first character that no text may hold, as ``U+202E``; None if there is none."""
    found = _FORBIDDEN_CHARACTER.search(text)
    return None if found is None else f"U+{ord(found[0]):04X}"


def is_name(text: object) -> bool:
    """Whether Python can use it as the name of a variable, and as no other: it is an identifier as
    Python itself spells it (NFKC), and no keyword."""
    return (
        isinstance(text, str)
        and text.isidentifier()
        and text not in _NO_NAMES
        and len(text) <= LONGEST_NAME
        and (text.isascii() or unicodedata.normalize("NFKC", text) == text)
    )


def is_number(text: str) -> bool:
    """Whether it is a number as Python writes it, the name of a module in a list: ``0``, ``12``; no
    ``01``, and no digit of another sort, such as a power."""
    return text.isascii() and text.isdecimal() and str(int(text)) == text


def is_path_part(text: object) -> bool:
    """Whether a parameter, buffer or module can be called that. It need be no name of Python's
    (``a-b``, ``²``), but is text on one line that shows, without the dot between parts."""
    return isinstance(text, str) and text.isprintable() and 0 < len(text) <= LONGEST_NAME and "." not in text


_NO_NAMES = frozenset((*keyword.kwlist, "__debug__"))


def are_names(texts: Collection[Any]) -> bool:
    """Whether each of many is a name (:func:`is_name`). Of those in ASCII all are looked at at
    once."""
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
    if text.isprintable():  # then its only white space are spaces, and no character is forbidden
        return text
    return lines(_WHITE_SPACE.sub(" ", text))


# -- programs --------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)  # the same places stand behind many nodes
def comment(text: str) -> str:
    """Text for a comment on one line in C, CUDA, Python or TOML. Without a backslash, which would
    continue it on the next line; nothing in it ends or opens a comment or is a trigraph."""
    return _OF_COMMENTS.sub(lambda found: f"{found[0]} ", line(text).replace("\\", "/"))


def docstring(text: str) -> str:
    """Text for a line of a Python docstring between three double quotes."""
    return comment(text).replace('"', "'")


def python_string(text: str) -> str:
    """A Python literal; between double quotes where that needs no backslash."""
    plain = text.isprintable() and not {'"', "\\"} & {*text}
    return f'"{text}"' if plain else repr(text)


def format_text(text: str) -> str:
    """Text for a Python f-string between double quotes, which it neither ends nor computes in."""
    return docstring(text).replace("{", "{{").replace("}", "}}")


# -- markup and data -------------------------------------------------------------------------------
def markup(text: str) -> str:
    """Text for HTML, SVG and XML, as content or between the quotes of an attribute."""
    import html

    return html.escape(lines(text))


def json_in_html(data: Any) -> str:
    """Data as JSON that nothing in it can end where it stands in a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return lines(text)


def dot_string(text: str) -> str:
    """A string in DOT, which Graphviz shows as it is."""
    escaped = lines(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def toml_string(text: str) -> str:
    """A basic string in TOML."""
    return json.dumps(lines(text), ensure_ascii=False)


# -- data that was read ----------------------------------------------------------------------------
def forbidden_texts(data: Any) -> Iterator[tuple[str, str]]:
    """(where, which character) for each text and key in nested dicts and lists that holds a
    forbidden character: ``("graph.locations[3][2]", "U+0000")``."""
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
#: No size, count or number of a line is larger, in this or any other program.
LARGEST_INT = (1 << 63) - 1


def bounded(error: type[FxliteError], what: str) -> Callable[[Function], Function]:
    """Decorates a recursive parser: text that is nested deeper than Python's stack, or than its own
    parser can take, raises ``error``, which says so of ``what``."""

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
    """The tree of an expression, or of a program. Raises SyntaxError, whatever is wrong; and
    ParseError for text that is nested too deeply."""
    if "\0" in text:
        raise SyntaxError("the text holds a NUL character")
    try:
        return ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise ParseError("the text is nested too deeply") from None
    except ValueError as error:  # numbers of more digits than Python converts
        raise SyntaxError(str(error)) from None


def assigned(statement: ast.stmt | None) -> ast.expr | None:
    """What a plain or annotated assignment assigns to, if it is one target."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0]
    return statement.target if isinstance(statement, ast.AnnAssign) else None


def assigned_name(statement: ast.stmt | None) -> str | None:
    """The name that an assignment defines."""
    target = assigned(statement)
    return target.id if isinstance(target, ast.Name) else None
