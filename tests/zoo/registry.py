"""What a program of the zoo is, the list of them, and helpers to write one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn

Made = tuple[Any, tuple[str, ...], tuple[np.ndarray[Any, Any], ...]]


@dataclass(frozen=True)
class Program:
    """A named program; ``make()`` gives (program, input types, inputs)."""

    name: str
    make: Callable[[], Made]

    def trace(self) -> tuple[fx.GraphModule, Any, tuple[np.ndarray[Any, Any], ...]]:
        """The traced GraphModule, the program itself, and inputs."""
        program, types, inputs = self.make()
        return fx.symbolic_trace(program, *types), program, inputs


ZOO: list[Program] = []


def program(function: Callable[[], Made]) -> Callable[[], Made]:
    """Enter a program under the function's name."""
    ZOO.append(Program(function.__name__, function))
    return function


def by_name(name: str) -> Program:
    """The program of that name."""
    return next(p for p in ZOO if p.name == name)


def rng() -> np.random.Generator:
    """A generator that gives the same numbers in every run."""
    return np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal float32 numbers."""
    return rng().standard_normal(shape).astype(np.float32)


def fill(model: nn.Module) -> nn.Module:
    """Random weights and statistics, so that no parameter is neutral; inference mode."""
    generator = rng()
    for name, value in model.state_dict().items():
        if not np.issubdtype(value.dtype, np.floating):
            continue
        if "var" in name:
            drawn = generator.uniform(0.2, 0.9, value.shape)
        else:
            drawn = generator.normal(0, 0.3, value.shape)
        value[...] = drawn.astype(value.dtype)
    return model.eval()
