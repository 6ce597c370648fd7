"""The parser of graph queries, whose language :mod:`fxlite.show.query` describes.

In: ``"conv2d > batch_norm[training=False] > relu"``. Out: a tuple of :class:`Chain`. Errors
(:class:`~fxlite.base.errors.QueryError`) put a caret under the wrong place and suggest similar names.

A query consists of chains, a chain of steps and the links between them, and a step of filters, all of
which have to hold for a node. Globs for the paths of modules are made into patterns here, too.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NoReturn

from fxlite.base.errors import QueryError, did_you_mean
from fxlite.base.outside_text import bounded
from fxlite.ops.op import ALIASES, REGISTRY, Op, parameter_name
from fxlite.show.query.values import VALUE_WORDS, parse_value


# -- queries as data -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Opcode:
    """``placeholder``"""

    word: str


@dataclass(frozen=True)
class Calls:
    """``conv2d``: calls of that op."""

    op: Op


@dataclass(frozen=True)
class Named:
    """``#relu_1``: the node of that name."""

    name: str


@dataclass(frozen=True)
class Either:
    """``(conv1d|conv2d)``, or ``:not(conv1d|conv2d)`` if ``negated``."""

    steps: tuple[Step, ...]
    negated: bool


@dataclass(frozen=True)
class Test:
    """``[axis=1]``; without a sign, the attribute has to be there. ``start`` and ``end`` are its place in
    the text, for errors that show only on a graph."""

    attribute: str
    sign: str
    value: object
    start: int
    end: int


@dataclass(frozen=True)
class Users:
    """``:users(>1)``"""

    sign: str
    count: int


@dataclass(frozen=True)
class Flag:
    """``:constant``; or ``:last("layers.*.attn")``, the last in each of these modules."""

    word: str
    glob: str = ""


@dataclass(frozen=True)
class Inside:
    """``:in("layers.*.attn")``: made in such a module or in one below it."""

    glob: str


@dataclass(frozen=True)
class At:
    """``:at("model.py:31")``, ``:at("model.py:31-40")``, ``:at("model.py")``"""

    file: str
    first: int
    last: int


Filter = Opcode | Calls | Named | Either | Test | Users | Flag | Inside | At


@dataclass(frozen=True)
class Step:
    """One node of a chain, for which all filters have to hold, applied in this order."""

    filters: tuple[Filter, ...]


@dataclass(frozen=True)
class Chain:
    """``steps[i + 1]`` reads ``steps[i]``: directly (``links[i] == ">"``) or through others
    (``">>"``)."""

    steps: tuple[Step, ...]
    links: tuple[str, ...]


def path_pattern(glob: str) -> re.Pattern[str]:
    """A glob of module paths as a pattern for ``path_key(path)``: ``*`` and ``?`` stay within one part of
    a path, and ``**`` stands for any number of parts."""
    parts = ("(?:[^.]+[.])*" if part == "**" else _part_pattern(part) for part in glob.split("."))
    return re.compile("".join(parts))


def _part_pattern(part: str) -> str:
    wild = {"*": "[^.]*", "?": "[^.]"}
    return "".join(wild.get(c, re.escape(c)) for c in part) + "[.]"


def path_key(path: str) -> str:
    """The text that a :func:`path_pattern` is matched with: the path, with a dot after every part."""
    return f"{path}." if path else ""


# -- the parser ------------------------------------------------------------------------------------
#: Words for nodes that are not calls of an op.
OPCODES = ("placeholder", "get_attr", "call_function", "call_module", "output")
#: Attributes that every node has besides those of its op.
NODE_ATTRIBUTES = (*VALUE_WORDS, "kind", "path")
#: Pseudo-classes without an argument.
FLAGS = ("constant", "random", "input", "dead", "first", "last")
PSEUDO_CLASSES = (*FLAGS, "users", "in", "at", "not")

_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"\d{1,18}")
_MODULE = re.compile(r"module\s*\(")
_PLACE = re.compile(r"(.+?)(?::(\d{1,18})(?:-(\d{1,18}))?)?")
_SIGNS = ("!=", "<=", ">=", "=", "<", ">")


@functools.lru_cache(maxsize=256)
@bounded(QueryError, "the query")
def parse_query(text: str) -> tuple[Chain, ...]:
    """The chains of a query, which commas separate. Raises QueryError."""
    return _Parser(text).query()


def query_error(text: str, start: int, end: int, problem: str) -> QueryError:
    """``problem``, the query, and a caret under the characters from ``start`` to ``end``."""
    shown = re.sub(r"\s", " ", text)
    return QueryError(f"{problem}\n  {shown}\n  {' ' * start}{'^' * max(1, end - start)}")


