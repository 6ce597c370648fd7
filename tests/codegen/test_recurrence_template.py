"""The recurrence template: its C text is compiled with gcc and compared with NumPy, of floats in
float64; under the sanitizers it runs on buffers of exactly the size it may touch, on one thread and
on two."""

from __future__ import annotations

import ctypes
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import CodegenError
from fxlite.codegen.c.product.gemm_spec import packed_rows
from fxlite.codegen.c.recurrence import (
    IntegerState,
    RecurrenceSpec,
    pack_recurrent_int8,
    pack_recurrent_weight,
    render_recurrence,
)
from fxlite.codegen.kernel.builder import symbol
from fxlite.codegen.runtime.toolchain import march_flag
from fxlite.ops.recurrent import GATES
from fxlite.scalar.index import Index
from tests.codegen.compiling import (
    FILLED,
    OPTIMIZED,
    QUICK,
    SANITIZED,
    c_file,
    compile_c,
    evaluate,
    flag_of,
    run_sanitized,
    shared_library,
    with_tiles,
)
from tests.oracle import compare, flatten

HEAD = (
    "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n#include <stdio.h>\n"
    '#include <stdlib.h>\n#include <string.h>\n#include "fx_math.h"\n'
)
ALWAYS = ("-Wno-unused-function", "-I", str(files("fxlite.codegen.c")))
NAMES = ("steps", "batch", "size")
SIZES = [
    (0, 2, 3),
    (2, 0, 3),
    (1, 1, 1),
    (5, 1, 33),
    (3, 2, 40),
    (4, 13, 7),
    (2, 25, 17),
    (3, 1, 150),
    (2, 47, 36),
    (2, 1, 0),
]


def spec(mode: str, ctype: str, packed: bool, known: tuple[int, int, int] | None = None):
    """One case; every second has a bias, every third runs backwards."""
    number = list(GATES).index(mode) + (ctype == "double") + packed
    sizes = dict(zip(NAMES, map(Index.of, known) if known else map(symbol, NAMES)))
    label = f"{mode}_{ctype}_{'packed' if packed else 'plain'}{'_known' if known else ''}"
    return RecurrenceSpec(
        label, ctype, mode, **sizes, has_bias=number % 2 == 0, is_packed=packed, reverse=number % 3 == 0, comment=label
    )


def integers(mode: str, state: IntegerState, known: tuple[int, int, int] | None = None):
    """A case with integer products; every second has a bias, every third runs backwards."""
    number = list(GATES).index(mode) + (state.scale is None)
    sizes = dict(zip(NAMES, map(Index.of, known) if known else map(symbol, NAMES)))
    kind = "dynamic" if state.scale is None else ("i8" if state.zero_point is None else "u8")
    label = f"{mode}_{kind}{'_known' if known else ''}"
    return RecurrenceSpec(
        label,
        "float",
        mode,
        **sizes,
        has_bias=number % 2 == 0,
        is_packed=True,
        reverse=number % 3 == 0,
        comment=label,
        integers=state,
    )


DYNAMIC, STATIC, AFFINE = IntegerState(), IntegerState(0.01), IntegerState(0.02, 100)
SPECS = [
    *(spec(mode, "float", packed) for mode in GATES for packed in (True, False)),
    spec("lstm", "double", True),
    spec("gru", "double", False),
    spec("lstm", "float", True, (3, 1, 150)),
    integers("gru", STATIC),
    integers("lstm", DYNAMIC),
    integers("lstm", AFFINE, (2, 13, 37)),
    integers("rnn_relu", DYNAMIC),
    integers("rnn_relu", AFFINE),
]


def sizes_of(each: RecurrenceSpec) -> list[tuple[int, int, int]]:
    if each.named_sizes:
        return SIZES
    return [(each.steps.constant, each.batch.constant, each.size.constant)]


def translation_unit(specs: list[RecurrenceSpec]) -> str:
    """Each case as run_NAME, with one list of arguments."""
    parts = []
    for each in specs:
        rendered = render_recurrence(each)
        names = ("gates", "weight_hh", "weight_scale", "h0", "c0", "bias_hh")
        parameters = ", ".join(f"const void *{name}" for name in names)
        given = [*each.arrays, "states", *each.named_sizes, *rendered.extra_parameters]
        parts.append(
            f"{rendered.text}void run_{each.name}({parameters}, {each.ctype} *states, "
            "int64_t steps, int64_t batch,\n    int64_t size, void *workspace, int n_threads)\n"
            f"{{\n    {each.name}({', '.join(given)});\n}}\n"
        )
    functions = "\n".join(parts)
    return with_tiles(functions, HEAD)


