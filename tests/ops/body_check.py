"""Check an op's body against its reference on its samples, element by element, without a
compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

from fxlite.codegen.program.run import Evaluator
from fxlite.ops.op import Op, as_multi_index
from fxlite.ops.samples import Sample
from fxlite.scalar import expr
from fxlite.scalar.expr import ConstReader, Load
from fxlite.scalar.index import Index
from fxlite.types.shapes import substitute
from tests.oracle import compare


class ArrayReader:
    """Reads a NumPy array as a body does."""

    def __init__(self, name: str, array: Any) -> None:
        from fxlite.types import dtypes

        self.name = name
        self.shape = tuple(Index.of(int(s)) for s in array.shape)
        self.dtype = dtypes.dtype(array.dtype)

    def __getitem__(self, index: Any) -> Any:
        return Load(self.dtype, self.name, as_multi_index(index))


def check_body(op: Op, sample: Sample) -> None:
    """Raise Disagreement if ``op``'s body is not its reference on the sample."""
    arrays = sample.arrays()
    bound: dict[str, Any] = {}

    def capture(*args: Any, **kwargs: Any) -> None:
        target, arguments = op.canonicalize(op.bind(args, kwargs))
        bound["op"], bound["arguments"] = target, arguments

    sample.call(capture, arrays)
    target, arguments = bound["op"], bound["arguments"]
    expected = np.asarray(target.reference(**{k: substitute(v, sample.dims) for k, v in arguments.items()}))
    buffers: dict[str, Any] = {}

    def reader(value: Any) -> Any:
        if isinstance(value, (bool, int, float, complex)):
            return ConstReader(value)
        name = f"b{len(buffers)}"
        buffers[name] = np.asarray(value)
        return ArrayReader(name, np.asarray(value))

    attributes = {k: substitute(v, sample.dims) for k, v in arguments.items()}
    readers = target.map_tensors(reader, attributes)
    variables = [expr.fresh_var(s) for s in expected.shape]
    element = target.element(tuple(Index.of(v) for v in variables), readers)
    env = {}
    for axis, v in enumerate(variables):
        shape = [1] * len(variables)
        shape[axis] = -1
        env[v.name] = np.arange(expected.shape[axis]).reshape(shape)
    value = Evaluator(env, buffers)(element)
    actual = np.broadcast_to(np.asarray(value), expected.shape).astype(expected.dtype)
    assert element.dtype.numpy == expected.dtype, (element.dtype, expected.dtype)
    compare(f"body of {op.name}", actual, expected)
