"""Loops and conditions as functions: ``fx.cond`` and ``fx.while_loop`` as in torch, ``fx.fori_loop`` and
``fx.scan`` as in JAX.

On arrays they run like Python's statements. In a trace each becomes one node, whose bodies are sub-graphs. A
body is a function of its arguments. It may write into the arrays that the loop carries, which belong to the
loop, and read any other values of the program; the values that it computes are available only as its
result.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import ArgumentError, DTypeError, expect
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Node
from fxlite.graph.pytree import Structure
from fxlite.ops.control import INDEX
from fxlite.ops.op import Op, lookup
from fxlite.tracing.capture.bodies import (
    Body,
    Kind,
    as_node,
    as_value,
    joined,
    kind_of,
    leaves_of,
    put_together,
    taken_apart,
)
from fxlite.tracing.capture.known import known_value
from fxlite.types import dtypes
from fxlite.types.shapes import NamedDim
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.tracing.tracer import Tracer

#: How often a body is traced until the types of the carried values no longer change: each time, a Python
#: number becomes a wider one, or takes the type of an array.
_MOST_ROUNDS = 8


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """``true_fn(*operands)`` if ``pred`` is true, else ``false_fn(*operands)``. ``pred`` is a single bool, such
    as ``x.sum() > 0``. In a trace this is one node with both branches, one of which runs.

    Both must return values of the same structure, types and shapes; a Python number takes the type of its
    counterpart. The functions may read the operands and other values of the program, but not write into them.

    Raises TraceError, which names the value and both types, if the results differ, and DTypeError for a
    condition that is not a single bool."""
    expect(true_fn, Callable, "true_fn")
    expect(false_fn, Callable, "false_fn")
    expect(operands, (tuple, list), "operands", "a single one is (x,)")
    tracer = active_tracer.get()
    known = known_value(pred) if is_traced(pred) else pred
    if tracer is not None and known is None:
        return _traced_cond(tracer, pred, (true_fn, false_fn), operands)
    function = true_fn if truth(known, "the condition of cond") else false_fn
    if tracer is not None:
        return tracer.captured(function)(*operands)
    return owned(function(*read_only(operands)))


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> tuple[Any, ...]:
    """``while cond_fn(*carried): carried = body_fn(*carried)``, starting with ``carried_inputs``. Returns the
    final values, a tuple. ``cond_fn`` returns a single bool, and ``body_fn`` a tuple of values with the
    structure, types and shapes of ``carried_inputs``; Python numbers among these take the types that they
    have after an iteration.

    Raises TraceError, which names the value and its types before and after, if an iteration changes a type,
    and DTypeError for a condition that is not a single bool."""
    expect(cond_fn, Callable, "cond_fn")
    expect(body_fn, Callable, "body_fn")
    expect(carried_inputs, (tuple, list), "carried_inputs", "a single one is (x,)")
    carried_inputs = tuple(carried_inputs)
    tracer = active_tracer.get()
    if tracer is None:
        return iterate(body_fn, carried_inputs, test=cond_fn)  # type: ignore[no-any-return]
    loop = _Loop(tracer, "while_loop", carried_inputs, _names(body_fn, len(carried_inputs)))

    attributes = ("cond_fn", "body_fn")
    return loop.run(  # type: ignore[no-any-return]
        lambda: (loop.condition(cond_fn), loop.body(body_fn, spread=True)), lookup("while_loop"), {}, attributes
    )


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """``for i in range(lower, upper): val = body_fun(i, val)``, starting with ``init_val``. Returns the final
    ``val``. The bounds are integers, which may be named sizes or traced. ``body_fun`` returns a value with the
    structure, types and shapes of ``init_val``; Python numbers in it take the types that they have after an
    iteration. ``i`` is a Python int.

    Raises TraceError, which names the value and its types before and after, if an iteration changes a type,
    and DTypeError for bounds that are not integers."""
    expect(body_fun, Callable, "body_fun")
    bounds = {"lower": _bound(lower, "lower"), "upper": _bound(upper, "upper")}
    tracer = active_tracer.get()
    if tracer is None:
        numbers = range(int(bounds["lower"]), int(bounds["upper"]))
        return iterate(body_fun, init_val, ((i,) for i in numbers))
    index, name = (_names(body_fun, 2) or ["i", "val"])[:2]
    loop = _Loop(tracer, "fori_loop", init_val, name)

    return loop.run(lambda: (loop.body(body_fun, index=index),), lookup("fori_loop"), bounds, ("body_fn",))


def scan(f: Callable[[Any, Any], Any], init: Any, xs: Any = None, length: Any = None) -> tuple[Any, Any]:
    """A loop over the first axis of the arrays in ``xs``: ``carry, y = f(carry, x)`` for each element. Returns
    the final ``carry`` and all ``y``, stacked along a new first axis. Without ``xs`` it runs ``length`` times,
    with None for x. In a trace this is a ``fori_loop``.

    Raises ArgumentError unless all ``xs`` have the same length, which must be ``length`` if that is given, and
    if neither is given. Otherwise it raises what :func:`fori_loop` raises."""
    expect(f, Callable, "f")
    arrays, _, structure = leaves_of(xs, "xs")
    if any(not np.shape(x) if not is_traced(x) else not x.shape for x in arrays):
        raise ArgumentError("the arrays of xs have a first axis, over which scan runs")
    sizes = [x.shape[0] for x in arrays] + ([] if length is None else [length])
    if not sizes:
        raise ArgumentError("scan needs arrays, xs=, or a number of iterations, length=")
    if not all(bool(size == sizes[0]) for size in sizes[1:]):
        raise ArgumentError(f"scan runs over axes of one length, not {', '.join(map(str, sizes))}")

    def element(i: Any) -> Any:
        return put_together(structure, [x[i] for x in arrays])

    tracer = active_tracer.get()
    if tracer is None:
        made: dict[int, Any] = {}

        def step(i: int, carry: Any) -> Any:
            carry, y = _pair(f(carry, element(i)))
            made[i] = owned(y)
            return carry

        carry = iterate(step, init, ((i,) for i in range(int(sizes[0]))))
        if not made:
            raise ArgumentError("scan runs over no elements, so the results of f are not known")
        rows = [leaves_of(y, "y")[0] for y in made.values()]
        return carry, put_together(leaves_of(made[0], "y")[2], [np.stack(r) for r in zip(*rows)])
    found: list[Structure] = []
    kinds = _Loop(tracer, "scan", init, "carry").results(lambda c: f(c, element(0)), found)
    empty = [lookup("zeros")((sizes[0], *k.type.shape), k.type.dtype) for k in kinds]

    def body(i: Any, val: Any) -> Any:
        carry, y = _pair(f(val[0], element(i)))
        for row, value in zip(val[1], leaves_of(y, "y")[0]):
            row[i] = value
        return carry, val[1]

    carry, filled = fori_loop(0, sizes[0], body, (init, empty))
    return carry, put_together(found[0], filled)


def _pair(value: Any) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ArgumentError(f"f of scan gives a pair (carry, y), not {value!r}")
    return value[0], value[1]


def _bound(value: Any, name: str) -> Any:
    """A bound of a loop. Raises DTypeError unless it is a single integer."""
    if is_traced(value):
        known = known_value(value)
        value = value if known is None else known[()]
    if isinstance(value, (NamedDim, int)) and not isinstance(value, bool):
        return value
    kind = value.type if is_traced(value) and value.is_typed else None
    if kind is not None and not kind.rank and kind.dtype.is_integer:
        return value
    if kind is None and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu":
        return int(value)
    raise DTypeError(f"{name} must be one integer, not {kind if kind is not None else value!r}")


def _names(function: Callable[..., Any], count: int) -> list[str] | None:
    """The names of a function's parameters, if there are ``count`` of them; else None."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return names[:count] if len(names) >= count else None


