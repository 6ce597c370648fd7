"""The importer of models: it runs the nodes of another library on proxies, so that tracing handles types, named
sizes, promotion, control flow, constants and errors.

In: inputs with types, arrays by name, and a function that runs the model's nodes. Out: a GraphModule whose nodes refer
to the model: module paths are scopes, places in the model (or in the user's program, if the model has them) are
locations, and inputs and weights have the model's names.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from fxlite.base.errors import FxliteError, ModelImportError
from fxlite.base.location import Location, Scope
from fxlite.base.outside_text import LONGEST_NAME, is_name
from fxlite.base.progress import Work, progress
from fxlite.base.state import is_traced
from fxlite.graph.graph import Graph, Node
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module, Parameter
from fxlite.ops.op import lookup
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

#: Names that a parameter of a program, or a size, cannot have.
_NEVER = frozenset(("self",))


def valid_name(text: str, otherwise: str = "value") -> str:
    """A text as an identifier: unchanged if it is one, else with ``_`` for characters that are not allowed."""
    if is_name(text) and text not in _NEVER:
        return text
    made = re.sub(r"\W+", "_", unicodedata.normalize("NFKC", text), flags=re.ASCII).strip("_")[: LONGEST_NAME - 8]
    if not made:
        return otherwise
    if made[0].isdigit():
        return f"{otherwise}_{made}"
    return made if is_name(made) and made not in _NEVER else f"{made}_"


class Names:
    """Unique identifiers for texts. ``taken``: identifiers that are used elsewhere."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._known: dict[str, str] = {}

    def of(self, text: str, otherwise: str = "value") -> str:
        """The identifier for a text, always the same one."""
        if text not in self._known:
            wish = made = valid_name(text, otherwise)
            number = 0
            while made in self._taken:
                number += 1
                made = f"{wish}_{number}"
            self._taken.add(made)
            self._known[text] = made
        return self._known[text]

    @property
    def renamed(self) -> dict[str, str]:
        """A dict from identifiers to the texts for which they stand, if these differ."""
        return {name: text for text, name in self._known.items() if name != text}


def scope_path(text: str) -> str:
    """The path of a module from a text such as ``/layers.0/attention``: ``layers.0.attention``. Characters that a path
    cannot have become ``_``; parts that are indices stay unchanged. A part that starts with the previous one, as in
    ``/net/net.0``, is a path from the same module: ``net.0``."""
    kept: list[str] = []
    for part in filter(None, text.split("/")):
        if kept and part.startswith(f"{kept[-1]}."):
            kept.pop()
        kept.append(part)
    parts = [p for p in re.split("[/.]+", "/".join(kept)) if p]
    return ".".join(p if p.isascii() and p.isdecimal() else valid_name(p, "module") for p in parts)


def class_name(path: str) -> str:
    """A class name for a module of which only the path is known: SelfAttn for ``layers.0.self_attn``, Layers for
    ``layers.0``."""
    parts = [p for p in path.split(".") if not p.isdecimal()]
    words = re.split(r"[^0-9A-Za-z]+", parts[-1]) if parts else []
    made = "".join(w[:1].upper() + w[1:] for w in words)
    return made if is_name(made) else "Block"


class Weights:
    """The arrays of one model. ``root`` is the module that has them, and ``paths`` maps each name to its path."""

    def __init__(self, root: Module) -> None:
        self.root = root
        self.paths: dict[str, str] = {}

    def add(self, name: str, array: np.ndarray[Any, Any], is_parameter: bool | None = None) -> np.ndarray[Any, Any]:
        """Keep an array under its name, or the nearest name that a module can have. Returns the array or a Parameter
        over its memory, whichever the module holds. Float arrays with at least one axis are parameters, unless
        ``is_parameter`` is given."""
        if is_parameter is None:
            is_parameter = array.ndim > 0 and array.dtype.kind not in "biu"
        owner, path = self._place(name)
        own = path.rpartition(".")[2]
        self.paths[name] = path
        if is_parameter:
            owner.register_parameter(own, Parameter(array))
            return owner._parameters[own]  # type: ignore[no-any-return]
        owner.register_buffer(own, array)
        return owner._buffers[own]  # type: ignore[no-any-return]

    def _place(self, name: str) -> tuple[Module, str]:
        """The module for an array with that name, and an unused path for the array."""
        *modules, last = [p if p.isdecimal() else valid_name(p, "weight") for p in name.split(".") if p] or ["weight"]
        if last.isdecimal():
            modules, last = [], valid_name(name, "weight")
        owner, path = self.root, ""
        for part in modules:
            found = owner._modules.get(part)
            if found is None:
                if _has(owner, part):  # taken by an array: the rest becomes one name
                    owner, last = self.root, valid_name(name.replace(".", "_"), "weight")
                    break
                found = Module()
                owner.add_module(part, found)
            owner, path = found, f"{path}{part}."
        wish, number = last if is_name(last) else f"{last}_", 0
        made = wish
        while _has(owner, made):
            number += 1
            made = f"{wish}_{number}"
        return owner, path + made


def _has(module: Module, name: str) -> bool:
    state = module.__dict__
    groups = ("_parameters", "_buffers", "_modules")
    return name in state or hasattr(type(module), name) or any(name in state[g] for g in groups)


#: Exceptions that ops and NumPy raise for a call that does not fit.
_MISFITS = (
    FxliteError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    NotImplementedError,
    RecursionError,
    MemoryError,
)


