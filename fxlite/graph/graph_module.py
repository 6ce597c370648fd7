"""GraphModule: a graph together with the weights that it reads; a Module that runs the graph's code.

In: a graph and a module that owns its attributes. Out: a module that can be called on arrays, whose
``code`` is regenerated from the graph by ``recompile()``.
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fxlite.base.checked import checked_methods
from fxlite.base.errors import ArgumentError, DTypeError, GraphError, ShapeError, expect
from fxlite.base.facade import above
from fxlite.base.state import active_tracer
from fxlite.graph import further_results, pytree
from fxlite.graph.graph import Graph, Node, PythonCode
from fxlite.graph.node_store import EditHooks
from fxlite.nn.module import Module, Parameter
from fxlite.types import guards
from fxlite.types.dtypes import require_plain
from fxlite.types.tensor_type import TensorType, bind_dims, type_of

if TYPE_CHECKING:
    from fxlite.show.summary import Summary

_GROUPS = ("_parameters", "_buffers", "_modules")
#: Names that a GraphModule uses itself, so that no weight or module can have them.
NOT_WEIGHTS = frozenset(
    (
        "graph name meta training forward _graph _code _forward _prepared _interface _known_form "
        "_passes _undone_passes _edit_hooks _non_persistent"
    ).split()
) | {*_GROUPS}


class Container(Module):
    """Holds the weights below a path of a GraphModule; ``container[0]`` is its child or weight named
    "0"."""

    def __getitem__(self, index: int | str) -> Any:
        return child_or_array(self, str(index))


def child_or_array(module: Module, name: str) -> Any:
    """A child, parameter or buffer, whatever its name. Raises KeyError if there is none."""
    if name in module._modules:
        return module._modules[name]
    if name in module._parameters or name in module._buffers:
        return module.__getattr__(name)
    raise KeyError(f"{type(module).__name__} has neither a child nor an array {name!r}")


class _Form(NamedTuple):
    """How a module is called: its signature, the defaults of its parameters, and whether a call passes one array for
    each input, in order, and returns exactly what the output node holds."""

    signature: inspect.Signature
    defaults: dict[str, Any]
    is_flat: bool


@checked_methods
class GraphModule(EditHooks, Module):
    """A module whose ``forward`` is the code of a graph. ``gm(x)`` runs the Python function that was
    generated from ``gm.graph``, and ``gm.code`` is its text."""

    def __init__(
        self, root: Module | Callable[..., Any] | dict[str, Any], graph: Graph, class_name: str = "GraphModule"
    ) -> None:
        """``root`` owns the weights that the graph reads: a module, or a dict from path to array or
        module. For a graph from :meth:`Tracer.trace` it is the traced module or function; constants
        that the trace found are taken from the graph's owner."""
        super().__init__()
        expect(graph, Graph, "the graph of a GraphModule")
        self.name = class_name
        self.meta: dict[str, Any] = {}
        if not isinstance(root, dict):
            owner = graph.owning_module
            program = root if isinstance(root, Module) else owner
            if program is None:
                raise ArgumentError("the graph has no owner; give a module, or a dict of weights")
            self.training = program.training
            root = {}
            for node in graph.nodes:
                if node.op == "get_attr" or node.op == "call_module":
                    root[node.target] = _find_attribute(program, owner, node.target)
            for _, path in graph.states:
                root[path] = np.array(_find_attribute(program, owner, path), subok=False)
        else:  # also the arrays that were passed to calls and that the graph keeps
            owner = graph.owning_module
            kept = owner._buffers if type(owner) is Module else {}  # the graph made this owner itself
            targets = [n.target for n in graph.nodes if n.op == "get_attr"] if kept else []
            root = {**root, **{t: kept[t] for t in targets if t in kept and t not in root}}
        for path, value in root.items():
            parent, name = self._parent(path)
            is_ours = parent is self or type(parent) is Container
            if is_ours or parent.get_attribute(name) is not value:  # not an array of a leaf module
                self._put(parent, name, value)
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
                self._check_name(module, part)
                self._note_entry(module, part)
                module._modules[part] = Container()
            module = module._modules[part]
        return module, name

    def _check_name(self, parent: Module, name: str) -> None:
        if name in NOT_WEIGHTS and parent is self:
            raise ArgumentError(
                f"an array or child of the traced module is called {name!r}, which a GraphModule "
                f"has for itself; call it {name}_, or put it into a child"
            )

    def _note_entry(self, parent: Module, name: str) -> None:
        """Record ``parent.name`` in the journal before it is replaced."""
        graph = self.__dict__.get("_graph")
        if graph is not None:
            entry = next(((g, vars(parent)[g][name]) for g in _GROUPS if name in vars(parent)[g]), None)
            graph._store.record((GraphModule._restore_entry, self, parent, name, entry))

    def _restore_entry(self, parent: Module, name: str, entry: tuple[str, Any] | None) -> None:
        """The inverse of replacing ``parent.name``."""
        self._note_entry(parent, name)
        for group in _GROUPS:
            if entry is None or entry[0] != group:
                vars(parent)[group].pop(name, None)
        if entry is not None:
            vars(parent)[entry[0]][name] = entry[1]

    def _note_groups(self, module: Module) -> None:
        """Record everything that ``module`` holds in the journal before some of it is deleted."""
        groups = tuple(dict(vars(module)[group]) for group in _GROUPS)
        self.graph._store.record((GraphModule._restore_groups, self, module, groups))

    def _restore_groups(self, module: Module, groups: tuple[dict[str, Any], ...]) -> None:
        self._note_groups(module)
        for name, group in zip(_GROUPS, groups, strict=True):
            vars(module)[name] = group

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a dotted path, and create the containers on the way."""
        self.set_attribute(target, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module at a dotted path. Returns False if there is none."""
        path, _, name = target.rpartition(".")
        try:
            parent = self.get_submodule(path)
        except AttributeError:
            return False
        self._note_entry(parent, name)
        return parent._modules.pop(name, None) is not None

    def set_attribute(self, target: str, value: Any) -> None:
        """Put a weight or module at a dotted path: a Parameter stays one, other arrays become buffers.
        If the shape or dtype of a weight changes, the nodes that depend on it get new types. Raises
        ShapeError or DTypeError, and changes nothing, if a node does not accept it."""
        self.set_attributes({target: value})

    def set_attributes(self, values: Mapping[str, Any]) -> None:
        """Put several weights or modules at their paths, and update types after the last one. So a layer
        and its neighbour can grow together, although neither would fit alone. Raises what
        :meth:`set_attribute` raises, and then changes nothing."""
        graph = self.__dict__.get("_graph")
        if graph is None:
            for target, value in values.items():
                self._put(*self._parent(target), value)
            return
        retyped = []
        with graph._store.all_or_nothing():
            for target, value in values.items():
                parent, name = self._parent(target)
                before = parent._parameters.get(name, parent._buffers.get(name))
                is_array = not isinstance(value, Module) and name not in parent._modules
                self._put(parent, name, value)
                if is_array and before is not None and type_of(before) != type_of(value):
                    retyped.append(target)
            if retyped:
                graph._retype_weights(retyped)

    def _put(self, parent: Module, name: str, value: Any) -> None:
        if name in NOT_WEIGHTS:
            self._check_name(parent, name)
        self._note_entry(parent, name)
        if isinstance(value, Module):
            parent._modules[name] = value
        elif isinstance(value, Parameter) and value.is_parameter:
            parent._enter(parent._parameters, name, value)
        else:
            parent.register_buffer(name, value)

    def delete_all_unused_submodules(self) -> None:
        """Delete weights and modules that no node reads. Leaf modules, which belong to the program, are
        deleted completely or left as they are."""
        used: set[str] = set()  # paths that nodes read, and of the modules that contain them
        read = [node.target for node in self.graph.nodes if node.op in ("get_attr", "call_module")]
        for path in (*read, *(path for _, path in self.graph.states)):
            while path and path not in used:
                used.add(path)
                path = path.rpartition(".")[0]
        for path, module in reversed(list(self._own_modules())):
            dot = f"{path}." if path else ""
            arrays = [
                (group, name)
                for group in (module._parameters, module._buffers)
                for name in group
                if dot + name not in used
            ]
            children = [name for name, child in module._modules.items() if self._is_unused(child, dot + name, used)]
            if arrays or children:
                self._note_groups(module)
            for group, name in arrays:
                del group[name]
            for name in children:
                del module._modules[name]

    def _own_modules(self) -> Iterator[tuple[str, Module]]:
        """(path, module) of this module and its containers, outer ones first. The inside of a leaf module
        is left out: it may be a GraphModule with containers of its own."""
        work: list[tuple[str, Module]] = [("", self)]
        while work:
            path, module = work.pop()
            yield path, module
            for name, child in module._modules.items():
                if type(child) is Container:
                    work.append((f"{path}.{name}" if path else name, child))

    @staticmethod
    def _is_unused(child: Module, path: str, used: set[str]) -> bool:
        if type(child) is Container:
            return not (child._parameters or child._buffers or child._modules)
        return path not in used

    # -- graph and code --------------------------------------------------------------------------
    @property
    def graph(self) -> Graph:
        """The graph. Edit it, then call the module or ``recompile()``."""
        return self.__dict__["_graph"]  # type: ignore[no-any-return]

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph
        graph.owning_module = self
        graph.journal.forget()  # the history starts with the graph as it is now
        graph._store.watch(self.__dict__.get("_edit_hooks", {}))
        self._prepare()

    @property
    def code(self) -> str:
        """The complete source of ``forward`` for the graph as it is now, in lines no wider than the
        terminal (or 100 columns)."""
        self._follow_edits()
        if self.__dict__["_code"] is None:
            self.__dict__["_code"] = above("code_text")(self.graph)
        return self.__dict__["_code"]  # type: ignore[no-any-return]

    def _prepare(self) -> None:
        """Discard the code; it is generated again when the module is called or ``code`` is read."""
        graph: Graph = self.__dict__["_graph"]
        self.__dict__["_prepared"] = graph.journal.version
        self.__dict__["_code"] = None
        self.__dict__["_forward"] = self._first_call
        interface, targets = graph.interface, [node.target for node in graph.placeholders]
        if len(targets) > len(set(targets)):
            name = next(t for t in targets if targets.count(t) > 1)
            raise GraphError(f"two inputs are called {name!r}; set node.target of one of them")
        if interface is not None and not interface.covers(targets):
            interface = None  # an edit added inputs: a call gives them one by one
        self.__dict__["_interface"] = interface
        self.__dict__["_known_form"] = None

    def _form(self) -> _Form:
        """How the module is called."""
        self._follow_edits()
        found: _Form | None = self.__dict__["_known_form"]
        if found is None:
            placeholders, interface = self.graph.placeholders, self.__dict__["_interface"]
            plain = pytree.one_by_one(tuple(n.target for n in placeholders)) if interface is None else interface
            defaults = {n.target: default_of(n) for n in placeholders if n._args}
            values = {b.name: b.value for b in plain.baked}
            values |= {name: defaults[s.name] for name, _, s in plain.parameters if s.name in defaults}
            is_flat = plain.is_flat and not defaults and not self.graph.taps
            found = self.__dict__["_known_form"] = _Form(
                plain.signature(defaults) if defaults else plain.plain_signature, values, is_flat
            )
        return found

    def _follow_edits(self) -> None:
        """Discard the code if the graph was edited since it was generated."""
        if self.__dict__["_prepared"] != self.graph.journal.version:
            self._prepare()

    @staticmethod
    def _first_call(module: GraphModule, *args: Any, **kwargs: Any) -> Any:
        module.recompile()
        return module.__dict__["_forward"](module, *args, **kwargs)

    def recompile(self) -> PythonCode:
        """Regenerate ``forward`` from the graph; returns its code. Calling an edited module does this,
        too."""
        self._prepare()
        self.__dict__["_forward"] = above("compile_forward")(self.graph, self.name)
        return PythonCode(self.graph)

    @property
    def forward(self) -> Callable[..., Any]:
        """The computation of the module, with the program's parameters as its signature. Tracing the
        module uses this signature."""
        signature, function = self._form().signature, self.__dict__["_forward"]

        def forward(*args: Any, **kwargs: Any) -> Any:
            values = self.flatten_inputs(self.bind(args, kwargs).arguments)
            return self.call_flat(values, lambda flat: function(self, *flat))

        forward.__signature__ = signature  # type: ignore[attr-defined]
        return forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._follow_edits()
        if active_tracer.get() is not None:
            return super().__call__(*args, **kwargs)
        values = self.flatten_inputs(self.bind(args, kwargs).arguments)
        interface = self.__dict__["_interface"]
        labels = {} if interface is None else interface.labels()
        placeholders = self.graph.placeholders
        check_inputs(self.name, placeholders, values, labels)
        function = self.__dict__["_forward"]
        if self._form().is_flat:
            return function(self, *[values[p.target] for p in placeholders])
        return self.call_flat(values, lambda flat: function(self, *flat))

    # -- nested inputs and results -----------------------------------------------------------------
    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        """Arguments by parameter name, with defaults filled in. Raises ArgumentError if they do not fit
        the signature."""
        signature = self._form().signature
        try:
            bound: inspect.BoundArguments = signature.bind(*args, **kwargs)
        except TypeError as error:
            found = self._bind_without_baked(args, kwargs)
            if found is None:
                raise ArgumentError(f"{self.name}{signature}: {error}") from None
            return found
        bound.apply_defaults()
        return bound

    def _bind_without_baked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments | None:
        """Bind arguments of which some with defaults are left out before others: by name, or without all
        parameters that are baked in. None if they do not fit that way either."""
        (whole, defaults, _), interface = self._form(), self.__dict__["_interface"]
        baked = {b.name for b in interface.baked} if interface else set()
        short = [p for name, p in whole.parameters.items() if name not in baked]
        for signature in (whole, inspect.Signature(short)):
            try:
                bound = signature.bind_partial(*args, **kwargs)
            except TypeError:
                continue
            bound.apply_defaults()
            given = {**defaults, **bound.arguments}
            if all(n in given for n in signature.parameters):
                ordered = {n: given[n] for n in whole.parameters}
                return inspect.BoundArguments(whole, OrderedDict(ordered))
        return None

    def flatten_inputs(self, arguments: Mapping[str, Any], partial: bool = False) -> dict[str, Any]:
        """A dict from placeholder target to value, made of arguments by parameter name and of the current
        values of the states. ``partial`` allows arguments to be missing, and leaves the states out.
        Raises ArgumentError, which names the path of the value that does not fit."""
        interface = self.__dict__["_interface"]
        if interface is None:
            return dict(arguments)
        try:
            values: dict[str, Any] = interface.flatten(arguments, partial)
        except ArgumentError as error:
            raise ArgumentError(f"{self.name}: {error}") from None
        if not partial:
            values.update((target, self.get_attribute(path)) for target, path in interface.states)
        return values

    @property
    def is_flat(self) -> bool:
        """True if a call passes one array for each input, in order, and returns exactly what the output
        node holds."""
        return self._form().is_flat

    def written_inputs(self) -> tuple[str, ...]:
        """Targets of the inputs that a call writes into."""
        self._follow_edits()
        interface = self.__dict__["_interface"]
        return () if interface is None else interface.writes

    @property
    def _is_impure(self) -> bool:
        """Whether a call changes anything besides its result."""
        return bool(self.states)

    @property
    def states(self) -> tuple[tuple[str, str], ...]:
        """(placeholder target, path) of each buffer that a call changes. In the graph it is an input
        that no caller gives, and its new value is an additional result."""
        self._follow_edits()
        interface = self.__dict__["_interface"]
        return () if interface is None else interface.states

    def put_state(self, path: str, value: Any) -> None:
        """Set a state to an array of its type that no other code writes into. The array that it was
        before is left unchanged, so that copies of the module keep theirs."""
        owner, _, name = path.rpartition(".")
        self.get_submodule(owner)._buffers[name] = value

    def run_flat(self, values: Mapping[str, Any]) -> Any:
        """Run on arrays by placeholder target, whatever the structure of the program's inputs. Returns
        what the output node holds, and writes into no input. Raises what a call raises."""
        self._follow_edits()
        placeholders = self.graph.placeholders
        check_inputs(self.name, placeholders, values)
        return self.__dict__["_forward"](self, *[values[p.target] for p in placeholders])

    def call_flat(self, values: Mapping[str, Any], run: Callable[[list[Any]], Any]) -> Any:
        """The program's result for arrays by placeholder target. ``run`` takes the arrays of all
        placeholders and returns what the output node holds; this method puts dataclasses and named tuples
        together again and writes into the inputs that the program writes into.

        Raises ArgumentError for arrays that cannot be written into, GraphError if an edit removed the
        values to be written, and what ``run`` raises."""
        self.check_writable(values)
        return self.finish_call(values, run([values[p.target] for p in self.graph.placeholders]))

    def check_writable(self, values: Mapping[str, Any]) -> None:
        """Raise ArgumentError for arrays that the program writes into although they are read-only or share
        memory with others, and for arrays whose memory layout differs from the one that the trace
        assumed."""
        states = dict(self.states)
        writes = [target for target in self.written_inputs() if target not in states]
        if writes:
            further_results.check_writable(self.name, writes, values, self.__dict__["_interface"].labels())
        if (interface := self.__dict__["_interface"]) is not None and interface.orders:
            further_results.check_orders(self.name, interface.orders, values, interface.labels())

    def finish_call(self, values: Mapping[str, Any], result: Any) -> Any:
        """The part of :meth:`call_flat` that follows ``run``, whose ``result`` it takes."""
        writes = self.written_inputs()
        result, told = self.take_taps(result)
        if writes:
            result = further_results.write_back(self.name, writes, values, result, dict(self.states), self.put_state)
        result = self.rebuild_result(result)
        for tap, value in told:
            tap.tell(value)
        return result

    def take_taps(self, result: Any) -> tuple[Any, list[tuple[further_results.Tap, Any]]]:
        """Split what the output node holds into the part before the tapped values, and (tap, value) pairs."""
        return further_results.take_taps(self.name, self.graph.taps, bool(self.written_inputs()), result)

    def rebuild_result(self, result: Any) -> Any:
        """The program's result, with its dataclasses and named tuples, from the plain tuples and dicts of
        the output node."""
        interface = self.graph.interface
        if interface is None or interface.result is None:
            return result
        form, _ = self.take_taps(self.graph.output_node().args[0])
        if not pytree.fits(interface.result, form[0] if interface.writes else form):
            return result  # an edit changed its structure
        return pytree.rebuild(interface.result, result)

    @property
    def __signature__(self) -> inspect.Signature:
        return self._form().signature

    # -- history ---------------------------------------------------------------------------------
    def undo(self) -> str:
        """Revert the last pass, ``replace_pattern`` or transaction, or the edits made since, including
        changes of weights; returns its name. Raises GraphError if there is nothing to undo."""
        name = self.graph.undo()
        if passes_of(self)[-1:] == (name,):
            set_passes(self, passes_of(self)[:-1])
            self.__dict__.setdefault("_undone_passes", []).append(name)
        return name

    def redo(self) -> str:
        """Repeat what the last :meth:`undo` reverted; returns its name. Raises GraphError if there is
        nothing to redo."""
        name = self.graph.redo()
        if self.__dict__.get("_undone_passes", ())[-1:] == [name]:
            set_passes(self, [*passes_of(self), self.__dict__["_undone_passes"].pop()])
        return name

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
        for path, module in self._own_modules():
            if module._non_persistent:
                made.get_submodule(path)._non_persistent.update(module._non_persistent)
        made.training = self.training
        made.__dict__["_passes"] = passes_of(self)
        made.meta = dict(self.meta)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = self.copy()
        memo[id(self)] = made
        for _, module in list(made._own_modules()):
            for group in (module._parameters, module._buffers):
                group.update({name: copy.deepcopy(value, memo) for name, value in group.items()})
            for name, child in module._modules.items():
                if type(child) is not Container:  # a leaf module
                    module._modules[name] = copy.deepcopy(child, memo)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (above("from_bytes"), (above("to_bytes")(self),))

    # -- named dims ------------------------------------------------------------------------------
    def specialize(self, sizes: Mapping[str, Any] | None = None, /, **named: Any) -> GraphModule:
        """``gm.specialize(T=128)``: a new module for fixed sizes, over the same weights. A size is an
        int, or an expression in other named dims, ``T="2*S"``, which then has to satisfy the facts about
        T.

        Raises ArgumentError for names that no input has, and for sizes that violate a guard or the facts
        about a dim."""
        return above("specialize")(self, {**(sizes or {}), **named})  # type: ignore[no-any-return]

    # -- text ------------------------------------------------------------------------------------
    def print_readable(self, print_output: bool = True) -> str:
        """Print and return the module as a readable class, with the colours and links of
        :meth:`Graph.print`."""
        if print_output:
            above("print_readable")(self)
        return above("readable")(self)  # type: ignore[no-any-return]

    def summary(self, depth: int | None = None) -> Summary:
        """A tree of the modules with their results, parameters and FLOPs: ``print(gm.summary())``.

        Consecutive equal blocks share a row; ``depth`` limits the levels of modules."""
        return above("summarize")(self, depth)  # type: ignore[no-any-return]

    def source(self, name: str | None = None, dialect: str = "fxlite") -> str:
        """Python source as a person would write it: with the program's module classes, one class for
        equal blocks, and the program's names and comments if its text is available.

        ``name``: the name of the main class. ``dialect``: "fxlite", with layers of ``fxlite.nn``;
        "numpy", which needs only NumPy; or "torch", an ``nn.Module`` of PyTorch that takes the same
        state_dict. Raises CodegenError for leaf modules and for ops that the dialect cannot express."""
        return above("python_source")(self, name, dialect)  # type: ignore[no-any-return]

    def to_folder(self, folder: str, module_name: str | None = None, dialect: str = "fxlite") -> None:
        """Write :meth:`source` as ``NAME.py``, the weights as ``NAME.safetensors`` (``NAME.npz`` in the
        dialect "numpy"), and ``manifest.json`` with the passes, options, required packages, digests and
        licenses. Several models may share a folder."""
        above("save_python")(self, folder, module_name or self.name, dialect=dialect)

    def __repr__(self) -> str:
        return f"{self.name}()\n\n{self.graph}"

    def _repr_html_(self) -> str:
        """The picture of the graph, which notebooks show."""
        return self.graph._repr_html_()


