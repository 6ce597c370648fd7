"""``fx.reimport``: turn regenerated Python that somebody edited into a graph again.

In: the current version of the file that ``gm.source()`` or ``gm.to_folder()`` wrote, with its weights, and
``gm``. Out: the graph of what the file computes now, in which unchanged parts keep their identity. The file
is run, so it must be trusted code.

Files of the dialect "numpy" become programs that can be traced: modules whose weights are the arrays of the
file's objects. In their trace, functions of the file that fxlite wrote are recorded as ops, and groups of
calls that are an op's spelling become that op. Nodes of the new trace then get the names, notes, scopes and
places of the nodes they correspond to, in their order.
"""

from __future__ import annotations

import ast
import contextlib
import heapq
import inspect
import itertools
import linecache
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from fxlite import ops
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, CodegenError, FxliteError, TraceError
from fxlite.base.location import described
from fxlite.base.state import active_tracer, is_traced
from fxlite.codegen.python.numpy_text import NumpyText
from fxlite.codegen.python.source import DIALECTS, MARK, python_source, written_program
from fxlite.codegen.python.text import class_name
from fxlite.files.serialize import load_safetensors
from fxlite.graph import pytree
from fxlite.graph.graph import Graph, Node, map_nodes, nodes_in
from fxlite.graph.graph_module import Container, GraphModule
from fxlite.graph.node_store import Namer
from fxlite.nn.module import Module, Parameter, StateDictError
from fxlite.ops import creation
from fxlite.ops.op import REGISTRY
from fxlite.ops.own.foreign import ForeignOp
from fxlite.passes.cutting.inline_modules import flattened
from fxlite.passes.ledger import refusals, set_ledger
from fxlite.show.comparison.compare import operands, types_equal
from fxlite.show.comparison.pairing import Pairs, call_key, pair_nodes
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.types.tensor_type import TensorType


@checked
def reimport(
    path: str | os.PathLike[str], like: GraphModule, inputs: Mapping[str, Any] | None = None, **named: Any
) -> GraphModule:
    """The graph of a regenerated file that was edited: ``fx.reimport("out/net.py", like=gm)``.

    ``path`` is the file that :meth:`GraphModule.source` or :meth:`GraphModule.to_folder` wrote from
    ``like``, or its folder; the dialects "fxlite" and "numpy" are supported. Weights are read from the file
    beside it or, if there is none, taken from ``like``. Nodes that compute the same as before keep their
    name, ``meta``, scope and place in the original program, and so do inputs and weights; others come from
    their line of the edited file. ``fx.diff(like, made)`` shows the changes. The passes recorded in ``like``
    are kept, and so are refusals in its ledger about nodes that stay. New inputs need types,
    ``y="f32[B,4]"``, as in :func:`fxlite.symbolic_trace`. ``like`` is left as it is.

    The file is run. Raises CodegenError for a file that cannot be read or imported or is of another dialect,
    ArgumentError for inputs without a type and weights that are missing or do not fit, and whatever tracing
    raises; all errors name file and line."""
    file = _File.read(Path(path))
    source, paths = written_program(like, file.dialect)
    program = file.program(class_name(like.name), source).train(like.training)
    own = file.load(program, source)
    declared = file.inputs(program, like, {**(inputs or {}), **named})
    with file.errors(TraceError, "cannot be traced"):
        made = symbolic_trace(program, inputs=declared)
    like = flattened(like)
    if file.dialect == "numpy":
        made = recomposed(made, like, paths)
    return with_identity(made, like, paths, own)


