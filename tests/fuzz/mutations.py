"""Mutations of good files, and what is done with what is accepted of them.

In: a kind of file and a source of choices. Out: :func:`mutated`, bytes; :func:`read`, which reads
them as that kind and uses what they say.
"""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx
from fxlite import nn
from fxlite.base.errors import FxliteError
from fxlite.codegen.c import templates
from fxlite.codegen.c.emit import emit
from fxlite.codegen.program.program import optimize
from fxlite.codegen.python.source import python_source
from fxlite.codegen.runtime.build import build, entry_source
from fxlite.files.serialize import from_bytes, to_bytes
from fxlite.passes import quantize as q
from fxlite.show.text.pretty import executable_code
from tests.security.parses import opened
from tests.security.specimen import BREAKOUTS, packed, specimen
from tests.weights import files as weight_files

_CODE = (
    "__import__('fxlite_canary')",
    '"+__import__("fxlite_canary")+"',
    "{__import__('fxlite_canary')}",
    "x=__import__('fxlite_canary'), y",
    '"""\nimport fxlite_canary\n"""',
    "*/ system(0); /*",
    "\nimport fxlite_canary\n",
    "open('fxlite_canary','w')",
)
_TEXTS = (*BREAKOUTS, *_CODE, "x", "B", "f32[B,4]", "f32[0]", "self", "relu", "add", "output", "float")
_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    4,
    63,
    64,
    255,
    1 << 15,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    (1 << 63) - 1,
    1 << 63,
    -(1 << 63),
    1 << 64,
    10**30,
    0.0,
    -0.0,
    0.5,
    1e308,
    1e-320,
    1e999,
    -1e999,
)
_TAGS = ("dim", "type", "dtype", "float", "slice", "list", "dict", "node", "input")


@dataclass(frozen=True)
class Subjects:
    """The good files: (JSON, weights) of graphs, their texts, weights in each format by the names of their files,
    models of ONNX and PyTorch if their packages are installed, a graph and its plan."""

    graphs: tuple[tuple[Any, bytes], ...]
    texts: tuple[str, ...]
    weights: dict[str, bytes]
    onnx: tuple[bytes, ...]
    pt2: tuple[bytes, ...]
    planned: fx.GraphModule
    plan: str

    @property
    def good(self) -> dict[str, bytes]:
        """A good file of each kind."""
        found = {"archive": packed(*self.graphs[0]), "json": packed(*self.graphs[1]), "text": self.texts[0].encode()}
        found |= {"weights": b"w.safetensors\0" + self.weights["w.safetensors"], "plan": self.plan.encode()}
        return found | {kind: made[0] for kind, made in (("onnx", self.onnx), ("pt2", self.pt2)) if made}

    @classmethod
    def make(cls) -> Subjects:
        """Trace and quantize some small programs."""
        rng = np.random.default_rng(0)
        net = fx.symbolic_trace(_net(rng), x="f32[B,1,8,8]")
        prepared = q.prepare(net, q.QConfigMapping().set_global(q.static_int8()))
        prepared(rng.normal(size=(4, 1, 8, 8)).astype(np.float32))
        lstm = fx.symbolic_trace(nn.LSTM(3, 4).eval(), "f32[T,B,3]")
        modules = [net, q.convert(prepared), lstm]
        graphs = [specimen(), *(opened(to_bytes(gm)) for gm in modules)]
        weights = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, write in weight_files.GOOD.items():
                write(Path(folder, name))
                weights[name] = Path(folder, name).read_bytes()
        plan = '# a plan\nelsewhere = "float"\n\n[schemes]\n'
        plan += 's = { preset = "static_int8", percentile = 99.9 }\n'
        plan += 'w = { preset = "weight_only_int4", group_size = 32 }\n\n[layers]\n'
        plan += '"0" = "s"\n"3" = "w"\n'
        texts = tuple(gm.graph.text(full=True) for gm in modules)
        return cls(tuple(graphs), texts, weights, _onnx(modules), _pt2(), net, plan)


def _onnx(modules: Sequence[fx.GraphModule]) -> tuple[bytes, ...]:
    """The modules as models of ONNX; nothing without the package ``onnx``."""
    if not find_spec("onnx"):
        return ()
    return tuple(fx.to_onnx(gm).SerializeToString() for gm in modules)


def _pt2() -> tuple[bytes, ...]:
    """Programs exported by torch: of a fixed size, and of named sizes with a condition; nothing without torch."""
    if not find_spec("torch"):
        return ()
    import torch

    class Chosen(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,)).reshape(x.shape[0], 2, -1)

    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 8))
    made = []
    for module, shape, sizes in (
        (layers.eval(), (2, 1, 8, 8), None),
        (Chosen(), (3, 4), ({0: torch.export.Dim("B", max=64)},)),
    ):
        stream = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(module, (torch.ones(shape),), dynamic_shapes=sizes), stream)
        made.append(stream.getvalue())
    return tuple(made)


