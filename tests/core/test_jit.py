"""fx.jit: one version for all calls that it serves, a new one for each that it does not, and never
the result of another version."""

from __future__ import annotations

import array
import copy
import functools
import gc
import threading
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import ArgumentError, DTypeError, ShapeError, TraceError

RNG = np.random.default_rng(0)
SCALE = 2.0
TABLE = np.arange(4.0)
SETTINGS: dict[str, Any] = {"gain": 3.0, "deep": [1.0, np.ones(4)]}


def values(*shape: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(dtype)


def python(function: Any, **options: Any) -> Any:
    return fx.jit(function, backend="python", **options)


def agrees(call: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    expected, result = function(*args, **kwargs), call(*args, **kwargs)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert np.asarray(result).dtype == np.asarray(expected).dtype


# -- which version ---------------------------------------------------------------------------------
def affine(x: Any, y: Any, times: int = 2) -> Any:
    for _ in range(times):
        x = x * 2 + y
    return x


def test_one_version_serves_all_sizes_that_the_program_allows() -> None:
    call = fx.jit(affine)
    y = values(4)
    for size in (5, 7, 2, 300):
        agrees(call, affine, values(size, 4), y)
    agrees(call, affine, values(6, 9), values(9))
    assert len(call.versions) == 1
    assert [str(p.type) for p in call.graph.placeholders] == ["f64[x_0,x_1]", "f64[x_1]"]
    assert "void" in call.source and "for (" in call.source


def test_what_differs_is_compiled_anew_and_said() -> None:
    call = python(affine)
    x, y = values(5, 4), values(4)
    steps = [
        (x, y, 2),
        (x, y, 3),
        (x.astype("f4"), y.astype("f4"), 2),
        (x[0], y, 2),
        (x[:1], y, 2),
        (x, y[0], 2),
        (x, 1.5, 2),
        (x, True, 2),
        (x, 1, 2),
        (x[:0], y, 2),
    ]
    for args in steps:
        agrees(call, affine, *args)
        agrees(call, affine, *args)
    reasons = [v.reason for v in call.versions]
    assert reasons == [
        "the first call",
        "times is 3, was 2",
        "x is float32, was float64",
        "x has 1 axis, had 2",
        "axis 0 of x is 1, was more than 1",
        "y has 0 axes, had 1",
        "y is 1.5, was an array",
        "y is True, was 1.5",
        "y is 1, was True",
        "axis 0 of x is 0, was 1",
    ]
    assert all(reason in call.explain() for reason in reasons)


@pytest.mark.parametrize(("one", "other"), [(0.0, -0.0), (1, 1.0), (1, True), ("a", b"a")])
def test_values_that_are_equal_and_differ(one: Any, other: Any) -> None:
    def told(x: Any, value: Any) -> Any:
        return x * (1 if repr(value) == repr(one) else 2)

    call = python(told)
    x = values(3)
    for value in (one, other, one, float("nan"), float("nan")):
        agrees(call, told, x, value)
    assert len(call.versions) == 3


def test_sizes_that_the_program_needs_as_numbers_are_numbers() -> None:
    def rows(x: Any, weight: Any) -> Any:
        total = 0
        for row in range(x.shape[0]):
            total = total + x[row] * weight
        return total

    call = python(rows)
    for count in (3, 5, 3):
        for width in (6, 8):
            agrees(call, rows, values(count, width), values(width))
    assert len(call.versions) == 1, "the loop runs as often as a named size says"

    def columns(x: Any, weight: Any) -> Any:
        return [x[row] * weight for row in range(x.shape[0])]

    call = python(columns)
    for count in (3, 5, 3):
        for width in (6, 8):
            agrees(call, columns, values(count, width), values(width))
    assert len(call.versions) == 2, "the list has as many values as a number says"
    assert "sizes are numbers because: range()" in call.explain()
    assert [str(p.type) for p in call.graph.placeholders] == ["f64[3,x_1]", "f64[x_1]"]


def test_sizes_that_are_equal_by_chance() -> None:
    def outer(x: Any, y: Any) -> Any:
        return x[:, None] * y

    call = python(outer)
    agrees(call, outer, values(4), values(4))
    agrees(call, outer, values(4), values(5))
    agrees(call, outer, values(7), values(9))
    assert [v.reason for v in call.versions] == ["the first call", "axis 0 of y is 5, and x_0 is 4"]


def test_conditions_on_sizes_are_not_errors_of_other_calls() -> None:
    def halves(x: Any) -> Any:
        return x.reshape(2, -1)[0] if x.shape[0] % 2 == 0 else x

    call = python(halves)
    for size in (4, 8, 5, 7, 6):
        agrees(call, halves, values(size))


def test_a_size_that_a_constant_gives_is_a_number() -> None:
    @fx.jit(backend="python")
    def inner(x: Any, n: int) -> Any:
        return x[1 : n - 1] * 2

    inner(np.ones(5), 5)
    assert inner.versions[0].pattern == [[5]]
    assert "sizes are numbers because: x_0 is n, which is 5" in inner.explain()
    assert inner(np.ones(6), 5).shape == (3,)
    assert inner.versions[1].pattern == [["x_0"]]


def test_fixed_sizes_where_they_are_wanted() -> None:
    call = python(affine, dynamic=False)
    for size in (5, 6, 5):
        agrees(call, affine, values(size, 4), values(4))
    assert len(call.versions) == 2 and str(call.versions[0].module.graph.placeholders[0].type) == ("f64[5,4]")


def test_open_parameters_that_get_nothing_keep_the_defaults_behind_them() -> None:
    def total(*arrays: Any, times: int = 2) -> Any:
        return sum(arrays, np.zeros(3)) * times

    call = python(total)
    for arrays in ((), (values(3),), (values(3), values(3)), ()):
        agrees(call, total, *arrays)
        agrees(call, total, *arrays, times=3)


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: Any = "layer"


def test_nested_arguments_and_results() -> None:
    def run(layers: list[Layer], *more: Any, options: dict[str, Any], **rest: Any) -> Any:
        x = more[0]
        for layer in layers:
            x = x @ layer.weight + layer.bias * options["gain"]
        return {"y": x, "all": (x + more[1], Layer(x * rest["last"], x, 1))}

    call = python(run)
    layers = [Layer(values(4, 4), values(4), "first"), Layer(values(4, 4), values(4))]
    for gain in (2.0, 3.0):
        args = (layers, values(5, 4), values(4)), {"options": {"gain": gain}, "last": values(4)}
        expected, result = run(*args[0], **args[1]), call(*args[0], **args[1])
        np.testing.assert_allclose(result["y"], expected["y"])
        assert isinstance(result["all"][1], Layer) and result["all"][1].name == 1
        np.testing.assert_allclose(result["all"][1].weight, expected["all"][1].weight)
    assert call.versions[1].reason == "options['gain'] is 3.0, was 2.0"
    layers.append(layers[0])
    call(*args[0], **args[1])
    assert call.versions[2].reason == "layers has another structure"


def test_arguments_that_are_written_into() -> None:
    def step(x: Any, out: Any, cache: list[Any], scale: float = 2.0) -> None:
        out[...] = x * scale
        cache[0][1] += x[0]

    call, one, other = fx.jit(step), np.zeros((3, 4)), np.zeros((3, 4))
    x, mine, yours = values(3, 4), [np.ones((2, 4))], [np.ones((2, 4))]
    for scale in (2.0, 3.0):
        assert call(x, one, mine, scale=scale) is None
        step(x, other, yours, scale=scale)
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(mine[0], yours[0])


def test_an_argument_that_is_returned_is_the_caller_s() -> None:
    """As in NumPy: what is written into the result later is written into the argument."""

    def step(x: Any, y: Any, n: Any) -> Any:
        x += 1.0
        for k in range(n):
            y[k] = y[k] * 0.5
        return {"all": [y, x * 2.0, x], "same": (x, n), "part": x[1:]}

    for call in (fx.jit(step), python(step)):
        x, y = values(6), values(6)
        mine, yours = x.copy(), y.copy()
        found, expected = call(x, y, 3), step(mine, yours, 3)
        assert found["all"][0] is y and found["all"][2] is x and found["same"][0] is x and found["same"][1] == 3
        np.testing.assert_array_equal(x, mine)
        np.testing.assert_array_equal(y, yours)
        np.testing.assert_allclose(found["all"][1], expected["all"][1])
        np.testing.assert_array_equal(found["part"], expected["part"])
    x = values(3)
    assert fx.jit(lambda x: x)(x) is x
    assert fx.jit(lambda x: x.reshape(3, 1))(x) is not x


def test_a_result_that_is_always_the_same_is_computed_once() -> None:
    def steps(n: Any, most: Any) -> Any:
        total, count = np.zeros(n), 0
        while total.sum() < most:
            total += 0.5
            count += 1
        return total, count

    call = fx.jit(steps)
    for most in (8.0, 8.0, 20.0, 8.0):
        found, expected = call(3, most), steps(3, most)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1] == expected[1] and type(found[1]) is int
        found[0][:] = -1.0  # the caller's own
    assert len(call.versions) == 2


def counting_sort(x: Any) -> Any:
    counts = np.zeros(x.max() + 1, dtype=int)
    for v in x:
        counts[v] += 1
    out, k = np.empty_like(x), 0
    for i in range(len(counts)):
        for _ in range(counts[i]):
            out[k] = i
            k += 1
    return out, counts


def sieve(x: Any) -> Any:
    n = int(x.max())
    is_prime = np.ones(n + 1, bool)
    is_prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if is_prime[i]:
            is_prime[i * i :: i] = False
    return np.nonzero(is_prime)[0], np.full(n, 0.5)


def decoded(x: Any) -> Any:
    """Run lengths."""
    long = np.repeat(np.sqrt(x), x)
    return long, len(long), np.repeat(x[:2], x[1])


@pytest.mark.parametrize("program", [counting_sort, sieve, decoded])
def test_arrays_of_computed_sizes_get_more_room(program: Any) -> None:
    call, rng = fx.jit(program), np.random.default_rng(1)
    for most in (9, 40, 3000, 12):
        x = rng.integers(0, most, 11)
        x[3] = most
        for found, expected in zip(call(x), program(x), strict=True):
            np.testing.assert_array_equal(found, expected)
            assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_sizes_and_positions_that_cannot_be_are_errors_as_in_numpy() -> None:
    call = fx.jit(lambda x: np.zeros(int(x[0])))
    assert call(np.array([3])).shape == (3,)
    with pytest.raises(ValueError, match="negative dimensions"):
        call(np.array([-1]))

    def program(x: Any) -> Any:
        y = np.zeros(x[0])
        y[x[1]] = 1.0
        return y

    call = fx.jit(program)
    np.testing.assert_array_equal(call(np.array([3, 1])), [0.0, 1.0, 0.0])
    with pytest.raises(IndexError):
        call(np.array([3, 2**40]))


def test_a_size_that_has_a_bound_gets_the_room_for_it() -> None:
    """The bound holds also where the size could be negative, which is an error."""

    def program(x: Any) -> Any:
        return np.zeros(len(x[x > 0]) - 3)

    call = python(program)
    for number in (3, 5, 400):
        x = np.ones(number + 2)
        assert call(x).shape == program(x).shape
    assert len(call.versions) == 1
    with pytest.raises(ValueError, match="negative dimensions are not allowed"):
        call(np.array([1.0, -1.0, 1.0]))


def test_an_array_that_is_too_large_names_its_place() -> None:
    call = python(lambda n: np.zeros(int(n[0])).sum())
    said = r"an array: there are more than 1048576 elements.*\n  at .*test_jit.py:\d+: np.zeros.*\n  instead: let"
    with pytest.raises(RuntimeError, match=said):
        call(np.array([2**23]))


@functools.cache
def doubled(x: float) -> float:
    return x * 2


def test_a_cached_function_is_captured_for_numbers_that_are_not_known() -> None:
    def program(x: Any) -> Any:
        return doubled(x.sum()) + doubled(2.0) + doubled(len(x))

    call = python(program)
    for number in (3, 4):
        agrees(call, program, values(number))
    assert len(call.versions) == 1
    with pytest.raises(TypeError, match="x is used as the key of a dict"):
        python(lambda x: doubled(x))(values(3))


def test_the_text_of_an_exception_shows_no_traced_values() -> None:
    def always(x: Any) -> Any:
        raise ValueError(f"bad {x.sum()}, {x}")

    def sometimes(x: Any) -> Any:
        if x.sum() > 0:
            raise ValueError(f"bad {x.sum():.3f}")
        return x

    with pytest.raises(ValueError, match=r"^bad \.\.\., \.\.\.$"):
        python(always)(values(3))
    with pytest.raises(ValueError, match=r"^bad \.\.\.\n"):
        python(sometimes)(np.ones(3))


def test_counts_of_numbers_without_a_bound_get_more_room() -> None:
    """np.bincount has as many counts as the largest number needs, which is not known before the call."""

    def counts(x: Any, w: Any) -> Any:
        found = np.bincount(x)
        return found, np.bincount(x, weights=w) / found.sum(), np.argmax(found)

    call, rng = fx.jit(counts), np.random.default_rng(0)
    for most in (5, 255, 256, 50_000, 3):
        x = rng.integers(0, most, 40)
        x[7] = most
        for found, expected in zip(call(x, x * 0.5), counts(x, x * 0.5), strict=True):
            np.testing.assert_allclose(found, expected)
            assert found.dtype == expected.dtype
    with pytest.raises(RuntimeError, match=r"np\.bincount: there are more than"):
        call(x + 2**40, x * 0.5)


# -- what the program reads besides ----------------------------------------------------------------
def factor() -> float:
    return SCALE


def reads_globals(x: Any) -> Any:
    return x * factor() + TABLE * SETTINGS["gain"] + SETTINGS["deep"][1]


def test_changed_globals_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = python(reads_globals), values(4)

    def other() -> float:
        return 11.0

    changes: list[tuple[Callable[[], Any], str]] = [
        (lambda: None, "the first call"),
        (lambda: monkeypatch.setitem(globals(), "SCALE", 5.0), "SCALE is 5.0, was 2.0"),
        (lambda: TABLE.__setitem__(0, 9.0), "numbers in TABLE changed"),
        (lambda: SETTINGS["deep"][1].__setitem__(0, 7.0), "numbers in SETTINGS['deep'][1] changed"),
        (lambda: SETTINGS.update(gain=4.0), "SETTINGS['gain'] is 4.0, was 3.0"),
        (lambda: SETTINGS.update(more=1), "SETTINGS['more'] was added or removed"),
        (lambda: monkeypatch.setitem(globals(), "factor", other), "factor is another function"),
        (lambda: monkeypatch.setitem(globals(), "TABLE", np.arange(4)), "TABLE is int64[4], was float64[4]"),
    ]
    for change, _ in changes:
        change()
        agrees(call, reads_globals, x)
        agrees(call, reads_globals, x)
    assert [v.reason for v in call.versions] == [reason for _, reason in changes]


class Slots:
    __slots__ = ("gain",)

    def __init__(self, gain: float) -> None:
        self.gain = gain

    def scaled(self, x: Any) -> Any:
        return x * self.gain


def scaled(table: Any, x: Any) -> Any:
    return x * table[0]


class Version(NamedTuple):
    table: Any
    number: int


READ: dict[str, Any] = {
    "OrderedDict": OrderedDict(gain=2.0),
    "deque": deque([2.0]),
    "namespace": types.SimpleNamespace(gain=2.0),
    "named tuple": Version(np.array([2.0]), 1),
    "bytearray": bytearray([2]),
    "array": array.array("d", [2.0]),
    "partial": functools.partial(scaled, TABLE),
    "slots": Slots(2.0),
}
CONTENTS: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any], Any]]] = [
    ("OrderedDict", lambda own, x: x * own["gain"], lambda own: own.update(gain=5.0)),
    ("deque", lambda own, x: x * own[0], lambda own: own.append(own.popleft() + 3)),
    ("namespace", lambda own, x: x * own.gain, lambda own: setattr(own, "gain", 5.0)),
    ("named tuple", lambda own, x: x * own.table[0], lambda own: own.table.__setitem__(0, 5.0)),
    ("bytearray", lambda own, x: x * own[0], lambda own: own.__setitem__(0, 5)),
    ("array", lambda own, x: x * own[0], lambda own: own.__setitem__(0, 5.0)),
    ("partial", lambda own, x: own(x), lambda own: own.args[0].__setitem__(0, 15.0)),
    ("slots", lambda own, x: own.scaled(x), lambda own: setattr(own, "gain", 5.0)),
]


