"""Converts an exported program to a graph.

In: a ``torch.nn.Module`` with example inputs (or their types), an ``ExportedProgram``, a ``torch.fx.GraphModule`` or a
``.pt2`` file. Out: a GraphModule whose weights share memory with the tensors, whose scopes are the model's modules, and
whose locations are the lines of its code.

Importing is tracing: the nodes of the exported program run, one after another, on proxies.
"""

from __future__ import annotations

import functools
import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

import fxlite as fx
from fxlite.base.errors import DTypeError, ModelImportError, TraceError
from fxlite.base.location import Location, is_own_file
from fxlite.base.state import is_traced
from fxlite.graph.graph_module import GraphModule
from fxlite.importing import narrow
from fxlite.importing.importer import Importer
from fxlite.importing.torch import elementwise, indexing, layers, linalg, quantized, reductions, shaping, special
from fxlite.importing.torch.exported import Program, Sizes, decomposed, program_of
from fxlite.importing.torch.table import (
    DTYPES,
    NARROW,
    Call,
    array_of,
    as_array,
    dtype_of,
    dtype_of_value,
    entry_of,
    is_array,
    op,
)
from fxlite.nn.module import Module
from fxlite.ops.op import REGISTRY, Op
from fxlite.ops.slicing import larger, never_negative, smaller
from fxlite.types import dtypes, shapes
from fxlite.types.guards import OPPOSITE
from fxlite.types.shapes import NamedDim

# -- nested inputs and results: dicts, lists and classes that torch knows as pytrees ---------------
#: A missing leaf: None, or a number or text that the program was exported with.
ABSENT = object()


def nested(spec: Any, leaves: Iterator[Any]) -> Any:
    """A nested value with these leaves, in the form of ``spec``; entries that are :data:`ABSENT` are left out."""
    if spec.is_leaf():
        return next(leaves)
    parts = [nested(child, leaves) for child in spec.children()]
    names = _names(spec, len(parts))
    if names is not None:
        return {name: part for name, part in zip(names, parts) if part is not ABSENT} or ABSENT
    kept = [part for part in parts if part is not ABSENT]
    if parts and not kept:
        return ABSENT
    return kept if spec.type is list else tuple(kept)


def flat(spec: Any, value: Any) -> list[Any]:
    """The leaves of a value from :func:`nested`, in order, with None for those that are left out. Raises KeyError if
    parts of a list or tuple were left out."""
    if spec.is_leaf():
        return [value]
    children = list(spec.children())
    if value is None:
        return [None] * spec.num_leaves
    names = _names(spec, len(children))
    if names is not None:
        return [leaf for name, child in zip(names, children) for leaf in flat(child, value.get(name))]
    if len(value) < len(children):
        value = [*value, *[None] * (len(children) - len(value))]
    return [leaf for part, child in zip(value, children) for leaf in flat(child, part)]


def _names(spec: Any, count: int) -> list[str] | None:
    """The names of the parts of a dict, or of a class with named fields; None for a sequence."""
    context = spec.context
    if isinstance(context, (list, tuple)) and len(context) == 2 and isinstance(context[0], (list, tuple)):
        context = next((c for c in context if isinstance(c, (list, tuple)) and len(c) == count), context)
    fields = getattr(spec.type, "_fields", None) or context
    if spec.type in (list, tuple) or not isinstance(fields, (list, tuple)) or len(fields) != count:
        return None
    return [str(field) for field in fields] if all(isinstance(field, (str, int)) for field in fields) else None


# -- the program -----------------------------------------------------------------------------------
#: The modules whose import fills the table.
FAMILIES = (elementwise, reductions, shaping, layers, indexing, linalg, special, quantized)
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')
_TORCH = os.path.dirname(torch.__file__) + os.sep
_FEW = 64  # elements of a constant that is folded while importing
_AXIS = frozenset(("dim", "dimension"))  # the names of parameters that are one axis
#: Functions that check or describe values, but compute none.
_CHECKS = frozenset(
    "_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size "
    "_functional_sym_constrain_range _functional_assert_async _functional_assert_scalar".split()
)


