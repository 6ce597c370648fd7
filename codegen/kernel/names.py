"""Names of the user's program in emitted C and CUDA C: marked in the making, spelled at the end.

A program may call its values, weights and sizes anything, and text that is made for them has names
of its own. So that no template has to know which names the user took, nor the user those of
templates, a name of the program goes into text *marked*: its first letter is one of another
alphabet (``𝐛atch``), which makes it a word that nobody writes by hand and that takes as many
columns.

In: names (:func:`value_name`, :func:`weight_name`, :func:`dim_name`, :func:`own_name`,
:func:`derived`), and text that holds them. Out: once the text of a scope is complete,
:class:`Scope` spells each marked name as it was, or if that is taken there by a word that is not
marked, a keyword, a macro or another name, in the nearest way that is free: ``batch_``,
``batch_2``.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from fxlite.codegen.kernel.c_words import KEYWORDS, MACROS

#: Identifiers are cut to so many characters, which C99 promises to tell apart.
LONGEST = 63

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
# Where the letters of Unicode's mathematical alphabets begin: A to Z, then a to z.
_VALUES, _WEIGHTS, _DIMS, _OWN = 0x1D400, 0x1D5D4, 0x1D5A0, 0x1D670
_ALPHABETS = (_VALUES, _WEIGHTS, _DIMS, _OWN)
_PLAIN = {start + i: c for start in _ALPHABETS for i, c in enumerate(_LETTERS)}
_JOINT = "\u02cd"  # a letter like a low line, for a dot or for what joins a name and its suffix
_ESCAPE = "\u02d0"  # a letter like a colon, around the code of a character that C has not in names
_PLAIN[ord(_JOINT)] = "_"
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]+){_ESCAPE}")
_MARKED = re.compile("[" + "".join(f"{chr(s)}-{chr(s + 51)}" for s in _ALPHABETS) + r"]\w*")
_OF_HEADERS = "_WEIGHTS_BYTES"  # how macros end that headers of models define
_WORD = re.compile(r"(?<!\.)(?<!->)\b\w+")  # but no member of a struct
_NO_CODE = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#\s*include[^\n]*""", re.DOTALL
)
_DEFINITION = re.compile(  # name, parameters, body
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?((?:[^\\\n]|\\.)*)", re.MULTILINE | re.DOTALL
)


@lru_cache(1 << 16)
def _mark(name: str, alphabet: int) -> str:
    parts = (
        c if c.isascii() and (c.isalnum() or c == "_")
        else _JOINT if c == "." else f"{_ESCAPE}{ord(c):x}{_ESCAPE}"
        for c in name
    )  # fmt: skip
    text = "".join(parts)
    if text[:1] not in _LETTERS or not text or text.upper().startswith("FX_"):
        text = f"v{_JOINT}{text}"  # such names belong to compilers, and to what fxlite includes
    return chr(alphabet + _LETTERS.index(text[0])) + text[1:]


def value_name(name: str) -> str:
    """A value of the program, marked. Different names stay different."""
    return _mark(name, _VALUES)


def weight_name(path: str) -> str:
    """A weight of the program by its path, marked: ``a.b`` and ``a_b``, and a value called so, too,
    are three."""
    return _mark(path, _WEIGHTS)


def dim_name(name: str) -> str:
    """A named size, marked; one that is marked already stays as it is."""
    return name if _MARKED.match(name) else _mark(name, _DIMS)


def own_name(name: str) -> str:
    """A name that a generator made for text it does not know all of."""
    return _mark(name, _OWN)


def derived(marked: str, suffix: str) -> str:
    """``w_packed``: a name made from another; it differs from a name that the user spells so."""
    return f"{marked}{_JOINT}{suffix}"


def plain(text: str, longest: int = LONGEST) -> str:
    """Text as part of an identifier: ASCII letters, digits and low lines, of a length at most."""
    parts = (c if c.isascii() and c.isalnum() else _in_ascii(c) for c in text)
    return "".join(parts)[:longest]


def spelled(marked: str) -> str:
    """What a marked name is called where nothing is in its way."""
    text = _ESCAPED.sub(lambda found: _in_ascii(chr(int(found[1], 16))), marked.translate(_PLAIN))
    return text if len(text) <= LONGEST else text[:LONGEST].rstrip("_")


def _in_ascii(character: str) -> str:
    letters = [c for c in unicodedata.normalize("NFKD", character) if c.isascii() and c.isalnum()]
    if letters or not character.isalnum():
        return "".join(letters) or "_"
    return f"u{ord(character):x}"


class Scope:
    """How the marked names in a text are spelled: apart from each other, from its words, and from
    the keywords and macros of C and C++ and other ``keywords``. ``library`` is text that is not
    resolved, whose macros the text may use. Called with text, it gives that with those names."""

    def __init__(self, text: str, library: str = "", keywords: Iterable[str] = ()) -> None:
        words = list(_words(text))
        marked = [w for w in dict.fromkeys(words) if _MARKED.match(w)]
        taken = {w for w in words if not _MARKED.match(w)} | KEYWORDS | MACROS | set(keywords)
        taken |= _of_macros(library, frozenset(taken))
        self.names: dict[str, str] = {}
        for name in marked:
            wish = spelled(name)
            if wish not in taken and not wish.endswith(_OF_HEADERS):
                self.names[name] = wish
                taken.add(wish)
        for name in marked:
            if name not in self.names:
                self.names[name] = _free(spelled(name), taken)
                taken.add(self.names[name])

    def __call__(self, text: str) -> str:
        return _MARKED.sub(lambda found: self.names.get(found[0]) or spelled(found[0]), text)


def resolved(text: str, library: str = "", keywords: Iterable[str] = ()) -> str:
    """Text that is a scope of its own, with all names spelled."""
    return Scope(text, library, keywords)(text)


def _free(wish: str, taken: set[str]) -> str:
    number = 1
    while True:
        end = "_" if number == 1 else f"_{number}"
        name = wish[: LONGEST - len(end)].rstrip("_") + end if wish else end
        if name not in taken:
            return name
        number += 1


def _words(text: str) -> Iterator[str]:
    """The words of C text, without those of comments and strings."""
    return (found[0] for found in _WORD.finditer(_NO_CODE.sub(" ", text)))


@lru_cache(8)
def _macros(library: str) -> dict[str, frozenset[str]]:
    """The macros that a text defines, and the words that each brings with it."""
    return {
        found[1]: frozenset(_words(found[3])) - frozenset(_words(found[2] or ""))
        for found in _DEFINITION.finditer(library)
    }


def _of_macros(library: str, used: frozenset[str]) -> set[str]:
    """All macros of a library, and the words of those that are ``used``."""
    macros = _macros(library)
    found, work = set(macros), [*used & macros.keys()]
    while work:
        for word in macros[work.pop()]:
            if word in macros and word not in used:
                used |= {word}
                work.append(word)
            found.add(word)
    return found
