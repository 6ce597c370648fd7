"""What a user of PyTorch tries first: torch.compile's backend, and the obvious calls that are told in a
line what to do."""

from __future__ import annotations

import tomllib
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxlite as fx
from fxlite.base.errors import ArgumentError, TraceError
from tests.command_line import enter_folder, run
from tests.graphs import ops_of

torch = pytest.importorskip("torch")

from fxlite.importing.torch.dynamo import fxlite_backend  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

PROGRAM = """
import numpy as np
import torch


class TorchNet(torch.nn.Module):
    def forward(self, x):
        return x


def heads(x):
    y = x.view(-1, 4).permute(1, 0)
    z = y.contiguous()
    return z.unsqueeze(0) * z.size(0)


def relu(x):
    return torch.relu(x)


def size(x):
    return x * x.size(0)
"""


def program(folder: Path) -> dict[str, Any]:
    path = folder / "users.py"
    path.write_text(PROGRAM)
    space: dict[str, Any] = {}
    exec(compile(PROGRAM, str(path), "exec"), space)
    return space


def test_models_of_torch_are_told_from_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = program(tmp_path)["TorchNet"]()
    for call in (fx.symbolic_trace, fx.compile, lambda m, **t: fx.jit(m)(np.ones(3, np.float32))):
        with pytest.raises(ArgumentError, match=r"TorchNet is a torch\.nn\.Module: import it with fx\.from_torch\("):
            call(model, x="f32[B,3]")
    enter_folder(tmp_path, monkeypatch, {"users": PROGRAM})
    status, _, shown = run(capsys, "trace", "users.py:TorchNet", "--input", "x=f32[B,3]")
    assert status == 1 and "import it with fx.from_torch(" in shown and len(shown.splitlines()) == 1


def test_words_of_torch_are_said_in_numpys(tmp_path: Path) -> None:
    found = program(tmp_path)
    problems = fx.trace_doctor(found["heads"], x="f32[B,4]").problems
    said = [(p.problem.split("'")[1] if "'" in p.problem else p.problem, p.fix) for p in problems]
    names, fixes = zip(*said)
    assert names[0] == "x.view takes a dtype, and not sizes"
    assert names[1:] == ("permute", "contiguous", "unsqueeze", "z.size is called, and is a number in NumPy")
    assert fixes[0].startswith("x.reshape(...)") and "x.shape[0] for x.size(0)" in fixes[-1]
    with pytest.raises(TraceError, match=r"(?s)users\.py:18.*the program calls a function of torch.*fx\.from_torch"):
        fx.symbolic_trace(found["relu"], x="f32[3]")
    for type in ("f32[3]", "f32[B]"):
        with pytest.raises(TraceError, match=r"(?s)users\.py:22.*x\.shape\[0\] for x\.size\(0\)"):
            fx.symbolic_trace(found["size"], x=type)


# -- torch.compile -----------------------------------------------------------------------------------
def test_the_backend_is_an_entry_point() -> None:
    listed = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (value,) = listed["project"]["entry-points"]["torch_dynamo_backends"].values()
    assert EntryPoint("fxlite", value, "torch_dynamo_backends").load() is fxlite_backend


