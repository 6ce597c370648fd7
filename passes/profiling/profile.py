"""Profile a program: measure the time of each node (Python) or kernel (compiled C), and compare it
with the work at given sizes: FLOPs, bytes, and the least time they take.

In: a GraphModule and inputs. Out: a :class:`Profile`. Calls in which the parts are measured alternate
with calls in which nothing is measured, so that the cost of measuring is known and both meet the same
load.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fxlite.backend import Backend, KernelInfo, find_measured
from fxlite.base.checked import checked
from fxlite.base.errors import ArgumentError, expect
from fxlite.base.facade import above
from fxlite.graph.graph import Node
from fxlite.graph.graph_module import GraphModule, check_inputs
from fxlite.graph.interpreter import Interpreter
from fxlite.ops.indexing import part_size
from fxlite.passes.profiling.record import Part, Profile, Row
from fxlite.show.node_cost import Limits, Roofs, limits, node_cost
from fxlite.types import shapes
from fxlite.types.tensor_type import TensorType


@dataclass(frozen=True)
class Setting:
    """What all rows of a profile share: sizes of the named dims, roofs (None: unknown), threads."""

    dims: Mapping[str, int]
    roofs: Roofs | None
    threads: int
    _known: dict[Any, int | None] = field(default_factory=dict, repr=False)

    def number(self, value: Any) -> int | None:
        """An expression in the named dims as a number. None for None, and for an expression with other unknowns,
        such as an iteration count that depends on values. Results are cached: many nodes have equal costs, and
        a substitution takes much longer than a look-up."""
        if value is None or type(value) is int:
            return value
        if value not in self._known:
            found = shapes.substitute(value, self.dims)
            self._known[value] = None if shapes.names(found) else int(found)
        return self._known[value]

    def of(self, kernel: KernelInfo) -> Setting:
        """The setting for a kernel: sizes that depend on values are as large as they can be, unless known."""
        if not kernel.at_most:
            return self
        largest = {name: self.number(size) for name, size in kernel.at_most.items()}
        return Setting({**largest, **self.dims}, self.roofs, self.threads)  # type: ignore[dict-item]

    def stored(self, type: Any) -> int:
        """Bytes of a value of this type; for several results their sum."""
        if isinstance(type, (tuple, list)):
            return sum(self.stored(each) for each in type)
        return self.number(type.nbytes) or 0 if isinstance(type, TensorType) else 0

    def limits(self, flops: int, read: int, written: int, dtype: str) -> Limits | None:
        """The least time that the roofs allow; None without roofs."""
        if self.roofs is None:
            return None
        return limits(self.roofs, flops, read, written, dtype, self.threads)


@dataclass(frozen=True)
class Times:
    """Seconds of each repetition, and when the repetition shown in traces began."""

    seconds: tuple[float, ...]
    start: float


def node_row(node: Node, times: Times, setting: Setting) -> Row:
    """The row of one call, which reads its operands and writes its result by itself."""
    cost = node_cost(node)
    flops, read, written = map(setting.number, (cost.flops, cost.read, cost.written))
    moved, found = None, None
    if flops is not None and read is not None and written is not None:
        moved, found = read + written, setting.limits(flops, read, written, _dtype(node))
    part = Part(node, flops, 1.0)
    return Row(node.name, node, (part,), times.seconds, times.start, flops, moved, found)


def kernel_row(kernel: KernelInfo, times: Times, setting: Setting) -> Row:
    """The row of a kernel, which reads its inputs once and writes its root; values that its nodes
    pass to each other stay in registers."""
    setting = setting.of(kernel)
    costs = [node_cost(node).flops for node in kernel.nodes]
    counts = [0 if cost is None else setting.number(cost) for cost in costs]
    known = [count for count in counts if count is not None]
    flops = sum(known) if len(known) == len(counts) else None
    shares = [count / flops for count in known] if flops else [1 / len(counts)] * len(counts)
    parts = tuple(Part(*each) for each in zip(kernel.nodes, counts, shares))
    read, written = _moved(kernel, setting)
    node = kernel.anchor or kernel.root
    found = None if flops is None else setting.limits(flops, read, written, _dtype(node))
    moved = read + written
    return Row(kernel.name, node, parts, times.seconds, times.start, flops, moved, found, kernel.how)


def kernel_bytes(kernels: Sequence[KernelInfo], sizes: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Bytes that each kernel of a compiled function (``fn.kernels``) reads and writes in a call, by
    name. Each input counts once, or only the part of it that is looked up, and so does the result; of
    a result that is updated in place only the written part counts."""
    setting = Setting(dict(sizes), None, 1)
    return {kernel.name: sum(_moved(kernel, setting.of(kernel))) for kernel in kernels}


def _moved(kernel: KernelInfo, setting: Setting) -> tuple[int, int]:
    """Bytes that a kernel reads and writes."""
    readers: dict[Node, list[Node]] = {source: [] for source in kernel.reads}
    for node in kernel.nodes:
        for source in node.all_input_nodes:
            if source in readers:
                readers[source].append(node)
    root, written = kernel.root, setting.stored(kernel.root.type)
    if kernel.over is not None and root.target.writes_part:
        readers.pop(kernel.over, None)
        written = (setting.number(part_size(root.arguments)) or 0) * root.type.dtype.itemsize
    return sum(_read_bytes(source, users, setting) for source, users in readers.items()), written


