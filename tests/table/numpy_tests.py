"""The calls that NumPy's own tests make, as cases of the table.

NumPy's wheel holds its tests. They run here, from where they are installed, with the functions that
the tracer knows exchanged for ones that note their arguments and results. In: nothing. Out: a
:class:`~tests.table.check.Case` for each different call on arrays of dtypes that fxlite has.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fxlite.base.errors import DTypeError
from fxlite.tracing import numpy_api
from fxlite.types import dtypes
from tests.table.check import Case
from tests.table.rows import Row

FILES = """
_core/tests/test_umath.py _core/tests/test_ufunc.py _core/tests/test_numeric.py
_core/tests/test_multiarray.py _core/tests/test_einsum.py _core/tests/test_shape_base.py
_core/tests/test_half.py _core/tests/test_indexing.py _core/tests/test_nep50_promotions.py
_core/tests/test_scalarmath.py lib/tests/test_function_base.py lib/tests/test_shape_base.py
lib/tests/test_arraypad.py lib/tests/test_twodim_base.py lib/tests/test_index_tricks.py
linalg/tests/test_linalg.py
"""
_OPTIONS = [
    *"-q --continue-on-collection-errors -p no:cacheprovider -p no:xdist -o addopts=".split(),
    *"-c /dev/null -W ignore --tb=no -k".split(),
    "not fpexception and not large and not overlap and not avx and not spacing",  # these are long
]
_LARGEST = 4096  # elements of an array
_MOST = 500  # calls of one function that are kept
_PLAIN = (bool, int, float, type(None), str)


def record() -> tuple[list[Case], str]:
    """The cases, and what ran."""
    recorder = _Recorder()
    files = [str(Path(np.__file__).parent / name) for name in FILES.split()]
    outcome = _Outcome()
    with recorder.installed(), contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*_OPTIONS, *files], plugins=[outcome])
    report = (
        f"NumPy {np.__version__}: {outcome.ran:,} tests ran, {recorder.calls:,} calls of functions "
        f"that the tracer knows, {len(recorder.cases):,} different ones on arrays"
    )
    return list(recorder.cases.values()), report


class _Outcome:
    """Counts the tests that ran."""

    ran = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.ran += report.when == "call"


class _Recorder:
    def __init__(self) -> None:
        self.calls = 0
        self.cases: dict[Any, Case] = {}
        self.kept: Counter[str] = Counter()
        self.busy = False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """``np.NAME`` notes its calls, for every NAME of the tracer's tables."""
        known = {f.__name__: f for f in (*numpy_api._FUNCTIONS, *numpy_api._UFUNCS)}
        own = {n: f for n, f in known.items() if getattr(np, n, None) is f}
        for name, function in own.items():
            setattr(np, name, _Noting(self, name, function))
        try:
            yield
        finally:
            for name, function in own.items():
                setattr(np, name, function)

    def call(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a call, and keep it if it can be a case."""
        if self.busy:
            return function(*args, **kwargs)
        self.busy = True
        try:
            self.calls += 1
            is_wanted = self.kept[name] < _MOST
            case = self._case(name, function, args, kwargs) if is_wanted else None
            try:
                result: Any = function(*args, **kwargs)
            except Exception as error:
                result = error
            if case is not None and _is_plain_result(result):
                case.expected = [result if isinstance(result, Exception) else np.array(result)]
                if self.cases.setdefault(case.row.roles, case) is case:
                    self.kept[name] += 1
            if isinstance(result, Exception):
                raise result
            return result
        finally:
            self.busy = False

    def _case(self, name: str, function: Any, args: Any, kwargs: Any) -> Case | None:
        """The case of a call, without its result; None for one with other things than arrays."""
        arrays: list[Any] = []

        def text(value: Any) -> str:
            if type(value) is np.ndarray and value.size <= _LARGEST:
                arrays.append(value.copy())
                return "abcdefgh"[len(arrays) - 1]
            if isinstance(value, np.generic) and type(value) in _SCALARS:
                return f"np.{type(value).__name__}({value.item()!r})".replace("nan", "np.nan").replace("inf", "np.inf")
            if type(value) in (tuple, list):
                inner = ", ".join(text(v) for v in value)
                return f"({inner},)" if type(value) is tuple else f"[{inner}]"
            if type(value) in _PLAIN:
                shown = repr(value)
                return f"np.{shown}" if shown in ("nan", "inf") else shown
            if isinstance(value, (np.dtype, type)):
                return f"np.dtype({np.dtype(value).str!r})"
            raise _NotPlain

        try:
            parts = [text(a) for a in args]
            parts += [f"{k}={text(v)}" for k, v in kwargs.items() if k != "out" or v is not None]
            kinds = tuple(f"{dtypes.dtype(a.dtype).name}[{','.join(map(str, a.shape))}]" for a in arrays)
        except (_NotPlain, DTypeError, TypeError, ValueError, IndexError, RecursionError):
            return None
        writes = kwargs.get("out") is not None or len(args) > getattr(function, "nin", len(args))
        if writes or not arrays or not all(a.dtype.isnative for a in arrays):
            return None
        call = f"np.{name}({', '.join(parts)})"
        keys = tuple(f"{call}{n}{hash(a.tobytes())}" for n, a in enumerate(arrays))
        row = Row(name, call, kinds, keys, (0,))

        def program(*values: Any) -> Any:
            return _run(call, values)

        return Case(row, _named(program, len(arrays)), [[np.array(a) for a in arrays]], [])


def _run(call: str, arrays: Any) -> Any:
    return eval(call, {"np": np, **dict(zip("abcdefgh", arrays))})


def _named(program: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The program with parameters a, b, ..."""
    names = ", ".join("abcdefgh"[:count])
    made: Callable[..., Any] = eval(f"lambda {names}: program({names})", {"program": program})
    return made


_SCALARS = tuple(d.numpy.type for d in dtypes.ALL)


class _NotPlain(Exception):
    """A call holds something other than arrays, numbers and their like."""


class _Noting:
    """Stands for a function of NumPy, whose attributes it has."""

    def __init__(self, recorder: _Recorder, name: str, function: Any) -> None:
        self.__dict__.update(_recorder=recorder, _name=name, _function=function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorder.call(self._name, self._function, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _is_plain_result(result: Any) -> bool:
    if isinstance(result, Exception):
        return not isinstance(result, FloatingPointError)  # the test asked for it: np.errstate
    if not isinstance(result, (np.ndarray, np.generic, bool, int, float)):
        return False
    if isinstance(result, np.ndarray) and type(result) is not np.ndarray:
        return False
    return np.asarray(result).dtype.kind in "biuf"
