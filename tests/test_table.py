"""A sample of the table of every function x dtype x shape x hard values (tests/table), on all rungs
against NumPy. The whole: ``python -m tests.fuzz --table``."""

from __future__ import annotations

import random

import pytest

from tests.table import functional, torch_peer
from tests.table.check import Counts, check, prepare
from tests.table.differences import KNOWN, Difference
from tests.table.rows import Row, every, names_without_calls

#: Rows that were wrong once: literals beyond a dtype, axes without elements, dtypes of results.
MENDED = """
np.clip(a, -1, 2) | u8[N]; np.clip(a, 0, 300) | u8[N]; np.clip(a, -200, 2**40) | i8[N]
np.clip(a, 0.5, 1.5) | i32[N]; np.clip(a, np.nan, None) | u8[N]; a.clip(max=np.float64(.1)) | f32[N]
a < 300 | u8[N]; -1 == a | u8[N]; a != 2**70 | i64[N]; np.where(a > 3, a, 300) | u8[N]
np.maximum(a, 300) | u8[N]; a + 300 | u8[N]; a + 0.1 | f16[N]; np.maximum(a, -0.0) | i32[N]
np.full_like(a, 300) | u8[N]; np.pad(a, 1, constant_values=300) | u8[N]; a ** -1 | i32[3]
np.argmin(a[1]) | f32[7]; np.argmax(a[1], axis=0) | f32[7]; np.sum(a, axis=-1) | f32[]
np.argmax(a) | i8[]; np.max(a) | f32[0]; np.argmin(a, 1) | f32[3,0]
np.max(a, axis=0) | i32[N]; np.argmax(a, axis=1) | u8[2,N]
np.min(a, (0, 1), keepdims=True) | f64[N,N]
np.reciprocal(a) | i32[N]; np.reciprocal(a) | i8[N]; np.reciprocal(a) | bool[N]
np.fabs(a) | i32[N]; np.round(a) | i64[N]; np.round(a, -1) | i64[N]; np.round(a, 1) | i32[N]
a.round(-2) | f32[N]
np.power(a, 0.5) | f32[N]; a ** 0.5 | f64[N]; np.sum(a, dtype=np.int8) | i32[N]
np.mean(a, dtype=np.int16) | f32[N]; np.prod(a, axis=0, dtype=bool) | i8[3,2]
np.linalg.norm(a) | i32[N]; np.arctan2(a, a.astype(np.uint8)) | i8[N]; np.vstack([a, a]) | f32[]
np.expand_dims(a, (1, 1)) | f32[3]; np.transpose(a, axes=(1, 0)) | f32[2,3]
np.hstack([a, a], dtype=np.float64) | f32[3]; np.clip(a, -1, np.uint8(200)) | u8[N]
np.add(a, a, dtype=np.int64) | u8[N]; np.zeros_like(a, shape=(2, 3)) | f32[N]
np.sum(a, dtype=np.uint8) | u8[N]
np.sum(a) | u8[N]; np.prod(a) | u16[N]; np.cumsum(a) | u32[N]; np.argmax(a) | u64[9]
a < a.astype(np.int64) | u64[N]; a.astype(np.int8) >= a | u64[N]; a - 2**63 | u64[N]
np.pad(a, 1, constant_values=-1) | u64[N]; np.mean(a) | u64[9]; a @ a | u16[9]
a + a.astype(np.int64) | u64[N]
np.take(a, [0, -1], mode='raise') | f32[9]
"""


def _mended() -> list[Row]:
    found = []
    for entry in MENDED.strip().replace("\n", "; ").split("; "):
        text, kind = entry.split(" | ")
        for size in (0, 9) if "N" in kind else (0,):
            found.append(Row("mended", text, (kind,), ("hard",), (size,)))
    return found


def _problems(counts: Counts) -> str:
    return "\n".join(str(f) for f in counts.findings)


def test_every_numpy_name_has_rows() -> None:
    assert names_without_calls() == []


def test_every_function_of_nn_has_rows() -> None:
    assert functional.names_without_calls() == []


def test_mended_rows() -> None:
    counts = Counts()
    check(_mended(), ("graph", "python", "kernel", "c"), counts)
    assert not counts.findings, _problems(counts)
    assert not counts.documented
    assert counts.refused >= 12


def test_sample_without_a_compiler() -> None:
    rows = random.Random(0).sample(every(), 150)
    rows += random.Random(0).sample([*functional.functions()], 100)
    counts = Counts()
    check(rows, ("graph", "python", "kernel"), counts)
    assert not counts.findings, _problems(counts)


@pytest.mark.parametrize("rung", ["c", "cuda"])
def test_sample_compiled(rung: str) -> None:
    rows = random.Random(1).sample(every(), 30)
    rows += random.Random(1).sample([*functional.functions()], 30)
    counts = Counts()
    check(rows, (rung,), counts)
    assert not counts.findings, _problems(counts)


def test_functional_rows_beside_torch() -> None:
    pytest.importorskip("torch")
    counts = Counts()
    torch_peer.check(torch_peer.rows(), counts)
    assert not counts.findings, _problems(counts)
    assert counts.rows > 300 and set(counts.documented) <= set(torch_peer.KNOWN.values())


@pytest.mark.parametrize("known", KNOWN, ids=lambda d: d.example.label)
def test_documented_difference_is_one(known: Difference) -> None:
    counts = Counts()
    check([known.example], ("graph", "python", "kernel", "c"), counts)
    assert not counts.findings, _problems(counts)
    assert known.reason in counts.documented, "it does not differ any more: take it out"
    assert prepare(known.example).expected