# -- traced ----------------------------------------------------------------------------------------
def _union(bodies: Sequence[Body]) -> list[Node]:
    return list(dict.fromkeys(node for body in bodies for node in body.captured))


def _traced_cond(tracer: Tracer, pred: Any, functions: tuple[Callable[..., Any], ...], operands: Any) -> Any:
    what = "cond"
    kind = pred.type
    if kind.rank or not (kind.dtype.is_bool):
        raise tracer.error(
            f"the condition of cond is {kind}, not one bool",
            "compare it, x > 0, or take x.any() or x.all() of several",
            pred.node,
        )
    values, _, structure = taken_apart(tracer, tuple(operands), "operands")
    kinds = [kind_of(tracer, v, "") for v in values]
    refusal = "is an operand of cond, which gives what its branches return and changes nothing"
    bodies, found = [], []
    for function in functions:
        with Body(tracer, what) as body:
            inner = [
                body.own(name, k.type, bool(k.number), refusal)
                for name, k in zip(_operand_names(functions, len(values)), kinds)
            ]
            result = tracer.captured(function)(*put_together(structure, inner))
            found.append(taken_apart(tracer, result, "the result"))
            bodies.append(body)
    (one, paths, form), (other, _, other_form) = found
    if form != other_form:
        raise tracer.error(
            f"the branches of cond give values of different structure: {_shown(form)} if the condition "
            f"is true, {_shown(other_form)} if not",
            "return values of one structure from both",
        )
    results = []
    for path, a, b in zip(paths, one, other):
        kind_a, kind_b = kind_of(tracer, a, path), kind_of(tracer, b, path)
        both = joined(kind_a, kind_b)
        if both is None:
            raise tracer.error(
                f"{path} of cond is {kind_a} if the condition is true, and {kind_b} if not",
                "give both one type and shape: .astype, np.broadcast_to",
                getattr(a, "node", None),
            )
        results.append(both)
    nodes = []
    for body, leaves in zip(bodies, (one, other)):
        with body:
            nodes.append([as_node(tracer, v, k) for v, k in zip(leaves, results)])
    captured = _union(bodies)
    made = [body.finish(values_of, captured) for body, values_of in zip(bodies, nodes)]
    given = [as_node(tracer, v, k) for v, k in zip(values, kinds)]
    arguments = {"pred": tracer.create_arg(pred), "operands": (*given, *captured)}
    parts = record_control(tracer, lookup("cond"), arguments | {"true_fn": made[0], "false_fn": made[1]})
    return put_together(form, [as_value(tracer, n, k) for n, k in zip(parts, results)])


