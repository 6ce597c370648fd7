"""Small programs over odd shapes, layouts and dtypes, drawn at random, for ``cliffs.py``.

A :class:`Form` is one op or a short chain as two texts, for fxlite (and NumPy, where it uses no
``nn.functional``) and for torch, over arrays whose shapes are letters: capital letters are sizes, which
may be named in fxlite's types, small ones are numbers of the text too, such as the size of a kernel.
:func:`draw` chooses a form of a kind, sizes, dtypes, and which sizes are named and which arrays are weights.
The same seed, kind and number give the same case.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = (
    *("contraction", "convolution", "attention", "pooling", "reduction", "normalization", "pointwise"),
    *("view", "view, reduced", "view, multiplied", "write"),
)

_ANY = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 50, 64, 65, 96, 100, 127, 128, 129, 197, 200, 255, 256, 257, 384)
_ANY += (400, 512, 513, 768, 1000, 1023, 1024, 2048, 3000, 4096, 10007, 65536, 100003)
#: What a letter's size is drawn from, if not from any sizes.
_POOLS: dict[str, tuple[int, ...]] = {
    "B": (1, 2, 3, 4, 7, 8, 16, 32, 64, 197),
    "H": (1, 2, 3, 6, 8, 12),
    "T": (1, 2, 3, 7, 16, 33, 64, 100, 128, 197, 256, 577, 1024),
    "S": (1, 3, 7, 16, 33, 64, 100, 128, 197, 256, 577, 1024),
    "D": (8, 16, 24, 32, 40, 48, 64, 65, 80, 128),
    "C": (1, 3, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96, 100, 128, 192, 256),
    "O": (1, 3, 8, 10, 16, 24, 32, 48, 64, 100, 128, 256),
    "X": (5, 7, 8, 13, 14, 16, 17, 28, 31, 32, 56, 57, 64, 112, 224),
    "Y": (5, 7, 8, 13, 14, 16, 17, 28, 31, 32, 56, 57, 64, 112, 224),
    "Z": (5, 7, 8, 13, 16, 17),
    "k": (1, 2, 3, 3, 3, 5, 7),
    "s": (1, 1, 1, 2, 3),
    "p": (0, 1, 1, 2),
    "d": (1, 1, 1, 2),
    "g": (2, 3, 4, 8),
    "a": (4,),
    "G": (24, 48, 96, 192),
    "E": (2, 34, 64, 100, 198, 256, 1000, 4096, 65536),
    "L": (7, 33, 100, 197, 1000, 4096, 50257),
    "U": tuple(n for n in _ANY if n > 4),
    "V": tuple(n for n in _ANY if n > 4),
}
_FLOATS = ("f32", "f32", "f32", "f64")
_NUMBERS = ("f32", "f32", "f64", "i32", "i64")


@dataclass(frozen=True)
class Form:
    """``arrays``: the letters of each one's shape, ``N<V`` for indices below V; ``dtypes``: one for all
    arrays or one for each; ``work``: the letters whose product is bounded by ``least`` and ``most``;
    ``weights``: arrays that may be constants of the program; letters in ``fixed`` are never named."""

    kind: str
    name: str
    text: str
    torch: str
    arrays: Mapping[str, str]
    work: str
    dtypes: tuple[str, ...] = _FLOATS
    weights: str = ""
    fixed: str = ""
    least: float = 2e4
    most: float = 1e8


@dataclass(frozen=True)
class Case:
    """A form with sizes. ``types``: dtype and shape in letters, with ``<`` and a limit for indices."""

    kind: str
    form: str
    text: str
    torch: str
    types: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict)
    named: str = ""
    weights: str = ""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array, in numbers."""
        return tuple(self.sizes.get(c, 1) for c in _letters(self.types[name]))

    def type_text(self, name: str) -> str:
        """The type for fxlite: ``f32[B,64]``, with a letter for each named size."""
        return self._type(name, "{0}")

    def arrays(self) -> dict[str, Any]:
        """Random values of the arrays; the same in each call."""
        random_numbers = np.random.default_rng(0)
        made = {}
        for name, text in self.types.items():
            dtype, shape, limit = text.partition(":")[0], self.shape(name), text.partition("<")[2]
            if limit:
                made[name] = random_numbers.integers(0, self.sizes[limit], shape, NUMPY[dtype])
            elif dtype[0] == "i":
                made[name] = random_numbers.integers(-9, 10, shape, NUMPY[dtype])
            elif dtype == "bool":
                made[name] = random_numbers.random(shape) < 0.5
            elif dtype[0] == "c":
                both = random_numbers.normal(size=(2, *shape))
                made[name] = (both[0] + 1j * both[1]).astype(NUMPY[dtype])
            else:
                made[name] = random_numbers.normal(size=shape).astype(NUMPY[dtype])
        return made

    def __str__(self) -> str:
        marks = {name: "const " if name in self.weights else "" for name in self.types}
        shapes = ", ".join(f"{n} {marks[n]}{self._type(n, '{0}={1}')}" for n in self.types)
        return f"{self.text}: {shapes}"

    def _type(self, name: str, named: str) -> str:
        sizes = zip(_letters(self.types[name]), self.shape(name))
        text = ",".join(named.format(c, size) if c in self.named else str(size) for c, size in sizes)
        return f"{self.types[name].partition(':')[0]}[{text}]"


