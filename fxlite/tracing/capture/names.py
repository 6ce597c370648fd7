"""The names that statements bind, that they may read before binding them, and that they bind on every path; and the
jumps by which statements may be left.

In: statements of a function, as syntax trees. Out: sets of names. Nested functions and comprehensions have scopes of
their own: names that they read count, names that they bind do not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Functions that see the variables of their caller as they were written.
_SEES_VARIABLES = frozenset(("locals", "vars", "dir", "eval", "exec"))
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def walk_scope(nodes: Any) -> Iterator[ast.AST]:
    """The nodes of a scope, including nested functions and classes, but not their contents."""
    waiting = [nodes] if isinstance(nodes, ast.AST) else list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _SCOPES):
            inner = [*getattr(node, "decorator_list", []), *_defaults(node)]
            waiting += inner
            if isinstance(node, ast.ClassDef):
                waiting += [*node.bases, *(k.value for k in node.keywords)]
        else:
            waiting += ast.iter_child_nodes(node)


def _defaults(node: Any) -> list[ast.expr]:
    arguments = getattr(node, "args", None)
    if not isinstance(arguments, ast.arguments):
        return []
    return [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]


def bound_names(nodes: Any) -> set[str]:
    """The names that statements bind or delete."""
    found = set[str]()
    comprehended = set[str]()
    for node in walk_scope(nodes):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (a.asname or a.name.partition(".")[0] for a in node.names)
            found.update(names)
        elif (isinstance(node, ast.ExceptHandler) and node.name) or (
            isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name
        ):
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, _COMPREHENSIONS):
            for generator in node.generators:
                comprehended |= {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
    if not comprehended:
        return found
    outside = set[str]()
    inside = {
        id(n)
        for node in walk_scope(nodes)
        if isinstance(node, _COMPREHENSIONS)
        for generator in node.generators
        for n in ast.walk(generator.target)
    }
    for node in walk_scope(nodes):
        binds = isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        if binds and id(node) not in inside:
            outside.add(node.id)  # type: ignore[attr-defined]
    return (found - comprehended) | outside


def read_names(nodes: Any) -> set[str]:
    """The names that are read anywhere in these nodes, also in nested functions."""
    roots = [nodes] if isinstance(nodes, ast.AST) else list(nodes)
    found = set[str]()
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
                found.add(node.id)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
            elif isinstance(node, ast.Nonlocal):
                found.update(node.names)
    return found


class Round:
    """One iteration of a loop's body: ``exposed`` names may be read before the iteration binds them, and ``certain``
    names are bound on every path through it."""

    def __init__(self, body: Iterable[ast.stmt], targets: Iterable[ast.AST] = ()) -> None:
        self.exposed = set[str]()
        self._jumps: list[set[str]] = []
        start = set[str]()
        for target in targets:
            start |= bound_names(target)
        done = self._block(list(body), start)
        ways = [*self._jumps, *([] if done is None else [done])]
        self.certain = set.intersection(*ways) if ways else set()

    def _reads(self, nodes: Any, bound: set[str]) -> None:
        self.exposed |= read_names(nodes) - bound

    def _block(self, body: list[ast.stmt], bound: set[str]) -> set[str] | None:
        """The names that are bound after a block; None if its end is never reached."""
        for statement in body:
            found = self._statement(statement, bound)
            if found is None:
                return None
            bound = found
        return bound

    def _statement(self, statement: ast.stmt, bound: set[str]) -> set[str] | None:
        if isinstance(statement, (ast.Break, ast.Continue, ast.Return, ast.Raise)):
            self._reads(statement, bound)
            if isinstance(statement, (ast.Break, ast.Continue)):
                self._jumps.append(bound)
            return None
        if isinstance(statement, ast.If):
            self._reads(statement.test, bound)
            bound = bound | _surely_bound(statement.test)
            blocks = (statement.body, statement.orelse)
            ways = [way for block in blocks if (way := self._block(block, bound)) is not None]
            return set.intersection(*ways) if ways else None
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            first = statement.test if isinstance(statement, ast.While) else statement.iter
            self._reads(first, bound)
            bound, jumps = bound | _surely_bound(first), self._jumps
            inner = bound if isinstance(statement, ast.While) else bound | bound_names(statement.target)
            self._jumps = []  # jumps inside belong to the inner loop, which may have no iterations
            self._block(statement.body, inner)
            self._jumps = jumps
            self._block(statement.orelse, bound)
            return bound
        if isinstance(statement, (ast.With, ast.AsyncWith)):
            for item in statement.items:
                self._reads(item.context_expr, bound)
                if item.optional_vars is not None:
                    bound = bound | bound_names(item.optional_vars)
            return self._block(statement.body, bound)
        self._reads(statement, bound)
        if isinstance(statement, ast.Delete):
            return bound - bound_names(statement)
        if isinstance(statement, (ast.Try, ast.Match)):
            return bound
        walrus = {n.target.id for n in ast.walk(statement) if isinstance(n, ast.NamedExpr)}
        plain = not (isinstance(statement, ast.AnnAssign) and statement.value is None)
        return bound | _surely_bound(statement) | (bound_names(statement) - walrus if plain else set())


def _surely_bound(node: ast.AST) -> set[str]:
    """The names that ``:=`` binds on every path through an expression or a simple statement."""
    if isinstance(node, (ast.Lambda, ast.Assert, *_COMPREHENSIONS)):
        return set()
    parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.BoolOp):
        parts = node.values[:1]
    elif isinstance(node, ast.IfExp):
        parts = [node.test]
    elif isinstance(node, ast.Compare):
        parts = [node.left, node.comparators[0]]
    found = set[str]().union(*map(_surely_bound, parts))
    return found | {node.target.id} if isinstance(node, ast.NamedExpr) else found


# -- how statements are left ---------------------------------------------------------------------
def in_the_way(node: ast.FunctionDef) -> str:
    """The reason why a function cannot be rewritten; empty if it can."""
    for inner in walk_scope(node.body):
        if isinstance(inner, (ast.Yield, ast.YieldFrom, ast.Await)):
            return "is a generator"
        if isinstance(inner, ast.While) and inner.orelse and binds_a_name(inner.test):
            jumps = (ast.Break, ast.Continue)
            if any(isinstance(n, jumps) for s in inner.orelse for n in ast.walk(s)):
                return "has a while loop that binds a name in its condition and jumps in its else"
        called = inner.func if isinstance(inner, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in _SEES_VARIABLES:
            return f"calls {called.id}()"
    return ""


def leaves(node: ast.AST) -> bool:
    """Whether a statement may be left by a jump to a place outside of it."""

    def search(part: ast.AST, in_loop: bool) -> bool:
        if isinstance(part, ast.Return):
            return True
        if isinstance(part, (ast.Break, ast.Continue)):
            return not in_loop
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return False
        if isinstance(part, LOOPS):
            inside = any(search(s, True) for s in part.body)
            return inside or any(search(s, in_loop) for s in part.orelse)
        return any(search(child, in_loop) for child in ast.iter_child_nodes(part))

    return search(node, False)


def always_leaves(body: list[ast.stmt]) -> bool:
    """Whether the end of a block is never reached."""
    for statement in body:
        if isinstance(statement, (ast.Return, ast.Break, ast.Continue, ast.Raise)):
            return True
        both = (statement.body, statement.orelse) if isinstance(statement, ast.If) else ()
        if both and all(map(always_leaves, both)):
            return True
    return False


def is_endless(loop: ast.stmt) -> bool:
    """Whether a loop can end only by a jump to a place outside of it: ``while True`` without ``break``."""
    if not (isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and loop.test.value):
        return False

    def breaks(part: ast.AST) -> bool:
        if isinstance(part, ast.Break):
            return True
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            return False
        if isinstance(part, LOOPS):
            return any(map(breaks, part.orelse))
        return any(map(breaks, ast.iter_child_nodes(part)))

    return not any(map(breaks, loop.body))


def binds_a_name(node: ast.AST) -> bool:
    """Whether an expression cannot become a lambda, because it binds a name or awaits something."""
    kinds = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)
    return any(isinstance(n, kinds) for n in ast.walk(node))
