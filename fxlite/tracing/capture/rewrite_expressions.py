"""Rewrites calls, expressions and stores of a program's functions so that each calls a helper.

In: the syntax tree of a statement. Out: the same, at the same places in the source: ``f(x)`` becomes
``caller.call(f, x)``, and ``y[i]`` becomes ``caller.part(y, i)[caller.index()]``. In functions whose control flow
is also rewritten, ``a and b`` becomes ``caller.and_(a, lambda: b)``, and ``y[i] = v`` becomes
``caller.set_item(v, y, i)``.
"""

from __future__ import annotations

import ast
import copy
from typing import Any

from fxlite.tracing.capture.names import binds_a_name, bound_names, walk_scope

#: Stands in compiled code for the object that makes the calls.
MARK = "\0fxlite.call"
#: Calls of these names look at the frame that calls them, so they stay as they are.
NEEDS_FRAME = frozenset("super locals globals vars dir eval exec breakpoint __import__ __build_class__".split())
#: NumPy's objects whose subscripts make arrays.
MADE_BY_SUBSCRIPTS = frozenset("r_ c_ mgrid ogrid".split())
#: Functions that take all elements of their argument.
_OF_LISTS = frozenset("sum any all min max list math.fsum math.prod".split())
#: Functions that combine any number of elements into one value.
_FOLDS: dict[str, tuple[str, ...]] = {
    "any": (),
    "all": (),
    "next": (),
    "sum": ("start",),
    "math.prod": ("start",),
    "min": ("key", "default"),
    "max": ("key", "default"),
}
_Statements = list[ast.stmt]


