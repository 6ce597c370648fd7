"""Proxy: the object with which a traced program computes. It looks like an ndarray and records nodes.

Operators, ndarray methods, ufuncs and NumPy functions all lead to the same ops
(:mod:`fxlite.tracing.numpy_api` has the table). An operation that needs a value which does not exist
while tracing (``if x > 0``, ``float(x)``, ``np.asarray(x)``) raises a TraceError that says what to write
instead.

A :class:`PythonNumber` stands for a Python number that is not known while tracing, such as a counter or the
number of an iteration. As an operand of an op, it takes the dtype that NumPy gives to a Python number in its
place (NEP 50): ``x * i`` for a float32 ``x`` is float32, whereas a NumPy i64 would make it float64. Operators
that combine only such numbers give such numbers again.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fxlite.base.errors import TraceError
from fxlite.base.facade import above
from fxlite.base.location import FOR_PROGRAM, is_own_file
from fxlite.base.state import UNKNOWN_TEXT, active_tracer, is_traced
from fxlite.ops.elementwise import COMPARISONS
from fxlite.ops.op import OPERATORS, Op, lookup
from fxlite.tracing import numpy_api, numpy_functions
from fxlite.tracing.capture.known import known_value
from fxlite.tracing.functions.elements import Flat
from fxlite.tracing.selections.blocks import Block
from fxlite.tracing.selections.masked import Masked
from fxlite.tracing.subscript import subscript
from fxlite.tracing.torch_names import method_advice
from fxlite.tracing.writes import aliasing
from fxlite.tracing.writes import shared_memory as memory
from fxlite.tracing.writes.in_place import in_place_operator, is_no_number, is_operand
from fxlite.tracing.writes.scatter import set_item
from fxlite.tracing.writes.shared_memory import Memory, View
from fxlite.types import dtypes, shapes
from fxlite.types.dtypes import DType
from fxlite.types.tensor_type import TensorType

if TYPE_CHECKING:
    from fxlite.graph.graph import Node
    from fxlite.ops.op import Op
    from fxlite.tracing.tracer import Tracer


_NUMBER = "keep it an array, or compute the number before tracing"


#: Classes for parts of traced values, which implement NumPy's functions themselves.
SELECTED = frozenset((Masked, Block))


class Proxy:
    """Stands for the value of ``node`` while a program is traced. It can be used like an ndarray; every
    operation on it records a node."""

    __slots__ = ("__weakref__", "_node", "_view", "tracer")
    __array_priority__ = 1000.0

    def __init__(self, node: Node, tracer: Tracer | None = None) -> None:
        """Without a tracer, operations on the proxy are recorded at the insertion point of the node's
        graph."""
        self._node = node
        self.tracer: Tracer = above("appending_tracer")(node.graph) if tracer is None else tracer
        #: The memory of the value in eager NumPy; None: memory of its own, which is not written to.
        self._view: memory.View | None = None

    @property
    def node(self) -> Node:
        """The node of the current value; each write into the memory of the value makes a new one."""
        view = self._view
        if view is None:
            return self._node
        if view.seen == self.tracer.writes.count:
            return view.node
        return aliasing.current_node(view, self.tracer)

    # Called by ops: record a call that has this proxy among its arguments.
    def __fx_record__(self, op: Op, bound: dict[str, Any]) -> Any:
        return self.tracer.record(op, bound)

    # -- attributes of an ndarray ------------------------------------------------------------
    @property
    def type(self) -> TensorType:
        """The type of the value. Raises TraceError in a trace without types."""
        kind = self._node.type  # writes do not change the type
        if not isinstance(kind, TensorType):
            problem = f"the shape or dtype of {self._node.name} is needed, but this trace has no types"
            raise self.tracer.untyped(problem, self._node)
        return kind

    @property
    def is_typed(self) -> bool:
        """False in a trace without types, such as that of a pattern."""
        return isinstance(self._node.type, TensorType)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape: ints, and :class:`~fxlite.types.shapes.NamedDim` for named dims."""
        return tuple(shapes.for_user(d) for d in self.type.shape)

    @shape.setter
    def shape(self, sizes: Any) -> None:
        """``x.shape = sizes``: from now on, ``x`` is a reshaped view of what it was before."""
        tracer = self.tracer
        problem = ""
        if tracer.bodies:
            problem = "the shape of an array is set in a loop or branch whose condition is not known while tracing"
        elif memory.is_number(self):
            problem = "the shape of a number is set"
        elif self._node.op == "placeholder":
            problem = (
                f"the shape of the input {self._node.name} is set, and the array belongs to the caller of the program"
            )
        if problem:
            raise tracer.error(problem, "give the result a name: y = x.reshape(...)", self._node)
        view = numpy_functions.reshape(self, sizes)
        self._node, self._view = view._node, view._view or self._view

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.type.dtype.numpy

    @property
    def ndim(self) -> int:
        return self.type.rank

    @property
    def size(self) -> Any:
        return shapes.for_user(self.type.size)

    @property
    def itemsize(self) -> int:
        return self.type.dtype.itemsize

    @property
    def nbytes(self) -> Any:
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[Any, ...]:
        layout = aliasing.layout_of(self)
        if layout is None:
            problem = f"the strides of {self._node.name}, which depend on where memory has its elements, are not known"
            raise self.tracer.error(problem, "copy it: np.ascontiguousarray(x)", self._node)
        aliasing.take_order_for_granted(memory.view_of(self), self.tracer, always=True)
        return tuple(shapes.for_user(step) * self.itemsize for step in layout.strides)

    @property
    def real(self) -> Any:
        return numpy_functions.real_(self)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        return numpy_functions.imag_(self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if not numpy_functions.is_complex(self):
            raise TypeError("a value of real numbers has no imaginary part to set")
        self.imag[...] = value

    @property
    def flat(self) -> Flat:
        return Flat(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        Flat(self)[...] = value

    @property
    def T(self) -> Any:
        return numpy_functions.transpose(self)

    @property
    def mT(self) -> Any:
        return numpy_functions.swapaxes(self, -1, -2)

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("len() of a rank-0 value")
        return int(shapes.for_user(self.type.shape[0]))  # a named dim raises its own TraceError

    def __pos__(self) -> Proxy:
        return memory.fresh(self, number=True)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def keys(self) -> Any:
        """Called for ``**value``; the tracer decides."""
        return self.tracer.keys(self)

    def __getitem__(self, index: Any) -> Any:
        return subscript(self, index)

    # -- operations that need a value --------------------------------------------------------
    def __bool__(self) -> bool:
        known = known_value(self)
        return self.tracer.to_bool(self) if known is None else bool(known)

    def _no_value(self, what: str, instead: str) -> TraceError:
        self.tracer.needs_flow = True
        return self.tracer.error(
            f"{what} needs the value of {self._node.name}, which does not exist while tracing", instead, self._node
        )

    def _concrete(self, what: str, instead: str) -> Any:
        """The value as an array if it is known while tracing; otherwise raises TraceError."""
        known = known_value(self)
        if known is None:
            raise self._no_value(what, instead)
        return known

    def __float__(self) -> float:
        return float(self._concrete("float()", _NUMBER))

    def __int__(self) -> int:
        return int(self._concrete("int()", _NUMBER))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._concrete("round()", _NUMBER).item(), digits)

    def __trunc__(self) -> int:
        return int(self._concrete("math.trunc()", _NUMBER))

    def __index__(self) -> int:
        known = self._concrete(
            "indexing, range() or a size",
            "use np.take for run-time indices; a size can be an int of Python among the arguments, f(x, int(n)), which "
            "is a known number",
        )
        return operator.index(known[()])  # only for integers, as in NumPy

    def item(self, *args: Any) -> Any:
        return self._concrete(".item()", _NUMBER).item(*args)

    def tolist(self) -> Any:
        instead = "keep it an array, or compute the list before tracing"
        return self._concrete(".tolist()", instead).tolist()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        known = self._concrete(
            "np.asarray, np.array or the index of a plain array",
            "use the value as it is; for array[x] or np.take(array, x) write fx.ops.take(array, x)",
        )
        return np.array(known, dtype)

    def __format__(self, text: str) -> str:
        """The text in a message: the value, or a placeholder if it is not known."""
        known = known_value(self) if self.is_typed else None
        return str(self) if known is None else format(known[()], text)

    def __copy__(self) -> Any:
        return numpy_functions.copy_method(self)

    def __deepcopy__(self, _: Any) -> Any:
        """``copy.deepcopy(x)`` in a program."""
        return numpy_functions.copy_method(self)

    def __contains__(self, value: Any) -> bool:
        return value in self._concrete("'in'", "use (x == value).any()")

    def __hash__(self) -> int:
        """The hash, for fxlite itself. In a program it raises an error, because an array has no hash."""
        code = sys._getframe(1).f_code
        is_own = is_own_file(code.co_filename) and code not in FOR_PROGRAM  # which calls set(x), d.get(x)
        if active_tracer.get() is not self.tracer or is_own:
            return id(self)
        raise self.as_key()

    def as_key(self) -> TraceError:
        """The error for a program that uses the value as a key."""
        self.tracer.needs_flow = True  # captured control flow compares it with the keys of the dict
        return self.tracer.error(
            f"{self._node.name} is used as the key of a dict or put into a set, and its value does not exist while "
            "tracing",
            "keep an array with a place for each number: counts = np.zeros(n), counts[key] += 1",
            self._node,
        )

    # -- writes ------------------------------------------------------------------------------
    def __setitem__(self, index: Any, value: Any) -> None:
        set_item(self, index, value)

    def made_view_of(self, base: Proxy) -> None:
        """Record that this value of rank 0, an element of ``base``, is a view and not a number."""
        memory.attach(self, base, self._node.target, self._node.kwargs)

    # -- dispatch ----------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if not SELECTED.isdisjoint(map(type, inputs)):
            return NotImplemented  # Python calls its method next
        return numpy_api.call_ufunc(self.tracer, ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not SELECTED.isdisjoint(types):
            return NotImplemented
        return numpy_api.call_function(self.tracer, function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in numpy_api.METHODS:
            if name.startswith("__"):
                raise AttributeError(name)
            raise self.tracer.error(
                f"a traced value has no attribute or method {name!r}",
                method_advice(name) or f"known methods: {', '.join(sorted(numpy_api.METHODS))}",
                self.node,
                AttributeError,
            )
        return lambda *args, **kwargs: numpy_api.call_method(self, name, args, kwargs)

    def __repr__(self) -> str:
        return f"{UNKNOWN_TEXT}{self._node.name}: {self._node.type})"


def _operator(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not is_operand(other) or (type(other) in (list, tuple) and _is_number_beside(self, name)):
            return NotImplemented
        op = lookup(name)
        return op(other, self) if reflected else op(self, other)

    return method


def _is_number_beside(self: Any, name: str) -> bool:
    """Whether an operator treats a value like a Python number if the other operand is a list: ``*`` with an
    integer repeats the list, and any other operator is an error. For NumPy's numbers, in contrast, a list
    becomes an array."""
    if isinstance(self, PythonNumber):
        return True
    kind = self._node.type
    integer = isinstance(kind, TensorType) and kind.dtype.is_integer and not kind.shape
    return name == "mul" and integer and memory.is_number(self) is not False


def _power(self: Any, other: Any) -> Any:
    """``self ** other``. Like NumPy's operator on arrays, but unlike np.power and the operator on NumPy's
    numbers, it squares for the exponent 2, which affects the dtype for bools."""
    kind, squares = self._node.type, type(other) is int and other == 2
    if squares and isinstance(kind, TensorType) and kind.dtype.is_bool and not memory.is_number(self):
        return lookup("square")(self)
    return _operator("pow")(self, other)


def _in_place_operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: in_place_operator(self, lookup(name), other)


for _name, _target in OPERATORS.items():
    setattr(Proxy, f"__{_name}__", _operator(_target))
    setattr(Proxy, f"__r{_name}__", _operator(_target, reflected=True))
    setattr(Proxy, f"__i{_name}__", _in_place_operator(_target))
setattr(Proxy, "__pow__", _power)  # noqa: B010 - mypy knows none of these methods
setattr(Proxy, "__divmod__", lambda self, other: (self // other, self % other))  # noqa: B010
setattr(Proxy, "__rdivmod__", lambda self, other: (other // self, other % self))  # noqa: B010


def _equality(name: str) -> Callable[[Any, Any], Any]:
    """``x == other`` or ``x != other``. As in NumPy, elements are also compared with values that are not numbers
    (None, a text, a dict), to which none is equal. An object with its own comparison is asked first."""
    compare = _operator(name)

    def method(self: Any, other: Any) -> Any:
        found = compare(self, other)
        if found is not NotImplemented or isinstance(self, PythonNumber) or not is_no_number(other):
            return found
        if is_own_file(sys._getframe(1).f_code.co_filename):  # fxlite itself, for instance in a search
            return found
        return np.full_like(self, name == "ne", dtype=np.bool_)

    return method


for _name in COMPARISONS:
    setattr(Proxy, f"__{_name}__", (_equality if lookup(_name).commutative else _operator)(_name))
for _name, _target in (("neg", "neg"), ("abs", "abs"), ("invert", "bitwise_not")):
    setattr(Proxy, f"__{_name}__", lambda self, _target=_target: lookup(_target)(self))


#: The dtypes of Python numbers as arrays.
DTYPES: dict[type, DType] = {bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}


class PythonNumber(Proxy):
    """Stands for a Python number that the program computes at run time."""

    __slots__ = ()

    def __init__(self, node: Node, tracer: Tracer) -> None:
        super().__init__(node, tracer)
        self._view = View(node, Memory(is_number=True), tracer.writes.count)

    @property
    def python_type(self) -> type:
        """bool, int, float or complex."""
        dtype = self.type.dtype
        return bool if dtype.is_bool else float if dtype.is_float else complex if dtype.is_complex else int


def _growing(name: str, reflected: bool = False) -> Callable[[Any, Any], Any]:
    """An operator on integers whose result may need more than 64 bits."""
    target = OPERATORS[name]
    compute = getattr(Proxy, f"__{'r' * reflected}{name}__")

    def method(self: Any, other: Any) -> Any:
        if target == "pow" and not reflected and type(other) is int and other < 0 and self.python_type is int:
            return compute(PythonNumber(lookup("cast")(self, dtypes.float64).node, self.tracer), other)  # as in Python
        result = compute(self, other)
        if isinstance(result, PythonNumber) and result.python_type is int:
            self.tracer.check_integer(lookup(target), *((other, self) if reflected else (self, other)), result)
        return result

    return method


for _name in ("add", "sub", "mul", "pow", "lshift"):
    for _reflected in (False, True):
        setattr(PythonNumber, f"__{'r' * _reflected}{_name}__", _growing(_name, _reflected))


def _beyond_64_bits(name: str) -> Callable[[Any, Any], Any]:
    """``x & n`` or ``x % n``, also for an ``n`` that needs more than 64 bits and is thus larger than ``x``."""
    compute = getattr(Proxy, f"__{name}__")

    def method(self: Any, other: Any) -> Any:
        if type(other) is not int or other < 1 << 63 or self.python_type is not int:
            return compute(self, other)
        kept = self if name == "mod" else compute(self, other % (1 << 63))
        return self.tracer.unless_negative(kept, self)

    return method


for _name in ("and", "rand", "mod"):
    setattr(PythonNumber, f"__{_name}__", _beyond_64_bits(_name))


def kind_of_number(value: Any) -> type | None:
    """bool, int, float or complex for a Python number, known or not; None for anything else."""
    if isinstance(value, PythonNumber):
        return value.python_type
    return type(value) if type(value) in DTYPES else None


def settled_numbers(op: Op, bound: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The arguments of a call, with Python numbers converted to the dtypes that they take there, and whether
    the result is a Python number again."""
    if not any(isinstance(v, PythonNumber) for v in op.tensors(bound)):
        return bound, False
    if op.kind != "pointwise":
        return bound, False
    operands = [bound[n] for n in op.tensor_kinds if n in bound and n != "condition"]
    numbers = [kind_of_number(v) for v in operands]
    strong = [_dtype(v) for v, kind in zip(operands, numbers) if kind is None and v is not None]
    weak = [kind(1) for kind in numbers if kind is not None]
    if not strong:
        return bound, bool(op.symbol) or op.keeps_python_numbers
    target = dtypes.result_type(*strong, *weak)

    def converted(value: Any) -> Any:
        if not isinstance(value, PythonNumber) or value.type.dtype is target:
            return value
        return lookup("cast")(value, target)

    values = {name: value for name, value in bound.items() if name != "condition"}
    return {**bound, **op.map_tensors(converted, values)}, False


def _dtype(value: Any) -> DType:
    if is_traced(value):
        return value.type.dtype
    return dtypes.dtype(np.asarray(value).dtype)


for _name in OPERATORS:
    setattr(PythonNumber, f"__i{_name}__", getattr(PythonNumber, f"__{_name}__"))  # numbers are immutable
