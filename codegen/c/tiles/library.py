"""The C text that emitted programs share: tiles, transforms and helpers, in the `.h` files beside this
one.

In: C text that calls them. Out: the definitions that it reaches. A reader of an emitted model, and its
compiler, then see only what the model runs.

A file begins with a comment that says what it is about. Paragraphs of `#define`s after it are its
*parameters*. If one has several values, they are in the branches of an `#if INSTANCE`, and a paragraph
before that may describe it for the other files. The rest consists of definitions, separated by blank lines.
A definition that mentions parameters, as words or as parts of names between underscores, represents one
definition for each choice of their values: `multiply_tile_T` stands for `multiply_tile_float` and
`multiply_tile_double`. A definition needs what it mentions. A comment `/* ---- Title ---- */` or an
`#include` belongs to what follows it, up to the next title or the end of the file.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fxlite.codegen.kernel.text import wrap

FILES = (
    "helpers",
    "numeric/complex",
    "matrix",
    "dots",
    "strips",
    "amx",
    "bf16",
    "int8",
    "int8_epilogue",
    "dynamic_scale",
    "conv_int8",
    "depthwise_int8",
    "conv_amx",
    "weight_only",
    "recurrence",
    "conv",
    "conv_bf16",
    "depthwise",
    "channels_last",
    "winograd",
    "attention",
    "numeric/fourier",
    "numeric/sorting",
    "numeric/factor",
    "numeric/orthogonal",
    "numeric/philox",
)
"""The files, in order: definitions of each may use those of the files before it."""

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_PLACE = re.compile(r"\b([A-Za-z_]\w*)( ?)")
_TITLE = re.compile(r"/\* -{4}")

#: What a definition at the outermost level may look like; the group is the name it gives.
_DEFINED = re.compile(
    r"^#define (\w+)"
    r"|^typedef [\w ]+?[\s*](\w+)(?=[;(]|\s+(?:__attribute__|VECTOR|MAY_ALIAS)\b)"
    r"|^static const \w+ (\w+)\["
    r"|^(?!#|typedef|enum)\S[^\n;{]*?[\s*](\w+)\((?!\()",
    re.MULTILINE,
)

Values = Mapping[str, str]
"""Parameter -> the text that replaces it."""


@dataclass(frozen=True)
class Definition:
    """A definition in a file, with values for the parameters that it mentions; ``names`` are those that it
    defines, none for a title or an `#include`."""

    file: str
    template: str
    values: Values
    names: frozenset[str]

    @cached_property
    def text(self) -> str:
        """The C text, in lines of at most 100 columns."""
        return _folded(instantiate(self.template, self.values))

    @cached_property
    def words(self) -> frozenset[str]:
        """The names that the definition mentions."""
        return _words(self.text)


def needed(users: str, among: Sequence[Definition] | None = None) -> str:
    """Those of these definitions (or of all) that C text reaches, with their comments."""
    by_name = _library_by_name() if among is None else _by_name(among)
    among = library() if among is None else among
    work, found = [*_words(users)], set[int]()
    while work:
        for definition in by_name.get(work.pop(), ()):
            if id(definition) not in found:
                found.add(id(definition))
                work += definition.words
    kept: list[str] = []
    wanted = ""  # the file, if something after its last title is included
    for definition in reversed(among):
        if id(definition) in found or (not definition.names and wanted == definition.file):
            kept.append(definition.text)
            wanted = "" if _TITLE.match(definition.template) else definition.file
    return "".join(f"{text}\n\n" for text in reversed(kept))


def _by_name(among: Iterable[Definition]) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for definition in among:
        for name in definition.names:
            found.setdefault(name, []).append(definition)
    return found


@cache
def _library_by_name() -> dict[str, list[Definition]]:
    return _by_name(library())


def instantiate(template: str, values: Values) -> str:
    """Text with these values of parameters. A parameter without text is removed together with the space after
    it, or the underscore."""
    if not values:
        return template

    def put(found: re.Match[str]) -> str:
        word, space = found.groups()
        if word in values:
            return values[word] + space if values[word] else ""
        parts = ((part, values.get(part, part)) for part in word.split("_"))
        return "_".join(new for old, new in parts if new or not old) + space

    return re.sub(r" +$", "", _PLACE.sub(put, template), flags=re.MULTILINE)


def instantiated(path: Traversable, values: Values) -> str:
    """A file with these values of its parameters, without its first comment."""
    paragraphs = list(_paragraphs(path.read_text(encoding="utf-8")))[1:]
    own = itertools.dropwhile(_table, paragraphs)
    return instantiate("\n\n".join(own), values) + "\n"


def constant(file: str, name: str) -> int:
    """A number that a file defines, as a parameter or in an `enum`."""
    found = re.search(rf"\b{name} (?:= )?(\d+)\b", _read(file))
    assert found is not None, f"{file}.h defines no number {name}"
    return int(found[1])


@cache
def definitions(file: str) -> tuple[Definition, ...]:
    """The definitions of one of the files."""
    return tuple(definitions_of(file, _read(file)))


@cache
def library() -> tuple[Definition, ...]:
    """All definitions."""
    return tuple(definition for file in FILES for definition in definitions(file))


def includes(program: str = "fx") -> str:
    """The text before the functions of a program."""
    return f'#include "fx_math.h"\n#include "{program}_tiles.h"\n'


_GUARD = """\
/* C that all programs made by fxlite share: the part of it that the functions of NAME call. */
#ifndef FX_NAME_TILES_H
#define FX_NAME_TILES_H