def workspace_bytes(each: RecurrenceSpec, batch: int, size: int) -> int:
    return evaluate(render_recurrence(each).workspace, batch=batch, size=size)


def arrays(each: RecurrenceSpec, sizes: tuple[int, int, int]) -> dict[str, np.ndarray]:
    steps, batch, size = sizes
    rng = np.random.default_rng(steps + batch + size)
    rows = each.gates * size
    shapes = {
        "gates": (steps, batch, rows),
        "weight_hh": (rows, size),
        "weight_scale": (rows,),
        "h0": (batch, size),
        "c0": (batch, size),
        "bias_hh": (rows,),
    }
    dtype = np.float32 if each.ctype == "float" else np.float64
    values = {n: rng.standard_normal(s).astype(dtype) for n, s in shapes.items()}
    small = 0.5 / max(size, 1) ** 0.5  # so that errors do not grow
    values["weight_hh"] *= dtype(small)
    if each.integers is not None:
        values["weight_hh"] = rng.integers(-127, 128, (rows, size)).astype(np.int8)
        values["weight_scale"] = rng.uniform(small / 127, small / 64, rows).astype(np.float32)
    return values


def expected(each: RecurrenceSpec, values: dict[str, np.ndarray]) -> np.ndarray:
    given = {n: values[n] for n in each.arrays}
    if each.integers is not None:
        state = {"state_scale": each.integers.scale, "state_zero_point": each.integers.zero_point}
        return np.asarray(fx.ops.int_recurrence(**given, **state, mode=each.mode, reverse=each.reverse))
    wide = {n: value.astype(np.float64) for n, value in given.items()}
    return np.asarray(fx.ops.recurrence(**wide, mode=each.mode, reverse=each.reverse))


def run(
    library: ctypes.CDLL,
    each: RecurrenceSpec,
    sizes: tuple[int, int, int],
    values: dict[str, np.ndarray],
    n_threads: int,
) -> np.ndarray:
    """The result; fails where something was written behind it or behind the workspace."""
    steps, batch, size = sizes
    rows = steps + (2 if each.mode == "lstm" else 1)
    given = dict(values)
    if each.integers is not None:
        offset = each.integers.offset
        given["weight_hh"] = pack_recurrent_int8(values["weight_hh"], each.gates, offset)
    elif each.is_packed:
        given["weight_hh"] = pack_recurrent_weight(values["weight_hh"], each.gates)
    room = workspace_bytes(each, batch, size)
    workspace = np.full(room + 64, 0xA5, np.uint8)
    states = np.full(rows * batch * size + 8, 7777, values["gates"].dtype)
    getattr(library, f"run_{each.name}")(
        *(ctypes.c_void_p(a.ctypes.data) for a in (*given.values(), states)),
        *(ctypes.c_int64(n) for n in sizes),
        ctypes.c_void_p(workspace.ctypes.data),
        n_threads,
    )
    assert (workspace[room:] == 0xA5).all(), f"{each.name} {sizes}: wrote past its workspace"
    assert (states[rows * batch * size :] == 7777).all(), f"{each.name} {sizes}: wrote too far"
    return states[: rows * batch * size].reshape(rows, batch, size)


FLAGS = {"native": (*ALWAYS, *OPTIMIZED, march_flag(), "-fopenmp"), "SSE2, no OpenMP": (*ALWAYS, QUICK)}


@pytest.mark.parametrize("flags", FLAGS)
def test_states_agree_with_numpy(flags: str, tmp_path: Path) -> None:
    """And do not depend on the number of threads, bit for bit."""
    check_states(shared_library(translation_unit(SPECS), tmp_path / "r.so", *FLAGS[flags]), SPECS)


def check_states(library: ctypes.CDLL, specs: list[RecurrenceSpec]) -> None:
    """Against NumPy, and of several threads against one."""
    for each in specs:
        for sizes in sizes_of(each):
            values = arrays(each, sizes)
            wanted = expected(each, values)
            tolerance = 2e-6 if each.ctype == "float" else 1e-14
            if each.integers is not None:  # tanh may differ, and then an integer may, by one
                tolerance = 0.0 if each.mode == "rnn_relu" else 0.02
            got, *others = (run(library, each, sizes, values, n) for n in (1, 2, 5))
            error = np.abs(got - wanted).max(initial=0)
            assert error <= tolerance * (1 + np.abs(wanted).max(initial=0)), (each.name, sizes)
            if each.integers is not None and wanted.size:
                assert np.median(np.abs(got - wanted)) <= 1e-6, (each.name, sizes)
            for other in others:
                assert np.array_equal(got, other), (each.name, sizes)