@pytest.mark.parametrize(("name", "read", "change"), CONTENTS, ids=[name for name, _, _ in CONTENTS])
def test_changed_contents_of_containers_are_seen(name: str, read: Any, change: Any) -> None:
    own, x = READ[name], values(4)

    def program(x: Any) -> Any:
        return read(own, x)

    call = python(program)
    agrees(call, program, x)
    change(own)
    agrees(call, program, x)
    assert len(call.versions) == 2


def test_a_partial_function_is_looked_into() -> None:
    table, x = np.ones(2), values(3)
    call = python(functools.partial(scaled, table))
    np.testing.assert_array_equal(call(x), x)
    table[0] = 3.0
    np.testing.assert_array_equal(call(x), x * 3)


def test_arrays_in_deques_and_namespaces_are_inputs() -> None:
    def program(queue: Any, own: Any) -> Any:
        own.a *= 2
        return queue[0] * own.k + own.a

    call = python(program)
    for number in range(3):
        given = [deque([values(3), values(2)]), types.SimpleNamespace(a=np.full(3, float(number)), k=2)]
        own = copy.deepcopy(given)
        np.testing.assert_array_equal(call(*given), program(*own))
        np.testing.assert_array_equal(given[1].a, own[1].a)
    assert len(call.versions) == 1

    def replaces(own: Any) -> Any:
        own.a = own.a * 2
        return own.a.sum()

    with pytest.raises(TraceError, match=r"changes own\.a, which belongs to the caller"):
        python(replaces)(types.SimpleNamespace(a=values(3)))