def _letters(type: str) -> str:
    return type.rpartition(":")[2].partition("<")[0]


NUMPY = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
NUMPY |= {"c64": np.complex64, "c128": np.complex128}


def draw(kind: str, seed: int, number: int) -> Case:
    """The case of this number among those of a kind."""
    choose = random.Random(f"{seed} {kind} {number}")
    form = choose.choice([f for f in FORMS if f.kind == kind])
    letters = sorted({c for shape in form.arrays.values() for c in shape if c.isalpha()} | set(form.work))
    letters += sorted(set(re.findall(r"\{(\w)\}", form.text)) - set(letters))
    while True:
        sizes = {c: choose.choice(_POOLS.get(c, _ANY)) for c in letters}
        if _fits(form, sizes):
            break
    dtypes = choose.choice(form.dtypes).split()
    types, turn = {}, 0
    for name, shape in form.arrays.items():
        dtype, _, shape = shape.rpartition(":")
        if "<" in shape:
            dtype = "i64"
        elif not dtype:
            dtype = dtypes[turn % len(dtypes)]
            turn += 1
        types[name] = f"{dtype}:{shape}"
    may_be_named = [c for c in letters if c.isupper() and c not in form.fixed]
    named = "".join(c for c in may_be_named if choose.random() < 0.5) if choose.random() < 0.4 else ""
    weights = form.weights if choose.random() < 0.7 else ""
    named = "".join(c for c in named if not any(c in form.arrays[w] for w in weights))
    text, torch = (t.replace("{", "{0[").replace("}", "]}").format(sizes) for t in (form.text, form.torch))
    return Case(kind, form.name, text, torch, types, sizes, named, weights)


def _fits(form: Form, sizes: Mapping[str, int]) -> bool:
    """Whether a case of these sizes takes neither too little nor too much work and memory."""
    work = 1
    for letter in form.work:
        work *= sizes[letter]
    if not form.least <= work <= form.most:
        return False
    for shape in form.arrays.values():
        if np.prod([float(sizes.get(c, 1)) for c in _letters(shape)]) > 3e6:
            return False
    if "k" in sizes:  # the window fits into the image, and its padding into half of it
        smallest = min(sizes[c] for c in "XYZ" if c in sizes)
        return (sizes["k"] - 1) * sizes.get("d", 1) < smallest and 2 * sizes.get("p", 0) <= sizes["k"]
    return True


FORMS: list[Form] = []


def _add(kind: str, name: str, text: str, arrays: str, work: str, torch: str = "", **more: Any) -> None:
    """Enter a form; without ``torch`` torch's text is NumPy's, with functions of the same names."""
    torch = torch or text.replace("F.", "T.").replace("np.", "torch.")
    shapes = dict(part.split("=") for part in arrays.split())
    FORMS.append(Form(kind, name, text, torch, shapes, work, **more))


