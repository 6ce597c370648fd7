"""What runs NPBench's programs in the benchmark: NumPy, fxlite, numba, jax, and C written by hand.

In: a program with its arguments. Out: for each engine a :class:`Task`, the call on arrays that are
put back before each call. numba compiles the plain NumPy function where it can, else the variant
that NPBench has for it, with ``fastmath=False``; jax runs NPBench's variant, in 64 bits.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite.codegen.runtime.toolchain import compile_flags, find_compiler
from tests.npbench import Benchmark

OURS, HAND = "fxlite", "hand C"
#: One version for all sizes, where fx.jit allows it.
NAMED = "named"
ENGINES = ("numpy", OURS, NAMED, "numba", "jax", HAND)
PEERS = ("numpy", "numba", "jax")
#: Variants for jax whose time is not that of the program.
_COMPUTE_LESS = {"channel_flow": "NPBench's variant discards what its pressure solver gives, which jax then never runs"}
_LOOPS = Path(__file__).parent / "hand_loops.c"


class Unavailable(Exception):
    """Why an engine does not run a program."""


@dataclass(frozen=True)
class Task:
    """A call, what makes its arguments what they were, the arrays that it writes into, and which
    form of the program it is."""

    call: Callable[[], Any]
    before: Callable[[], Any]
    arrays: Mapping[str, Any]
    form: str = ""


def task(engine: str, program: Benchmark, threads: int, written: Sequence[str]) -> Task:
    """An engine's call of a program that writes into the arguments ``written``.

    Raises Unavailable, and whatever the engine raises."""
    if engine == "jax":
        return _jax(program)
    fresh = {name: program.arguments[name] for name in written}
    arrays = {name: value.copy() for name, value in fresh.items()}
    arguments = {**program.arguments, **arrays}

    def before() -> None:
        for name, value in fresh.items():
            arrays[name][...] = value

    form = ""
    if engine in (OURS, NAMED):
        function = fx.jit(program.function, backend="c", threads=threads, dynamic=engine == NAMED)
        form = "" if any(isinstance(v, np.ndarray) for v in arguments.values()) else "constant"
    elif engine == "numba":
        function, form = _numba(program, arguments, before)
    elif engine == HAND:
        function = _by_hand(program)
    else:
        function = program.function
    if engine in ("numpy", OURS, NAMED):
        call = lambda: function(**arguments)  # noqa: E731
    else:
        given = tuple(arguments.values())
        call = lambda: function(*given)  # noqa: E731
    return Task(call, before, arrays, form)


# -- numba and jax ---------------------------------------------------------------------------------
def _numba(program: Benchmark, arguments: Mapping[str, Any], before: Callable[[], Any]) -> tuple[Any, str]:
    """The compiled function: the plain one, or the first of NPBench's variants that compiles."""
    try:
        import numba
    except ImportError:
        raise Unavailable("not installed") from None
    make = functools.partial(numba.njit, parallel=True, fastmath=False, cache=True)
    failures = []
    for form in ("plain", "numba_np", "numba_n", "numba_npr"):
        before()
        try:
            function = make(program.function) if form == "plain" else _variant(program, form, numba, make)
            function(*arguments.values())
            return function, form
        except ModuleNotFoundError:
            continue
        except Exception as error:
            failures.append(f"{form}: {type(error).__name__}")
    raise Unavailable(", ".join(failures))


def _variant(program: Benchmark, form: str, numba: Any, make: Callable[..., Any]) -> Any:
    """A function of NPBench for numba, of which all parts are compiled by ``make``."""
    original = numba.jit, numba.njit

    def compiled(*args: Any, **options: Any) -> Any:
        return make(args[0]) if args and callable(args[0]) else make

    numba.jit = numba.njit = compiled
    try:
        return getattr(_module(program, form), program.function.__name__)
    finally:
        numba.jit, numba.njit = original


def _module(program: Benchmark, form: str) -> Any:
    return importlib.import_module(program.function.__module__.removesuffix("numpy") + form)


def _jax(program: Benchmark) -> Task:
    try:
        import jax
    except ImportError:
        raise Unavailable("not installed") from None
    if program.name in _COMPUTE_LESS:
        raise Unavailable(_COMPUTE_LESS[program.name])
    jax.config.update("jax_enable_x64", True)
    try:
        function = getattr(_module(program, "jax"), program.function.__name__)
    except ModuleNotFoundError:
        raise Unavailable("NPBench has no variant") from None
    arguments = {n: jax.numpy.array(v) if isinstance(v, np.ndarray) else v for n, v in program.arguments.items()}
    if not hasattr(function, "lower"):
        numbers = [name for name, value in program.arguments.items() if not isinstance(value, np.ndarray)]
        places = [n for n, name in enumerate(inspect.signature(program.function).parameters) if name in numbers]
        function = jax.jit(function, static_argnums=places)
    given = tuple(arguments.values())
    return Task(lambda: jax.block_until_ready(function(*given)), lambda: None, {})


# -- C written by hand -----------------------------------------------------------------------------
@functools.cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory(prefix="hand-loops-") as folder:
        path = Path(folder, "loops.so")
        flags = (*compile_flags(), "-shared", "-o", str(path), str(_LOOPS), "-lm")
        subprocess.run([*find_compiler().command, *flags], check=True)
        return ctypes.CDLL(str(path))  # which stays when the file is gone


def _by_hand(program: Benchmark) -> Callable[..., Any]:
    """A function of hand_loops.c, called with the arguments of the program."""
    if program.name not in _HANDS:
        raise Unavailable("")
    function = getattr(_library(), program.name)
    function.restype = None

    def call(*given: Any) -> None:
        function(*given)

    return _HANDS[program.name](call)


def _at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _size(number: int) -> ctypes.c_int64:
    return ctypes.c_int64(number)


def _seidel_2d(call: Any) -> Any:
    return lambda steps, n, a: call(_size(steps), _size(n), _at(a))


def _adi(call: Any) -> Any:
    def adi(steps: int, n: int, u: Any) -> Any:
        made = [np.empty_like(u) for _ in range(3)]
        call(_size(steps), _size(n), _at(u), *map(_at, made))
        return u

    return adi


def _deriche(call: Any) -> Any:
    def deriche(alpha: float, image: Any) -> Any:
        made = [np.empty_like(image) for _ in range(3)]
        call(ctypes.c_double(alpha), *map(_size, image.shape), _at(image), *map(_at, made))
        return made[0]

    return deriche


def _durbin(call: Any) -> Any:
    def durbin(r: Any) -> Any:
        y, old = np.empty_like(r), np.empty_like(r)
        call(_size(len(r)), _at(r), _at(y), _at(old))
        return y

    return durbin


def _nussinov(call: Any) -> Any:
    def nussinov(n: int, seq: Any) -> Any:
        table = np.zeros((n, n), np.int32)
        call(_size(n), _at(seq), _at(table))
        return table

    return nussinov


def _square(call: Any) -> Any:
    return lambda a: call(_size(len(a)), _at(a))


_HANDS: Mapping[str, Callable[[Any], Any]] = {
    "seidel_2d": _seidel_2d,
    "adi": _adi,
    "deriche": _deriche,
    "durbin": _durbin,
    "cholesky": _square,
    "nussinov": _nussinov,
    "floyd_warshall": _square,
}