def _net(rng: Any) -> Any:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8)).eval()


# -- mutations -------------------------------------------------------------------------------------
def mutated(kind: str, subjects: Subjects, choose: random.Random) -> bytes:
    """A file of that kind."""
    if kind in ("archive", "json"):
        content, weights = choose.choice(subjects.graphs)
        if kind == "archive":
            return _bytes(packed(content, weights), choose)
        made = copy.deepcopy(content)
        for _ in range(choose.choice((1, 1, 1, 2, 4))):
            made = _value(made, choose)
        if choose.random() < 0.05:
            weights = _safetensors(weights, choose)
        return packed(made, weights)
    if kind == "text":
        return _text(choose.choice(subjects.texts), choose).encode("utf-8", "surrogatepass")
    if kind == "weights":
        return mutated_weights(choose.choice(tuple(subjects.weights)), subjects, choose)
    if kind == "onnx":
        from tests.onnx_files import damage

        return damage(choose.choice(subjects.onnx), choose)
    if kind == "pt2":
        return _zip(choose.choice(subjects.pt2), choose)
    return _text(subjects.plan, choose).encode("utf-8", "surrogatepass")


def mutated_weights(name: str, subjects: Subjects, choose: random.Random) -> bytes:
    """A file of weights, which starts with the name of its format."""
    data = subjects.weights[name]
    if name == "w.safetensors":
        made = _safetensors(data, choose)
    elif name.endswith(".json"):
        made = json.dumps(_value(json.loads(data), choose)).encode()
    elif data.startswith(b"PK") and choose.random() < 0.5:
        made = _zip(data, choose)
    else:
        made = _binary(data, choose)
    return name.encode() + b"\0" + made


def _binary(data: bytes, choose: random.Random) -> bytes:
    """The bytes with other numbers, or parts of them elsewhere, in any place."""
    made = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 4))):
        place, size = choose.randrange(len(made)), choose.choice((1, 2, 4, 8))
        change = choose.randrange(4)
        if change == 0:
            made[place] = choose.randrange(256)
        elif change == 1:
            number = choose.choice([n for n in _NUMBERS if isinstance(n, int)]) % (1 << 8 * size)
            made[place : place + size] = number.to_bytes(size, "little")
        elif change == 2:
            made[place:place] = made[choose.randrange(len(made)) :][: choose.choice((1, 8, 40))]
        else:
            del made[place : place + choose.choice((1, 1, 8, 40, len(made)))]
        if not made:
            break
    return bytes(made)


def _zip(data: bytes, choose: random.Random) -> bytes:
    """The archive with a member that is another, or is missing; or with other bytes of its own."""
    if choose.random() < 0.2:
        return _bytes(data, choose)
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    for _ in range(choose.choice((1, 1, 2))):
        name = choose.choice(tuple(members))
        content, change = members[name], choose.random()
        if change < 0.1:
            del members[name]
        elif change < 0.2:
            other = choose.choice((*members, name + "x", "../" + name, *_TEXTS))
            members[other.encode("utf-8", "replace").decode()] = content
        elif name.endswith(".json"):
            members[name] = json.dumps(_value(json.loads(content), choose)).encode()
        elif content:
            members[name] = _binary(content, choose)
        if not members:
            break
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def _bytes(data: bytes, choose: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(choose.choice((1, 1, 2, 8))):
        place, length = choose.randrange(len(made)), choose.choice((1, 1, 2, 4, 30))
        if choose.random() < 0.5:  # near the directory, which is small
            place = max(0, len(made) - choose.randrange(1, 200))
        change = choose.randrange(5)
        if change == 0:
            made[place] = choose.randrange(256)
        elif change == 1:
            del made[place : place + length]
        elif change == 2:
            made[place:place] = choose.randbytes(length)
        elif change == 3:
            made[place : place + 4] = choose.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"PK\x01\x02"))
        else:
            made[place:place] = made[choose.randrange(len(made)) :][:length]
        if not made:
            return b""
    return bytes(made)


def _value(content: Any, choose: random.Random) -> Any:
    """The JSON with another value, key or length somewhere."""
    place: Any = content
    while True:  # walk down to a container whose item is changed
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return content
        key = choose.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and choose.random() < 0.85:
            place = place[key]
            continue
        break
    change = choose.randrange(9)
    if change == 0:
        del place[key]
    elif change == 1 and isinstance(place, dict):
        place[choose.choice(_TEXTS)] = place.pop(key)
    elif change == 1:
        place.insert(key, copy.deepcopy(choose.choice(place)))
    elif change == 2:
        place[key] = copy.deepcopy(place[choose.choice(keys)])
    elif change == 3:
        place[key] = {choose.choice(_TAGS): choose.choice((place[key], *_TEXTS))}
    elif change == 4:
        place[key] = [place[key]] * choose.choice((0, 1, 2, 70, 300))
    elif change == 5:
        for _ in range(choose.choice((2, 50, 500))):
            place[key] = [place[key]] if choose.random() < 0.7 else {"list": [place[key]]}
    elif change == 6:
        place[key] = choose.choice(_NUMBERS)
    elif change == 7 and isinstance(place[key], str):
        place[key] = _text(place[key], choose)
    else:
        place[key] = choose.choice((*_TEXTS, None, True, False, [], {}))
    return content