@dataclass(frozen=True)
class _File:
    """An edited file: its path, its syntax, and what it defines when it is run."""

    path: Path
    tree: ast.Module
    names: dict[str, Any]
    dialect: str = "fxlite"

    @classmethod
    def read(cls, path: Path) -> _File:
        """Run a file. Raises CodegenError."""
        if path.is_dir():
            path = _source_in(path)
        try:
            source = path.read_bytes()
        except OSError as error:
            raise CodegenError(f"cannot read {path}: {error.strerror or error}") from error
        path = path.resolve()
        linecache.checkcache(str(path))
        names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
        file = cls(path, ast.Module([], []), names)
        with file.errors(CodegenError, "cannot be imported"):
            tree = ast.parse(source, str(path))
            imported = {name.split(".")[0] for node in ast.walk(tree) for name in _imports(node)}
            if others := imported & {*DIALECTS} - {"fxlite", "numpy"}:
                raise CodegenError(
                    f"{path} is in the dialect {min(others)!r}, whose functions cannot be traced; "
                    f'edit the source in the dialect "fxlite": gm.source()'
                )
            exec(compile(tree, str(path), "exec"), names)
        return cls(path, tree, names, "fxlite" if "fxlite" in imported else "numpy")

    @contextlib.contextmanager
    def errors(self, kind: type[FxliteError], what: str) -> Iterator[None]:
        """A context in which its folder is on the import path, and other errors name its line."""
        before = list(sys.path)
        sys.path.insert(0, str(self.path.parent))
        try:
            yield
        except FxliteError:
            raise
        except SyntaxError as error:
            raise kind(f"{self.path}:{error.lineno} {what}: {error.msg}") from error
        except (Exception, SystemExit) as error:
            raise kind(f"{self.path} {what}: {described(error, self.path)}") from error
        finally:
            sys.path[:] = before

    def program(self, wish: str, source: GraphModule) -> Module:
        """An instance of the program's class, which is the one of that name or else the last, with the
        parameters of ``source``. Raises CodegenError."""
        classes = [node.name for node in self.tree.body if isinstance(node, ast.ClassDef)]
        if not classes:
            raise CodegenError(f"{self.path} defines no class; a regenerated file ends with one")
        found = self.names[wish if wish in classes else classes[-1]]
        with self.errors(CodegenError, f"{found.__name__}() failed"):
            made = found()
        if isinstance(made, Module):
            return made
        if self.dialect == "fxlite" or not callable(made):
            raise CodegenError(f"{self.path}: the class {found.__name__} is not an nn.Module")
        with_ops(self.names)
        trained = {name for name, _ in source.named_parameters()}
        return PlainProgram(made, trained.__contains__)

    def load(self, program: Module, source: GraphModule) -> set[str]:
        """Fill the weights from the file beside it or from ``source``; returns their paths. Raises
        ArgumentError."""
        suffix = DIALECTS[self.dialect].suffix
        beside = Path(self.names.get("WEIGHTS", self.path.with_suffix(suffix)))
        where = str(beside)
        if beside.is_file():
            arrays: Mapping[str, Any] = _read(beside)
        else:
            arrays, where = source.state_dict(), f"{source.name}, and there is no {beside}"
        own = program.state_dict()
        is_raw = {key for key, value in arrays.items() if value.dtype.kind == "V" and key in own}
        arrays = {**arrays, **{key: arrays[key].view(own[key].dtype) for key in is_raw}}
        for key in own:
            if key not in arrays:
                raise ArgumentError(
                    f"{self._line_of(key)}: the weight {key} {list(own[key].shape)} is not in "
                    f"{where}; add it to that file"
                )
        try:
            program.load_state_dict(arrays, strict=False)
        except StateDictError as error:
            raise ArgumentError(f"{self.path}: the weights in {where}: {error}") from error
        return {*own}

    def _line_of(self, key: str) -> str:
        """The line that creates the module or array at a path, found by the innermost name in it that is
        assigned."""
        made = {
            target.attr: node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Attribute)
        }
        lines = [made[part] for part in key.split(".") if part in made]
        return f"{self.path}:{lines[0]}" if lines else str(self.path)

    def inputs(self, program: Any, like: GraphModule, given: Mapping[str, Any]) -> dict[str, Any]:
        """Types by parameter: those given, and those of ``like``; a renamed parameter is found by its
        position. Raises ArgumentError for parameters without a type."""
        parameters = inspect.signature(program.forward).parameters
        flat = {str(n.target): n.type for n in like.graph.placeholders}
        types: dict[str, Any] = flat
        nested = like.graph.interface
        if nested is not None and nested.covers(flat):
            types = {
                name: pytree.build(structure, lambda leaf: flat[leaf.name]) for name, _, structure in nested.parameters
            }
        unknown = [name for name in given if name not in parameters]
        if unknown:
            raise ArgumentError(f"{self._head()}: there is no parameter {unknown[0]!r}")
        known = {name: types[name] for name in parameters if name in types} | dict(given)
        new = [name for name, p in parameters.items() if name not in known and p.default is p.empty]
        gone = [name for name in types if name not in parameters]
        if len(new) == len(gone):
            known |= {name: types[other] for name, other in zip(new, gone)}
        elif new and any(flat.values()):
            raise ArgumentError(
                f"{self._head()}: the type of the new input {new[0]!r} is not known; give it: "
                f'fx.reimport(..., {new[0]}="f32[...]")'
            )
        return {name: known[name] for name in parameters if known.get(name) is not None}

    def _head(self) -> str:
        """The place where the last method that computes begins."""
        lines = [
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name == DIALECTS[self.dialect].method
        ]
        return f"{self.path}:{max(lines)}"


