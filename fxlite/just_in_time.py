"""``@fx.jit``: a NumPy function that is traced and compiled when it is called with arrays.

In: a function, a method or an nn.Module, and options of :func:`fxlite.compile`. Out:
:class:`JitFunction`, which holds one version of the function for each combination of what a trace
fixes: dtypes and ranks, the values of arguments that are not arrays, and everything that the program
reads besides its arguments. Sizes become named dims as far as the program allows; sizes that are equal
in the first call share a name, and 0 and 1 stay numbers, as in torch.compile.
"""

from __future__ import annotations

import functools
import inspect
import re
import threading
import types
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fxlite.backend import DEFAULT, declared_options, find_backend, take_options
from fxlite.base.checked import checked
from fxlite.base.errors import (
    ArgumentError,
    CodegenError,
    DTypeError,
    FxliteError,
    OutOfRoom,
    ShapeError,
    TraceError,
    did_you_mean,
    number_of,
)
from fxlite.base.state import active_tracer, is_traced
from fxlite.graph import pytree
from fxlite.graph.graph import Graph
from fxlite.graph.graph_module import GraphModule
from fxlite.nn.module import Module
from fxlite.tracing.capture.raised import exception_of
from fxlite.tracing.inputs import signature_of, title
from fxlite.tracing.selections.bounds import FIRST_ROOM, MORE_ROOM, MOST_ROOM
from fxlite.tracing.symbolic_trace import symbolic_trace
from fxlite.tracing.torch_names import refuse_torch_module
from fxlite.tracing.tracer import Tracer
from fxlite.tracing.versions import (
    ARRAYS,
    ATOMS,
    NUMBERS,
    PLAIN,
    PLAIN_CLASSES,
    Known,
    ReadState,
    Seen,
    Shapes,
    Version,
    key_of,
    mapped,
)
from fxlite.types import dtypes
from fxlite.types.facts import Facts
from fxlite.types.shapes import Dim, symbols
from fxlite.types.tensor_type import TensorType

#: The most versions of one function; the one that has not been called for the longest time is dropped.
MOST_VERSIONS = 64
#: The number of versions, differing in the value of one argument, from which on a warning is given.
MANY_VALUES = 8
#: How often a program is traced with fewer and fewer named sizes before all sizes become numbers.
MOST_TRACES = 8
#: Errors that name the size that has to be a number; after any other error, all sizes become numbers.
_MAY_BE_SIZES = (ShapeError, TraceError, CodegenError)
_OWN_OPTIONS = ("backend", "dynamic", "frozen", "fallback", "loops")
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@checked
def jit(
    function: Any = None,
    *,
    backend: str = DEFAULT,
    dynamic: bool = True,
    frozen: bool = False,
    fallback: bool = False,
    loops: str = "auto",
    **options: Any,
) -> Any:
    """Compile a function when it is called: ``@fx.jit``, ``fx.jit(f)``, ``@fx.jit(threads=1)``.

    The result is called like the function: with arrays, nested dicts, lists, tuples or dataclasses of
    arrays, and Python values. It returns what the function returns, and writes into the arrays that
    the function writes into. Each combination of dtypes, ranks and Python values is traced and
    compiled once, for the ``backend`` and with the ``options`` of :func:`fxlite.compile`.

    ``dynamic``: name the sizes, so that one version serves all sizes that the program allows. Where
    the program needs a number (a loop over a size), and with ``dynamic=False``, a version is for one
    combination of sizes.

    Globals, closures and attributes that the program reads are constants of a version. If one of them
    changes, even in place, the next call compiles again. To notice this, each call compares them;
    arrays are compared with a copy. ``frozen=True`` promises that none of them changes and saves the
    comparison and the copy. Buffers that the forward of an nn.Module changes are its state: each call
    changes the module's own buffers.

    ``fallback=True``: NumPy runs what cannot be compiled, with a warning that says why. ``loops``:
    which loops stay loops, see :func:`fxlite.symbolic_trace`.

    Methods are compiled for each object, and an nn.Module with its weights. If the function is called
    with traced values, it becomes part of that trace. A call raises what :func:`fxlite.compile`
    raises, and TraceError for a function that changes a global or an attribute."""
    unknown = dict(options)
    find_backend(backend).checked(take_options(unknown))
    for name in unknown:
        hint = did_you_mean(name, [*declared_options(), *_OWN_OPTIONS], 1)
        raise ArgumentError(f"fx.jit has no option {name!r}{hint}")
    Tracer(loops=loops)  # raises for a wrong value
    settings = _Settings(backend, dynamic, frozen, fallback, loops, dict(options))
    if function is None:
        return lambda wrapped: JitFunction(wrapped, settings)
    return JitFunction(function, settings)


