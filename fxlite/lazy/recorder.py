"""The recorder: records the nodes for which lazy arrays stand, and computes them.

In: nodes of a growing graph, which a tracer records as for a program. Out: the values of the nodes that are needed.
The part of the graph on which they depend is extracted as a graph of its own, and looked up by its structure, which
is the same in every round of a loop. It is interpreted at first, and compiled once interpreting it again and again has
taken about as long as compiling does. This is estimated from the numbers of nodes and elements, not measured, so that a
script computes the same bits in every run.
Values are never written into: an array into which the program writes stands for another node afterwards, see
:mod:`fxlite.tracing.writes`.

The graph does not grow indefinitely. When all live arrays have values, or when it has ``window`` nodes and all live
arrays have been computed, it is discarded, and a new one starts with these values.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import FxliteError, number_of
from fxlite.base.facade import above
from fxlite.graph.graph import Graph, Node, map_nodes
from fxlite.graph.graph_module import GraphModule
from fxlite.graph.node import types_of
from fxlite.nn.module import Module
from fxlite.tracing.calls import Places
from fxlite.tracing.proxy import Proxy
from fxlite.tracing.tracer import Tracer
from fxlite.tracing.writes.aliasing import layout_of
from fxlite.tracing.writes.shared_memory import Layout, View, contiguous, fresh, root_of
from fxlite.types.tensor_type import TensorType, type_of

if TYPE_CHECKING:
    from fxlite.lazy.array import Array

#: The most structures that are remembered.
MOST_PROGRAMS = 512
#: What a node costs while it is interpreted, besides its elements, in elements.
NODE = 5_000
#: As many elements take about as long to compute as a structure takes to compile (a third of a second).
COMPILING = 300_000_000
#: A graph whose arrays all have their values is thrown away from this many nodes on.
FEW_NODES = 200


@dataclass
class Settings:
    """The settings of :func:`fxlite.lazy.configure`."""

    backend: str = "c"
    #: The number of computations after which a structure is compiled; None: when it is worth it.
    compile_after: int | None = None
    window: int = 5_000


@dataclass
class _Program:
    """One structure, with the number of its computations and the code that computes it."""

    nodes: int
    #: What interpreting it once costs, in elements.
    work: int
    uses: int = 0
    compiled: Callable[..., Any] | None = None
    failure: str = ""


class _LazyTracer(Tracer):
    """A tracer that records outside of any program, indefinitely."""

    def __init__(self) -> None:
        super().__init__()
        root = Module()
        graph = Graph(root)
        self.attach(root, graph)
        self._places = Places()


class Recorder:
    """Records the operations of all lazy arrays in a process."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.lock = threading.RLock()
        self.tracer: Tracer = _LazyTracer()
        #: The values of nodes that have been computed or given.
        self.values: dict[Node, np.ndarray[Any, Any]] = {}
        self._alive: dict[int, weakref.ref[Array]] = {}
        self._programs: OrderedDict[Any, _Program] = OrderedDict()
        self.computations = 0
        self._limit = 0
        #: The number of calls that NumPy computed at once, by name and reason.
        self.fallbacks: Counter[tuple[str, str]] = Counter()

    # -- arrays ------------------------------------------------------------------------------------
    def enter(self, array: Array) -> None:
        """Register a new array, and keep track of it while it is alive."""
        key, forget = id(array), self._alive.pop
        self._alive[key] = weakref.ref(array, lambda _: forget(key, None))

    def arrays(self) -> list[Array]:
        """The live arrays that stand for nodes, the oldest first."""
        found = [reference() for reference in list(self._alive.values())]
        return [a for a in found if a is not None and a._proxy is not None]

    def given(self, value: np.ndarray[Any, Any]) -> Proxy:
        """A proxy for a value that no other code will write into, with memory of its own."""
        return self._enter_value(value, layout_in_memory(value))

    def _enter_value(self, value: np.ndarray[Any, Any], layout: Layout | None) -> Proxy:
        """A proxy for a value. ``layout`` is the one that it has in NumPy, None if that is not known."""
        tracer = self.tracer
        proxy = tracer.create_proxy("placeholder", "x", (), {}, "x", type_of(value))
        self.values[proxy._node] = value
        if layout != contiguous(value.shape):
            tracer.writes.written[proxy._node] = layout
        made = fresh(proxy)
        assert made._view is not None
        made._view.copied = False
        return made

    # -- computing ---------------------------------------------------------------------------------
    def value(self, proxy: Proxy) -> np.ndarray[Any, Any]:
        """The value of a proxy, which is computed now if it is not known. The array is only for reading."""
        with self.lock:
            found = self.values.get(proxy.node)
            return self.compute([proxy])[0] if found is None else found

    def compute(self, proxies: Iterable[Proxy]) -> list[np.ndarray[Any, Any]]:
        """Compute these proxies, and those of other arrays that are computed on the way."""
        with self.lock:
            return self._compute_nodes([p.node for p in proxies])

    def _compute_nodes(self, wanted: Sequence[Node]) -> list[np.ndarray[Any, Any]]:
        with self.lock:
            nodes = self._needed()
            order = self._order(wanted)
            inside = set(order)
            outputs = list(dict.fromkeys([*wanted, *(n for n in nodes if n in inside)]))
            outputs = [n for n in outputs if n not in self.values]
            if outputs:
                self._run(order, outputs)
            results = [self.values[n] for n in wanted]
            if len(self.tracer.graph) > FEW_NODES and all(n in self.values for n in nodes):
                self._begin_anew()
            return results

    def window(self) -> None:
        """Limit the memory of the recorded graph. An array whose computation fails raises the error when it is used,
        not here; as long as it exists, the graph continues to grow."""
        if len(self.tracer.graph) > max(self.settings.window, self._limit):
            try:
                self._compute_nodes(self._needed())
            except Exception:
                self._limit = 2 * len(self.tracer.graph)
                return
            if len(self.tracer.graph) > self.settings.window:
                self._begin_anew()

    def _root_layout(self, proxy: Proxy) -> Layout | None:
        root = proxy
        if proxy._view is not None and proxy._view.parent is not None:
            root = self.tracer.proxy(proxy._node)
            root._view = root_of(proxy._view)
        return layout_of(root)

    def _needed(self) -> list[Node]:
        """The nodes from which the live arrays can be derived: their current values, the memories of which they are
        views, and computed positions."""
        found: list[Node] = []
        for array in self.arrays():
            assert array._proxy is not None
            found.append(array._proxy.node)
            view = array._proxy._view
            while view is not None:
                found += [v for v in view.attributes.values() if isinstance(v, Node)]
                if view.parent is None:
                    found.append(view.node)
                view = view.parent
        return list(dict.fromkeys(found))

    def _order(self, wanted: Sequence[Node]) -> list[Node]:
        """The nodes that must be computed, operands first."""
        order: list[Node] = []
        done: set[Node] = set(self.values)
        work = list(reversed(wanted))
        while work:
            node = work[-1]
            if node in done:
                work.pop()
                continue
            if node.op == "get_attr":
                self.values[node] = np.asarray(self.tracer.root.get_attribute(str(node.target)))
                done.add(node)
                continue
            waiting = [n for n in reversed(node.all_input_nodes) if n not in done]
            if waiting:
                work += waiting
                continue
            done.add(node)
            order.append(node)
        return order

    def _run(self, order: Sequence[Node], outputs: Sequence[Node]) -> None:
        inputs: dict[Node, int] = {}
        places: dict[Node, Any] = {}
        for node in order:
            for used in node.all_input_nodes:
                if used in self.values and used not in inputs:
                    inputs[used] = len(inputs)
                    places[used] = ("input", inputs[used])
            places[node] = len(places)
        key = (
            tuple(node.type for node in inputs),
            tuple(
                (node.target, _exact(map_nodes(node.args, places.__getitem__)), _exact(tuple(node.kwargs.items())))
                for node in order
            ),
            tuple(places[n] for n in outputs),
            self.settings.backend,
        )
        program = self._programs.get(key)
        if program is None:
            types = (t for node in (*inputs, *order) for t in types_of(node))
            elements = sum(t.size for t in types if isinstance(t, TensorType))
            program = self._programs[key] = _Program(len(order), NODE * len(order) + elements)
            if len(self._programs) > MOST_PROGRAMS:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        program.uses += 1
        self.computations += 1
        if program.compiled is None and not program.failure and self._is_worth_compiling(program):
            self._compile(program, list(inputs), order, outputs)
        if program.compiled is None:
            self._interpret(order, outputs)
            return
        results = program.compiled(*[self.values[n] for n in inputs])
        for node, result in zip(outputs, results, strict=True):
            self.values[node] = np.asarray(result)

    def _is_worth_compiling(self, program: _Program) -> bool:
        if self.settings.backend == "interpreter":
            return False
        if self.settings.compile_after is not None:
            return program.uses >= self.settings.compile_after
        return program.uses > 1 and program.uses * program.work >= COMPILING

    def _interpret(self, order: Sequence[Node], outputs: Sequence[Node]) -> None:
        made: dict[Node, Any] = {}
        readers = Counter(used for node in order for used in node.all_input_nodes)
        readers.update(outputs)

        def value(node: Node) -> Any:
            return made[node] if node in made else self.values[node]

        for node in order:
            args, kwargs = map_nodes((node.args, dict(node.kwargs)), value)
            try:
                made[node] = node.target.evaluate(node.target.bind(args, kwargs))
            except Exception as error:
                if node.loc is not None:
                    error.add_note(f"recorded at {node.loc}: {node.loc.expression}")
                raise
            for used in node.all_input_nodes:
                readers[used] -= 1
                if not readers[used]:
                    made.pop(used, None)
        self.values.update((node, np.asarray(made[node])) for node in outputs)

    def _compile(self, program: _Program, inputs: list[Node], order: Sequence[Node], outputs: Sequence[Node]) -> None:
        graph = Graph()
        copies: dict[Node, Node] = {}
        for number, node in enumerate(inputs):
            copies[node] = graph.placeholder(f"x{number}", node.type)
        for node in order:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[n] for n in outputs))
        try:
            module = GraphModule({}, graph, "lazy")
            program.compiled = above("compile")(module, backend=self.settings.backend)
        except FxliteError as error:
            program.failure = str(error).splitlines()[0]

    # -- starting a new graph ----------------------------------------------------------------------
    def _begin_anew(self) -> None:
        """Start a new graph, in which the live arrays stand for inputs and views of them."""
        arrays, values = self.arrays(), self.values
        live = [p for a in arrays for p in [a._proxy] if p is not None]
        roots = [self.tracer.proxy(p._node) if p._view is None else p for p in live]
        layouts = {r._node if r._view is None else root_of(r._view): self._root_layout(r) for r in roots}
        self.tracer, self.values, self._limit = _LazyTracer(), {}, 0
        made: dict[View, Proxy] = {}
        proxies: dict[int, Proxy] = {}

        def root(node: Node, view: View | None) -> Proxy:
            proxy = self._enter_value(values[node], layouts[node if view is None else view])
            if view is not None and view.memory is not None:
                assert proxy._view is not None and proxy._view.memory is not None
                proxy._view.memory.is_number = view.memory.is_number
                proxy._view.memory.doubt = view.memory.doubt
            return proxy

        def again(view: View) -> Proxy:
            found = made.get(view)
            if found is None:
                if view.parent is None:
                    found = root(view.node, view)
                elif view.op is None:
                    found = self.given(values[view.node])
                else:
                    operand = again(view.parent)
                    attributes = {
                        name: self.given(values[v]) if isinstance(v, Node) else v for name, v in view.attributes.items()
                    }
                    bound = view.op.bind((operand,), attributes)
                    found = self.tracer.record(view.op, bound)
                    if view.node in values:
                        self.values[found._node] = values[view.node]
                made[view] = found
            return found

        for array in arrays:
            old = array._proxy
            assert old is not None
            if id(old) not in proxies:
                node = old.node  # that of the current value
                proxies[id(old)] = root(node, None) if old._view is None else again(old._view)
        for array in arrays:
            array._proxy = proxies[id(array._proxy)]

    def explain(self) -> str:
        """A text on what was computed, and how, and on what was not recorded."""
        programs = list(self._programs.values())
        compiled = [p for p in programs if p.compiled is not None]
        lines = [
            f"{number_of(self.computations, 'computation')} of {number_of(len(programs), 'known structure')}, "
            f"{len(compiled)} of them compiled"
        ]
        for p in sorted(programs, key=lambda p: -p.uses * p.nodes)[:10]:
            how = "compiled" if p.compiled is not None else p.failure or "interpreted"
            lines.append(f"  {p.uses} times, {number_of(p.nodes, 'node')}: {how}")
        if self.fallbacks:
            lines.append("computed by NumPy at once:")
            for (name, reason), count in self.fallbacks.most_common(20):
                lines.append(f"  {name}, {number_of(count, 'time')}: {reason}")
        return "\n".join(lines)


def layout_in_memory(value: np.ndarray[Any, Any]) -> Layout:
    """The layout of a NumPy array."""
    strides = tuple(s // value.itemsize for s in value.strides)
    if value.flags.c_contiguous:
        return contiguous(value.shape)
    long = [s for s, size in zip(strides, value.shape) if size > 1]
    in_order = all(s > 0 for s in long) and long == sorted(long, reverse=True)
    return Layout(strides, in_order)


def _exact(value: Any) -> Any:
    """A key for ``value`` in which 1, 1.0 and True differ, and also 0.0 and -0.0."""
    kind = value.__class__
    if kind is tuple or kind is list:
        return tuple(map(_exact, value))
    return (kind, repr(value)) if kind is float else (kind, value)


RECORDER = Recorder()