def _read(path: Path) -> Mapping[str, Any]:
    """The arrays of a file of weights."""
    if path.suffix != ".npz":
        return load_safetensors(path)
    with np.load(path) as found:
        return dict(found)


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def _source_in(folder: Path) -> Path:
    """The only file in a folder that fxlite wrote. Raises CodegenError."""
    files = {p: p.read_text(encoding="utf-8", errors="replace") for p in folder.glob("*.py")}
    found = sorted(path for path, text in files.items() if MARK in text)
    if len(found) != 1:
        listed = ", ".join(p.name for p in found) or "none"
        raise CodegenError(f"{folder} holds {listed} that fxlite wrote; name one file")
    return found[0]


# -- files of the dialect numpy as programs --------------------------------------------------------
# -- programs --------------------------------------------------------------------------------------
class PlainProgram(Module):
    """An object of a class that is not fxlite's, with the arrays that it and its parts hold."""

    def __init__(self, made: Any, trained: Callable[[str], bool]) -> None:
        super().__init__()
        self._held = list(_arrays(made, "", type(made).__module__))
        for path, owner, name in self._held:
            value = _get(owner, name)
            parent, last = self._parent(path)
            if trained(path):
                parent._enter(parent._parameters, last, Parameter(value))
            else:
                parent.register_buffer(last, value)
        self._made = made
        self.signature = inspect.signature(made)

    def _parent(self, path: str) -> tuple[Module, str]:
        *parts, last = path.split(".")
        module: Module = self
        for part in parts:
            module = module._modules.setdefault(part, Container())
        return module, last

    @property
    def forward(self) -> Callable[..., Any]:
        """The object's call, with its parameters."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self._call(args, kwargs)

        forward.__signature__ = self.signature  # type: ignore[attr-defined]
        return forward

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = [_get(owner, name) for _, owner, name in self._held]
        try:
            for path, owner, name in self._held:
                parent, last = self._parent(path)
                _put(owner, name, parent.__getattr__(last))
            return self._made(*args, **kwargs)
        finally:
            for (_, owner, name), value in zip(self._held, before):
                _put(owner, name, value)


def _arrays(value: Any, path: str, module: str) -> Iterator[tuple[str, Any, Any]]:
    """(path, owner, name or index) for the arrays in objects of a file."""
    is_list = isinstance(value, list)
    parts = enumerate(value) if is_list else vars(value).items()
    for name, part in parts:
        inner = f"{path}.{name}" if path else str(name)
        if isinstance(part, np.ndarray):
            yield inner, value, name
        elif isinstance(part, list) or type(part).__module__ == module:
            yield from _arrays(part, inner, module)


def _get(owner: Any, name: Any) -> Any:
    return owner[name] if isinstance(owner, list) else getattr(owner, name)


def _put(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, list):
        owner[name] = value
    else:
        setattr(owner, name, value)


# -- functions -------------------------------------------------------------------------------------
def with_ops(names: dict[str, Any], is_own: bool = False) -> None:
    """Replace by ops those functions of a file that fxlite wrote and nobody edited (``is_own``: the text is
    what fxlite writes), and NumPy's functions that create arrays."""
    known = NumpyText.library.text
    for name, value in list(names.items()):
        if value is np:
            names[name] = _Numpy()
        elif isinstance(value, FunctionType) and value.__globals__ is names and value.__name__ in known:
            text = known[value.__name__]
            if is_own or inspect.getsource(value).strip() == text.strip():
                names[name] = _traced(value.__name__, value)


class _Numpy:
    """NumPy, except that arrays created from nothing are recorded while a program is traced."""

    def __getattr__(self, name: str) -> Any:
        is_recorded = name in vars(creation) and active_tracer.get() is not None
        return getattr(creation if is_recorded else np, name)

    @staticmethod
    def eye(*args: Any, **kwargs: Any) -> Any:
        return np.eye(*args, **kwargs).view(_Eye)