@dataclass(frozen=True)
class _Settings:
    backend: str
    dynamic: bool
    frozen: bool
    fallback: bool
    loops: str
    options: Mapping[str, Any]


class _Recent:
    """A call that was made, to find out in less time than its key takes that the next one is like it: of the same
    plain values, and of arrays of the same dtypes and shapes."""

    def __init__(self, version: Version, args: Sequence[Any], places: Sequence[int]) -> None:
        self.version, self.places = version, places
        self.arguments = [
            (type(value), *((value.dtype, value.shape) if isinstance(value, ARRAYS) else (value, None)))
            for value in args
        ]

    @staticmethod
    def of(version: Version, args: Sequence[Any], left_out: Mapping[str, Any] | None, count: int) -> _Recent | None:
        """The call of a version with ``count`` arrays; None where an equal call may need more than arrays."""
        arrays = [n for n, value in enumerate(args) if type(value) is np.ndarray or type(value) in NUMBERS]
        plain = [value for value in args if not isinstance(value, ARRAYS)]
        if left_out is None or not arrays or len(arrays) != count or len(arrays) + len(plain) != len(args):
            return None
        if not all(type(v) in ATOMS for v in left_out.values()) or not all(map(_is_compared, plain)):
            return None
        if version.places is None or version.rooms or version.refills is not None:
            return None
        return _Recent(version, args, [arrays[place] for place in version.places])

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether a call with these positional arguments is like it."""
        if len(args) != len(self.arguments):
            return False
        for value, (kind, wanted, shape) in zip(args, self.arguments):
            if type(value) is not kind:
                return False
            if kind is np.ndarray:
                if value.dtype is not wanted or value.shape != shape:
                    return False
            elif shape is None and value != wanted:
                return False
        state = self.version.state
        return state is None or state.difference() is None

    def call(self, args: Sequence[Any]) -> Any:
        """The result, or NotImplemented if only a full call can compute it."""
        version = self.version
        try:
            result = version.compiled.call_arrays([args[place] for place in self.places])
        except IndexError as error:
            raised = exception_of(error, version.exceptions)
            if raised is None:
                raise
            raise raised from None
        return result if version.finish is None or result is NotImplemented else version.finish(result)


def _is_compared(value: Any) -> bool:
    """Whether ``==`` tells if a program can distinguish a plain value from another one of its type."""
    return type(value) in (int, bool, str, type(None)) or (type(value) is float and value == value and value != 0)


@dataclass
class _Store:
    """The versions of a function, or of a method for one object."""

    signature: inspect.Signature
    names: Sequence[str] | None = None
    """The names of the parameters if all of them can be given by position, else None."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    left_out: dict[int, dict[str, Any]] = field(default_factory=dict)
    """For each number of positional arguments, the defaults of the parameters that they leave out."""
    by_key: dict[Any, list[Version]] = field(default_factory=dict)
    versions: list[Version] = field(default_factory=list)
    failed: dict[Any, str] = field(default_factory=dict)
    known: frozenset[str] = frozenset()
    """The parameters whose NumPy integers must be known while the function is traced, because they are sizes."""
    room: int = FIRST_ROOM
    """The number of elements for which lists have room that a loop of the function fills."""
    changes: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    recent: _Recent | None = None
    lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        parameters = self.signature.parameters
        if all(p.kind is PLAIN for p in parameters.values()):
            self.names = tuple(parameters)
            found = parameters.values()
            self.defaults = {p.name: p.default for p in found if p.default is not p.empty}
            for given in range(len(self.names) - len(self.defaults), len(self.names) + 1):
                self.left_out[given] = {name: self.defaults[name] for name in self.names[given:]}


