"""GraphModule: a graph together with the weights it reads; a Module that runs the graph's code.

In: a graph and a module that owns its attributes. Out: something callable on arrays whose ``code``
is regenerated from the graph by ``recompile()``.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Iterable
from typing import Any

import numpy as np

from fxlite import shapes
from fxlite.errors import ArgumentError, DTypeError
from fxlite.graph import Graph, Node
from fxlite.nn.module import Module, Parameter
from fxlite.state import active_tracer
from fxlite.types import TensorType, bind_dims

_numbers = itertools.count()


class Container(Module):
    """Holds weights at a path of a GraphModule; ``container[0]`` is its child or weight named
    "0"."""

    def __getitem__(self, index: int | str) -> Any:
        return child_or_array(self, str(index))


def child_or_array(module: Module, name: str) -> Any:
    """A child, parameter or buffer, whatever its name; KeyError where there is none."""
    if name in module._modules:
        return module._modules[name]
    if name in module._parameters or name in module._buffers:
        return module.__getattr__(name)
    raise KeyError(f"{type(module).__name__} has neither a child nor an array {name!r}")


class GraphModule(Module):
    """A module whose ``forward`` is the graph's code. ``gm(x)`` runs the regenerated Python."""

    def __init__(
        self, root: Module | dict[str, Any], graph: Graph, name: str = "GraphModule"
    ) -> None:
        """``root`` owns the weights the graph reads: a module, or a dict from path to array or
        module."""
        super().__init__()
        self.name = name
        if isinstance(root, Module):
            self.training = root.training
            paths = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
            root = {path: root.get_attribute(path) for path in paths}
        for path, value in root.items():
            self.set_attribute(path, value)
        self.graph = graph

    def __getitem__(self, index: int | str) -> Any:
        """``gm[0]``: the child or array named "0", as in the code of a traced Sequential."""
        return child_or_array(self, str(index))

    # -- attributes by path ----------------------------------------------------------------------
    def _parent(self, target: str) -> tuple[Module, str]:
        path, _, name = target.rpartition(".")
        module: Module = self
        for part in path.split(".") if path else ():
            if part not in module._modules:
                module._modules[part] = Container()
            module = module._modules[part]
        return module, name

    def add_submodule(self, target: str, module: Module) -> bool:
        """Put a module at a dotted path, making the containers on the way."""
        self.set_attribute(target, module)
        return True

    def set_attribute(self, target: str, value: Any) -> None:
        """Put a weight or module at a dotted path: a Parameter stays one, other arrays become
        buffers."""
        parent, name = self._parent(target)
        if isinstance(value, Module):
            parent._modules[name] = value
        elif isinstance(value, Parameter) and value.is_parameter:
            parent._enter(parent._parameters, name, value)
        else:
            parent.register_buffer(name, value)

    def delete_all_unused_submodules(self) -> None:
        """Drop weights and modules that no node reads. Leaf modules, which belong to the program,
        are dropped whole or left as they are."""
        used = {n.target for n in self.graph.nodes if n.op in ("get_attr", "call_module")}
        containers = {"": self} | {
            path: module
            for path, module in self.named_modules(remove_duplicate=False)
            if type(module) is Container
        }
        for path, module in reversed(containers.items()):
            dot = f"{path}." if path else ""
            for group in (module._parameters, module._buffers):
                for name in [n for n in group if dot + n not in used]:
                    del group[name]
            for name, child in list(module._modules.items()):
                child_path = dot + name
                if type(child) is Container:
                    empty = not (child._parameters or child._buffers or child._modules)
                else:
                    inner = f"{child_path}."
                    empty = child_path not in used and not any(u.startswith(inner) for u in used)
                if empty:
                    del module._modules[name]

    # -- graph and code --------------------------------------------------------------------------
    @property
    def graph(self) -> Graph:
        """The graph; edit it and call ``recompile()``."""
        return self.__dict__["_graph"]  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        self._prepare()

    @property
    def code(self) -> str:
        """Source of ``forward``, as last compiled."""
        if self.__dict__["_code"] is None:
            self.recompile()
        return self.__dict__["_code"]  # type: ignore[no-any-return]

    def _prepare(self) -> None:
        """Forget the code; it is made again when somebody calls the module or reads ``code``."""
        self.__dict__["_code"] = None
        self.__dict__["_forward"] = self._first_call
        placeholders = self.graph.placeholders
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        self.__dict__["_signature"] = inspect.Signature(
            [inspect.Parameter(p.target, kind, default=_default(p)) for p in placeholders]
        )

    @staticmethod
    def _first_call(module: GraphModule, *args: Any, **kwargs: Any) -> Any:
        module.recompile()
        return module.__dict__["_forward"](module, *args, **kwargs)

    def recompile(self) -> str:
        """Regenerate ``code`` and ``forward`` from the graph. Returns the code."""
        from fxlite import ops, pretty

        self._prepare()

        code = pretty.forward_code(self.graph)
        filename = f"<fxlite {self.name} {next(_numbers)}>"
        linecache.cache[filename] = (len(code), None, code.splitlines(True), filename)
        namespace: dict[str, Any] = {"ops": ops, "Min": shapes.minimum, "Max": shapes.maximum,
                                     "inf": float("inf"), "nan": float("nan")}  # fmt: skip
        namespace["Mod"] = lambda a, b: a % b
        exec(compile(code, filename, "exec"), namespace)
        self.__dict__["_code"] = code
        self.__dict__["_forward"] = namespace["forward"]
        return code

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_forward"](self, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active_tracer.get() is not None:
            return super().__call__(*args, **kwargs)
        try:
            bound = self.__dict__["_signature"].bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.__dict__['_signature']}: {error}") from None
        bound.apply_defaults()
        check_inputs(self.name, self.graph.placeholders, bound.arguments)
        return self.__dict__["_forward"](self, *bound.args)

    def __getattribute__(self, name: str) -> Any:
        if name == "forward":
            # a retrace must see the parameters by name
            function, signature = self.__dict__["_forward"], self.__dict__["_signature"]

            def forward(*args: Any, **kwargs: Any) -> Any:
                return function(self, *args, **kwargs)

            forward.__signature__ = signature  # type: ignore[attr-defined]
            return forward
        return super().__getattribute__(name)

    @property
    def __signature__(self) -> inspect.Signature:
        return self.__dict__["_signature"]  # type: ignore[no-any-return]

    # -- copies ----------------------------------------------------------------------------------
    def copy(self) -> GraphModule:
        """An independent graph over the same weights."""
        holder: dict[str, Any] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            dot = f"{path}." if path else ""
            for group in (module._parameters, module._buffers):
                holder.update({dot + name: value for name, value in group.items()})
        for node in self.graph.find_nodes(op="call_module"):
            holder[node.target] = self.get_submodule(node.target)
        made = type(self)(holder, self.graph.copy(), self.name)
        made.training = self.training
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = self.copy()
        memo[id(self)] = made
        for module in made.modules():
            if module is made or type(module) is Container:
                for group in (module._parameters, module._buffers):
                    for name, value in group.items():
                        if value is not None:
                            new = np.array(value)
                            is_parameter = isinstance(value, Parameter)
                            group[name] = Parameter(new) if is_parameter else new
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        from fxlite.serialize import from_bytes, to_bytes

        return (from_bytes, (to_bytes(self),))

    # -- text ------------------------------------------------------------------------------------
    def print_readable(self, print_output: bool = True) -> str:
        """Print (and return) the module as a readable class."""
        from fxlite.pretty import readable

        text = readable(self)
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str, module_name: str | None = None) -> None:
        """Write the model as a Python package: source and a weights file."""
        from fxlite.compiler import python_folder

        python_folder(self, folder, module_name or self.name)

    def __repr__(self) -> str:
        return f"{self.name}()\n\n{self.graph}"


def _default(placeholder: Node) -> Any:
    return placeholder.args[0] if placeholder.args else inspect.Parameter.empty


def check_inputs(name: str, placeholders: Iterable[Node], values: dict[str, Any]) -> dict[str, int]:
    """Check arrays against the declared types before anything runs; returns the named dims' values.

    Raises DTypeError (dtype, not an array) or ShapeError (rank, dims), naming the input."""
    pairs: list[tuple[str, TensorType, tuple[int, ...]]] = []
    for node in placeholders:
        declared, value = node.type, values[node.target]
        if not isinstance(declared, TensorType):
            continue
        if not isinstance(value, (np.ndarray, np.generic)):
            raise DTypeError(
                f"{name}: {node.target} must be an array {declared}, not {type(value).__name__}"
            )
        if value.dtype != declared.dtype.numpy:
            raise DTypeError(
                f"{name}: {node.target} must be {declared}, got "
                f"{value.dtype}{list(value.shape)}; use "
                f"{node.target}.astype({declared.dtype.long_name!r})"
            )
        pairs.append((f"{name}: {node.target}", declared, value.shape))
    return bind_dims(pairs)
