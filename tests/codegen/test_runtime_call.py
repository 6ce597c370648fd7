"""Calling compiled models, through the extension and through ctypes: the two must agree."""

import os
import re
import subprocess
import sys
import threading
import weakref
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from fxlite.codegen.c.tiles.library import error_type
from fxlite.codegen.runtime import load
from fxlite.codegen.runtime.abi import Entry
from fxlite.codegen.runtime.build import BuildError, Library, _python_headers, build
from fxlite.codegen.runtime.load import CompiledFunction, default_threads
from tests.codegen.test_runtime_abi import spec

f32 = np.float32
HEADER = f"""\
#include <string.h>
#include <unistd.h>
{error_type()}
"""


ALL_DTYPES = ("bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64")

# Each model: its entry, the bytes of workspace it asks for, its parameters, its body.
MODELS = {
    # y = 3x + w, and NaN when the weights or x are not aligned
    "affine": (
        Entry("affine", (spec("x", "f32", "B", 3),), (spec("y", "f32", "B", 3),), ("B",)),
        "0",
        "const float *x, float *y, int64_t B",
        """const float *w = weights;
        float bad = (uintptr_t)weights % 64 || (uintptr_t)x % 4 ? 0.0f / 0.0f : 0.0f;
        for (int64_t i = 0; i < B; i++)
            for (int64_t j = 0; j < 3; j++) y[i * 3 + j] = 3 * x[i * 3 + j] + w[j] + bad;
        return 0;""",
    ),
    # rows of a table that is in the weights
    "lookup": (
        Entry(
            "lookup",
            (spec("index", "i64", "T"),),
            (spec("rows", "f32", "T", 2),),
            ("T",),
            locations=("slice at model.py:7", "gather at model.py:31 (node embedding)"),
        ),
        "0",
        "const int64_t *index, float *rows, int64_t T",
        """const float *table = weights;
        for (int64_t t = 0; t < T; t++) {
            int64_t row = index[t] < 0 ? index[t] + 4 : index[t];
            if (row < 0 || row >= 4) {
                *error = (fx_error){1, index[t], 4, 1};
                return 1;
            }
            memcpy(rows + 2 * t, table + 2 * row, 8);
        }
        return 0;""",
    ),
    # two outputs, a dim that only a linear axis binds, a divisor that may be zero
    "pair": (
        Entry(
            "pair",
            (spec("x", "f32", "2*N + 1"), spec("s", "f32"), spec("m", "u8", "M"), spec("z", "f32", "max(M // N, 1)")),
            (spec("first", "f32", "N - 1"), spec("sizes", "i64", 2), spec("sum", "f32")),
            ("N", "M"),
            single_output=False,
        ),
        "0",
        """const float *x, const float *s, const unsigned char *m, const float *z,
        float *first, int64_t *sizes, float *sum, int64_t N, int64_t M""",
        """for (int64_t i = 0; i < N - 1; i++) first[i] = x[i] * *s;
        sizes[0] = N;
        sizes[1] = M;
        *sum = *s + m[0] + z[0];
        return 0;""",
    ),
    # every dtype, copied; the halves as they are stored
    "copies": (
        Entry(
            "copies",
            tuple(spec(d, d, "B") for d in ALL_DTYPES),
            tuple(spec(d, d, "B") for d in ALL_DTYPES),
            ("B",),
            single_output=False,
        ),
        "0",
        ", ".join(f"const void *x{i}" for i in range(10))
        + ", "
        + ", ".join(f"void *y{i}" for i in range(10))
        + ", int64_t B",
        "".join(f"memcpy(y{i}, x{i}, B * {s});" for i, s in enumerate((1, 1, 1, 2, 4, 8, 2, 2, 4, 8))) + "return 0;",
    ),
    "crop": (
        Entry("crop", (spec("x", "f32", "B", 3),), (spec("y", "f32", "B - 2", 3),), ("B",)),
        "0",
        "const float *x, float *y, int64_t B",
        "memcpy(y, x, (B - 2) * 12); return 0;",
    ),
    "half": (
        Entry("half", (spec("x", "bf16", "B"),), (spec("y", "bf16", "B"),), ("B",)),
        "0",
        "const uint16_t *x, uint16_t *y, int64_t B",
        "for (int64_t i = 0; i < B; i++) y[i] = x[i] ^ 0x8000; return 0;",
    ),
    # every dtype without bf16, so that the extension checks them itself
    "types": (
        Entry("types", tuple(spec(d, d, "B") for d in ALL_DTYPES if d != "bf16"), (spec("size", "i64"),), ("B",)),
        "0",
        ", ".join(f"const void *x{i}" for i in range(9)) + ", int64_t *size, int64_t B",
        "*size = B; return 0;",
    ),
    # what x was, after a while in the workspace; -1 where the workspace is not aligned
    "linger": (
        Entry("linger", (spec("x", "i64", "B"),), (spec("y", "i64", "B"),), ("B",)),
        "B * 8",
        "const int64_t *x, int64_t *y, int64_t B",
        """if ((uintptr_t)workspace % 64) return y[0] = -1, 0;
        memcpy(workspace, x, B * 8);
        usleep(2000);
        memcpy(y, workspace, B * 8);
        return 0;""",
    ),
    # 1 when another call was inside at the same time; gives up after ten seconds
    "meet": (
        Entry("meet", (), (spec("met", "i32"),)),
        "0",
        "int *met",
        """static int inside;
        __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        *met = 0;
        for (int i = 0; i < 10000 && !*met; i++) {
            *met = __atomic_load_n(&inside, __ATOMIC_SEQ_CST) >= 2;
            usleep(1000);
        }
        return 0;""",
    ),
    # the number of threads asked for, the sum of a parallel loop
    "threads": (
        Entry("threads", (spec("x", "f64", "B"),), (spec("y", "f64", 2),), ("B",)),
        "64 * (int64_t)n_threads",
        "const double *x, double *y, int64_t B",
        """double total = 0;
#pragma omp parallel for num_threads(n_threads) reduction(+ : total)
        for (int64_t i = 0; i < B; i++) total += x[i];
        y[0] = n_threads;
        y[1] = total;
        return 0;""",
    ),
    "greedy": (
        Entry("greedy", (spec("x", "f32", "B"),), (spec("y", "f32", "B"),), ("B",)),
        "B << 58",
        "const float *x, float *y, int64_t B",
        "return 0;",
    ),
    # what -ffast-math would get wrong
    "ieee": (
        Entry("ieee", (spec("x", "f32", "B"),), (spec("y", "f32", 3, "B"),), ("B",)),
        "0",
        "const float *x, float *y, int64_t B",
        """for (int64_t i = 0; i < B; i++) {
            y[i] = x[i] != x[i] ? 1.0f : x[i] - x[i];
            y[B + i] = x[i] > 0 ? x[i] : 0.0f * x[i];
            y[2 * B + i] = __builtin_floorf(x[i] / 0.0f);
        }
        return 0;""",
    ),
}


