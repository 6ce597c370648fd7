"""Names of the user against names of emitted C and CUDA: no template has to know them.

``python -m tests.fuzz --names N`` gives N programs names from all words of all emitted texts; here
are a few under the worst of names: the words of their own text.
"""

from __future__ import annotations

import itertools
import keyword
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn
from fxlite.codegen.c.emit import c_name
from fxlite.codegen.c.tiles.library import headers
from fxlite.codegen.kernel.names import (
    LONGEST,
    MACROS,
    OF_CPUID,
    Scope,
    derived,
    dim_name,
    resolved,
    value_name,
    weight_name,
)
from fxlite.codegen.runtime.toolchain import find_compiler
from tests.codegen.compiling import run_in
from tests.fuzz.names import ODD, Renamed, c_sources, cuda_sources, words_of
from tests.oracle import compare
from tests.zoo import by_name

x, batch = value_name("x"), dim_name("batch")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"f({x}, {batch})", "f(x, batch)"),
        (f"for (batch = 0;;) {x}[batch] = {batch};", "for (batch = 0;;) x[batch] = batch_;"),
        (f"{x} + x_ + x", "x_2 + x_ + x"),
        (f"p->x + p.x + {x} /* x */ // x", "p->x + p.x + x /* x */ // x"),
        (f"{weight_name('a.b')} {weight_name('a_b')} {value_name('a_b')}", "a_b a_b_ a_b_2"),
        (f"{derived(x, 'packed')} {value_name('x_packed')}", "x_packed x_packed_"),
        (f"{value_name('int')} {value_name('new')} {dim_name('I')}", "int_ new_ I_"),
        (f"{value_name('__x')} {value_name('3')} {value_name('fx_exp')}", "v___x v_3 v_fx_exp"),
        (f"{value_name('größe')} {value_name('a/b')}", "groudfe a_b"),
    ],
)
def test_names_are_spelled_in_the_nearest_free_way(text: str, expected: str) -> None:
    assert resolved(text) == expected


def test_long_names_stay_apart() -> None:
    names = [value_name("a" * 300 + end) for end in ("", "b", "c")]
    spelled = Scope(" ".join(names)).names.values()
    assert len(set(spelled)) == 3 and max(map(len, spelled)) <= LONGEST


def test_what_a_macro_brings_along_is_taken() -> None:
    library = "#define TWICE(a) (a + y)\n#define OTHER z"
    text = " ".join(map(value_name, ("y", "z", "OTHER")))
    assert resolved(f"TWICE(1) {text}", library).split()[1:] == ["y_", "z", "OTHER_"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MyBlock", "my_block"),
        ("ResNet18", "resnet18"),
        ("UNet", "unet"),
        ("3d", "m_3d"),
        ("math", "m_math"),
        ("fx_math", "m_fx_math"),
        ("k0_add", "m_k0_add"),
        ("Größe", "groudfe"),
        ("///", "model"),
        ("fx", "m_fx"),
    ],
)
def test_names_of_models(name: str, expected: str) -> None:
    assert c_name(name) == expected
    assert len(c_name("a" * 300) + "_workspace_bytes") <= LONGEST


def test_macros_of_the_headers_are_known(tmp_path: Path) -> None:
    emitted = "\n".join(c_sources(by_name("mlp").trace()[0]).values())
    headers = {"#include <omp.h>", *re.findall(r"#include <.*>", emitted)}
    command = [*find_compiler().command, "-std=gnu11", "-fopenmp", "-E", "-dM", "-x", "c", "-"]
    told = subprocess.run(command, input="\n".join(headers), capture_output=True, text=True)
    defined = set(re.findall(r"^#define ([A-Za-z]\w*)", told.stdout, re.MULTILINE))
    assert {"NULL", "INFINITY"} <= {n for n in defined if not n.startswith(OF_CPUID)} <= MACROS


PROGRAMS = (
    "mlp",
    "cnn",
    "transformer_block",
    "masked_attention",
    "gather_scatter",
    "in_place",
    "half_precision",
    "lstm",
)


def worst(name: str, seed: int = 0) -> Renamed:
    """A program of the zoo under the words of its own text and of tests.fuzz.names."""
    module, _, _ = by_name(name).trace()
    own = words_of([*c_sources(module).values(), *cuda_sources(module).values()])
    words = sorted(w for w in own | {*ODD} if w.isidentifier() and not keyword.iskeyword(w))
    return Renamed(by_name(name), itertools.cycle(random.Random(seed).sample(words, len(words))))


def test_text_under_hostile_names_builds_without_shadowing(tmp_path: Path) -> None:
    files = []
    for number, name in enumerate(PROGRAMS):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file, text in {**headers(""), **c_sources(worst(name).module)}.items():
            (folder / file).write_text(text)
        files += [str(file.relative_to(tmp_path)) for file in folder.glob("*.c")]
    assert len(files) == len(PROGRAMS)
    flags = ["-std=gnu11", "-fopenmp", "-fsyntax-only", "-Wshadow=local", "-Werror"]
    compiler = find_compiler().command
    run_in(tmp_path, compiler, [*compiler, *flags, *files])


@pytest.mark.parametrize("backend", ["c", "cuda"])
@pytest.mark.parametrize("name", ["masked_attention", "in_place"])
def test_programs_under_hostile_names_compute_the_same(name: str, backend: str) -> None:
    under = worst(name, seed=1)
    options = {"device": "shim"} if backend == "cuda" else {}
    actual = fx.compile(under.module, backend=backend, **options)(*under.inputs)
    compare(f"{backend} with {under.names}", actual, under.program(*under.inputs))


@pytest.mark.parametrize("backend", ["c", "cuda"])
def test_dims_that_templates_name_their_loops_after(backend: str) -> None:
    weight = np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32)

    def program(x: Any, double: Any, error: Any) -> Any:
        return x.transpose(1, 0, 2) @ weight + double, error @ weight

    options = {"device": "shim"} if backend == "cuda" else {}
    types = ("f32[batch,int,64]", "f32[int,1,32]", "f32[batch,min,batch_0,gridDim,64]")
    module = fx.symbolic_trace(program, *types)
    shapes = ((5, 7, 64), (7, 1, 32), (5, 3, 2, 4, 64))
    arrays = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes]
    actual = fx.compile(module, backend=backend, **options)(*arrays)
    compare(backend, actual, program(*arrays))


def test_a_weight_may_be_called_as_an_input_or_another_weight() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            for number, name in enumerate(("x", "fc_weight", "fc_weight_packed", "N")):
                value = np.full(4, number + 2, np.float32)
                setattr(self, name, nn.Parameter(value))

        def forward(self, x: Any) -> Any:
            return self.fc(x * self.x) * self.fc_weight + self.fc_weight_packed - self.N

    model = Model().eval()
    inputs = np.ones((3, 4), np.float32)
    for options in ({"backend": "c"}, {"backend": "cuda", "device": "shim"}):
        actual = fx.compile(model, "f32[N,4]", **options)(inputs)
        compare(str(options), actual, model(inputs))
