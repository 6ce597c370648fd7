"""The arithmetic of the benchmarks: which rounds count, and what a speed-up is."""

from __future__ import annotations

import pytest

from tests.benchmarks.timing import Block, Comparison, Timing, block, compare


def comparison(threads: int, *rounds: tuple[float, float, float]) -> Comparison:
    """Two engines; each round is (seconds of a, seconds of b, cores others used)."""
    a = Timing([Block(ours, ours / 2, 9, noise) for ours, _, noise in rounds])
    b = Timing([Block(theirs, theirs / 4, 9, 0.0) for _, theirs, _ in rounds])
    return Comparison({"a": a, "b": b}, threads)


def test_noisy_rounds_are_left_out() -> None:
    quiet = [(1.0, 2.0, 0.0)] * 4
    found = comparison(1, (50.0, 1.0, 1.5), *quiet, (70.0, 1.0, 0.9))
    assert found.rounds == [1, 2, 3, 4]
    assert not found.is_noisy
    assert found.seconds("a") == 1 and found.speedup("a", "b") == 2


def test_without_quiet_rounds_the_quieter_half_counts() -> None:
    found = comparison(2, (1.0, 3.0, 0.5), (9.0, 1.0, 2.0), (1.0, 3.0, 0.6), (9.0, 1.0, 1.9))
    assert found.rounds == [0, 2] and found.is_noisy
    assert found.speedup("a", "b") == 3


def test_one_thread_in_noise_is_timed_by_its_processor_time() -> None:
    found = comparison(1, (4.0, 4.0, 1.0), (4.0, 4.0, 1.0))
    assert found.seconds("a") == 2 and found.seconds("b") == 1
    assert found.speedup("a", "b") == 0.5


def test_speedup_is_the_median_of_ratios_within_rounds() -> None:
    found = comparison(1, *[(s, 2 * s, 0.0) for s in (1.0, 10.0, 3.0, 100.0, 5.0)])
    assert found.speedup("a", "b") == 2


def test_engines_take_turns_until_it_is_quiet() -> None:
    order: list[str] = []

    def run(name: str) -> Block:
        order.append(name)
        return Block(1.0, 1.0, 3, 1.0 if len(order) <= 6 else 0.0)

    engines = {name: (lambda n=name: run(n)) for name in "abc"}
    found = compare(engines, threads=1, rounds=4, most=20, pause=0)
    assert "".join(order[:9]) == "abcbcacab"
    assert len(found.engines["a"].blocks) == 6  # two noisy rounds, then four quiet ones


def test_block_calls_at_least_three_times() -> None:
    calls: list[int] = []
    found = block(lambda: calls.append(1), seconds=0, warm=0)
    assert found.repetitions == 3 and len(calls) > 3
    assert found.seconds > 0 and found.foreign >= 0 and found.processor == pytest.approx(0, abs=1)
