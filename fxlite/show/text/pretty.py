"""The exact text of graphs (code with a type on every line), and the code that runs.

In: graphs. Out: strings. ``graph_text`` leaves out nothing, has one line for each node, and is read
back by :func:`fxlite.parse`; ``forward_code`` is the same text as a Python function, and
``executable_code`` is that function stripped for running, which :func:`compile_forward` compiles.
Tracebacks and debuggers show the readable text, which is written only on demand.
:mod:`fxlite.show.text.reading` makes what ``print(graph)`` shows of the same lines.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import math
import re
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from fxlite.base import outside_text
from fxlite.base.on_demand import is_expression, sympy
from fxlite.graph.graph import Graph, Node, nodes_in
from fxlite.graph.pytree import result_leaves, state_target
from fxlite.graph.subgraph import bodies_of
from fxlite.show.text.blocks import Writer
from fxlite.show.text.words import USUAL, Words, words_of
from fxlite.types import shapes
from fxlite.types.dtypes import DType
from fxlite.types.guards import facts_text
from fxlite.types.tensor_type import TensorType


# -- values ----------------------------------------------------------------------------------------
def path_text(path: str, is_attribute: Callable[[str], bool]) -> str:
    """``layers.0.weight`` -> ``self.layers[0].weight``; names that cannot be attributes become keys:
    ``self.heads["class"].weight``."""
    return "self" + "".join(
        f"[{part}]"
        if outside_text.is_number(part)
        else f".{part}"
        if is_attribute(part)
        else f"[{outside_text.python_string(part)}]"
        for part in path.split(".")
    )


@functools.cache
def attribute_text(target: str) -> str:
    """The text of a weight or module of a GraphModule; see :func:`path_text`."""
    return path_text(target, _is_attribute)


@functools.cache
def _is_attribute(part: str) -> bool:
    from fxlite.graph.graph_module import GraphModule

    return outside_text.is_name(part) and part != "name" and not hasattr(GraphModule, part)


def value_text(value: Any, words: Words = USUAL) -> str:
    """An argument as Python text; nodes by name, weights as ``self.…``."""
    kind = value.__class__
    if kind is Node:
        return attribute_text(value.target) if value.op == "get_attr" else value.name
    if kind is complex:
        return complex_text(value, words.complex, lambda part: _float_text(part, words))
    if kind in _PLAIN:
        return repr(value) if kind is not float or words is USUAL else _float_text(value, words)
    if isinstance(value, DType):
        return repr(value.name)
    if is_expression(value):
        return dim_text(value, words)
    if isinstance(value, tuple):
        inner = ", ".join([value_text(v, words) for v in value])
        return f"({inner},)" if len(value) == 1 or hasattr(value, "_fields") else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join([value_text(v, words) for v in value])}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {value_text(v, words)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return f"{words.slice}({', '.join([value_text(v, words) for v in parts])})"
    return repr(value)


def _float_text(value: float, words: Words) -> str:
    return re.sub("inf|nan", lambda found: str(getattr(words, found[0])), repr(value))


def complex_text(value: complex, word: str = "complex", part_text: Callable[[float], str] = repr) -> str:
    """A complex number as Python text that gives exactly its parts, including the signs of zeros: ``2j``,
    ``(1+2j)``, ``(-1j)``, or ``complex(0.0, -1.0)``, which ``0-1j`` equals, but ``-1j`` does not."""
    real, imag = value.real, value.imag
    signs = math.copysign(1, real), math.copysign(1, imag)
    if math.isfinite(real) and math.isfinite(imag):
        if real == 0 and signs == (1, 1):
            return repr(value)
        if real == 0 and signs == (-1, -1):
            return f"(-{-value!r})"
        if real and imag:
            return repr(value)
    return f"{word}({part_text(real)}, {part_text(imag)})"


def dim_text(dim: Any, words: Words) -> str:
    """A dim as Python text."""
    return _in_words(shapes.to_text(dim), words)


def _in_words(text: str, words: Words) -> str:
    """The text of dims with functions spelt as in ``words``."""
    if words is USUAL:
        return text
    return re.sub(r"\b(Min|Max|Mod)(?=\()", lambda found: str(getattr(words, found[0])), text)


_PLAIN = frozenset((int, float, bool, str, type(None)))


def has_operator(node: Node) -> bool:
    """Whether a call is written with an operator. A power of bools is not: NumPy's ``**`` gives their
    square another dtype than np.power."""
    symbol = node.target.symbol
    if symbol != "**" or node._kwargs:
        return bool(symbol) and not node._kwargs
    type = getattr(node._args[0], "type", None)
    return type is None or not type.dtype.is_bool


def call_text(node: Node, words: Words = USUAL) -> str:
    """The right-hand side of a node's line."""
    target, kwargs = node.target, node._kwargs
    if node.op == "get_attr":
        return attribute_text(target)
    parts: list[str] = []
    for value in node._args:
        plain = value.__class__ is Node and value.op != "get_attr"
        parts.append(value.name if plain else value_text(value, words))
    if node.op != "call_function":
        head = attribute_text(target)
    elif target.symbol and len(parts) <= 2 and has_operator(node):
        if len(parts) == 1:
            return f"{target.symbol}{parts[0]}"
        left, right = parts
        if target.symbol == "**" and left.startswith("-"):
            left = f"({left})"  # -2 ** x is -(2 ** x)
        return f"{left} {target.symbol} {right}"
    else:
        head = f"{words.ops}.{target.name}"
    if kwargs:
        parts += [f"{k}={value_text(v, words)}" for k, v in kwargs.items()]
    if node.op == "call_function" and target.is_random and "training" not in kwargs:
        parts.append("training=self.training")  # follows gm.train() and gm.eval()
    return f"{head}({', '.join(parts)})"