def _text(text: str, choose: random.Random) -> str:
    for _ in range(choose.choice((1, 1, 2, 5))):
        place = choose.randrange(len(text) + 1)
        end = min(len(text), place + choose.choice((0, 1, 1, 5, 40)))
        change = choose.randrange(6)
        if change == 0:
            new = ""
        elif change == 1:
            new = choose.choice(_TEXTS)
        elif change == 2:
            new = str(choose.choice(_NUMBERS))
        elif change == 3:
            new = text[place:end] * choose.choice((2, 3, 200))
        elif change == 4:
            start = choose.randrange(len(text) + 1)
            new = text[start : start + choose.choice((1, 10, 60))]
        else:
            new = choose.choice("()[]{}*/%-+=,:;.'\"\\\n\t #@~x0")
        text = text[:place] + new + text[end:]
    return text


def _safetensors(data: bytes, choose: random.Random) -> bytes:
    if choose.random() < 0.4:
        return _bytes(data, choose)
    length = struct.unpack("<Q", data[:8])[0]
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    for _ in range(choose.choice((1, 2))):
        header = _value(header, choose)
    text = json.dumps(header).encode()
    size = len(text) if choose.random() < 0.9 else abs(int(choose.choice(_NUMBERS[:18]))) % (1 << 64)
    return struct.pack("<Q", size) + text + rest


# -- reading ---------------------------------------------------------------------------------------
def read(
    kind: str,
    data: bytes,
    folder: Path,
    subjects: Subjects,
    number: int,
    compiling: Callable[[], AbstractContextManager[None]],
) -> bool:
    """Read a file of that kind and use what it says; False if it is refused. Raises what goes
    wrong with what is accepted."""
    if kind == "weights":
        return _read_weights(data, folder)
    if kind == "plan":
        path = folder / "plan.toml"
        path.write_bytes(data)
        try:
            plan = q.load_plan(path, subjects.planned)
        except FxliteError:
            return False
        plan.save(path)
        assert q.load_plan(path, subjects.planned).layers == plan.layers
        return True
    if kind == "text":
        try:
            graph = fx.parse(data.decode("utf-8", "surrogatepass"))
        except FxliteError:
            return False
        assert fx.parse(graph.text(full=True)).text(full=True) == graph.text(full=True)
        graph.lint(full=True)
        return True
    try:
        gm = _opened(kind, data, folder)
    except FxliteError as error:
        assert len(str(error)) > 20, f"the error says little: {error!r}"
        return False
    use(gm, folder, number, compiling)
    return True


def _opened(kind: str, data: bytes, folder: Path) -> fx.GraphModule:
    """The graph in a file."""
    if kind not in ("onnx", "pt2"):
        return from_bytes(data, "x.fxl")
    path = folder / f"x.{kind}"
    path.write_bytes(data)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return fx.from_onnx(path) if kind == "onnx" else fx.from_torch(path)


def _read_weights(data: bytes, folder: Path) -> bool:
    name, _, content = data.partition(b"\0")
    path = folder / name.decode()
    if name.endswith(b".json"):
        weight_files.safetensors(folder / "part.safetensors")
    path.write_bytes(content)
    readers = [fx.load_weights]
    if name == b"w.safetensors":
        readers += [lambda p: fx.load_safetensors(p, True), lambda p: fx.load_safetensors(p, False)]
    found = []
    for reads in readers:
        try:
            found.append(reads(path))
        except FxliteError as error:
            assert str(folder) in str(error) and len(str(error)) > len(str(path)) + 10, f"it says little: {error!r}"
    for arrays in found:
        for array in arrays.values():
            array.tobytes()
    assert all(arrays.keys() == found[0].keys() for arrays in found)
    return bool(found)


def use(gm: fx.GraphModule, folder: Path, number: int, compiling: Callable[[], AbstractContextManager[None]]) -> None:
    """Save, print, draw and emit a graph that was accepted."""
    again = from_bytes(to_bytes(gm))
    assert to_bytes(again) == to_bytes(gm), "what is saved again differs"
    gm.graph.lint(full=True)
    compile(executable_code(gm.graph), "executable", "exec")
    gm.graph.text(full=True), repr(gm), gm.graph.to_dot()
    gm.graph.draw(folder / "x.svg")
    compile(python_source(gm), "source", "exec")
    program = emit(optimize(gm, keep=templates.claims)[0])
    entry_source(program.entry)
    if number % 50 < 5:
        with compiling():
            build(dict(program.sources), program.entry)