def source(name):
    entry, workspace, parameters, body = MODELS[name]
    dims = "".join(f"int64_t {dim}, " for dim in entry.dims)
    return f"""{HEADER}
int64_t {name}_workspace_bytes({dims}int n_threads) {{ return {workspace}; }}
int {name}_run({parameters}, const void *weights, void *workspace, int n_threads,
               fx_error *error) {{
        {body}
}}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Builds each model once, in a cache of its own."""
    folder, built = tmp_path_factory.mktemp("cache"), {}

    def library(name):
        if name not in built:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("FXLITE_CACHE", str(folder))
                built[name] = build({f"{name}.c": source(name)}, MODELS[name][0])
        return built[name]

    return library


needs_headers = pytest.mark.skipif(_python_headers() is None, reason="no Python.h")


@pytest.fixture(params=[pytest.param("extension", marks=needs_headers), "ctypes"])
def make(request, libraries):
    """make(name, weights) is the compiled model, called in the way under test."""

    def make(name, weights=b"", openmp=True, **options):
        use = request.param == "extension"
        entry, library = MODELS[name][0], replace(libraries(name), openmp=openmp)
        made = CompiledFunction(entry, library, weights, use_extension=use, **options)
        assert made.interface == request.param
        return made

    return make


WEIGHTS = np.array([10, 20, 30], f32)


def test_by_position_and_by_keyword(make):
    affine, x = make("affine", WEIGHTS), np.arange(6, dtype=f32).reshape(2, 3)
    for y in (affine(x), affine(x=x)):
        assert type(y) is np.ndarray and y.dtype == f32
        assert np.array_equal(y, 3 * x + WEIGHTS)
        assert not np.shares_memory(x, y)


