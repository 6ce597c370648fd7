"""simplify: identities that hold bit for bit, and look-alikes that must stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxlite as fx
import fxlite.nn.functional as F
from fxlite import ops, passes
from fxlite.passes.rewrite.rule_set import analyze_rules
from fxlite.passes.rules.simplify import cast_of_cast, keeps_every_value
from fxlite.types.dtypes import ALL
from tests.graphs import ops_of, trace

SIMPLIFIED: dict[str, tuple[Any, list[str]]] = {
    "x * 1": (lambda x: 1 * (x * 1.0), []),
    "x / 1 ** 1 - 0": (lambda x: (x / 1) ** 1 - 0, []),
    "x + -0.0": (lambda x: x + -0.0, []),
    "neg neg neg": (lambda x: -np.negative(-x), ["neg"]),
    "relu relu": (lambda x: F.relu(F.relu(x)), ["relu"]),
    "abs neg": (lambda x: np.abs(-x), ["abs"]),
    "relu exp": (lambda x: F.relu(np.exp(x)), ["exp"]),
    "clip clip": (lambda x: x.clip(-2, 3).clip(-1, 5), ["clip"]),
    "cast": (lambda x: x.astype(np.float64).astype(np.float32), []),
    "casts": (lambda x: x.astype(np.float64).astype(np.float16), ["cast"]),
    "reshapes": (lambda x: x.reshape(2, 6).reshape(12).reshape(6, 2), ["reshape"]),
    "reshape back": (lambda x: x.reshape(2, 6)[None].reshape(3, 4), []),
    "squeeze": (lambda x: np.squeeze(x[:, None], 1), []),
    "permute": (lambda x: x.T.T, []),
    "permutes": (lambda x: x[None].transpose(1, 2, 0).transpose(1, 2, 0), ["unsqueeze", "permute"]),
    "expand": (lambda x: np.broadcast_to(np.broadcast_to(x, (2, 3, 4)), (2, 3, 4)), ["expand"]),
    "slice": (lambda x: ops.slice(ops.slice(x, 1, 0, 9), 0, -3), []),
    "concat": (lambda x: np.concatenate([x]), []),
    "pad": (lambda x: np.pad(x, 0), []),
    "flip": (lambda x: x[::-1][::-1], []),
    "where": (lambda x: np.where(x > 0, x, x), []),
    "maximum": (lambda x: np.maximum(x, x), []),
    "dropout": (lambda x: ops.dropout(ops.dropout(x, 0.5, False), 0), []),
    "split": (lambda x: np.split(x, 1)[0], []),
}


@pytest.mark.parametrize("name", SIMPLIFIED)
def test_simplify(name: str) -> None:
    program, left = SIMPLIFIED[name]
    gm = trace(program)
    done = passes.dce(passes.simplify(gm))
    assert ops_of(done) == left and len(ops_of(gm)) > len(left)
    x = np.float32([[-0.0, 0.0, np.nan, np.inf], [-np.inf, 1e-45, -3.5, 7], [1, -1, 0.5, 2.5]])
    assert done(x).tobytes() == gm(x).tobytes() and done(x).dtype == gm(x).dtype


LEFT: dict[str, Any] = {
    "x + 0 turns -0.0 into 0.0": lambda x: x + 0,
    "x - -0.0": lambda x: x - -0.0,
    "x * 1 changes the dtype": lambda x: x.astype(np.int32) * 1.0,
    "x / 1 of integers": lambda x: x.astype(np.int32) / 1,
    "relu of a square can overflow": lambda x: F.relu(np.square(x.astype(np.int32))),
    "casts that lose": lambda x: x.astype(np.float16).astype(np.float32),
    "casts out of range": lambda x: x.astype(np.float64).astype(np.int8),
    "relu and clip differ on -0.0": lambda x: F.relu(x).clip(None, 6),
    "clips that do not meet": lambda x: x.clip(2, 3).clip(-1, 1),
    "a permute": lambda x: x.transpose(1, 0),
    "a reversed slice": lambda x: x[::-1],
    "part of a slice": lambda x: x[:, 1:],
    "broadcast where": lambda x: np.where(x[0] > 0, x[:, :1], x[:, :1]),
    "dropout in training": lambda x: F.dropout(x, 0.5, True),
}


@pytest.mark.parametrize("name", LEFT)
def test_simplify_leaves(name: str) -> None:
    gm = trace(LEFT[name])
    assert ops_of(passes.simplify(gm)) == ops_of(gm)


def test_simplify_integers_and_untyped() -> None:
    gm = trace(lambda n: ((n + 0) // 1 | 0) << 0, "i32[3]")
    assert ops_of(passes.simplify(gm)) == []
    untyped = fx.symbolic_trace(lambda x: F.relu(F.relu(np.negative(-x))) * 1 + 0)
    assert ops_of(passes.simplify(untyped)) == ["relu", "add"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_exact_casts_table() -> None:
    """Against NumPy: every value of the 8- and 16-bit dtypes, and chosen ones of the rest."""
    rng = np.random.default_rng(0)
    checked = 0
    for source in ALL:
        if source.itemsize <= 2:
            codes = np.arange(2 if source.is_bool else 1 << 8 * source.itemsize)
            values = codes.astype(f"u{source.itemsize}").view(source.numpy)
        elif source.is_float:
            values = rng.standard_normal(999).astype(source.numpy) * np.logspace(-40, 30, 999)
            values = np.r_[values.astype(source.numpy), np.array([np.nan, np.inf, -0.0], source.numpy)]
        else:
            bits = rng.integers(0, 63, 999)
            values = (rng.integers(-(2**62), 2**62, 999) >> bits).astype(source.numpy)
        for between in ALL:
            there = values.astype(between.numpy)
            if keeps_every_value(source, between):
                back = there.astype(source.numpy)
                both_nan = (values != values) & (back != back)
                assert ((back == values) | both_nan).all(), (source, between)
            for target in ALL:
                if cast_of_cast(source, between, target):
                    direct, chained = values.astype(target.numpy), there.astype(target.numpy)
                    assert ((direct == chained) | (direct != direct)).all(), (source, between, target)
                    checked += 1
    assert checked > 100
    assert not keeps_every_value(fx.float16, fx.bfloat16) and not keeps_every_value(fx.int64, fx.float64)


def test_the_rules_do_not_get_in_each_other_s_way() -> None:
    found = analyze_rules(passes.simplify.rules)
    assert found and found.programs > 200, str(found)
