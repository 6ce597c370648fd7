"""Equal layers as loops in emitted C: the text with loops does what the text without them does.

Both texts of a program are compiled into one shared object, without optimization, and run on the
same inputs with workspaces that hold different rubbish: results are the same bits.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn
from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import CProgram, emit
from fxlite.codegen.c.rolling import Loop, rolled
from fxlite.codegen.program.program import optimize
from fxlite.codegen.runtime.load import aligned_empty
from fxlite.codegen.runtime.toolchain import find_compiler
from fxlite.types import shapes
from tests.codegen.compiling import run_in
from tests.oracle import compare, flatten

Array = np.ndarray[Any, Any]


def emitted(program: Any, types: Sequence[str], number: str = "") -> tuple[CProgram, CProgram]:
    """The program's C with loops and without."""
    module, _ = optimize(fx.symbolic_trace(program, *types), False, templates.claims)
    return emit(module, f"rolled{number}"), emit(module, f"plain{number}", loops=False)


def run_all(programs: Sequence[CProgram], inputs: Sequence[Array], folder: Path) -> list[list[Array]]:
    """The results of each program."""
    folder.mkdir(exist_ok=True)
    for program in programs:
        for file, text in program.sources.items():
            (folder / file).write_text(text)
    files = [f"{program.name}.c" for program in programs]
    compiler = find_compiler().command
    flags = ["-std=gnu11", "-O0", "-w", "-shared", "-fPIC", "-fwrapv"]
    run_in(folder, compiler, [*compiler, *flags, *files, "-o", "all.so", "-lm"])
    library = ctypes.CDLL(str(folder / "all.so"))
    return [_run(library, program, inputs) for program in programs]


def _run(library: ctypes.CDLL, program: CProgram, inputs: Sequence[Array]) -> list[Array]:
    sizes = dict[str, int]()
    for spec, array in zip(program.entry.inputs, inputs):
        for dim, size in zip(spec.shape, array.shape):
            sizes.setdefault(str(dim), size)
    dims = [ctypes.c_int64(sizes[name]) for name in program.entry.dims]
    nodes = program.program.results
    outputs = [np.full(shapes.substitute(n.type.shape, sizes), 77, n.type.dtype.numpy) for n in nodes]
    ask = library[f"{program.name}_workspace_bytes"]
    ask.restype = ctypes.c_int64
    workspace = aligned_empty(max(ask(*dims, 1), 64))
    workspace[...] = np.frombuffer(program.name.encode(), np.uint8)[0]
    error = (ctypes.c_int64 * 4)()
    arrays = [a.ctypes.data_as(ctypes.c_void_p) for a in (*inputs, *outputs)]
    rest = [a.ctypes.data_as(ctypes.c_void_p) for a in (program.weights, workspace)]
    assert library[f"{program.name}_run"](*arrays, *dims, *rest, 1, error) == 0
    return outputs


def check(program: Any, types: Sequence[str], inputs: Sequence[Array], folder: Path) -> CProgram:
    """The program with loops, which does what it does without and what NumPy does."""
    with_loops, without = emitted(program, types)
    got, plain = run_all([with_loops, without], inputs, folder)
    for one, other in zip(got, plain, strict=True):
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
    compare("loops", got, flatten(program(*inputs)))
    return with_loops


def check_all(models: Sequence[Any], types: Sequence[str], x: Array, folder: Path) -> list[CProgram]:
    """:func:`check` for many programs of one input at once."""
    programs: list[CProgram] = []
    for number, (model, kind) in enumerate(zip(models, types, strict=True)):
        programs += emitted(model, [kind], f"_{number}")
    results = run_all(programs, [x], folder)
    for number, model in enumerate(models):
        got, plain = results[2 * number : 2 * number + 2]
        for one, other in zip(got, plain, strict=True):
            np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))
        compare(f"program {number}", got, flatten(model(x)))
    return programs[::2]


