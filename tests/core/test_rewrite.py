"""Rewritten functions do what the originals do: on values that are known, plain Python happens,
with the same results, exceptions, side effects and places in the source."""

from __future__ import annotations

import linecache
import textwrap
from functools import cache
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import fxlite as fx  # noqa: F401 - the tracer registers who is asked
from fxlite.tracing.capture.capture import captured
from tests.core import rewrite_programs
from tests.core.rewrite_programs import FUNCTIONS, LOG, Box


def told(function: Any, *args: Any) -> Any:
    """What a call gives, raises and logs."""
    LOG.clear()
    rewrite_programs._TOTAL = 0
    try:
        result = repr(function(*args))
    except Exception as error:
        kind = NameError if isinstance(error, NameError) else type(error)
        result = kind.__name__, "" if kind is NameError else str(error)
    return result, list(LOG), rewrite_programs._TOTAL


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_same_happens(function: Any) -> None:
    rewritten = captured(function, "flow")
    assert rewritten is not function
    for n in range(7):
        for limit in range(7):
            assert told(rewritten, n, limit) == told(function, n, limit), (n, limit)


class Base:
    def method(self, k: int) -> Any:
        return k + 1


class Derived(Base):
    def method(self, k: int, *rest: int, z: int = 4, **more: int) -> Any:
        """Has a docstring."""
        if k > 2:
            k = super().method(k)
            k += super().method(1)
        while True:
            k -= 1
            if k < 0:
                break
        return k, rest, z, more, __class__.__name__  # type: ignore[name-defined]


def test_methods() -> None:
    for k in range(5):
        expected = Derived().method(k, 7, z=9, w=1)
        assert captured(Derived().method, "flow")(k, 7, z=9, w=1) == expected
    rewritten = captured(Derived.method, "flow")
    assert rewritten.__defaults__ is Derived.method.__defaults__
    assert rewritten.__kwdefaults__ == {"z": 4}
    box, other = Box(), Box()
    assert captured(box.hidden, "flow")() == other.hidden()


def test_an_error_stands_at_its_line() -> None:
    def program(x: int) -> Any:
        if x > 1:
            for _ in range(2):
                value = [][x]
        return value

    for function in (program, captured(program, "flow")):
        with pytest.raises(IndexError) as caught:
            function(3)
        last = caught.traceback[-1]
        assert str(last.path) == __file__
        assert last.lineno == program.__code__.co_firstlineno + 2


# -- random functions ------------------------------------------------------------------------------
NAMES = ("a", "b", "c")


_LEAVES = st.sampled_from([*NAMES, "0", "1", "2", "7"])
_FORMS = st.sampled_from(
    [
        "({0} + {1})",
        "({0} - {1})",
        "({0} * {1} % 11)",
        "({0} and {1})",
        "({0} or {1})",
        "(not {0})",
        "({0} if {1} else {2})",
        "int({0} < {1} <= {2})",
        "max({0}, {1})",
        "sum(v for v in ({0}, {1}) if v)",
    ]
)


@cache  # a strategy that is made anew is checked anew
@st.composite
def expression(draw: Any, depth: int = 2) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(_LEAVES)
    parts = [draw(expression(depth - 1)) for _ in range(3)]
    return draw(_FORMS).format(*parts)


@cache
@st.composite
def block(draw: Any, depth: int, in_loop: bool) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(statement(depth, in_loop))
    return lines


@cache
@st.composite
def statement(draw: Any, depth: int, in_loop: bool) -> list[str]:
    kinds = ["assign", "update", "call", "item", "return"]
    kinds += ["if", "if", "while", "for", "try"] if depth else []
    kinds += ["break", "continue"] if in_loop else []
    kind, name = draw(st.sampled_from(tuple(kinds))), draw(st.sampled_from(NAMES))
    value = draw(expression())

    def inner(loop: bool) -> list[str]:
        return ["    " + line for line in draw(block(depth - 1, loop))]

    if kind in ("break", "continue"):
        return [kind]
    if kind == "return":
        return [f"if {draw(expression())}:", f"    return {value}, {name}"]
    if kind == "call":
        return [f"{name} = helper({value}, {draw(expression())})"]
    if kind == "item":
        return [f"items[{value} % 3] += {name}"]
    if kind == "update":
        return [f"{name} += {value}"]
    if kind == "if":
        lines = [f"if {value}:", *inner(in_loop)]
        if draw(st.booleans()):
            lines += [f"elif {draw(expression())}:", *inner(in_loop)]
        return lines + (["else:", *inner(in_loop)] if draw(st.booleans()) else [])
    if kind == "for":
        lines = [f"for {name} in range({value} % 4):", *inner(True)]
        return lines + (["else:", *inner(in_loop)] if draw(st.booleans()) else [])
    if kind == "while":
        guard = ["    fuel -= 1", "    if fuel < 0:", "        break"]
        lines = [f"while {value}:", *guard, *inner(True)]
        return lines + (["else:", *inner(in_loop)] if draw(st.booleans()) else [])
    if kind == "try":
        body = [*inner(in_loop), f"    {name} = 5 // {value}"]
        return ["try:", *body, "except ZeroDivisionError:", *inner(in_loop)]
    return [f"{name} = {value}"]


SOURCE = """
def helper(x, y):
    if x > y:
        return x - y
    return y


def program(a, b):
    items = [1, 2, 3]
    fuel = 9
    c = 1
{body}
    return a, b, c, items, fuel
"""


def made(body: list[str], name: str) -> Any:
    """The function of a random body, with its source at hand."""
    text = SOURCE.format(body=textwrap.indent("\n".join(body), "    "))
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    space: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space)
    return space["program"]


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=150, deadline=None)
def test_random_functions(data: Any) -> None:
    body = data.draw(block(3, False))
    program = made(body, "/random_program.py")
    rewritten = captured(program, "flow")
    assert rewritten is not program
    for given in ((0, 1), (3, 2), (-1, 5)):
        assert told(rewritten, *given) == told(program, *given), "\n".join(body)
