"""The values of command-line options: what argparse makes of ``B=8``, ``x=f32[B,3]`` or ``200MB``.

In: an option's text. Out: its value; ArgumentTypeError says what is wrong with it.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any


def pair(form: str) -> Any:
    """A reader of two texts with ``=`` between them; ``form`` says how they look."""

    def parse(text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        if not sign or not name.strip().isidentifier() or not value.strip():
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {form}")
        return name.strip(), value.strip()

    return parse


def typed_input(text: str) -> tuple[str, Any]:
    """``x=f32[B,3,224,224]``: a name and a type."""
    from fxlite.base.errors import ParseError
    from fxlite.types.tensor_type import parse_type

    name, value = pair('NAME=TYPE, such as "x=f32[B,3,224,224]"')(text)
    try:
        return name, parse_type(value)
    except ParseError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def size(text: str) -> tuple[str, int]:
    """``B=8``: a dim and its size."""
    name, value = pair("DIM=N, such as B=8")(text)
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{value!r} in {text!r} is not a size")
    return name, int(value)


def sizes(text: str) -> tuple[str, list[int]]:
    """``T=64,128,256``: sizes of a dim, from 1 on."""
    name, value = pair("DIM=N,N,..., such as T=64,128,256")(text)
    parts = value.split(",")
    for part in parts:
        if not part.strip().isdecimal() or int(part) < 1:
            raise argparse.ArgumentTypeError(f"{part!r} in {text!r} is not a size from 1 on")
    return name, [int(part) for part in parts]


def facts(text: str) -> tuple[str, Any]:
    """``T=1..512%8``: a dim and what is known of it."""
    from fxlite.base.errors import ArgumentError
    from fxlite.types.symbols import parse_facts

    name, value = pair('DIM=FACTS, such as "T=1..512%8"')(text)
    try:
        return name, parse_facts(value)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def query(text: str) -> str:
    """A query, as text."""
    from fxlite.base.errors import QueryError
    from fxlite.show.query.parser import parse_query

    try:
        parse_query(text)
    except QueryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def quantity(text: str) -> int:
    """``200MB``: a number with a unit or prefix."""
    from fxlite.base.errors import QueryError
    from fxlite.show.query.values import parse_quantity

    try:
        return parse_quantity(text)
    except QueryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def seconds(text: str) -> float:
    """``200us``: a time in s, ms or us."""
    for unit, factor in (("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            with contextlib.suppress(ValueError):
                return float(text.removesuffix(unit)) * factor
            break
    raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 200us, 3.5ms or 1s")


def count(text: str) -> int:
    """A number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def depth(text: str) -> int:
    """A number of levels from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of levels")
    return int(text)


def positive(text: str) -> int:
    """A number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def numbers(text: str) -> list[int]:
    """``1,3`` -> numbers from 1 on."""
    return [positive(part) for part in text.split(",")]