# -- the function ----------------------------------------------------------------------------------
class JitFunction:
    """The result of :func:`jit`; see there. ``versions`` holds the compiled versions in the order in
    which they were compiled."""

    def __init__(self, function: Any, settings: _Settings, store: _Store | None = None) -> None:
        if not callable(function):
            raise ArgumentError(f"fx.jit takes a function or nn.Module, not {function!r}")
        refuse_torch_module(function)
        self._root, self._settings = function, settings
        self._function = function.forward if isinstance(function, Module) else function
        self._store = _Store(signature_of(self._function)) if store is None else store
        self._stores: dict[int, tuple[Any, _Store]] = {}
        if not isinstance(function, Module):
            functools.update_wrapper(self, function, updated=())

    def __repr__(self) -> str:
        count = number_of(len(self.versions), "version")
        return f"<jit of {self.name} for {self._settings.backend}: {count}>"

    def __get__(self, owner: Any, cls: type | None = None) -> JitFunction:
        """The method bound to an object; each object has versions of its own."""
        if owner is None:
            return self
        known = self._stores.get(id(owner))
        if known is None or known[0]() is not owner:
            key, forget = id(owner), self._stores.pop
            try:
                reference = weakref.ref(owner, lambda _: forget(key, None))
            except TypeError:
                raise ArgumentError(
                    f"{self.name} is compiled for each object, and a {type(owner).__name__} cannot "
                    "be weakly referenced; add '__weakref__' to its __slots__"
                ) from None
            signature = signature_of(types.MethodType(self._function, owner))
            known = self._stores[key] = reference, _Store(signature)
        return JitFunction(types.MethodType(self._function, owner), self._settings, known[1])

    @property
    def name(self) -> str:
        """The function's name, or the module's class."""
        named = type(self._root) if isinstance(self._root, Module) else self._function
        return str(getattr(named, "__qualname__", named))

    @property
    def versions(self) -> Sequence[Version]:
        """The versions that were compiled."""
        return tuple(self._store.versions)

    # -- calls -------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the version for these arguments, which is compiled if there is none."""
        tracer, store = active_tracer.get(), self._store
        recent = store.recent
        if recent is not None and tracer is None and not kwargs and recent.fits(args):
            result = recent.call(args)
            if result is not NotImplemented:
                store.calls += 1
                recent.version.used = store.calls
                return result
        is_plain = not kwargs and PLAIN_CLASSES.issuperset(map(type, args))
        if tracer is not None or (not is_plain and any(map(is_traced, (*args, *kwargs.values())))):
            is_module = isinstance(self._root, Module)
            own = self._root if is_module or tracer is None else tracer.captured(self._function)
            return own(*args, **kwargs)
        bound = self._bind(args, kwargs)
        arrays: list[Any] = []
        found = self._version(bound, self._settings.fallback, arrays)
        if found is None:
            return self._function(*args, **kwargs)
        store.calls += 1
        found.used = store.calls
        if not kwargs and not store.known:
            store.recent = _Recent.of(found, args, store.left_out.get(len(args)), len(arrays))
        before = [np.copy(array) for array in arrays] if found.rooms else []
        try:
            result = found.call(bound, arrays)
        except IndexError as error:
            raised = exception_of(error, found.exceptions)
            full = raised or next((full for full in found.rooms if full.is_array), None)
            if not isinstance(full, OutOfRoom) or found.states or store.room >= MOST_ROOM:
                if raised is None:
                    raise
                raise raised from None
            for array, content in zip(arrays, before):
                if array.ndim and not np.array_equal(array, content, equal_nan=array.dtype.kind in "fc"):
                    array[...] = content
            with store.lock:
                if found in store.versions:
                    store.room *= MORE_ROOM
                    self._drop(found)
            return self(*args, **kwargs)
        result = result if found.finish is None else found.finish(result)
        return result if found.refills is None else found.refills(result, bound)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """The compiled function of :func:`fxlite.compile` for these arguments, without running it."""
        found = self._version(self._bind(args, kwargs), False, [])
        assert found is not None
        return found.compiled

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names, defaults = self._store.names, self._store.defaults
        if names is not None and len(args) <= len(names):  # in a tenth of the time that the signature takes
            if not kwargs and len(args) in self._store.left_out:
                return {**dict(zip(names, args)), **self._store.left_out[len(args)]}
            given = dict(zip(names, args)) | kwargs
            bound = {n: given[n] if n in given else defaults[n] for n in names if n in given or n in defaults}
            if len(bound) == len(names) and len(given) == len(args) + len(kwargs) <= len(names):
                return bound
        try:
            whole = self._store.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{title(self._function)}: {error}") from None
        whole.apply_defaults()
        return dict(whole.arguments)

    def _version(self, bound: dict[str, Any], fallback: bool, arrays: list[Any]) -> Version | None:
        """The version for bound arguments, whose arrays are appended to ``arrays``; None if the call falls back
        to NumPy."""
        known = self._store.known
        arrays.clear()
        try:
            if known:
                bound = {n: Known(v) if n in known and isinstance(v, np.integer) else v for n, v in bound.items()}
            key = tuple([key_of(value, arrays) for value in bound.values()])
        except RecursionError:
            for name, value in bound.items():
                pytree.require_end(value, name)
            raise
        shapes = tuple([array.shape for array in arrays])
        found = self._find(key, shapes)
        if found is not None:
            return found
        store = self._store
        with store.lock:
            found = self._find(key, shapes)  # another thread may have compiled it
            if found is not None:
                return found
            if fallback and (key, shapes) in store.failed:
                return None
            try:
                found = self._compiled(key, bound, shapes)
            except FxliteError as problem:
                error = problem
                sizes = {n for n, v in bound.items() if isinstance(v, np.integer)}
                if sizes:
                    store.known = known | sizes
                    try:
                        return self._version(bound, False, arrays)
                    except FxliteError as again:
                        store.known, error = known, again
                if not fallback:
                    raise error from None
                store.failed[key, shapes] = text = str(error).splitlines()[0]
                warnings.warn(f"{self.name} runs without being compiled: {text}", stacklevel=3)
                return None
            store.by_key.setdefault(key, []).append(found)
            store.versions.append(found)
            if len(store.versions) > MOST_VERSIONS:
                self._drop(min(store.versions[:-1], key=lambda version: version.used))
            return found

    def _find(self, key: Any, shapes: Shapes) -> Version | None:
        for version in reversed(self._store.by_key.get(key, ())):
            if version.fits(shapes) and (version.state is None or version.state.difference() is None):
                return version
        return None

    def _drop(self, version: Version) -> None:
        self._store.recent = None
        self._store.versions.remove(version)
        for versions in self._store.by_key.values():
            if version in versions:
                versions.remove(version)

    # -- compiling ---------------------------------------------------------------------------------
    def _compiled(self, key: Any, bound: dict[str, Any], shapes: Shapes) -> Version:
        from fxlite.compiler import compile

        settings = self._settings
        reason = self._reason(key, bound, shapes)
        leaves = [leaf for name, value in bound.items() for leaf in pytree.leaves(value, name)]
        objects = {p: leaf for p, leaf in leaves if type(leaf) not in ATOMS and not isinstance(leaf, (*ARRAYS, Known))}
        state = None if settings.frozen else ReadState(self._root, objects)
        paths = [path for path, leaf in leaves if isinstance(leaf, ARRAYS)]
        names = _dim_names(paths, shapes) if settings.dynamic else {}
        fixed: list[str] = []
        for path, leaf in leaves:  # sizes that the constants of this version determine
            if type(leaf) is int and leaf in names:
                fixed.append(f"{names.pop(leaf)} is {path}, which is {leaf}")
        while True:
            pattern = [[names.get(size, size) for size in shape] for shape in shapes]
            try:
                module = self._traced(bound, dict(zip(paths, pattern)), bool(names))
                sizes = {name: size for size, name in names.items()}
                for condition in module.graph.conditions() if names else ():
                    if not condition.holds(sizes):  # the trace does not allow these sizes
                        raise ShapeError(condition.reason)
                compiled = compile(module, backend=settings.backend, **settings.options)
                break
            except Exception as error:
                if not names:
                    raise
                text = (str(error).splitlines() or [""])[0]
                says_size = isinstance(error, _MAY_BE_SIZES)
                fixed.append(text if says_size else f"{type(error).__name__}: {text}")
                blamed = _blamed(names.values(), text) if says_size and len(fixed) < MOST_TRACES else None
                names = {size: n for size, n in names.items() if blamed is not None and n != blamed}
        rebound = module.__dict__.get("_rebound", ())
        if rebound:
            raise TraceError(
                f"{title(self._function)} changes {', '.join(rebound)}, which belongs to the caller. Compiled code "
                f"would not do that; write into the array, {rebound[0]}[...] = value, or copy the container first and "
                "return the copy"
            )
        states = []
        for _, path in module.states:
            owner, _, name = path.rpartition(".")
            states.append((self._root.get_submodule(owner), name, path))
            if state is not None:
                state.let_change(*states[-1][:2])
        changed = None if state is None else state.difference()
        if changed is not None:
            raise TraceError(
                f"{title(self._function)} changes what it reads while it runs: {changed}. Compiled "
                "code would not do that; return the new value, or write into an argument"
            )
        seen = {name: mapped(value, name, _remembered) for name, value in bound.items()}
        signature = inspect.signature(module.forward)
        finish, refills, exceptions = map(module.__dict__.get, ("_finish", "_refills", "_exceptions"))
        return Version(
            module,
            compiled,
            reason,
            fixed,
            seen,
            state,
            paths,
            pattern,
            signature,
            states,
            finish,
            refills,
            exceptions or {},
        )

    def _traced(self, bound: dict[str, Any], sizes: Mapping[str, Sequence[Any]], again: bool) -> GraphModule:
        """The trace with the given sizes for the arrays, by path. If a further attempt may follow
        (``again``), an error reports only the first problem."""
        kinds = {name: p.kind for name, p in self._store.signature.parameters.items()}
        types_of: dict[str, Any] = {}
        concrete: dict[str, Any] = {}

        def type_at(path: str, leaf: Any) -> Any:
            if path not in sizes:
                return None
            try:
                return TensorType(tuple(map(_dim, sizes[path])), dtypes.of_value(leaf))
            except DTypeError as error:
                raise DTypeError(f"{self.name}: {path}: {error}") from None

        for name, value in bound.items():
            parts = dict(pytree.leaves(value, name))
            if not any(path in sizes for path in parts):
                if parts or kinds[name] not in _OPEN:
                    concrete[name] = value.number if isinstance(value, Known) else value
                continue
            types_of[name] = mapped(value, name, type_at)
            if not all(path in sizes or leaf is None for path, leaf in parts.items()):
                concrete[name] = mapped(value, name, lambda p, v: pytree.PH if p in sizes else v)
        loops = self._settings.loops
        tracer = _OneProblem(loops=loops) if again else Tracer(loops=loops)
        tracer.is_finished, tracer.room = True, self._store.room
        scalars = {name: value for name, value in bound.items() if isinstance(value, ARRAYS) and not value.ndim}
        tracer.input_numbers = {name: isinstance(value, np.generic) for name, value in scalars.items()}
        return symbolic_trace(self._root, concrete_args=concrete, inputs=types_of, tracer=tracer)

    def _reason(self, key: Any, bound: dict[str, Any], shapes: Shapes) -> str:
        """Why a call needs a version that does not exist yet."""
        store = self._store
        if not store.versions:
            return "the first call"
        latest = sorted(store.by_key.get(key) or store.versions, key=lambda v: -v.used)
        reason = min((v.differences(bound, shapes) for v in latest), key=len)[0]
        path, _, rest = reason.partition(" is ")
        store.changes[path] += 1
        if store.changes[path] == MANY_VALUES and "axis " not in path and "array" not in rest:
            warnings.warn(
                f"{self.name} was compiled {MANY_VALUES + 1} times because {path} changes: "
                f"{reason}; a Python value is a constant of compiled code. A number that is "
                f"computed with may be an array: np.float64({path}), which computes as float64",
                stacklevel=5,
            )
        return reason

    # -- looking at it -----------------------------------------------------------------------------
    def _last(self) -> Version:
        if not self._store.versions:
            raise ArgumentError(f"{self.name} was not called yet; call it, or lower it: .lower(x)")
        return max(self._store.versions, key=lambda version: version.used)

    @property
    def graph(self) -> Graph:
        """The graph of the version that was called last. Raises ArgumentError before a call."""
        return self._last().module.graph

    @property
    def source(self) -> str:
        """Its source: the first file of ``compiled.sources``. Raises ArgumentError before a
        call."""
        return str(next(iter(self._last().compiled.sources.values())))

    def explain(self) -> str:
        """A text on the versions: the arguments that each is for, the reason why it was compiled, and why
        some of its sizes are numbers instead of names."""
        lines = [repr(self)[1:-1]]
        for number, version in enumerate(self._store.versions):
            lines += [f"{number}: {version}", f"   compiled because: {version.reason}"]
            lines += [f"   sizes are numbers because: {text}" for text in version.fixed]
            if version.state is not None and version.state.names:
                lines.append(f"   reads: {', '.join(version.state.names)}")
        lines += [f"not compiled: {text}" for text in self._store.failed.values()]
        return "\n".join(lines)


class _OneProblem(Tracer):
    """A tracer that stops at its first error, without a search for further problems."""


#: The facts of the sizes for which a version has names: they are larger than 1.
_NAMED = Facts(minimum=2)


def _dim(size: int | str) -> Dim:
    return symbols.symbol(size, _NAMED) if isinstance(size, str) else size


def _remembered(path: str, leaf: Any) -> Any:
    if isinstance(leaf, ARRAYS):
        return Seen(leaf)
    return leaf


def _blamed(names: Iterable[str], text: str) -> str | None:
    """The named size that an error is about: the one that its text names most often, of several the
    last; None if it names none."""
    found = [n for n in re.findall(r"\w+", text) if n in names]
    return max(found[::-1], key=found.count) if found else None


def _dim_names(paths: Sequence[str], shapes: Shapes) -> dict[int, str]:
    """A name for each size other than 0 and 1, derived from the first axis that has this size."""
    names: dict[int, str] = {}
    for path, shape in zip(paths, shapes, strict=True):
        base = re.sub(r"\W+", "_", path).strip("_")
        for axis, size in enumerate(shape):
            if size > 1:
                names.setdefault(size, f"{base}_{axis}")
    return names