def _contractions() -> None:
    every = (*_FLOATS, "f64 f32", "f32 f64", "i32", "i64", "c64", "c128")
    add = lambda *given, **more: _add("contraction", *given, **more)  # noqa: E731
    same = "x @ y"
    together = "{}.to(torch.promote_types(x.dtype, y.dtype))"
    promoted = f"{together} @ {together}"
    mixed = promoted.format("x", "y")
    for left, right, name in (
        ("x", "y", "product"),
        ("x.T", "y", "product, left transposed"),
        ("x", "y.T", "product, right transposed"),
        ("x.T", "y.T", "product, both transposed"),
    ):
        arrays = f"x={'KM' if 'T' in left else 'MK'} y={'NK' if 'T' in right else 'KN'}"
        add(name, f"{left} @ {right}", arrays, "MKN", torch=promoted.format(left, right), dtypes=every, weights="y")
    add("product of matrix and vector", same, "x=MK y=K", "MK", torch=mixed, dtypes=every, most=3e6)
    add("product of vector and matrix", same, "x=K y=KN", "KN", torch=mixed, dtypes=every, most=3e6)
    add("product of transposed matrix and vector", "x.T @ y", "x=KM y=K", "MK", most=3e6)
    add("dot", same, "x=K y=K", "K", dtypes=("f32", "f64", "i32", "c64"), most=3e6)
    add("outer", "np.outer(x, y)", "x=M y=N", "MN", most=3e6)
    add("batched product", same, "x=BMK y=BKN", "BMKN", dtypes=("f32", "f32", "f64", "c64", "i32"))
    add("batched product, transposed", "x @ y.transpose(0, 2, 1)", "x=BMK y=BNK", "BMKN", torch="x @ y.transpose(1, 2)")
    add("batched product, one right", same, "x=BMK y=KN", "BMKN", weights="y")
    add("batched product, one left", same, "x=MK y=BKN", "BMKN")
    add("batch in the middle", "np.einsum('tbi,bij->tbj', x, y)", "x=MBK y=BKN", "BMKN")
    add("batch last", "np.einsum('ikb,kjb->ijb', x, y)", "x=MKB y=KNB", "BMKN", most=2e7)
    add("sums of two axes", "np.einsum('abk,abn->kn', x, y)", "x=BMK y=BMN", "BMKN")
    add("row by row", "np.einsum('ij,ij->i', x, y)", "x=MK y=MK", "MK", most=3e6)
    add("bilinear form", "np.einsum('bi,ij,bj->b', x, y, z)", "x=BM y=MN z=BN", "BMN", most=2e7)
    add("chain of products", "x @ y @ z", "x=MK y=KN z=ND", "MKN", dtypes=("f32", "f64"))
    add("linear", "F.linear(x, w, b)", "x=MK w=NK b=N", "MKN", weights="wb")
    add("linear, relu", "F.relu(F.linear(x, w, b))", "x=BMK w=NK b=N", "BMKN", weights="wb")
    add("linear, gelu", "F.gelu(F.linear(x, w, b))", "x=MK w=NK b=N", "MKN", weights="wb")
    add(
        "linear of channels first",
        "F.linear(x.transpose(0, 2, 1), w)",
        "x=BKM w=NK",
        "BMKN",
        torch="T.linear(x.transpose(1, 2), w)",
        weights="w",
    )
    add("product, then maximum", "(x @ y).max(0)", "x=MK y=KN", "MKN", torch="(x @ y).amax(0)")
    add("distances", "((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)", "x=MK y=NK", "MKN", most=5e6)


def _convolutions() -> None:
    add = lambda *given, **more: _add("convolution", *given, **{"weights": "w", "most": 2e8, **more})  # noqa: E731
    mostly = ("f32", "f32", "f32", "f32", "f64")
    how = "stride={s}, padding={p}, dilation={d}"
    two = f"F.conv2d(x, w, {how})"
    add("conv2d", two, "x=BCXY w=OCkk", "BXYCOkk", dtypes=mostly)
    add(
        "conv2d, relu",
        f"F.relu({two})",
        "x=BCXY w=OCkk",
        "BXYCOkk",
        torch=f"T.relu({two.replace('F.', 'T.')})",
        dtypes=mostly,
    )
    add(
        "conv2d, channels last",
        f"F.conv2d(np.transpose(x, (0, 3, 1, 2)), w, {how}).transpose(0, 2, 3, 1)",
        "x=BXYC w=OCkk",
        "BXYCOkk",
        torch=f"T.conv2d(x.permute(0, 3, 1, 2), w, {how}).permute(0, 2, 3, 1)",
    )
    deep = f"F.conv2d(x, w, {how}, groups={{C}})"
    add("depthwise conv2d", deep, "x=BCXY w=C1kk", "BXYCkk", dtypes=mostly, fixed="C")
    add(
        "grouped conv2d",
        f"F.conv2d(np.concatenate([x] * {{g}}, 1), w, {how}, groups={{g}})",
        "x=BCXY w=GCkk",
        "BXYCGkk",
        torch=f"T.conv2d(torch.cat([x] * {{g}}, 1), w, {how}, groups={{g}})",
    )
    one = f"F.conv1d(x, w, {how})"
    add("conv1d", one, "x=BCX w=OCk", "BXCOk", dtypes=mostly)
    long = "F.conv1d(x, w, padding={p})"
    add("conv1d, one channel", long, "x=B1X w=O1k", "BXOk", least=1e3)
    back = "F.conv_transpose2d(x, w, stride={s}, padding={p})"
    add("conv_transpose2d", back, "x=BCXY w=COkk", "BXYCOkk")
    three = "F.conv3d(x, w, stride={s}, padding={p})"
    add("conv3d", three, "x=BCZXY w=OCkkk", "BZXYCOkkk")


