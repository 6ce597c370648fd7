"""Emitted C as a reader sees it: what it leaves out, what comments say, how lines are folded."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c.tiles.library import FILES, constant, definitions_of, instantiate, library, needed
from fxlite.codegen.kernel import printer
from fxlite.codegen.kernel.text import comment, wrap
from fxlite.codegen.runtime import sizes
from fxlite.codegen.runtime.toolchain import march_flag
from fxlite.ops.integer.quantized import least_magnitude
from fxlite.ops.integer.quantized_recurrence import LARGEST
from fxlite.types.tensor_type import parse_type
from tests.codegen.compiling import HEAD, c_file, compile_c, emitted
from tests.oracle import agree, agree_on_all

FILE = """\
/* About boxes of T. */

#define SIDES 4

#if INSTANCE == 0
#define T float
#else
#define T double
#define SIDES 6
#endif

#define BOX T_box

/* ---- Boxes ---- */

#include <box.h>

typedef T T_box __attribute__((aligned(4)));

enum { EDGES = 12,
       CORNERS = 8 };

#if defined(A)
#define open_box(a) a

#else
#define open_box(a) 0
#endif

/* Calls fill_T, as shut does. */
static void fill_T(
    int n)
{
    shut((BOX)n + SIDES);
}

static inline int *empty(int n) { return open_box(n); }

/* ---- Bags ---- */

static const int bags[] = {1, 2};