def _operand_names(functions: Sequence[Callable[..., Any]], count: int) -> list[str]:
    names = next(filter(None, (_names(f, count) for f in functions)), None)
    return names or [f"operand_{n}" for n in range(count)]


def _shown(form: Structure) -> str:
    if form.kind == "leaf":
        return "*"
    inner = ", ".join(map(_shown, form.children))
    return repr(form.value) if form.kind == "constant" else f"{form.kind}({inner})"


def record_control(tracer: Tracer, op: Op, bound: dict[str, Any]) -> list[Node]:
    """Record a call of a control op; returns the nodes of its results."""
    target, bound = op.canonicalize(op.bind((), bound))
    args, kwargs = target.split_arguments(bound)
    proxy = tracer.create_proxy("call_function", target, args, kwargs, op.name)
    return [part.node for part in tracer._parts(proxy)]


class _Loop:
    """A loop while it is traced. ``names`` are those of the carried values, or a single one for all of them."""

    def __init__(self, tracer: Tracer, what: str, init: Any, names: Sequence[str] | str | None) -> None:
        self.tracer, self.what = tracer, what
        label = names if isinstance(names, str) else "carried_inputs"
        self.values, self.paths, self.structure = taken_apart(tracer, init, label)
        if not self.values:
            raise tracer.error(f"{what} carries no values", "start with at least one array")
        self.kinds = [kind_of(tracer, v, p) for v, p in zip(self.values, self.paths)]
        self.names = self._leaf_names(names)
        self.outputs: list[Kind] = []
        self.results_of: dict[Body, list[Any]] = {}

    def _leaf_names(self, names: Sequence[str] | str | None) -> list[str]:
        count = len(self.values)
        if isinstance(names, str):
            return [names] if count == 1 else [f"{names}_{n}" for n in range(count)]
        tops = names or ["carried"] * len(self.structure.children)
        found: list[str] = []
        for name, child in zip(tops, self.structure.children):
            leaves = sum(1 for _ in child.leaves())
            found += [name] if leaves == 1 else [f"{name}_{n}" for n in range(leaves)]
        return found

    def _inputs(self, body: Body) -> Any:
        inner = [body.own(name, kind.type, bool(kind.number)) for name, kind in zip(self.names, self.kinds)]
        return put_together(self.structure, inner)

    def condition(self, function: Callable[..., Any]) -> Body:
        """Trace the condition."""
        tracer = self.tracer
        with Body(tracer, self.what) as body:
            value = tracer.captured(function)(*self._inputs(body))
            if type(value) is bool or isinstance(value, np.bool_):
                value = lookup("full")((), bool(value), dtypes.bool_)
            kind = value.type if is_traced(value) else None
            if kind is None or kind.rank or not kind.dtype.is_bool:
                raise tracer.error(
                    f"the condition of {self.what} is {kind or type(value).__name__}, not one bool",
                    "compare it, x > 0, or take x.any() or x.all() of several",
                    getattr(value, "node", None),
                )
            self.results_of[body] = [value]
        return body

    def body(self, function: Callable[..., Any], index: str | None = None, spread: bool = False) -> Body:
        """Trace the body once, with carried values of the kinds known so far."""
        tracer = self.tracer
        with Body(tracer, self.what) as body:
            lead = [] if index is None else [body.own(index, INDEX, number=True)]
            carried = self._inputs(body)
            result = tracer.captured(function)(*lead, *(carried if spread else (carried,)))
            if spread and isinstance(result, list):
                result = tuple(result)
            if spread and not isinstance(result, tuple) and len(self.structure.children) == 1:
                result = (result,)
            label = self.paths[0].split("[")[0].split(".")[0]
            leaves, paths, form = taken_apart(tracer, result, label)
            if form != self.structure:
                raise tracer.error(
                    f"{self.what} starts with {_shown(self.structure)}, but its body gives {_shown(form)}",
                    "return values of the structure that the loop starts with",
                )
            self.outputs = [kind_of(tracer, v, p) for v, p in zip(leaves, paths)]
            self.results_of[body] = leaves
        return body

    def _settle(self) -> bool:
        """Whether an iteration keeps the kinds. If not, they are set to those that the next attempt uses."""
        new = []
        for path, kind, after in zip(self.paths, self.kinds, self.outputs):
            both = joined(kind, after)
            if both is None or (kind.number is None and both != kind):
                raise self._changed(path, kind, after)
            new.append(both)
        stays = new == self.kinds
        self.kinds = new
        return stays

    def _changed(self, path: str, before: Kind, after: Kind) -> Exception:
        leaves = next(reversed(self.results_of.values()))
        value = leaves[self.paths.index(path)]
        if before.type.shape != after.type.shape:
            advice = "its shape must stay: start with an array of the final size and write into it"
        else:
            advice = f"cast it in the body, .astype({str(before.type.dtype)!r}), or start with {after.type.dtype}"
        return self.tracer.error(
            f"the carried value {path} of {self.what} is {before} before an iteration and {after} after it",
            advice,
            getattr(value, "node", None),
        )

    def run(
        self, bodies: Callable[[], tuple[Body, ...]], op: Op, bounds: dict[str, Any], attributes: Sequence[str]
    ) -> Any:
        """Trace the bodies until the kinds no longer change, and record the loop; returns its results."""
        tracer = self.tracer
        for _ in range(_MOST_ROUNDS):
            self.results_of.clear()
            traced = bodies()
            if self._settle():
                break
        last, nodes = traced[-1], []
        for body in traced:
            with body:
                kinds = self.kinds if body is last else [Kind(TensorType((), dtypes.bool_))]
                leaves = self.results_of[body]
                nodes.append([as_node(tracer, v, k) for v, k in zip(leaves, kinds)])
        captured = _union(traced)
        made = {name: body.finish(r, captured) for name, body, r in zip(attributes, traced, nodes)}
        carried = tuple(as_node(tracer, v, k) for v, k in zip(self.values, self.kinds))
        limits = {n: v if type(v) is int else tracer.create_arg(v) for n, v in bounds.items()}
        parts = record_control(tracer, op, {**limits, "carried": carried, "captured": tuple(captured), **made})
        return put_together(self.structure, [as_value(tracer, n, k) for n, k in zip(parts, self.kinds)])

    def results(self, function: Callable[..., Any], found: list[Structure]) -> list[Kind]:
        """The kinds of the second value that ``function`` returns for the carried values; its form is appended to
        ``found``. Nothing is recorded."""
        tracer = self.tracer
        for _ in range(_MOST_ROUNDS):
            with Body(tracer, self.what) as body:
                carry, y = _pair(tracer.captured(function)(self._inputs(body)))
                leaves, paths, form = taken_apart(tracer, y, "y")
                kinds = [kind_of(tracer, v, p) for v, p in zip(leaves, paths)]
                after, _, after_form = taken_apart(tracer, carry, "carry")
                self.outputs = [kind_of(tracer, v, "carry") for v in after]
                self.results_of[body] = after
            if after_form != self.structure or self._settle():
                break
        found.append(form)
        return kinds


