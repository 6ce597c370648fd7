"""Fixes for the trace doctor: what to write instead of an expression that cannot be traced.

In: the kind of operation (the first words of the message) and its place. Out: one line of text, with the
names of the user's program if its source is available, else the advice of the error itself.
"""

from __future__ import annotations

import ast
import difflib
import functools
import linecache
from typing import Any

from fxlite.base.errors import Details
from fxlite.base.location import Location

#: NumPy functions without an op, and replacements that do the same, or nearly.
_NEAREST = {
    "linalg.svd": "use a matrix factored before tracing (a parameter), or products with np.matmul",
    "nonzero": "keep the shape: np.where(mask, x, 0)",
    "unique": "compute it before tracing: the size of the result depends on values",
}


def fix_for(details: Details, inputs: tuple[str, ...] = ()) -> str:
    """What to write instead. ``inputs``: names of the program's inputs."""
    location = details.location
    expression = location.expression if location is not None else ""
    problem = details.problem
    if problem.startswith("if, while, and, or") and location is not None:
        return _branch(location, expression) or details.instead
    if "trace has no types" in problem:
        return _types(inputs)
    if problem.startswith("range(), len()"):
        return _named_size(expression) or details.instead
    if problem.startswith(("float()", "int()", ".item()", ".tolist()", "np.asarray")):
        return _value(expression, problem) or details.instead
    if problem.startswith("indexing, range() or a size"):
        return _index(expression) or details.instead
    if problem.endswith("has no fxlite op"):
        return _function(problem.split(" ")[0]) or details.instead
    return details.instead


def _types(inputs: tuple[str, ...]) -> str:
    shown = ", ".join(f'{name}="f32[...]"' for name in inputs) or 'x="f32[...]"'
    return f"fx.symbolic_trace(program, {shown})"


# -- values ----------------------------------------------------------------------------------------
def _parsed(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        return None


def _value(expression: str, problem: str) -> str:
    """The fix for ``float(x)``, ``x.item()`` or ``np.asarray(x)``: the expression without the conversion."""
    node = _parsed(expression)
    if not isinstance(node, ast.Call):
        return ""
    name = ast.unparse(node.func)
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "tolist"):
        return f"{ast.unparse(node.func.value)}, which stays an array"
    if not node.args:
        return ""
    argument = ast.unparse(node.args[0])
    if name == "float":
        return f"{argument}, which stays an array"
    if name == "int":
        return f"({argument}).astype(np.int64), which stays an array"
    if name == "np.take" and len(node.args) > 1:
        rest = (*node.args[1:], *(k.value for k in node.keywords))
        return f"fx.ops.take({argument}, {', '.join(map(ast.unparse, rest))})"
    if name in ("math.sqrt", "math.exp", "math.log", "math.sin", "math.cos", "math.tanh"):
        return f"np.{name[5:]}({argument})"
    return ""


def _index(expression: str) -> str:
    node = _parsed(expression)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
        return (
            "a range with a fixed number of steps, np.where(i < n, new, old) in each; or give the "
            "number in concrete_args={...}"
        )
    if isinstance(node, ast.Subscript):
        return f"fx.ops.take({ast.unparse(node.value)}, {ast.unparse(node.slice)})"
    return ""


def _named_size(expression: str) -> str:
    """The fix for ``range(B)`` and the like."""
    node = _parsed(expression)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "range":
        return "an operation on the whole axis instead of a loop, or a number in place of the name"
    return ""


def _function(name: str) -> str:
    """The fix for a NumPy function that has no op: the most similar one."""
    short = name.removeprefix("np.")
    known = _NEAREST.get(short)
    if known is not None:
        return known
    from fxlite.tracing.numpy_api import function_names

    near = difflib.get_close_matches(short, function_names(), 3, cutoff=0.5)
    return f"the nearest that are traced: {', '.join('np.' + n for n in near)}" if near else ""


# -- branches --------------------------------------------------------------------------------------
@functools.lru_cache(maxsize=64)
def _tree(file: str, lines: int) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return None