def import_model(model: Any, example: tuple[Any, ...], named: Mapping[str, Any], dynamic_shapes: Any) -> GraphModule:
    """The implementation of :func:`fxlite.from_torch`."""
    return graph_of(program_of(model, example, named, dynamic_shapes))


def graph_of(program: Program) -> GraphModule:
    """The graph of a program. Ops that the table lacks, and those whose entry rejects its arguments, are replaced by
    torch's decompositions."""
    tried: set[Any] = set()
    first: ModelImportError | None = None
    while True:
        program.exported = decomposed(program.exported, _missing)
        run = Run(program)
        try:
            return run.graph()
        except ModelImportError as error:
            first = first or error
            taken_apart = (
                program.exported if tried.issuperset(run.refused) else decomposed(program.exported, run.failed)
            )
            if taken_apart is program.exported:
                raise first from first.__cause__
            tried.update(run.refused)
            program.exported = taken_apart


class Run:
    """One program while it is imported."""

    def __init__(self, program: Program) -> None:
        self.program, self.exported = program, program.exported
        self.importer = Importer("PyTorch", program.name, program.name)
        self.sizes = Sizes(program)
        self.signature = program.exported.graph_signature
        self._holders: dict[str, tuple[Module, str]] = {}
        self._places: dict[str, Location | None] = {}
        self.refused: set[Any] = set()  #: the op whose entry runs

    # -- the whole program ---------------------------------------------------------------------
    def graph(self) -> GraphModule:
        """The imported model."""
        missing = _missing_nodes(self.exported)
        if missing:
            raise ModelImportError(self._what_is_missing(missing))
        self._enter_weights()
        inputs = self._declare_inputs()
        return self.importer.trace(lambda *given: self._run(inputs, given), parts=len(self.exported.graph.nodes))

    def _what_is_missing(self, nodes: Sequence[Any]) -> str:
        """The message for ops that the table lacks: which ones, how often, and where the first is."""
        said = []
        for kind, what, instead in (
            (False, "fxlite has no op and torch has no decomposition for", "change the model there"),
            (True, "random numbers are drawn by", "draw them outside and give them as an input"),
        ):
            wanted = [node for node in nodes if _is_random(node.target) is kind]
            if wanted:
                listed = ", ".join(f"{op} ({count})" for op, count in Counter(str(n.target) for n in wanted).items())
                place = self._place(wanted[0])
                where = f"\n  at {place}: {place.expression}" if place is not None else ""
                said.append(f"{what} {listed}; {instead}{where}")
        return "PyTorch: " + "\n".join(said)

    def failed(self, _: Any) -> set[Any]:
        """The op whose entry failed, as the only unwanted one."""
        return self.refused

    def _enter_weights(self) -> None:
        """Register parameters, buffers and constants, by their names in the model."""
        names = {
            **self.signature.inputs_to_parameters,
            **self.signature.inputs_to_buffers,
            **self.signature.inputs_to_lifted_tensor_constants,
        }
        kinds = torch.export.graph_signature.OutputKind
        changing = {s.target for s in self.signature.output_specs if s.kind == kinds.PARAMETER_MUTATION}
        shared: dict[Any, tuple[Module, str]] = {}
        for placeholder, name in names.items():
            tensor = self.exported.state_dict.get(name)
            if tensor is None:
                tensor = self.exported.constants[name]
            key = _memory_of(tensor) or name
            if key not in shared or placeholder in self.signature.inputs_to_buffers:
                is_parameter = placeholder in self.signature.inputs_to_parameters and name not in changing
                try:
                    array = array_of(tensor)
                except DTypeError as error:
                    raise ModelImportError(f"PyTorch: the weight {name}: {error}") from error
                self.importer.weights.add(name, array, is_parameter)
                path = self.importer.weights.paths[name]
                owner, _, own = path.rpartition(".")
                shared[key] = (self.importer.root.get_submodule(owner), own)
            self._holders[placeholder] = shared[key]

    def _declare_inputs(self) -> list[str | None]:
        """Declare the program's inputs, with one parameter for each argument; returns the names of the placeholders
        in the order of the flattened arguments, with None for constants."""
        values = {n.name: n.meta.get("val") for n in self.exported.graph.nodes if n.op == "placeholder"}
        leaves: list[Any] = []
        order: list[str | None] = []
        for spec in self.signature.input_specs:
            if spec.kind != torch.export.graph_signature.InputKind.USER_INPUT:
                continue
            value = values.get(spec.arg.name)
            if isinstance(value, torch.Tensor):
                try:
                    leaves.append(self.sizes.type_of(value, spec.arg.name))
                except DTypeError as error:
                    raise ModelImportError(f"PyTorch: the input {spec.arg.name}: {error}") from error
                order.append(spec.arg.name)
            elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise ModelImportError(f"the input {spec.arg.name} is a number that may differ; make it a tensor")
            else:
                leaves.append(ABSENT)
                order.append(None)
        positional, named = self.exported.call_spec.in_spec.children()
        names = self._parameter_names(positional, order)
        remaining = iter(leaves)
        self._specs: list[tuple[Any, bool]] = []
        for name, spec in zip(names, positional.children()):
            self._declare(name, spec, remaining)
        for name, spec in zip(named.context or (), named.children()):
            self._declare(str(name), spec, remaining)
        return order

    def _declare(self, name: str, spec: Any, leaves: Any) -> None:
        found = nested(spec, leaves)
        if found is not ABSENT:
            self.importer.add_input(name, found)
        self._specs.append((spec, found is not ABSENT))

    def _parameter_names(self, positional: Any, order: Sequence[str | None]) -> list[str]:
        """The names of forward's parameters, or of the placeholders."""
        count = len(list(positional.children()))
        signature = self.exported.module_call_graph[0].signature if self.exported.module_call_graph else None
        known = list(getattr(signature, "forward_arg_names", None) or [])
        if len(known) >= count:
            return known[:count]
        leaves = iter(order)
        made: list[str] = []
        for spec in positional.children():
            first = [next(leaves) for _ in range(spec.num_leaves)]
            made.append((first[0] if first else None) or f"input_{len(made)}")
        return made

    # -- running -------------------------------------------------------------------------------
    def _run(self, order: list[str | None], given: tuple[Any, ...]) -> Any:
        """The result of the program for proxies of its inputs."""
        remaining = iter(given)
        leaves = [v for spec, is_there in self._specs for v in flat(spec, next(remaining) if is_there else None)]
        env: dict[str, Any] = {name: value for name, value in zip(order, leaves) if name is not None}
        inputs = dict(env)

        def placeholder(node: Any) -> Any:
            if node.name in self._holders:
                return self._weight(node)
            return env.get(node.name)

        outputs = self.run_graph(self.exported.graph_module, placeholder)
        results = []
        kinds = torch.export.graph_signature.OutputKind
        if self.signature.user_inputs_to_mutate:  # unlike in NumPy, results are not views of inputs
            outputs = [value.copy() if is_traced(value) else value for value in outputs]
        for spec, value in zip(self.signature.output_specs, outputs):
            if spec.kind in (kinds.BUFFER_MUTATION, kinds.PARAMETER_MUTATION):
                held = {**self.signature.inputs_to_buffers, **self.signature.inputs_to_parameters}
                owner, name = self._holders[next(p for p, name in held.items() if name == spec.target)]
                setattr(owner, name, value)
            elif spec.kind == kinds.USER_INPUT_MUTATION:
                inputs[spec.target][...] = value
            elif spec.kind == kinds.USER_OUTPUT:
                if value is None and isinstance(spec.arg, torch.export.graph_signature.TensorArgument):
                    raise ModelImportError(f"PyTorch: no fxlite op computes the result {spec.arg.name}")
                results.append(ABSENT if value is None else value)
        found = nested(self.exported.call_spec.out_spec, iter(results))
        return None if found is ABSENT else found

    def _weight(self, node: Any) -> Any:
        """A weight as a traced value; a small constant as an array, so that it can be folded."""
        owner, name = self._holders[node.name]
        if node.name in self.signature.inputs_to_lifted_tensor_constants:
            array = owner._buffers[name]
            if array.size <= _FEW:
                return np.array(array)
        with self.importer.step(f"{node.name}", None, None):
            return getattr(owner, name)

    def run_graph(self, module: Any, placeholder: Callable[[Any], Any]) -> list[Any]:
        """The outputs of a torch graph, whose inputs ``placeholder`` supplies."""
        env: dict[Any, Any] = {}
        needed = _needed(module.graph)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                env[node] = placeholder(node)
            elif node.op == "get_attr":
                env[node] = self._attribute(module, node.target)
            elif node.op == "output":
                found = _values(node.args[0], env)
                return found if isinstance(found, list) else [found]
            elif node in needed:
                env[node] = self._call(node, env)
                _write(node, env)
            elif node.op == "call_function" and _is_check(node):
                self._require(node)
        return []

    def size(self, value: Any) -> Any:
        """A number, or a symbolic size of torch, as a number or dim of the graph."""
        return value if isinstance(value, int) else shapes.for_user(self.sizes.dim_of(value.node.expr))

    def _require(self, node: Any) -> None:
        """Add a guard for a program's assertion about sizes that may vary."""
        asserted = node.args[0].meta.get("val") if isinstance(node.args[0], torch.fx.Node) else None
        relation: Any = asserted.node.expr if isinstance(asserted, torch.SymBool) else None
        if not getattr(relation, "is_Relational", False) or not relation.free_symbols:
            return
        if any(str(s) not in self.sizes.names for s in relation.free_symbols):  # it depends on values
            return
        left, right = map(self.sizes.dim_of, relation.args)
        if relation.rel_op in (">=", ">") and never_negative(left - right - int(relation.rel_op == ">")):
            return
        if relation.rel_op in ("<=", "<") and never_negative(right - left - int(relation.rel_op == "<")):
            return
        with self.importer.step(f"{node.target} ({node.name})", None, self._place(node)):
            self.importer.tracer.require(left, relation.rel_op, right)

    def _attribute(self, module: Any, target: str) -> Any:
        found = module
        for part in target.split("."):
            found = getattr(found, part)
        return array_of(found) if isinstance(found, torch.Tensor) else found

    def _call(self, node: Any, env: Mapping[Any, Any]) -> Any:
        args, kwargs = _values(node.args, env), {k: _values(v, env) for k, v in node.kwargs.items()}
        scope_path, class_ = _scope_of(node)
        scope = self.importer.scope(scope_path, class_)
        with self.importer.step(f"{node.target} ({node.name})", scope, self._place(node)):
            if node.target in _PYTHON or getattr(node.target, "__module__", "") in ("_operator", "math"):
                return _PYTHON.get(node.target, node.target)(*args)
            if node.target in HIGHER:
                return HIGHER[node.target](Call(node, self), *args, **kwargs)
            entry = entry_of(node.target)
            if entry is None and node in _constants(node.graph, self.signature):
                return array_of(self._in_torch(node))
            if entry is None:
                raise TraceError("fxlite has no op for it")
            self.refused = {node.target}
            with_axis = _with_axis(node, args)
            try:
                found = entry(Call(node, self), *with_axis, **kwargs)
            except GuardOnDataDependentSymNode as error:
                raise TraceError("a size depends on values") from error
            found = self._checked(node, found, with_axis is not args)
            self.refused = set()
            return found

    def _in_torch(self, node: Any) -> Any:
        """The value of one of the :func:`_constants`, computed by torch."""
        if node.op == "placeholder":
            return self.exported.constants[self.signature.inputs_to_lifted_tensor_constants[node.name]]
        return node.target(
            *torch.fx.map_arg(node.args, self._in_torch), **torch.fx.map_arg(node.kwargs, self._in_torch)
        )

    def _checked(self, node: Any, value: Any, with_axis: bool) -> Any:
        """A result in torch's dtype, and without the axis of :func:`_with_axis`. Raises TraceError if its shape
        differs from torch's, which means that an entry of the table is wrong."""
        expected = node.meta.get("val")
        if not isinstance(value, (tuple, list)) or not isinstance(expected, (tuple, list)):
            value, expected = [value], [expected]
        if with_axis:
            changed = [v is not None and len(v.shape) != e.dim() for v, e in zip(value, expected)]
            value = [op("reshape")(v, tuple(e.shape)) if c else v for v, e, c in zip(value, expected, changed)]
        found = [_rounded(node, _fitted(v, e), e) for v, e in zip(value, expected)]
        return found if isinstance(node.meta.get("val"), (tuple, list)) else found[0]

    def _place(self, node: Any) -> Location | None:
        """The innermost line of the user's code for a node."""
        trace = node.meta.get("stack_trace") or ""
        if trace not in self._places:
            frames = _FRAME.findall(trace)
            own = [f for f in frames if not f[0].startswith(_TORCH) and not is_own_file(f[0])] or frames
            self._places[trace] = None
            if own:
                file, line, function, text = own[-1]
                self._places[trace] = self.importer.place(int(line), function, text.strip(), file)
        return self._places[trace] or self.importer.place(0, node.name, f"{node.target}")