def _read_bytes(source: Node, users: Sequence[Node], setting: Setting) -> int:
    """Bytes of an input that its readers in a kernel need: all of it, except for views and look-ups,
    which read only as much as their results hold."""
    stored = setting.stored(source.type)
    if not users or not all(_reads_some(user, source) for user in users):
        return stored
    return min(stored, sum(setting.stored(user.type) for user in users))


def _reads_some(user: Node, source: Node) -> bool:
    if user.op != "call_function":
        return False
    if user.target.reads_some_of is not None:
        return user.arguments.get(user.target.reads_some_of) is source
    return bool(user.target.kind == "view")


def _dtype(node: Node) -> str:
    """The dtype in which a node computes: that of its first operand, or else of its result."""
    candidates: Sequence[Any] = [n.type for n in node.all_input_nodes[:1]] + [node.type]
    for each in candidates:
        if isinstance(each, TensorType):
            return each.dtype.name
    return "f32"


# -- measuring -------------------------------------------------------------------------------------
#: Without ``repeat``: as many calls as fit into so many seconds, but some, and not too many.
SECONDS, LEAST_CALLS, MOST_CALLS = 0.5, 5, 200
_WARM_UP = 2
#: The same where a call is measured alone, as on a page of many facts.
_ALONE = (0.25, 2, 50)

#: One measured call: nanoseconds of a clock before the first part and after each.
Ticks = Sequence[int]


@checked
def profile(
    gm: GraphModule,
    *args: Any,
    inputs: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    backend: str = "python",
    repeat: int | None = None,
    threads: int | None = None,
    matmul_precision: str = "highest",
    autotune: bool = False,
    roofs: Roofs | None = None,
) -> Profile:
    """Measure where the time of a call goes: ``print(passes.profile(gm, x))``.

    Inputs are given as to ``gm``, or by name in ``inputs``; without any, random ones are drawn, with
    ``sizes`` for the named dims. With ``backend="python"`` the nodes of ``gm`` are timed one by one
    as NumPy runs them. With ``"c"`` the program is optimized as by :func:`fxlite.compile` and
    compiled both with and without counters (two builds), and its kernels are timed on ``threads``
    threads, with the given ``matmul_precision`` and ``autotune``; NumPy chooses its own number of
    threads. ``repeat`` is the number of measured calls, by default as many as fit into half a second.
    ``roofs`` are the roofs of this machine, which are measured once (taking some seconds) and cached;
    without a C compiler there are none.

    Raises ArgumentError for a back end without counters and for sizes given together with inputs, and
    whatever calling and compiling ``gm`` raise."""
    target = find_measured(backend)
    options = target.checked({"matmul_precision": matmul_precision, "autotune": autotune})
    if repeat is not None and repeat < 1:
        raise ArgumentError(f"repeat must be at least 1, not {repeat}")
    values = input_values(gm, args, inputs, sizes)
    dims = check_inputs(gm.name, gm.graph.placeholders, values)
    if "autotune" in options:
        options["tune_sizes"] = dims
    if target.part == "node":
        subject = _interpreted(gm, values, threads)
    else:
        subject = _compiled(gm, values, target, threads, options)
    known = above("machine_roofs")() if roofs is None else roofs
    return _measured(gm.name, backend, subject, dims, known, repeat)


def profile_alone(
    gm: GraphModule,
    inputs: Mapping[str, Any],
    roofs: Roofs | None,
    repeat: int | None = None,
    threads: int | None = None,
    backend: str = "python",
    function: Any = None,
) -> Profile:
    """A profile of few calls, without unmeasured calls to compare with (their seconds are taken to be
    those of the measured ones): a third of the work of :func:`profile`, and one build. ``function`` is
    ``gm`` compiled for ``backend`` with counters; without it the nodes are timed as NumPy runs them."""
    dims = check_inputs(gm.name, gm.graph.placeholders, inputs)
    subject = _interpreted(gm, inputs, threads) if function is None else _counting(function, inputs)
    return _measured(gm.name, backend, replace(subject, plain=None), dims, roofs, repeat)


def _measured(
    name: str, backend: str, subject: _Subject, dims: dict[str, int], known: Roofs | None, repeat: int | None
) -> Profile:
    with np.errstate(all="ignore"):
        whole, plain, ticks = _measure(subject, repeat)
    shown = min(range(len(whole)), key=lambda i: abs(whole[i] - statistics.median(whole)))
    setting = Setting({**subject.data_sizes, **dims}, known, subject.threads)
    rows = tuple(
        kernel_row(part, times, setting) if isinstance(part, KernelInfo) else node_row(part, times, setting)
        for part, times in zip(subject.parts, _times(ticks, shown))
        if isinstance(part, KernelInfo) or part.op.startswith("call_")
    )
    return Profile(name, backend, subject.threads, dims, rows, whole, plain, shown, known)


