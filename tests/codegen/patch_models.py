"""Small model files as people write them, each with what passes make of it as a patch.

``MODELS`` maps a name to the text of the file, the program, types of its inputs, the passes, and
lines that the diff must have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HEAD = """\
import numpy as np

import fxlite.nn.functional as F
from fxlite import nn


"""


@dataclass(frozen=True)
class Model:
    """A file: ``removed`` and ``added`` are lines of the diff, without their marks and indents;
    ``other_files`` are imported by it."""

    text: str
    program: str
    inputs: tuple[str, ...]
    passes: str
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    other_files: dict[str, str] = field(default_factory=dict)


MODELS: dict[str, Model] = {}

MODELS["comments"] = Model(
    HEAD
    + '''class Net(nn.Module):
    """A stem."""  # kept

    def __init__(self):
        super().__init__()
        # the stem
        self.conv = nn.Conv2d(3, 8, 3, bias=False)  # no bias: the norm has one
        self.bn = nn.BatchNorm2d(8)  # with running statistics

    def forward(self, x):
        # first convolve
        x = self.bn(self.conv(x))  # then normalize
        return F.relu(x)  # and cut
''',
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn",
    (
        "x = self.bn(self.conv(x))  # then normalize",
        "self.bn = nn.BatchNorm2d(8)  # with running statistics",
        "self.conv = nn.Conv2d(3, 8, 3, bias=False)  # no bias: the norm has one",
    ),
    ("x = self.conv(x)  # then normalize", "self.conv = nn.Conv2d(3, 8, 3)  # no bias: the norm has one"),
)

MODELS["statements"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.conv(x)
        y = self.bn(y)
        y = F.relu(y)
        y = self.drop(y)
        return y
""",
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn,remove_dropout",
    ("y = self.bn(y)", "self.bn = nn.BatchNorm2d(8)"),
)

MODELS["helpers"] = Model(
    HEAD
    + '''def activate(x):
    """Helper of both branches."""
    return F.relu(x) * 1


def branch(conv, x):
    return activate(conv(x) + 0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)

    def forward(self, x):
        return branch(self.left, x) + branch(self.right, x)
''',
    "Net",
    ("x=f32[B,4]",),
    "simplify",
    ("return F.relu(x) * 1",),
    ("return F.relu(x)",),
)

MODELS["inheritance"] = Model(
    HEAD
    + """class Base(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width, bias=False)
        self.norm = nn.BatchNorm1d(width)

    def body(self, x):
        return self.norm(self.fc(x))

    def forward(self, x):
        return self.head(self.body(x))

    def head(self, x):
        raise NotImplementedError


class Net(Base):
    def __init__(self):
        super().__init__(6)
        self.scale = nn.Parameter(np.full((6,), 0.5, np.float32))

    def head(self, x):
        return np.tanh(x) * (self.scale * 2.0)
""",
    "Net",
    ("x=f32[B,6]",),
    "fuse_conv_bn,const_fold",
    (
        "return self.norm(self.fc(x))",
        "self.norm = nn.BatchNorm1d(width)",
        "return np.tanh(x) * (self.scale * 2.0)",
        "self.scale = nn.Parameter(np.full((6,), 0.5, np.float32))",
    ),
    (
        "return self.fc(x)",
        "return np.tanh(x) * self.scale_scaled",
        "self.fc = nn.Linear(width, width)",
        'self.register_buffer("scale_scaled", np.zeros((6,), np.float32))',
    ),
)

MODELS["loops"] = Model(
    HEAD
    + """class Block(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, kernel_size=3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outside)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 4, 6, 8]
        self.blocks = nn.ModuleList()
        for inside, outside in zip(widths, widths[1:]):
            self.blocks.append(Block(inside, outside))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
""",
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn",
    ("return F.relu(self.norm(self.conv(x)))", "self.norm = nn.BatchNorm2d(outside)"),
    ("return F.relu(self.conv(x))", "self.conv = nn.Conv2d(inside, outside, kernel_size=3, padding=1)"),
)

MODELS["type_hints"] = Model(
    """from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fxlite import nn

Array = npt.NDArray[np.float32]


class Net(nn.Module):
    fc: nn.Linear

    def __init__(self, width: int = 4, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.drop: Any = nn.Dropout(dropout)

    def forward(self, x: Array) -> Array:
        hidden: Array = self.drop(self.fc(x))
        again: Array = hidden * 1.0
        return np.maximum(again, 0)
""",
    "Net",
    ("x=f32[B,4]",),
    "simplify,remove_dropout",
    ("again: Array = hidden * 1.0",),
    ("again: Array = hidden",),
)