def _values(value: Any, env: Mapping[Any, Any]) -> Any:
    """The arguments of a node, with values in place of nodes."""
    if isinstance(value, torch.fx.Node):
        return env.get(value)
    if isinstance(value, (list, tuple)):
        return [_values(v, env) for v in value]
    if isinstance(value, dict):
        return {k: _values(v, env) for k, v in value.items()}
    return value


def _with_axis(node: Any, args: list[Any]) -> list[Any]:
    """The arguments of an op along an axis. In torch, a value without axes has one of size 1 there."""
    own = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], torch.fx.Node) else None
    if (
        not isinstance(own, torch.Tensor)
        or own.ndim
        or not _AXIS.intersection(a.name for a in node.target._schema.arguments)
    ):
        return args
    return [a.reshape(1) if is_array(a) and not a.ndim else a for a in args]


def _fitted(value: Any, expected: Any) -> Any:
    if value is None or not isinstance(expected, torch.Tensor):
        return value
    if expected.dtype in DTYPES.keys() | NARROW.keys() and is_array(value):
        wanted = dtype_of(expected.dtype)
        if dtype_of_value(value) is not wanted:
            value = op("cast")(value, dtype=wanted)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    own, theirs = tuple(value.shape), tuple(expected.shape)
    if len(own) != len(theirs) or any(type(o) is int and type(t) is int and o != t for o, t in zip(own, theirs)):
        raise TraceError(f"torch gives {list(theirs)}, and the op here {list(own)}")
    return value