def _attentions() -> None:
    add = lambda *given, **more: _add("attention", *given, **more)  # noqa: E731
    call = "F.scaled_dot_product_attention(q, k, v{})"
    for name, extra, more in (
        ("attention", "", ""),
        ("attention, causal", ", is_causal=True", ""),
        ("attention, mask", ", m", " m=bool:TS"),
        ("attention, bias", ", m", " m=TS"),
    ):
        text = call.format(extra)
        if "causal" in name:
            add(name, text, "q=BHTD k=BHTD v=BHTD", "BHTTD")
        else:
            add(name, text, f"q=BHTD k=BHSD v=BHSD{more}", "BHTSD")
    turned = "F.scaled_dot_product_attention({}).transpose(0, 2, 1, 3)"
    arrays = ", ".join(f"{n}.transpose(0, 2, 1, 3)" for n in "qkv")
    theirs = ", ".join(f"{n}.transpose(1, 2)" for n in "qkv")
    add(
        "attention, heads inside",
        turned.format(arrays),
        "q=BTHD k=BSHD v=BSHD",
        "BHTSD",
        torch=f"T.scaled_dot_product_attention({theirs}).transpose(1, 2)",
    )
    add(
        "attention, written out",
        "F.softmax(q @ k.swapaxes(-1, -2) * 0.125, -1) @ v",
        "q=BHTD k=BHSD v=BHSD",
        "BHTSD",
        torch="T.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v",
    )
    add(
        "attention, weights",
        "F.softmax(q @ k.swapaxes(-1, -2), -1)",
        "q=BHTD k=BHSD",
        "BHTSD",
        torch="T.softmax(q @ k.transpose(-1, -2), -1)",
    )
    add(
        "attention over channels",
        "F.softmax(q.swapaxes(-1, -2) @ k, -1) @ v.swapaxes(-1, -2)",
        "q=BTD k=BTD v=BSD",
        "BTSD",
        torch="T.softmax(q.transpose(-1, -2) @ k, -1) @ v.transpose(-1, -2)",
    )


def _poolings() -> None:
    add = lambda *given, **more: _add("pooling", *given, **{"most": 2e7, **more})  # noqa: E731
    for name, how in (
        ("max_pool2d", "{k}, stride={s}, padding={p}"),
        ("avg_pool2d", "{k}, stride={s}, padding={p}"),
        ("max_pool2d, whole", "{k}"),
    ):
        call = f"F.{name.partition(',')[0]}(x, {how})"
        add(name, call, "x=BCXY", "BCXYkk")
    add(
        "max_pool2d, channels last",
        "F.max_pool2d(x.transpose(0, 3, 1, 2), {k}, stride={s}).transpose(0, 2, 3, 1)",
        "x=BXYC",
        "BCXYkk",
        torch="T.max_pool2d(x.permute(0, 3, 1, 2), {k}, stride={s}).permute(0, 2, 3, 1)",
    )
    for name in ("max_pool1d", "avg_pool1d"):
        call = f"F.{name}(x, {{k}}, stride={{s}}, padding={{p}})"
        add(name, call, "x=BCX", "BCXk", least=1e3)
    call = "F.max_pool3d(x, {k}, stride={s})"
    add("max_pool3d", call, "x=BCZXY", "BCZXYkkk")
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        call = f"F.{name}(x, {{g}})"
        add(name, call, "x=BCXY", "BCXY")
    add("mean of images", "x.mean((2, 3))", "x=BCXY", "BCXY")
    call = "F.interpolate(x, scale_factor=2, mode='{}')"
    for mode, more in (("nearest", ""), ("bilinear", ", align_corners=False")):
        text = call.format(mode).replace(")", more + ")")
        add(f"interpolate {mode}", text, "x=BCXY", "BCXY", most=1e6)


