"""A decoding step of a GPT-2 with its cache as buffers: what a step moves is the weights and the
cache, read once, and a row of each cache that is written. Counted from the plan of the kernels, not
measured; and several steps agree with the eager module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import nn, passes
from fxlite.backend import KernelInfo
from fxlite.codegen.c import templates
from fxlite.codegen.c.calls import planned_calls
from fxlite.codegen.program.program import optimize
from tutorials import chat


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.register_buffer("keys", np.zeros((heads, length, self.size), np.float32))
        self.register_buffer("values", np.zeros((heads, length, self.size), np.float32))

    def forward(self, x: Any, position: Any) -> Any:
        q, k, v = np.split(self.c_attn(x), 3)
        self.keys[:, position] = k.reshape(self.heads, self.size)
        self.values[:, position] = v.reshape(self.heads, self.size)
        q = q.reshape(self.heads, 1, self.size)
        scores = q @ self.keys.transpose(0, 2, 1) * np.float32(self.size**-0.5)
        seen = np.arange(self.keys.shape[1]) <= position
        shares = F.softmax(np.where(seen, scores, np.float32(-np.inf)), -1)
        return self.c_proj((shares @ self.values).reshape(-1))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, heads, length)
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, position: Any) -> Any:
        x = x + self.attn(self.ln_1(x), position)
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x)), "tanh"))


class GPT(nn.Module):
    """GPT-2's shapes (Radford et al. 2019), for one token at a time."""

    def __init__(self, layers: int, length: int, vocabulary: int, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("position", np.zeros((), np.int64))

    def forward(self, token: Any) -> Any:
        x = self.wte(token) + self.wpe(self.position)
        for block in self.h:
            x = block(x, self.position)
        self.position += 1
        return self.head(self.ln_f(x))


def moved(module: fx.GraphModule) -> tuple[dict[str, int], list[Any]]:
    """Bytes that each kernel of a step moves, and the states that are copied."""
    optimized, _ = optimize(module, keep=templates.claims)
    planned = planned_calls(optimized)
    kernels = [
        KernelInfo(c.name, tuple(g.members), g.root, g.anchor, tuple(g.inputs), g.taken.get(g.root))
        for c in planned.calls
        for g in (c.group,)
    ]
    return passes.kernel_bytes(kernels), planned.program.copied


@pytest.mark.parametrize("length", [1024, 4096])
def test_a_step_moves_the_weights_and_the_cache_once(length: int) -> None:
    nn.init.manual_seed(0)
    program = GPT(layers=2, length=length, vocabulary=256).eval()
    by_kernel, copied = moved(fx.symbolic_trace(program, "i64[]"))
    states = {path: array.nbytes for path, array in program.named_buffers()}
    weights = sum(p.nbytes for name, p in program.named_parameters() if not name.startswith(("wte", "wpe")))
    needed = weights + sum(states.values())
    assert copied == []
    assert 0.99 * needed < sum(by_kernel.values()) < 1.1 * needed
    rows = [size for name, size in by_kernel.items() if "index_update" in name]
    # a key or value is read and written, and the position read
    assert rows == [2 * 768 * 4 + 8] * 4 or all(size < 4 * 768 * 4 + 8 for size in rows)
    assert len(rows) == 4


def test_steps_agree_with_the_module() -> None:
    nn.init.manual_seed(1)
    program = GPT(layers=2, length=16, vocabulary=40, width=48, heads=3).eval()
    function = fx.compile(program, "i64[]", backend="c")
    text = function.sources[f"{function.program.name}.c"]
    assert "fx_copy(" not in text
    for token in (3, 1, 4, 1, 5):
        np.testing.assert_allclose(function(np.array(token)), program(np.array(token)), rtol=1e-4, atol=1e-5)
    assert function.graph_module.get_buffer("position") == 5


class Slots(nn.Module):
    """Writes rows of which some, or all, may be outside of the buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", np.zeros((300, 4), np.float32))
        self.register_buffer("columns", np.zeros((2, 300, 3), np.float32))

    def forward(self, x: Any, y: Any, place: Any) -> Any:
        self.rows[place : place + 1] = x
        self.columns[:, place : place + 2] = y
        self.rows[:place] *= 2
        return self.rows.sum() + self.columns.sum()


def test_a_write_into_a_state_computes_the_part_that_it_changes() -> None:
    program = Slots()
    function = fx.compile(program, "f32[4]", "f32[3]", "i64[]", backend="c")
    text = function.sources[f"{function.program.name}.c"]
    kernels = [part.partition("\n}\n")[0] for part in text.split("static void k")[1:]]
    writes = [part for part in kernels if "where" in part.partition("(")[0]]
    assert len(writes) == 2 and all("const int64_t count = " in part and "< 300; ++" not in part for part in writes)
    rng = np.random.default_rng(0)
    for place in (0, 5, 298, 299, 300, 1000, -1, -2, -300, -301):
        x, y = rng.standard_normal(4, np.float32), rng.standard_normal(3, np.float32)
        function(x, y, np.array(place)), program(x, y, np.array(place))
        for name in ("rows", "columns"):
            np.testing.assert_array_equal(function.graph_module.get_buffer(name), getattr(program, name), str(place))


def test_of_a_cache_as_much_is_read_as_is_filled() -> None:
    """A prompt and single tokens, up to the last place of the cache; what is behind the last token may be anything."""
    nn.init.manual_seed(2)
    shape = chat.Shape(48, 64, 2, 4, 2, 40, 272)
    program = chat.Llama(shape).eval()
    function = fx.compile(program, "i64[T]", "f32[]", "f32[]", backend="c")
    text = function.sources[f"{function.program.name}.c"]
    products = [line for line in text.splitlines() if " * m = " in line and "272" in line]
    assert not products and "< 272; ++" not in text
    for module in (program, function.graph_module):
        for layer in range(2):
            module.get_buffer(f"layers.{layer}.attention.values")[...] = np.nan
    numbers = np.float32(0), np.float32(0)
    rng = np.random.default_rng(0)
    for count in (7, 1, 1, 250, 1, 12):
        tokens = rng.integers(0, 40, count)
        assert function(tokens, *numbers) == program(tokens, *numbers)
    assert function.graph_module.get_buffer("position") == 272
    for layer in range(2):
        for name in ("keys", "values"):
            path = f"layers.{layer}.attention.{name}"
            one, other = function.graph_module.get_buffer(path), program.get_buffer(path)
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4)


def test_steps_of_single_tokens_know_the_filled_part_before_the_first_layer() -> None:
    """The masks that layers share are computed where the number of filled places is known."""
    shape = chat.Shape(48, 64, 3, 4, 2, 40, 272)
    program = chat.Llama(shape).eval()
    function = fx.compile(program, "i64[1]", "f32[]", "f32[]", backend="c")
    text = function.sources[f"{function.program.name}.c"]
    assert "< 272; ++" not in text and "for (int layer = 0; layer < 2; ++layer)" in text
    numbers = np.float32(0), np.float32(0)
    for token in (3, 1, 4, 1, 5):
        assert function(np.array([token]), *numbers) == program(np.array([token]), *numbers)


def test_a_profile_counts_what_is_filled() -> None:
    shape = chat.Shape(48, 64, 2, 4, 2, 40, 272)
    module = fx.symbolic_trace(chat.Llama(shape).eval(), "i64[1]", "f32[]", "f32[]")
    found = passes.profile(module, np.array([1]), np.float32(0), np.float32(0), backend="c", repeat=2)
    products = [row.bytes for row in found.rows if row.node.name.startswith("matmul") or "matmul" in row.name]
    assert products and max(products) < 272 * 24