def test_a_batch_of_none_has_a_workspace() -> None:
    rendered = render_recurrence(integers("gru", STATIC, (2, 0, 3)))
    assert rendered.workspace == 4 and "workspace" in rendered.extra_parameters


MAIN = """
typedef void function(const void *, const void *, const void *, const void *, const void *,
                      const void *, void *, int64_t, int64_t, int64_t, void *, int);

/* Weights as quads of -2, -1, 0 and 1; sums start from 0. */
static void *quads(long count, long panel_rows)
{
    uint32_t *data = filled(count, 4);
    for (long i = 0; i < count; i++) {
        const uint32_t bits = data[i] >> 8 & 0x01010101;
        data[i] = i / 32 % panel_rows == 0 ? 0 : bits | (bits & data[i]) * 0xfe;
    }
    return data;
}

static int check(const char *name, function *run, int item, long steps, long batch, long size,
                 long gates, long weights, long panel_rows, long states, long workspace_bytes)
{
    void *x = filled(steps * batch * size * gates, item);
    void *w = panel_rows ? quads(weights, panel_rows) : filled(weights, item);
    void *scale = filled(size * gates, item);
    void *h = filled(batch * size, item), *c = filled(batch * size, item);
    void *bias = filled(size * gates, item), *workspace = malloc(workspace_bytes);
    void *y = filled(states, item), *z = filled(states, item);
    run(x, w, scale, h, c, bias, y, steps, batch, size, workspace, 1);
    run(x, w, scale, h, c, bias, z, steps, batch, size, workspace, 2);
    const int wrong = memcmp(y, z, states * item);
    if (wrong)
        printf("%s %ld %ld %ld: two threads differ from one\\n", name, steps, batch, size);
    free(x), free(w), free(scale), free(h), free(c), free(bias), free(workspace), free(y), free(z);
    return wrong != 0;
}

int main(void)
{
    int wrong = 0;
"""


@pytest.mark.parametrize("march", ["native", "x86-64"])
def test_states_under_the_sanitizers(march: str, tmp_path: Path) -> None:
    specs = SPECS[:-3] if march == "native" else SPECS[::3]
    lines = [FILLED, MAIN]
    for each in specs:
        for steps, batch, size in sizes_of(each):
            depth = size if each.integers is None else packed_rows(size)
            weights = each.gates * depth * (-(-size // each.width) * each.width)
            counts = (
                steps,
                batch,
                size,
                each.gates,
                weights if each.is_packed else each.gates * size * size,
                0 if each.integers is None else depth,
                (steps + (2 if each.mode == "lstm" else 1)) * batch * size,
                workspace_bytes(each, batch, size),
            )
            lines.append(
                f'    wrong += check("{each.name}", (function *)run_{each.name}, '
                f"sizeof({each.ctype}), {', '.join(map(str, counts))});"
            )
    program = compile_c(
        translation_unit(specs) + "\n".join([*lines, "    return wrong != 0;", "}"]),
        tmp_path / "recurrence",
        flag_of(march),
        *ALWAYS,
        *SANITIZED,
    )
    run_sanitized(program)


# -- layers ----------------------------------------------------------------------------------------
class Layers(nn.Module):
    """Two layers in both directions."""

    def __init__(self, kind: str, **options: object) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(3, 35, num_layers=2, bidirectional=True, **options)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_one_artifact_serves_all_lengths_and_batches(kind: str) -> None:
    model = Layers(kind).eval()
    function = fx.compile(model, x="f32[T,B,3]", threads=2)
    alone = fx.compile(model, x="f32[T,B,3]", threads=1)
    kernels = [k for k in function.kernels if k.anchor is not None]
    assert [k.anchor.target.name for k in kernels].count("recurrence") == 4
    for steps, batch in ((1, 1), (4, 2), (3, 13), (0, 2), (2, 0), (2, 70)):
        x = np.random.default_rng(steps).standard_normal((steps, batch, 3)).astype(np.float32)
        found = function(x)
        compare("c", found, model(x))
        for one, other in zip(flatten(found), flatten(alone(x))):
            assert np.array_equal(one, other)


def test_the_text_says_what_it_computes() -> None:
    text = c_file(Layers("GRU").eval(), x="f32[T,B,3]")
    assert "gru_recurrence: f32[T+1,B,35] = recurrence" in text
    assert "h' = (1 - sigmoid(z)) * tanh(n + sigmoid(r) * n_h) + sigmoid(z) * h" in text


def test_a_named_length_needs_a_template() -> None:
    with pytest.raises(CodegenError, match=r"gru_recurrence.*size T is a named dim.*specialize"):
        fx.compile(Layers("GRU").eval(), x="f32[T,B,3]", backend="cuda", device="shim")
