"""What printing a template gives: one C function, with its comment and its head."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fxlite.codegen.kernel.names import dim_name
from fxlite.codegen.kernel.text import comment, wrap
from fxlite.codegen.runtime.abi import Dim
from fxlite.codegen.runtime.sizes import ValueSize
from fxlite.scalar.index import Index

WIDTH = 100
"""Columns of emitted C."""


def atom(expression: str) -> str:
    """The expression, in parentheses unless it is a name, a number, a call or an index."""
    depth = 0
    for character in expression:
        depth += (character in "([") - (character in ")]")
        if depth == 0 and not (character.isalnum() or character in "_.)]"):
            return f"({expression})"
    return expression


def mentions(text: str, name: str) -> bool:
    """Whether C text uses the name."""
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


@dataclass(frozen=True)
class Rendered:
    """One C function.

    `workspace` is the number of bytes of scratch, of named sizes and ``n_threads``, which should be
    64-byte aligned; 0 if none. `extra_parameters` are the names that follow the spec's
    parameters: a subset of ("workspace", "n_threads"), in this order; ``void *`` and ``int``.
    """

    text: str
    workspace: Index
    extra_parameters: tuple[str, ...]


def rendered(
    name: str,
    parameters: str,
    said: Iterable[str],
    lines: Iterable[str],
    workspace: Index | int = 0,
    extra: tuple[str, ...] | None = None,
) -> Rendered:
    """The function of these ``lines``, with paragraphs that are ``said`` in a comment before it.
    ``extra``: what it takes beyond its parameters, without which it is what the lines mention."""
    body = "\n".join(lines)
    if extra is None:
        extra = tuple(word for word in _EXTRA if mentions(body, word))
    head = signature(name, parameters, extra)
    text = "\n".join([*block_comment(*said), *head, "{", body, "}"]) + "\n"
    return Rendered(text, Index.of(workspace), extra)


_EXTRA = {"workspace": "void *restrict workspace", "n_threads": "int n_threads"}


def signature(name: str, parameters: str, extra: tuple[str, ...] = ()) -> list[str]:
    """The head of a static function, in lines."""
    arguments = [part.strip() for part in parameters.split(",") if part.strip()]
    arguments += [_EXTRA[item] for item in extra]
    start = f"static void {name}("
    indent = " " * (len(start) if len(start) <= 40 else 8)
    lines = [start]
    for position, argument in enumerate(arguments or ["void"]):
        piece = argument + ("," if position < len(arguments) - 1 else ")")
        if len(lines[-1]) + len(piece) + 1 > WIDTH and lines[-1].strip():
            lines.append(indent)
        lines[-1] += ("" if lines[-1] in (start, indent) else " ") + piece
    return lines


def parameter_names(parameters: str) -> list[str]:
    """The names in a parameter list."""
    return [re.split(r"[ *]+", part.strip())[-1] for part in parameters.split(",") if part.strip()]


def ignoring(parameters: str, *bodies: str) -> list[str]:
    """A line for those parameters that one of the texts, which stand in branches of an `#if`, does
    without."""
    read = [re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL) for body in bodies]
    names = [n for n in parameter_names(parameters) if not all(mentions(r, n) for r in read)]
    return wrap(f"    {', '.join(f'(void){name}' for name in names)};") if names else []


def block_comment(*paragraphs: str) -> list[str]:
    """A C comment of the non-empty paragraphs, line by line."""
    text = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return comment(text).splitlines() if text else []


# -- the C function that counts the values of a call before anything is computed -------------------
# In: the values to count (:mod:`fxlite.codegen.program.value_sizes`). Out: ``NAME_largest_bytes``,
# which callers of a model may ask and which its other functions ask themselves. It computes in
# double, which does not wrap; that a size near 2^53 is rounded does not matter beside powers of two.


SIZE_DOCUMENTATION = """\
/** Bytes of the largest value that a call with these sizes stores; -1 if no such call is possible,
 * since a size is negative, or one has more than 2^47 bytes (2^56 where it is not stored). */"""


def size_signature(name: str, dims: Sequence[str]) -> str:
    """The function's head, without what follows it."""
    parameters = ", ".join(f"int64_t {dim_name(d)}" for d in dims)
    return f"int64_t {name}_largest_bytes({parameters or 'void'})"


def size_function(name: str, dims: Sequence[str], values: Sequence[ValueSize]) -> list[str]:
    """The function; nothing where no value has to be counted."""
    if not values:
        return []
    lines = [f"{size_signature(name, dims)} {{", "    double fx_largest = 0;"]
    for value in values:
        shape = ", ".join(map(real_c, value.shape))
        stored = "true" if value.stored else "false"
        given = f"&fx_largest, {stored}, {value.itemsize}, {len(value.shape)}"
        call = f"fx_count({given}, (const double[]){{{shape}}})"
        lines += wrap(f"    if (!{call}) return -1;")
    return [*lines, "    return (int64_t)fx_largest;", "}", ""]


def size_check(name: str, dims: Sequence[str], values: Sequence[ValueSize], then: str) -> list[str]:
    """What begins a function that must not run at impossible sizes."""
    if not values:
        return []
    return [f"    if ({name}_largest_bytes({', '.join(map(dim_name, dims))}) < 0) {then};"]


def real_c(dim: Dim) -> str:
    """A dim as C over doubles."""
    return str(dim) if isinstance(dim, int) else dim.real_c(dim_name)


def divisors(dim: Dim) -> tuple[Dim, ...]:
    """What a dim divides by, which has to be positive, inner ones first."""
    return () if isinstance(dim, int) else dim.divisors
