"""Names from the user's program in emitted C and CUDA C: marked at first, and spelled at the end.

A program may use any names for its values, weights and sizes, and the text generated for them has names of
its own. So that templates need not know the user's names, and users need not know those of templates, a
name from the program is put into text *marked*: its first letter is from another alphabet (``𝐛atch``),
which makes it a word that nobody writes by hand and that takes equally many columns.

In: names (:func:`value_name`, :func:`weight_name`, :func:`dim_name`, :func:`own_name`,
:func:`derived`), and text that contains them. Out: once the text of a scope is complete,
:class:`Scope` spells each marked name as it was or, if that is already used there by an unmarked word, a
keyword, a macro or another name, in the nearest free way: ``batch_``, ``batch_2``.

Keywords, and macros of the C library, are reserved everywhere in C, C++ and CUDA C. The macros, in
``macros.txt``, are those that GCC 12 and Clang 14 define after reading all headers of the C standard and
omp.h (``gcc -E -dM``), without names that begin with an underscore; a test asks the available compiler
again for the headers that emitted text includes. A file that includes an emitted header may have included
any of them before, and a macro has no scope.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator
from functools import lru_cache
from importlib.resources import files

# -- taken names -----------------------------------------------------------------------------------
KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t
    char32_t char8_t class co_await co_return co_yield compl concept const const_cast
    consteval constexpr constinit continue contract_assert decltype default delete do double
    dynamic_cast else enum explicit export extern false final float for fortran friend goto if
    import inline int long main module mutable namespace new noexcept not not_eq nullptr
    operator or or_eq override private protected public reflexpr register reinterpret_cast
    requires restrict return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typeid typename typeof
    typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()
)
"""Keywords of C23 and C++23, and main."""

HEADERS = frozenset(
    """
    assert complex ctype errno fenv float inttypes iso646 limits locale math omp setjmp signal
    stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string
    tgmath threads time uchar wchar wctype
    """.split()
)
"""Headers of the C standard, and OpenMP's."""

MACROS = frozenset(files("fxlite.codegen.kernel").joinpath("macros.txt").read_text(encoding="utf-8").split())
"""Macros of the standard headers."""

_RESERVED = KEYWORDS | MACROS


# -- marked names ----------------------------------------------------------------------------------
#: Identifiers are cut to so many characters, which C99 promises to tell apart.
LONGEST = 63

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
# Where the letters of Unicode's mathematical alphabets begin: A to Z, then a to z.
_VALUES, _WEIGHTS, _DIMS, _OWN = 0x1D400, 0x1D5D4, 0x1D5A0, 0x1D670
_ALPHABETS = (_VALUES, _WEIGHTS, _DIMS, _OWN)
_PLAIN = {start + i: c for start in _ALPHABETS for i, c in enumerate(_LETTERS)}
_JOINT = "\u02cd"  # a letter that looks like an underscore, for a dot or between a name and its suffix
_ESCAPE = "\u02d0"  # a letter that looks like a colon, around the code of a character not allowed in C names
_PLAIN[ord(_JOINT)] = "_"
_ESCAPED = re.compile(f"{_ESCAPE}([0-9a-f]+){_ESCAPE}")
_MARKED = re.compile("[" + "".join(f"{chr(s)}-{chr(s + 51)}" for s in _ALPHABETS) + r"]\w*")
_OF_HEADERS = ("_WEIGHTS_BYTES", "_STORED_BYTES", "_ARENA_BYTES")  # suffixes of headers' macros
OF_CPUID = ("bit_", "signature_")  # prefixes of the macros of <cpuid.h>, of which newer compilers have more
_WORD = re.compile(r"(?<!\.)(?<!->)\b\w+")  # not a member of a struct
_NO_CODE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#\s*include[^\n]*""", re.DOTALL)
_DEFINITION = re.compile(  # name, parameters, body
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?((?:[^\\\n]|\\.)*)", re.MULTILINE | re.DOTALL
)


@lru_cache(1 << 16)
def _mark(name: str, alphabet: int) -> str:
    parts = (
        c if c.isascii() and (c.isalnum() or c == "_") else _JOINT if c == "." else f"{_ESCAPE}{ord(c):x}{_ESCAPE}"
        for c in name
    )
    text = "".join(parts)
    if text[:1] not in _LETTERS or not text or text.upper().startswith("FX_"):
        text = f"v{_JOINT}{text}"  # such names are reserved for compilers and for what fxlite includes
    return chr(alphabet + _LETTERS.index(text[0])) + text[1:]


def value_name(name: str) -> str:
    """The marked name of a value of the program. Different names stay different."""
    return _mark(name, _VALUES)


def weight_name(path: str) -> str:
    """The marked name of a weight of the program, given its path. ``a.b`` and ``a_b`` stay different, also
    from a value of that name."""
    return _mark(path, _WEIGHTS)


