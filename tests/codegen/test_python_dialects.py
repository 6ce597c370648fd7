"""Regenerated Python in dialects other than fxlite's: it runs where fxlite cannot be imported, and
computes the same."""

from __future__ import annotations

import copy
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite import nn, ops, passes
from fxlite.base.errors import CodegenError, OptionError
from fxlite.cli.regenerate import DIALECT_NAMES
from fxlite.codegen.program.example_inputs import make_cases
from fxlite.codegen.python.source import DIALECTS, module_name, program_in, python_source, save_python
from fxlite.codegen.python.text import class_name
from fxlite.codegen.python.torch_dialect import OF_MODULES
from fxlite.nn.container import Weights
from fxlite.ops.op import REGISTRY
from fxlite.passes import quantize as q
from fxlite.show.node_cost import longest_chain
from fxlite.types.tensor_type import parse_type
from tests.codegen.test_python_classes import resnet, transformer
from tests.graphs import sample_program
from tests.oracle import compare, flatten, flatten_types
from tests.source_lines import MODELS, traced
from tests.zoo import ZOO
from tests.zoo.registry import fill, normal

ROOT = Path(__file__).parents[2]

_RUN = """
import importlib, sys
from pathlib import Path
import ml_dtypes
import numpy as np

# an import of it is an error
sys.modules["tests" if sys.argv[2] == "fxlite" else "fxlite"] = None
sys.path[:0] = [str(path) for path in Path(sys.argv[1]).iterdir() if path.is_dir()]
np.seterr(all="ignore")
is_torch = sys.argv[2] == "torch"
if is_torch:
    import torch


def tensor(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def array(value):
    if is_torch and value.dtype == torch.bfloat16:
        return value.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy() if is_torch else np.asarray(value)


def arrays(path):
    with np.load(path) as found:
        return [v.view(ml_dtypes.bfloat16) if v.dtype.kind == "V" else v for v in found.values()]


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in leaves(v)]
    return [array(value)]


def run(model, inputs):
    if not is_torch:
        return model(*inputs)
    with torch.no_grad():
        return model(*map(tensor, inputs))


for line in Path(sys.argv[1], "cases").read_text().splitlines():
    module, name = line.split()
    made = getattr(importlib.import_module(module), name)
    model = made.load() if hasattr(made, "load") else made()
    model = model.eval() if hasattr(model, "eval") else model
    inputs = arrays(Path(sys.argv[1], f"{module}.in.npz"))
    np.savez(Path(sys.argv[1], f"{module}.out.npz"), *leaves(run(model, inputs)))
"""


def arrays_of(path: Path) -> list[Any]:
    import ml_dtypes

    with np.load(path) as found:
        return [v.view(ml_dtypes.bfloat16) if v.dtype.kind == "V" else v for v in found.values()]