def test_weights_may_be_bytes_or_unaligned(make):
    x = np.zeros((1, 3), f32)
    shifted = np.zeros(4, f32)
    shifted[1:] = WEIGHTS
    for weights in (WEIGHTS.tobytes(), shifted[1:], WEIGHTS):
        assert np.array_equal(make("affine", weights)(x), [WEIGHTS])


def test_arrays_of_all_layouts(make):
    affine = make("affine", WEIGHTS)
    base = np.arange(60, dtype=f32).reshape(10, 6)
    frozen = base[:, :3].copy()
    frozen.flags.writeable = False
    raw = np.frombuffer(b"\0" + frozen.tobytes(), np.uint8)[1:]
    layouts = [
        base[::-1, ::2],
        base[:, 2::-1],
        np.asfortranarray(base[:, :3]),
        np.broadcast_to(base[0, :3], (4, 3)),
        frozen,
        raw.view(f32).reshape(10, 3),
        base[:0, :3],
    ]
    for x in layouts:
        y = affine(x)
        assert type(y) is np.ndarray and y.flags.c_contiguous and y.flags.writeable
        assert np.array_equal(y, 3 * np.asarray(x) + WEIGHTS)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "message"),
    [
        ((np.zeros((2, 3)),), {}, TypeError, "got float64[2,3]; pass x.astype(np.float32)"),
        ((np.zeros((2, 3), np.int32),), {}, TypeError, "got int32[2,3]"),
        ((np.zeros((2, 3), ">f4"),), {}, TypeError, "foreign byte order"),
        (([[1, 2, 3]],), {}, TypeError, "got list"),
        ((memoryview(np.zeros((2, 3), f32)),), {}, TypeError, "got memoryview"),
        ((None,), {}, TypeError, "got NoneType"),
        ((np.zeros(3, f32),), {}, ValueError, "2 dimensions, got float32[3]"),
        ((np.zeros((2, 4), f32),), {}, ValueError, "axis 1 must be 3, got 4"),
        ((), {}, TypeError, "missing argument 'x'"),
        ((1, 2), {}, TypeError, "takes 1 argument (x) but 2 were given"),
        ((), {"y": 1}, TypeError, "unexpected argument 'y'"),
        ((1,), {"x": 1}, TypeError, "two values for argument 'x'"),
    ],
)
def test_wrong_arguments(make, args, kwargs, error, message):
    affine = make("affine", WEIGHTS)
    with pytest.raises(error, match=re.escape(message)):
        affine(*args, **kwargs)


def test_index_out_of_range(make):
    lookup = make("lookup", np.arange(8, dtype=f32))
    assert np.array_equal(lookup(np.array([3, -4])), [[6, 7], [0, 1]])
    message = "lookup(): index 12 is out of bounds for size 4: gather at model.py:31 (node embedding)"
    for _ in range(2):
        with pytest.raises(IndexError) as caught:
            lookup(np.array([0, 12]))
        assert str(caught.value) == message
    assert np.array_equal(lookup(np.array([1])), [[2, 3]])


def pair_arguments(n, m, z=1):
    return (np.arange(2 * n + 1, dtype=f32), np.array(2, f32), np.full(m, 5, np.uint8), np.full(z, 7, f32))


def test_several_outputs_and_solved_dims(make):
    outputs = make("pair")(*pair_arguments(3, 7, 2))
    assert isinstance(outputs, tuple)
    first, sizes, total = outputs
    assert first.tolist() == [0, 2] and sizes.tolist() == [3, 7]
    assert total.shape == () and total == 14
    first, sizes, _ = make("pair")(*pair_arguments(1, 1))
    assert first.shape == (0,) and sizes.tolist() == [1, 1]