def test_changed_code_closures_and_modules_are_seen() -> None:
    other = types.ModuleType("constants")
    other.__file__ = __file__
    other.OFFSET = 1.0  # type: ignore[attr-defined]
    gain = 2.0

    def helper(x: Any) -> Any:
        return x * gain

    def program(x: Any) -> Any:
        return helper(x) + constants.OFFSET  # noqa: F821

    program.__globals__["constants"] = other
    try:
        call, x = python(program), values(3)
        agrees(call, program, x)
        gain = 3.0
        agrees(call, program, x)
        other.OFFSET = 4.0  # type: ignore[attr-defined]
        agrees(call, program, x)
        helper.__code__ = (lambda x: x - gain).__code__
        agrees(call, program, x)
    finally:
        del program.__globals__["constants"]
    assert [v.reason for v in call.versions][1:] == [
        "gain is 3.0, was 2.0",
        "constants.OFFSET is 4.0, was 1.0",
        "helper is another function",
    ]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.scale = 2.0

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale

    @fx.jit(backend="python")
    def twice(self, x: Any) -> Any:
        return self.forward(x) * 2


def test_modules_follow_their_weights() -> None:
    net, x = Net(), values(5, 4, dtype=np.float32)
    call = fx.jit(net)
    agrees(call, net, x)
    agrees(call, net, values(8, 4, dtype=np.float32))
    net.linear.weight.data[:] = 1
    agrees(call, net, x)
    net.linear.bias = nn.Parameter(np.ones(3, np.float32))
    agrees(call, net, x)
    net.scale = 3.0
    agrees(call, net, x)
    assert [v.reason for v in call.versions] == [
        "the first call",
        "numbers in self.linear.weight changed",
        "numbers in self.linear.bias changed",
        "self.scale is 3.0, was 2.0",
    ]
    agrees(net.twice, Net.twice.__wrapped__.__get__(net), x)