def _rounded(node: Any, value: Any, expected: Any) -> Any:
    """A result that torch stores in a dtype of :data:`NARROW`, rounded as there, unless an operand has it already."""
    wanted = getattr(expected, "dtype", None)
    operands = [getattr(n.meta.get("val"), "dtype", None) for n in node.all_input_nodes]
    if value is None or wanted not in NARROW or wanted in operands:
        return value
    if NARROW[wanted].name == "float8_e8m0fnu":
        raise TraceError(f"fxlite does not round to {wanted}; compute the scales in float32, and store those")
    return narrow.rounded(narrow.cast(value, np.float32), NARROW[wanted], saturate=wanted is torch.float8_e4m3fn)


def _memory_of(tensor: Any) -> tuple[Any, ...]:
    """What two tensors with the same elements in memory have in common; nothing for a tensor without elements there."""
    if not tensor.numel() or tensor.layout is not torch.strided or tensor.is_meta:
        return ()
    signs = tensor.is_conj(), tensor.is_neg()
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, *signs


def _missing(exported: Any) -> list[Any]:
    """The ops that the table lacks."""
    return [node.target for node in _missing_nodes(exported)]


def _missing_nodes(exported: Any) -> list[Any]:
    """The calls of ops that the table lacks."""
    found = []
    for module in exported.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            unfixed = _needed(module.graph).difference(_constants(module.graph, exported.graph_signature))
            calls = (node for node in module.graph.nodes if node in unfixed and node.op == "call_function")
            found += [node for node in calls if not _is_known(node.target)]
    return found


