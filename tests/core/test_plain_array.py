"""Arrays that a program would not compute with as their owner means are refused wherever one
enters: masked arrays, matrices, records, and dtypes that fxlite does not have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import DTypeError

X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Plain(np.ndarray[Any, Any]):
    """A subclass that means something of its own."""


REFUSED: dict[str, tuple[Any, str]] = {
    "masked": (np.ma.masked_array(X, X > 2), "its mask would be lost"),
    "matrix": (np.matrix(X), "product of matrices"),
    "subclass": (X.view(Plain), "pass np.asarray"),
    "records": (np.rec.fromarrays([X[0], X[1]], names="p,q"), "pass np.asarray"),
    "foreign": (X.astype(">f4"), "foreign byte order|astype"),
    "long": (X.astype(np.longdouble), "(not a dtype|astype)"),
    "object": (X.astype(object), "(not a dtype|astype)"),
    "text": (X.astype(str), "(not a dtype|astype)"),
    "dates": (X.astype("datetime64[s]"), "(not a dtype|astype)"),
    "structured": (np.zeros((2, 3), [("p", "f4")]), "(not a dtype|astype)"),
}


class Scaled(nn.Module):
    """A module with a buffer."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.register_buffer("scale", value)

    def forward(self, x: Any) -> Any:
        return x * self.scale


def _twice(x: Any) -> Any:
    return x * 2


@functools.cache
def _compiled(backend: str) -> Any:
    options = {"device": "shim"} if backend == "cuda" else {}
    return fx.compile(_twice, "f32[2,3]", backend=backend, **options)


def _write(value: Any) -> Any:
    def program(x: Any) -> Any:
        y = x.copy()
        y[...] = value
        return y

    return fx.symbolic_trace(program, "f32[2,3]")


def _assign(value: Any) -> None:
    module = Scaled(X)
    module.scale = value


ENTRANCES: dict[str, Callable[[Any], Any]] = {
    "type": lambda v: fx.symbolic_trace(_twice, v),
    "interpreter": lambda v: fx.Interpreter(fx.symbolic_trace(_twice, "f32[2,3]")).run(v),
    "call": lambda v: fx.symbolic_trace(_twice, "f32[2,3]")(v),
    "python": lambda v: _compiled("python")(v),
    "c": lambda v: _compiled("c")(v),
    "cuda": lambda v: _compiled("cuda")(v),
    "constant": lambda v: fx.symbolic_trace(lambda x: x + v, "f32[2,3]"),
    "reflected": lambda v: fx.symbolic_trace(lambda x: np.add(v, x), "f32[2,3]"),
    "write": _write,
    "buffer": Scaled,
    "assigned": _assign,
    "parameter": nn.Parameter,
    "state_dict": lambda v: Scaled(X).load_state_dict({"scale": v}),
    "attribute": lambda v: fx.symbolic_trace(Scaled(X), "f32[2,3]").set_attribute("scale", v),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("kind", REFUSED)
def test_is_refused(entrance: str, kind: str) -> None:
    value, reason = REFUSED[kind]
    with pytest.raises(TypeError, match=reason) as caught:
        ENTRANCES[entrance](value)
    if entrance not in ("c", "cuda"):
        assert isinstance(caught.value, DTypeError)


def test_files_in_memory_and_parameters_are_plain(tmp_path: Path) -> None:
    stored = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    stored[...] = X
    for value in (stored, nn.Parameter(X)):
        for entrance in ENTRANCES.values():
            entrance(value)