static int carry(void) { return bags[0] + empty(1); }
"""


def test_a_source_has_what_is_called_and_no_more() -> None:
    boxes = list(definitions_of("boxes", FILE))
    assert needed("void f(void) { /* fill_float, carry */ }", boxes) == ""
    filled = needed("void f(void) { fill_float(CORNERS); }", boxes)
    assert filled.startswith("/* ---- Boxes ---- */\n\n#include <box.h>\n\ntypedef float float_box")
    fill = "\n/* Calls fill_float, as shut does. */\nstatic void fill_float(\n    int n)\n{"
    assert fill in filled and "shut((float_box)n + 4);" in filled and "EDGES = 12" in filled
    assert not {"open_box", "empty", "Bags", "bags", "double"} & set(re.findall(r"\w+", filled))
    assert "shut((double_box)n + 6);" in needed("fill_double(1)", boxes)
    carried = needed("carry()", boxes)
    assert "\n\n#else\n#define open_box(a) 0\n#endif\n\nstatic inline int *empty" in carried
    assert "fill" not in carried and "/* ---- Bags ---- */\n\nstatic const int bags" in carried


def test_a_parameter_without_text_vanishes() -> None:
    text = "f_LOW_T(a, WITH b); LOW_T x;"
    values = {"LOW": "", "T": "int", "WITH": ""}
    assert instantiate(text, values) == "f_int(a, b); int x;"
    assert instantiate(text, {**values, "LOW": "low", "WITH": "int c,"}) == ("f_low_int(a, int c, b); low_int x;")


def test_numbers_in_c_files_are_those_of_python() -> None:
    assert constant("helpers", "PARALLEL_OPERATIONS") == printer.PARALLEL_OPERATIONS
    limits = (sizes.HOLLOW, sizes.STORED_VALUE, sizes.ANY_VALUE)
    counted = [float.fromhex(text) for text in re.findall(r"0x1p\d+", needed("fx_count()"))]
    assert counted == list(map(float, limits))
    scale = re.findall(r"[\d.e-]+(?=f\b)", needed("scale_of_state()").split("return ")[-1])
    expected = least_magnitude(LARGEST), 1 / LARGEST
    assert [*map(np.float32, scale)] == [*map(np.float32, expected)]


@pytest.mark.parametrize("march", [march_flag(), "-msse2"])
def test_every_definition_compiles(march: str, tmp_path: Path) -> None:
    texts = "\n\n".join(definition.text for definition in library())
    text = f'{HEAD}#include <stdbool.h>\n#include "fx_math.h"\n{texts}'
    flags = ("-Wno-unused-function", "-Wno-unused-const-variable", "-O1", "-c", march)
    compile_c(text, tmp_path / "library.o", *flags, "-I", str(files("fxlite.codegen.c")))


@pytest.mark.parametrize("file", FILES)
def test_c_files_are_formatted(file: str) -> None:
    lines = files("fxlite.codegen.c.tiles").joinpath(f"{file}.h").read_text().splitlines()
    assert not [line for line in lines if len(line) > 100 or "\t" in line or line != line.rstrip()]


def source_of(program: Any, **types: str) -> tuple[Any, str]:
    """A compiled program and its C."""
    compiled = fx.compile(program, **types)
    return compiled, compiled.sources[f"{compiled.program.name}.c"]


def test_a_float_model_has_no_tiles_of_doubles() -> None:
    model = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()).eval()
    sources = emitted(model, x="f32[B,64,8,8]").sources
    tiles, text = sources["sequential_tiles.h"], sources["sequential.c"]
    assert "multiply_tile_float" in tiles and "winograd_output_" in tiles
    text += tiles
    for absent in ("double_vec", "__attribute__((unused))", "sum_depthwise", "pack_rows", "fx_floor"):
        assert absent not in text
    assert text.count("static int winograd_input_") == 1, "of one size of tile"
    for defined in re.findall(r"^[^\s/*#].*\bstatic\b[^;\n]*?[\s*](\w+)\((?!\()", text, re.M):
        assert len(re.findall(rf"\b{defined}\b", text)) > 1, f"{defined} is called"


def test_a_model_without_workspace_and_weights_has_no_layout() -> None:
    compiled, text = source_of(lambda x: np.exp(x) + 1, x="f32[N]")
    assert "layout" not in text and "arena" not in text
    assert "    (void)weights, (void)workspace;  // not needed by this model\n" in text
    assert re.search(r"^    k0_add\(x, add, N, n_threads\);  // add: f32\[N\]$", text, re.M)
    assert compiled.workspace_bytes({"N": 5}) == 0


def test_one_choice_for_a_guarded_load() -> None:
    compiled, text = source_of(lambda x: np.pad(x, ((1, 2),), constant_values=-np.inf) * 2, x="f32[N]")
    kernel = text[text.index("static void k0") : text.index("_workspace_bytes(")]
    assert "? x[i - 1] : -INFINITY" in kernel and kernel.count(" ? ") == 1
    assert "(i - 1)" not in kernel, "no needless parentheses"
    x = np.arange(3, dtype=np.float32)
    assert np.array_equal(compiled(x), np.pad(x, ((1, 2),), constant_values=-np.inf) * 2)


def test_an_index_is_checked_once() -> None:
    table = np.arange(40, dtype=np.float32).reshape(10, 4)

    def centred(i: Any) -> Any:
        rows = fx.ops.take(table, i, axis=0)
        return rows - rows.mean(axis=-1, keepdims=True)

    compiled, text = source_of(centred, i="i64[N]")
    assert text.count("fx_index(i[") == 1
    i = np.array([3, -1, 0])
    assert np.allclose(compiled(i), centred(i))
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        compiled(np.array([10]))


def test_names_of_values_and_thresholds() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(40, 40), nn.Linear(40, 40)

        def forward(self, x: Any) -> Any:
            return self.second(self.first(x))

    made = emitted(Two().eval(), x="f32[B,40]")
    text = made.sources["two.c"]
    (kernel,) = {call.function for call in made.calls}
    head = text[: text.index(f"static void {kernel}(")].rsplit("/*", 1)[1]
    assert "m = B, n = 40, k = 40; tiles of TILE_ROWS x 32." in head
    assert "The weight is packed, in panels of 32 columns." in head and "Also computes linear_1." in head
    assert "> PARALLEL_PRODUCTS)" in text
    assert "enum { PARALLEL_PRODUCTS = 400000 };" in made.sources["two_tiles.h"]
    run = text[text.rindex("\nint ") :]
    assert run.index("linear: f32[B,40]") < run.index("linear_1: f32[B,40]")
    assert max(map(len, text.splitlines())) <= 100


def test_lines_are_folded_outside_of_brackets() -> None:
    line = f"    y[i] = f(x[{'a' * 40} * 64 + i], {'b' * 30} + c[k], 0.0f);"
    assert wrap(line, 80) == [f"    y[i] = f(x[{'a' * 40} * 64 + i],", f"        {'b' * 30} + c[k], 0.0f);"]


def test_all_pieces_of_a_directive_but_the_last_end_in_a_backslash() -> None:
    """A condition may be longer than a line, too; a piece that fits is not broken again as if it were a statement."""
    terms = " + ".join(f"N{n}*M{n}" for n in range(20))
    lines = wrap(f"    #pragma omp parallel for num_threads(n_threads) if (n_threads > 1 && {terms} > LIMIT)")
    assert len(lines) > 2 and all(len(line) <= 100 for line in lines)
    assert [line.endswith(" \\") for line in lines] == [True] * (len(lines) - 1) + [False]
    assert [again for line in lines for again in wrap(line)] == lines
    folded = comment("y: f32[B] = " + " -> ".join(["exp"] * 30)).splitlines()
    assert len(folded) == 3 and all(len(text) <= 100 for text in folded)
    assert folded[1].startswith(" *   ") and folded[-1].endswith(" */")


def test_a_short_inner_loop_is_unrolled_in_the_one_that_is_vectorized() -> None:
    def to_last(x: Any) -> Any:  # an image's three channels become neighbours
        return x.transpose(1, 2, 0) * 2

    x = np.random.default_rng(0).standard_normal((3, 40, 50), np.float32)
    function, source = source_of(to_last, x="f32[3,40,50]")
    (pragma,) = [line for line in source.splitlines() if "#pragma omp" in line and "simd" in line]
    after = source.splitlines()[source.splitlines().index(pragma) + 1 :][:2]
    assert "i < 2000" in after[0] and "j < 3" in after[1] and "collapse" not in pragma
    assert np.array_equal(function(x), to_last(x))


def test_what_is_too_little_for_threads_is_computed_in_vectors_still() -> None:
    """A bare ``if`` of a ``parallel for simd`` holds for its ``simd``, too (OpenMP 5.0, 2.15)."""
    source = c_file(lambda x: x * 2 + 1, x="f32[N]")
    (pragma,) = [line for line in source.splitlines() if "#pragma omp" in line]
    assert " simd " in pragma and " if (parallel: " in pragma
    for text in Path(__file__).with_name("golden").glob("*.c"):
        assert not re.search(r"omp.*\bsimd\b.* if \((?!parallel: )", text.read_text()), text


def test_what_is_joined_is_a_loop_for_each_part() -> None:
    """Parts may be empty."""

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        a, b = x[..., :4], x[..., 4:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    rng = np.random.default_rng(0)

    def check(program: Any, parts: int, *types: str, least: int = 0) -> None:
        source = c_file(program, *types)
        kernels = source[: source.index("_largest_bytes(")]
        stores = re.findall(r"^ +(?:concat|exp|stack)\w*\[.*\] = ", kernels, re.M)
        assert len(stores) == parts and ("?" not in kernels or parts == 1), kernels
        sets = []
        for size in range(least, 4):
            sizes = dict.fromkeys("BPTHW", 2) | {types[0][4]: size}
            shapes = [parse_type(t).substitute(sizes).shape for t in types]
            sets.append([rng.standard_normal(s, np.float32) for s in shapes])
        agree_on_all(program, sets, types=types)

    check(turned, 2, "f32[T,2,8]", "f32[T,1,4]", "f32[T,1,4]")
    check(lambda x, y: np.exp(np.concatenate([x, y])), 2, "f32[P,3]", "f32[T,3]")
    check(lambda x, y: np.concatenate([x, y, x], 1), 3, "f32[B,3,H]", "f32[B,1,H]")
    check(lambda x, y: np.concatenate([x, y, x, y], 2), 4, "f32[B,3,W]", "f32[B,3,5]")
    check(lambda x, y: np.stack([x, y, x + y], -1), 3, "f32[T]", "f32[T]")

    def of_two_axes(x: Any, y: Any) -> Any:
        return np.concatenate([np.concatenate([x, y], 1), np.concatenate([y, x], 1)])

    def of_totals(x: Any, y: Any) -> Any:
        return np.concatenate([x - x.sum(1, keepdims=True), y / y.max(1, keepdims=True)], 1)

    check(of_two_axes, 4, "f32[B,3]", "f32[B,W]")
    check(of_totals, 2, "f32[T,4]", "f32[T,3]")
    check(lambda *xs: np.concatenate(xs, 1), 24, *(f"f32[B,{1 + n % 2}]" for n in range(24)))
    # more loops than one reads
    check(lambda *xs: np.concatenate(xs, 1), 1, *(f"f32[B,{1 + n % 2}]" for n in range(66)))


def test_what_is_rolled_is_two_loops() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for shift in (0, 1, -1, 3, 7, -9):
        for axis in (0, 1):
            agree(lambda x, s=shift, a=axis: np.roll(x, s, a) * 2, x, types=["f32[A,B]"])
            agree(lambda x, s=shift, a=axis: np.roll(x, s, a) * 2, x)
    empty = np.zeros((0, 4), np.float32)
    agree(lambda x: np.roll(x, (1, -5), (0, 1)), empty, types=["f32[A,B]"])
    source = c_file(lambda x: np.roll(x, 1, 1), x="f32[A,B]")
    kernel = source[source.index("static void k0") : source.index("_largest_bytes(")]
    assert kernel.count("%") == 1 and "?" not in kernel  # the first place, once a call


def test_threads_share_what_reductions_add_up() -> None:
    """The condition counts a reduction's terms, in the leading order of the sizes."""
    programs = [
        lambda x: x.sum(0),
        lambda x: x.max(1),
        lambda x: x.sum(1) + 1,
        lambda x: x.argmax(0),
        lambda x: x - x.mean(1, keepdims=True),
        lambda x: (x > 1).any(0),
    ]
    for program in programs:
        source = c_file(program, x="f32[A,B]")
        (condition,) = re.findall(r" if \((?:parallel: )?(.*) >= PARALLEL_OPERATIONS\)", source)
        assert re.fullmatch(r"A\*B(\*\d+)?", condition), source
    source = c_file(lambda x: x.sum(0), x="f32[2000,3000]")
    assert "#pragma omp parallel for num_threads(n_threads)\n" in source


