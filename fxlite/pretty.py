"""Text of graphs: readable code with a type on every line, the code that runs, and a table.

In: graphs. Out: strings. ``str(graph)`` parses back with :func:`fxlite.parse`; ``forward_code`` is
the same text as a Python function that runs.
"""

from __future__ import annotations

import functools
import keyword
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sympy

from fxlite import shapes
from fxlite.dtypes import DType
from fxlite.graph import Graph, Node
from fxlite.op import Op
from fxlite.types import TensorType

if TYPE_CHECKING:
    from rich.table import Table

    from fxlite.graph_module import GraphModule


def attribute_text(target: str) -> str:
    """``layers.0.weight`` -> ``self.layers[0].weight``; names that cannot be attributes are keys,
    ``self.heads["class"].weight``."""
    return "self" + "".join(map(_part_text, target.split(".")))


@functools.cache
def _part_text(part: str) -> str:
    from fxlite.graph_module import GraphModule

    if part.isdigit() and str(int(part)) == part:
        return f"[{part}]"
    plain = part.isidentifier() and not keyword.iskeyword(part) and part != "name"
    return f".{part}" if plain and not hasattr(GraphModule, part) else f'["{part}"]'


def value_text(value: Any) -> str:
    """An argument as Python text; nodes by name, weights as ``self.…``."""
    if isinstance(value, Node):
        return attribute_text(value.target) if value.op == "get_attr" else value.name
    if isinstance(value, DType):
        return repr(value.name)
    if isinstance(value, sympy.Expr):
        return shapes.to_text(value)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return f"({', '.join(map(value_text, value))},)"
        inner = ", ".join(map(value_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {value_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
    return repr(value)


def call_text(node: Node) -> str:
    """The right-hand side of a node's line."""
    if node.op == "get_attr":
        return attribute_text(node.target)
    if node.op == "call_function":
        target: Op = node.target
        if target.symbol and not node.kwargs and len(node.args) == 2:
            left, right = (value_text(a) for a in node.args)
            if target.symbol == "**" and left.startswith("-"):
                left = f"({left})"  # -2 ** x is -(2 ** x)
            return f"{left} {target.symbol} {right}"
        if target.symbol and not node.kwargs and len(node.args) == 1:
            return f"{target.symbol}{value_text(node.args[0])}"
        head = f"ops.{target.name}"
    else:
        head = attribute_text(node.target)
    parts = [value_text(a) for a in node.args]
    parts += [f"{k}={value_text(v)}" for k, v in node.kwargs.items()]
    if isinstance(node.target, Op) and node.target.is_random and "training" not in node.kwargs:
        parts.append("training=self.training")  # follows gm.train() and gm.eval()
    return f"{head}({', '.join(parts)})"


def type_text(type: Any) -> str:
    """A type, or nested tuples, lists and dicts of them, as text: ``(f32[B,4], i64[B])``."""
    if isinstance(type, (tuple, list)):
        return f"({', '.join(map(type_text, type))}{',' if len(type) == 1 else ''})"
    if isinstance(type, dict):
        return "{" + ", ".join(f"{k}: {type_text(v)}" for k, v in type.items()) + "}"
    return str(type)


def node_line(node: Node) -> str:
    """``relu: f32[B,10] = ops.relu(linear)``"""
    if node.op == "output":
        return f"return {value_text(node.args[0])}"
    annotation = f": {type_text(node.type)}" if node.type is not None else ""
    if node.op == "placeholder":
        return f"{node.name}{annotation}"
    return f"{node.name}{annotation} = {call_text(node)}"


def _signature(graph: Graph) -> str:
    parts = ["self"]
    for node in graph.placeholders:
        # the parameter keeps the program's name; the value's own name may differ
        annotation = f": {node.type}" if node.type is not None else ""
        default = f" = {value_text(node.args[0])}" if node.args else ""
        parts.append(f"{_parameter(node)}{annotation}{default}")
    return ", ".join(parts)


def _parameter(node: Node) -> str:
    """Name of an input's parameter: the program's, but for those that the text itself uses."""
    return node.name if node.target in ("self", "ops") else str(node.target)


def _lines(graph: Graph) -> Iterator[tuple[str, str]]:
    """(code, comment) for each line of the body."""
    for node in graph.placeholders:
        if node.name != _parameter(node):
            yield f"{node.name} = {node.target}", ""
    yield from ((line, "") for line in _dim_lines(graph))
    shown: tuple[str, str] = ("", "")
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        if node.op == "output":
            yield node_line(node), ""
            continue
        scope = str(node.scope) if node.scope is not None and node.scope.path else ""
        place = node.loc.short if node.loc is not None else ""
        comment = " ".join(", ".join(p for p in (scope, place) if p).split())  # one line, always
        yield node_line(node), "" if (scope, place) == shown else comment
        shown = (scope, place)


def _dim_lines(graph: Graph) -> Iterator[str]:
    """``B = x.shape[0]`` for every named dim that an attribute uses."""
    needed = frozenset[str]().union(*(shapes.names(list(n.kwargs.values())) for n in graph.nodes))
    bound: set[str] = set()
    pending: list[tuple[Any, str]] = []
    for node in graph.placeholders:
        for axis, dim in enumerate(node.type.shape if isinstance(node.type, TensorType) else ()):
            if isinstance(dim, sympy.Symbol):
                if dim.name not in bound:
                    bound.add(dim.name)
                    if dim.name in needed:
                        yield f"{dim.name} = {node.name}.shape[{axis}]"
            elif not isinstance(dim, int):
                pending.append((dim, f"{node.name}.shape[{axis}]"))
    for dim, text in pending:
        unknown = [s for s in dim.free_symbols if s.name not in bound]
        if len(unknown) == 1 and dim.is_polynomial(unknown[0]):
            polynomial = sympy.Poly(dim, unknown[0])
            if polynomial.degree() == 1:
                a, b = polynomial.all_coeffs()
                bound.add(unknown[0].name)
                if unknown[0].name in needed:
                    first, factor = shapes.to_text(b), shapes.to_text(a)
                    yield f"{unknown[0].name} = ({text} - ({first}))//({factor})"


def graph_text(graph: Graph) -> str:
    """Readable code, a type on every line, where it comes from on the right."""
    lines = [f"def forward({_signature(graph)}):"]
    weights = [n for n in graph.nodes if n.op == "get_attr"]
    if weights:
        lines += _weights_comment(weights)
    for code, comment in _lines(graph):
        lines.append(f"    {code}" + (f"  # {comment}" if comment else ""))
    return "\n".join(lines)


def fitted_text(graph: Graph, width: int = 100, weight_lines: int | None = None) -> str:
    """The text of a graph for a reader with ``width`` columns: comments that do not fit stand on
    the line before, long calls are broken. ``weight_lines`` limits the list of weights."""
    lines = [*wrap_code(f"def forward({_signature(graph)}):", width)]
    weights = [n for n in graph.nodes if n.op == "get_attr"]
    if weights:
        listed = _weights_comment(weights, width)
        if weight_lines is not None and len(listed) > weight_lines:
            left_out = len(weights) - sum(line.count("[") for line in listed[:weight_lines])
            listed = [*listed[:weight_lines], f"    #    and {left_out} more"]
        lines += listed
    for code, comment in _lines(graph):
        whole = f"    {code}  # {comment}" if comment else f"    {code}"
        if len(whole) <= width:
            lines.append(whole)
            continue
        if comment:
            lines.append(f"    # {comment}")
        lines += wrap_code(f"    {code}", width)
    return "\n".join(lines)


def wrap_code(line: str, width: int = 100, always: bool = False) -> list[str]:
    """A line of Python in lines of at most ``width`` columns, as ruff would break its outermost
    brackets; left as it is where there are none. ``always``: also where it would fit."""
    is_head = line.lstrip().startswith("def ")
    found = _BRACKET.search(line, 0 if is_head else line.find(" = ") + 1)
    start = found.start() if found else 0
    inner = _inside(line, start) if found and (always or len(line) > width) else None
    if not inner:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    end, tail = line[start + 1 + len(inner) :], []
    if end.startswith(") for "):  # of a comprehension
        end, tail = end[:1], [indent + end[2:]]
    body = f"{indent}    {inner}"
    if len(body) <= width:
        return [line[: start + 1], body, indent + end, *tail]
    parts = _split(inner)
    is_one = len(parts) == 1 and (" for " in inner or inner[0] in "([{")
    comma = "" if is_one or (len(parts) == 1 and line[start] != "(") else ","
    broken = [text for p in parts for text in wrap_code(f"{indent}    {p}{comma}", width)]
    return [line[: start + 1], *broken, indent + end, *tail]


_BRACKET = re.compile(r"[(\[{]")


def _inside(line: str, start: int) -> str | None:
    """What stands between the bracket at ``start`` and its partner, if little follows that."""
    depth, quote = 0, ""
    for position in range(start, len(line)):
        c = line[position]
        if quote:
            quote = "" if c == quote and line[position - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                rest = line[position + 1 :]
                ends = len(rest) <= 2 or rest.startswith(" for ")
                return line[start + 1 : position] if ends else None
    return None


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for position, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[position - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [p for p in (*parts, text[begin:].strip()) if p]


def _weights_comment(weights: list[Node], width: int = 100) -> list[str]:
    """``# weights: fc1.weight f32[32,64], fc1.bias f32[32]``, wrapped at 100 columns."""
    lines: list[str] = []
    current = "    # weights:"
    for position, node in enumerate(weights):
        piece = f" {node.target} {node.type}" + ("," if position < len(weights) - 1 else "")
        if len(current) + len(piece) > width:
            lines.append(current)
            current = "    #   "
        current += piece
    return [*lines, current]


def forward_code(graph: Graph) -> str:
    """Source of the function that runs the graph: ``def forward(self, x): ...``."""
    return f"from __future__ import annotations\n\n\n{graph_text(graph)}\n"


def readable(module: GraphModule) -> str:
    """The module as a class with its forward."""
    name = re.sub(r"\W", "_", module.name)
    body = "\n".join(f"    {line}" for line in str(module.graph).splitlines())
    return f"class {name}(nn.Module):\n{body}"


def print_table(graph: Graph) -> None:
    """Print opcode, name, type, value and place of every node as a table."""
    from rich.console import Console

    Console(highlight=False).print(node_table(graph))


def node_table(graph: Graph) -> Table:
    """The table of :func:`print_table`."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("opcode", "name", "type"):
        table.add_column(heading, no_wrap=True)
    table.add_column("value", overflow="fold", ratio=3)
    table.add_column("origin", overflow="fold", ratio=2)
    for node in graph.nodes:
        outside = node.op in ("placeholder", "output")
        value = str(node.target) if node.op == "placeholder" else call_text(node)
        if node.op == "output":
            value = value_text(node.args[0])
        types = type_text(node.type) if node.type is not None else ""
        table.add_row(node.op, node.name, types, Text(value), Text("" if outside else node.origin))
    return table
