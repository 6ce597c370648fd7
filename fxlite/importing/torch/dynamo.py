"""``torch.compile(model, backend="fxlite")``: runs an unchanged PyTorch program on fxlite's C.

In: a graph that TorchDynamo made from a part of the program, with its inputs. Out: a function of tensors. Parameters
and buffers, which TorchDynamo passes as static inputs, become weights of the graph over the same memory; if the
program writes into them, they are packed again. If the graph cannot be imported or needs gradients, torch runs it
unchanged, and a single warning says so.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy
import torch

from fxlite.base.errors import ArgumentError, FxliteError, ModelImportError
from fxlite.base.facade import above
from fxlite.importing.importer import valid_name
from fxlite.importing.torch.exported import program_of
from fxlite.importing.torch.run import graph_of
from fxlite.importing.torch.table import NARROW, array_of, tensor_of

_said: set[str] = set()


def fxlite_backend(module: Any, example_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
    """A compiled function for a graph of TorchDynamo. ``options`` are those of :func:`fxlite.compile`:
    ``torch.compile(model, backend="fxlite", options={"backend": "c"})``."""
    options = dict(options.get("options") or {})
    try:
        return _Part(module, example_inputs, options)
    except ArgumentError:  # an option that fx.compile does not have
        raise
    except Exception as error:
        _warn(error, "torch runs it as it is")
        return module.forward  # type: ignore[no-any-return]


def _warn(error: Exception, what: str) -> None:
    """Warn, once for each reason, about a part that fxlite did not compile."""
    text = str(error).strip().partition("\n")[0][:300] or type(error).__name__
    if text not in _said:
        _said.add(text)
        warnings.warn(
            f"torch.compile(backend='fxlite'): a part of the program is not compiled, {what}: {text}", stacklevel=3
        )


def _enter_autocast(*settings: Any) -> Any:
    """Replaces the function that TorchDynamo's graphs call, so that autocast is in effect during torch.export.
    Torch's own function would only be recorded, and the dtypes inside would be those without autocast."""
    entered = torch.autocast(*settings)
    entered.__enter__()  # type: ignore[no-untyped-call]
    return entered


_OWN = {
    torch.amp.autocast_mode._enter_autocast: _enter_autocast,
    torch.amp.autocast_mode._exit_autocast: lambda entered: entered.__exit__(None, None, None),
}


def _constant(value: Any, _: Any) -> Any:
    """A function that returns the value, whatever the inputs."""
    return value


def _path_of(node: Any) -> list[str]:
    """The parts of the path by which the user's program reaches an input of TorchDynamo's graph, beginning with the
    name of a variable: ``["model", "layers", "0", "weight"]``."""
    source = getattr(node, "_dynamo_source", None)
    name = getattr(source, "name", "")
    found = re.findall(r"\['?([\w.]+)'?\]|\.(\w+)", name() if callable(name) else name)
    parts = [key or attribute for key, attribute in found]
    return [part for part in parts if part not in ("_modules", "_parameters", "_buffers")] or [node.name]


def _name_of(graph: Any) -> str:
    """The name of the class whose module the graph computes; ``compiled`` if it computes more than one module."""
    stacks = [[*(n.meta.get("nn_module_stack") or {}).values()] for n in graph.nodes if n.op.startswith("call")]
    outermost = {tuple(stack[0]) if stack else ("", "compiled") for stack in stacks}
    kind = outermost.pop()[1] if len(outermost) == 1 else "compiled"
    return kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__


def _is_weight(value: Any) -> bool:
    """Whether an input of TorchDynamo's graph is the same tensor in each call."""
    return isinstance(value, torch.nn.Parameter) or bool(getattr(value, "_dynamo_static_input_type", None))


def _name_scopes(node: Any, root: str) -> None:
    """Let the paths of a node's modules begin with a replacement for the variable that holds the model."""
    stack = node.meta.get("nn_module_stack") or {}
    node.meta["nn_module_stack"] = {
        key: (re.sub(r"^[LG]\['(\w+)'\]", root, str(path)).removeprefix("."), kind)
        for key, (path, kind) in stack.items()
    }