def type_text(type: Any) -> str:
    """A type, or nested tuples, lists and dicts of types, as text: ``(f32[B,4], i64[B])``."""
    if isinstance(type, (tuple, list)):
        return f"({', '.join(map(type_text, type))}{',' if len(type) == 1 else ''})"
    if isinstance(type, dict):
        return "{" + ", ".join(f"{_key_text(k)}: {type_text(v)}" for k, v in type.items()) + "}"
    return str(type)


def _key_text(key: Any) -> str:
    return str(key) if outside_text.is_name(key) else repr(key)


def remembering(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """``write`` with its results kept by the identity of the value. For one walk over a graph only, as the
    graph keeps the values alive; most nodes share their types and scopes."""
    known: dict[int, str] = {}

    def remembered(value: Any) -> str:
        text = known.get(id(value))
        if text is None:
            text = known[id(value)] = write(value)
        return text

    return remembered


def annotation_of(type: Any) -> str:
    """``: f32[B,4]``, the annotation of a name; empty without a type."""
    return f": {type_text(type)}" if type is not None else ""


# -- lines -----------------------------------------------------------------------------------------
def node_line(node: Node, words: Words = USUAL) -> str:
    """``relu: f32[B,10] = ops.relu(linear)``"""
    if node.op == "output":
        return f"return {value_text(node.args[0], words)}{remark_on(node)}"
    if node.op == "placeholder":
        return node.name + annotation_of(node.type)
    return f"{node.name}{annotation_of(node.type)} = {call_text(node, words)}"


def without_bodies(node: Node, text: str) -> str:
    """The text of a node, in which the bodies of a loop or condition are dots."""
    for body in bodies_of(node).values():
        text = text.replace(repr(body), "…")
    return text


def remark_on(output: Node) -> str:
    """The comment on the results: which of them are written into inputs, and which have fewer elements."""
    return _written(output) + _counted(output)


def _written(output: Node) -> str:
    """A comment that says which of the results are written into inputs."""
    interface, values = output.graph.interface, output.args[0]
    if interface is None or not interface.writes or not isinstance(values, tuple):
        return ""
    states = dict(interface.states)
    targets = [state_text(t, states[t]) if t in states else t for t in interface.writes]
    pairs = zip(reversed(values), reversed(targets))
    said = [f"{node} into {target}" for node, target in pairs if isinstance(node, Node)]
    return f"  # writes {', '.join(reversed(said))}"


def state_text(target: str, path: str) -> str:
    """``self.cache``, followed by the name of its input if that is not the usual one."""
    return f"self.{path}" + (f" as {target}" if target != state_target(path, ()) else "")


def _counted(output: Node) -> str:
    """A comment that says which results have only so many valid elements: ``take: f32[sum ≤ N]``."""
    said: list[str] = []
    for elements, cuts in result_leaves(output.graph):
        if cuts and isinstance(elements, Node):
            sizes = [*map(str, elements.type.shape)]
            for axis, count in cuts:
                sizes[axis] = f"{count} ≤ {sizes[axis]}"
            said.append(f"{elements}: {elements.type.dtype}[{', '.join(sizes)}]")
    return f"  # {', '.join(said)}" if said else ""


def _signature(graph: Graph, words: Words) -> str:
    parts, has_default = ["self"], False
    for node in graph.placeholders:
        # the parameter keeps the program's name; the value's own name may differ
        default = f" = {value_text(node.args[0], words)}" if node.args else ""
        has_default = has_default or bool(node.args)
        if has_default and not node.args:
            default = " = ..."  # it has none, but a parameter before it has
        parts.append(f"{_parameter(node)}{annotation_of(node.type)}{default}")
    return ", ".join(parts)


def _parameter(node: Node) -> str:
    """The name of an input's parameter: that in the program, except for ``self``, which is the module."""
    return node.name if node.target == "self" else str(node.target)


def _head_lines(graph: Graph, words: Words) -> Iterator[str]:
    """The lines of the body before the nodes: other names for inputs, and named dims."""
    for node in graph.placeholders:
        if node.name != _parameter(node):
            yield f"{node.name} = {node.target}"
    yield from _dim_lines(graph, words)


def condition_lines(graph: Graph, words: Words = USUAL) -> Iterator[tuple[str, str]]:
    """(code, comment) for each condition on the named dims of a call: ``assert T <= 512``, and the place
    it comes from, or ``declared`` for the facts of a named dim."""
    for dim in graph.declared_dims.values():
        yield f"assert {_in_words(facts_text(dim), words)}", "declared"
    for guard in graph.guards:
        place, said = guard.loc, ""
        if place is not None:
            said = outside_text.comment(f"{place.short}: {place.expression}").strip().removesuffix(":")
        yield f"assert {_in_words(str(guard), words)}", said
    if graph.specialized:
        said = ", ".join(f"{n} = {v}" for n, v in graph.specialized.items())
        yield "", f"specialized: {said}"


def _lines(graph: Graph, words: Words) -> Iterator[tuple[str, str]]:
    """(code, comment) for each line of the body."""
    yield from first_lines(graph, words)
    for _, lines in node_lines(graph, words, remembering(annotation_of), origins()):
        yield from lines


def first_lines(graph: Graph, words: Words) -> Iterator[tuple[str, str]]:
    """(code, comment) for each line of the body before the nodes."""
    yield from ((line, "") for line in _head_lines(graph, words))
    yield from condition_lines(graph, words)


def node_lines(
    graph: Graph,
    words: Words,
    annotation: Callable[[Any], str],
    origin: Callable[[Node], str],
    nodes: Iterable[Node] | None = None,
) -> Iterator[tuple[Node, Iterable[tuple[str, str]]]]:
    """The nodes (of ``nodes``, or of all) that have lines, with their lines."""
    writer = _writer(graph, words, annotation, origin)
    for node in graph.nodes if nodes is None else nodes:
        op = node.op
        if op == "output":
            yield node, [(node_line(node, words), "")]
        elif op == "call_function" and node.target.kind == "control":
            yield node, writer.lines(node)
        elif op != "placeholder" and op != "get_attr":
            yield node, [writer.line(node)]


def origins() -> Callable[[Node], str]:
    """A function that gives the place a node comes from, or nothing if it is that of the node before."""
    places: dict[Any, str] = {}
    scope = loc = None
    shown = scope_text = place_text = ""

    def said(node: Node) -> str:
        nonlocal scope, loc, shown, scope_text, place_text
        if node.scope is scope and node.loc is loc:
            return ""
        if node.scope is not scope:
            scope = node.scope
            scope_text = str(scope) if scope is not None and scope.path else ""
        if node.loc is not loc:
            loc = node.loc
            known = places.get(id(loc))
            place_text = known if known is not None else places.setdefault(id(loc), loc.short if loc else "")
        origin = f"{scope_text}, {place_text}" if scope_text and place_text else scope_text or place_text
        if origin == shown:
            return ""
        shown = origin
        return outside_text.comment(origin).strip()

    return said


def _writer(graph: Graph, words: Words, annotation: Callable[[Any], str], origin: Callable[[Node], str]) -> Writer:
    """The writer of a graph's nodes."""

    def taken() -> set[str]:
        found = {*words, "self", *(str(node.target) for node in graph.placeholders)}
        return found | {node.name for node in graph.nodes} | graph.input_dims

    def line(node: Node) -> tuple[str, str]:
        return f"{node.name}{annotation(node.type)} = {call_text(node, words)}", origin(node)

    return Writer(line, lambda v: value_text(v, words), annotation, origin, taken)


def _dim_lines(graph: Graph, words: Words) -> Iterator[str]:
    """``B = x.shape[0]`` for every named dim that an attribute or a condition uses."""
    placeholders = [n for n in graph.placeholders if isinstance(n.type, TensorType)]
    if all(n.type.is_concrete for n in placeholders):
        return
    needed = set(graph.declared_dims).union(*(guard.names for guard in graph.guards))
    for node in graph.nodes:
        if node.kwargs:
            needed |= shapes.names(list(node.kwargs.values()))
    plain, solved = dims_read(placeholders, needed)
    yield from (f"{name} = {node.name}.shape[{axis}]" for node, read in plain for axis, name in read.items())
    for name, node, axis, scale, offset in solved:
        size, scale, offset = f"{node.name}.shape[{axis}]", shapes.normalize(scale), shapes.normalize(offset)
        if type(offset) is int:
            size += f" - {offset}" if offset > 0 else f" + {-offset}" if offset else ""
        else:
            size += f" - ({dim_text(offset, words)})"
        by = f"{scale}" if type(scale) is int else f"({dim_text(scale, words)})"
        yield (
            f"{name} = {size}" if by == "1" else f"{name} = ({size})//{by}" if " " in size else f"{name} = {size}//{by}"
        )


def dims_read(
    inputs: Iterable[Node], needed: Container[str]
) -> tuple[list[tuple[Node, dict[int, str]]], list[tuple[str, Node, int, Any, Any]]]:
    """The axes that named dims are read off: the names of axes by input, and (name, input, axis, scale,
    offset) if a size is ``scale * name + offset``."""
    bound: set[str] = set()
    plain, pending, solved = [], list[tuple[Any, Node, int]](), []
    for node in inputs:
        read: dict[int, str] = {}
        for axis, dim in enumerate(node.type.shape if isinstance(node.type, TensorType) else ()):
            if not is_expression(dim):
                continue
            if dim.is_Symbol and dim.name not in bound:
                bound.add(dim.name)
                if dim.name in needed:
                    read[axis] = dim.name
            else:
                pending.append((dim, node, axis))
        plain.append((node, read))
    for dim, node, axis in pending:
        unknown = [s for s in dim.free_symbols if s.name not in bound]
        if len(unknown) == 1 and dim.is_polynomial(unknown[0]):
            polynomial = sympy.Poly(dim, unknown[0])
            if polynomial.degree() == 1:
                bound.add(unknown[0].name)
                if unknown[0].name in needed:
                    solved.append((unknown[0].name, node, axis, *polynomial.all_coeffs()))
    return plain, solved


_PLAIN_PATH = re.compile(r"[^\s,\"'\\]+")


def weights_comment(graph: Graph, width: int = 100) -> list[str]:
    """``# weights: fc1.weight f32[32,64], fc1.bias f32[32]``, wrapped at 100 columns."""
    weights = list({n.target: n for n in graph.nodes if n.op == "get_attr"}.values())
    if not weights:
        return []
    lines: list[str] = []
    current = "    # weights:"
    for position, node in enumerate(weights):
        is_plain = _PLAIN_PATH.fullmatch(node.target)
        path = node.target if is_plain else outside_text.python_string(node.target)
        piece = f" {path} {node.type}" + ("," if position < len(weights) - 1 else "")
        if len(current) + len(piece) > width:
            lines.append(current)
            current = "    #   "
        current += piece
    return [*lines, current]


# -- whole texts -----------------------------------------------------------------------------------
def graph_text(graph: Graph) -> str:
    """Readable code, with a type on every line, and the place it comes from on the right."""
    words = words_of(graph)
    lines = [*function_head(graph, words), *weights_comment(graph)]
    lines += (f"    {with_comment(code, comment)}" for code, comment in _lines(graph, words))
    return "\n".join([*lines, *_nothing(graph)])


def _nothing(graph: Graph) -> list[str]:
    """The body of a graph that has only inputs and weights, or not even those, as one that is still to be
    written."""
    given = ("placeholder", "get_attr")
    return ["    pass"] if all(node.op in given for node in graph.nodes) else []


def function_head(graph: Graph, words: Words, width: int = 0) -> list[str]:
    """The function's head, broken at ``width`` columns, and the first lines of its body: imports of words,
    and the name of the parameter ``_self``."""
    head = f"def forward({_signature(graph, words)}):"
    lines = words.import_lines(itertools.chain([head], (c for c, _ in _lines(graph, words))))
    lines += wrap_code(head, width) if width else [head]
    called = (f"    # input: {n.name} is {n.target}" for n in graph.placeholders)
    return [*lines, *(c for n, c in zip(graph.placeholders, called) if n.target == "self")]


def with_comment(code: str, comment: str) -> str:
    """A line with its comment, if there is one, on its right."""
    if not comment:
        return code
    return f"{code}  # {comment}" if code else f"# {comment}"


FUTURE_IMPORT = "from __future__ import annotations\n\n\n"


def forward_code(graph: Graph) -> str:
    """The source of the function that runs the graph: ``def forward(self, x): ...``."""
    return f"{FUTURE_IMPORT}{graph_text(graph)}\n"


def executable_code(graph: Graph) -> str:
    """The function of :func:`forward_code` for running: without types and comments, which would double
    the time to compile it. Values are deleted after their last use, to free their memory.

    Every expression has the same line and column as in :func:`forward_code`, so that tracebacks can
    show the readable text."""
    words = words_of(graph)
    lines = [*function_head(graph, words), *weights_comment(graph)]
    lines += [f"    {line}" for line in _head_lines(graph, words)]
    lines += [f"    {with_comment(*line)}" for line in condition_lines(graph, words)]
    width = remembering(lambda type: " " * len(annotation_of(type)))
    deletions = _deletions(graph)
    for node, own in node_lines(graph, words, width, lambda node: ""):
        lines += [f"    {line}" for line, _ in own]
        dead = deletions.get(node)
        if dead and lines[-1].startswith(f"    {node.name}"):  # else in a branch, or returned
            lines[-1] += f"; del {dead}"
    lines += _nothing(graph)
    return FUTURE_IMPORT + "\n".join(lines) + "\n"


def _deletions(graph: Graph) -> dict[Node, str]:
    """For each node the names of the values of which it is the last reader. The inputs are not among
    them: the caller holds those."""
    seen: set[Node] = set()
    dead: dict[Node, str] = {}
    for node in reversed(graph.nodes):
        names = []
        for value in node.args if node.op == "call_function" else (node.args, node.kwargs):
            for used in (value,) if value.__class__ is Node else nodes_in(value):
                if used not in seen:
                    seen.add(used)
                    if used.op not in ("placeholder", "get_attr"):
                        names.append(used.name)
        if names:
            dead[node] = ", ".join(names)
    return dead


# -- the function that runs a GraphModule ----------------------------------------------------------
_numbers = itertools.count()


def words_in_code() -> dict[str, Any]:
    """The names that regenerated code reads, with their values."""
    from fxlite.show.text import words

    return {word: getattr(words, word) for word in words.USUAL._fields}


def compile_forward(graph: Graph, name: str) -> Callable[..., Any]:
    """The graph's code as a function of the module and the inputs; ``name`` is for tracebacks."""
    # not "<...>" from end to end: linecache does not look for the lines of such files
    filename = f"<fxlite>/{re.sub(r'[^ -~]', '_', name)}_{next(_numbers)}.py"
    namespace = words_in_code()
    exec(compile(executable_code(graph), filename, "exec"), namespace)
    reference = weakref.ref(graph)

    def source() -> str | None:
        found = reference()
        return forward_code(found) if found is not None else None

    linecache.cache[filename] = (source,)
    weakref.finalize(namespace["forward"], linecache.cache.pop, filename, None)
    return namespace["forward"]  # type: ignore[no-any-return]


# -- long lines, broken as ruff breaks them --------------------------------------------------------
def wrap_code(line: str, width: int = 100) -> list[str]:
    """A line of Python in lines of at most ``width`` columns, broken at its outermost brackets as ruff
    does; left as it is if there are none."""
    is_head = line.lstrip().startswith("def ")
    found = _BRACKET.search(line, 0 if is_head else line.find(" = ") + 1)
    start = found.start() if found else 0
    inner = _inside(line, start) if found and len(line) > width else None
    indent = " " * (len(line) - len(line.lstrip()))
    if not inner:
        left, _, right = line.partition(" = ")
        is_long = len(line) > width and not found and " " in right
        return [f"{left} = (", f"{indent}    {right}", f"{indent})"] if is_long else [line]
    end, tail = line[start + 1 + len(inner) :], []
    if end.startswith(") for "):  # of a comprehension
        end, tail = end[:1], [indent + end[2:]]
    body = f"{indent}    {inner}"
    parts = _split(inner)
    is_call = start > 0 and (line[start - 1].isalnum() or line[start - 1] in "_)]")
    is_group = not is_call and line[start] == "(" and len(parts) == 1 and inner[-1] != ","
    if len(body) <= width and (is_call or is_group or " for " in inner):
        return [line[: start + 1], body, indent + end, *tail]
    is_one = is_group or (len(parts) == 1 and (" for " in inner or inner[0] in "([{"))
    comma = "" if is_one or (len(parts) == 1 and line[start] != "(") else ","
    broken = [text for p in parts for text in wrap_code(f"{indent}    {p}{comma}", width)]
    return [line[: start + 1], *broken, indent + end, *tail]


def operand_lines(line: str, width: int) -> list[str]:
    """``a + b`` as two lines if one would be too long."""
    ends = [at for at, depth in _outside_quotes(line, 0) if depth == 0 and _OPERATOR.match(line, at)]
    if len(line) <= width or len(ends) != 1:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return [line[: ends[0]], indent + line[ends[0] + 1 :]]


_BRACKET = re.compile(r"[(\[{]")
_OPERATOR = re.compile(r"(?<=\S) [-+*/%@&|^<>=!]+ ")


def _inside(line: str, start: int) -> str | None:
    """The text between the bracket at ``start`` and its partner, if little follows after that."""
    for position, depth in _outside_quotes(line, start):
        if depth == 0:
            rest = line[position + 1 :]
            ends = len(rest) <= 2 or rest.startswith(" for ")
            return line[start + 1 : position] if ends else None
    return None


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets and quotes."""
    parts, begin = [], 0
    for position, depth in _outside_quotes(text, 0):
        if text[position] == "," and depth == 0:
            parts.append(text[begin:position].strip())
            begin = position + 1
    return [p for p in (*parts, text[begin:].strip()) if p]


def _outside_quotes(text: str, start: int) -> Iterator[tuple[int, int]]:
    """The positions of characters outside quotes, each with the depth of brackets after it."""
    depth, quote = 0, ""
    for position in range(start, len(text)):
        c = text[position]
        if quote:
            quote = "" if c == quote and text[position - 1] != "\\" else quote
            continue
        if c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        yield position, depth
