"""PyTorch models as exported programs, with the types and names of their inputs.

In: a module and example inputs, an ``ExportedProgram``, or a ``.pt2`` file. Out: a :class:`Program`: the graph of ATen
ops, with composites kept whole, the tensors that it reads, and named dims for the sizes that are not fixed.

An exported graph is used directly if no value that it writes in place is read under another name. Otherwise torch
converts it to a graph without writes (``run_decompositions``), which also tells which buffers change.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fxlite.base.errors import ArgumentError, ModelImportError, TraceError
from fxlite.base.progress import progress
from fxlite.importing.importer import valid_name
from fxlite.importing.torch import eager_quantized
from fxlite.importing.torch.caches import register_caches
from fxlite.importing.torch.known import Known, LeftOut
from fxlite.importing.torch.program_file import loaded
from fxlite.importing.torch.table import TORCH, dtype_of, why_no_array
from fxlite.types import shapes
from fxlite.types.agreement import compare, sqnr
from fxlite.types.facts import Facts
from fxlite.types.symbols import symbol
from fxlite.types.tensor_type import TensorType, parse_type

#: Ops whose result may be their operand itself, though their schema does not say so.
_MAYBE_SAME = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "conj", "type_as")


@dataclass
class Program:
    """A program to import. ``name`` is that of its class, and ``dims`` has the names for symbols of sizes."""

    exported: Any
    name: str
    dims: dict[str, Any]


def program_of(
    model: Any, example: tuple[Any, ...], named: Mapping[str, Any], dynamic_shapes: Any, compared: bool = True
) -> Program:
    """The exported program of a model. Unless ``compared`` is false, the program of a module is run beside it, because
    an export may follow Python code that has another outcome when the module runs. Raises ArgumentError for a value
    that is not a model, and ModelImportError if torch cannot export it."""
    if isinstance(model, (str, os.PathLike)):
        return _of_exported(_read(model), os.path.basename(os.fspath(model)).partition(".")[0])
    if isinstance(model, torch.export.ExportedProgram):
        if example or named or dynamic_shapes is not None:
            raise ArgumentError("an ExportedProgram has its inputs already: give no examples and no dynamic_shapes=")
        return _of_exported(model, "")
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(
            f"from_torch takes a torch.nn.Module, an ExportedProgram, a torch.fx.GraphModule or a .pt2 file, not "
            f"a {type(model).__name__}"
        )
    if not example and not named:
        raise ArgumentError(
            "give example inputs, or their types: fx.from_torch(model, torch.randn(1, 3, 224, 224)), or "
            'fx.from_torch(model, "f32[B,3,224,224]")'
        )
    name = getattr(model, "_name", None) or type(model).__name__
    is_quantized = eager_quantized.is_quantized(model)
    model = eager_quantized.in_floats(model) if is_quantized else model
    _require_plain(model, example, named)
    given = dynamic_shapes = _as_dims(dynamic_shapes, {})
    example, named, dynamic_shapes = _with_types(example, named, dynamic_shapes)
    if dynamic_shapes is not given:
        dynamic_shapes = _by_rest(model, len(example), dynamic_shapes)
    register_caches()
    try:
        with quiet(), masks_unread(), eager_quantized.Grids() if is_quantized else contextlib.nullcontext():
            made = _exported_module(model, example, dict(named), dynamic_shapes, compared)
    except Exception as error:
        raise ModelImportError(_why_not(error, name)) from error
    found = _of_exported(made, name)
    found.dims = _named_dims(found.exported, dynamic_shapes, _by_parameter(model, example, named))
    return found


def _require_plain(model: Any, example: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Raise an error, which says what to do, for a model whose inputs or weights have no counterpart in a graph."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ArgumentError(
            f"{type(model).__name__} is a module of TorchScript, which torch.export does not take; give the "
            "torch.nn.Module of which it was made"
        )
    for name, value in (*((f"{number}", v) for number, v in enumerate(example)), *named.items()):
        for leaf in torch.utils._pytree.tree_leaves(value):
            if isinstance(leaf, (np.ndarray, np.generic)):
                raise ArgumentError(f"the example {name} is a NumPy array; give a tensor, torch.from_numpy(x)")
            if isinstance(leaf, torch.Tensor) and (problem := why_no_array(leaf)):
                raise ModelImportError(f"PyTorch: the example {name} {problem}")
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        if torch.nn.parameter.is_lazy(weight):
            raise ModelImportError(f"PyTorch: the weight {name} has no shape yet; call the model once with its inputs")
        if problem := why_no_array(weight):
            raise ModelImportError(f"PyTorch: the weight {name} {problem}")
        if weight.is_meta:
            raise ModelImportError(
                f"PyTorch: the weight {name} has no values (it is on the device meta)\n"
                "  instead: model.to_empty(device='cpu'), then model.load_state_dict(...)"
            )


def _exported_module(
    model: Any, example: tuple[Any, ...], named: dict[str, Any], dynamic_shapes: Any, compared: bool
) -> Any:
    """The exported program of a module. If torch cannot export it, another attempt uses values that can be known, and
    for models of transformers, the replacements that this library (since release 5) makes for export. The result is
    used if it computes the same as the module for the examples."""
    try:
        made = _export(model, example, named, dynamic_shapes)
        if not compared:
            return made
        if not _computes_the_same(made.module, model, example, named) and not _draws(model, example, named):
            raise ModelImportError("the exported program gives other results than the model for these inputs")
        return made
    except Exception:
        try:
            made, loops = _export_with_values(model, example, named, dynamic_shapes)
            holds = _leaves_out_what_changes_nothing if loops else _computes_the_same
            if holds(made.module, model, example, named):
                return made
        except Exception as error:
            if isinstance(error, ModelImportError):
                raise
        raise


def _leaves_out_what_changes_nothing(
    program: Callable[[], Any], model: Any, example: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Whether a program, whose loops over ``mask.nonzero()`` have a round for each place of the mask, computes the same
    as its model where the mask is not set everywhere: for the examples, or for those whose rows are all the first one,
    for which a model does the same in each row. Raises ModelImportError if the mask is set everywhere in both."""

    def alike(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.ndim or not x.numel():
            return x
        row = x.reshape(-1, x.shape[-1])[:1] if x.is_floating_point() and x.ndim > 1 else x.reshape(-1)[:1]
        return row.expand(x.shape).clone()

    with LeftOut() as left_out:
        same = _computes_the_same(program, model, example, named, is_assumed=False)
        if same and not left_out.seen:
            rows, by_name = torch.utils._pytree.tree_map(alike, (example, named))
            same = _computes_the_same(program, model, rows, by_name, is_assumed=False)
    if same and not left_out.seen:
        raise ModelImportError(
            "the model loops over the places where a mask is set (mask.nonzero()), and for the examples it is set "
            "everywhere, so that nothing shows whether the other rounds may run, too\n"
            "  instead: give examples for which it is not set everywhere, or loop over all places"
        )
    return same


def _draws(model: Any, example: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Whether the results of a module depend on random numbers; its import then names the ops that draw them."""
    return not _computes_the_same(lambda: model, model, example, named, seed=1)


def _export_with_values(
    model: Any, example: Any, named: Any, dynamic_shapes: Any
) -> tuple[torch.export.ExportedProgram, bool]:
    """An export in which the values of buffers are constants of the program, except for buffers that it changes, whose
    values differ in the next call. Also whether it has a round of a loop for each place of a mask."""
    changing: set[str] = set()
    while True:
        with _replaced(model), Known(model, changing) as known:
            made = _export(model, example, named, dynamic_shapes)
        written = {*made.run_decompositions({}).graph_signature.buffers_to_mutate.values()} & {*known.buffers}
        if not written:
            return made, known.loops
        changing |= written


def _export(
    model: Any, example: Any, named: Any, dynamic_shapes: Any, asserts: bool = False, more: int = 3
) -> torch.export.ExportedProgram:
    """The result of torch.export for a module. If the module limits or divides a size, the size is restricted
    accordingly; its other conditions on sizes (``if length != 64``) become assertions of the program."""
    try:
        with progress("torch.export"):
            return torch.export.export(
                model,
                example,
                named,
                dynamic_shapes=dynamic_shapes,
                prefer_deferred_runtime_asserts_over_guards=asserts,
            )
    except Exception as error:
        text = str(error)
        refined = _refined(text, dynamic_shapes) if more else None
        if refined is None and (asserts or "Constraints violated" not in text or "specialized" in text):
            raise
    asserts, dynamic_shapes = asserts or refined is None, dynamic_shapes if refined is None else refined
    return _export(model, example, named, dynamic_shapes, asserts, more - 1)


def _refined(error: str, dynamic_shapes: Any) -> Any:
    """dynamic_shapes refined by the conditions of a model on its sizes, such as the length of its position table, or a
    divisor. None if torch's error does not mention any, or says that a size is fixed."""
    _, _, fixes = error.partition("Suggested fixes:")
    fixes = fixes.partition("\n\n")[0]
    if not fixes or re.search(r"= \d+$", fixes, re.MULTILINE):
        return None
    refine = torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes
    return refine(f"Suggested fixes:{fixes}", dynamic_shapes)


def _computes_the_same(
    program: Callable[[], Any],
    model: Any,
    example: tuple[Any, ...],
    named: dict[str, Any],
    seed: int = 0,
    is_assumed: bool = True,
) -> bool:
    """Whether a program, as a module, and its model return the same results for copies of the examples, and write the
    same values into them; ``is_assumed``: the answer if one of them cannot run, as if its tensors have no values.
    ``seed``: that of the random numbers of the program; those of the model have 0."""
    held = [*model.buffers(), *model.parameters()]
    before = [value.detach().clone() for value in held]
    results: list[list[Any]] = []
    dtypes: list[list[Any]] = []
    with torch.no_grad(), torch.random.fork_rng(devices=()), _plain_attention(), contextlib.suppress(Exception):
        for each, number in ((model, 0), (program(), seed)):
            torch.manual_seed(number)
            given, by_name = copy.deepcopy((example, named))
            inputs = torch.utils._pytree.tree_leaves((given, by_name))  # a cache has other tensors after the call
            found = [*torch.utils._pytree.tree_leaves(each(*given, **by_name)), *inputs]
            tensors = [v.detach() for v in found if isinstance(v, torch.Tensor)]
            dtypes.append([v.dtype for v in tensors])
            results.append([(v.double() if v.is_floating_point() else v).numpy() for v in tensors])
            for value, was in zip(held, before):
                value.copy_(was)
    if len(results) < 2:
        return is_assumed
    return dtypes[0] == dtypes[1] and compare(results[0], results[1], sqnr(60.0)).agrees


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """A context manager: inside, torch's encoders also compute masked positions, as their exports do. Otherwise these
    are 0, but only if no gradients are needed."""
    found = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(found)


def _replaced(model: Any) -> Any:
    """A context manager: inside, models of transformers compute all segments of images and sounds at once, without
    loops."""
    if any(type(module).__module__.startswith("transformers.") for module in model.modules()):
        with contextlib.suppress(ImportError):
            return importlib.import_module("transformers.exporters.exporter_dynamo").apply_patches("dynamo")
    return contextlib.nullcontext()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context manager: inside, torch's warnings about itself are suppressed, and so are the stack traces that it logs
    for an op that fails, of which the error says what is needed."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    was, logger.disabled = logger.disabled, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.disabled = was


@contextlib.contextmanager
def masks_unread() -> Iterator[None]:
    """A context manager: inside, torch's encoders do not check whether a mask is causal. An export cannot follow this
    check, which only affects the choice of a kernel."""
    module: Any = torch.nn.modules.transformer
    found = module._detect_is_causal_mask
    module._detect_is_causal_mask = lambda mask, is_causal=None, size=None: is_causal is True
    try:
        yield
    finally:
        module._detect_is_causal_mask = found


def _read(path: str | os.PathLike[str]) -> Any:
    with quiet():
        return loaded(path)


def _why_not(error: Exception, name: str) -> str:
    """The message for a model that torch.export rejects."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0][:400]
    first += "".join(f"\n{line}" for line in text.splitlines()[1:] if line.lstrip().startswith("- "))  # the constraints
    more = "\n".join(
        line for line in text.splitlines()[1:] if line.strip().startswith("File ") and "/torch/" not in line
    )
    place = f"\n{more.splitlines()[-1]}" if more else ""
    kind = "" if isinstance(error, ModelImportError) else f"{type(error).__name__}: "
    return (
        f"torch.export cannot export {name}: {kind}{first}{place}\n"
        "  instead: export it yourself with torch.export.export, and give the ExportedProgram; what depends on values "
        "of tensors needs torch.cond, and sizes that may differ need dynamic_shapes="
    )


# -- examples from types ---------------------------------------------------------------------------
def _with_types(
    example: tuple[Any, ...], named: Mapping[str, Any], dynamic_shapes: Any
) -> tuple[tuple[Any, ...], Mapping[str, Any], Any]:
    """The examples with a tensor in place of each type (``"f32[B,3,64,64]"``), and dynamic_shapes for the named dims.
    Raises ArgumentError if dynamic_shapes are also given."""
    values = [*example, *named.values()]
    if not any(isinstance(v, (str, TensorType)) for v in values):
        return example, named, dynamic_shapes
    if dynamic_shapes is not None:
        raise ArgumentError("named dims of types say which sizes may differ: give no dynamic_shapes= beside them")
    sizes: dict[str, int] = {}
    dims: dict[str, Any] = {}

    def made(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, (str, TensorType)):
            return value, None
        type = parse_type(value) if isinstance(value, str) else value
        shape, dynamic = [], {}
        for axis, dim in enumerate(type.shape):
            if type_is_number(dim):
                shape.append(int(dim))
                continue
            text = str(dim)
            if not text.isidentifier():
                raise ArgumentError(f"{value}: a size of an example is a number or a name, not {text}")
            if text not in sizes:
                sizes[text] = 3 if axis == 0 else 64 + 32 * sum(s >= 64 for s in sizes.values())
                dims[text] = torch.export.Dim(text)
            shape.append(sizes[text])
            dynamic[axis] = dims[text]
        dtype = TORCH[type.dtype]
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape, dtype=dtype), dynamic
        return torch.ones(shape, dtype=dtype), dynamic

    pairs = [made(v) for v in values]
    tensors, dynamics = [p[0] for p in pairs], [p[1] for p in pairs]
    positional, keywords = tuple(tensors[: len(example)]), dict(zip(named, tensors[len(example) :]))
    by_name = dict(zip(named, dynamics[len(example) :]))
    shapes_of = (
        (*dynamics[: len(example)], *by_name.values()) if not named else (tuple(dynamics[: len(example)]), by_name)
    )
    return positional, keywords, _joined(shapes_of, len(example), by_name) if dims else None


def _as_dims(spec: Any, known: dict[str, Any]) -> Any:
    """dynamic_shapes with a ``torch.export.Dim`` for each name, the same one wherever the name occurs. Raises
    ArgumentError for a text that is no name."""
    if isinstance(spec, str):
        if not spec.isidentifier():
            raise ArgumentError(
                f"dynamic_shapes={spec!r}: a size is named by an identifier, or given by torch.export.Dim"
            )
        return known.setdefault(spec, torch.export.Dim(spec))
    if isinstance(spec, Mapping):
        return {name: _as_dims(inner, known) for name, inner in spec.items()}
    if type(spec) in (list, tuple):
        return type(spec)(_as_dims(inner, known) for inner in spec)
    return spec


def _joined(found: Any, count: int, by_name: dict[str, Any]) -> Any:
    """dynamic_shapes in torch's form: a tuple for positional inputs; if there are also named ones, torch takes a
    single tuple of both, in order."""
    return found if not by_name else (*found[0], *by_name.values())


def _by_rest(model: Any, count: int, found: tuple[Any, ...]) -> tuple[Any, ...]:
    """dynamic_shapes of a model whose forward takes ``*args``: for torch, those of the positional inputs (there are
    ``count``) from there on form one tuple."""
    parameters = inspect.signature(model.forward).parameters.values()
    rest = next((n for n, p in enumerate(parameters) if p.kind is inspect.Parameter.VAR_POSITIONAL), None)
    return found if rest is None else (*found[:rest], tuple(found[rest:count]), *found[count:])


def type_is_number(dim: Any) -> bool:
    """Whether a size is a number."""
    return type(dim) is int


# -- names of sizes --------------------------------------------------------------------------------
def _of_exported(exported: Any, name: str) -> Program:
    if _writes_what_is_read(exported) or _reads_parts(exported):
        try:
            with quiet():
                read, exported = exported, exported.run_decompositions({})
        except Exception as error:
            raise ModelImportError(_why_not(error, name or "the program")) from error
        example, named = read.example_inputs or ((), {})
        if not _computes_the_same(exported.module, read.module(), example, named):
            raise ModelImportError(
                f"torch's graph without writes of {name or 'the program'} gives other results for the examples than "
                "the program does, as it is with writes into x.unfold(...)\n"
                "  instead: give the written part by indices or slices, x[..., ::4] *= 2"
            )
    return Program(exported, name or "Model", {})


def _named_dims(exported: Any, dynamic_shapes: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """A dict from symbols of sizes to their names in the user's dynamic_shapes. ``given``: the example inputs by
    parameter."""
    if dynamic_shapes is None:
        return {}
    specs = dynamic_shapes if isinstance(dynamic_shapes, Mapping) else dict(zip(given, dynamic_shapes))
    pairs = [pair for name, value in given.items() for pair in _pairs(specs.get(name), value)]
    values = {n.name: n.meta.get("val") for n in exported.graph.nodes if n.op == "placeholder"}
    fakes = [v for name in exported.graph_signature.user_inputs if isinstance(v := values.get(name), torch.Tensor)]
    wanted: dict[str, Any] = {}
    for spec, value in zip(pairs, fakes):
        for axis, dim in (spec or {}).items() if isinstance(spec or {}, Mapping) else enumerate(spec):
            called = getattr(dim, "__name__", None)
            size = value.shape[axis]
            if called and isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                wanted.setdefault(str(size.node.expr), valid_name(called, "size"))
    return wanted


def _pairs(spec: Any, value: Any) -> list[Any]:
    """Pairs of specs and tensors in a nested input, in order."""
    if isinstance(value, torch.Tensor):
        return [spec]
    parts = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    )
    found = []
    for key, inner in parts:
        inside = isinstance(spec, Mapping) and key in spec
        inside = inside or (isinstance(spec, (list, tuple)) and isinstance(key, int) and key < len(spec))
        found += _pairs(spec[key] if inside else None, inner)
    return found


def _by_parameter(model: Any, example: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The example inputs by the names of forward's parameters."""
    try:
        bound = inspect.signature(model.forward).bind(*example, **named)
    except TypeError:
        return {**{str(i): v for i, v in enumerate(example)}, **named}
    return {
        name: value
        for name, kind in ((n, bound.signature.parameters[n].kind) for n in bound.arguments)
        for name, value in (
            bound.arguments[name].items() if kind is inspect.Parameter.VAR_KEYWORD else [(name, bound.arguments[name])]
        )
    }


class Sizes:
    """The sizes of an exported program as dims: a symbol has the user's name, or one made from the first input and
    axis that have it."""

    def __init__(self, program: Program) -> None:
        self.names = dict(program.dims)
        self.taken = {*self.names.values()}
        self.ranges = {str(key): value for key, value in program.exported.range_constraints.items()}
        self.symbols: dict[str, Any] = {}

    def type_of(self, value: Any, name: str) -> TensorType:
        """The type of an input with a fake value. Raises ModelImportError for sizes that are not formulas of named
        ones."""
        dims = [self._dim(size, name, axis) for axis, size in enumerate(value.shape)]
        return TensorType(tuple(dims), dtype_of(value.dtype))

    def _dim(self, size: Any, name: str, axis: int) -> Any:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression.is_number:
            return int(expression)
        self._enter(expression, name, axis)
        try:
            return self.dim_of(expression)
        except Exception as error:
            raise ModelImportError(f"axis {axis} of the input {name} has the size {expression}: {error}") from error

    def dim_of(self, expression: Any) -> Any:
        """The dim for torch's expression in known symbols. Raises an error for functions that dims do not have."""
        if unknown := [s for s in expression.free_symbols if str(s) not in self.names]:
            raise TraceError(f"the size {expression} depends on values, with {', '.join(map(str, unknown))}")
        text = str(expression.subs({s: _named(self.names[str(s)]) for s in expression.free_symbols}))
        return shapes.substitute(
            shapes.parse(text), {self.names[str(s)]: self._symbol(str(s)) for s in expression.free_symbols}
        )

    def _enter(self, expression: Any, name: str, axis: int) -> None:
        for found in sorted(expression.free_symbols, key=str):
            if str(found) not in self.names:
                wish = "B" if axis == 0 else f"{valid_name(name)}_{axis}"
                while wish in self.taken:
                    wish += "_"
                self.names[str(found)] = wish
                self.taken.add(wish)

    def _symbol(self, key: str) -> Any:
        """The named size, with the range that torch has for it."""
        if key not in self.symbols:
            found, facts = self.ranges.get(key), Facts()
            if found is not None:
                low, high = (int(v) if v.is_Integer else None for v in (found.lower, found.upper))
                low = low if low is not None and low > 2 else None
                high = high if high is not None and high < 1 << 31 else None
                if low is not None or high is not None:
                    facts = Facts(low if low is not None else 1, high)
            self.symbols[key] = symbol(self.names[key], facts)
        return self.symbols[key]


def _named(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


# -- ops that the table lacks ----------------------------------------------------------------------
def decomposed(exported: Any, unwanted: Callable[[Any], Iterable[Any]]) -> Any:
    """The program with ``unwanted`` ops replaced by torch's decompositions, which may contain unwanted ops in turn; the
    program itself if torch has no decompositions for them. This also removes functions that are not ops (those of
    vmap)."""
    tried: set[Any] = set()
    while wanted := {*unwanted(exported)} - tried:
        tried |= wanted
        known = torch.export.default_decompositions()
        table = {op: known[op] for op in wanted if op in known}
        table |= {op: made for op in wanted if op not in known and (made := _composite(op)) is not None}
        if not table and all(isinstance(op, torch._ops.OperatorBase) for op in wanted):
            break
        try:
            with quiet():
                exported = exported.run_decompositions(table)
        except Exception:  # the error names the unwanted op, not torch's reason
            break
    return exported


def _composite(op: Any) -> Callable[..., Any] | None:
    """The definition of an op of another library, if it was defined as a function of other ops."""
    key = torch._C.DispatchKey.CompositeExplicitAutograd
    if not isinstance(op, torch._ops.OpOverload) or op.namespace in ("aten", "prims"):
        return None
    is_there = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)  # type: ignore[no-untyped-call]
    return functools.partial(op._op_dk, key) if is_there else None


# -- writes ----------------------------------------------------------------------------------------
def _writes_what_is_read(exported: Any) -> bool:
    """Whether a write in place would be lost if it just made a new value: it changes an input, a tensor of the model,
    or memory that is read later under another name."""
    graphs = [m.graph for m in exported.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    return any(map(_graph_writes, graphs))


def _reads_parts(exported: Any) -> bool:
    """Whether a program reads the plain tensors inside a tensor of a special class (from torchao), which are separate
    weights in the graph that torch makes."""
    return any(getattr(node.target, "namespace", "") == "export" for node in exported.graph.nodes)


def _graph_writes(graph: Any) -> bool:
    order = {node: place for place, node in enumerate(graph.nodes)}
    roots: dict[Any, Any] = {}
    members: dict[Any, list[Any]] = {}

    def joined(node: Any, root: Any) -> None:
        roots[node] = root
        members.setdefault(root, []).append(node)

    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None) if node.op == "call_function" else None
        if schema is None:
            of = node.args[0] if node.op == "call_function" and node.args else None
            passes_on = getattr(node.target, "__name__", "") == "getitem" and of in roots
            joined(node, roots[of] if passes_on and roots[of] is not of else node)
            continue
        written = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write]
        for index, argument in written:
            given = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if not isinstance(given, torch.fx.Node):
                continue
            root = roots[given]
            if root.op != "call_function":
                return True
            others = [n for n in members[root] if n is not given]
            if any(order[user] > order[node] for other in others for user in other.users):
                return True
        shares = any(r.alias_info is not None for r in schema.returns) or schema.name.partition("::")[2] in _MAYBE_SAME
        first = node.args[0] if node.args else None
        joined(node, roots[first] if shares and isinstance(first, torch.fx.Node) else node)
    return False