class _Inputs(torch.nn.Module):
    """A graph of TorchDynamo as a module whose inputs are the tensors that change. Static ones are its buffers, under
    the paths that they have in the user's model, and sizes are read from tensors. Its results are the tensors among
    the results of the graph."""

    def __init__(self, module: Any, inputs: Sequence[Any]) -> None:
        super().__init__()
        self._name = _name_of(module.graph)
        paths = [_path_of(n) for n in module.graph.nodes if n.op == "placeholder"]
        is_weight = [_is_weight(value) for value in inputs]
        roots = {path[0] for path, weight in zip(paths, is_weight) if weight and len(path) > 1}
        first = len(roots) == 1  # the parts of a single model need not be told from those of another
        parameters: list[inspect.Parameter] = []
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(module.graph, {}))
        for node in graph.nodes:
            node.target = _OWN.get(node.target, node.target)
            _name_scopes(node, "" if first else r"\1")
        self.__dict__["graph_of"] = module = torch.fx.GraphModule(module, graph)
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        fakes = [n.meta.get("example_value") for n in placeholders]
        sources: list[tuple[str, Any]] = []
        self.__dict__["sources"] = sources
        self.moving: list[int] = []
        for position, (value, path, fake) in enumerate(zip(inputs, paths, fakes)):
            if isinstance(value, torch.Tensor):
                if value.device.type != "cpu":
                    raise ModelImportError(f"an input is on the device {value.device}")
                if is_weight[position]:
                    sources.append(("weight", self._hold(path[first:] or path, value.detach())))
                    continue
                sources.append(("input", len(self.moving)))
                self.moving.append(position)
                name = valid_name("_".join(path), "given")
                name = name if name not in {p.name for p in parameters} else f"{name}_{position}"
                parameters.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD))
            elif isinstance(value, (int, torch.SymInt)):
                sources.append(self._size(value if fake is None else fake, placeholders, fakes, inputs))
            else:
                raise ModelImportError(f"an input is a {type(value).__name__}")
        if not self.moving:
            raise ModelImportError("none of its inputs is a tensor")
        found = next(n for n in module.graph.nodes if n.op == "output").args[0]
        #: Functions that make results from the inputs; None for a result that the graph computes.
        self.results: list[Callable[[Sequence[Any]], Any] | None] = []
        for result in found if isinstance(found, (tuple, list)) else [found]:
            value = result.meta.get("example_value") if isinstance(result, torch.fx.Node) else result
            if isinstance(value, torch.SymInt):
                self.results.append(self._computed(value.node.expr, [fakes[i] for i in self.moving]))
            elif isinstance(value, torch.Tensor):
                if value.dtype in NARROW:
                    raise ModelImportError(f"a result is of {value.dtype}, which is float32 here")
                self.results.append(None)
            elif value is None or type(value) is int:
                self.results.append(functools.partial(_constant, value))
            else:
                raise ModelImportError(f"a result is a {type(value).__name__}")

        def forward(*given: Any) -> Any:
            return self._run(*given)

        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward

    def _hold(self, path: list[str], value: Any) -> str:
        """Hold a weight as a buffer. Returns its path."""
        owner: torch.nn.Module = self
        with contextlib.suppress(KeyError):  # an attribute has the name of a part
            for part in path[:-1]:
                if part not in owner._modules:
                    owner.add_module(part, torch.nn.Module())
                owner = owner.get_submodule(part)
            if path[-1] not in owner._buffers:
                owner.register_buffer(path[-1], value)
                return ".".join(path)
        name = valid_name(f"weight_{len(self._buffers)}_{'_'.join(path)}")
        self.register_buffer(name, value)
        return name

    def _computed(self, expr: Any, fakes: Sequence[Any]) -> Callable[[Sequence[Any]], int]:
        """A function that computes a size of the program from the sizes of its tensors."""
        places = {
            size.node.expr: (number, axis)
            for number, fake in enumerate(fakes)
            for axis, size in enumerate(fake.shape)
            if isinstance(size, torch.SymInt) and size.node.expr in expr.free_symbols
        }
        if len(places) != len(expr.free_symbols):
            raise ModelImportError("a result is a number that is computed of values")
        return lambda given: int(expr.xreplace({s: sympy.Integer(given[n].shape[a]) for s, (n, a) in places.items()}))

    def _size(self, wanted: Any, placeholders: Any, fakes: Any, inputs: Sequence[Any]) -> tuple[str, Any]:
        """The tensor and axis that have the given size."""
        if not isinstance(wanted, torch.SymInt):
            return ("number", int(wanted))
        count = 0
        for fake, value in zip(fakes, inputs):
            if not isinstance(fake, torch.Tensor) or _is_weight(value):
                continue
            for axis, size in enumerate(fake.shape):
                if isinstance(size, torch.SymInt) and size.node.expr == wanted.node.expr:
                    return ("size", (count, axis))
            count += 1
        raise ModelImportError("an input is a number that may differ")

    def _run(self, *given: Any) -> Any:
        kinds: dict[str, Callable[[Any], Any]] = {
            "weight": self.get_buffer,
            "input": lambda number: given[number],
            "number": lambda number: number,
            "size": lambda place: given[place[0]].shape[place[1]],
        }
        module: Any = self.__dict__["graph_of"]
        with torch.fx.traceback.preserve_node_meta():  # the places in the user's program
            found = torch.fx.Interpreter(module).run(*(kinds[kind](which) for kind, which in self.__dict__["sources"]))
        found = found if isinstance(found, (tuple, list)) else [found]
        return tuple(value for value, made in zip(found, self.results) if made is None)