class Calls(ast.NodeTransformer):
    """Rewrites ``f(x)`` to ``caller.call(f, x)``, at the same place; ``for i in range(n)`` gets its numbers from the
    caller, also in comprehensions."""

    def __init__(self) -> None:
        #: The reasons why functions cannot be rewritten, by name and first line.
        self.plain: dict[tuple[str, int], str] = {}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in NEEDS_FRAME:
            return node
        return ask("call", node, node.func, *node.args, keywords=node.keywords)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        self.generic_visit(node)
        return ask("text", node, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        is_text = isinstance(node.op, ast.Mod) and isinstance(getattr(node.left, "value", None), str)
        return ask("text", node, node) if is_text else node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        node.value = ask("in_text", node.value, self.visit(node.value))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._subscript(node, not any(isinstance(part, (ast.Name, ast.Call)) for part in ast.walk(node.slice)))

    def _subscript(self, node: ast.Subscript, known: bool) -> ast.AST:
        """``known``: no position in it is computed."""
        self.generic_visit(node)
        name = getattr(node.value, "attr", getattr(node.value, "id", ""))
        if not isinstance(node.ctx, ast.Load) or (known and name not in MADE_BY_SUBSCRIPTS):
            return node
        if name in MADE_BY_SUBSCRIPTS:
            return ask("subscript", node, node.value, _index(node.slice))
        # the subscript itself stays in the program's code, so that its errors have the right line
        owner = ask("part", node, node.value, _index(node.slice))
        return placed(ast.Subscript(owner, ask("index", node), node.ctx), node)  # type: ignore[no-any-return]

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.iter = ask("rounds", node.iter, node.iter)
        return node

    def visit_While(self, node: ast.While) -> Any:
        self.generic_visit(node)
        name = f"<rounds {node.lineno} {node.col_offset}>"
        count = placed(ast.Assign([ast.Name(name, ast.Store())], ask("while_rounds", node.test)), node.test)
        asked = placed(ast.Call(ast.Name(name, ast.Load()), [node.test], []), node.test)
        if isinstance(node.test, ast.Constant):  # the compiler leaves out what no round reaches
            node.body.insert(0, placed(ast.Expr(asked), node.test))
        else:  # the compiler gives some code the place of the statement
            node.test, node = asked, ast.copy_location(node, node.test)
        return [count, node]

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        self.generic_visit(node)
        node.iter = ask("rounds", node.iter, node.iter)
        return node


def is_name(node: ast.AST, name: str) -> bool:
    """Whether a syntax node is a particular name."""
    return isinstance(node, ast.Name) and node.id == name


def placed(made: Any, at: ast.AST) -> Any:
    """A syntax node with the place of another one, also for the nodes inside it that have no place yet."""
    for name in made._attributes:
        setattr(made, name, getattr(at, name))
    for part in ast.iter_child_nodes(made):
        if not hasattr(part, "lineno"):  # others are complete; `ast.fix_missing_locations` walks through all of them
            placed(part, at)
    return made


def ask(method: str, at: ast.AST, *args: Any, keywords: Any = ()) -> ast.Call:
    """The call ``caller.method(...)`` at the place of a node."""
    caller = ast.Attribute(ast.Constant(MARK), method, ast.Load())
    return placed(ast.Call(caller, list(args), list(keywords)), at)  # type: ignore[no-any-return]


class Scope:
    """A function that is being rewritten: its names, and the statements for its start."""

    def __init__(self, node: ast.FunctionDef) -> None:
        declared = [n for n in walk_scope(node.body) if isinstance(n, (ast.Global, ast.Nonlocal))]
        self.node = node
        self.globals = {n for d in declared if isinstance(d, ast.Global) for n in d.names}
        self.outer = {n for d in declared if isinstance(d, ast.Nonlocal) for n in d.names}
        self.first = next((a.arg for a in (*node.args.posonlyargs, *node.args.args)), "")
        self.bound = bound_names(node.body) - self.globals - self.outer
        self.loops: list[ast.AST] = []
        self._count = 0

    def fresh(self, kind: str) -> str:
        """A name that cannot occur in a program."""
        self._count += 1
        return f"<{kind} {self._count}>"


class Expressions(Calls):
    """Rewrites expressions and stores of the functions in ``scopes``."""

    def __init__(self) -> None:
        super().__init__()
        self._scopes: list[Scope] = []
        self._class = ""  # the class around the function, for names that begin with two underscores

    # -- statements --------------------------------------------------------------------------------
    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if not self._scopes:
            return self.generic_visit(node)
        if node.value is None:
            return placed(ast.Pass(), node)
        return self.visit(placed(ast.Assign([node.target], node.value), node))

    def visit_Assign(self, node: ast.Assign) -> Any:
        if not self._scopes or all(isinstance(t, ast.Name) for t in node.targets):
            return self.generic_visit(node)
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], (ast.Subscript, ast.Attribute)):
            return self._store(node.targets[0], value, node)
        name = self._scopes[-1].fresh("value")
        made: _Statements = [placed(ast.Assign([ast.Name(name, ast.Store())], value), node)]
        for target in node.targets:
            made += self._stores(target, name, node)
        return made

    def _stores(self, target: Any, name: str, at: ast.AST) -> _Statements:
        """``target = name``, with stores into parts and attributes through the helper; in ``x[i], i = ...``, a store
        comes before the later names are bound."""
        value = placed(ast.Name(name, ast.Load()), at)
        if isinstance(target, (ast.Subscript, ast.Attribute)):
            return [self._store(target, value, at)]
        later: list[tuple[Any, str]] = []
        for number, element in enumerate(target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()):
            starred = isinstance(element, ast.Starred)
            inner: Any = element.value if starred else element  # type: ignore[attr-defined]
            if later or not isinstance(inner, ast.Name):
                own = self._scopes[-1].fresh("value")
                stored: ast.expr = ast.Name(own, ast.Store())
                target.elts[number] = placed(ast.Starred(stored, ast.Store()) if starred else stored, inner)
                later.append((inner, own))
        made: _Statements = [placed(ast.Assign([target], value), at)]
        for inner, own in later:
            made += self._stores(inner, own, at)
        return made

    def _target_of(self, target: Any) -> tuple[str, ast.expr, ast.expr]:
        """The parts of a target: whether it is an attribute or an item, the owner, and the name or index."""
        owner = self.visit(target.value)
        if isinstance(target, ast.Attribute):
            return "attribute", owner, ast.Constant(_mangled(target.attr, self._class))
        return "item", owner, _index(self.visit(target.slice))

    def _store(self, target: Any, value: ast.expr, at: ast.AST) -> ast.stmt:
        kind, owner, key = self._target_of(target)
        # the value first, because Python computes it before the left side
        return placed(ast.Expr(ask(f"set_{kind}", target, value, owner, key)), at)  # type: ignore[no-any-return]

    def visit_Delete(self, node: ast.Delete) -> Any:
        if not self._scopes or all(isinstance(t, ast.Name) for t in node.targets):
            return self.generic_visit(node)
        made: _Statements = []
        for target in node.targets:
            if isinstance(target, (ast.Subscript, ast.Attribute)):
                kind, owner, key = self._target_of(target)
                made.append(placed(ast.Expr(ask(f"delete_{kind}", target, owner, key)), node))
            else:
                made.append(placed(ast.Delete([target]), node))
        return made

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not self._scopes:
            return self.generic_visit(node)
        symbol, target, value = ast.Constant(type(node.op).__name__), node.target, self.visit(node.value)
        if isinstance(target, ast.Name):
            read = placed(ast.Name(target.id, ast.Load()), target)
            return placed(ast.Assign([target], ask("updated", node, symbol, read, value)), node)
        kind, owner, key = self._target_of(target)
        return placed(ast.Expr(ask(f"update_{kind}", node, symbol, owner, key, value)), node)

    def visit_Assert(self, node: ast.Assert) -> Any:
        if not self._scopes:
            return self.generic_visit(node)
        message = _later(self.visit(node.msg)) if node.msg is not None else ast.Constant(None)
        test = self.visit(as_test(node.test))
        return placed(ast.Expr(ask("assert_", test, _later(test), message)), node)

    # -- expressions -------------------------------------------------------------------------------
    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = ask("holder", node, node.value, ast.Constant(_mangled(node.attr, self._class)))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        made = self._subscript(node, known=False)
        return (
            ask("sliced", node, made) if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load) else made
        )

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func) if isinstance(node.func, (ast.Name, ast.Attribute)) else ""
        if name in _OF_LISTS | _FOLDS.keys() and node.args:
            given = node.args[0]
            known = name in _FOLDS and all(k.arg in _FOLDS[name] for k in node.keywords)
            is_folded = known and len(node.args) <= 1 + (name in ("next", "sum")) and self._scopes
            if is_folded and isinstance(given, (ast.GeneratorExp, ast.ListComp)) and _is_simple(given):
                return self._folded(node, given)
            if name in _OF_LISTS and isinstance(given, ast.GeneratorExp) and given.generators[-1].ifs:
                node.args[0] = placed(ast.ListComp(given.elt, given.generators), given)
        return self._call(node)

    def _folded(self, node: ast.Call, given: ast.GeneratorExp | ast.ListComp) -> ast.AST:
        """``sum(f(a) for a in x if g(a))`` as a call of the helper with x and elements ``(g(a), lambda: f(a))``."""
        (part,), value = given.generators, self._scopes[-1].fresh("elements")
        around, copied = self.visit(part.iter), copy.deepcopy(node)
        copied.args[0].generators[0].iter = placed(ast.Name(value, ast.Load()), given)  # type: ignore[attr-defined]
        inner = copied.args[0]
        if isinstance(inner, ast.GeneratorExp) and part.ifs and not is_name(node.func, "next"):
            copied.args[0] = placed(ast.ListComp(inner.elt, inner.generators), inner)
        plain = _function_of(value, self._call(copied), node)
        test = (
            part.ifs[0] if len(part.ifs) == 1 else ast.BoolOp(ast.And(), part.ifs) if part.ifs else ast.Constant(True)
        )
        pair = ast.Tuple([self.visit(as_test(placed(test, given))), _later(self.visit(given.elt))], ast.Load())
        one = ast.comprehension(self.visit(part.target), ast.List([ast.Name(value, ast.Load())], ast.Load()), [], 0)
        element = ast.Subscript(ast.ListComp(pair, [one]), ast.Constant(0), ast.Load())
        default = [self.visit(other) for other in node.args[1:]]
        made = ask("folded", node, node.func, plain, around, _function_of(value, element, node), *default)
        made.keywords = [placed(ast.keyword(k.arg, self.visit(k.value)), k) for k in node.keywords]
        return made

    def _call(self, node: ast.Call) -> ast.AST:
        made = super().visit_Call(node)
        if made is node and is_name(node.func, "super") and not node.args and self._scopes:
            first = self._scopes[-1].first
            node.args = [placed(ast.Name(name, ast.Load()), node) for name in ("__class__", first)]
        return made

    def visit_For(self, node: ast.For) -> ast.AST:
        return self.generic_visit(node)  # in a generator

    def visit_While(self, node: ast.While) -> ast.AST:
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if any(binds_a_name(v) for v in node.values[1:]):
            return node
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        method = f"true_{method}" if getattr(node, "is_test", False) else method
        return ask(method, node, node.values[0], *map(_later, node.values[1:]))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if all(isinstance(v, ast.Constant) for v in (node.left, node.right)):
            return node
        symbol = ast.copy_location(ast.Constant(type(node.op).__name__), node)
        return ask("operated", node, symbol, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return ask("not_", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        as_test(node.test)
        self.generic_visit(node)
        if binds_a_name(node.body) or binds_a_name(node.orelse):
            return node
        return ask("choose", node.test, node.test, _later(node.body), _later(node.orelse))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        is_plain = isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        sides = (node.left, *node.comparators)
        if len(node.ops) == 1 and is_plain and any(_is_number(v) for v in sides):
            return node
        if any(binds_a_name(v) for v in node.comparators[1:]):
            return node
        first, *more = node.comparators
        symbols = ast.Constant(tuple(type(o).__name__ for o in node.ops))  # type: ignore[arg-type]
        return ask("compare", node, symbols, node.left, first, *map(_later, more))

    def visit_List(self, node: ast.List) -> ast.AST:
        self.generic_visit(node)
        return ask("made", node, node) if isinstance(node.ctx, ast.Load) else node

    def _visit_made(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        return ask("made", node, node)

    visit_Dict = visit_Set = visit_SetComp = visit_DictComp = _visit_made

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        if not self._scopes:
            return super().visit_comprehension(node)
        self.generic_visit(node)
        node.iter = ask("each", node.iter, node.iter)
        return node

    def _filled(self, node: ast.ListComp) -> ast.AST:
        """``[f(a) for a in x]`` as a call of the helper with x, with a function that makes the element of a value, and
        with the body of the loop that fills the list."""
        (part,), value = node.generators, self._scopes[-1].fresh("elements")
        around, copied = self.visit(part.iter), copy.deepcopy(node)
        copied.generators[0].iter = placed(ast.Name(value, ast.Load()), node)
        plain = _function_of(value, self._visit_made(copied), node)
        one = ast.comprehension(self.visit(part.target), ast.List([ast.Name(value, ast.Load())], ast.Load()), [], 0)
        made = ast.Subscript(ast.ListComp(self.visit(node.elt), [one]), ast.Constant(0), ast.Load())
        add, element = (self._scopes[-1].fresh(name) for name in ("add", "element"))
        inner = ast.Call(ast.Name(element, ast.Load()), [ast.Name(value, ast.Load())], [])
        body = _function_of(value, ast.Call(ast.Name(add, ast.Load()), [inner], []), node)
        bodies = _function_of(add, _function_of(element, body, node), node)
        return ask("filled", node, plain, around, _function_of(value, made, node), bodies)

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        last = node.generators[-1]
        if not last.ifs and _is_simple(node) and self._scopes:
            return self._filled(node)
        if not last.ifs or any(map(binds_a_name, (node.elt, *last.ifs))):
            return self._visit_made(node)
        test = last.ifs[0] if len(last.ifs) == 1 else placed(ast.BoolOp(ast.And(), last.ifs), last.ifs[0])
        last.ifs = []
        test, node.elt = self.visit(as_test(test)), self.visit(node.elt)
        node.generators = [self.visit(generator) for generator in node.generators]
        node.elt = ask("kept", node.elt, test, _later(node.elt))
        return ask("gathered", node, node)


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is a constant with which no None and no text is equal."""
    return isinstance(node, ast.Constant) and node.value is not None and not isinstance(node.value, str)


def as_test(node: ast.expr) -> ast.expr:
    """An expression of which only the truth matters, as those of ``if`` and ``while``."""
    if isinstance(node, ast.BoolOp):
        node.is_test = True  # type: ignore[attr-defined]
        for value in node.values:
            as_test(value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        as_test(node.operand)
    return node


def _later(node: ast.expr) -> ast.expr:
    """A lambda that computes an expression."""
    return placed(ast.Lambda(ast.arguments([], [], None, [], [], None, []), node), node)  # type: ignore[no-any-return]


def _function_of(name: str, node: Any, at: ast.AST) -> ast.expr:
    """A lambda of one argument that computes an expression."""
    return placed(ast.Lambda(ast.arguments([], [ast.arg(name)], None, [], [], None, []), node), at)  # type: ignore[no-any-return]


def _is_simple(node: ast.GeneratorExp | ast.ListComp) -> bool:
    """Whether a comprehension has a single ``for`` and binds no other names."""
    part = node.generators[0]
    alone = len(node.generators) == 1 and not part.is_async
    return alone and not any(map(binds_a_name, (node.elt, part.iter, *part.ifs)))


def _index(node: ast.expr) -> ast.expr:
    """A subscript as an argument of a call, with slices as calls."""
    if isinstance(node, ast.Slice):
        parts = [p or ast.Constant(None) for p in (node.lower, node.upper, node.step)]
        return ask("slice", node, *parts)
    if isinstance(node, ast.Tuple):
        node.elts = [_index(part) for part in node.elts]
    return node


def _mangled(name: str, owner: str) -> str:
    """The name of an attribute as mangled in the class ``owner``."""
    private = name.startswith("__") and not name.endswith("__") and owner.strip("_")
    return f"_{owner.lstrip('_')}{name}" if private else name