def _reductions() -> None:
    add = lambda *given, **more: _add("reduction", *given, **{"most": 4e6, "dtypes": _NUMBERS, **more})  # noqa: E731
    for name in ("sum", "mean", "amax", "prod", "std", "argmax", "any", "cumsum"):
        for place, arrays, axis, work in (
            ("trailing", "x=MN", 1, "MN"),
            ("leading", "x=MN", 0, "MN"),
            ("middle", "x=BMN", 1, "BMN"),
        ):
            numpy, torch = {
                "any": ("(x > 2).any({a})", "(x > 2).any({a})"),
                "std": ("x.std({a})", "x.std({a}, correction=0)"),
                "amax": ("np.max(x, {a})", "x.amax({a})"),
            }.get(name, (f"x.{name}({{a}})", f"x.{name}({{a}})"))
            dtypes = ("f32", "f64") if name == "prod" else (*_NUMBERS, "c64") if name in ("sum", "mean") else _NUMBERS
            add(
                f"{name}, {place} axis",
                numpy.replace("{a}", str(axis)),
                arrays,
                work,
                torch=torch.replace("{a}", str(axis)),
                dtypes=dtypes,
            )
    for name in ("sum", "mean", "max", "std"):
        torch = "x.std(correction=0)" if name == "std" else f"x.{name}()"
        add(f"{name} of all", f"x.{name}()", "x=MN", "MN", torch=torch)
    add("sum of outer axes", "x.sum((0, 2))", "x=BMN", "BMN")
    add("norm", "np.sqrt((x * x).sum(1))", "x=MN", "MN", torch="torch.linalg.vector_norm(x, dim=1)", dtypes=_FLOATS)
    add("sum of exp", "np.log(np.exp(x).sum(0))", "x=MN", "MN", torch="torch.exp(x).sum(0).log()", dtypes=_FLOATS)
    add("count", "(x > 0).sum(1)", "x=MN", "MN")
    add("sum of transposed", "x.T.sum(0)", "x=MN", "MN")
    add("sum of every second", "x[:, ::2].sum(1)", "x=MN", "MN", dtypes=_FLOATS)
    add("sort", "np.sort(x, 1)", "x=MN", "MN", torch="x.sort(1)[0]", most=3e5)
    add("top 5", "F.topk(x, 5)[0]", "x=BML", "BML", torch="x.topk(5)[0]", most=3e5, dtypes=_FLOATS, least=5e4)


def _normalizations() -> None:
    add = lambda *given, **more: _add("normalization", *given, **{"most": 3e6, **more})  # noqa: E731
    for name in ("softmax", "log_softmax"):
        for place, arrays, axis, work in (
            ("trailing", "x=MN", -1, "MN"),
            ("leading", "x=MN", 0, "MN"),
            ("middle", "x=BMN", 1, "BMN"),
        ):
            call = f"F.{name}(x, {axis})"
            add(f"{name}, {place} axis", call, arrays, work)
    call = "F.layer_norm(x, ({N},), w, b)"
    add("layer_norm", call, "x=MN w=N b=N", "MN", weights="wb", fixed="N")
    call = "F.rms_norm(x, ({N},), w)"
    add("rms_norm", call, "x=MN w=N", "MN", weights="w", fixed="N")
    call = "F.instance_norm(x)"
    add("instance_norm", call, "x=BCXY", "BCXY", least=5e4)
    call = "F.group_norm(np.concatenate([x] * {g}, 1), {g})"
    add("group_norm", call, "x=BCXY", "BCXY", torch="T.group_norm(torch.cat([x] * {g}, 1), {g})", fixed="C", most=5e5)
    call = "F.batch_norm(x, m, np.abs(v), w, b)"
    add("batch_norm", call, "x=BCXY m=C v=C w=C b=C", "BCXY", torch="T.batch_norm(x, m, v.abs(), w, b)", weights="mvwb")
    add(
        "standardized columns",
        "(x - x.mean(0)) / (x.std(0) + 1)",
        "x=MN",
        "MN",
        torch="(x - x.mean(0)) / (x.std(0, correction=0) + 1)",
    )
    add("rows of length 1", "F.normalize(x, dim=1)", "x=MN", "MN")
    add(
        "layer_norm of channels first",
        "F.layer_norm(x.transpose(0, 2, 3, 1), ({C},)).transpose(0, 3, 1, 2)",
        "x=BCXY",
        "BCXY",
        torch="T.layer_norm(x.permute(0, 2, 3, 1), ({C},)).permute(0, 3, 1, 2)",
        fixed="C",
    )
    add("sum, softmax", "F.softmax(x + y, -1)", "x=BMN y=MN", "BMN")
    add("residual, layer_norm", "F.layer_norm(x + y, ({N},))", "x=MN y=MN", "MN", fixed="N")