"""
_INCLUDES = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fx_math.h"

/* Without OpenMP, its pragmas are unknown, and variables that only they read are unused. */
#if defined(__GNUC__) && !defined(_OPENMP)
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif

"""


def headers(functions: str, program: str = "fx") -> dict[str, str]:
    """The files that a program's functions include, by name: one that is the same for all programs, and one
    specific to the program, so that files of two programs may be in one folder."""
    guard = _GUARD.replace("FX_NAME", f"FX_{program.upper()}").replace("NAME", program)
    return {"fx_math.h": _read("../fx_math"), f"{program}_tiles.h": f"{guard}{_INCLUDES}{needed(functions)}#endif\n"}


# -- scalar functions ------------------------------------------------------------------------------
_MACRO = re.compile(r"^#define (FX_\w+)\(([^)]*)\)((?:\\\n|.)*)\n", re.MULTILINE)
_CALL_OF_MACRO = re.compile(r"^ *(FX_\w+)\(([^()]*)\) *$", re.MULTILINE)


def scalar_functions(users: str) -> str:
    """fx_math.h with those of its functions that C text reaches. To read all of them takes the compiler a quarter of
    its time for a small program."""
    begin, functions = _scalar_functions()
    return f"{begin}{needed(users, functions)}#endif\n"


@cache
def _scalar_functions() -> tuple[str, tuple[Definition, ...]]:
    """How fx_math.h begins, and its definitions. Each function that a macro makes is a definition of its own."""
    begin, last_include, text = _read("../fx_math").partition("#include <string.h>\n#endif\n")
    macros = {
        name: (parameters.split(", "), re.sub(r" *\\\n", "\n", body)) for name, parameters, body in _MACRO.findall(text)
    }

    def made(call: re.Match[str]) -> str:
        name, values = call.groups()
        if name not in macros:
            return call[0]
        parameters, body = macros[name]
        by_name = dict(zip(parameters, values.split(", "), strict=True))
        put = re.sub(r"\w+", lambda word: by_name.get(word[0], word[0]), body).replace("##", "")
        return _CALL_OF_MACRO.sub(made, re.sub(r"^ +(?=FX_FN )", "\n", put, flags=re.MULTILINE))

    functions = _CALL_OF_MACRO.sub(made, text.rpartition("#endif")[0])
    return f"{begin}{last_include}\n", tuple(definitions_of("fx_math", f"/* Functions. */\n{functions}"))


# -- tiles in objects of their own -----------------------------------------------------------------
_SHARED = r"^(?:(TILE_FUNCTION )static|static inline(?= int processor_fits\()) "
"""How a tile begins, and what is asked once in a program."""
_TILE = re.compile(_SHARED + r"([^{;]*?)\s*\{.*?^\}$", re.MULTILINE | re.DOTALL)
_HIDDEN = '__attribute__((visibility("hidden")))'  # so that calls need no table of addresses