class Plain:
    def __init__(self, gain: float) -> None:
        self.gain = gain

    @fx.jit(backend="python")
    def apply(self, x: Any) -> Any:
        return x * self.gain


def test_methods_have_versions_for_each_object_and_keep_none_alive() -> None:
    one, other, x = Plain(2.0), Plain(3.0), values(4)
    for _ in range(2):
        np.testing.assert_array_equal(one.apply(x), x * 2)
        np.testing.assert_array_equal(other.apply(x), x * 3)
    one.gain = 5.0
    np.testing.assert_array_equal(one.apply(x), x * 5)
    assert (len(one.apply.versions), len(other.apply.versions)) == (2, 1)
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is None


def test_objects_that_are_arguments_are_looked_into() -> None:
    def program(x: Any, config: Any) -> Any:
        return config.apply(x)

    call, config, x = python(program), Plain(2.0), values(3)
    np.testing.assert_array_equal(call(x, config), x * 2)
    config.gain = 4.0
    np.testing.assert_array_equal(call(x, config), x * 4)
    assert call.versions[1].reason == "config.gain is 4.0, was 2.0"


def test_what_is_frozen_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    call, x = python(reads_globals, frozen=True), values(4)
    before = call(x)
    monkeypatch.setitem(globals(), "SCALE", 50.0)
    np.testing.assert_array_equal(call(x), before)
    assert len(call.versions) == 1


