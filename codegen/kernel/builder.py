"""Build the function of a template: the loop tree, with calls and text at its leaves.

A template (of a matrix product, a convolution, ...) knows its loops and the addresses that its calls
take, but its arithmetic is a function from a library of tiles. It builds a :class:`Body` statement by
statement. Sizes, addresses and loop variables are :class:`Index`, so that known values are folded: a loop
of one iteration is not printed as a loop, and its variable is replaced by its start; a constant needs no
declaration; variables that no later line reads are not declared.

In: calls of :class:`Body`. Out: lines of C by the printer of all kernels
(:mod:`fxlite.codegen.kernel.printer`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fxlite.codegen.kernel.kernel_ir import Range, Stmt, Text
from fxlite.codegen.kernel.printer import CPrinter
from fxlite.codegen.kernel.text import comment, mentions, wrap
from fxlite.scalar.index import DimVar, Index, Quotient, Var, extremum

Size: TypeAlias = "Index | int"
"""An integer of a template: a size, a stride, a position."""

_PRINTER = CPrinter(())


def text_of(value: Size) -> str:
    """An integer expression as C."""
    return _PRINTER.index(Index.of(value))


def bare(value: Size) -> str:
    """An integer expression as C, for a place that needs no parentheses around a quotient."""
    return _PRINTER.bare(Index.of(value))


def factors(extents: Sequence[Size]) -> str:
    """A product as C that is not expanded, so that it can be recognized: ``(T + 2)*32``."""
    several = len(extents) > 1
    return "*".join(f"({text_of(e)})" if several and len(Index.of(e).terms) > 1 else text_of(e) for e in extents)


def symbol(name: str, like: Size | None = None) -> Index:
    """A variable, parameter or macro of C that holds an integer >= 0; ``like`` is an expression that it
    equals, from which its bounds are known."""
    largest = Index.of(DimVar(name)) if like is None else Index.of(like)
    return Index.of(Var(name, largest + 1))


def divide_up(value: Size, divisor: Size) -> Index:
    """A size divided by another one, rounded up."""
    value, divisor = Index.of(value), Index.of(divisor)
    if divisor.constant is not None or value == 1:
        return (value + divisor - 1) // divisor
    quotient = value // divisor
    whole = (value - quotient * divisor).constant == 0
    return quotient if whole else Index({(Quotient(value + divisor - 1, divisor),): 1})


def round_up(value: Size, step: Size) -> Index:
    """A size rounded up to a multiple of another one."""
    return divide_up(value, step) * step


def smaller(a: Size, b: Size) -> Index:
    """The smaller of two sizes."""
    return extremum("min", a, b)


@dataclass(frozen=True)
class Pointer:
    """An address: ``name + offset``, in elements."""

    name: str
    offset: Index = field(default_factory=lambda: Index.of(0))

    def __add__(self, steps: Size) -> Pointer:
        return Pointer(self.name, self.offset + steps)

    def __sub__(self, steps: Size) -> Pointer:
        return self + -Index.of(steps)

    def __getitem__(self, step: Size) -> str:
        """The element ``step`` elements further on, as C."""
        return f"{self.name}[{bare(self.offset + step)}]"

    __iter__ = None  # it has no length: iterating over it would not end

    def __str__(self) -> str:
        if self.offset == 0:
            return self.name
        return f"{self.name} + {text_of(self.offset)}".replace("+ -", "- ", 1)


Argument: TypeAlias = "Index | int | Pointer | str"
"""An argument of a call: an integer, an address, or text."""


def spelled_argument(value: Argument) -> str:
    """An argument of a call as C."""
    return bare(value) if isinstance(value, (Index, int)) else str(value)


class Body:
    """The statements of a function under construction."""

    def __init__(self) -> None:
        self._open: list[list[Stmt]] = [[]]
        self._ints: set[str] = set()  # names known to be no wider than int

    def put(self, text: str) -> None:
        """Add statements in C, given as lines; indentation is relative."""
        self._open[-1].append(Text(tuple(text.splitlines())))

    def call(self, function: str, *arguments: Argument) -> None:
        """Add a call of a function for its effects."""
        self.put(f"{function}({', '.join(map(spelled_argument, arguments))});")

    def assign(self, target: str, value: str, operator: str = "=") -> None:
        """Add an assignment, or the definition of what the target declares."""
        self.put(f"{target} {operator} {value};")

    def declare(self, what: str) -> None:
        """Add a declaration of variables or arrays without values."""
        self.put(f"{what};")

    def comment(self, text: str) -> None:
        """Add a comment."""
        self.put(f"/* {text} */")

    def let(self, name: str, value: Size | str, ctype: str = "int64_t", like: Size | None = None) -> Index:
        """Define a name for an integer expression, to be read from here on; a number or a name needs none.
        ``like`` is an upper bound that the expression itself does not show. For an expression given as text
        only that is known, and that it is not negative."""
        if not isinstance(value, str):
            known = Index.of(value)
            named = Var if ctype == "int" else (Var, DimVar)  # a size is an int64_t
            if known.constant is not None or isinstance(known.single_atom, named):
                return known
            like, value = known if like is None else like, bare(known)
        if ctype == "int":
            if any(w.isidentifier() and w not in self._ints for w in _WORD.findall(value)):
                value = f"(int){value}" if _is_operand(value) else f"(int)({value})"
            self._ints.add(name)
        else:
            self._ints.discard(name)
        made = Text((f"const {ctype} {name} = {value};",), declares=name)
        if made not in self._open[-1]:  # two parts of a block may ask for the same number
            self._open[-1].append(made)
        return symbol(name, like)

    def pointer(self, ctype: str, name: str, start: Pointer | str) -> Pointer:
        """Define a name for an address. ``ctype`` is the type of its elements, with ``const`` if they are."""
        self._open[-1].append(Text((f"{ctype} *const {name} = {start};",), declares=name))
        return Pointer(name)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """A block ``head { ... }``, for instance of a condition."""
        with self._nested() as body:
            yield
        self._open[-1].append(Text(tuple(head.splitlines()), body=tuple(body)))

    @contextmanager
    def loop(
        self, name: str, end: Size, start: Size = 0, step: int = 1, pragma: str = "", ctype: str = "int64_t"
    ) -> Iterator[Index]:
        """``for (name = start; name < end; name += step)``; yields the variable. For a loop of one iteration
        it adds only the body and yields the start, unless threads share the loop."""
        start, end = Index.of(start), Index.of(end)
        if ctype == "int":
            self._ints.add(name)
        if takes_one_trip(start, end, step) and ("omp" not in pragma or "simd" in pragma):
            with self._nested() as body:
                yield start
            around = self._open[-1]
            if _declared(around).isdisjoint(_declared(body)):
                around += body
            else:
                around.append(Text((), body=tuple(body)))
            return
        variable = Var(name, end)
        whole = (end - start) % step == 0  # then the last iteration is a whole step before the end
        with self._nested() as body:
            yield Index.of(Var(name, end - step + 1) if whole else variable)
        made = Range(variable, tuple(body), "serial", step, start, pragma, ctype)
        self._open[-1].append(made)

    @contextmanager
    def shared(
        self, loops: Sequence[tuple[str, Size]], directive: str, clauses: str = "", schedule: str = "static"
    ) -> Iterator[list[Index]]:
        """Perfectly nested loops from 0, whose iterations threads share under a directive of OpenMP
        (``omp parallel for``, ``omp for``; none if it is empty). Loops of one iteration are left out; if none
        remains, one thread runs the body, for which the others do not wait."""
        real = [name for name, end in loops if not takes_one_trip(Index.of(0), Index.of(end), 1)]
        if directive == "omp for" and not real:
            with self.block("if (this_thread() == 0)"):
                yield [Index.of(0)] * len(loops)
            return
        joined = f" collapse({len(real)})" if len(real) > 1 else ""
        line = f"#pragma {directive}{joined} schedule({schedule}){clauses}" if directive else ""
        with ExitStack() as stack:
            found = []
            for name, end in loops:
                first = bool(real) and name == real[0]
                found.append(stack.enter_context(self.loop(name, end, pragma=line * first)))
            yield found

    @contextmanager
    def _nested(self) -> Iterator[list[Stmt]]:
        body: list[Stmt] = []
        self._open.append(body)
        try:
            yield body
        finally:
            self._open.pop()

    def statements(self) -> tuple[Stmt, ...]:
        """The statements that were built."""
        return tuple(self._open[0])

    def lines(self, depth: int = 1) -> list[str]:
        """The statements as C, without declarations that nothing reads."""
        return _PRINTER.block(_needed(self.statements(), set()), depth)

    def __str__(self) -> str:
        """The statements as C text for another body, which will wrap its lines."""
        found = _needed(self.statements(), set())
        return "\n".join(line for s in found for line in _PRINTER.statement(s, 0))


def _is_operand(text: str) -> bool:
    """Whether a cast in front of an expression applies to all of it: it is a name or one call."""
    name, _, rest = text.partition("(")
    depths = list(itertools.accumulate({"(": 1, ")": -1}.get(c, 0) for c in f"({rest}"))
    return re.fullmatch(r"[\w.]+", name) is not None and (not rest or depths.index(0) == len(rest))


def takes_one_trip(start: Index, end: Index, step: int) -> bool:
    """Whether a loop runs its body exactly once."""
    return start < end and end <= start + step


def _declared(body: Sequence[Stmt]) -> set[str]:
    """Names that statements of one block declare."""
    return {s.declares for s in body if isinstance(s, Text) and s.declares}


def _needed(body: Sequence[Stmt], words: set[str]) -> tuple[Stmt, ...]:
    """A block without declarations of names that do not occur after them; ``words`` collects the words that
    occur in it and are not declared in it."""
    kept: list[Stmt] = []
    for s in reversed(body):
        inner: set[str] = set()  # words of an inner block, whose declarations end with it
        if isinstance(s, Text):
            if s.declares and s.declares not in words:
                continue
            nested = _needed(s.body, inner) if s.body is not None else None
            inner.update(w for line in s.lines for w in _WORD.findall(line))
            words.discard(s.declares)
            inner.discard(s.declares)
            s = Text(s.lines, s.declares, nested)
        elif isinstance(s, Range):
            nested = _needed(s.body, inner)
            bounds = f"{text_of(s.start)} {text_of(s.var.extent)} {s.pragma}"
            inner.update(_WORD.findall(bounds))
            s = replace(s, body=nested)
        else:
            inner.update(_WORD.findall("\n".join(_PRINTER.statement(s, 0))))
        words |= inner
        kept.append(s)
    return tuple(reversed(kept))


_WORD = re.compile(r"\w+")


# -- the function ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rendered:
    """One C function.

    `workspace` is the number of bytes of scratch, in terms of named sizes and ``n_threads``; it should be
    64-byte aligned, and is 0 if none is needed. `extra_parameters` are the names that follow the spec's
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
    """The function with these ``lines``, preceded by a comment with the paragraphs ``said``. ``extra`` are
    its parameters beyond those of the spec, by default the ones that occur in the lines."""
    body = "\n".join(lines)
    if extra is None:
        extra = tuple(word for word in _EXTRA if mentions(body, word))
    head = static_head(name, parameters, extra)
    text = "\n".join([*block_comment(*said), *head, "{", body, "}"]) + "\n"
    return Rendered(text, Index.of(workspace), extra)


