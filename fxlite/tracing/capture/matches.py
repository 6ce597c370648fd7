"""``match`` statements that compare with values, as ``if`` statements, which are rewritten further.

In: the syntax tree of a function. Out: the same, where ``case 1 | 2 if g:`` is ``if (s == 1 or s == 2) and g:``; a
statement with other patterns than values, None, True, False, names and ``_`` stays as it is.
"""

from __future__ import annotations

import ast
from typing import Any

from fxlite.tracing.capture.rewrite_expressions import placed


class Matches(ast.NodeTransformer):
    """See the module's text."""

    def __init__(self) -> None:
        self._count = 0

    def visit_Match(self, node: ast.Match) -> Any:
        self.generic_visit(node)
        self._count += 1
        subject = ast.Name(f"<match {self._count}>", ast.Load())
        found: list[ast.stmt] = []
        for case in reversed(node.cases):
            test, body = _test(case.pattern, subject), case.body
            if test is None:
                return node
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.name is not None:
                if case.guard is not None:
                    return node
                body = [placed(ast.Assign([ast.Name(case.pattern.name, ast.Store())], subject), case.pattern), *body]
            if case.guard is not None:
                test = ast.BoolOp(ast.And(), [test, case.guard])
            if isinstance(test, ast.Constant):
                found = body
            else:
                found = [placed(ast.If(test, body, found), case.pattern)]
        return [placed(ast.Assign([ast.Name(subject.id, ast.Store())], node.subject), node.subject), *found]


def _test(pattern: ast.pattern, subject: ast.Name) -> ast.expr | None:
    """Whether the subject matches, as an expression; None of patterns that take something apart."""
    if isinstance(pattern, ast.MatchValue):
        return placed(ast.Compare(subject, [ast.Eq()], [pattern.value]), pattern)  # type: ignore[no-any-return]
    if isinstance(pattern, ast.MatchSingleton):
        return placed(ast.Compare(subject, [ast.Is()], [ast.Constant(pattern.value)]), pattern)  # type: ignore[no-any-return]
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return placed(ast.Constant(True), pattern)  # type: ignore[no-any-return]
    parts = [_test(part, subject) for part in pattern.patterns] if isinstance(pattern, ast.MatchOr) else [None]
    if None in parts:
        return None
    return placed(ast.BoolOp(ast.Or(), parts), pattern)  # type: ignore[no-any-return, arg-type]
