"""Rewrites the control flow of a program's functions so that each construct calls a helper.

In: the syntax tree of a function. Out: the same function, at the same places in the source, in
which the parts of ``if``, ``while`` and ``for`` are functions without parameters that share the
variables of the function, and are passed to the methods of
:class:`fxlite.tracing.capture.flow.Flow`::

    if test:                    def <if>(): nonlocal y; y = 1
        y = 1                   def <else>(): nonlocal y; y = 2
    else:               ->      flow.if_(test, <if>, <else>, ("y",))
        y = 2

A part that is left by ``return``, ``break`` or ``continue`` returns an object for that jump, else None.
If a construct may be left in this way, the statements after it are also a function, ``<rest>``, which runs
unless it was. Expressions that Python evaluates only under a condition become lambdas.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from fxlite.tracing.capture.names import (
    LOOPS,
    Round,
    always_leaves,
    binds_a_name,
    bound_names,
    in_the_way,
    is_endless,
    leaves,
    read_names,
)
from fxlite.tracing.capture.rewrite_expressions import Expressions, Scope, as_test, ask, placed

_Statements = list[ast.stmt]


def _texts(names: Any) -> ast.Constant:
    return ast.Constant(tuple(sorted(names)))  # type: ignore[arg-type]


class ControlFlow(Expressions):
    """See the module's text."""

    # -- functions ---------------------------------------------------------------------------------
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node = node if self._scopes else _Matches().visit(node)  # including those of nested functions
        reason = in_the_way(node)
        if reason:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            self.plain[node.name, first] = reason
            return self._plain(node)
        scope = Scope(node)
        for field in ("decorator_list", "args", "returns"):
            self._visit_field(node, field)
        self._scopes.append(scope)
        body = self._block(node.body, top=True)
        self._scopes.pop()
        node.body = [*_top(scope, node), *body]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._plain(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        around, self._class = self._class, node.name
        self._plain(node)
        self._class = around
        return node

    def _plain(self, node: Any) -> ast.AST:
        """A scope whose own statements are not rewritten."""
        scopes, self._scopes = self._scopes, []
        self.generic_visit(node)
        self._scopes = scopes
        return node  # type: ignore[no-any-return]

    def _visit_field(self, node: Any, field: str) -> None:
        value = getattr(node, field)
        if isinstance(value, list):
            setattr(node, field, [self.visit(v) for v in value])
        elif value is not None:
            setattr(node, field, self.visit(value))

    # -- blocks ------------------------------------------------------------------------------------
    def _block(self, body: _Statements, top: bool = False) -> _Statements:
        """A block, rewritten; ``top``: it is that of the function itself, which returns values."""
        made: _Statements = []
        for number, statement in enumerate(body):
            if isinstance(statement, (ast.Global, ast.Nonlocal)):
                continue
            if isinstance(statement, ast.If):
                statement = _one_by_one(statement)
            if isinstance(statement, (ast.Return, ast.Break, ast.Continue)):
                made.append(self._jump(statement, top))
                return made
            if not isinstance(statement, (ast.If, *LOOPS, ast.With, ast.Try, ast.Match)):
                found = self.visit(statement)
                made += found if isinstance(found, list) else [found]
                continue
            rest = body[number + 1 :] if leaves(statement) else None
            made += self._construct(statement, rest, top)
            if rest is not None:
                return made
        return made or [ast.Pass(lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)]

    def _jump(self, node: Any, top: bool) -> ast.stmt:
        if isinstance(node, ast.Return):
            if node.value is not None:
                node.value = self.visit(node.value)
            if top:
                return node
            outcome: ast.expr = ask("returned", node, node.value or ast.Constant(None))
        else:
            outcome = ast.Constant(type(node).__name__.upper())
        return placed(ast.Return(outcome), node)  # type: ignore[no-any-return]

    def _declared(self, bound: set[str]) -> _Statements:
        """The declarations of names that a part shares with the function."""
        scope = self._scopes[-1]
        own = sorted(n for n in bound - scope.globals if not n.startswith("<"))
        declared: _Statements = [ast.Nonlocal(own)] if own else []
        return [*declared, ast.Global(sorted(bound & scope.globals))] if bound & scope.globals else declared

    def _part(self, kind: str, body: _Statements, at: Any, before: _Statements = []) -> Any:  # noqa: B006
        """A block as a function: its definition and its name."""
        name, declared = self._scopes[-1].fresh(kind), self._declared(bound_names([*before, *body]))
        made = ast.FunctionDef(name, ast.arguments([], [], None, [], [], None, []), [], [], None)
        made.body = [*declared, *before, *self._block(body)]
        return placed(made, at), placed(ast.Name(name, ast.Load()), at)

    def _optional(self, kind: str, body: _Statements | None, at: Any) -> tuple[_Statements, Any]:
        if not body:
            return [], placed(ast.Constant(None), at)
        made, name = self._part(kind, body, at)
        return [made], name

    def _construct(self, node: Any, rest: _Statements | None, top: bool) -> _Statements:
        names = bound_names([node, *(rest or ())])
        place = getattr(node, "test", getattr(node, "iter", node))
        if isinstance(node, ast.If):
            made, call = self._if(node, rest, names)
        else:
            if isinstance(node, LOOPS):
                endless = is_endless(node)  # before the test is moved
                made, call = self._loop(node)
                call = ask("endless", place, call) if endless else call
            elif rest is None:
                return [self._with_blocks(node)]
            else:
                part, name = self._part_of(node)
                made, call = [part], placed(ast.Call(name, [], []), node)
            if rest is not None:
                more, then = self._optional("rest", rest, rest[0] if rest else node)
                made += more
                call = ask("then", place, call, then, _texts(names))
        if rest is None:
            return [*made, placed(ast.Expr(call), node)]
        if top:
            call = ask("value", place, call)
        return [*made, placed(ast.Return(call), node)]

    def _if(self, node: ast.If, rest: _Statements | None, names: set[str]) -> Any:
        one_side = always_leaves(node.body) or always_leaves(node.orelse)
        test = self.visit(as_test(node.test))
        body, body_name = self._part("if", node.body, node)
        orelse, else_name = self._optional("else", node.orelse, node)
        made: _Statements = [body, *orelse]
        parts = [test, body_name, else_name, _texts(names)]
        if rest is None:
            return made, ask("if_", test, *parts)
        more, then = self._optional("rest", rest, rest[0] if rest else node)
        return [*made, *more], ask("if_left", test, *parts, then, ast.Constant(one_side))

    def _loop(self, node: Any) -> Any:
        scope = self._scopes[-1]
        if isinstance(node, ast.While) and binds_a_name(node.test):
            _test_inside(node)
        scope.loops.append(node)
        names = bound_names([*node.body, *([node.target] if hasattr(node, "target") else ())])
        given = [node.target] if hasattr(node, "target") else []
        one = Round(node.body, given)
        # names that a round reads before it binds them or keeps from the previous round, and names
        # whose last value is read after the loop
        test = read_names(node.test) if isinstance(node, ast.While) else set()
        exposed = names & (one.exposed | test | (names - one.certain))
        later = names & self._read_later(node)
        every = names | bound_names(node.orelse)
        about = [_texts(names), _texts(exposed), _texts(later), _texts(every)]
        made: _Statements
        if isinstance(node, ast.While):
            place, method = node.test, "while_"
            asked, first = self._part("test", [], node)
            asked.body = [placed(ast.Return(self.visit(as_test(node.test))), node.test)]
            body, second = self._part("while", node.body, node)
            made = [asked, body]
        else:
            place, method = node.iter, "for_"
            first, name = self.visit(node.iter), scope.fresh("value")
            takes = placed(ast.Assign([node.target], placed(ast.Name(name, ast.Load()), node.target)), node.target)
            taken = takes if isinstance(node.target, ast.Name) else self.visit(takes)
            body, second = self._part("for", node.body, node, taken if isinstance(taken, list) else [taken])
            body.args.args.append(placed(ast.arg(name, None), node))
            made = [body]
        orelse, third = self._optional("else", node.orelse, node)
        scope.loops.pop()
        return [*made, *orelse], ask(method, place, first, second, third, *about)

    def _read_later(self, loop: Any) -> set[str]:
        """The names that may be read after a loop: in the rest of the function, or in another round of an outer
        loop."""
        scope = self._scopes[-1]
        around = {id(n) for outer in scope.loops if outer is not loop for n in ast.walk(outer)}
        inside = {id(n) for n in ast.walk(loop)}
        end = (loop.end_lineno, loop.end_col_offset)
        found = set[str](scope.outer)
        for node in ast.walk(scope.node):
            if id(node) in inside or not hasattr(node, "lineno"):
                continue
            behind = (node.lineno, node.col_offset) >= end  # type: ignore[attr-defined]
            if isinstance(node, (ast.FunctionDef, ast.Lambda)) and node is not scope.node:
                found |= read_names(node)
            elif behind or id(node) in around:
                if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Load, ast.Del)):
                    found.add(node.id)
                elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    found.add(node.target.id)
        for statement in loop.orelse:
            found |= read_names(statement)
        return found

    def _part_of(self, node: Any) -> Any:
        """A ``with``, ``try`` or ``match`` that may be left by a jump, as a function."""
        made, name = self._part("with", [], node)
        declared = [placed(d, node) for d in self._declared(bound_names(node))]
        if isinstance(node, ast.Try) and node.orelse and any(map(leaves, node.body)):
            inner = self._try_else(node)
        else:
            inner = [self._with_blocks(node)]
        made.body = [*declared, *inner]
        return made, name

    def _try_else(self, node: ast.Try) -> _Statements:
        """A ``try`` with ``else`` whose body may be left by a jump: the body becomes a function, and ``else`` runs if
        it reached its end."""
        outcome = self._scopes[-1].fresh("outcome")

        def store(value: ast.expr) -> ast.stmt:
            return placed(ast.Assign([ast.Name(outcome, ast.Store())], value), node)  # type: ignore[no-any-return]

        body, name = self._part("try", node.body, node.body[0])
        orelse, other = self._part("else", node.orelse, node.orelse[0])
        ended = ast.Compare(ast.Name(outcome, ast.Load()), [ast.Is()], [ast.Constant(None)])
        last = placed(ast.If(ended, [store(ast.Call(other, [], []))], []), node)
        node.body, node.orelse = [store(ast.Call(name, [], []))], []
        tried = self._with_blocks(node, [last])
        done = placed(ast.Return(ast.Name(outcome, ast.Load())), node)
        return [body, orelse, store(ast.Constant(None)), tried, done]

    def _with_blocks(self, node: Any, orelse: _Statements | None = None) -> ast.stmt:
        """A ``with``, ``try`` or ``match`` with its blocks rewritten. ``orelse`` is that of a ``try`` whose body and
        ``else`` are already functions."""
        if isinstance(node, ast.With):
            node.items = [self.visit(item) for item in node.items]
            node.body = self._block(node.body)
        elif isinstance(node, ast.Match):
            node.subject = self.visit(node.subject)
            for case in node.cases:
                case.guard = self.visit(case.guard) if case.guard is not None else None
                case.body = self._block(case.body)
        else:
            for handler in node.handlers:
                handler.type = self.visit(handler.type) if handler.type is not None else None
                handler.body = self._block(handler.body)
            for field in ("orelse", "finalbody"):
                block = getattr(node, field)
                setattr(node, field, self._block(block) if block else [])
            node.body = self._block(node.body) if orelse is None else node.body
            if node.handlers:
                node.body = _guarded(node)
            node.orelse = node.orelse if orelse is None else orelse
        return node  # type: ignore[no-any-return]