def test_torch_compile() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU()).eval()
    compiled = torch.compile(model, backend=fxlite_backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (2, 5, 7):  # the second one makes the size dynamic
            x = torch.randn(size, 4)
            torch.testing.assert_close(compiled(x), model(x))
        model[0].weight.mul_(2)  # packed again
        torch.testing.assert_close(compiled(x), model(x))


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.register_buffer("training_mask", torch.ones(4))
        self.forward_scale = torch.nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x * self.training_mask * self.forward_scale


def test_torch_compile_keeps_the_names_and_places_of_the_program() -> None:
    """Weights, inputs and modules are called in the emitted C as in the user's model, not as in TorchDynamo's graph."""
    block, other, parts = _Block().eval(), _Block().eval(), list[Any]()

    def backend(module: Any, inputs: Any, **options: Any) -> Any:
        parts.append(fxlite_backend(module, inputs, **options))
        return parts[-1]

    def two(given: Any) -> Any:
        return block(given["x"]) - other(given["x"])

    with torch.no_grad():
        x = torch.randn(3, 4)
        for program, argument in ((block, x), (two, {"x": x})):
            torch._dynamo.reset()
            torch.testing.assert_close(torch.compile(program, backend=backend)(argument), program(argument))
    first, second = (part.graph.graph for part in parts)
    paths = {node.target for node in first.nodes if node.op == "get_attr"}
    layers = {f"layers.{number}.{name}" for number in (0, 1) for name in ("weight", "bias")}
    assert paths == {*layers, "training_mask", "forward_scale"}
    assert [node.name for node in first.placeholders] == ["x"]
    linear = next(node for node in first.nodes if node.op == "call_function" and node.target.name == "linear")
    assert linear.origin.startswith("layers.0 (Linear), ") and Path(__file__).name in linear.origin
    assert [node.name for node in second.placeholders] == ["given_x"]
    paths = {node.target for node in second.nodes if node.op == "get_attr"}
    assert len(paths) == 12 and {path.partition(".")[0] for path in paths} == {"block", "other"}
    linears = [node for node in second.nodes if node.op == "call_function" and node.target.name == "linear"]
    assert [n.scope.path for n in linears] == ["block.layers.0", "block.layers.1", "other.layers.0", "other.layers.1"]


def test_graph_breaks_go_back_to_torch() -> None:
    def program(x: Any, y: Any) -> Any:
        z = x * 2 + y
        if z.sum() > 0:  # a graph break
            z = z + 1
        return {"z": z, "rows": z.shape[0]}

    compiled = torch.compile(program, backend=fxlite_backend)
    with torch.no_grad():
        for sign in (1, -1):
            x = sign * torch.ones(3, 2)
            found = compiled(x, x)
            assert found["rows"] == 3
            torch.testing.assert_close(found["z"], program(x, x)["z"])


def compiled_whole(program: Any, *calls: Any) -> None:
    """torch.compile gives what the program gives, with nothing left to torch."""
    torch._dynamo.reset()
    compiled = torch.compile(program, backend=fxlite_backend)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in calls:
            torch.testing.assert_close(compiled(*given), program(*given))


def test_sizes_go_from_part_to_part() -> None:
    def program(x: Any, y: Any) -> Any:
        x, rows, count = x * 2, x.shape[0], x.shape[0] * y.shape[0] + 1
        torch._dynamo.graph_break()
        return x * y[0], rows, count

    compiled_whole(program, *((torch.randn(n, 4), torch.randn(9)) for n in (3, 5, 6)))


def test_autocast_within_a_part() -> None:
    def program(x: Any, w: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        with torch.autocast("cpu", torch.bfloat16, enabled=False):
            return y, x @ w

    compiled_whole(program, (torch.eye(3), torch.randn(3, 3)))


def test_what_torch_s_own_encoders_call_without_gradients() -> None:
    torch.manual_seed(0)
    x, left_out = torch.randn(2, 5, 8), torch.tensor([[False] * 3 + [True] * 2, [False] * 5])
    later = torch.ones(5, 5).triu(1).bool()
    for settings in ({"norm_first": True, "activation": "gelu", "layer_norm_eps": 0.1}, {}):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **settings).eval()
        compiled_whole(layer, (x,), (x, None, left_out), (x, later), (x, later, left_out))
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    compiled_whole(attention, (x, x, x), (x, x, x, left_out, True, None, False), (x, x[:, 1:], x[:, 1:]))


def test_options_that_are_not_there_are_an_error() -> None:
    with torch.no_grad(), pytest.raises(Exception, match="no parameter 'thread'"):
        torch.compile(torch.sin, backend=fxlite_backend, options={"thread": 4})(torch.ones(3))


def test_what_is_not_compiled_is_said_once() -> None:
    def program(x: Any) -> Any:
        return x + torch.rand(3)

    compiled = torch.compile(program, backend=fxlite_backend)
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=r"is not compiled, torch runs it as it is: .*aten\.rand") as seen,
    ):
        compiled(torch.ones(3))
        torch.compile(lambda x: x * torch.rand(3), backend=fxlite_backend)(torch.ones(3))
    assert sum("aten.rand" in str(w.message) for w in seen) == 1
    model = torch.nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="it needs gradients"):
        torch.compile(model, backend=fxlite_backend)(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None


# -- porting -----------------------------------------------------------------------------------------
RESNET = """
class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        down = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 16, 2, down))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layer1(x))
        x = torch.flatten(x, 1)
        return self.fc(x)
"""


def test_a_resnet_runs_with_other_imports(tmp_path: Path) -> None:
    """The same text, as it is, with either library's ``nn`` and ``torch``; weights go over in a file."""
    from fxlite import nn, ops

    theirs: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    ours: dict[str, Any] = {"torch": ops, "nn": nn}
    exec(RESNET, theirs)
    exec(RESNET, ours)
    torch.manual_seed(0)
    model, port = theirs["ResNet"]().eval(), ours["ResNet"]().eval()
    torch.save(model.state_dict(), tmp_path / "resnet.pt")
    port.load_state_dict(tmp_path / "resnet.pt")
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(port(x.numpy()), expected, 1e-4, 1e-5)
    gm = fx.symbolic_trace(port, x="f32[B,3,32,32]")
    np.testing.assert_allclose(gm(x.numpy()), expected, 1e-4, 1e-5)
    imported = fx.from_torch(model, "f32[B,3,32,32]")
    kinds = [ops_of(g) for g in (gm, imported)]
    assert sorted(kinds[0]) == sorted(kinds[1])