COUNT = 0


def test_a_function_that_changes_what_it_reads_is_refused() -> None:
    def counts(x: Any) -> Any:
        global COUNT
        COUNT += 1
        return x * COUNT

    with pytest.raises(TraceError, match=r"counts.*changes what it reads.*COUNT is 1, was 0"):
        python(counts)(values(3))


# -- the rest --------------------------------------------------------------------------------------
def test_called_with_traced_values_it_is_part_of_the_trace() -> None:
    call = python(affine)

    def program(x: Any) -> Any:
        return call(x, np.ones(4)).sum()

    module = fx.symbolic_trace(program, x="f64[B,4]")
    assert "call_module" not in {n.op for n in module.graph.nodes} and not call.versions
    x = values(3, 4)
    np.testing.assert_allclose(module(x), program(x))
    agrees(python(program), program, x)


def test_what_cannot_be_compiled() -> None:
    def chooses(x: Any) -> Any:
        try:
            return x if x.sum() > 0 else -x
        except ValueError:
            return x

    with pytest.raises(TraceError, match=r"test_jit.py:\d+"):
        python(chooses)(values(3))
    call, x = python(chooses, fallback=True), values(3)
    with pytest.warns(UserWarning, match="chooses runs without being compiled") as told:
        np.testing.assert_array_equal(call(x), chooses(x))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(call(x), chooses(x))
    assert "not compiled: " in call.explain()
    with pytest.raises(TraceError):
        call.lower(x)