def _top(scope: Scope, node: ast.FunctionDef) -> _Statements:
    """The first statements of a function: declarations, and a statement that binds all of its variables, so that its
    parts can share them."""
    made: _Statements = []
    if scope.globals:
        made.append(ast.Global(sorted(scope.globals)))
    if scope.outer:
        made.append(ast.Nonlocal(sorted(scope.outer)))
    if scope.bound:
        names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in sorted(scope.bound)]
        made.append(ast.If(ast.Constant(0), [ast.Assign(names, ast.Constant(None))], []))
    return [placed(statement, node) for statement in made]


def _test_inside(node: ast.While) -> None:
    """Rewrite ``while test: body`` to ``while True: if test: pass; else: break``, followed by the body, for a test that
    binds names."""
    test = placed(ast.If(node.test, [ast.Pass()], [*node.orelse, ast.Break()]), node.test)
    node.orelse, node.body, node.test = [], [test, *node.body], placed(ast.Constant(True), node.test)


def _one_by_one(node: ast.If) -> ast.If:
    """``if a and b: body`` as ``if a: if b: body`` where ``b`` binds names, so that it is no part on its own; ``or``
    likewise."""
    test = node.test
    if not isinstance(test, ast.BoolOp) or not any(map(binds_a_name, test.values[1:])):
        return node
    first, *more = test.values
    rest = more[0] if len(more) == 1 else placed(ast.BoolOp(test.op, more), more[0])
    if isinstance(test.op, ast.And):
        inner = placed(ast.If(rest, node.body, copy.deepcopy(node.orelse)), rest)
        return placed(ast.If(first, [inner], node.orelse), node)  # type: ignore[no-any-return]
    inner = placed(ast.If(rest, copy.deepcopy(node.body), node.orelse), rest)
    return placed(ast.If(first, node.body, [inner]), node)  # type: ignore[no-any-return]


