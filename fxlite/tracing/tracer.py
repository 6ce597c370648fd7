"""The tracer: runs a program on proxies and records its ops as a graph.

In: a module or a function over NumPy arrays, and (optionally) input types. Out: a
:class:`~fxlite.graph.graph_module.GraphModule` that shares the program's weights.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite import nn
from fxlite.base.errors import (
    ArgumentError,
    Details,
    DTypeError,
    FxliteError,
    GraphError,
    OutOfRoom,
    ShapeError,
    TraceAttributeError,
    TraceError,
    TruthError,
    expect,
)
from fxlite.base.location import Location, Scope, definition_of, here, with_place
from fxlite.base.state import UNKNOWN_TEXT, active_tracer, is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import NO_KWARGS, stored_kwargs
from fxlite.nn.module import Module, made_with
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import Op, lookup
from fxlite.ops.wrapping import Autowrap, activate_wrapped_names
from fxlite.tracing.calls import Places
from fxlite.tracing.capture.answers import holds_computed
from fxlite.tracing.capture.capture import is_captured, why_plain
from fxlite.tracing.capture.control import fori_loop
from fxlite.tracing.capture.flow import Capturing
from fxlite.tracing.capture.known import TooMuchKnown, fold_known, require_one_truth
from fxlite.tracing.capture.lists import closed
from fxlite.tracing.capture.places import OrNone, with_or_none
from fxlite.tracing.capture.raised import (
    Raised,
    check_integer,
    checked,
    hide_values,
    is_raised_by,
    require_there,
    too_large,
    unless,
)
from fxlite.tracing.capture.rounds import Rounds
from fxlite.tracing.inputs import (
    PLAIN,
    Inputs,
    declared_dims,
    make_inputs,
    number_as_array,
    operand_nodes,
    title,
    with_lists_as_arrays,
    with_sizes_as_tensors,
)
from fxlite.tracing.nonempty import guards_of_call
from fxlite.tracing.numpy_api import call_ufunc
from fxlite.tracing.proxy import Proxy, PythonNumber, settled_numbers
from fxlite.tracing.results import Finish, finish_of, is_constant
from fxlite.tracing.selections.applied import applied
from fxlite.tracing.selections.bounds import FIRST_ROOM
from fxlite.tracing.selections.compact import with_results
from fxlite.tracing.selections.growing import holds_rows
from fxlite.tracing.selections.masked import Masked, PlaceFirst, is_block
from fxlite.tracing.torch_names import refuse_torch_module
from fxlite.tracing.traced_program import (
    OwnArray,
    TracedModule,
    adopt,
    has_attribute,
    is_leaf,
    leaf_paths,
    own_arrays,
    running_check,
)
from fxlite.tracing.writes.lent import Refills
from fxlite.tracing.writes.shared_memory import Writes, may_be_same, note_leaf_call, note_parts, note_view
from fxlite.tracing.writes.states import States, into_inputs
from fxlite.types import dtypes
from fxlite.types.dtypes import NUMBERS, is_same_array, plain_array
from fxlite.types.guards import OPPOSITE, Guard
from fxlite.types.shapes import Dim, NamedDim
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.tracing.capture.bodies import Body

#: The program that is traced.
Program = Module | Callable[..., Any]
#: The classes of errors that are also those of Python or NumPy.
_KINDS: dict[Any, type[TraceError]] = {AttributeError: TraceAttributeError, ValueError: TruthError}
#: The operators for relations of sizes.
COMPARED = {symbol: getattr(operator, name) for name, (symbol, *_) in COMPARISONS.items()}


class Tracer(Capturing):
    """Records a program as a graph. A subclass can decide which modules are leaves, or change how nodes are
    made. Pass an instance to ``symbolic_trace(..., tracer=MyTracer())`` or, as in torch.fx::

        graph = MyTracer().trace(model)
        gm = fx.GraphModule(model, graph)
    """

    #: As in torch.fx: each parameter and buffer is a get_attr node, and each node has a location.
    proxy_buffer_attributes = record_stack_traces = True
    #: Whether the traced function is a pattern, whose parameters stand for operands and attributes.
    is_pattern = False
    #: Whether inputs may be written into: not for functions that are not programs, such as patterns.
    writes_inputs = True

    def __init__(
        self,
        autowrap_modules: Iterable[Any] = (),
        autowrap_functions: Iterable[Any] = (),
        param_shapes_constant: bool = True,
        *,
        leaf: Iterable[Any] = (),
        loops: str = "auto",
    ) -> None:
        """``leaf``: modules, classes, paths or globs that stay one node, or a package whose modules all do,
        except containers (``fxlite.nn``, as in torch.fx). ``autowrap_functions`` and the functions of
        ``autowrap_modules`` stay one node, like those of :func:`fxlite.wrap`, if the traced program's module
        calls them by name. ``param_shapes_constant``: shapes of parameters are always numbers. ``loops``: see
        :func:`fxlite.symbolic_trace`."""
        super().__init__(loops)
        kinds = (str, list, tuple, set, frozenset, type, Module, ModuleType, Iterator)
        expect(leaf, kinds, "leaf=", "give modules, classes, paths or globs")
        is_one = isinstance(leaf, (str, type, Module, ModuleType))
        self.leaves = (leaf,) if is_one else tuple(leaf)
        self.autowrap = Autowrap(autowrap_modules, autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        #: (module, attribute, value before) for the number attributes that the program has assigned to.
        self.own_numbers: list[tuple[Module, str, bool | int | float | complex]] = []
        #: Whether the caller of the graph checks for exceptions (:mod:`fxlite.tracing.capture.raised`), and makes the
        #: program's results from those of the graph (:mod:`fxlite.tracing.results`).
        self.is_finished = False
        #: Whether inputs of rank 0 are NumPy's numbers, which are immutable, if that is known.
        self.input_numbers: dict[str, bool] = {}
        #: Places where elements were selected into parts of which a loop or branch writes (:class:`PlaceFirst`).
        self.placed: set[str] = set()
        #: Whether a result of nested branches is tied to the arrays that it may be, by a number that each of them has
        #: as a further result. It is only done if the trace fails without it, and some were ``left_untied``.
        self.ties_all = self.left_untied = False
        self.knows_few = False  # of values that depend on no input, only small arrays count as known
        #: The number of elements for which lists that a loop fills have room.
        self.room = FIRST_ROOM
        self._runs_program = False  # True for a program, False for an expansion or an edit of a graph
        self._definition: Location | None = None  # the place where the program's inputs are declared
        self._leaf_paths: frozenset[str] = frozenset()
        self.graph = Graph()
        #: (scope, location) for new nodes; None: those of the running program.
        self.origin: tuple[Scope | None, Location | None] | None = None
        self._forget(Module())
        own = type(self)
        self._is_plain = (
            own.create_node is Tracer.create_node
            and own.create_proxy is Tracer.create_proxy
            and own.create_arg is Tracer.create_arg
            and own.proxy is Tracer.proxy
        )
        self.decides_bools = own.to_bool is not Tracer.to_bool

    def _forget(self, root: Module) -> None:
        """Reset the tracer for a trace of ``root``."""
        self.root = self._adopted = root
        self._paths: dict[int, str] = {}
        self._scopes: list[Scope] = []
        self._places = Places(Tracer._run.__code__ if self._runs_program else None)
        self._attributes: dict[int, tuple[Node, Any]] = {}
        self._inputs: list[tuple[str, Proxy]] = []
        self._options: list[str] = []  # inputs with defaults, which may have to be baked in
        #: The arrays of the program's modules, looked up when the first array is met, and those that are read.
        self._own_arrays: dict[int, OwnArray] | None = None
        self._numbers: dict[str, int] = {}  # for each name of adopted values, the first number that may be free
        self._used_arrays: list[tuple[OwnArray, Node]] = []
        #: Whether the program has made arrays of its own; and for these, and results computed only from them, the
        #: values that were asked for, and those of constants.
        self.makes_arrays = False
        self.known: dict[Node, Any] = {}
        self.known_bytes = 0
        self.own_constants: dict[Node, Any] = {}
        #: The bounds of the loops of loop variables; and the values that inputs of bodies stand for.
        self.ranges: dict[Node, tuple[Any, Any]] = {}
        self.outside: dict[Node, Node] = {}
        self.aside: set[Node] = set()  # nodes that tell which elements are selected; often not read
        self.growing: frozenset[int] = frozenset()  # the ids of lists that have just got their room
        self.magnitudes: dict[Node, float] = {}  # bounds of the magnitudes of integers
        self.numbers: dict[Any, Node] = {}  # numbers, by the computation that gives them
        self.writes, self.states, self._libraries = Writes(), States(), 0
        #: The parts of nested arguments that the program has replaced by other values.
        self.rebound: list[str] = []
        self.finish: Finish | None = None
        self.refills: Refills | None = None
        self.raised = Raised()
        #: Lists and dicts of which one may stand for another, by id.
        self.one_of_several: dict[int, Any] = {}
        #: Values that may be None, by id: with whether they are there, and whether they are parts of such a value
        #: (:class:`OrNone`); the nodes that say whether values are there, those of which it is assumed, with what was
        #: known of them before; and the first parts of conditions that ``and`` and ``or`` have made.
        self.or_none: dict[int, tuple[Any, Any, bool]] = {}
        self.flags: set[Node] = set()
        self.assumed: dict[Node, Any] = {}
        self.decided_by: dict[Node, tuple[str, Node]] = {}
        #: Named sizes that the program has put into texts.
        self.sizes_in_texts: list[NamedDim] = []
        #: Random generators that the program makes from a seed, each with the body in which it is made.
        self.generators: list[tuple[Any, list[Body]]] = []
        #: The bodies of loops and conditions that are being traced, outer ones first.
        self.bodies: list[Body] = []
        self.begin_capture()

    # -- to override ---------------------------------------------------------------------------
    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True if a call of the module stays a single ``call_module`` node."""
        return module_qualified_name in self._leaf_paths or any(is_leaf(leaf, m) for leaf in self.leaves)

    def to_bool(self, obj: Proxy) -> bool:
        """Called for ``if x``: raises TraceError unless a subclass decides."""
        require_one_truth(obj)
        self.needs_flow = self.was_asked = True
        reason = why_plain(sys._getframe(1)) if self.captures_flow else ""
        raise self.error(
            f"if, while, and, or need the value of {obj.node.name}, which does not exist while "
            f"tracing{reason and f', and {reason}, so that its control flow cannot be captured'}",
            "use np.where(condition, a, b), or decide before tracing",
            obj.node,
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Called for ``for v in x``: iterates over the first axis. Raises TraceError if its length is unknown,
        unless a subclass decides."""
        proxy = obj
        length = proxy.node.type.shape[:1] if isinstance(proxy.node.type, TensorType) else None
        if length is not None and all(type(size) is int for size in length):
            return (proxy[i] for i in range(len(proxy)))
        self.needs_flow = True
        raise self.error(
            f"iterating over {proxy.node.name} needs its length"
            + (f", which is the named dim {length[0]}" if length else ""),
            "use operations on whole arrays (sums and scans along an axis), or trace with "
            + ("a number in place of the name" if length else "input types"),
            proxy.node,
        )

    def keys(self, obj: Proxy) -> Any:
        """Called for ``**x``: raises TraceError unless a subclass decides."""
        raise self.error(
            f"{obj.node.name} is used as a dict, and its keys are unknown",
            'declare the structure of the input: batch={"ids": "i64[B,T]"}',
            obj.node,
        )

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Insert a node with scope and location. ``create_proxy`` calls this method for every node."""
        origin = self._place() if kind != "placeholder" or self.origin else (None, self._definition)
        self.graph.current_origin = origin
        try:
            return self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        except FxliteError as error:
            raise with_place(error, origin[1]) from None
        finally:
            self.graph.current_origin = None

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Make a node and its proxy (with ``proxy_factory_fn``, or ``self.proxy``). Arguments may contain
        proxies."""
        convert = self._leaf_arg if kind == "call_module" else self.create_arg
        node_args = tuple(map(convert, args))
        if kwargs and kind != "call_function":  # attributes of ops contain no proxies
            kwargs = {k: convert(v) for k, v in kwargs.items()}
        node = self.create_node(kind, target, node_args, kwargs, name, type_expr)
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a: Any) -> Any:
        """A value of the program as an argument of a node: proxies become nodes, and arrays become constants.
        An object with a method ``__fx_create_arg__(tracer)`` is replaced by its result."""
        value = np.asarray(a) if type(a) is range else a
        if is_traced(value):
            if value.tracer is not self:
                raise self.error(f"{value.node.name} comes from another trace", "trace the whole program at once")
            return self.local(value.node)
        if isinstance(value, Node):
            return self.local(value)
        if type(value) in PLAIN:
            return value
        if isinstance(value, (np.ndarray, np.generic)):
            try:
                kept = plain_array(value, "a constant of the program")
                return self.local(self._constant(value, kept))
            except DTypeError as error:
                raise with_place(error, self._place()[1]) from None
        if isinstance(value, NamedDim):
            return self.size_as_tensor(value, dtypes.int64)
        if isinstance(value, (tuple, list)):
            mapped = [self.create_arg(v) for v in value]
            if isinstance(value, tuple):
                return pytree.rebuilt(value, mapped) if hasattr(value, "_fields") else tuple(mapped)
            return mapped
        if isinstance(value, dict):
            return {k: self.create_arg(v) for k, v in value.items()}
        if isinstance(value, dtypes.NUMBERS):
            return dtypes.plain_number(value)
        if hasattr(value, "__fx_create_arg__"):
            return value.__fx_create_arg__(self)
        raise self.error(f"a {type(value).__name__} cannot be used as a tensor", "use arrays and numbers")

    def local(self, node: Node) -> Node:
        """A value as the body that is being traced reads it; see :class:`Body` for details."""
        if self.bodies:
            return self.bodies[-1].lift(node)
        if node.graph.is_body and node.graph is not self.graph:
            raise self.value_of_body(node)
        return node

    def is_own_generator(self, generator: Any) -> bool:
        """Whether the running body made a generator from a seed: it draws the same numbers in every call of
        the program, which are constants."""
        return any(made is generator and body == self.bodies[-1:] for made, body in self.generators)

    def value_of_body(self, node: Node) -> TraceError:
        """The error for a value that the program reads after the end of the body that computed it."""
        return self.error(
            f"{node.name} was computed inside a loop or condition that has ended",
            "return it from there: carry it, or make it a result of both branches",
            node,
        )

    @contextlib.contextmanager
    def recording_into(self, graph: Graph) -> Iterator[None]:
        """A context manager: inside, nodes are recorded into a graph around the body that is being traced."""
        before, bodies = self.graph, self.bodies
        self.bodies = list(itertools.takewhile(lambda body: body.outer is not graph, bodies))
        self.graph = graph
        try:
            yield
        finally:
            self.graph, self.bodies = before, bodies

    def path_of_module(self, mod: Module) -> str | None:
        """The path of a module in the traced root; None for a module that the program itself made."""
        return self._paths.get(id(mod))

    def get_fresh_qualname(self, prefix: str) -> str:
        """``prefix`` followed by the first number that makes it a new attribute of the root."""
        for number in itertools.count():
            name = f"{prefix}{number}"
            if not any(has_attribute(owner, name) for owner in (self.root, self._adopted)):
                return name
        raise AssertionError

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called when the program calls a module: records a leaf, or traces into the module with its scope.
        The calls in a GraphModule are recorded with the scopes and locations that they have there."""
        module = m
        path = self.path_of_module(module)
        if path != "" and self.is_leaf_module(module, path or ""):
            return self._call_leaf(module, args, kwargs)
        caller = self._scopes[-1] if self._scopes else None
        own = path if path is not None else caller.path if caller is not None else ""
        place = self._places.here(2, caller) if caller is not None else None
        name = type(module).__name__
        self._scopes.append(Scope(own, name, place, caller, made_with(module)))
        try:
            if isinstance(module, GraphModule):
                from fxlite.tracing.retrace import call_graph_module

                return call_graph_module(self, module, args, kwargs)
            return self.captured(forward)(*args, **kwargs)
        finally:
            self._scopes.pop()

    def _call_leaf(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy | tuple[Proxy, ...]:
        path = self.path_of_leaf(module)
        if self.bodies:
            raise self.error(
                f"the leaf module {path} is called inside of {self.bodies[-1].what}, which holds ops only",
                "trace it with no leaves, or call it outside",
            )
        node_args = tuple(self._leaf_arg(a) for a in args)
        node_kwargs = {k: self._leaf_arg(v) for k, v in kwargs.items()}
        leaf_type = leaf_result_type(module, node_args, node_kwargs)
        note_leaf_call(self, f"the leaf module {path}", (args, kwargs))
        proxy = self.create_proxy("call_module", path, node_args, node_kwargs, None, leaf_type)
        return tuple(self._parts(proxy)) if isinstance(leaf_type, tuple) else proxy

    def _leaf_arg(self, value: Any) -> Any:
        return value if isinstance(value, str) else self.create_arg(value)

    def _parts(self, proxy: Proxy) -> list[Proxy]:
        """The results of a call with several results."""
        getitem = lookup("getitem")
        return [
            self.create_proxy("call_function", getitem, (proxy.node,), {"index": i})
            for i in range(len(proxy.node.type))
        ]

    def path_of_leaf(self, module: Module) -> str:
        """The path of a module in the graph; the graph adopts a module that the program made."""
        path = self.path_of_module(module)
        if path is None:
            wish = type(module).__name__.lower()
            path = self._paths[id(module)] = self._adopt(module, wish)
        return path

    @property
    def scope(self) -> Scope | None:
        """The module whose forward is running."""
        return self._scopes[-1] if self._scopes else None

    # -- recording -----------------------------------------------------------------------------
    def record(self, op: Op, bound: dict[str, Any]) -> Any:
        """Record a call of an op. Ops and proxies call this method."""
        if self.or_none:
            require_there(self, op.tensors(bound))
        plain, is_number = operand_nodes(self, op, bound) if self._is_plain else None, False
        if plain is not None:
            called, plain = op.canonicalize(plain)
            args, kwargs = called.split_arguments(plain)
            node = self._insert("call_function", called, args, stored_kwargs(kwargs), called.node_name)
            proxy = Proxy(node, self)
        elif any(type(v) is Masked for v in op.tensors(bound)):
            return applied(self, op, bound)
        else:
            bound = with_sizes_as_tensors(self, op, with_lists_as_arrays(self, op, bound))
            bound, is_number = settled_numbers(op, bound)
            args, kwargs = op.split_arguments(op.map_tensors(self.create_arg, bound))
            proxy = self.create_proxy("call_function", op, args, kwargs, op.node_name)
            node = proxy.node
        if isinstance(node.type, tuple):
            parts = self._parts(proxy)
            if op.guards == "parts":
                self._require_elements(op, bound)
            if op.shares_memory:
                note_parts(parts, **bound)
            return parts
        if op.guards == "parts" or (op.needs_elements and self._runs_program):
            self._require_elements(op, bound, node.type)
        elif node.target.guards == "shape":
            self.require_sizes(node)
        if is_number:
            return PythonNumber(node, self)
        if op.shares_memory:
            note_view(proxy, op, bound)
        elif op.kind == "opaque":
            note_leaf_call(self, f"the function {op.name}", bound)
        return proxy

    def _require_elements(self, op: Op, bound: Mapping[str, Any], result: TensorType | None = None) -> None:
        """Add the guards of a call that needs axes that are not empty: a slice, or a reduction without an
        identity."""
        types = op.map_tensors(_type_of_operand, bound)
        if result is not None and all(map(_has_elements, (result, *op.tensors(types)))):
            return
        place = self._place()[1]
        try:
            found = guards_of_call(op, types, place, self.graph.guards)
        except FxliteError as error:
            raise with_place(error, place) from None
        if found:
            self.graph.guards = (*self.graph.guards, *found)

    def _insert(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: str | None, type: TensorType | None = None
    ) -> Node:
        """Like ``create_node``, for arguments in stored form."""
        origin = self._place() if kind != "placeholder" or self.origin else (None, self._definition)
        try:
            return self.graph._append(kind, target, args, kwargs, name, type, origin)
        except FxliteError as error:
            raise with_place(error, origin[1]) from None

    def may_be_numbers(self, *values: Any) -> None:
        """Called with operands that, as numbers, would be attributes of another op; a parameter of a pattern
        may stand for them."""

    def trace_library(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run a Python function of NumPy on traced values; an error in it means that it cannot be traced."""
        self._libraries += 1
        try:
            return function(*args, **kwargs)
        finally:
            self._libraries -= 1

    def size(self, value: NamedDim) -> Proxy:
        """A named size as the i64 number that it is at run time."""
        return self.proxy(self.size_as_tensor(value, dtypes.int64))

    def ufunc_of_sizes(self, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record a call of a ufunc with named sizes among its inputs, as the numbers that they are at run
        time."""
        traced = tuple(self.size(v) if isinstance(v, NamedDim) else v for v in inputs)
        return call_ufunc(self, ufunc, method, traced, kwargs)

    def python_number(self, value: Proxy) -> PythonNumber:
        """A traced number as a Python number."""
        return PythonNumber(value.node, self)

    def loop(self, first: Any, last: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
        """``for i in range(first, last): value = body(i, value)``, starting with ``start``."""
        return fori_loop(first, last, body, start)

    def unless(self, value: Any, pred: Any, error: Exception) -> Any:
        """``value``, but the program fails with ``error`` if ``pred`` holds."""
        return unless(self, value, pred, error)

    def within_room(self, count: Any, what: str, room: int = 0) -> Any:
        """The size of an array, but the program fails with OutOfRoom if there is no ``room`` for it (default: that of
        lines); fxlite.jit then compiles it with more room."""
        room = room or self.room
        count = self.unless(count, count > room, OutOfRoom(what, room, here(2), is_array=True))
        self.ranges[count.node] = 0, room + 1
        return count

    def unless_negative(self, value: Any, x: Any) -> Any:
        """``value``, but the program fails with OverflowError if the Python integer ``x`` is negative, because the
        result would then need more than 64 bits."""
        return unless(self, value, x < 0, too_large())

    def check_integer(self, op: Op, x: Any, y: Any, result: Any) -> None:
        """Let the program raise OverflowError if a Python integer, the result of ``op``, needs more than 64 bits."""
        check_integer(self, op, x, y, result)

    def number_of_size(self, value: NamedDim) -> PythonNumber:
        """A named size as the Python number that it is at run time."""
        return self.python_number(self.size(value))

    def size_needed(self, problem: str, instead: str) -> Any:
        """Called where Python needs a named size as a number: raises TraceError, unless a subclass supplies
        one."""
        self.needs_flow = True
        raise self.error(problem, instead)

    def check_of_sizes(self, left: Dim, relation: str, right: Dim, is_truth: bool = False) -> bool | None:
        """Called for a comparison of named sizes that depends on their values (``is_truth``: ``if B % 2``). If it
        is a check in the program, it becomes a guard of the graph, and the program continues as if it had
        passed; otherwise returns None. Where NumPy's own code asks whether there are any elements
        (``if X.shape[0] == 0``, ``if n - ddof <= 0``), the graph requires sizes for which there are."""
        if self._libraries and right == 0 and not is_truth:
            self.require(left, ">", 0)
            return relation in ("!=", ">", ">=")
        found = running_check(is_truth)
        if found is None:
            return None
        wanted, place = found
        guard = Guard(left, relation if wanted else OPPOSITE[relation], right, place)
        self.graph.guards = (*self.graph.guards, guard)
        return wanted

    def compared_sizes(self, left: Dim, relation: str, right: Dim) -> Any:
        """A comparison of named sizes as the condition of a node; None if control flow is not captured."""
        if not self.captures_flow or self.decides_bools or self.asserting:
            return None
        if not is_captured(sys._getframe(1)):
            return None
        one, other = (self.size(NamedDim(d)) if type(d) is not int else d for d in (left, right))
        return COMPARED[relation](one, other)

    def require(self, left: Dim, relation: str, right: Dim) -> None:
        """Add a guard on the sizes of a call, which the running line of the program requires."""
        guard = Guard(left, relation, right, self._place()[1])
        self.graph.guards = (*self.graph.guards, guard)

    def size_as_tensor(self, value: Any, dtype: dtypes.DType) -> Node:
        kind = dtypes.float64 if dtype.is_complex else dtype
        full, attributes = lookup("full"), {"shape": (), "value": value.expr, "dtype": kind}
        node = self.create_proxy("call_function", full, (), attributes).node
        self.require_sizes(node)
        return node if kind is dtype else lookup("cast")(self.proxy(node), dtype).node

    def require_sizes(self, node: Node) -> None:
        """Add guards for what a node's call assumes about sizes."""
        self._require_elements(node.target, node.arguments)

    def place(self) -> Location | None:
        """The location of the program's running line."""
        return self._place()[1]

    def _place(self) -> tuple[Scope | None, Location | None]:
        """The scope and location of the program's running line."""
        scope = self._scopes[-1] if self._scopes else None
        return self.origin or (scope, self._places.here(3, scope))

    # -- weights and constants -------------------------------------------------------------------
    def attribute(self, module: Module, name: str, value: np.ndarray[Any, Any], wish: str | None = None) -> Any:
        """Called when a parameter or buffer is read: a get_attr node, one for each array, named ``wish``; or,
        for a buffer that the program has changed, its current value."""
        assigned = self.states.value(module, name)
        if assigned is not None:
            return assigned
        known = self._attributes.get(id(value))
        if known is None:
            path = self.path_of_module(module)
            if path is None:
                target = self._adopt(value, name)
            else:
                target = f"{path}.{name}" if path else name
            known = self._attributes[id(value)] = (self._get_attr(target, value, wish), value)
        if self.keeps_states and name in module._buffers:
            return self.states.read(self, module, name, value, known[0].target, known[0])
        return self.proxy(known[0])

    @property
    def runs_program(self) -> bool:
        """Whether a whole program is traced, whose values are not used before its end."""
        return self._runs_program

    @property
    def keeps_states(self) -> bool:
        """Whether buffers that are written become inputs and results of the graph."""
        return self._runs_program and self.writes_inputs

    def assign_buffer(self, module: Module, name: str, value: Any) -> None:
        """Called when the program assigns to a buffer. Raises TraceError for a value of another type."""
        if not self.keeps_states:
            raise self.error(f"self.{name}, a buffer, is assigned to", "return the new value")
        self.states.assign(self, module, name, value)

    def assign_number(self, module: Module, name: str) -> None:
        """Called when the program assigns a number to a plain attribute."""
        before = vars(module).get(name)
        is_known = any(m is module and n == name for m, n, _ in self.own_numbers)
        if isinstance(before, NUMBERS) and not is_known:
            self.own_numbers.append((module, name, before))

    def _get_attr(self, target: str, value: Any, wish: str | None = None) -> Node:
        if self.bodies:
            with self.recording_into(self.bodies[0].outer):
                return self._get_attr(target, value, wish)
        type = type_of(value)
        if self._is_plain:
            return self._insert("get_attr", target, (), NO_KWARGS, wish, type)
        return self.create_proxy("get_attr", target, (), {}, wish, type).node

    def _adopt(self, value: Any, wish: str) -> str:
        """Give the graph's owner an array or module that the root does not have; returns its path."""
        path = adopt(self._adopted, self.root, value, wish, self._numbers.get(wish, 0))
        self._numbers[wish] = int(path.rpartition("_")[2]) + 1
        return path

    def _constant(self, given: Any, value: np.ndarray[Any, Any]) -> Node:
        """The node for an array of the program, ``given``: an attribute that is shared with its module, or a
        constant with the current contents of the array."""
        known = self._attributes.get(id(given))
        own = self._own_array(given)
        if known is not None:
            before = self.own_constants.get(known[0])
            if before is None or is_same_array(value, before):
                return known[0]
            if own is not None:
                raise self._changed(own, known[0])
        elif own is not None and own.is_weight:
            weight: Node = self.attribute(own.module, own.key, own.value).node
            return weight
        kept = np.array(value, subok=False)
        if own is None:
            node = self.keep_constant(kept)
        else:
            self._adopted.__dict__["_shared"][own.target] = own.value
            node = self._get_attr(own.target, value)
            self._used_arrays.append((own, node))
            self.own_constants[node] = kept
        self._attributes[id(given)] = (node, given)
        return node

    def keep_constant(self, value: np.ndarray[Any, Any]) -> Node:
        """The node for an array that nobody else changes, which becomes an attribute without a copy."""
        node = self._get_attr(self._adopt(value, "constant"), value)
        self._attributes[id(value)] = (node, value)
        self.own_constants[node] = value
        return node

    def _own_array(self, value: Any) -> OwnArray | None:
        if not isinstance(self._adopted, TracedModule):
            return None
        if self._own_arrays is None:
            self._own_arrays = own_arrays(self.root)
        return self._own_arrays.get(id(value))

    def _changed(self, own: OwnArray, node: Node) -> TraceError:
        self._used_arrays = [used for used in self._used_arrays if used[1] is not node]
        return self.error(
            f"the program changes {own.text}, an array of its own, while it runs; a graph would "
            "compute with one of its values in every call",
            "make it a buffer, which is a state of the graph, register_buffer; or take the array as an input and "
            "return what it becomes, or change a copy",
            node,
        )

    # -- errors --------------------------------------------------------------------------------
    def error(
        self,
        problem: str,
        instead: str = "",
        origin: Node | None = None,
        kind: type[Exception] | None = None,
        location: Location | None = None,
    ) -> TraceError:
        """A TraceError that names the user's line (``location``, or the running one), the expression, the
        origin of the value, and what to do instead."""
        location = location or here(2)
        lines, made_at = [problem], ""
        if location is not None:
            lines.append(f"  at {location}: {location.expression}".removesuffix(": "))
        if origin is not None and origin.loc is not None and origin.op != "placeholder":
            made_at = f"{origin.name} was made at {origin.loc}: {origin.loc.expression}"
            lines.append(f"  {made_at}")
        if instead:
            lines.append(f"  instead: {instead}")
        message = "\n".join(lines)
        made = _KINDS.get(kind, TraceError)(message)
        made.details = Details(problem, location, made_at, instead)
        return made

    def untyped(self, problem: str, origin: Node | None = None) -> TraceError:
        """The error for an operation that cannot be traced without types."""
        return self.error(problem, 'give the input types: fx.symbolic_trace(model, x="f32[B,3,224,224]")', origin)

    def constant(self, value: Any) -> Any:
        """A traced value itself, or an array or number as a constant of the graph."""
        if is_traced(value):
            return value
        return self.proxy(self.create_arg(value if isinstance(value, np.ndarray) else np.asarray(value)))

    #: For callers that make errors other than a TraceError.
    _located = staticmethod(with_place)

    # -- the whole ------------------------------------------------------------------------------
    def trace(
        self, root: Program, concrete_args: Mapping[str, Any] | None = None, inputs: Mapping[str, Any] | None = None
    ) -> Graph:
        """Run the program on proxies; returns the graph. ``concrete_args`` holds values and ``inputs`` types, by
        the names of parameters."""
        expect(concrete_args or {}, Mapping, "concrete_args", "give values by parameter name")
        declared, concrete = dict(inputs or {}), dict(concrete_args or {})

        def once(bakes_defaults: bool) -> None:
            while True:
                try:
                    return self._trace(root, declared, concrete, bakes_defaults)
                except PlaceFirst as again:
                    self.placed.add(again.place)
                except TooMuchKnown:
                    self.knows_few = True
                except TraceError:
                    if self.ties_all or not self.left_untied:
                        raise
                    self.ties_all = True

        try:
            self.attempts(partial(once, bool(declared)))
        except Exception:
            if not self._options:
                raise
            self.attempts(partial(once, True))
        for own, node in self._used_arrays:
            if not own.is_as(self.own_constants[node]):
                raise self._changed(own, node)
        if self.makes_arrays or self.known:
            fold_known(self)
        for node in reversed(self.graph.nodes):
            if (node.op == "get_attr" or node in self.aside) and not node.users:
                self.graph.erase_node(node)
        return self.graph

    def _trace(self, root: Program, declared: dict[str, Any], concrete: dict[str, Any], bakes_defaults: bool) -> None:
        self._begin(root)
        token = active_tracer.set(self)
        self.autowrap.enter(root)
        try:
            if isinstance(root, GraphModule):
                from fxlite.tracing.retrace import retrace

                retrace(self, root, declared, concrete)
            else:
                self._run(root, declared, concrete, bakes_defaults)
        finally:
            self.autowrap.leave()
            active_tracer.reset(token)
            self.origin = None

    def _begin(self, root: Program) -> None:
        refuse_torch_module(root)
        activate_wrapped_names()
        self._runs_program = True
        self._forget(root if isinstance(root, Module) else Module())
        if isinstance(root, Module):
            self._adopted = TracedModule(root)
            self._paths = {id(m): p for p, m in root.named_modules()}
        self._leaf_paths = leaf_paths(self.leaves, self.root) if self.leaves else frozenset()
        self.graph = Graph(self._adopted, type(self))
        self._definition = definition_of(root.forward if isinstance(root, Module) else root)

    def attach(self, root: Module, graph: Graph) -> None:
        """Record into ``graph``, whose owner is ``root``. This is for code that walks over one graph and builds
        another, without a program to run."""
        self.root = self._adopted = root
        self._paths = {id(m): p for p, m in root.named_modules()}
        self._attributes, self._places, self._scopes, self.graph = {}, Places(), [], graph

    def _run(self, root: Program, declared: dict[str, Any], concrete: dict[str, Any], bakes_defaults: bool) -> None:
        function = root.forward if isinstance(root, Module) else root
        self.graph.declare_dims(declared_dims(declared))
        inputs = make_inputs(function, declared, concrete, self.placeholder, bakes_defaults)
        self._options = inputs.options
        try:
            if isinstance(root, Module):
                result = self.call_module(root, function, tuple(inputs.arguments), inputs.keywords)
            else:
                result = self.captured(function)(*inputs.arguments, **inputs.keywords)
        except Exception as error:
            if is_traced(self.raised.code) and is_raised_by(error) and not isinstance(error, FxliteError):
                first = next(iter(self.raised.exceptions.values()))
                raise self.error(
                    f"the program raises {type(first).__name__}: {first}, or {type(error).__name__}: {error}, and "
                    "which of them is not known while tracing",
                    "return a number that says so",
                ) from error
            if self.is_finished and not isinstance(error, FxliteError):
                hide_values(error)
            if not isinstance(error, (LookupError, ValueError)):
                raise
            if isinstance(error, FxliteError) or not inputs.not_given:
                raise
            raise ArgumentError(
                f"{title(function)} was traced with nothing for {' and '.join(inputs.not_given)}, "
                f"and the program fails ({type(error).__name__}: {error}); give their types, "
                '*args by position and **kwargs by name: symbolic_trace(program, "f32[B]", '
                'name="f32[B]")'
            ) from error
        self._finish(inputs, result)

    def placeholder(self, wish: str, type: TensorType | None, default: Any = ...) -> tuple[str, Proxy]:
        """Add an input whose target is ``wish`` (or a similar name if that is taken), with a default if one is
        given. Returns the target and a proxy."""
        target, number = wish, 0
        while target in dict(self._inputs):
            number += 1
            target = f"{wish}_{number}"
        args = () if default is ... else (self.create_arg(default),)
        if self._is_plain:
            proxy = Proxy(self._insert("placeholder", target, args, NO_KWARGS, target, type), self)
        else:
            proxy = self.create_proxy("placeholder", target, args, {}, target, type)
        self._inputs.append((target, proxy))
        return target, proxy

    def _finish(self, inputs: Inputs, result: Any) -> None:
        """Record the result of the program, and the values that it has written into its inputs."""
        pytree.require_end(result, "result")
        written = {t: p.node for t, p in self._inputs if p.node is not p._node}
        states = self.states.written(self)
        changes = inputs.lent.refills(result, self._of_the_caller(inputs)) if self.is_finished else None
        if changes is not None:
            nothing = None if written or states else [0]  # a graph must have a result
            self.refills, result = changes[0], changes[1] or nothing
        result = with_or_none(self, result)
        only_raises = self.is_finished and is_traced(self.raised.code) and not written and not states
        if only_raises and not (holds_rows(result) or _is_computed(result)):
            self.finish, result = partial(_constant, result), lookup("full")((), 0, dtypes.int64)
        elif result is None and not written and not states:
            raise self.error("the program returns None", "return the arrays it computes", location=self._definition)
        else:
            self.finish = finish_of(result)
        if self._definition is not None and self.origin is None:  # the program has returned: no line is running
            self.origin = (None, self._definition)
        nested, result = None, with_results(closed(result, self))
        given = [v for _, v in pytree.leaves(result, "result") if is_traced(v)] if self.is_finished else []
        checks = checked(self, [*given, *map(self.proxy, written.values())])
        if checks is not None:
            result = checks[1] if result is checks[0] else result
            written = {
                t: checks[1].node if n is checks[0].node and checks[0] not in given else n for t, n in written.items()
            }
        if result is not None and not is_traced(result):
            structure = pytree.structure_of(result, "result", lambda *_: pytree.LEAF)
            nested = structure if structure.has_class else None
            result = pytree.plain(result, lambda v: self._result(checks[1] if checks and v is checks[0] else v))
        self.rebound = self._rebound(inputs)
        self.origin = (None, None)  # a result belongs to the whole program
        value = self.create_arg(result)
        if written or states:
            value = (value, *written.values(), *(new for _, _, new in states))
        self.create_node("output", "output", (value,), {})
        paths = into_inputs(self.graph, states) if states else ()
        orders = tuple((t, *found) for t, found in self.writes.orders.items())
        self.graph.interface = inputs.interface(nested, tuple(written), paths, orders)

    def _of_the_caller(self, inputs: Inputs) -> dict[int, tuple[str]]:
        """The arrays among the arguments by id, with the names of their parameters."""
        proxies = dict(self._inputs)
        named = [(name, proxies.get(s.name)) for name, _, s in inputs.parameters if s.kind == "leaf"]
        arrays = [(name, p) for name, p in named if p is not None and p.is_typed and p.type.shape]
        return {id(p): (name,) for name, p in arrays if p.type == p._node.type}

    def _rebound(self, inputs: Inputs) -> list[str]:
        """The places where the program has replaced something in a dict, list or object that is an input, as in
        ``state["x"] = y``; the graph does not do this to the caller's objects."""
        proxies = dict(self._inputs)
        found: list[str] = []

        def compare(structure: pytree.Structure, value: Any, path: str) -> None:
            if structure.kind == "leaf":
                before = proxies.get(structure.name)
                if before is None or value is before:
                    return
                if is_traced(value) and before.node is not before._node and may_be_same(before, value):
                    return  # it was written in place, by a loop
            elif structure.kind == "constant":
                if value is structure.value or (type(value) is type(structure.value) and value == structure.value):
                    return
            else:
                parts = pytree.children_of(value)
                if parts is not None and tuple(parts[1]) == structure.keys:
                    for key, part, child in zip(structure.keys, parts[2], structure.children):
                        is_field = parts[0] in pytree.NAMED
                        compare(child, part, f"{path}.{key}" if is_field else f"{path}[{key!r}]")
                    return
            found.append(path)

        for name, kind, structure in inputs.parameters:
            if structure.kind not in ("leaf", "constant") and not kind.startswith("VAR_"):
                compare(structure, inputs.given[name], name)
        return found

    def _result(self, value: Any) -> Any:
        """A part of the program's result that is not a container."""
        is_tensor = value is None or is_traced(value) or isinstance(value, (np.ndarray, np.generic, NamedDim, *NUMBERS))
        if is_tensor or hasattr(value, "__fx_create_arg__"):
            return number_as_array(value)
        if self.is_finished and is_constant(value):
            unknown = [name for name in (UNKNOWN_TEXT, *self.graph.input_dims) if name in str(value)]
            if isinstance(value, str) and unknown:
                raise self.error(
                    f"the program returns a text of a value that is not known while tracing, {value!r} ({unknown[-1]})",
                    "return the values, and make the text after the call",
                    location=self._definition,
                )
            return None
        shown = f", {value!r}" if isinstance(value, str) else ""
        name = "zip, enumerate or another iterator" if isinstance(value, Rounds) else type(value).__name__
        raise self.error(
            f"a {name} cannot be used as a tensor, and the program returns one{shown}",
            "return arrays and numbers, in tuples, lists, dicts or dataclasses, and make other objects after the call",
            location=self._definition,
        )

    def module(self, name: str = "GraphModule") -> GraphModule:
        """The traced graph with the weights that it reads, as a GraphModule."""
        made = GraphModule(self.root, self.graph, name)
        if self.notes:
            made.__dict__["_trace_notes"] = dict(self.notes)
        if self.finish is not None:
            made.__dict__["_finish"] = self.finish
        if self.refills is not None:
            made.__dict__["_refills"] = self.refills
        if self.raised.exceptions:
            made.__dict__["_exceptions"] = dict(self.raised.exceptions)
        if self.rebound:
            made.__dict__["_rebound"] = tuple(self.rebound)
        return made


def _is_computed(value: Any) -> bool:
    """Whether a result is, or has in it, what the program computes."""
    if isinstance(value, (Masked, OrNone)) or is_block(value) or holds_computed(value):
        return True
    return any(map(_is_computed, pytree.contents_of(value)))


def _constant(value: Any, _: Any) -> Any:
    """The result of a program that only raises exceptions."""
    return copy.deepcopy(value)


class LayerTracer(Tracer):
    """A tracer whose leaves are the layers of ``fxlite.nn``, like torch.fx's Tracer for torch.nn."""

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """True for layers and for the modules that ``leaf`` names."""
        return is_leaf(nn, m) or super().is_leaf_module(m, module_qualified_name)


class GraphAppendingTracer(Tracer):
    """Appends to an existing graph, like torch.fx's class of the same name. Operators, NumPy functions and
    ``fx.ops`` on proxies of its nodes (``fx.Proxy(node, tracer)``) are recorded at the insertion point of the
    graph. Constants become buffers of the graph's module."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        if graph.owning_module is None:
            graph.owning_module = Module()
        self.root = self._adopted = graph.owning_module


def appending_tracer(graph: Graph) -> GraphAppendingTracer:
    """The tracer for proxies that were made without one. There is one for each graph, so that operations on
    several such proxies agree on it."""
    known: GraphAppendingTracer | None = graph.__dict__.get("_appending_tracer")
    if known is None or known.root is not graph.owning_module:
        known = graph.__dict__["_appending_tracer"] = GraphAppendingTracer(graph)
    return known


def call_method(graph: Graph, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node:
    """Record a method call at the insertion point of the graph."""
    tracer = appending_tracer(graph)

    def proxy(value: Any) -> Any:
        return map_nodes(value, tracer.proxy)

    owner, *others = proxy(tuple(args))
    result = getattr(owner, method)(*others, **proxy(dict(kwargs)))
    if not isinstance(result, Proxy):
        raise GraphError(f"{method} of {owner.node.name} has several results; call it on fx.Proxy(node)")
    return result.node


def _has_elements(type: Any) -> bool:
    """True for a number, and for a type whose sizes are all known and not 0."""
    return type.has_elements if isinstance(type, TensorType) else isinstance(type, dtypes.NUMBERS)


def _type_of_operand(value: Any) -> Any:
    """The type of a traced value or of a constant."""
    value = getattr(value, "node", value)
    if isinstance(value, Node):
        return value.type
    return type_of(value) if isinstance(value, np.ndarray) else value


def leaf_result_type(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result type of a leaf for arguments that are nodes and plain values: from its method
    ``infer(*types)`` if it has one, else from a trace. None if an argument has no type, the module cannot be
    traced, or it returns something other than arrays.

    Raises ShapeError or DTypeError for arguments that do not fit."""

    def type_or_value(value: Any) -> Any:
        return value.type if isinstance(value, Node) else value

    types = [type_or_value(a) for a in args]
    named = {k: type_or_value(v) for k, v in kwargs.items()}
    infer = getattr(module, "infer", None)
    if infer is not None:
        return infer(*types, **named)
    nodes = [a for a in (*args, *kwargs.values()) if isinstance(a, Node)]
    if not all(isinstance(n.type, TensorType) for n in nodes):
        return None
    try:
        bound = inspect.signature(module.forward).bind(*types, **named).arguments
        declared = {n: t for n, t in bound.items() if isinstance(t, TensorType)}
        concrete = {n: v for n, v in bound.items() if n not in declared}
        found = Tracer().trace(module, concrete, declared).output_node().type
    except (ShapeError, DTypeError):
        raise
    except Exception:  # a leaf may do anything, also what cannot be traced
        return None
    parts = found if type(found) is tuple else (found,)
    return found if all(isinstance(t, TensorType) for t in parts) else None