def test_each_operand_is_printed_once() -> None:
    """Else a chain of bit operators takes time that doubles with each of them."""

    def program(x: Any) -> Any:
        mixed, counted = x[0], x[0] > 0
        for number in range(1, 40):
            mixed = (mixed ^ x[number]) & 127
            counted = counted | (x[number] > number)
        return mixed, counted

    x = np.arange(40, dtype=np.uint8)
    found = fx.compile(program, x="u8[40]")(x)
    np.testing.assert_array_equal(found, program(x))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("exponent", [3, 4, -1, -2, -0.5, 1.5, 2.5, -1.5])
def test_small_exponents_are_products(exponent: float, dtype: str) -> None:
    """They call no power, are within 2.5 ulp, and give what NumPy gives of infinities and zeros."""
    kind = np.dtype(dtype.replace("f32", "f4").replace("f64", "f8"))
    random = np.random.default_rng(0)
    bits = random.integers(0, 256, (20_000, kind.itemsize), np.uint8).view(kind)[:, 0]
    ends = np.array([0, 1, np.inf, np.nan, np.finfo(kind).max, np.finfo(kind).smallest_subnormal], kind)
    x = np.concatenate([ends, -ends, np.exp2(random.uniform(-3, 3, 20_000)).astype(kind), bits])
    function, source = source_of(lambda x: x**exponent, x=f"{dtype}[N]")
    assert f"= fx_pow_{dtype}(" not in source
    found = function(x)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        nearest = exact.astype(kind)
        errors = np.abs(found - exact) / np.spacing(np.abs(nearest))
    same = (found == nearest) & (np.signbit(found) == np.signbit(nearest)) | np.isnan(found) & np.isnan(nearest)
    assert (same | (errors <= 2.5)).all(), x[~same & ~(errors <= 2.5)]
