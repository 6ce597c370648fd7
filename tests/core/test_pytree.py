"""Nested inputs and results: taken apart, checked and put together, everywhere a graph goes."""

from __future__ import annotations

import copy
import enum
import pickle
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import fxlite as fx
from fxlite import passes
from fxlite.base.errors import ArgumentError, DTypeError, FileFormatError, ShapeError, TraceError
from fxlite.graph import pytree


@dataclass
class Result:
    total: Any
    parts: Any
    double: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.double = self.total * 2


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Batch:
    ids: Any
    masks: Any


def program(batch: Any, scale: Any = None) -> Any:
    x = batch["ids"] * batch["mask"]
    if scale is not None:
        x = x * scale
    return Result(x.sum(), Pair(x, [x + 1, {"name": None, 3: (x,)}]))


TYPES = {"ids": "f32[B,T]", "mask": "f32[B,T]"}
ARRAYS = {"ids": np.arange(6, dtype=np.float32).reshape(2, 3), "mask": np.float32([[1, 1, 0], [1, 0, 0]])}


def check(result: Any, expected: Any = None) -> None:
    """The result has the program's structure and values."""
    expected = program(ARRAYS) if expected is None else expected
    assert type(result) is Result
    assert type(result.parts) is Pair
    assert type(result.parts.right) is list
    assert list(result.parts.right[1]) == ["name", 3]
    assert result.parts.right[1]["name"] is None
    np.testing.assert_allclose(result.total, expected.total)
    np.testing.assert_allclose(result.double, expected.double)
    np.testing.assert_allclose(result.parts.left, expected.parts.left)
    np.testing.assert_allclose(result.parts.right[1][3][0], expected.parts.right[1][3][0])