def array(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 4


def run_function(program: CProgram) -> str:
    """The text behind the kernels."""
    return program.functions[program.functions.index(f"{program.name}_workspace_bytes") :]


class Block(nn.Module):
    """Attention, with a cache or without, and an MLP."""

    def __init__(self, d: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x: Any, past: Any = None) -> Any:
        b, t, d = x.shape
        qkv = self.qkv(self.n1(x)).reshape(b, t, 3, self.heads, d // self.heads)
        q, k, v = (part[0] for part in np.split(qkv.transpose(2, 0, 3, 1, 4), 3))
        if past is not None:
            k, v = np.concatenate([past[0], k], -2), np.concatenate([past[1], v], -2)
        weights = F.softmax(q @ k.transpose(0, 1, 3, 2) * 0.35, -1)
        x = x + self.proj((weights @ v).transpose(0, 2, 1, 3).reshape(b, t, d))
        x = x + self.down(F.gelu(self.up(self.n2(x))))
        return x if past is None else (x, k, v)


class GPT(nn.Module):
    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.emb = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, ids: Any) -> Any:
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


IDS = np.arange(6).reshape(2, 3) % 10


def test_a_transformer_is_a_loop_over_its_blocks(tmp_path: Path) -> None:
    program = check(GPT().eval(), ["i64[B,T]"], [IDS], tmp_path)
    text = run_function(program)
    assert re.search(r"for \(int layer = 0; layer < 12; \+\+layer\)\n +rolled_block_run\(", text)
    assert "} blocks[12];" in program.functions and "struct rolled_block {" in program.functions
    assert text.count("\n") < 120
    # The values of a layer lie where those of the layer before did.
    assert len(program.program.lifetimes) > 80 and len(re.findall("offset\\[.\\]\\),", text)) < 10
    small, _ = emitted(GPT(3).eval(), ["i64[B,T]"])
    assert len(program.functions.splitlines()) <= len(small.functions.splitlines()) + 2


class Cached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x: Any, past: Any) -> Any:
        kept = []
        for number, block in enumerate(self.blocks):
            x, k, v = block(x, past[number])
            kept += [k, v]
        return x, *kept


class CachedApart(Cached):
    def forward(self, x: Any, *past: Any) -> Any:
        return super().forward(x, [(past[i], past[i + 1]) for i in range(0, 8, 2)])


