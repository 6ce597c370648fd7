"""Odd options, environments and arguments: each is taken, or refused with an error that says what
would do; none reaches Python's or NumPy's own complaints about integers and hashes."""

import numpy as np
import pytest

import fxlite as fx
from fxlite import ops
from fxlite.base.errors import ArgumentError, OptionError
from fxlite.codegen.runtime.build import BuildError
from fxlite.codegen.runtime.cuda_shim import ShimError
from fxlite.codegen.runtime.load import MOST_THREADS, default_threads
from fxlite.codegen.runtime.toolchain import CompilerNotFound, find_compiler, usable_cpus
from tests.oracle import agree


@pytest.mark.parametrize("backend", ["c", "python"])
@pytest.mark.parametrize("threads", [0, -1, MOST_THREADS + 1, 2**31, 2**63, "2", 1.5, True, [2]])
def test_a_number_of_threads_that_is_none(backend, threads):
    error = OptionError if type(threads) is int else ArgumentError
    with pytest.raises(error, match="threads must be"):
        fx.compile(lambda x: x + 1, x="f32[2]", backend=backend, threads=threads)


@pytest.mark.parametrize("text", ["99999999999", "0", "-1", "", "many", "1.5", "²", "1" * 5000, str(MOST_THREADS + 1)])
def test_omp_num_threads_that_is_no_number_of_threads(monkeypatch, text):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert default_threads() == usable_cpus()


@pytest.mark.parametrize("text, threads", [("3", 3), (" 2 ", 2), ("4,2", 4)])
def test_omp_num_threads(monkeypatch, text, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert default_threads() == threads


@pytest.mark.parametrize("command", ["gcc 'x", 'gcc "', "gcc \\", "''", "/no/such/gcc", "-"])
def test_a_command_of_a_compiler_that_is_none(monkeypatch, command):
    monkeypatch.setenv("CC", command)
    with pytest.raises(CompilerNotFound, match="set CC to the command of a compiler"):
        find_compiler()


@pytest.mark.parametrize("command", ["g++ 'x", "/no/such/g++", "true", "false"])
def test_a_command_of_a_compiler_for_the_shim_that_is_none(monkeypatch, tmp_path, command):
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    with pytest.raises(ShimError, match=r"is not a command line|does not run|cannot compile"):
        fx.compile(lambda x: x + 1, x="f32[2]", backend="cuda", device="shim")


def test_a_compiler_that_makes_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "true")
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path))
    with pytest.raises((BuildError, CompilerNotFound), match="compiler"):
        fx.compile(lambda x: x + 1, x="f32[2]")


def test_a_name_of_a_cache_folder_that_is_too_long(monkeypatch, tmp_path):
    monkeypatch.setenv("FXLITE_CACHE", str(tmp_path / ("name" * 100)))
    with pytest.warns(UserWarning, match="cannot write to the cache folder"):
        run = fx.compile(lambda x: x + 1, x="f32[2]")
    assert run(np.ones(2, np.float32)).tolist() == [2, 2]


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_parts_of_a_named_axis(size):
    x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
    agree(fx.symbolic_trace(lambda x: np.array_split(x, 3), x="f32[B,4]"), x)
    agree(fx.symbolic_trace(lambda x: np.split(x, [1, 3]), x="f32[B,4]"), x)
    halves = fx.compile(lambda x: np.split(x, 2), x="f32[B,4]")
    if size % 2:
        with pytest.raises(ValueError, match=r"B % 2 == 0 is required by .*np\.split\(x, 2\)"):
            halves(x)
    else:
        assert np.array_equal(halves(x), np.split(x, 2))


def test_open_parameters_without_types():
    with pytest.raises(ArgumentError, match=r"nothing for \*args, .* give their types"):
        fx.symbolic_trace(lambda *args: args[0] + 1)
    with pytest.raises(ArgumentError, match=r"nothing for \*\*named"):
        fx.compile(lambda **named: named["x"] + 1)
    graph = fx.symbolic_trace(lambda x, *rest: x + len(rest)).graph
    assert [p.target for p in graph.placeholders] == ["x"]


@pytest.mark.parametrize("value", [np.ones(4, np.float32), [1.0], {1}, bytearray(1)], ids=repr)
def test_operands_that_no_node_holds(value):
    graph = fx.symbolic_trace(lambda x: x + 1, x="f32[4]").graph
    (x,) = graph.placeholders
    before = graph.text(full=True)
    calls = [lambda: graph.call_function(ops.add, (x, value)), lambda: graph.call_function(ops.add, (x,), {"y": value})]
    if isinstance(value, np.ndarray):
        calls = []  # it becomes a buffer
    for edit in (*calls, lambda: setattr(x.next, "args", (x, value))):
        with pytest.raises(ArgumentError, match=r"argument 'y'|expected a tensor"):
            edit()
    assert graph.text(full=True) == before


@pytest.mark.parametrize("width", [1, (1, 2), [3], [(1, 2)], ((1, 2), (3, 4)), ((1,), (2,))])
def test_widths_of_padding(width):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    agree(fx.symbolic_trace(lambda x: np.pad(x, width), x="f32[B,3]"), x)