@dataclass(frozen=True)
class _Subject:
    """What is measured: ``run`` makes a call, of which ``ticks`` then gives the times; ``plain``
    does the same unmeasured (None: nothing is compared with it); ``parts`` are what runs between two ticks."""

    run: Callable[[], Any]
    ticks: Callable[[], Ticks]
    plain: Callable[[], Any] | None
    parts: Sequence[Node | KernelInfo]
    threads: int
    data_sizes: Mapping[str, int] = field(default_factory=dict)


def _interpreted(gm: GraphModule, values: Mapping[str, Any], threads: int | None) -> _Subject:
    timed = _TimedInterpreter(gm)
    given = {node: values[node.target] for node in gm.graph.placeholders}

    def run() -> Any:
        timed.ticks = []
        return timed.run(initial_env=given, enable_io_processing=False)  # tells no taps

    parts = [node for node in gm.graph.nodes if node.op not in ("placeholder", "output")]
    used = threads or usable_threads()
    return _Subject(run, lambda: timed.ticks, lambda: gm.run_flat(values), parts, used)


def usable_threads() -> int:
    """How many processors this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def _compiled(
    gm: GraphModule, values: Mapping[str, Any], target: Backend, threads: int | None, options: Mapping[str, Any]
) -> _Subject:
    given = {**target.checked({"threads": threads}), **options}
    counting = target.compile(gm, **given, **target.checked({"profile": True}))
    bare = target.compile(gm, **given)
    return replace(_counting(counting, values), plain=lambda: bare.run_flat(values))


def _counting(function: Any, values: Mapping[str, Any]) -> _Subject:
    """A function with counters."""
    run = functools.partial(function.run_flat, values)
    sizes = function.data_sizes(values) if hasattr(function, "data_sizes") else {}
    return _Subject(run, function.kernel_ticks, None, function.kernels, function.threads, sizes)


class _TimedInterpreter(Interpreter):
    """Notes when each node starts. A node's time lasts until the next one starts, so that it includes
    the time for freeing its operands."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.ticks: list[int] = []
        self._readers = super().user_to_last_uses

    @property
    def user_to_last_uses(self) -> dict[Node, list[Node]]:
        return self._readers  # the same in every run, so not part of a run's time

    def run_node(self, node: Node) -> Any:
        self.ticks.append(time.perf_counter_ns())
        return super().run_node(node)


def input_values(
    gm: GraphModule, args: tuple[Any, ...], inputs: Mapping[str, Any] | None, sizes: Mapping[str, int] | None
) -> dict[str, Any]:
    """The inputs by placeholder's target: the given ones, or else random ones. Raises ArgumentError
    for sizes given together with inputs, and if none can be drawn."""
    expect(gm, GraphModule, "what is run", "trace it first: fx.symbolic_trace(...)")
    if args or inputs or not gm.graph.placeholders:
        if sizes:
            raise ArgumentError("sizes= is for random inputs; the inputs given have sizes")
        named = dict(inputs or {})
        if not args and named.keys() == {n.target for n in gm.graph.placeholders}:
            return named
        return gm.flatten_inputs(gm.bind(args, named).arguments)
    untyped = [str(n.target) for n in gm.graph.placeholders if n.type is None]
    if untyped:
        raise ArgumentError(
            f"{gm.name}: no inputs were given, and none can be drawn for {', '.join(untyped)}, "
            "of which the type is not known; give arrays, or trace with input types"
        )
    return dict(above("random_inputs")(gm, sizes or {}))


def _measure(subject: _Subject, repeat: int | None) -> tuple[tuple[float, ...], tuple[float, ...], list[Ticks]]:
    """Seconds of measured calls, of unmeasured calls, and the ticks of the measured ones."""
    alone = subject.plain is None
    seconds, least, most = _ALONE if alone else (SECONDS, LEAST_CALLS, MOST_CALLS)
    for _ in range(1 if alone else _WARM_UP):
        if subject.plain is not None:
            subject.plain()
        subject.run()
    whole: list[float] = []
    plain: list[float] = []
    ticks: list[Ticks] = []
    end = time.perf_counter() + seconds
    if repeat is not None:
        least = most = repeat
    while len(whole) < least or (len(whole) < most and time.perf_counter() < end):
        start = time.perf_counter()
        if subject.plain is not None:
            subject.plain()
        middle = time.perf_counter()
        subject.run()
        whole.append(time.perf_counter() - middle)
        plain.append(whole[-1] if alone else middle - start)
        ticks.append(subject.ticks())
    return tuple(whole), tuple(plain), ticks


def _times(ticks: list[Ticks], shown: int) -> list[Times]:
    """The times of each part."""
    begin = ticks[shown][0] if ticks[shown] else 0
    return [
        Times(tuple((each[i + 1] - each[i]) * 1e-9 for each in ticks), (ticks[shown][i] - begin) * 1e-9)
        for i in range(len(ticks[shown]) - 1)
    ]