def truth(value: Any, what: str) -> bool:
    """A single bool as a Python bool. Raises DTypeError for anything else."""
    if type(value) is bool:
        return value
    array = np.asarray(value)
    if array.ndim or array.dtype != np.bool_:
        raise DTypeError(
            f"{what} must be one bool, not {array.dtype}{list(array.shape)}: compare it, x > 0, or "
            "take x.any() or x.all() of several"
        )
    return bool(array[()])


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    found = pytree.children_of(value)
    return function(value) if found is None else pytree.rebuilt(value, [_mapped(v, function) for v in found[2]])


def _copied(value: Any) -> Any:
    """A copy of an array; numbers, including arrays of rank 0, are immutable and returned unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    return np.array(value) if value.ndim else value[()]


def owned(value: Any) -> Any:
    """The nested value, with its arrays copied."""
    return _mapped(value, _copied)


def read_only(value: Any) -> Any:
    """The nested value, with read-only views in place of its arrays."""

    def view(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        made = value.view()
        made.flags.writeable = False
        return made

    return _mapped(value, view)


def iterate(
    function: Callable[..., Any],
    init: Any,
    leads: Iterable[tuple[Any, ...]] | None = None,
    test: Callable[..., Any] | None = None,
) -> Any:
    """Run a loop: call ``function`` with each item of ``leads`` and the carried values or, if there is a
    ``test``, with the carried values one by one as long as the test is true of them.

    If the first iteration turns a Python number into a NumPy number, the loop starts with a number of that
    type, as a traced loop does."""
    values = owned(init)
    is_first = True
    for lead in itertools.repeat(()) if leads is None else leads:
        if test is not None and not truth(test(*values), "what cond_fn gives"):
            break
        new = run_body(function, lead, values, test is not None)
        if is_first:
            start = _typed(init, new)
            if start is not init:
                new = run_body(function, lead, owned(start), test is not None)
            is_first = False
        values = new
    return values


def _typed(init: Any, new: Any) -> Any:
    """The start values of a loop, with its Python numbers in the types that they have after an iteration;
    ``init`` itself if none of them changes."""
    after = pytree.leaves(new)
    changed = []

    def typed(value: Any) -> Any:
        _, then = next(after, ("", None))
        if type(value) not in (bool, int, float, complex) or not isinstance(then, np.generic | np.ndarray):
            return value
        changed.append(then)
        return then.dtype.type(value)

    made = _mapped(init, typed)
    return made if changed else init


def run_body(function: Callable[..., Any], lead: tuple[Any, ...], carried: Any, spread: bool = False) -> Any:
    """The carried values after one iteration (``spread``: they are given as separate arguments). An array that
    the body returns in the same place already belongs to the loop; others are copied."""
    result = function(*lead, *(carried if spread else (carried,)))
    if spread and isinstance(result, list):
        result = tuple(result)
    if spread and not isinstance(result, tuple) and len(carried) == 1:
        result = (result,)
    before = pytree.leaves(carried)
    return _mapped(result, lambda v: v if v is next(before, ("", None))[1] else _copied(v))
