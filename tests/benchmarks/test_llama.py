"""The benchmark of language models: what fxlite writes are the same tokens with 32 bits and, at first, with 8; a peer
that does not run is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.benchmarks import llama
from tests.benchmarks.llama import Row

ROWS = [
    Row("15M", 1, "fxlite f32", [100.0, 120.0, 110.0], [10.0, 30.0, 20.0], [1, 2, 3]),
    Row("15M", 1, "run.c", [55.0], [25.0], [1, 2, 4]),
    Row("15M", 1, "llama.cpp f32", failed="the process ended"),
]


def test_a_run_without_peers() -> None:
    ours = ["fxlite f32", "fxlite int8 dynamic", "run.c"]
    arguments = ["--shapes", "tiny", "--engines", *ours, "--threads", "1", "--rounds", "1", "--tokens", "6"]
    one, other, peer = llama.main(arguments)
    assert not one.failed and not other.failed and peer.failed
    assert len(one.found) == len(other.found) == 6 and one.found[:2] == other.found[:2]
    assert min(*one.prompt, *one.tokens, *other.prompt, *other.tokens) > 0


def test_what_is_said_of_rows() -> None:
    line = llama._line(ROWS)
    assert line(ROWS[0]) == "| 15M | 1 | fxlite f32 | 110 | 20 | 2.00 run.c | 0.80 run.c | 3 |"
    assert line(ROWS[1]) == "| 15M | 1 | run.c | 55 | 25 |  |  | 2 |"
    assert line(ROWS[2]) == "| 15M | 1 | llama.cpp f32 | fails: the process ended |  |  |  |  |"


def test_integers_are_near_the_weights(tmp_path: Path) -> None:
    shape = llama.chat.Shape(96, 64, 1, 2, 2, 300, 16)
    model, path = llama.model_of(shape), tmp_path / "model.bin"
    llama.write_integers(model, path)
    data = path.read_bytes()
    weight, start = np.asarray(model.tok_embeddings.weight), 256 + 3 * shape.width * 4
    values = np.frombuffer(data, np.int8, weight.size, start).reshape(-1, 32)  # 96 is no multiple of 64
    scales = np.frombuffer(data, np.float32, weight.size // 32, start + weight.size)
    found = (values * scales[:, None]).reshape(weight.shape)
    assert abs(found - weight).max() <= abs(weight).max() / 250