MODELS["f_strings"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.name = f"net of {size}"
        for number in range(3):
            setattr(self, f"fc{number}", nn.Linear(size, size))

    def forward(self, x):
        assert x.ndim == 2, f"{self.name} takes matrices, not {x.shape}"
        for number in range(3):
            x = getattr(self, f"fc{number}")(x) * 1
        return x / 1
""",
    "Net",
    ("x=f32[B,4]",),
    "simplify",
    ('x = getattr(self, f"fc{number}")(x) * 1', "return x / 1"),
    ('x = getattr(self, f"fc{number}")(x)', "return x"),
)

MODELS["multi_line"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(
            3,  # colours
            8,
            kernel_size=3,
            bias=False,
        )
        self.bn = nn.BatchNorm2d(
            8,
            eps=1e-3,
        )

    def forward(self, x):
        y = self.bn(
            self.conv(
                x,  # the image
            ),
        )
        return (
            y
            .mean(axis=(2, 3))
            .reshape(x.shape[0], -1)
        ) * 1
""",
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn,simplify",
    ("self.bn = nn.BatchNorm2d(", "bias=False,"),
    (),
)

MODELS["tabs"] = Model(
    HEAD
    + """class Net(nn.Module):
\tdef __init__(self):
\t\tsuper().__init__()
\t\tself.weight = nn.Parameter(np.ones((4, 3), np.float32))

\tdef forward(self, x):
\t\tif x.ndim > 1:
\t\t\tx = x @ self.weight.T.reshape(3, 4).T
\t\treturn x
""",
    "Net",
    ("x=f32[B,4]",),
    "const_fold",
    ("x = x @ self.weight.T.reshape(3, 4).T",),
    (),
)

MODELS["two_spaces"] = Model(
    HEAD
    + """class Attention(nn.Module):
  def __init__(self, width):
    super().__init__()
    self.q = nn.Linear(width, width)
    self.k = nn.Linear(width, width)
    self.v = nn.Linear(width, width)

  def forward(self, x):
    q = self.q(x)
    k = self.k(x)
    v = self.v(x)
    scores = q @ k.transpose(0, 2, 1)
    return F.softmax(scores, dim=-1) @ v


class Net(nn.Module):
  def __init__(self):
    super().__init__()
    self.layers = nn.ModuleList([Attention(8) for _ in range(2)])

  def forward(self, x):
    for layer in self.layers:
      x = x + layer(x)
    return x
""",
    "Net",
    ("x=f32[B,T,8]",),
    "merge_linears",
    ("q = self.q(x)", "self.q = nn.Linear(width, width)"),
    (),
)

MODELS["windows"] = Model(
    MODELS["comments"].text.replace("\n", "\r\n"),
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn",
    ("x = self.bn(self.conv(x))  # then normalize\r",),
    ("x = self.conv(x)  # then normalize\r",),
)

MODELS["sequential"] = Model(
    HEAD
    + """def conv_bn(inside, outside):
    conv = nn.Conv2d(inside, outside, 3, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), nn.ReLU())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_bn(3, 4), conv_bn(4, 6))
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.features(x).mean(axis=(2, 3)))
""",
    "Net",
    ("x=f32[B,3,8,8]",),
    "fuse_conv_bn",
    (),
    ("conv = nn.Conv2d(inside, outside, 3)", "return nn.Sequential(conv, nn.Identity(), nn.ReLU())"),
)

MODELS["layers_in_a_list"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
""",
    "Net",
    ("x=f32[B,4]",),
    "fuse_conv_bn",
    (),
    ("self.layers = nn.ModuleList([nn.Linear(4, 5), nn.Identity(), nn.ReLU()])",),
)

MODELS["shared_module"] = Model(
    HEAD
    + """class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return np.tanh(self.fc(x) / 1) * 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        cell = Cell()
        self.first = cell
        self.second = cell

    def forward(self, x):
        return self.second(self.first(x))
""",
    "Net",
    ("x=f32[B,4]",),
    "simplify",
    ("return np.tanh(self.fc(x) / 1) * 1",),
    ("return np.tanh(self.fc(x))",),
)

MODELS["function"] = Model(
    '''import numpy as np


def f(x, y):
    """A program without weights."""
    a = np.exp(x) + y * 1
    b = np.exp(x) - y  # again
    return a * b
''',
    "f",
    ("x=f32[B,4]", "y=f32[B,4]"),
    "simplify,cse",
    ("a = np.exp(x) + y * 1", "b = np.exp(x) - y  # again"),
    ("exp = np.exp(x)", "a = exp + y", "b = exp - y  # again"),
)

MODELS["nested_functions"] = Model(
    """import numpy as np

WIDTH = 4


def normalized(v, eps=1e-6):
    if v.shape[-1] != WIDTH:
        raise ValueError(f"{WIDTH} columns, not {v.shape[-1]}")
    centred = v - v.mean(axis=-1, keepdims=True) * 1
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)