def test_many_values_of_one_argument_are_worth_a_warning() -> None:
    call, x = python(affine), values(3)
    with pytest.warns(UserWarning, match=r"because y changes: y is .*np.float64\(y\)") as told:
        for y in range(12):
            call(x, float(y))
    assert len(told) == 1 and told[0].filename == __file__


def test_versions_are_dropped_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fxlite.just_in_time.MOST_VERSIONS", 3)
    call, x = python(affine), values(3)
    for times in (1, 2, 3, 1, 4):
        agrees(call, affine, x, x, times)
    assert [v.arguments["times"] for v in call.versions] == [1, 3, 4]


def test_threads_compile_a_version_once() -> None:
    call, x = python(affine), values(5, 4)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(call(x, x[0]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(call.versions) == 1 and len(results) == 8


def test_bad_use() -> None:
    with pytest.raises(ArgumentError, match="no back end 'fortran77'"):
        fx.jit(affine, backend="fortran77")
    with pytest.raises(ArgumentError, match="no option 'thread'; did you mean threads"):
        fx.jit(affine, thread=2)
    with pytest.raises(ArgumentError, match="takes a function"):
        fx.jit(3)
    call = python(affine)
    for wanted in (lambda: call.graph, lambda: call.source):
        with pytest.raises(ArgumentError, match="was not called yet"):
            wanted()
    with pytest.raises(ArgumentError, match=r"affine\(x.*missing a required argument: 'y'"):
        call(values(3))
    with pytest.raises(ArgumentError, match="multiple values"):
        call(values(3), values(3), x=1)
    with pytest.raises(DTypeError, match=r"affine: y\[0\]: dtype\('O'\)"):
        call(1.0, [np.array([object()])])
    with pytest.raises(ShapeError, match="do not broadcast"):
        call(values(3), values(4))
    assert repr(call) == "<jit of affine for python: 0 versions>"
    assert call.__name__ == "affine" and call.__doc__ is None


class Slotted:
    __slots__ = ("gain",)

    @fx.jit
    def apply(self, x: Any) -> Any:
        return x


def test_objects_without_references_are_refused() -> None:
    with pytest.raises(ArgumentError, match="'__weakref__' to its __slots__"):
        Slotted().apply(values(3))


class Unwilling:
    """An object that answers every unknown name with an error, as some libraries' namespaces do."""

    gain = 2.0

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


UNWILLING = Unwilling()


class Willing:
    """An object that makes a new one for every unknown name, as ``unittest.mock.call`` does."""

    gain = 2.0

    def __getattr__(self, name: str) -> Any:
        return Willing()

    def __call__(self) -> None:
        raise AssertionError


WILLING = Willing()


def test_objects_that_answer_any_name_may_be_read() -> None:
    agrees(python(lambda x: x * UNWILLING.gain), lambda x: x * 2, values(3))
    agrees(python(lambda x: x * WILLING.gain), lambda x: x * 2, values(3))


def test_a_trace_for_other_sizes_than_these_is_made_again() -> None:
    """A size that a trace needs larger than the call's is a number of that version."""
    function = fx.jit(lambda a, b: np.convolve(a, b, "valid"))
    for first, second in ((8, 3), (4, 6), (9, 2), (3, 7)):
        a, b = np.arange(float(first)), np.arange(float(second)) + 1
        np.testing.assert_allclose(function(a, b), np.convolve(a, b, "valid"))
    assert "a_0 >= 6 is required" in function.explain()


def test_numpy_integers_that_are_sizes_are_known() -> None:
    def program(x: Any, n: Any) -> Any:
        out = np.zeros(n)
        for i in range(n):
            out[i] = x[i] * n
        return out, np.tile(x, n), np.eye(n), n + 1

    x = np.arange(6.0)
    jitted = fx.jit(program)
    for n in (np.int64(3), np.int64(2), np.int32(3), np.int64(3), 3):
        for found, expected in zip(jitted(x, n), program(x, n), strict=True):
            assert type(found) is type(expected) and np.asarray(found).dtype == np.asarray(expected).dtype
            np.testing.assert_array_equal(found, expected)
    assert len(jitted.versions) == 4 and "n is np.int64(2), was np.int64(3)" in jitted.explain()
    computed = fx.jit(lambda x, n: x * n)
    assert [computed(x, np.int64(n))[1] for n in range(3)] == [0, 1, 2] and len(computed.versions) == 1


def test_a_call_like_the_last_one_is_one_of_its_version() -> None:
    """What is known of the last call tells other plain values, dtypes, shapes and classes from it, and what the
    program reads."""
    f = fx.jit(_scaled, backend="python")
    x, y = np.arange(3.0), np.arange(1.0, 4.0)
    with np.errstate(divide="ignore"):
        for scale, shift in ((2, 1), (2.0, 1), (True, 1), (0.0, None), (-0.0, None), (2, 1), (np.float64(3), 1)):
            for array in (x, x, y, x.astype(np.float32), x[::-1], x[:2], x.reshape(3, 1), x):
                for _ in range(2):
                    expected, found = _scaled(array, scale, shift), f(array, scale, shift)
                    np.testing.assert_array_equal(found, expected)
                    assert found.dtype == expected.dtype
    global _OFFSET
    before = _OFFSET
    try:
        for _OFFSET in (5.0, 6.0, 5.0):
            np.testing.assert_array_equal(f(x, 2), _scaled(x, 2))
            np.testing.assert_array_equal(f(x, 2), _scaled(x, 2))
    finally:
        _OFFSET = before
    with pytest.raises(ArgumentError):
        f(x, 2, 1, 4)


_OFFSET = 1.0


def _scaled(x: Any, scale: Any, shift: Any = 1) -> Any:
    return 1 / (x * scale) if shift is None else x * scale + shift + _OFFSET


def test_a_call_like_the_last_one_raises_what_that_raises() -> None:
    def picked(x: Any, k: Any) -> Any:
        if k[0] > 5:
            raise ValueError("too many")
        return x[k]

    f, x = fx.jit(picked, backend="c"), np.arange(4.0)
    for _ in range(2):
        np.testing.assert_array_equal(f(x, np.array([1, 2])), [1, 2])
        with pytest.raises(ValueError, match="too many"):
            f(x, np.array([6, 2]))
        with pytest.raises(IndexError, match="out of bounds"):
            f(x, np.array([4, 2]))