def _pointwise() -> None:
    mixed = (*_FLOATS, "f64 f32", "f32 f64", "i32", "f32 i32", "i64 f32")
    add = lambda *given, **more: _add("pointwise", *given, **{"most": 3e6, **more})  # noqa: E731
    plain = "x * y + z"
    add("multiply-add", plain, "x=MN y=MN z=MN", "MN", dtypes=(*mixed, "c64"))
    add("rows and columns", "x * y + z", "x=MN y=N z=M1", "MN", torch=plain, dtypes=mixed)
    add("channels", "x * y + z", "x=BCXY y=C11 z=C11", "BCXY", torch=plain, dtypes=mixed)
    add("transposed", "x.T + y", "x=MN y=NM", "MN", dtypes=mixed)
    add("every second", "x[:, ::2] * 2 + x[:, 1::2]", "x=ME", "ME", fixed="E", dtypes=_FLOATS)
    add("differences", "x[:, 1:] - x[:, :-1]", "x=MV", "MV", dtypes=_NUMBERS)
    add("stencil", "(x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1]) * 0.25", "x=UV", "UV")
    for name in ("exp", "tanh", "sin", "sqrt", "log1p", "expm1", "arctan", "floor"):
        of = "abs(x)" if name in ("sqrt", "log1p") else "x"
        add(name, f"np.{name}({of})", "x=MN", "MN")
    for name in ("gelu", "silu", "softplus", "elu", "hardswish", "mish", "leaky_relu", "sigmoid"):
        prefix = "torch" if name == "sigmoid" else "T"
        add(name, f"F.{name}(x)", "x=BMN", "BMN", torch=f"{prefix}.{name}(x)")
    add("power", "abs(x) ** 1.7", "x=MN", "MN", torch="x.abs() ** 1.7")
    add("cube", "x ** 3", "x=MN", "MN", dtypes=_NUMBERS)
    add("where", "np.where(x > y, x * 2, y)", "x=MN y=MN", "MN", dtypes=mixed)
    add("clip", "np.clip(x, -1, 2)", "x=MN", "MN", torch="x.clamp(-1, 2)", dtypes=_NUMBERS)
    add("floor division", "x // 3", "x=MN", "MN", dtypes=("i32", "i64", "f32", "f64"))
    add("remainder", "x % 3", "x=MN", "MN", dtypes=("i32", "i64", "f32", "f64"))
    add("bits", "(x & 7) << 2 | 1", "x=MN", "MN", dtypes=("i32", "i64"))
    add("quotient", "x / (abs(y) + 1)", "x=MN y=MN", "MN", dtypes=mixed)
    add(
        "complex chain",
        "x * np.conj(y) + 2j * x",
        "x=MN y=MN",
        "MN",
        torch="x * y.conj() + 2j * x",
        dtypes=("c64", "c128"),
    )
    add("absolute complex", "abs(x)", "x=MN", "MN", torch="x.abs()", dtypes=("c64", "c128"))
    add("cast", "x.astype('int32')", "x=MN", "MN", torch="x.to(torch.int32)", dtypes=("f32", "f64", "i64"))
    add("normal distribution", "np.exp(-0.5 * ((x - y) / 1.5) ** 2) * 0.27", "x=MN y=N", "MN")
    add(
        "rotation",
        "np.concatenate([x * c - y * s, x * s + y * c], -1)",
        "x=BTHD y=BTHD c=T1D s=T1D",
        "BTHD",
        torch="torch.cat([x * c - y * s, x * s + y * c], -1)",
    )