def test_inputs_are_flat_and_results_nested(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(program, batch=TYPES)
    assert [(n.name, str(n.type)) for n in gm.graph.placeholders] == [
        ("batch_ids", "f32[B,T]"),
        ("batch_mask", "f32[B,T]"),
    ]
    check(gm(ARRAYS))
    check(gm(batch=ARRAYS))
    check(gm.forward(ARRAYS))
    check(fx.Interpreter(gm).run(ARRAYS))
    fx.save(gm, tmp_path / "nested.fxl")
    for other in (
        gm.copy(),
        copy.deepcopy(gm),
        pickle.loads(pickle.dumps(gm)),
        fx.load(tmp_path / "nested.fxl"),
        fx.symbolic_trace(gm),
        passes.dce(passes.cse(gm)),
        fx.Transformer(gm).transform(),
        fx.GraphModule(gm, fx.Tracer().trace(gm)),
        fx.GraphModule({}, gm.graph.copy()),
    ):
        assert other.graph.interface == gm.graph.interface
        check(other(ARRAYS))
    assert fx.parse(gm.graph.text(full=True)) == gm.graph


@pytest.mark.parametrize("options", [{"backend": "c"}, {"backend": "python"}, {"backend": "cuda", "device": "shim"}])
def test_compiled_functions_take_and_give_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    def with_one_part(batch: Any) -> Any:
        x = batch["ids"] * batch["mask"]
        return Result(x.sum(), Pair(x, [x + 1]))

    fn = fx.compile(with_one_part, batch=TYPES, **options)
    result, expected = fn(ARRAYS), with_one_part(ARRAYS)
    assert type(result) is Result
    assert type(result.parts) is Pair
    np.testing.assert_allclose(result.double, expected.double)
    np.testing.assert_allclose(result.parts.right[0], expected.parts.right[0])
    with pytest.raises(ArgumentError, match=r"batch\['mask'\] is missing"):
        fn({"ids": ARRAYS["ids"]})
    fn.save(tmp_path / "saved")
    assert any((tmp_path / "saved").iterdir())


def test_wrong_inputs_name_the_path() -> None:
    gm = fx.symbolic_trace(program, batch=TYPES)
    with pytest.raises(ArgumentError, match=r"batch\['mask'\] is missing: batch has 'ids'"):
        gm({"ids": ARRAYS["ids"]})
    with pytest.raises(ArgumentError, match=r"batch\['extra'\] is unexpected"):
        gm({**ARRAYS, "extra": 1})
    with pytest.raises(ArgumentError, match="batch must be a dict, not a ndarray"):
        gm(ARRAYS["ids"])
    with pytest.raises(DTypeError, match=r"batch\['mask'\] must be f32\[B,T\], got int64"):
        gm({**ARRAYS, "mask": np.ones((2, 3), np.int64)})
    with pytest.raises(ShapeError, match=r"batch\['mask'\]"):
        gm({**ARRAYS, "mask": np.ones((2, 4), np.float32)})


def test_every_container_as_input() -> None:
    def nested(a: Any, b: Any, c: Any) -> Any:
        return a.ids + a.masks[0] * b[0] + b[1].left - c[1][0]

    a = Batch("f32[4]", ["f32[4]", None])
    gm = fx.symbolic_trace(nested, a, ("f32[4]", Pair("f32[4]", "f32[4]")), {1: ["f32[4]"]})
    assert [n.name for n in gm.graph.placeholders] == ["a_ids", "a_masks_0", "b_0", "b_1_left", "b_1_right", "c_1_0"]
    x = np.float32([1, 2, 3, 4])
    given = Batch(x, [x, None]), (x, Pair(x * 2, x)), {1: [x]}
    np.testing.assert_allclose(gm(*given), nested(*given))
    with pytest.raises(ArgumentError, match="a must be a Batch, not a dict"):
        gm({"ids": x, "masks": [x, None]}, *given[1:])
    with pytest.raises(ArgumentError, match=r"a.masks\[1\] was None .* baked in"):
        gm(Batch(x, [x, x]), *given[1:])
    with pytest.raises(ArgumentError, match=r"a.masks must have 2 items, not 1"):
        gm(Batch(x, [x]), *given[1:])


def test_example_arrays_in_a_structure() -> None:
    gm = fx.symbolic_trace(program, ARRAYS)
    assert str(gm.graph.placeholders[0].type) == "f32[2,3]"
    check(gm(ARRAYS))


def test_some_leaves_concrete() -> None:
    def scaled(batch: Any) -> Any:
        return batch["x"] * batch["scale"] if batch["mode"] == "mul" else batch["x"]

    concrete = {"batch": {"x": fx.PH, "scale": 2.0, "mode": "mul"}}
    gm = fx.symbolic_trace(scaled, batch={"x": "f32[3]"}, concrete_args=concrete)
    assert [n.name for n in gm.graph.placeholders] == ["batch_x"]
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(gm({"x": x, "scale": 2.0, "mode": "mul"}), x * 2)
    with pytest.raises(ArgumentError, match=r"batch\['scale'\] was 2.0 .* cannot be 3.0"):
        gm({"x": x, "scale": 3.0, "mode": "mul"})
    untyped = fx.symbolic_trace(scaled, concrete_args=concrete)
    np.testing.assert_array_equal(untyped({"x": x, "scale": 2.0, "mode": "mul"}), x * 2)
    with pytest.raises(ArgumentError, match=r"batch\['x'\] has no type"):
        fx.symbolic_trace(scaled, batch={"y": "f32[3]"}, concrete_args=concrete)
    with pytest.raises(ArgumentError, match="a ndarray cannot be baked into a nested input"):
        fx.symbolic_trace(scaled, concrete_args={"batch": {"x": fx.PH, "scale": x, "mode": ""}})


def test_retyped_by_structure() -> None:
    gm = fx.symbolic_trace(program, batch=TYPES)
    typed = fx.symbolic_trace(gm, batch={"ids": "f32[2,3]", "mask": "f32[2,3]"})
    assert str(typed.graph.placeholders[1].type) == "f32[2,3]"
    check(typed(ARRAYS))


def test_nested_graph_module_inside_a_program() -> None:
    gm = fx.symbolic_trace(program, batch=TYPES)

    def outer(ids: Any, mask: Any) -> Any:
        result = gm({"ids": ids, "mask": mask})
        return result.parts.left + result.total

    traced = fx.symbolic_trace(outer, "f32[N,T]", "f32[N,T]")
    np.testing.assert_allclose(traced(*ARRAYS.values()), outer(*ARRAYS.values()), rtol=1e-6)


def test_edits_of_inputs_and_results() -> None:
    gm = fx.symbolic_trace(lambda b: Pair(b["x"] + 1, b["y"]), b={"x": "f32[3]", "y": "f32[3]"})
    x = np.float32([1, 2, 3])
    output = gm.graph.output_node()
    output.args = (output.args[0][0],)  # no pair any more
    gm.recompile()
    np.testing.assert_array_equal(gm({"x": x, "y": x}), x + 1)
    with gm.graph.inserting_before():
        gm.graph.placeholder("z", fx.parse_type("f32[3]"))
    gm.recompile()
    assert list(gm.__signature__.parameters) == ["z", "b_x", "b_y"]
    np.testing.assert_array_equal(gm(x, x, x), x + 1)


def test_names_that_collide() -> None:
    gm = fx.symbolic_trace(lambda a, a_b: a["b"] - a_b, {"b": "f32[3]"}, "f32[3]")
    assert [n.target for n in gm.graph.placeholders] == ["a_b", "a_b_1"]
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(gm({"b": x * 2}, x), x)


def test_loading_imports_no_classes(tmp_path: Path) -> None:
    gm = fx.symbolic_trace(program, batch=TYPES)
    fx.save(gm, tmp_path / "nested.fxl")
    code = f"""
import sys, numpy as np, fxlite as fx
gm = fx.load({str(tmp_path / "nested.fxl")!r})
x = np.ones((2, 3), np.float32)
result = gm({{"ids": x, "mask": x}})
assert type(result) is dict and type(result["parts"]) is tuple, result
assert "tests.core.test_pytree" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_class_may_be_given_for_a_file() -> None:
    gm = fx.symbolic_trace(lambda x: Pair(x, x), "f32[3]")
    data = pytree.to_data(gm.graph.interface)  # type: ignore[arg-type]
    assert pytree.from_data(data) == gm.graph.interface
    assert pytree.register_class(Pair) is Pair
    with pytest.raises(ArgumentError, match="neither a dataclass nor a named tuple"):
        pytree.register_class(dict)
    with pytest.raises(FileFormatError, match="'code' is not a kind of structure"):
        pytree.from_data(((), ("code", "", None, (), (), "")))
    with pytest.raises(FileFormatError, match="is not a parameter"):
        pytree.from_data(((("x y", "KEYWORD_ONLY", None),), None))


def test_what_a_program_may_return() -> None:
    with pytest.raises(TraceError, match=r"the program returns None\n  at .*test_pytree.py:\d+\n  instead"):
        fx.symbolic_trace(lambda x: None, "f32[3]")
    with pytest.raises(TraceError, match="a str cannot be used"):
        fx.symbolic_trace(lambda x: (x, "y"), "f32[3]")
    gm = fx.symbolic_trace(lambda x: (x, None, 2.0), "f32[3]")
    first, nothing, two = gm(np.ones(3, np.float32))
    assert nothing is None
    assert two == 2.0
    assert first.shape == (3,)
    assert list(fx.symbolic_trace(lambda x: {(1, 2): x}, "f32[3]")(np.ones(3, np.float32))) == [(1, 2)]
    with pytest.raises(ArgumentError, match=r"the key b'a' of a dict is a bytes; use texts, numbers of Python"):
        fx.symbolic_trace(lambda x: {b"a": x}, "f32[3]")


@dataclass
class Point:
    """A dataclass with parameters of its own, of which it keeps something else."""

    x: Any
    y: Any

    def __init__(self, first: Any, second: Any) -> None:
        self.x, self.y = first * 2, second * 2


def test_a_dataclass_with_an_init_of_its_own_is_made_of_its_fields() -> None:
    def program(points: Any) -> Any:
        return Point(points[0].x, points[1].y), [p.x + p.y for p in points]

    given = [Point(np.float64(1.0), np.float64(2.0)), Point(np.float64(3.0), np.float64(4.0))]
    for _ in range(2):
        assert fx.jit(program)(given) == program(given)


@dataclass
class Link:
    value: Any
    to: Any = None


def test_what_holds_itself_has_no_form() -> None:
    link, pile, deep = Link(np.ones(3)), [np.ones(3)], np.ones(3)
    link.to = link
    pile.append(pile)  # type: ignore[arg-type]
    for _ in range(3000):
        deep = [deep]  # type: ignore[assignment]

    def gives_itself(x: Any) -> Any:
        made = [x + 1]
        made.append(made)
        return made

    for program, given, match in (
        (lambda a: a.value, link, r"a\.to is one of the containers that hold it"),
        (lambda a: a[0], pile, r"a\[1\] is one of the containers that hold it"),
        (lambda a: a[0], {"pile": pile}, r"a\['pile'\]\[1\] is one"),
        (lambda a: a[0], deep, "is nested more than 100 deep"),
        (gives_itself, np.ones(3), r"result\[1\] is one of the containers"),
    ):
        for run in (lambda a, p=program: fx.symbolic_trace(p, a), fx.jit(program)):
            with pytest.raises(ArgumentError, match=match):
                run(given)


def test_a_program_may_make_what_holds_itself() -> None:
    def total(link: Any) -> Any:
        return link.value + link.to.value

    def program(x: Any) -> Any:
        one = Link(x)
        one.to = Link(x * 2, one)
        return total(one) + total(one.to)

    def of_one_of_them(x: Any) -> Any:
        one = Link(x)
        other = one.to = Link(x * 2, one)
        for number in range(3):
            if x[number] > 0:
                other = other.to
        return other.value

    np.testing.assert_array_equal(fx.symbolic_trace(program, "f64[3]")(np.ones(3)), np.full(3, 6.0))
    with pytest.raises(TraceError, match="is an object that holds itself"):
        fx.symbolic_trace(of_one_of_them, "f64[3]")


class Totals(dict):  # type: ignore[type-arg]
    """A dict with a method."""

    def total(self) -> Any:
        return sum(self.values())


class Rows(list):  # type: ignore[type-arg]
    pass


class Point3(tuple):  # type: ignore[type-arg]
    pass


class Doubled(Pair):
    """A named tuple that is made of fewer values than it has."""

    def __new__(cls, left: Any) -> Doubled:
        return super().__new__(cls, left, left * 2)


#: Makers of containers of each class, given an array.
CONTAINERS: dict[str, Any] = {
    "Counter": lambda x: Counter(a=x.sum(), b=2),
    "defaultdict": lambda x: defaultdict(list, a=[x, x.sum()]),
    "OrderedDict": lambda x: OrderedDict(b=x.sum(), a=x),
    "Totals": lambda x: Totals(a=x.sum(), b=x.max()),
    "Rows": lambda x: Rows([x, x.sum()]),
    "Point3": lambda x: Point3([x.sum(), 2.0, x]),
    "Doubled": lambda x: Doubled(x),
    "deque": lambda x: deque([x.sum(), x], maxlen=3),
    "SimpleNamespace": lambda x: SimpleNamespace(a=x, k=3),
    "mappingproxy": lambda x: MappingProxyType({"a": x}),
    "nested": lambda x: {"c": Counter(a=x.sum()), (0, 1): [OrderedDict(z=x), Doubled(x)]},
}


def same(one: Any, other: Any) -> None:
    """Both are nested values of the same classes with the same contents."""
    assert type(one) is type(other)
    found, expected = pytree.children_of(one), pytree.children_of(other)
    if expected is None or found is None:
        np.testing.assert_array_equal(one, other)
        return
    assert tuple(found[1]) == tuple(expected[1])
    assert pytree.extra_of(one) == pytree.extra_of(other)
    for a, b in zip(found[2], expected[2]):
        same(a, b)


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_comes_back_as_its_own_class(name: str, tmp_path: Path) -> None:
    make, x = CONTAINERS[name], np.arange(4.0)
    same(fx.jit(make, backend="python")(x), make(x))
    gm = fx.symbolic_trace(make, "f64[4]")
    for other in (gm, gm.copy(), passes.dce(gm)):
        found = other(x)
        assert type(found) is type(make(x))
    fx.save(gm, tmp_path / "kept.fxl")
    kind = type(fx.load(tmp_path / "kept.fxl")(x))
    assert kind is (dict if name == "defaultdict" else type(make(x)))  # a file has no functions
    gm.source()


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_is_of_its_own_class_where_the_program_gets_it(name: str) -> None:
    make = CONTAINERS[name]

    def given(value: Any) -> Any:
        return type(value).__name__, [leaf * 2 for _, leaf in pytree.leaves(value)]

    function = fx.jit(given, backend="python")
    for x in (np.arange(4.0), np.arange(4.0) + 1):
        assert repr(function(make(x))) == repr(given(make(x)))
    assert len(function.versions) == 1


def test_what_a_container_can_do_beside_its_parts() -> None:
    def missing(d: Any) -> Any:
        return d["a"] * 2 + d.default_factory()

    def total(d: Any) -> Any:
        return d.total() if isinstance(d, Totals) else 0

    x = np.arange(3.0)
    function = fx.jit(missing, backend="python")
    assert function(defaultdict(lambda: 1, a=x)).tolist() == [1, 3, 5]
    assert function(defaultdict(lambda: 2, a=x)).tolist() == [2, 4, 6]
    assert fx.jit(total, backend="python")(Totals(a=x, b=x)).tolist() == [0, 2, 4]

    made = Rows([x])
    made.name = "rows"  # type: ignore[attr-defined]
    with pytest.raises(ArgumentError, match=r"d is a Rows, a list with attributes of its own \(name\)"):
        fx.jit(lambda d: d[0] * 2, backend="python")(made)


def test_objects_that_are_known_are_results_of_a_jitted_function() -> None:
    def known(x: Any) -> Any:
        return (
            x.sum(),
            Colour.RED,
            Level.HIGH,
            {1, 2},
            frozenset({3}),
            range(3),
            slice(0, 2),
            b"ab",
            ...,
            x.dtype,
            float,
        )

    x = np.arange(3.0)
    function = fx.jit(known, backend="python")
    same(list(function(x)), list(known(x)))
    function(x)[3].add(7)
    assert function(x)[3] == {1, 2}
    assert fx.jit(lambda x: x * Level.HIGH, backend="python")(x).tolist() == [0, 2, 4]
    with pytest.raises(TraceError, match="a zip, enumerate or another iterator cannot be used as a tensor"):
        fx.jit(lambda x: zip(x, x), backend="python")(x)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2
