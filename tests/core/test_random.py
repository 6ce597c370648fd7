"""fx.random: the bits are Philox's on all rungs, numbers have their distributions, keys differ, and
np.random in a traced program is refused with what to write instead."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import FxliteError
from tests.oracle import agree

KEY = fx.random.key(2**40 + 5)
R = fx.random


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [(0, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"), (-1, (2**32 - 1, 2**32 - 1), "")],
)
def test_known_answers(counter: int, key: tuple[int, int], expected: str) -> None:
    """The first is of Random123's file of known answers (kat_vectors)."""
    found = fx.ops.philox(np.array(key, np.uint32), counter, (4,))
    if expected:
        assert " ".join(f"{word:08x}" for word in found) == expected
    else:  # the counter wraps behind it
        after = fx.ops.philox(np.array(key, np.uint32), counter, (8,))
        assert np.array_equal(after[:4], found)
        assert np.array_equal(after[4:], fx.ops.philox(np.array(key, np.uint32), 0, (4,)))


def drawn(k: Any, x: Any) -> Any:
    """Everything that is drawn, for keys of one key."""
    a, b, c = R.split(k, 3)
    return (
        *(R.bits(R.fold_in(a, 1), (5,), d) for d in ("u8", "u16", "u32", "u64")),
        *(R.uniform(b, (3, 5), d) for d in ("f16", "bf16", "f32", "f64")),
        *(R.normal(b, (3, 5), d) for d in ("f16", "f32", "f64")),
        R.uniform(b, 7, low=-1.0, high=3.0),
        R.exponential(c, 5),
        R.gumbel(c, 5),
        R.randint(c, (9,), -3, 12),
        R.randint(c, (), 0, 2**40),
        R.bernoulli(c, 0.3, (6,)),
        R.permutation(a, 9),
        R.permutation(a, x, 1),
        R.choice(b, x, (2, 3)),
        R.categorical(c, x),
    )


def test_all_rungs_draw_the_same() -> None:
    agree(drawn, KEY, np.arange(12.0).reshape(3, 4), rungs=("graph", "python", "kernel", "c", "cuda"))


def test_keys_and_seeds_may_be_traced() -> None:
    agree(lambda s, n: R.normal(R.fold_in(R.key(s), n), 4), np.array(2**40 + 5), np.array(7))
    assert np.array_equal(R.key(np.int64(3)), R.key(3))


def test_sizes_may_be_named() -> None:
    def noisy(k: Any, x: Any) -> Any:
        return x + R.normal(k, x.shape)

    compiled = fx.compile(noisy, k="u32[2]", x="f32[B,3]")
    for count in (1, 5):
        x = np.ones((count, 3), np.float32)
        np.testing.assert_allclose(compiled(KEY, x), noisy(KEY, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
def test_many_words_are_enciphered_side_by_side(threads: int) -> None:
    """C draws many words by a routine, in parts for the threads: the same bits, of any number."""
    compiled = fx.compile(lambda k, x: R.bits(k, x.shape), k="u32[2]", x="u8[N]", backend="c", threads=threads)
    assert "random_words(" in next(text for name, text in compiled.sources.items() if name.endswith(".c"))
    for count in (0, 3, 64, 4097, 13001):
        np.testing.assert_array_equal(compiled(KEY, np.zeros(count, np.uint8)), R.bits(KEY, count))


def test_a_buffer_may_hold_the_key() -> None:
    class Noise(fx.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("key", R.key(5))

        def forward(self, x: Any) -> Any:
            self.key, own = R.split(self.key)
            return x + R.uniform(own, x.shape)

    compiled, key = fx.compile(Noise(), x="f32[3]", backend="c"), R.key(5)
    for _ in range(3):
        key, own = R.split(key)
        np.testing.assert_array_equal(compiled(np.zeros(3, np.float32)), R.uniform(own, 3))


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda: R.uniform(KEY, 40000), 0.5, 12**-0.5),
        (lambda: R.normal(KEY, 40000), 0, 1),
        (lambda: R.normal(KEY, 40000, "f64"), 0, 1),
        (lambda: R.exponential(KEY, 40000), 1, 1),
        (lambda: R.gumbel(KEY, 40000), 0.5772, np.pi / 6**0.5),
        (lambda: R.randint(KEY, 40000, 0, 5), 2, 2**0.5),
        (lambda: R.bernoulli(KEY, 0.25, 40000), 0.25, 0.433),
        (lambda: R.categorical(KEY, np.log(np.full((40000, 2), [0.25, 0.75]))), 0.75, 0.433),
    ],
)
def test_distributions(draw: Callable[[], Any], mean: float, deviation: float) -> None:
    found = np.asarray(draw(), np.float64)
    assert abs(found.mean() - mean) < 5 * deviation / 200
    assert abs(found.std() - deviation) < 0.05 * deviation


def test_keys_have_nothing_to_do_with_each_other() -> None:
    keys = [*R.split(KEY, 50), *(R.fold_in(KEY, n) for n in range(50)), KEY]
    words = np.stack([R.bits(k, 4) for k in keys])
    assert len(np.unique(words)) == words.size
    assert sorted(R.permutation(KEY, 20)) == list(range(20))


_RNG = np.random.default_rng(0)


def _drawn_in_a_loop(x: Any) -> Any:
    rng = np.random.default_rng(1)
    while x.sum() < 9:
        x = x + rng.random(3)
    return x


def test_a_generator_of_the_program_s_own_draws_constants() -> None:
    def program(x: Any) -> Any:
        return x + np.random.default_rng(1).random(3)

    module = fx.symbolic_trace(program, "f64[3]")
    np.testing.assert_array_equal(module(np.zeros(3)), program(np.zeros(3)))


def _with_a_seed(x: Any) -> Any:
    random.seed(3)
    first = random.randint(1, 60)
    own = random.Random(5)
    return x + first, x * random.random(), x * own.uniform(2, 3), [own.choice([1.5, 2.5]) * v for v in x]


def test_python_s_generators_with_a_seed_draw_constants() -> None:
    call, x = fx.jit(_with_a_seed), np.arange(3.0)
    for _ in range(2):
        for found, expected in zip(call(x), _with_a_seed(x), strict=True):
            np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: x + np.random.randn(3), r"(?s)randn\(\) draws from a hidden state.*fx.random.normal"),
        (lambda x: x * random.randint(1, 6), r"(?s)random's randint\(\) draws from a hidden state.*fx.random.randint"),
        (lambda x: x * random.random(), r"random's random\(\) draws from a hidden state"),
        (lambda x: x * random.Random().random(), r"random's random\(\) draws from a hidden state"),
        (lambda x: x + _RNG.integers(0, 3, 3), r"fx.random.randint\(key"),
        (lambda x: x + np.random.default_rng().random(3), r"fx.random.uniform\(key"),
        (lambda x: _drawn_in_a_loop(x), r"fx.random.uniform\(key"),
        (lambda x: fx.random.normal(x, 3), "a key must be u32"),
        (lambda x: fx.random.uniform(KEY, 3, "i32") + x, "a float dtype"),
        (lambda x: fx.random.randint(KEY, 3, 5, 5) + x, "high must be larger"),
        (lambda x: fx.random.key("a") + x, "a seed must be an integer"),
        (lambda x: fx.random.bits(KEY, 3, "i64") + x, "u8, u16, u32 or u64"),
    ],
)
def test_what_is_refused(program: Any, message: str) -> None:
    with pytest.raises(FxliteError, match=message):
        fx.symbolic_trace(program, x="f32[3]")
