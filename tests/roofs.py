"""Roofs of no machine in particular, for tests that must know them."""

from __future__ import annotations

from fxlite.show.node_cost import Roof, Roofs

#: A machine of round numbers: 1 TFLOP/s, 10 GB/s from memory and 100 from its 1 MB of cache.
ROOFS = Roofs(
    "made up",
    2,
    1_000_000,
    {
        name: Roof(name, unit, rate / 2, rate, "made up")
        for name, unit, rate in (
            ("fma_f32", "FLOP/s", 1e12),
            ("fma_f64", "FLOP/s", 5e11),
            ("dot_int8", "OP/s", 4e12),
            ("read", "B/s", 1e10),
            ("write", "B/s", 1e10),
            ("cached_read", "B/s", 1e11),
            ("cached_write", "B/s", 1e11),
        )
    },
    (),
    "2020-01-01",
)