def _guarded(node: ast.Try) -> _Statements:
    """The body of a ``try`` with handlers, between two calls of the helper."""
    enter, leave = (ast.Expr(ask(method, node.body[0])) for method in ("enter_try", "leave_try"))
    return [placed(statement, node) for statement in (enter, ast.Try(node.body, [], [], [leave]))]


# -- match ----------------------------------------------------------------------------------------
class _Matches(ast.NodeTransformer):
    """Rewrites ``match`` statements that compare with values to ``if`` statements, which are then rewritten further:
    ``case 1 | 2 if g:`` becomes ``if (s == 1 or s == 2) and g:``. The parts of a subject ``a, b`` are compared
    with those of a pattern. Statements with patterns other than values, None, True, False, names and ``_`` stay."""

    def __init__(self) -> None:
        self._count = 0

    def visit_Match(self, node: ast.Match) -> Any:
        self.generic_visit(node)
        self._count += 1
        subject: ast.expr = ast.Name(f"<match {self._count}>", ast.Load())
        if isinstance(node.subject, ast.Tuple) and not any(isinstance(v, ast.Starred) for v in node.subject.elts):
            names: list[ast.expr] = [
                ast.Name(f"<match {self._count} {n}>", ast.Load()) for n in range(len(node.subject.elts))
            ]
            subject = ast.Tuple(names, ast.Load())
        found: list[ast.stmt] = []
        for case in reversed(node.cases):
            stores: list[ast.Assign] = []
            test, body = _is_match(case.pattern, subject, stores), case.body
            if test is None:
                return node
            if case.guard is None:
                body = [*stores, *body]
                found = body if isinstance(test, ast.Constant) else [placed(ast.If(test, body, found), case.pattern)]
            elif isinstance(test, ast.Constant):
                found = [*stores, placed(ast.If(case.guard, body, found), case.pattern)]
            else:  # the guard reads what the pattern binds
                bound: list[ast.expr] = [ast.NamedExpr(s.targets[0], s.value) for s in stores]  # type: ignore[arg-type]
                parts = [test, *([ast.Tuple(bound, ast.Load())] if bound else []), case.guard]
                found = [placed(ast.If(ast.BoolOp(ast.And(), parts), body, found), case.pattern)]
        return [placed(ast.Assign([_as_target(subject)], node.subject), node.subject), *found]