_EXTRA = {"workspace": "void *restrict workspace", "n_threads": "int n_threads"}


def static_head(name: str, parameters: str, extra: tuple[str, ...] = ()) -> list[str]:
    """The lines of the head of a static function."""
    arguments = [part.strip() for part in parameters.split(",") if part.strip()]
    arguments += [_EXTRA[item] for item in extra]
    start = f"static void {name}("
    indent = " " * (len(start) if len(start) <= 40 else 8)
    lines = [start]
    for position, argument in enumerate(arguments or ["void"]):
        piece = argument + ("," if position < len(arguments) - 1 else ")")
        if len(lines[-1]) + len(piece) + 1 > 100 and lines[-1].strip():
            lines.append(indent)
        lines[-1] += ("" if lines[-1] in (start, indent) else " ") + piece
    return lines


def parameter_names(parameters: str) -> list[str]:
    """The names in a parameter list."""
    return [re.split(r"[ *]+", part.strip())[-1] for part in parameters.split(",") if part.strip()]


def ignoring(parameters: str, *bodies: str) -> list[str]:
    """A line that marks as unused the parameters that one of the texts, which are branches of an `#if`, does
    not use."""
    read = [re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL) for body in bodies]
    names = [n for n in parameter_names(parameters) if not all(mentions(r, n) for r in read)]
    return wrap(f"    {', '.join(f'(void){name}' for name in names)};") if names else []


def block_comment(*paragraphs: str) -> list[str]:
    """A C comment of the non-empty paragraphs, line by line."""
    text = "\n".join(paragraph for paragraph in paragraphs if paragraph)
    return comment(text).splitlines() if text else []