def _views() -> None:
    add = lambda *given, **more: _add("view", *given, **{"most": 2e6, "dtypes": _NUMBERS, **more})  # noqa: E731
    add("transpose", "x.T", "x=MN", "MN")
    add("channels last", "x.transpose(0, 2, 3, 1)", "x=BCXY", "BCXY", torch="x.permute(0, 2, 3, 1)")
    add("channels first", "x.transpose(0, 3, 1, 2)", "x=BXYC", "BCXY", torch="x.permute(0, 3, 1, 2)")
    add("heads", "x.transpose(0, 2, 1, 3)", "x=BTHD", "BTHD", torch="x.transpose(1, 2)")
    add("all axes turned", "x.transpose(3, 2, 1, 0)", "x=BTHD", "BTHD", torch="x.permute(3, 2, 1, 0)")
    add("concat, leading", "np.concatenate([x, y], 0)", "x=MN y=KN", "MN", torch="torch.cat([x, y], 0)")
    add("concat, trailing", "np.concatenate([x, y], 1)", "x=MN y=MK", "MN", torch="torch.cat([x, y], 1)")
    add("stack, trailing", "np.stack([x, y], -1)", "x=MN y=MN", "MN")
    add("stack of three, trailing", "np.stack([x, y, x + y], -1)", "x=MN y=MN", "MN")
    add("pad", "F.pad(x, (1, 2, 3, 1))", "x=BCXY", "BCXY", dtypes=_FLOATS)
    add(
        "reflect",
        "np.pad(x, ((0, 0), (0, 0), (1, 1), (2, 2)), mode='reflect')",
        "x=BCXY",
        "BCXY",
        torch="T.pad(x, (2, 2, 1, 1), mode='reflect')",
        dtypes=_FLOATS,
    )
    add("roll", "np.roll(x, 3, 1)", "x=MN", "MN", torch="x.roll(3, 1)")
    add("flip", "x[:, ::-1]", "x=MN", "MN", torch="x.flip(1)")
    add("slices", "x[:, 1::3]", "x=MV", "MV")
    add("rows gathered", "x[i]", "x=MN i=K<M", "NK")
    add("columns gathered", "x[:, i]", "x=MN i=K<N", "MK")
    add("elements gathered", "np.take_along_axis(x, i, 1)", "x=MN i=MK<N", "MK", torch="x.gather(1, i)")
    add("pairs gathered", "x[i, j]", "x=MN i=K<M j=K<N", "K", least=1e3)
    add("rows added", "F.embedding(i, x).sum(1)", "x=MN i=BT<M", "BTN", dtypes=_FLOATS)
    add("tile", "np.tile(x, (2, 3))", "x=MN", "MN", torch="x.tile(2, 3)", most=1e6)
    add("repeat", "np.repeat(x, 3, 1)", "x=MN", "MN", torch="x.repeat_interleave(3, 1)", most=1e6)
    add("triangle", "np.tril(x)", "x=MN", "MN", torch="x.tril()")
    add(
        "pixel_shuffle",
        "F.pixel_shuffle(np.concatenate([x] * 4, 1), 2)",
        "x=BCXY",
        "BCXY",
        torch="T.pixel_shuffle(torch.cat([x] * 4, 1), 2)",
        fixed="C",
        dtypes=_FLOATS,
        most=5e5,
    )
    add(
        "patches",
        "x.reshape({B}, {C}, {X}, 4, {Y}, 4).transpose(0, 2, 4, 1, 3, 5).reshape({B}, {X} * {Y}, -1)",
        "x=BCXaYa",
        "BCXY",
        torch="x.reshape({B}, {C}, {X}, 4, {Y}, 4).permute(0, 2, 4, 1, 3, 5).reshape({B}, {X} * {Y}, -1)",
        fixed="BCXY",
        most=1e5,
        least=2e3,
    )
    add(
        "transposed, then added",
        "x.transpose(0, 2, 1).reshape(-1, {M}) + y",
        "x=BMN y=M",
        "BMN",
        torch="x.transpose(1, 2).reshape(-1, {M}) + y",
        fixed="M",
        dtypes=_FLOATS,
    )


def _reduced_views() -> None:
    """Each view before each reduction: what an op alone does fast may be slow in the order that a view gives."""
    views = [
        ("transposed", "x.T", "", "x=MN", "MN"),
        ("reversed", "x[:, ::-1]", "x.flip(1)", "x=MN", "MN"),
        ("rolled", "np.roll(x, 5, 1)", "x.roll(5, 1)", "x=MN", "MN"),
        ("joined", "np.concatenate([x, y], 1)", "torch.cat([x, y], 1)", "x=MN y=MK", "MNK"),
        ("joined, transposed", "np.concatenate([x, y], 0).T", "torch.cat([x, y], 0).T", "x=MN y=KN", "MNK"),
        ("padded", "np.pad(x, ((0, 0), (2, 1)))", "T.pad(x, (2, 1))", "x=MN", "MN"),
        ("repeated", "np.repeat(x, 3, 1)", "x.repeat_interleave(3, 1)", "x=MN", "MN"),
        ("sliced", "x[:, 1::2]", "", "x=MV", "MV"),
        ("gathered", "x[:, i]", "", "x=MN i=K<N", "MK"),
        ("channels joined", "x.transpose(0, 3, 1, 2).reshape({B}, -1)", "", "x=BXYC", "BXYC"),
        ("heads joined", "x.transpose(0, 2, 1, 3).reshape({B} * {T}, -1)", "", "x=BHTD", "BHTD"),
        ("one channel", "x[:, None, :].reshape({M}, -1)", "", "x=MN", "MN"),
    ]
    reductions = [
        ("sum", "{v}.sum()", ""),
        ("sum of rows", "{v}.sum(1)", ""),
        ("sum of columns", "{v}.sum(0)", ""),
        ("largest of rows", "{v}.max(1)", "{v}.amax(1)"),
        ("variance of rows", "{v}.var(1)", "{v}.var(1, correction=0)"),
        ("place of the largest", "{v}.argmax(1)", ""),
        ("softmax of rows", "F.softmax({v}, -1)", ""),
    ]
    for (view, text, torch, arrays, work), (name, reduced, by_torch) in itertools.product(views, reductions):
        by_torch = (by_torch or reduced).replace("F.", "T.")
        torch = torch or re.sub(r"transpose\((\d, \d, \d, \d)\)", r"permute(\1)", text)
        fixed = "".join(sorted({*re.findall(r"{(\w)}", text)}))
        numpy, peer = reduced.replace("{v}", text), by_torch.replace("{v}", torch)
        _add("view, reduced", f"{view}, {name}", numpy, arrays, work, torch=peer, fixed=fixed, most=2e6)