def _branch(location: Location, expression: str) -> str:
    """The fix for ``if``, ``while``, ``a if c else b``, ``and``, ``or``, ``not`` or ``assert`` on a traced
    value: the same, written with arrays."""
    called = _parsed(expression)
    if isinstance(called, ast.Call) and ast.unparse(called.func) == "bool":
        return f"{ast.unparse(called.args[0])}, which stays an array"
    tree = _tree(location.file, len(linecache.getlines(location.file)))
    statement, following = _innermost(tree, location.line, expression)
    if isinstance(statement, ast.If):
        return _if(statement, following)
    if isinstance(statement, ast.IfExp):
        sides = (statement.body, statement.orelse)
        return f"np.where({_as_array(statement.test)}, {', '.join(map(ast.unparse, sides))})"
    if isinstance(statement, ast.While):
        test = _as_array(statement.test)
        return f"a fixed number of steps: for _ in range(N): y = np.where({test}, new_y, y)"
    if isinstance(statement, ast.Assert):
        return "check it before tracing, and take the assert out of the program"
    if isinstance(statement, (ast.BoolOp, ast.UnaryOp)):
        return _as_array(statement)
    return ""


def _as_array(test: ast.expr) -> str:
    """A condition without ``and``, ``or`` and ``not``."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return f"np.logical_not({_as_array(test.operand)})"
    if not isinstance(test, ast.BoolOp):
        return ast.unparse(test)
    name = "logical_and" if isinstance(test.op, ast.And) else "logical_or"
    text = _as_array(test.values[0])
    for value in test.values[1:]:
        text = f"np.{name}({text}, {_as_array(value)})"
    return text


def _innermost(tree: ast.Module | None, line: int, expression: str) -> tuple[Any, Any]:
    """The smallest syntax node on that line whose condition contains the expression, and the statement that
    follows."""
    if tree is None:
        return None, None
    wanted = "".join(expression.split())
    best: tuple[int, Any, Any] = (1 << 30, None, None)
    for parent in ast.walk(tree):
        for _, block in ast.iter_fields(parent):
            siblings = block if isinstance(block, list) else [block]
            for number, node in enumerate(siblings):
                condition = _condition(node)
                if condition is None or not condition.lineno <= line <= (condition.end_lineno or 0):
                    continue
                text = "".join(ast.unparse(condition).split())
                plain = _parsed(expression)
                shown = "".join(ast.unparse(plain).split()) if plain is not None else wanted
                if shown in text and len(text) < best[0]:
                    after = siblings[number + 1] if number + 1 < len(siblings) else None
                    best = (len(text), node, after)
    return best[1], best[2]


def _condition(node: Any) -> Any:
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return node.test
    if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return node
    return None


def _if(statement: ast.If, following: Any) -> str:
    test = _as_array(statement.test)
    one = _only_value(statement.body)
    other = _only_value(statement.orelse)
    if one is None:
        return f"compute both sides, then np.where({test}, a, b) for each value that differs"
    name, value = one
    if not statement.orelse and name == "return" and isinstance(following, ast.Return):
        other = _only_value([following])
    if other is None and not statement.orelse and name != "return":
        other = (name, name)
    if other is None or other[0] != name:
        return f"compute both sides, then np.where({test}, a, b) for each value that differs"
    made = f"np.where({test}, {value}, {other[1]})"
    return f"return {made}" if name == "return" else f"{name} = {made}"


def _only_value(block: list[Any]) -> tuple[str, str] | None:
    """(name or "return", value) of a block that is one assignment or return."""
    if len(block) != 1:
        return None
    (only,) = block
    if isinstance(only, ast.Return) and only.value is not None:
        return "return", ast.unparse(only.value)
    if isinstance(only, ast.Assign) and len(only.targets) == 1:
        return ast.unparse(only.targets[0]), ast.unparse(only.value)
    if isinstance(only, ast.AugAssign):
        target = ast.unparse(only.target)
        return target, ast.unparse(ast.BinOp(only.target, only.op, only.value))
    return None
