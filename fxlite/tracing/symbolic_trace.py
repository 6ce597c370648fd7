"""``fx.symbolic_trace``: from a program and input types to a GraphModule."""

from __future__ import annotations

import os
import types as python_types
from collections.abc import Callable, Mapping
from typing import Any

from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, FxliteError, expect
from fxlite.base.facade import above
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.tracing.inputs import declare
from fxlite.tracing.tracer import Tracer


@checked
def symbolic_trace(
    root: Module | Callable[..., Any],
    *types: Any,
    concrete_args: Mapping[str, Any] | None = None,
    leaf: Any = (),
    tracer: Tracer | None = None,
    inputs: Mapping[str, Any] | None = None,
    **named: Any,
) -> GraphModule:
    """Trace a module or function: ``symbolic_trace(model, x="f32[B,3,224,224]")``.

    Inputs are types, type text or example arrays, or nested dicts, tuples, lists, dataclasses and
    named tuples of them, by position or by the names of ``forward``'s parameters (also of its
    ``**kwargs``); one whose name is also an option goes into ``inputs={...}``. Without any, the
    graph has no types. ``concrete_args`` are baked in, and so are parameters that are not given but
    have a default; ``fx.PH`` inside a nested concrete value marks what stays an input. Modules that
    match ``leaf`` (objects, classes, paths, globs such as "layers.*.attn") stay one node.
    ``tracer``: an instance of a subclass of :class:`Tracer`.

    Raises TraceError for what cannot be traced, ArgumentError for wrong input names and for a leaf
    that is not there, ShapeError and DTypeError for a program that does not fit the types, all
    naming file and line."""
    if isinstance(root, (str, os.PathLike)):
        root = above("load_if_saved")(root)
    leaf = () if leaf is None else leaf if isinstance(leaf, (str, tuple)) else Tracer(leaf).leaves
    options = types or named or inputs or concrete_args or leaf or tracer is not None
    if isinstance(root, GraphModule) and not options:
        return root.copy()
    both = set(inputs or ()) & set(named)
    if both:
        raise ArgumentError(f"input {', '.join(map(repr, sorted(both)))} is given twice")
    if leaf and tracer is not None:
        raise ArgumentError("give leaf= to the tracer: tracer=MyTracer(leaf=...)")
    if tracer is not None:
        expect(tracer, Tracer, "tracer=", "give an instance: tracer=MyTracer()")
    function = root.forward if isinstance(root, Module) else root
    declared = declare(function, types, {**(inputs or {}), **named}, concrete_args or {})
    tracer = Tracer(leaf) if tracer is None else tracer
    try:
        tracer.trace(root, declared, concrete_args)
    except FxliteError as error:
        if type(tracer) is Tracer:
            from fxlite.tracing.doctor.doctor import add_further_problems

            add_further_problems(error, root, declared, concrete_args, leaf)
        raise
    return tracer.module(_name_of(root))


def _name_of(root: Any) -> str:
    if isinstance(root, python_types.FunctionType):
        return root.__name__ if root.__name__ != "<lambda>" else "function"
    return getattr(root, "name", None) or type(root).__name__