def dim_name(name: str) -> str:
    """The marked name of a named size; a marked name stays as it is."""
    return name if _MARKED.match(name) else _mark(name, _DIMS)


def own_name(name: str) -> str:
    """A marked name for text that a generator does not know completely."""
    return _mark(name, _OWN)


def derived(marked: str, suffix: str) -> str:
    """A name derived from another one, such as ``w_packed``; it differs from a user's name of that spelling."""
    return f"{marked}{_JOINT}{suffix}"


def apart(marked: str, taken: Container[str]) -> str:
    """The marked name, or one derived from it, that is not taken."""
    found, number = marked, 1
    while found in taken:
        number += 1
        found = derived(marked, str(number))
    return found


def parts(marked: str) -> list[str]:
    """The parts of a path, such as ``["layers", "0", "weight"]``, followed by derived suffixes."""
    return [spelled(part) for part in marked.split(_JOINT)]


def plain(text: str, longest: int = LONGEST) -> str:
    """Text as part of an identifier: at most ``longest`` ASCII letters, digits and underscores."""
    parts = (c if c.isascii() and c.isalnum() else _in_ascii(c) for c in text)
    return "".join(parts)[:longest]


def file_name(name: str) -> str:
    """A model's name as the name of its files, in ASCII: ``BasicBlock`` gives ``basic_block``, and
    ``ResNet18`` and ``UNet`` give the usual ``resnet18`` and ``unet``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    words = re.sub(r"_Net(?![a-z])", "net", words)
    return plain(re.sub(r"\W+", "_", words).strip("_").lower()).strip("_") or "model"


def spelled(marked: str) -> str:
    """The spelling of a marked name if nothing conflicts with it."""
    text = _ESCAPED.sub(lambda found: _in_ascii(chr(int(found[1], 16))), marked.translate(_PLAIN))
    return text if len(text) <= LONGEST else text[:LONGEST].rstrip("_")


def _in_ascii(character: str) -> str:
    letters = [c for c in unicodedata.normalize("NFKD", character) if c.isascii() and c.isalnum()]
    if letters or not character.isalnum():
        return "".join(letters) or "_"
    return f"u{ord(character):x}"


class Scope:
    """The spelling of the marked names in a text: different from each other, from its words, and from the
    keywords and macros of C and C++ and other ``keywords``. ``library`` is text that is not resolved, whose
    macros the text may use. Calling a scope with text replaces the marked names in it."""

    def __init__(self, text: str, library: str = "", keywords: Iterable[str] = ()) -> None:
        words = list(_words(text))
        marked = [w for w in dict.fromkeys(words) if _MARKED.match(w)]
        taken = {w for w in words if not _MARKED.match(w)}.union(keywords)
        of_macros = _of_macros(library, frozenset(_macros(library).keys() & taken))

        def is_free(wish: str) -> bool:
            return not (wish in taken or wish in _RESERVED or wish in of_macros)

        self.names: dict[str, str] = {}
        for name in marked:
            wish = spelled(name)
            is_macro = wish.endswith(_OF_HEADERS) or wish.startswith(OF_CPUID)
            if not is_macro and is_free(wish):
                self.names[name] = wish
                taken.add(wish)
        for name in marked:
            if name not in self.names:
                self.names[name] = _free(spelled(name), is_free)
                taken.add(self.names[name])

    def __call__(self, text: str) -> str:
        return _MARKED.sub(lambda found: self.names.get(found[0]) or spelled(found[0]), text)


def resolved(text: str, library: str = "", keywords: Iterable[str] = ()) -> str:
    """Text that is a scope by itself, with all names spelled."""
    return Scope(text, library, keywords)(text)


def _free(wish: str, is_free: Callable[[str], bool]) -> str:
    """The name that is wished for, or the nearest one that is free."""
    number = 1
    while True:
        end = "_" if number == 1 else f"_{number}"
        name = wish[: LONGEST - len(end)].rstrip("_") + end if wish else end
        if is_free(name):
            return name
        number += 1


def _words(text: str) -> Iterator[str]:
    """The words of C text, except those in comments and strings."""
    return (found[0] for found in _WORD.finditer(_NO_CODE.sub(" ", text)))


@lru_cache(8)
def _macros(library: str) -> dict[str, frozenset[str]]:
    """The macros that a text defines, and the words that each of them expands to."""
    return {
        found[1]: frozenset(_words(found[3])) - frozenset(_words(found[2] or ""))
        for found in _DEFINITION.finditer(library)
    }


@lru_cache(256)
def _of_macros(library: str, used: frozenset[str]) -> frozenset[str]:
    """All macros of a library, and the words of those that are used, or reserved."""
    macros = _macros(library)
    seen = used | (_RESERVED & macros.keys())
    found, work = set(macros), [*seen]
    while work:
        for word in macros[work.pop()]:
            if word in macros and word not in seen:
                seen |= {word}
                work.append(word)
            found.add(word)
    return frozenset(found)