def test_caches_of_layers_are_read_and_written(tmp_path: Path) -> None:
    inputs = [array(2, 3, 8), array(4, 2, 2, 2, 5, 4)]
    check(Cached().eval(), ["f32[B,T,8]", "f32[4,2,B,2,S,4]"], inputs, tmp_path / "one")
    apart = [inputs[0], *(inputs[1][i, j].copy() for i in range(4) for j in range(2))]
    model = CachedApart().eval()

    def program(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
        return model(x, a, b, c, d, e, f, g, h)

    types = ["f32[B,T,8]", *["f32[B,2,S,4]"] * 8]
    made = check(program, types, apart, tmp_path / "apart")
    assert re.search(r"const float \*const \w+\[4\] = \{\w+, \w+, \w+, \w+\};", made.functions)
    assert "layer < 4" in made.functions


class Layers(nn.Module):
    """Layers of which ``forward`` is a function of the layers and the input."""

    def __init__(self, layers: Sequence[nn.Module], call: Any) -> None:
        super().__init__()
        self.layers, self.call = nn.ModuleList(layers), call

    def forward(self, x: Any) -> Any:
        return self.call(self.layers, x)


class Residual(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.fc, self.out, self.factor = nn.Linear(8, 8), nn.Linear(8, 8), factor

    def forward(self, x: Any) -> Any:
        return x + self.out(np.tanh(self.fc(x))) * self.factor


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.a(x) * (1 / (1 + np.exp(-self.b(x))))


def chain(layers: Any, x: Any) -> Any:
    for layer in layers:
        x = layer(x)
    return x


def every(layers: Any, x: Any) -> Any:
    results = []
    for layer in layers:
        x = layer(x)
        results.append(x)
    return results


def stacked(layers: Any, x: Any) -> Any:
    return np.concatenate(every(layers, x), -1).sum(-1)


def skips(layers: Any, x: Any) -> Any:
    """Down and up again, as a U-net: each layer up reads what one down computed."""
    kept = every(layers[:3], x)
    x = kept[-1]
    for layer, other in zip(layers[3:], reversed(kept)):
        x = layer(np.tanh(x + other))
    return x


def two_back(layers: Any, x: Any) -> Any:
    """Each layer reads the results of the last two."""
    before = x
    for layer in layers:
        before, x = x, layer(x * before)
    return x


def experts(layers: Any, x: Any) -> Any:
    for number in range(0, len(layers), 2):
        gate = F.softmax(x, -1)
        x = x + gate[:, :1] * layers[number](x) + gate[:, 1:2] * layers[number + 1](x)
    return x


def shared_steps(layers: Any, x: Any) -> Any:
    for _ in range(5):
        x = layers[0](x)
    return x


def two_kinds(layers: Any, x: Any) -> Any:
    for number, layer in enumerate(layers):
        x = layer(x) if number % 2 else np.maximum(layer(x), x)
    return x


def later(layers: Any, x: Any) -> Any:
    """The first result is read at the end."""
    results = every(layers, np.exp(x))
    return results[-1] - results[0] * results[2]


def residuals(count: int, *factors: float) -> list[nn.Module]:
    return [Residual(*factors[i : i + 1]) for i in range(count)]


def nested(layers: Any, x: Any) -> Any:
    for number in range(0, len(layers), 3):
        x = np.exp(-np.abs(layers[number](x).cumsum(-1)))
        for layer in layers[number + 1 : number + 3]:
            x = layer(x)
    return x


MODELS = {
    "residual": (residuals(6), chain, True),
    "gated": ([Gated() for _ in range(5)], chain, True),
    "alternating": ([Residual() if i % 2 else Gated() for i in range(8)], chain, True),
    "all_results": (residuals(5), every, True),
    "stacked": (residuals(5), stacked, True),
    "skips": (residuals(6), skips, False),
    "two_back": (residuals(6), two_back, True),
    "experts": ([Gated() for _ in range(8)], experts, True),
    "shared": (residuals(1), shared_steps, True),
    "two_kinds": (residuals(8), two_kinds, True),
    "later": (residuals(6), later, True),
    "constants": (residuals(4, 1.0, 2.0, 3.0, 4.0), chain, False),
    "two": (residuals(2), chain, False),
    "nested": (residuals(9), nested, True),
}


@pytest.mark.parametrize("types", ["f32[B,8]", "f32[5,8]"])
def test_layers(types: str, tmp_path: Path) -> None:
    models = [Layers(layers, call).eval() for layers, call, _ in MODELS.values()]
    check_all(models, [types] * len(models), array(5, 8), tmp_path)


def test_what_a_loop_is(tmp_path: Path) -> None:
    """Only what repeats often enough, and differs in what is given, not in what is done."""
    for name, (layers, call, is_loop) in MODELS.items():
        with_loops, without = emitted(Layers(layers, call).eval(), ["f32[B,8]"])
        assert ("layer < " in with_loops.functions) == is_loop, name
        assert "layer < " not in without.functions
        assert with_loops.entry.inputs == without.entry.inputs
        np.testing.assert_array_equal(with_loops.weights, without.weights)
        for size in (1, 50):
            bytes_of = [shapes.substitute(p.program.arena_bytes, {"B": size}) for p in (with_loops, without)]
            assert bytes_of[0] <= 1.1 * bytes_of[1], name


def test_modules_in_lists_are_arrays_of_structs() -> None:
    text = emitted(Layers(residuals(6), two_back).eval(), ["f32[B,8]"])[0].functions
    assert re.search(r"struct rolled_residual \{[^}]*\} layers\[6\];", text)
    assert "w.layers[layer].fc_weight_packed" in text and "w.layers[5].fc_bias" in text
    text = emitted(Layers(MODELS["experts"][0], experts).eval(), ["f32[B,8]"])[0].functions
    assert "} layers[8];" in text and "w.layers[2*layer + 1].a_weight_packed" in text


def test_kernels_of_all_layers_are_named_after_their_class() -> None:
    program, _ = emitted(GPT().eval(), ["i64[B,T]"])
    names = {re.sub(r"^k\d+_", "", call.function) for call in program.calls}
    assert {"layer_norm", "block_qkv", "block_up", "block_down", "head"} <= names
    assert not any("blocks_0" in name for name in names)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6, num_layers=5, batch_first=True)
        self.cell = nn.LSTMCell(6, 6)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (last, _) = self.lstm(x)
        for t in range(7):
            h, c = self.cell(x[:, t], (h, c))
        return y, last, h, c


def test_recurrent_layers_and_steps(tmp_path: Path) -> None:
    inputs = [array(3, 7, 6), array(3, 6), array(3, 6)]
    program = check(Recurrent().eval(), ["f32[B,7,6]", "f32[B,6]", "f32[B,6]"], inputs, tmp_path)
    assert program.functions.count("for (int layer") >= 1


def test_ticks_are_those_of_all_iterations() -> None:
    function: Any = fx.compile(Layers(residuals(6), chain).eval(), "f32[B,8]", profile=True)
    assert "layer < 6" in function.program.functions
    x = array(5, 8)
    for _ in range(2):
        function(x)
        ticks = function.kernel_ticks()
        assert len(ticks) == 13 and ticks == sorted(ticks) and ticks[0] > 0
    names = [kernel.name for kernel in function.kernels]
    assert len(set(names)) == 12 and len(function.memory_plan(B=5).steps) == 12


def test_an_index_out_of_range_in_a_loop_ends_the_run() -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.fc = nn.Embedding(6, 8), nn.Linear(8, 8)

        def forward(self, x: Any, ids: Any) -> Any:
            return self.fc(np.tanh(x + self.table(ids))).cumsum(-1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Lookup() for _ in range(6))

        def forward(self, x: Any, ids: Any) -> Any:
            for layer in self.layers:
                x = layer(x, ids)
            return x

    function: Any = fx.compile(Model().eval(), "f32[B,8]", "i64[B]")
    assert "if (error->code) return;" in function.program.functions
    function(array(3, 8), np.array([0, 5, 2]))
    with pytest.raises(IndexError, match="index 9 is out of bounds for size 6"):
        function(array(3, 8), np.array([0, 9, 2]))


def test_threads_may_run_one_model_at_the_same_time() -> None:
    """Weights and values of a call are in structs of its own."""
    function: Any = fx.compile(Layers(residuals(6), chain).eval(), "f32[B,8]", threads=1)
    inputs = [array(5 + n, 8) for n in range(4)]
    expected = [function(x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda n: (n % 4, function(inputs[n % 4])), range(400)):
            np.testing.assert_array_equal(found[1], expected[found[0]])


# -- random programs -------------------------------------------------------------------------------
class Random(nn.Module):
    """A random module: parts in lists, called in random patterns, with values that are kept."""

    def __init__(self, choose: random.Random, depth: int = 0) -> None:
        super().__init__()
        kinds = [Residual, Gated, lambda: nn.LayerNorm(8), lambda: nn.Linear(8, 8)]
        if depth < 1:
            kinds += [lambda: Random(choose, depth + 1)] * 2
        state = choose.getstate()
        self.depth, self.lists = depth, []
        for number in range(choose.randint(1, 2)):
            pattern = [choose.choice(kinds) for _ in range(choose.randint(1, 2 + (depth == 0)))]
            parts = []
            for _ in range(choose.randint(2, 5 - 2 * depth)):
                for kind in pattern:
                    inner = choose.getstate()
                    choose.setstate(state)  # modules of one kind are alike, mostly
                    parts.append(kind())
                    choose.setstate(inner)
            setattr(self, f"part{number}", nn.ModuleList(parts))
            self.lists.append(f"part{number}")
        self.ways = [choose.choice(["chain", "chain", "skip", "keep", "back"]) for _ in self.lists]

    def forward(self, x: Any) -> Any:
        kept = []
        for name, way in zip(self.lists, self.ways):
            start = x
            for number, part in enumerate(getattr(self, name)):
                before, x = x, part(x)
                if way == "skip" and number % 2:
                    x = np.tanh(x + before)
                if way == "keep":
                    kept.append(x)
                if way == "back":
                    x = np.maximum(x, start * 0.5)
        for value in reversed(kept):
            x = np.tanh(x - value)
        return x if len(kept) < 2 or self.depth else (x, *kept)


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    models = [Random(random.Random(100 * seed + number)).eval() for number in range(6)]
    programs = check_all(models, ["f32[B,8]", "f32[3,8]"] * 3, array(3, 8), tmp_path)
    assert any("layer < " in program.functions for program in programs)


def test_steps() -> None:
    """The longest repeat becomes a loop that begins where a module does."""
    assert rolled("abcabcabcab", [""] * 11) == (Loop((0, 1, 2), 3, 3), 9, 10)
    paths = ["", *(f"b.{i // 3}" for i in range(9)), ""]
    assert rolled("babbabbabba", paths) == (0, Loop((1, 2, 3), 3, 3), 10)
    nested = rolled("xaaaaayxaaaaay", [""] * 14)
    assert nested == (Loop((0, Loop((1,), 5, 1), 6), 2, 7),)
    assert rolled("abab", [""] * 4) == (0, 1, 2, 3)
