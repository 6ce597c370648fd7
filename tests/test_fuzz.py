"""The short run of the fuzzer (``python -m tests.fuzz`` is the long one), and that it can fail."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fxlite as fx
from fxlite import passes
from fxlite.passes import PASSES
from fxlite.passes.base import Pass
from fxlite.scalar.functions import FUNCTIONS
from tests.fuzz.__main__ import run
from tests.fuzz.example import Counts, check
from tests.fuzz.quantized import KINDS, QuantizedCounts, check_quantized
from tests.fuzz.quantized_extremes import EXTREMES
from tests.fuzz.results import Disturbed, Reference, exact_difference


@settings(max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_random_graphs_under_random_rewrites(data: st.DataObject) -> None:
    check(data.draw, Counts())


def test_a_wrong_pass_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def abs_is_identity(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target="neg"):
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)

    for name in list(PASSES):
        monkeypatch.setitem(PASSES, name, Pass(abs_is_identity, name, "exact"))
    counts = Counts()
    found = run(300, 1, counts)
    assert isinstance(found, passes.PassError)
    story = "\n".join(found.__notes__)
    assert "the program: sizes" in story and "reproduce_failure" in story
    assert story.count("= -") <= 3, "the example is small"


def test_rounding_is_told_from_errors() -> None:
    gm = fx.symbolic_trace(lambda x: (np.floor(x.sum()), x.sum()), x="f32[8]")
    x = np.full(8, 0.125, np.float32)  # the sum is 1: rounding decides what floor gives
    reference = Reference(gm, [x])
    one = np.float32(1)
    assert reference.close_difference((one - 1, one - np.float32(1e-7))) is None
    assert "result 1" in str(reference.close_difference((one, one + np.float32(1e-3))))
    assert "result 0" in str(Reference(gm, [x + 1]).close_difference((one, one * 9)))


def test_what_swings_may_jump_in_a_few_elements() -> None:
    rng = np.random.default_rng(37)
    first, again = (rng.standard_normal(s, np.float32) for s in ((8, 48), (48, 16)))

    def swings(x: Any) -> Any:
        return fx.ops.recurrence(x @ first, again * 2, (x @ first)[0, :, :16], mode="gru")

    gm = fx.symbolic_trace(swings, x="f32[130,7,8]")
    x = rng.standard_normal((130, 7, 8), np.float32)
    reference = Reference(gm, [x])
    for seed in range(200, 204):
        assert reference.close_difference(Disturbed(gm, seed, 1.0).run(x)) is None
    wrong = reference.result.copy()
    wrong.flat[::100] += 0.5
    assert "elements differ" in str(reference.close_difference(wrong))


@pytest.mark.parametrize(
    ("a", "b"), [(0.0, -0.0), (1.0, np.nextafter(1, 2)), (np.nan, 1.0), (np.float32(1), 1.0), (1.0, (1.0,))]
)
def test_every_bit_counts(a: Any, b: Any) -> None:
    assert exact_difference(a, a) is None
    assert exact_difference(a, b) is not None


def test_quantized_programs_agree_in_every_bit() -> None:
    counts = QuantizedCounts()
    check_quantized(len(KINDS), 6, counts, cases=2)
    assert counts.cases == 2 * len(KINDS)
    assert set(counts.compared) == {"c", "cuda", "graph", "python", "kernel"}


def test_quantized_programs_agree_at_the_ends_of_float32() -> None:
    counts = QuantizedCounts()
    check_quantized(2 * len(EXTREMES), 3, counts, cases=10, kinds=EXTREMES)
    assert counts.cases == 20 * len(EXTREMES)


def test_a_wrong_rounding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(FUNCTIONS["round"], compute=lambda x: np.floor(x + np.float32(0.5)))
    monkeypatch.setitem(FUNCTIONS, "round", wrong)
    with pytest.raises(AssertionError, match="kernel differs from NumPy"):
        check_quantized(1, 0, QuantizedCounts())