def run_without_fxlite(
    cases: Iterable[tuple[str, fx.GraphModule, Sequence[Any]]], folder: Path, dialect: str = "numpy"
) -> None:
    """Save programs under their names, run all of them in one process that has no fxlite, or in
    the dialect "fxlite" not the modules of the programs, and compare what they give with what their
    graphs give. A folder has sixteen programs: its manifest is written anew for each of them."""
    cases = list(cases)
    for number, (name, gm, inputs) in enumerate(cases):
        save_python(gm, folder / str(number // 16), name, dialect=dialect)
        np.savez(folder / f"{module_name(name)}.in.npz", *inputs)
    lines = [f"{module_name(name)} {class_name(name)}\n" for name, _, _ in cases]
    (folder / "cases").write_text("".join(lines))
    command = [sys.executable, "-c", _RUN, str(folder), dialect]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=one, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, gm, inputs in cases:
        found = arrays_of(folder / f"{module_name(name)}.out.npz")
        with np.errstate(all="ignore"):
            expected = gm(*inputs)
        got = [v.dtype for v in found]
        assert got == [np.asarray(v).dtype for v in flatten(expected)], (name, got)
        compare(f"{dialect}: {name}", found, expected, longest_chain(gm.graph.nodes, {}))


def samples(part: int) -> Iterator[tuple[str, fx.GraphModule, Sequence[Any]]]:
    """A program for each sample of a fourth of the ops."""
    for name in sorted(REGISTRY)[part::4]:
        for number, sample in enumerate(REGISTRY[name].samples):
            gm = fx.symbolic_trace(sample_program(REGISTRY[name], sample), *sample.types())
            yield f"{name}_sample_{number}", gm, sample.arrays()


@pytest.mark.parametrize("part", range(4))
def test_every_op_in_numpy(part: int, tmp_path: Path) -> None:
    run_without_fxlite(samples(part), tmp_path)


#: What torch computes otherwise: gelu of the largest number, x - tanh(x) near 0, -0.0 ** -0.5.
_OF_TORCH = {"gelu_sample_4", "tanhshrink_sample_3", "pow_sample_10"}


def _is_refused(gm: Any) -> bool:
    try:
        python_source(gm, dialect="torch")
    except CodegenError as error:
        said = "is written with the parts of complex numbers, and fx.ops.", "a power of complex numbers is written for"
        assert any(text in str(error) for text in said)
        return True
    return False


@pytest.mark.parametrize("part", range(4))
def test_every_op_in_torch(part: int, tmp_path: Path) -> None:
    """All but those of unsigned integers other than u8, which are refused, as are functions of complex
    numbers that their parts do not give."""
    pytest.importorskip("torch")
    cases = []
    for name, gm, inputs in samples(part):
        types = {t.dtype.name for n in gm.graph.nodes for t in flatten_types(n.type)}
        if types & {"u16", "u32", "u64"}:
            with pytest.raises(CodegenError, match=r"torch does not compute with uint|no spelling for the op philox"):
                python_source(gm, dialect="torch")
        elif _is_refused(gm):
            continue
        elif name not in _OF_TORCH:
            cases.append((name, gm, inputs))
    run_without_fxlite(cases, tmp_path, "torch")


@pytest.mark.parametrize("dialect", ["numpy", "torch"])
def test_scatters_where_many_meet(dialect: str, tmp_path: Path) -> None:
    """Sums and products of half types are rounded once; of equal indices the last one counts, on
    an axis that is not the last, and NaN is the largest and the smallest number."""
    if dialect == "torch":
        pytest.importorskip("torch")
    random = np.random.default_rng(0)
    index = random.integers(-3, 3, (9000, 2))
    ones = np.ones((9000, 2), np.float16)
    values = random.permutation(np.arange(18000, dtype=np.float32)).reshape(9000, 2)
    values[7, 1] = np.nan
    factors = np.where(np.arange(9000)[:, None] % 2, 1 / 3, 3) * ones
    cases = []
    for name, start, source in (
        ("add", "f16", ones),
        ("mul", "f16", factors.astype(np.float16)),
        ("set", "f32", values),
        ("max", "f32", values),
        ("min", "f32", values),
    ):
        scatter = REGISTRY[f"scatter_{name}"]
        types = (f"{start}[3,4]", "i64[9000,2]", f"{start}[9000,2]")
        gm = fx.symbolic_trace(lambda x, i, v, s=scatter: s(x, i, v, axis=0), *types)
        assert scatter.name in {getattr(n.target, "name", "") for n in gm.graph.nodes}
        cases.append((f"many_{name}", gm, (np.ones((3, 4), source.dtype), index, source)))
    run_without_fxlite(cases, tmp_path, dialect)


def integers() -> list[tuple[str, fx.GraphModule, Sequence[Any]]]:
    """Quantized programs."""
    (model, image), (language, inputs) = resnet(), transformer()
    static = q.QConfigMapping().set_global(q.static_int8())
    weights = q.QConfigMapping().set_global(q.weight_only_int8())
    return [
        ("integer_resnet", q.quantize(passes.fuse_conv_bn(model), static, [image]), image),
        ("integer_weights", q.quantize(language, weights, [inputs]), inputs),
    ]


@pytest.mark.parametrize("dialect", ["fxlite", "numpy", "torch"])
def test_programs(dialect: str, tmp_path: Path) -> None:
    if dialect == "torch":
        pytest.importorskip("torch")
    cases = integers()
    for name in MODELS:
        gm = traced(name)
        cases.append((module_name(name), gm, tuple(make_cases(gm)[1].inputs.values())))
    for program in ZOO:
        gm, _, inputs = program.trace()
        cases += [(program.name, gm, inputs)]
        cases += [(f"{program.name}_decomposed", passes.decompose(gm), inputs)]
    run_without_fxlite(cases, tmp_path, dialect)
    for path in tmp_path.glob("*/*.py"):
        text = path.read_text()
        assert dialect == "fxlite" or "fxlite." not in text.partition('"""\n\n')[2], path
        assert max(map(len, text.splitlines())) <= 100, path


_MYPY = "--config-file= --follow-imports=skip --ignore-missing-imports --cache-dir=/dev/null"


def clean(folder: Path) -> None:
    """ruff would change nothing but unused values, which are the program's own; mypy is content."""
    if shutil.which("ruff", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("ruff is not installed")
    ruff = [str(Path(sys.executable).parent / "ruff")]
    config = ["--config", str(ROOT / "pyproject.toml"), "--line-length=100", str(folder)]
    for command in (
        [*ruff, "format", "--diff", *config],
        [*ruff, "check", "--ignore", "F841,RET504,RUF059", *config],
        [sys.executable, "-m", "mypy", *_MYPY.split(), *map(str, folder.glob("*.py"))],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dialect", ["numpy", "torch"])
def test_clean(dialect: str, tmp_path: Path) -> None:
    for program in ZOO:
        save_python(program.trace()[0], tmp_path, program.name, dialect=dialect)
    for name, gm, _ in integers():
        save_python(gm, tmp_path, name, dialect=dialect)
    clean(tmp_path)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))
        self.register_buffer("shift", np.ones(3, np.float32))

    def forward(self, x: Any) -> Any:
        hidden = self.body(x) + self.shift
        return hidden[:, 1:].reshape(-1, 2) * 2


def test_reads_well_in_numpy() -> None:
    source = fx.symbolic_trace(Net().eval(), x="f32[B,4]").source(dialect="numpy")
    assert (
        source.partition("class Linear")[2]
        == '''\
:
    def __init__(self, out_features, in_features):
        self.weight = np.zeros((out_features, in_features), np.float32)
        self.bias = np.zeros(out_features, np.float32)

    def __call__(self, x):
        return x @ self.weight.T + self.bias  # f32[B,out_features]


class GELU:
    def __call__(self, x):
        return gelu(x)  # f32[B,8]


class Net:
    def __init__(self):
        self.shift = np.zeros(3, np.float32)
        self.body = [
            Linear(out_features=8, in_features=4),
            GELU(),
            Linear(out_features=3, in_features=8),
        ]

    @classmethod
    def load(cls, path=WEIGHTS):
        """The model with its weights."""
        return load_weights(cls(), path)

    def __call__(self, x):
        for layer in self.body:
            x = layer(x)  # f32[B,3]
        hidden = x + self.shift  # f32[B,3]
        return hidden[:, 1:].reshape(-1, 2) * 2  # f32[B,2]
'''
    )
    assert "def softmax" not in source and source.count("def gelu(") == 1


def test_names_of_functions_give_way(tmp_path: Path) -> None:
    """Parameters and variables may be called as NumPy and the functions of the file are."""

    def program(np: Any, softmax: Any, min: Any) -> Any:
        gelu = ops.gelu(np)
        rolled = np[: min.shape[0]].reshape(-1)  # of Min(B, N) rows
        return ops.softmax(softmax + gelu, axis=-1), ops.gelu(gelu), rolled, min[1:][:2]

    gm = fx.symbolic_trace(program, "f32[B,3]", "f32[3]", "f32[N]")
    inputs = [np.float32([[1, 2, 3]]), np.float32([1, 0, -1]), np.float32([1, 2])]
    run_without_fxlite([("named", gm, inputs)], tmp_path)


def test_weights_are_read_by_name(tmp_path: Path) -> None:
    """The keys are those of the state_dict; a wrong shape is an error."""
    model = Net().eval()
    fx.symbolic_trace(model, x="f32[B,4]").to_folder(str(tmp_path), dialect="numpy")
    with np.load(tmp_path / "net.npz") as found:
        assert found.keys() == model.state_dict().keys()
    space = runpy.run_path(str(tmp_path / "net.py"))
    np.savez(tmp_path / "other.npz", shift=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match=r"shift has the shape \(2,\), not \(3,\)"):
        space["Net"].load(tmp_path / "other.npz")


def test_what_a_dialect_cannot_say() -> None:
    gm = fx.symbolic_trace(lambda x: ops.exp(x), "f32[3]")
    with pytest.raises(OptionError, match=r"must be one of fxlite, numpy.*not 'rust'"):
        python_source(gm, dialect="rust")
    untyped = fx.symbolic_trace(lambda x: ops.exp(x))
    with pytest.raises(CodegenError, match=r"node exp .*_dialects\.py:\d+\) has no type"):
        python_source(untyped, dialect="numpy")


def test_reads_well_in_torch() -> None:
    gm = fx.symbolic_trace(Net().eval(), x="f32[B,4]")
    assert (
        gm.source(dialect="torch").partition("class Net")[2]
        == '''\
(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.zeros(3))
        self.body = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))

    @classmethod
    def load(cls, path=WEIGHTS):
        """The model with its weights, ready to run."""
        model = cls()
        model.load_state_dict(load_file(path))
        return model.eval()

    def forward(self, x):
        hidden = self.body(x) + self.shift  # f32[B,3]
        return hidden[:, 1:].reshape(-1, 2) * 2  # f32[B,2]
'''
    )


IMAGE, SIGNAL, ROWS, SEQUENCE = "f32[2,4,6,6]", "f32[2,4,6]", "f32[3,4]", "f32[5,2,4]"
LAYERS: list[tuple[Any, str]] = [
    (nn.Linear(4, 3), ROWS),
    (nn.Linear(4, 3, bias=False), ROWS),
    (nn.Conv2d(4, 6, 3, padding=1, stride=2, groups=2, bias=False), IMAGE),
    (nn.Conv2d(4, 6, 2, padding="same"), IMAGE),
    (nn.Conv1d(4, 6, 3, dilation=2), SIGNAL),
    (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), IMAGE),
    (nn.ConvTranspose1d(4, 3, 3), SIGNAL),
    (nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), IMAGE),
    (nn.BatchNorm2d(4, affine=False), IMAGE),
    (nn.BatchNorm1d(4), ROWS),
    (nn.GroupNorm(2, 4), IMAGE),
    (nn.LayerNorm((6, 6), eps=1e-3), IMAGE),
    (nn.RMSNorm(4), ROWS),
    (nn.InstanceNorm2d(4, affine=True), IMAGE),
    (nn.PReLU(4), IMAGE),
    (nn.GLU(1), IMAGE),
    (nn.Softmax(0), ROWS),
    (nn.Flatten(2), IMAGE),
    (nn.PixelShuffle(2), IMAGE),
    (nn.Upsample(scale_factor=2), IMAGE),
    (nn.Upsample(size=(8, 9), mode="bilinear", align_corners=True), IMAGE),
    (nn.ZeroPad2d((1, 2, 0, 1)), IMAGE),
    (nn.MaxPool2d(2, padding=1, ceil_mode=True), IMAGE),
    (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    (nn.AdaptiveAvgPool2d((2, None)), IMAGE),
    (nn.AdaptiveMaxPool1d(3), SIGNAL),
    (nn.LeakyReLU(0.2), ROWS),
    (nn.Softplus(2.0, 5.0), ROWS),
    (nn.GELU("tanh"), ROWS),
    (nn.LSTM(4, 3, num_layers=2, batch_first=True, bidirectional=True), SEQUENCE),
    (nn.GRU(4, 3), SEQUENCE),
    (nn.TransformerEncoderLayer(4, 2, 8, norm_first=True), SEQUENCE),
]


class Holder(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)


@pytest.mark.parametrize(("layer", "type"), LAYERS, ids=lambda v: str(v)[:24])
def test_layers_are_torch_s(layer: Any, type: str) -> None:
    """They take the original's state_dict and compute the same."""
    torch = pytest.importorskip("torch")
    model = fill(Holder(layer))
    gm = fx.symbolic_trace(model, type)
    space: dict[str, Any] = {"__name__": "holder", "__file__": "holder.py"}
    exec(gm.source(dialect="torch"), space)
    made = space["Holder"]()
    made.load_state_dict({k: torch.from_numpy(v) for k, v in model.state_dict().items()})
    x = normal(*parse_type(type).shape)
    with torch.no_grad():
        found = made.eval()(torch.from_numpy(x))
    leaves = [leaf.numpy() for leaf in torch.utils._pytree.tree_leaves(found)]
    compare("torch", leaves, flatten(gm(x)), longest_chain(gm.graph.nodes, {}))


def test_names_that_torch_has() -> None:
    weights = Weights(half="f32[2]")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = weights

        def forward(self, x: Any) -> Any:
            return x * self.layer["half"]

    with pytest.raises(CodegenError, match=r"layer\.half needs an attribute 'half', which torch"):
        fx.symbolic_trace(Net(), "f32[2]").source(dialect="torch")
    module = pytest.importorskip("torch").nn.Module
    assert {n for n in dir(module) if not n.startswith("_")} <= OF_MODULES


def test_the_command_line_knows_the_dialects() -> None:
    assert tuple(DIALECTS) == DIALECT_NAMES


def test_what_torch_cannot_say() -> None:
    gm = fx.symbolic_trace(scaled, "f32[3]")
    with pytest.raises(CodegenError, match=r"_dialects.py:\d+\): .*scaled is a function of NumPy"):
        python_source(gm, dialect="torch")
    assert "import scaled" in python_source(gm, dialect="numpy")


@fx.wrap(infer=lambda x: x)
def scaled(x: Any) -> Any:
    return x * 2


def _sum_after(x: Any, y: Any) -> Any:
    x[...] = y
    y *= 2
    return x + y


def _before(x: Any, y: Any) -> Any:
    old = x.copy()
    x[...] = 0
    return old, old.T, y + 1


def _exchanged(x: Any, y: Any) -> Any:
    old = x.copy()
    x[...] = y
    y[...] = old
    return x.sum()


def _turned(x: Any, y: Any) -> Any:
    x[...] = x.T.copy()
    return y


class _Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("before", np.zeros((3, 3), np.float32))

    def forward(self, x: Any, y: Any) -> Any:
        old = self.before
        self.before = x.T.copy()
        x += 1
        return old + y


@pytest.mark.parametrize("dialect", DIALECT_NAMES)
@pytest.mark.parametrize("program", [_sum_after, _before, _exchanged, _turned, _Kept])
def test_what_is_written_is_read_before_or_after(program: Any, dialect: str) -> None:
    """Values are those that the program reads, whatever is written over what they are made of."""
    torch = pytest.importorskip("torch") if dialect == "torch" else None
    program = program() if isinstance(program, type) else program
    made, _ = program_in(fx.symbolic_trace(copy.deepcopy(program), x="f32[3,3]", y="f32[3,3]"), dialect)
    ours, theirs = ([np.arange(9, dtype=np.float32).reshape(3, 3) ** n for n in (1, 2)] for _ in range(2))
    for _ in range(2):
        expected = flatten(copy.deepcopy(program(*ours)))
        found = flatten(made(*(map(torch.from_numpy, theirs) if torch else theirs)))
        for one, other in zip((*expected, *ours), (*found, *theirs)):
            np.testing.assert_array_equal(np.asarray(other), one)