class _Parser:
    """A scanner over the text with one method for each form of the language."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    # -- scanning ----------------------------------------------------------------------------
    def fail(self, problem: str, start: int | None = None, end: int | None = None) -> NoReturn:
        start = self.position if start is None else start
        raise query_error(self.text, start, start + 1 if end is None else end, problem)

    def skip_spaces(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.position)

    def take(self, *tokens: str) -> str:
        """The first of the tokens that the text goes on with, or ''."""
        for token in tokens:
            if self.peek(token):
                self.position += len(token)
                return token
        return ""

    def expect(self, token: str, problem: str) -> None:
        self.skip_spaces()
        if not self.take(token):
            self.fail(problem)

    def name(self, what: str) -> str:
        found = _NAME.match(self.text, self.position)
        if found is None:
            self.fail(f"expected {what}")
        self.position = found.end()
        return found[0]

    def quoted(self, example: str) -> str:
        """A text in quotes."""
        self.skip_spaces()
        start = self.position
        quote = self.take('"', "'")
        if not quote:
            self.fail(f"a text in quotes is needed here, as in {example}")
        end = self.text.find(quote, self.position)
        if end < 0:
            self.fail("this quote is not closed", start)
        inner = self.text[self.position : end]
        self.position = end + 1
        return inner

    def until_bracket(self, opened: int) -> str:
        """The text up to the bracket that closes ``[``; brackets and quotes inside it are kept."""
        start, depth, quote = self.position, 0, ""
        for position in range(start, len(self.text)):
            c = self.text[position]
            if quote:
                quote = "" if c == quote else quote
            elif c in "\"'":
                quote = c
            elif c in "([":
                depth += 1
            elif c in ")]" and depth:
                depth -= 1
            elif c == "]":
                self.position = position
                return self.text[start:position]
        return self.fail("this bracket is not closed", opened)

    # -- the language ------------------------------------------------------------------------
    def query(self) -> tuple[Chain, ...]:
        chains = [self.chain()]
        while self.take(","):
            chains.append(self.chain())
        if self.position < len(self.text):
            self.unexpected()
        return tuple(chains)

    def unexpected(self) -> NoReturn:
        if self.peek("|"):
            self.fail("alternatives need parentheses, as in (conv1d|conv2d)")
        if _NAME.match(self.text, self.position) or self.peek("#") or self.peek("*"):
            self.fail('two steps need ">" (reads it) or ">>" (depends on it) between them')
        self.fail(f"{self.text[self.position]!r} does not belong here")

    def chain(self) -> Chain:
        self.skip_spaces()
        scope: tuple[Filter, ...] = ()
        if _MODULE.match(self.text, self.position):
            self.position += len("module")
            scope = (self.inside('module("layers.*.attn")'),)
            self.skip_spaces()
            if self.position == len(self.text) or self.peek(","):
                return Chain((Step(scope),), ())
        steps, links = [self.step(scope)], list[str]()
        self.skip_spaces()
        while link := self.take(">>", ">"):
            links.append(link)
            self.skip_spaces()
            if _MODULE.match(self.text, self.position):
                self.fail(
                    'module("…") comes first and holds for the whole chain; use :in("…") for one step',
                    self.position,
                    self.position + len("module"),
                )
            steps.append(self.step(scope))
            self.skip_spaces()
        return Chain(tuple(steps), tuple(links))

    def step(self, scope: tuple[Filter, ...] = ()) -> Step:
        """One step; ``scope`` has the filters that hold for every step of the chain."""
        start = self.position
        filters: list[Filter] = [*scope]
        ops: set[Op] | None = None  # the ops it may be; None: any
        if found := _NAME.match(self.text, self.position):
            self.position = found.end()
            filters.append(self.called(found[0], start))
        elif self.take("#"):
            filters.append(Named(self.name("a node's name, as in #relu_1")))
        elif opened := self.take("("):
            filters.append(Either(self.alternatives(opened), False))
        elif not self.take("*") and not (self.peek("[") or self.peek(":")):
            what = "the end" if self.position >= len(self.text) else repr(self.text[start])
            self.fail(f"a step is needed here (an op, *, #name, ...), not {what}")
        if len(filters) > len(scope):
            ops = _ops(filters[-1])
        while True:
            self.skip_spaces_before("[", ":")
            if self.peek("["):
                filters.append(self.test(ops))
            elif self.take(":"):
                filters.append(self.pseudo_class())
            else:
                return Step(tuple(filters))

    def skip_spaces_before(self, *tokens: str) -> None:
        start = self.position
        self.skip_spaces()
        if not any(map(self.peek, tokens)):
            self.position = start

    def called(self, name: str, start: int) -> Filter:
        if name in OPCODES:
            return Opcode(name)
        op = REGISTRY.get(name) or ALIASES.get(name)
        if op is None:
            near = did_you_mean(name, [*REGISTRY, *ALIASES, *OPCODES])
            self.fail(f"there is no op {name!r}{near}", start, self.position)
        return Calls(op)

    def alternatives(self, opened: str) -> tuple[Step, ...]:
        """``conv1d|conv2d[groups=1])`` after the opening parenthesis."""
        start = self.position - len(opened)
        steps: list[Step] = []
        while True:
            self.skip_spaces()
            steps.append(self.step())
            self.skip_spaces()
            if self.take(")"):
                return tuple(steps)
            if self.position >= len(self.text):
                self.fail("this parenthesis is not closed", start)
            if not self.take("|"):
                self.fail('alternatives are separated by "|" and closed by ")"')

    def test(self, ops: set[Op] | None) -> Test:
        opened = self.position
        self.position += 1
        self.skip_spaces()
        start = self.position
        name = self.name("the name of an attribute, as in [axis=1]")
        attribute = _attribute(name, ops)
        if attribute is None:
            known = _attributes(ops)
            of = f"{next(iter(ops)).name} has" if ops and len(ops) == 1 else "there is"
            listed = f"; known are {', '.join(known)}" if len(known) < 20 else ""
            near = did_you_mean(name, known) or listed
            self.fail(f"{of} no attribute {name!r}{near}", start, self.position)
        self.skip_spaces()
        sign = self.take(*_SIGNS)
        value: object = None
        if sign:
            self.skip_spaces()
            start = self.position
            raw = self.until_bracket(opened).rstrip()
            try:
                value = parse_value(attribute, sign, raw)
            except QueryError as error:
                self.fail(str(error), start, start + len(raw))
        elif not self.peek("]"):
            problem = 'an attribute needs "]" after it, or one of ' + " ".join(_SIGNS)
            self.fail(problem if self.position < len(self.text) else "the bracket is not closed")
        self.expect("]", "the bracket is not closed")
        return Test(attribute, sign, value, opened, self.position)

    def pseudo_class(self) -> Filter:
        start = self.position
        word = self.name("a word such as :users(>1) or :constant")
        if word not in PSEUDO_CLASSES:
            near = did_you_mean(word, PSEUDO_CLASSES) or f"; known are {', '.join(PSEUDO_CLASSES)}"
            self.fail(f"there is no :{word}{near}", start, self.position)
        if word in ("first", "last") and self.text.startswith("(", self.position):
            return Flag(word, self.inside(f':{word}("layers.*.attn")').glob)
        if word in FLAGS:
            return Flag(word)
        if word == "in":
            return self.inside(':in("layers.*.attn")')
        if word == "at":
            return self.place()
        if word == "not":
            self.expect("(", ":not needs parentheses: :not(relu)")
            return Either(self.alternatives("("), True)
        self.expect("(", "the number of users needs parentheses: :users(>1)")
        self.skip_spaces()
        sign = self.take(*_SIGNS) or "="
        self.skip_spaces()
        found = _NUMBER.match(self.text, self.position)
        if found is None:
            self.fail("a number of users is needed here, as in :users(>1)")
        self.position = found.end()
        self.expect(")", "the parenthesis of :users is not closed")
        return Users(sign, int(found[0]))

    def inside(self, example: str) -> Inside:
        self.expect("(", f"the path of a module needs parentheses: {example}")
        glob = self.quoted(example)
        self.expect(")", f"the parenthesis is not closed: {example}")
        return Inside(glob)

    def place(self) -> At:
        example = ':at("model.py:31")'
        self.expect("(", f"a place needs parentheses: {example}")
        self.skip_spaces()
        start = self.position
        text = self.quoted(example)
        found = _PLACE.fullmatch(text)
        if found is None:
            self.fail(f"a place is a file, or a file and a line: {example}", start, self.position)
        self.expect(")", f"the parenthesis is not closed: {example}")
        file, first, last = found.groups()
        return At(file, int(first or 0), int(last or first or 1 << 60))


def _ops(filter: Filter) -> set[Op] | None:
    """The ops that a step may call after this filter; None: any, or no op at all."""
    if isinstance(filter, Calls):
        return {filter.op}
    if isinstance(filter, Either) and not filter.negated:
        found = [_ops(step.filters[0]) if step.filters else None for step in filter.steps]
        return None if None in found else set().union(*(ops for ops in found if ops))
    return None


def _attributes(ops: set[Op] | None) -> list[str]:
    """The names of all attributes and operands of these ops (None: of all ops)."""
    signatures = [op.signature for op in (REGISTRY.values() if ops is None else ops)]
    return [*dict.fromkeys((*(n for s in signatures for n in s.parameters), *NODE_ATTRIBUTES))]


def _attribute(name: str, ops: set[Op] | None) -> str | None:
    """The stored name of an attribute (``dim`` is ``axis``); None if no op has it."""
    known = _attributes(ops)
    return next((n for n in (name, parameter_name(name)) if n in known), None)