def test_scalars(make):
    x, s, m, z = pair_arguments(2, 2)
    assert make("pair")(x, s[()], m, z)[2] == 14
    with pytest.raises(TypeError, match="argument 's' must be f32, got float"):
        make("pair")(x, 2.0, m, z)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (pair_arguments(3, 7, 1), "max(M // N, 1) = 2 (N = 3 from axis 0 of 'x'; M = 7"),
        ((np.zeros(4, f32), *pair_arguments(3, 7)[1:]), "2*N + 1 for some N >= 0, got 4"),
        ((np.zeros(0, f32), *pair_arguments(3, 7)[1:]), "2*N + 1 for some N >= 0, got 0"),
        (pair_arguments(0, 7), "the divisor N is not positive"),
    ],
)
def test_dims_that_do_not_fit(make, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make("pair")(*arguments)


def test_an_output_of_negative_size(make):
    function = make("crop")
    x = np.ones((3, 3), f32)
    assert np.array_equal(function(x), x[:1])
    with pytest.raises(ValueError, match=re.escape("output 'y', f32[B - 2,3], is (-1, 3)")):
        function(x[:1])


def sample(dtype):
    if dtype == "bool":
        return np.array([True, False, True])
    names = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
    if dtype in names:
        return np.array([-1.5, np.inf, 0.25], names[dtype])
    info = np.iinfo({"u8": np.uint8}.get(dtype, f"int{dtype[1:]}"))
    return np.array([info.min, info.max, 1], info.dtype)


def test_every_dtype(make):
    arrays = [sample(s.dtype) for s in MODELS["copies"][0].inputs]
    for result, expected in zip(make("copies")(*arrays), arrays):
        assert result.dtype == expected.dtype
        assert result.tobytes() == expected.tobytes()


def test_every_dtype_is_told_from_the_others(make):
    function, inputs = make("types"), MODELS["types"][0].inputs
    right = {s.name: sample(s.dtype) for s in inputs}
    assert function(*right.values()) == 3
    others = [sample("bf16"), np.zeros(3, np.uint16), np.zeros(3, np.complex64), *right.values()]
    others += [np.zeros(3, "m8[s]"), np.zeros(3, "S4"), np.zeros(3, "V8"), np.zeros(3, object)]
    for name in right:
        for other in others:
            if other.dtype != right[name].dtype:
                arguments = {**right, name: other}
                with pytest.raises(TypeError, match=f"argument '{name}' must be"):
                    function(*arguments.values())
    for code in "lq":  # two dtypes of NumPy, one layout
        assert function(*{**right, "i64": np.zeros(3, code)}.values()) == 3


def test_bf16(make):
    half, x = make("half"), sample("bf16")
    for y in (half(x), half(x=x), half(np.repeat(x, 2)[::2])):
        assert y.dtype == x.dtype and np.array_equal(y, -x)
    with pytest.raises(TypeError, match="got uint16"):
        half(x.view(np.uint16))


def in_threads(count, work):
    results = [None] * count

    def run(i):
        results[i] = work(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_concurrent_calls_have_their_own_workspaces(make):
    linger = make("linger")

    def work(i):
        inputs = [np.full(100 * size + 1, 10 * i + size) for size in (3, 1, 5, 2)]
        return all(np.array_equal(linger(x), x) for x in inputs)

    assert all(in_threads(6, work))


def test_workspaces_grow(make):
    linger = make("linger")
    for size in (1, 4_000_000, 2):
        x = np.arange(size)
        assert np.array_equal(linger(x), x)


def test_calls_run_at_the_same_time(make):
    meet = make("meet")
    assert in_threads(2, lambda i: int(meet())) == [1, 1]


def test_workspace_that_cannot_be_had(make):
    greedy = make("greedy")
    assert greedy(np.zeros(0, f32)).shape == (0,)
    with pytest.raises(MemoryError, match="results and workspace of this call take 2,305,843,009,"):
        greedy(np.zeros(8, f32))


def test_memory_of_large_results_is_used_again(make, monkeypatch):
    """Once nobody holds a result or a part of it, and not before."""
    monkeypatch.setattr(load.LargeResults, "LEAST", 1 << 20)
    function, x = make("affine", WEIGHTS), np.ones((1 << 20, 3), f32)
    first, second = function(x), function(2 * x)
    places = {first.ctypes.data, second.ctypes.data}
    part = first[5:9, ::2]
    del first
    third = function(3 * x)
    assert third.ctypes.data not in places
    assert part.tolist() == function(x)[5:9, ::2].tolist()
    places.add(third.ctypes.data)
    del part, second, third
    assert function(x).ctypes.data in places
    assert function(x[:7]).flags.owndata


@pytest.fixture
def openmp(libraries):
    if not libraries("threads").openmp:
        pytest.skip("the compiler has no OpenMP")


def test_number_of_threads(make, openmp):
    function, x = make("threads", n_threads=3), np.arange(1000.0)
    assert function(x).tolist() == [3, 499500]
    function.n_threads = 2
    assert function(x).tolist() == [2, 499500]
    assert function.n_threads == 2 and "2 threads" in repr(function)
    with pytest.raises(ValueError, match="from 1 to 4096"):
        function.n_threads = 0


def test_without_openmp_there_is_one_thread(make):
    serial = make("threads", n_threads=4, openmp=False)
    assert serial(np.arange(1000.0)).tolist() == [1, 499500]
    serial.n_threads = 8
    assert serial.n_threads == 1


@pytest.mark.parametrize(
    ("text", "expected"), [("3", 3), ("2,4", 2), ("", None), ("many", None), ("0", None), ("-1", None)]
)
def test_default_threads(monkeypatch, text, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(load, "usable_cpus", lambda: 77)
    assert default_threads() == (expected or 77)


FORKS = """
import os, signal, sys
import numpy as np
from pathlib import Path
from fxlite.codegen.runtime.abi import ArgSpec, DimText, Entry
from fxlite.codegen.runtime.build import Library
from fxlite.codegen.runtime.load import CompiledFunction
B = DimText("B")
entry = Entry("threads", (ArgSpec("x", "f64", (B,)),), (ArgSpec("y", "f64", (2,)),), ("B",))
path, interface, parallel = sys.argv[1:]
function = CompiledFunction(
    entry, Library(Path(path)), n_threads=2, use_extension=interface == "extension"
)
x = np.arange(1000.0)
if parallel == "parallel":
    assert function(x).tolist() == [2, 499500]
child = os.fork()
if child == 0:
    signal.alarm(20)  # kills a child that waits for threads it does not have
    fresh = CompiledFunction(entry, Library(Path(path)), n_threads=2)
    print(int(function(x)[0]), int(fresh(x)[0]), function.n_threads, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert function(x).tolist() == [2, 499500]
"""


@pytest.mark.parametrize(("parent", "threads"), [("parallel", "1 1 1"), ("quiet", "2 2 2")])
def test_a_forked_child_uses_one_thread(make, libraries, openmp, parent, threads):
    interface = make("threads").interface
    command = [sys.executable, "-c", FORKS, libraries("threads").path, interface, parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr, done.returncode) == (threads, "", 0)


def test_ieee(make):
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5, -2.0] * 9, f32)
    with np.errstate(all="ignore"):
        expected = [np.where(x != x, 1, x - x), np.where(x > 0, x, 0 * x), np.floor(x / f32(0))]
    y = make("ieee")(x)
    assert np.array_equal(y, expected, equal_nan=True)
    assert np.array_equal(np.signbit(y[1]), np.signbit(expected[1]))


def test_nothing_is_kept_of_arguments_and_results(make):
    affine, x = make("affine", WEIGHTS), np.zeros((2, 3), f32)
    y = affine(x)
    before = sys.getrefcount(x)
    for bad in (x.astype(float), x[:, :2], [x]):
        for _ in range(3):
            with pytest.raises((TypeError, ValueError)):
                affine(bad)
    del bad
    for _ in range(10):
        y = affine(x)
        affine(x=x)
        affine(x[::-1])
    assert sys.getrefcount(x) == before and sys.getrefcount(y) == 2
    x.resize((4, 3))  # refused while a buffer is still held


def test_a_function_goes_with_its_last_reference(make):
    memory = np.zeros(40, f32)
    weights = memory[-memory.ctypes.data % 64 // 4 :][:3].view()  # aligned: used without a copy
    watched = weakref.ref(memory)
    function = make("affine", weights)
    function(np.zeros((1, 3), f32))
    gone = weakref.ref(function)
    del memory, weights, function
    assert gone() is None and watched() is None


def test_a_subclass_may_add_attributes(libraries):
    class Named(CompiledFunction):
        sources = "text"

    made = Named(MODELS["affine"][0], libraries("affine"), WEIGHTS)
    made.note = 1
    assert made(np.zeros((1, 3), f32)).tolist() == [WEIGHTS.tolist()] and callable(made)


def test_a_file_that_is_no_shared_object(tmp_path):
    (tmp_path / "a.so").write_text("no")
    with pytest.raises(BuildError, match="cannot load the compiled affine"):
        CompiledFunction(MODELS["affine"][0], Library(tmp_path / "a.so"), WEIGHTS)


def test_codes_of_errors_are_those_of_c():
    codes = re.findall(r"FX_[A-Z_]+(?= = 1,|,|\n)", error_type().partition("enum")[2])
    known = load._INDEX_OUT_OF_RANGE, load._OUT_OF_MEMORY, load._WRONG_PROCESSOR
    names = "FX_INDEX_OUT_OF_RANGE", "FX_OUT_OF_MEMORY", "FX_WRONG_PROCESSOR"
    assert tuple(codes.index(name) + 1 for name in names) == known