def f(x, y):
    both = [normalized(v.T.T) for v in (x, y)]
    total = both[0] + both[1]
    return total.reshape(-1, WIDTH)
""",
    "f",
    ("x=f32[B,4]", "y=f32[B,4]"),
    "simplify,cse",
    ("centred = v - v.mean(axis=-1, keepdims=True) * 1", "both = [normalized(v.T.T) for v in (x, y)]"),
    ("centred = v - v.mean(axis=-1, keepdims=True)", "both = [normalized(v) for v in (x, y)]"),
)

MODELS["dead_code"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 2)

    def forward(self, x):
        y = self.fc(x)
        logits = self.unused(x)  # nobody reads this
        size = np.abs(y)
        np.exp(size)
        return y
""",
    "Net",
    ("x=f32[B,4]",),
    "dce",
    (
        "logits = self.unused(x)  # nobody reads this",
        "size = np.abs(y)",
        "np.exp(size)",
        "self.unused = nn.Linear(4, 2)",
    ),
)

MODELS["branches"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self, pre_norm=True):
        super().__init__()
        self.pre_norm = pre_norm
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        if self.pre_norm:
            h = self.norm(x)
            h = self.fc1(h) if h.ndim == 2 else h
        else:
            h = self.fc1(x)
        with np.errstate(all="ignore"):
            h = self.drop(self.fc2(F.gelu(h * 1)))
        return x + h * 1
""",
    "Net",
    ("x=f32[B,4]",),
    "simplify",
    ("h = self.drop(self.fc2(F.gelu(h * 1)))", "return x + h * 1"),
    ("return x + h",),
)

MODELS["attention"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 8 ** -0.5
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = np.split(self.qkv(x), 3, axis=-1)
        scores = (q @ k.swapaxes(-1, -2)) * self.scale
        weights = F.softmax(scores, dim=-1)
        return weights @ v
""",
    "Net",
    ("x=f32[B,T,8]",),
    "fuse_attention",
    ("return weights @ v",),
    ("return F.scaled_dot_product_attention(q, k, v, scale=self.scale)",),
)

MODELS["other_file"] = Model(
    """from blocks import Block
from fxlite import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block(3, 5)

    def forward(self, x):
        return self.block(x) * 1
""",
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn,simplify",
    ("return self.bn(self.conv(x))", "return self.block(x) * 1"),
    ("return self.conv(x)", "return self.block(x)"),
    {
        "blocks": """from fxlite.nn import BatchNorm2d, Conv2d, Module


class Block(Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = Conv2d(inside, outside, 3)
        self.bn = BatchNorm2d(outside)

    def forward(self, x):
        return self.bn(self.conv(x))
"""
    },
)

MODELS["norm_outside"] = Model(
    HEAD
    + """class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Stem()
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.bn(self.stem(x)))
""",
    "Net",
    ("x=f32[B,3,6,6]",),
    "fuse_conv_bn",
    ("return self.act(self.bn(self.stem(x)))",),
    ("return self.act(self.stem(x))",),
)

MODELS["no_constructor"] = Model(
    HEAD
    + '''class Scaled(nn.Linear):
    """A layer of the user's on top of one of fxlite's."""

    def forward(self, x):
        return x @ (self.weight.T * 0.5)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = Scaled(4, 6, bias=False)

    def forward(self, x):
        return self.fc(x)
''',
    "Net",
    ("x=f32[B,4]",),
    "const_fold",
    ("return x @ (self.weight.T * 0.5)",),
    (),
)

MODELS["integers"] = Model(
    HEAD
    + """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)
        for weight in self.parameters():
            weight[...] = np.cos(np.arange(weight.size)).reshape(weight.shape)

    def forward(self, x):
        return x + self.down(F.relu(self.up(x)))
""",
    "Net",
    ("x=f32[B,16]",),
    "quantize_weights",
    ("return x + self.down(F.relu(self.up(x)))",),
    ("from fxlite import ops", 'self.register_buffer("up_weight_i8", np.zeros((32, 16), np.int8))'),
)