def default_of(node: Node) -> Any:
    """The default of an input, as an array of its type: what a call uses that leaves the input out."""
    (default,) = node._args
    declared = node.type
    if not isinstance(declared, TensorType) or default is None:
        return default
    return np.asarray(default, declared.dtype.numpy)


def passes_of(module: GraphModule) -> tuple[str, ...]:
    """Names of the passes that a module went through, in order."""
    found: tuple[str, ...] = module.__dict__.get("_passes", ())
    return found


def set_passes(module: GraphModule, names: Iterable[str]) -> None:
    """Record which passes a module went through."""
    module.__dict__["_passes"] = tuple(names)


def _find_attribute(program: Module, owner: Module | None, path: str) -> Any:
    try:
        return program.get_attribute(path)
    except AttributeError:
        if owner is None or owner is program:
            raise
        return owner.get_attribute(path)


def check_inputs(
    name: str, placeholders: Iterable[Node], values: Mapping[str, Any], labels: Mapping[str, str] = MappingProxyType({})
) -> dict[str, int]:
    """Check arrays against the declared types, and the named dims against the graph's guards, before
    anything runs; returns the values of the named dims. ``labels`` maps placeholder targets to the
    caller's names for the inputs where these differ.

    Raises DTypeError (wrong dtype, not an array) or ShapeError (rank, sizes, guards), which name the
    input or the line of the program that requires the condition."""
    pairs: list[tuple[str, TensorType, tuple[int, ...]]] = []
    graph: Graph | None = None
    for node in placeholders:
        graph = node.graph
        declared, value = node.type, values[node.target]
        if not isinstance(declared, TensorType):
            continue
        label = labels.get(node.target, node.target)
        if not isinstance(value, (np.ndarray, np.generic)):
            raise DTypeError(f"{name}: {label} must be an array {declared}, not {type(value).__name__}")
        require_plain(value, f"{name}: {label}")
        if value.dtype != declared.dtype.numpy:
            raise DTypeError(
                f"{name}: {label} must be {declared}, got "
                f"{value.dtype}{list(value.shape)}; use "
                f"{label}.astype({declared.dtype.long_name!r})"
            )
        pairs.append((f"{name}: {label}", declared, value.shape))
    try:
        sizes = bind_dims(pairs)
    except ShapeError as error:
        if graph is None or not graph.specialized:
            raise
        said = ", ".join(f"{n} was specialized to {v}" for n, v in graph.specialized.items())
        raise ShapeError(f"{error} ({said})") from None
    if graph is not None and graph.guards:
        guards.check(graph.guards, sizes, name)
    return sizes