class _Part:
    """A compiled graph of TorchDynamo."""

    def __init__(self, module: Any, inputs: Sequence[Any], options: dict[str, Any]) -> None:
        self.module, self.options = module, options
        if torch.is_grad_enabled() and any(isinstance(v, torch.Tensor) and v.requires_grad for v in inputs):
            raise ModelImportError("it needs gradients; run it in torch.no_grad() or torch.inference_mode()")
        wrapped = _Inputs(module, inputs).eval()
        self.moving = wrapped.moving
        self.results = wrapped.results
        fakes = [n.meta.get("example_value") for n in module.graph.nodes if n.op == "placeholder"]
        dims = tuple(
            {
                axis: torch.export.Dim.DYNAMIC
                for axis, size in enumerate(fakes[position].shape)
                if isinstance(size, torch.SymInt)
            }
            for position in self.moving
        )
        examples = tuple(inputs[position].detach() for position in self.moving)
        context: Any = torch._guards.tracing  # export is not part of what TorchDynamo traces
        with context(None), torch.no_grad():
            # TorchDynamo's graph contains no Python code whose outcome an export could miss.
            program = program_of(wrapped, examples, {}, dims if any(dims) else None, compared=False)
        if program.exported.graph_signature.buffers_to_mutate:
            raise ModelImportError("it changes buffers of the model")
        self.graph = graph_of(program)
        self.weights = [v for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and i not in set(self.moving)]
        self._compile()

    def _compile(self) -> None:
        self.versions = [w._version if not w.is_inference() else 0 for w in self.weights]
        self.compiled = above("compile")(self.graph, **self.options)

    def __call__(self, *given: Any) -> Any:
        """Run the graph on tensors."""
        if self.versions != [w._version if not w.is_inference() else 0 for w in self.weights]:
            self._compile()  # weights have been written, so their packed form is out of date
        tensors = [given[position] for position in self.moving]
        try:
            found = self.compiled(*map(array_of, tensors))
        except FxliteError as error:
            _warn(error, "torch runs this call")
            return self.module(*given)
        results = iter(found if isinstance(found, (tuple, list)) else [found])
        return tuple(made(tensors) if made else tensor_of(np.asarray(next(results))) for made in self.results)