def _multiplied_views() -> None:
    """Each view as the left operand of products in several orders, of numbers with a template and without."""
    views = [
        ("transposed", "x.T", "", "x=KM"),
        ("reversed", "x[:, ::-1]", "x.flip(1)", "x=MK"),
        ("rolled", "np.roll(x, 5, 1)", "x.roll(5, 1)", "x=MK"),
        ("joined", "np.concatenate([x, z], 0)", "torch.cat([x, z], 0)", "x=MK z=HK"),
        ("padded", "np.pad(x, ((2, 1), (0, 0)))", "T.pad(x, (0, 0, 2, 1))", "x=MK"),
        ("repeated", "np.repeat(x, 3, 0)", "x.repeat_interleave(3, 0)", "x=MK"),
        ("sliced", "x[1::2]", "", "x=UK"),
        ("gathered", "x[i]", "", "x=MK i=U<M"),
        ("channels first", "x.swapaxes(1, 2)", "", "x=BKM"),
        ("channels joined", "x.swapaxes(1, 2).reshape(-1, {K})", "", "x=BKM"),
    ]
    products = [
        ("by a matrix", "{v} @ y", "y=KN"),
        ("by a transposed matrix", "{v} @ y.T", "y=NK"),
        ("product transposed", "({v} @ y).swapaxes(-1, -2)", "y=KN"),
        ("columns first", "np.einsum('...k,nk->n...', {v}, y)", "y=NK"),
    ]
    for (view, text, torch, arrays), (name, multiplied, right) in itertools.product(views, products):
        work = "".join(sorted({*"KN", *re.sub(r"\w=|<\w|[HK ]", "", arrays)}))
        numpy, peer = multiplied.replace("{v}", text), multiplied.replace("{v}", torch or text).replace("np.", "torch.")
        fixed = "K" if "{K}" in text else ""
        more = {"dtypes": _NUMBERS, "fixed": fixed, "most": 2e7}
        _add("view, multiplied", f"{view}, {name}", numpy, f"{arrays} {right}", work, torch=peer, **more)


def added(out: Any, at: Any, values: Any) -> Any:
    """``out`` with values added at positions, once for each."""
    np.add.at(out, at, values)
    return out


def written(out: Any, at: Any, values: Any) -> Any:
    """``out`` with values at positions."""
    out[at] = values
    return out


#: What the cases call beside NumPy's functions and those of ``fxlite.nn.functional``.
FUNCTIONS = {"added": added, "written": written}


def _writes() -> None:
    add = lambda *given, **more: _add("write", *given, **{"most": 2e6, "dtypes": _FLOATS, **more})  # noqa: E731
    new, torch_new = "np.zeros_like(x)", "torch.zeros_like(x)"
    add("rows added", f"added({new}, i, y)", "x=MN i=K<M y=KN", "KN", torch=f"{torch_new}.index_add(0, i, y)")
    add(
        "rows gathered, weighted and added",
        f"added({new}, i, x[j] * y[:, None])",
        "x=MN i=K<M j=K<M y=K",
        "KN",
        torch=f"{torch_new}.index_add(0, i, x[j] * y[:, None])",
    )
    add("rows written", "written(x.copy(), i, y)", "x=MN i=K<M y=KN", "KN", torch="x.index_copy(0, i, y)")
    columns = f"added({new}, (slice(None), i), y)"
    add("columns added", columns, "x=MN i=K<N y=MK", "MK", torch=f"{torch_new}.index_add(1, i, y)")
    add("pairs added", "added(x.copy(), (i, j), y)", "x=MN i=K<M j=K<N y=K", "K", torch="x.index_put((i, j), y, True)")
    add("counted", "np.bincount(i.ravel(), minlength={M})", "i=KN<M", "KN", fixed="M")
    add("weights counted", "np.bincount(i, y, {M})", "i=K<M y=K", "K", fixed="M")


for _make in (
    _contractions,
    _convolutions,
    _attentions,
    _poolings,
    _reductions,
    _normalizations,
    _pointwise,
    _views,
    _reduced_views,
    _multiplied_views,
    _writes,
):
    _make()