class Importer:
    """One model while it is imported. ``kind`` names its library ("ONNX"), ``source`` is its file or the name of its
    class, and ``model`` the name of its module."""

    def __init__(self, kind: str, source: str, model: str) -> None:
        self.kind, self.source = kind, source
        name = valid_name(model, "Model")
        self.root: Module = type(name, (Module,), {"__module__": __name__, "__doc__": f"{source}, imported."})()
        self.root.training = False
        self.weights = Weights(self.root)
        self.names = Names()
        self.inputs: dict[str, Any] = {}
        self.known: dict[str, Any] = {}
        self.tracer = Tracer()
        self.work = Work("import", None)
        self._scopes: dict[str, Scope] = {}

    # -- before the trace ----------------------------------------------------------------------
    def add_input(self, name: str, type: TensorType | list[TensorType]) -> str:
        """Declare an input, or a list of them; returns the name of its parameter."""
        own = self.names.of(name, "input")
        self.inputs[own] = type
        return own

    def add_known(self, name: str, value: np.ndarray[Any, Any] | None) -> str:
        """Declare an input that always has this value, and that a call may leave out; returns the name of its
        parameter."""
        own = self.names.of(name, "input")
        self.known[own] = value
        return own

    def trace(self, run: Callable[..., Any], loc: Location | None = None, parts: int | None = None) -> GraphModule:
        """The graph of ``run(*values)``, which gets a proxy for each input, followed by the known values of the
        others, in order. ``loc``: the location of nodes outside of any :meth:`step`. ``parts``: how many nodes the
        model has, for a bar of progress. Raises ModelImportError and what tracing raises."""

        def forward(*given: Any) -> Any:
            return run(*given)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(name, kind) for name in self.inputs]
        parameters += [inspect.Parameter(name, kind, default=None) for name in self.known]
        forward.__dict__["__signature__"] = inspect.Signature(parameters)
        self.root.__dict__["forward"] = forward
        self.tracer.origin = (None, loc or self.place(0, self.root.__class__.__name__, ""))
        try:
            with progress(f"import {self.root.__class__.__name__}", parts) as self.work:
                self.tracer.trace(self.root, dict(self.known), dict(self.inputs))
            made = self.tracer.module(type(self.root).__name__)
        finally:
            del self.root.__dict__["forward"]
        originals = self.names.renamed
        for node in made.graph.placeholders:
            if node.target in originals:
                node.meta = {"original_name": originals[node.target]}
        made.meta["imported_from"] = {"kind": self.kind, "source": self.source}
        return made

    # -- nodes of the model --------------------------------------------------------------------
    def place(self, line: int, function: str, text: str, file: str = "") -> Location:
        """A place in the model (the number and text of a node), or in the ``file`` of the user's program."""
        return Location(resolved=(file or self.source, line, function, text))

    def scope(self, path: str, class_: str = "") -> Scope | None:
        """The scope for the path of a module; ``class_`` is the name of its class if it is known."""
        if not path:
            return None
        if path not in self._scopes:
            self._scopes[path] = Scope(path, class_ or class_name(path))
        return self._scopes[path]

    @contextlib.contextmanager
    def step(self, what: str, scope: Scope | None, loc: Location | None, wanted: str = "") -> Iterator[None]:
        """A context manager: nodes recorded inside come from one node of the model. Errors become a ModelImportError
        that names ``what`` failed (op, node, version of the op), and what is ``wanted`` instead."""
        saved, self.tracer.origin = self.tracer.origin, (scope, loc)
        self.work.advance(what)
        try:
            yield
        except _MISFITS as error:
            if getattr(error, "node", ""):
                raise
            problem = (str(error) or type(error).__name__).removeprefix(f"{self.kind}: ")
            place = "" if loc is None else f"\n  at {loc}: {loc.expression}"
            place = "" if place in problem else place
            hint = f"\n  wanted: {wanted}" if wanted else ""
            made = (type(error) if isinstance(error, ModelImportError) else ModelImportError)(
                f"{self.kind} {what}: {problem}{place}{hint}"
            )
            made.__dict__.update(error.__dict__ if isinstance(error, ModelImportError) else {}, node=what)
            raise made from error
        finally:
            self.tracer.origin = saved

    def as_proxy(self, value: Any) -> Any:
        """An array, a size or an array of sizes as a traced value; a proxy unchanged."""
        if isinstance(value, NamedDim):
            return self.tracer.size(value)
        if isinstance(value, np.ndarray) and value.dtype == object:
            full, record = lookup("full"), self.tracer.record
            rows = [
                v if is_traced(v) else record(full, full.bind((), {"shape": (), "value": v, "dtype": "i64"}))
                for v in value.flat
            ]
            if not value.ndim:
                return rows[0]
            return np.stack(rows) if value.ndim == 1 else np.stack(rows).reshape(value.shape)
        if isinstance(value, (np.ndarray, np.generic)):
            return self.tracer.proxy(self.tracer.create_arg(value))
        return value

    def name_result(self, value: Any, name: str) -> None:
        """Give the node of a value the model's name for it, if the node is computed."""
        node = value.node if isinstance(value, Proxy) else None
        if isinstance(node, Node) and node.op == "call_function":
            graph: Graph = node.graph
            graph.rename_node(node, valid_name(name))