class _Eye(np.ndarray[Any, Any]):
    """The unit matrix; its rows at traced positions are ``one_hot``."""

    def __getitem__(self, index: Any) -> Any:
        if is_traced(index):
            return ops.one_hot(index, len(self), dtype=self.dtype)
        return super().__getitem__(index)


def _traced(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that records the op of its name if it is given traced values."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [v for v in (*args, *kwargs.values()) if is_traced(v)]
        if not given:
            return function(*args, **kwargs)
        if callable(args[0]) and not is_traced(args[0]):  # recurrence(lstm_step, ...)
            mode = args[0].__name__.removesuffix("_step")
            args, kwargs = args[1:], {**kwargs, "mode": mode}
        if name == "dropout":
            kwargs["training"] = True
        rank = getattr(given[0].node.type, "rank", 0) - 2
        op = REGISTRY.get(name) or REGISTRY.get(f"{name}{rank}d")
        return function(*args, **kwargs) if op is None else op(*args, **kwargs)

    call.__name__ = name
    return call


# -- groups of calls -------------------------------------------------------------------------------
def recomposed(made: GraphModule, like: GraphModule, paths: Mapping[str, str]) -> GraphModule:
    """A trace of such a file, in which groups of calls that are the spelling of an op in ``like``, such as
    ``x @ w.T + b``, become that op. ``paths`` maps weights to their paths in ``like`` if those differ."""
    rules: dict[Any, tuple[Node, Graph]] = {}
    for node in like.graph.find_nodes(op="call_function"):
        weights = tuple(n.target for n in operands(node) if n.op == "get_attr")
        key = (call_key(node), weights, *map(str, _types(node)))
        if key not in rules and (pattern := _pattern(node)) is not None:
            rules[key] = node, pattern
    graph, gone = made.graph, set[Node]()
    for one, pattern in sorted(rules.values(), key=lambda rule: -len(rule[1])):
        last = pattern.output_node().args[0]
        for node in list(graph.find_nodes(op="call_function", target=last.target)):
            if node in gone:
                continue
            bound: dict[Node, Node] = {}
            found = _match(last, node, bound, made, pattern)
            given = dict(zip(_inputs(one), (bound.get(p) for p in pattern.placeholders)))
            if not found or not all(_fits(n, given[n], like, made, paths) for n in given):
                continue
            args = map_nodes(one.args, given.__getitem__)
            with graph.inserting_before(node), graph.with_origin(node):
                new = graph.create_node("call_function", one.target, args, one.kwargs)
            node.replace_all_uses_with(new)
            gone |= _erase(node, {n for p, n in bound.items() if p.op == "call_function"})
    return made


def _erase(node: Node, parts: set[Node]) -> set[Node]:
    """Erase a node that nobody reads, and those of ``parts`` that only it reads; returns them."""
    work, gone = [node], set[Node]()
    while work:
        last = work.pop()
        if last in parts and not last.users:
            work += last.all_input_nodes
            last.graph.erase_node(last)
            gone.add(last)
            parts.discard(last)
    return gone


def _inputs(node: Node) -> list[Node]:
    return list(dict.fromkeys(nodes_in((node.args, node.kwargs))))


def _types(node: Node) -> list[Any]:
    return [n.type for n in (*_inputs(node), node)]


def _pattern(node: Node) -> Graph | None:
    """The trace of the text of one call; None if that is the call itself, or if it has no text."""
    types = _types(node)
    is_typed = all(isinstance(type, TensorType) for type in types)
    if not is_typed or isinstance(node.target, ForeignOp) or node.is_impure():
        return None
    graph = Graph()
    given = {n: graph.placeholder(f"x{i}", n.type) for i, n in enumerate(_inputs(node))}
    args = map_nodes(node.args, given.__getitem__)
    graph.output(graph.create_node("call_function", node.target, args, node.kwargs))
    try:
        source = python_source(GraphModule({}, graph, "Call"), dialect="numpy")
        names: dict[str, Any] = {"__name__": "call", "__file__": "call.py"}
        exec(source, names)
        program = names["Call"]()
        with_ops(names, is_own=True)
        inputs = {str(n.target): n.type for n in graph.placeholders}
        found = symbolic_trace(program.__call__, inputs=inputs).graph
    except (FxliteError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return None
    calls = [n for n in found.nodes if n.op == "call_function"]
    is_whole = isinstance(found.output_node().args[0], Node) and bool(calls)
    is_same = len(calls) == 1 and call_key(calls[0]) == call_key(node)
    return None if is_same or not is_whole or calls[-1] is not found.output_node().args[0] else found


def _match(one: Node, node: Node, bound: dict[Node, Node], made: GraphModule, pattern: Graph) -> bool:
    """Whether a node computes the same as one of the pattern; ``bound`` maps its inputs and other nodes."""
    if one in bound:
        return bound[one] is node
    bound[one] = node
    if one.op == "placeholder":
        return types_equal(one.type, node.type)
    if one.op == "get_attr":
        owner = pattern.owning_module
        return node.op == "get_attr" and _equal(owner, one, made, node)
    read, others = operands(one), operands(node)
    if call_key(one) != call_key(node) or len(read) != len(others):
        return False
    return all(_match(p, q, bound, made, pattern) for p, q in zip(read, others))


def _fits(one: Node, node: Node | None, like: GraphModule, made: GraphModule, paths: Mapping[str, str]) -> bool:
    """Whether a weight is in the place where ``like`` reads that weight."""
    if node is None or one.op != "get_attr":
        return node is not None
    if node.op != "get_attr":
        return False
    return paths.get(node.target, node.target) == one.target or _equal(like, one, made, node)


def _equal(owner: Any, one: Node, made: GraphModule, node: Node) -> bool:
    values = [np.asarray(m.get_attribute(n.target)) for m, n in ((owner, one), (made, node))]
    return values[0].dtype == values[1].dtype and values[0].tobytes() == values[1].tobytes()


# -- who is who ------------------------------------------------------------------------------------
def with_identity(new: GraphModule, old: GraphModule, paths: Mapping[str, str], own: Collection[str]) -> GraphModule:
    """``new``, whose nodes get the identity of nodes in ``old``. A node that computes the same as before keeps
    name, meta, scope and place in the program; one with a changed attribute keeps name and scope.
    ``paths`` maps paths of weights of ``new`` to those of the same weights in ``old``; ``own`` are those that
    its program holds, the others being constants of the trace.

    Refusals in the ledger are kept if their nodes are."""
    before = {str(n.target) for n in old.graph.find_nodes(op="get_attr")}
    paths, moved = _weights(new, old, paths, own)
    old_of = _identities(old.graph, new.graph, {**moved, **paths})
    kept = {node for node, one in old_of.items() if _is_same(one, node)}
    for node, gone in _other_constants(old_of, paths, before):
        paths[node.target], old_of[node] = gone.target, gone
    namer = Namer()
    namer.taken |= {*(one.name for one in old_of.values()), *new.graph.input_dims}
    graph = Graph(new.graph.owning_module, new.graph.tracer_cls, new.graph.tracer_extras)
    graph.take_conditions(new.graph)
    graph.specialized, graph.interface = old.graph.specialized, new.graph.interface
    made: dict[Node, Node] = {}
    of_old: dict[Node, Node] = {}
    for node in _in_order(new.graph, old_of):
        one = old_of.get(node)
        if one in of_old:  # a weight that is read once more
            made[node] = of_old[one]
            continue
        target = paths.get(node.target, node.target) if node.op == "get_attr" else node.target
        name = namer.unique(node.name) if one is None else one.name
        args, kwargs = map_nodes((node.args, node.kwargs), made.__getitem__)
        with graph.with_origin(one if one is not None and node in kept else node):
            made[node] = graph.create_node(node.op, target, args, kwargs, name, node.type)
        if one is not None:
            of_old[one] = made[node]
            made[node].scope = one.scope
            made[node].meta = one.meta if node in kept else {}
    known = {guard: guard for guard in old.graph.guards}
    graph.guards = tuple(known.get(guard, guard) for guard in graph.guards)
    result = old.copy()
    result.graph = graph
    for node in new.graph.find_nodes(op="get_attr"):
        if node in made:
            result.set_attribute(made[node].target, new.get_attribute(node.target))
    result.delete_all_unused_submodules()
    same = {made[node].name for node in kept if node in made}
    set_ledger(result, [e for e in refusals(old) if same.issuperset((e.node, *e.nodes))])
    return result


def _weights(
    new: GraphModule, old: GraphModule, paths: Mapping[str, str], own: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The places in ``old`` of weights of ``new``: those with the same name, including all constants of the
    trace, and others with the same bytes that have moved."""
    before = {str(n.target) for n in old.graph.find_nodes(op="get_attr")}
    now = dict.fromkeys(str(n.target) for n in new.graph.find_nodes(op="get_attr"))
    gone = before - {paths.get(path, path) for path in now if path in own}
    by_bytes: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for path in sorted(gone):
        by_bytes[_content(old, path)].append(path)
    made, moved = {path: paths[path] for path in now if path in paths and path in own}, {}
    free = (f"constant_{number}" for number in itertools.count())
    for path in now:
        if path in own and paths.get(path, path) in before:
            continue
        same = by_bytes[_content(new, path)]
        if path not in own:
            made[path] = same.pop(0) if same else next(f for f in free if f not in before)
        elif same:
            moved[path] = same.pop(0)
    return made, moved


def _content(module: GraphModule, path: str) -> tuple[str, bytes]:
    value = np.asarray(module.get_attribute(path))
    return f"{value.dtype}{value.shape}", value.tobytes()


def _identities(old: Graph, new: Graph, renamed: Mapping[str, str]) -> Pairs:
    """The node of ``old`` that corresponds to a node of ``new``, of the same op; for reads of weights, those
    of the same weight in the same place."""
    found: Pairs = {}
    for one, node in pair_nodes(old, new, renamed, inputs_by_name=True).items():
        if (one.op, one.target) == (node.op, node.target) or one.op == "placeholder":
            found[node] = one
            for p, q in zip(operands(one), operands(node)):
                is_weight = p.op == q.op == "get_attr"
                if is_weight and p.target == renamed.get(q.target, q.target):
                    found.setdefault(q, p)
    reads = {n.target: n for n in reversed(old.find_nodes(op="get_attr"))}
    for node in new.find_nodes(op="get_attr"):  # also if the reader of a weight is new
        path = renamed.get(node.target, node.target)
        if node not in found and path in reads:
            found[node] = reads[path]
    return found


def _other_constants(old_of: Pairs, paths: Mapping[str, str], before: Collection[str]) -> list[tuple[Node, Node]]:
    """Constants of the trace that replace others, and the replaced ones."""
    left = {*before} - {paths.get(n.target, n.target) for n in old_of if n.op == "get_attr"}
    found: dict[str, tuple[Node, Node]] = {}
    for node, one in old_of.items():
        for p, q in zip(operands(one), operands(node)):
            is_new = q.target in paths and paths[q.target] not in before
            if is_new and p.op == "get_attr" and p.target in left and p.type == q.type:
                found.setdefault(p.target, (q, p))
    return [*found.values()]


def _is_same(old: Node, new: Node) -> bool:
    """Whether a node does the same as before, whatever comes before it."""
    is_read = new.op in ("get_attr", "output")
    same = new.op == "placeholder" and old.target == new.target
    return (is_read or same or call_key(old) == call_key(new)) and types_equal(old.type, new.type)


def _in_order(graph: Graph, old_of: Pairs) -> Iterator[Node]:
    """The nodes that are read or have effects, in their former order, with new ones after the nodes they
    follow. Inputs and effects keep their present order."""
    nodes = [n for n in graph.nodes if n.users or n.is_impure() or n in old_of]
    place = {one: number for number, one in enumerate(next(iter(old_of.values())).graph.nodes)}
    keys: dict[Node, tuple[int, int]] = {}
    needs: dict[Node, set[Node]] = {}
    last, before = -1, None
    for number, node in enumerate(nodes):
        last = place[old_of[node]] if node in old_of else last
        keys[node] = last, number
        needs[node] = {*node.all_input_nodes}
        if node.is_impure():
            needs[node] |= {before} if before is not None else set()
            before = node
    readers: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node, read in needs.items():
        for one in read:
            readers[one].append(node)
    by_key = {key: node for node, key in keys.items()}
    ready = [keys[node] for node in nodes if not needs[node]]
    heapq.heapify(ready)
    while ready:
        node = by_key[heapq.heappop(ready)]
        yield node
        for reader in readers[node]:
            needs[reader].discard(node)
            if not needs[reader]:
                heapq.heappush(ready, keys[reader])