def _as_target(subject: ast.expr) -> ast.expr:
    """The names of a subject, to be assigned."""
    if isinstance(subject, ast.Tuple):
        return ast.Tuple([_as_target(part) for part in subject.elts], ast.Store())
    assert isinstance(subject, ast.Name)
    return ast.Name(subject.id, ast.Store())


def _is_match(pattern: ast.pattern, subject: ast.expr, stores: list[ast.Assign]) -> ast.expr | None:
    """An expression for whether the subject matches, None for patterns that destructure it. The statements that bind
    the names of the pattern are added to ``stores``."""
    if isinstance(pattern, ast.MatchAs):
        if pattern.name is not None:
            stored: list[ast.expr] = [ast.Name(pattern.name, ast.Store())]
            stores.append(placed(ast.Assign(stored, copy.deepcopy(subject)), pattern))
        if pattern.pattern is not None:
            return _is_match(pattern.pattern, subject, stores)
        return placed(ast.Constant(True), pattern)  # type: ignore[no-any-return]
    if isinstance(pattern, ast.MatchOr):
        inner: list[ast.Assign] = []  # which of them bind depends on the part that matches
        parts = [_is_match(part, subject, inner) for part in pattern.patterns]
        return None if inner else _joined(ast.Or(), parts, pattern)
    if isinstance(subject, ast.Tuple):
        if not isinstance(pattern, ast.MatchSequence) or len(pattern.patterns) != len(subject.elts):
            return None
        parts = [_is_match(*pair, stores) for pair in zip(pattern.patterns, subject.elts)]
        return _joined(ast.And(), parts, pattern)
    if isinstance(pattern, ast.MatchValue):
        return placed(ast.Compare(subject, [ast.Eq()], [pattern.value]), pattern)  # type: ignore[no-any-return]
    if isinstance(pattern, ast.MatchSingleton):
        return placed(ast.Compare(subject, [ast.Is()], [ast.Constant(pattern.value)]), pattern)  # type: ignore[no-any-return]
    return None


def _joined(op: ast.boolop, parts: list[ast.expr | None], at: ast.pattern) -> ast.expr | None:
    """The parts of a pattern, joined by ``and`` or ``or``; a part that always matches is a constant."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    is_and = isinstance(op, ast.And)
    open_ = [part for part in found if not isinstance(part, ast.Constant)]
    if not open_ or (not is_and and len(open_) < len(found)):
        return placed(ast.Constant(True), at)  # type: ignore[no-any-return]
    return placed(ast.BoolOp(op, open_) if len(open_) > 1 else open_[0], at)  # type: ignore[no-any-return]