def _is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _is_known(target: Any) -> bool:
    return (
        target in _PYTHON
        or getattr(target, "__module__", "") in ("_operator", "math")
        or target in HIGHER
        or entry_of(target) is not None
    )


def _constants(graph: Any, signature: Any) -> set[Any]:
    """The nodes whose value is the same tensor in every call, computed from numbers and literals: a window of a Fourier
    transform, frequencies, a quantile."""
    found: set[Any] = set()
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op == "placeholder":
            same = node.name in signature.inputs_to_lifted_tensor_constants
        elif schema is None or _is_random(node.target):
            same = False
        else:
            same = not schema.is_mutable or node.target is torch.ops.aten.detach_.default
        if same and found.issuperset(node.all_input_nodes):
            found.add(node)
    return found


def _is_check(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.name.partition("::")[2] in _CHECKS


def _needed(graph: Any) -> set[Any]:
    """The nodes from which results and values written in place are computed, without checks."""
    needed: set[Any] = set()
    for node in reversed(graph.nodes):
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        writes = schema is not None and schema.is_mutable and not _is_check(node)
        if node.op == "output" or writes or node in needed:
            needed.add(node)
            needed.update(node.all_input_nodes)
    return needed


def _write(node: Any, env: dict[Any, Any]) -> None:
    """Make the value that an op has written in place the value of its operand."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return
    for index, argument in enumerate(schema.arguments):
        given = node.args[index] if index < len(node.args) else None
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(given, torch.fx.Node):
            env[given] = env[node]


def _scope_of(node: Any) -> tuple[str, str]:
    """The path and class of the innermost module of a node."""
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return "", ""
    path, kind = list(stack.values())[-1]
    path = re.sub(r"^L\['self'\]\.?|^L__self___?|^_export_root\.?|@\d+", "", str(path))
    class_ = kind if isinstance(kind, str) else kind.__qualname__
    return path, class_.rpartition(".")[2]


def _size(x: Any, axis: int | None = None) -> Any:
    """A size of a value, or all sizes."""
    return tuple(x.shape) if axis is None else x.shape[axis]


def _of_sizes(number: Callable[..., Any], size: Callable[..., Any]) -> Callable[..., Any]:
    """A function for the largest, or smallest, of numbers and sizes."""

    def choose(*values: Any) -> Any:
        if all(type(v) in (int, float) for v in values):
            return number(values)
        return shapes.for_user(functools.reduce(size, map(shapes.normalize, values)))

    return choose


def _item(values: Any, index: int) -> Any:
    return values[index]


def _numel(x: Any) -> Any:
    count: Any = 1
    for size in x.shape:
        count = count * size
    return count


def _compared(own: Op) -> Callable[..., Any]:
    """A comparison of numbers and sizes; if the result depends on the sizes, it is a value of the program."""

    def compare(left: Any, right: Any) -> Any:
        if all(type(v) in (int, float, bool) for v in (left, right)):
            return getattr(operator, own.name)(left, right)
        known = shapes.decide(shapes.normalize(left), own.symbol or "", shapes.normalize(right))
        return own(*(as_array(v, dtypes.int64) for v in (left, right))) if known is None else known

    return compare


#: Functions of numbers and sizes that graphs call, and their counterparts here.
_PYTHON: dict[Any, Callable[..., Any]] = {
    operator.getitem: _item,
    **{getattr(operator, own.name): _compared(own) for own in REGISTRY.values() if own.symbol in OPPOSITE},
    torch.ops.aten.sym_size.int: _size,
    torch.ops.aten.sym_size.default: _size,
    torch.ops.aten.sym_numel.default: _numel,
    **dict.fromkeys((torch.sym_max, max), _of_sizes(max, larger)),
    **dict.fromkeys((torch.sym_min, min), _of_sizes(min, smaller)),
    torch.sym_float: lambda x: x,
    torch.sym_int: lambda x: x if isinstance(x, NamedDim) else int(x),
    torch.sym_not: lambda x: op("logical_not")(x) if is_traced(x) else not x,
}


# -- higher-order ops ------------------------------------------------------------------------------
def _runner(c: Call, module: Any) -> Callable[..., list[Any]]:
    """A torch graph as a function of its inputs."""

    def run(*given: Any) -> list[Any]:
        remaining = iter(given)
        return c.run.run_graph(module, lambda _: next(remaining))  # type: ignore[no-any-return]

    return run


def cond(c: Call, pred: Any, true_graph: Any, false_graph: Any, operands: Any = ()) -> Any:
    """torch.cond."""
    one, other = _runner(c, true_graph), _runner(c, false_graph)
    return list(fx.cond(pred, lambda *v: tuple(one(*v)), lambda *v: tuple(other(*v)), tuple(operands)))


def while_loop(c: Call, test: Any, body: Any, carried: Any, more: Any = ()) -> Any:
    """torch.while_loop; ``more`` are values that it reads and does not change."""
    condition, step = _runner(c, test), _runner(c, body)
    found = fx.while_loop(lambda *v: condition(*v, *more)[0], lambda *v: tuple(step(*v, *more)), tuple(carried))
    return list(found)


def scan(c: Call, combine: Any, init: Any, xs: Any, more: Any = ()) -> Any:
    """torch's scan along the first axis: the last states, then the stacked results."""
    step, count = _runner(c, combine), len(init)

    def body(carry: Any, x: Any) -> Any:
        found = step(*carry, *x, *more)
        return tuple(found[:count]), tuple(found[count:])

    last, stacked = fx.scan(body, tuple(init), tuple(xs))
    return [*last, *stacked]


def inline(skipped: int) -> Callable[..., Any]:
    """An entry for a graph that runs inline, and that follows ``skipped`` settings among the arguments."""

    def call(c: Call, *args: Any, **_: Any) -> Any:
        return _runner(c, args[skipped])(*args[skipped + 1 :])

    return call


def map_rows(c: Call, body: Any, xs: Any, more: Any = ()) -> Any:
    """torch's map: a function of each row."""
    rows = len(c.value[0]) if isinstance(c.value, (list, tuple)) else len(c.value)
    run = _runner(c, body)
    if isinstance(xs[0].shape[0], NamedDim) or rows > _FEW:
        return list(fx.scan(lambda count, x: (count + 1, tuple(run(*x, *more))), np.int64(0), tuple(xs))[1])
    found = [run(*(x[i] for x in xs), *more) for i in range(rows)]
    return [op("stack")(list(parts), 0) for parts in zip(*found)]


#: Higher-order ops and their entries.
_NAMES: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "map_impl": map_rows,
    "wrap_with_set_grad_enabled": inline(1),
    "wrap_with_autocast": inline(4),
    "wrap": inline(0),
}
#: The entries of the higher-order ops that the installed torch has.
HIGHER: dict[Any, Callable[..., Any]] = {
    getattr(torch.ops.higher_order, name): entry
    for name, entry in _NAMES.items()
    if hasattr(torch.ops.higher_order, name)
}