def apart(files: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """C files in which tiles are only declared instead of defined, without the functions that only tiles call;
    and for each tile its name and a C file that defines it. These do not depend on the files, so that programs can
    share their objects: most of the compiler's work for a product or a convolution is the same for all."""
    texts, sources = dict(files), dict[str, str]()
    for file, text in files.items():
        for name, tile in _tiles_in(text):
            texts[file] = texts[file].replace(tile.text, _declared(tile))
            sources[name] = _alone(name)
    called = sorted({word for name in sources for word in _tiles()[name].words} & _functions().keys())
    mentioned = Counter(word for text in texts.values() for word in _mentions(text))
    work = [_functions()[name] for name in called]
    while work:
        function = work.pop()
        own = Counter(_mentions(function.text))
        for file, text in texts.items():
            if function.text in text and all(mentioned[name] == own[name] for name in function.names):
                texts[file] = text.replace(f"{function.text}\n\n", "")
                mentioned -= own
                work += [_functions()[name] for name in function.words & _functions().keys()]
    return texts, sources


def _tiles_in(text: str) -> list[tuple[str, Definition]]:
    """The tiles that a text defines, and their names. Only those that it mentions are instantiated."""
    words = _words(text)
    return [(name, tile) for name, tile in _tiles().items() if name in words and tile.text in text]


@cache
def _tiles() -> dict[str, Definition]:
    """The definitions of tiles, by their names."""
    return {n: d for d in library() for n in d.names if _TILE.search(d.template)}


@cache
def _functions() -> dict[str, Definition]:
    """The definitions of other functions, by their names."""
    found = re.compile(r"^static [^;{=]*\([^;]*\{", re.MULTILINE)
    return {n: d for d in library() for n in d.names if n not in _tiles() and found.search(d.template)}


def _declared(tile: Definition) -> str:
    return _TILE.sub(rf"{_HIDDEN} \2;", tile.text)


@cache
def _alone(name: str) -> str:
    """The C file of a tile, in which other tiles are only declared."""
    text = needed(_tiles()[name].text)
    for other, tile in _tiles_in(text):
        if other != name:
            text = text.replace(tile.text, _declared(tile))
    return _INCLUDES + re.sub(_SHARED, lambda head: f"{_HIDDEN} {head[1] or ''}", text, flags=re.MULTILINE)


@cache
def error_type() -> str:
    """The definition of fx_error, for a header that does not include fx_math.h as a whole."""
    begin, end = "#ifndef FX_ERROR_DEFINED", "fx_error;\n#endif\n"
    _, _, rest = _read("../fx_math").partition(begin)
    return f"#include <stdint.h>\n\n{begin}{rest.partition(end)[0]}{end}"


@cache
def macros() -> str:
    """All text that may define a macro for the functions of a program."""
    found = (d.text for d in library() if "#define" in d.template)
    return "\n".join([*found, _read("../fx_math")])


def definitions_of(file: str, text: str) -> Iterator[Definition]:
    """The definitions in the text of a file, for all values of its parameters."""
    paragraphs = list(_paragraphs(text))[1:]  # without the first comment
    tables = list(itertools.takewhile(bool, map(_table, paragraphs)))
    for template in paragraphs[len(tables) :]:
        names, mentioned = _names(template), _mentioned(template, tables) if tables else frozenset[str]()
        for chosen in map(dict, _choices(tables, mentioned)):
            values = {name: instantiate(value, chosen) for name, value in chosen.items()}
            given = frozenset(instantiate(name, values) for name in names)
            yield Definition(file, template, values, given)


def _paragraphs(text: str) -> Iterator[str]:
    """The parts of a text between blank lines that are not within braces or conditions."""
    lines: list[str] = []
    depth = 0
    for line in [*text.splitlines(), ""]:
        code = _COMMENT.sub("", line) if "{" in line or "}" in line else ""
        depth += code.count("{") - code.count("}")
        depth += line.startswith("#if") - line.startswith("#endif")
        if line or depth:
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []


def _table(paragraph: str) -> list[Values]:
    """The values of parameters that a paragraph defines, for each choice; empty if it defines something
    else."""
    code = _COMMENT.sub("", paragraph).strip()
    if not re.match(r"#define \w+(?!\()\b|#if INSTANCE", code):
        return []
    branches = re.split(r"^#(?:if|elif|else|endif)\b.*\n?", code, flags=re.MULTILINE)
    found = [re.findall(r"^#define (\w+)((?:\\\n|.)*)", b, re.MULTILINE) for b in branches]
    return [
        {name: " ".join(value.replace("\\\n", " ").split()) for name, value in branch}
        for branch in (found[1:-1] or found)
    ]


def _mentioned(template: str, tables: Sequence[Sequence[Values]]) -> frozenset[str]:
    """The parameters that a text mentions, directly or in their values."""
    mentioned: set[str] = set()
    work = [template]
    while work:
        words = _WORD.findall(work.pop())
        parts = {*words, *(part for word in words for part in word.split("_"))} - mentioned
        work += [values[name] for table in tables for values in table for name in parts & {*values}]
        mentioned |= parts
    return frozenset(mentioned)


def _choices(tables: Sequence[Sequence[Values]], mentioned: frozenset[str]) -> Iterator[tuple[tuple[str, str], ...]]:
    """The combinations of values that the mentioned parameters may have."""
    chosen = (
        dict.fromkeys(tuple(item for item in values.items() if item[0] in mentioned) for values in table)
        for table in tables
    )
    for choice in itertools.product(*chosen):
        yield tuple(itertools.chain.from_iterable(choice))


def _folded(definition: str) -> str:
    """The definition in lines of at most 100 columns, because names of types make some longer. Macros are unchanged."""
    lines: list[str] = []
    for line in definition.splitlines():
        in_macro = bool(lines) and lines[-1].endswith("\\")
        lines += [line] if in_macro else wrap(line)
    return "\n".join(lines)


def _names(definition: str) -> set[str]:
    """The names that a definition gives."""
    code = _COMMENT.sub("", definition)
    names = {name for found in _DEFINED.findall(code) for name in found if name}
    names.update(re.findall(r"^\} (\w+);", code, re.MULTILINE))
    for body in re.findall(r"^enum \{(.*?)\}", code, re.MULTILINE | re.DOTALL):
        names.update(re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", body))
    return names


@lru_cache(64)
def _words(text: str) -> frozenset[str]:
    """The names that C text mentions; the headers of a build are mostly those of the build before."""
    return frozenset(_mentions(text))


def _mentions(text: str) -> list[str]:
    """Each mention of a name."""
    return _WORD.findall(_COMMENT.sub("", text))


@cache
def _read(name: str) -> str:
    return files("fxlite.codegen.c.tiles").joinpath(f"{name}.h").read_text(encoding="utf-8")
