"""The counterparts of torch's names in fxlite, and the imports that ported files need for them.

In: the full name of something in torch, ``torch.fx.passes.split_module.split_module`` or
``torch.relu``. Out: what to write instead, or why there is nothing like it. torch.fx's own names are in
``torch_fx_api.txt``, which has a line for each pattern of names and its verdict:

``yes``               the same name exists, and every call that fits torch's signature fits ours
``alias NAME``        NAME does the same
``different ROW``     it differs on purpose: docs/from_torch_fx.md has a row that begins with ROW
``not REASON``        there is nothing like it

The longest pattern that matches a name gives its verdict.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fxlite as fx
from fxlite import nn, passes
from fxlite.nn import functional
from fxlite.ops.op import ALIASES, REGISTRY
from fxlite.types import dtypes

#: Modules of torch.fx whose names are those of torch.fx itself.
_FLAT = ("graph", "node", "graph_module", "interpreter", "proxy", "_symbolic_trace")


def _pairs(text: str) -> dict[str, str]:
    """Words with ``=`` between them."""
    return dict(word.split("=") for word in text.split())


#: torch's names of dtypes that are spelled otherwise here.
_DTYPES = _pairs("float=float32 double=float64 half=float16 long=int64 int=int32 short=int16 bool=bool_")
#: Python's operators that are ops under other names.
_OPERATORS = _pairs(
    """truediv=div floordiv=floor_divide mod=remainder and_=bitwise_and or_=bitwise_or xor=bitwise_xor
    inv=bitwise_not invert=bitwise_not lshift=left_shift rshift=right_shift"""
)
_SAME_OPERATORS = "abs add eq ge getitem gt le lt matmul mul ne neg pow sub".split()
#: aten's names of ops that are spelled otherwise here.
_ATEN = _pairs(
    """view=reshape view_copy=reshape _unsafe_view=reshape cat=concat permute_copy=permute transpose_copy=permute
    convolution=conv2d _softmax=softmax _log_softmax=log_softmax native_layer_norm=layer_norm _to_copy=cast
    unsqueeze_copy=unsqueeze squeeze_copy=squeeze expand_copy=expand slice_copy=slice select_copy=select"""
)
#: Ops that are called as torch's functions of these names, arguments included.
_CALLED_ALIKE = frozenset(
    """abs acos asin atan atan2 ceil cos cosh erf exp expm1 floor hypot isfinite isinf isnan log
    log1p log2 logaddexp matmul maximum minimum neg pow reciprocal relu round rsqrt sigmoid sign sin
    sinh sqrt square tan tanh trunc where softmax log_softmax cat concat stack add sub mul
    div""".split()
)
#: The same, where they are called with one argument.
_CALLED_WITH_ONE = frozenset("max min sum mean prod any all".split())
_LIKE = ("zeros_like", "ones_like", "empty_like", "full_like")
#: Other names, and what is written for them.
_OTHERS = {
    "torch.Tensor": "np.ndarray",
    "torch.no_grad": "contextlib.nullcontext",
    "torch.inference_mode": "contextlib.nullcontext",
    "torch.fx.node.Argument": "fx.Argument",
    "torch.fx.node.Target": "fx.Target",
    "torch.fx.node.base_types": "",
    "torch.pi": "np.pi",
    "torch.inf": "np.inf",
    "torch.nan": "np.nan",
    "torch.nn.utils.fusion.fuse_conv_bn_eval": "passes.fuse_conv_bn_eval",
    "torch.nn.utils.fusion.fuse_linear_bn_eval": "passes.fuse_linear_bn_eval",
    "torch.testing.assert_close": "np.testing.assert_allclose",
}
_REASONS = {
    "torch.tensor": "np.asarray(value, dtype): NumPy's default is float64",
    "torch.from_numpy": "an array is one already",
    "torch.device": "arrays have no device",
    "torch.jit": "there is no TorchScript: fx.compile makes C",
    "torch.cuda": "arrays have no device; fx.compile(..., backend='cuda')",
    "torch.ao": "passes.quantize is another quantization",
    "torch.export": "fx.symbolic_trace is what makes graphs",
    "torch._dynamo": "fx.symbolic_trace is what makes graphs",
    "torch.nn.utils.parametrize": "layers have no parametrizations",
    "torch.profiler": "passes.profile measures nodes",
    "torch.autograd": "there are no gradients; passes.profile measures nodes",
    "torch.utils._pytree": "dataclasses and named tuples are inputs and results as they are",
}


@dataclass(frozen=True)
class Port:
    """What to write for a name: ``text`` (an expression of the roots ``fx``, ``nn``, ``F``, ``passes``,
    ``np``, ``contextlib``) or, if that is empty, the reason ``why`` a person must decide. ``kind`` is
    "name", or "target" for ops."""

    text: str
    why: str = ""
    kind: str = "name"


@cache
def verdicts() -> tuple[tuple[str, str, str], ...]:
    """(pattern of names, verdict, text after it) for the lines of ``torch_fx_api.txt``."""
    lines = (Path(__file__).parent / "torch_fx_api.txt").read_text(encoding="utf-8").splitlines()
    split = (line.split(None, 2) for line in lines if line and not line.startswith("#"))
    return tuple((parts[0], parts[1], "".join(parts[2:])) for parts in split)


def verdict_of(name: str) -> tuple[str, str]:
    """The verdict and the text after it for a name without ``torch.fx.``; ("", "") if there is none."""
    fitting = [v for v in verdicts() if fnmatch.fnmatchcase(name, v[0])]
    return max(fitting, key=lambda v: len(v[0]))[1:] if fitting else ("", "")


def is_package(name: str) -> bool:
    """Whether a full name is that of a package or module of torch.fx."""
    title = name.removeprefix("torch.fx.")
    inner = any(v[0].startswith(f"{title}.") for v in verdicts())
    return name.startswith("torch.fx.") and title.islower() and (inner or title in _FLAT)


def port(name: str, is_called: bool, arguments: int = 0) -> Port | None:
    """What to write for a full name, where it is called (with so many arguments) or used otherwise; None for
    a package itself. Where it is not called, a function means the op, as in ``node.target == torch.relu``."""
    if name in _OTHERS:
        return Port(_OTHERS[name])
    for start, why in _REASONS.items():
        if name == start or name.startswith(f"{start}."):
            return Port("", why)
    package, _, last = name.rpartition(".")
    if name.startswith("torch.fx."):
        return _port_of_fx(name.removeprefix("torch.fx."))
    if name.startswith("torch.ops."):
        return _port_of_aten(name)
    if package == "operator":
        op = _OPERATORS.get(last, last if last in _SAME_OPERATORS else "")
        if is_called or not op:
            return None
        return Port(f"fx.ops.{op}", kind="target")
    if package == "torch.nn.functional":
        if is_called and hasattr(functional, last):
            return Port(f"F.{last}")
        return _op(last, name)
    if package in ("torch.nn", "torch.nn.parameter", "torch.nn.modules"):
        known = last in nn.__all__
        return Port(f"nn.{last}") if known else Port("", f"fxlite.nn has no {last}")
    if package == "torch":
        dtype = _DTYPES.get(last, last)
        if dtype in dtypes.__all__:
            return Port(f"fx.{dtype}")
        if is_called and last in _LIKE:
            return Port(f"np.{last}")
        is_alike = last in _CALLED_ALIKE or (last in _CALLED_WITH_ONE and arguments == 1)
        if is_called and not is_alike:
            return Port("", f"torch.{last}(...) computes with tensors: call NumPy or fx.ops")
        return _op(last, name)
    return Port("", f"fxlite has no counterpart of {name}")


def _op(last: str, name: str) -> Port:
    known = REGISTRY.get(last) or ALIASES.get(last)
    if known is None:
        return Port("", f"there is no op {last}; query graph.find, or list fx.ops, for what it is")
    return Port(f"fx.ops.{known.name}", kind="target")


def _port_of_aten(name: str) -> Port:
    parts = name.split(".")
    if parts[2:3] != ["aten"] or len(parts) < 4:
        return Port("", f"fxlite has no ops of {'.'.join(parts[:3])}")
    found = _op(_ATEN.get(parts[3], parts[3]), name)
    return found if found.text else Port("", f"there is no op like {'.'.join(parts[2:4])}")


def _port_of_fx(name: str) -> Port | None:
    """The port of a name without ``torch.fx.``."""
    parts = name.split(".")
    title = ".".join(parts[1:]) if parts[0] in _FLAT and len(parts) > 1 else name
    last = title.rpartition(".")[2]
    verdict, rest = verdict_of(title)
    if verdict in ("yes", "alias"):
        wanted = rest.split()[0] if verdict == "alias" else last
        own = wanted.removeprefix("passes.")
        if hasattr(passes, own) and not hasattr(fx, own):
            found = f"passes.{own}"
        elif hasattr(fx, wanted) or wanted.startswith("errors."):
            found = f"fx.{wanted}"
        else:
            found = f"passes.{own}" if hasattr(passes, own) else ""
        if verdict == "yes" and found:
            return Port(found)
        return Port("", f"{wanted} does the same, with arguments of its own")
    if verdict == "different":
        public = last in fx.__all__ or last in passes.__all__
        if public:
            return Port(f"{'fx' if last in fx.__all__ else 'passes'}.{last}")
        return Port("", f"it is otherwise here: see the row {rest} of docs/from_torch_fx.md")
    if verdict == "not":
        return Port("", rest)
    if parts[0] in ("passes", "experimental", "subgraph_rewriter", "operator_schemas", *_FLAT):
        return None if last == last.lower() and title == name else Port("", f"there is no {last}")
    return Port("", f"fxlite has no {last}")


# -- findings, and what ported files import --------------------------------------------------------
#: What the texts of :class:`Port` begin with, and the package that is imported for it.
ROOTS = {
    "fx": "fxlite",
    "nn": "fxlite.nn",
    "passes": "fxlite.passes",
    "F": "fxlite.nn.functional",
    "np": "numpy",
    "contextlib": "contextlib",
}
#: Which of them a package of torch is.
_PACKAGES = {"torch.fx": "fx", "torch.nn": "nn", "torch.nn.functional": "F"}


@dataclass(frozen=True)
class Finding:
    """A line of the given file. ``kind``: "import", "name", "target" or "leaf" were replaced by ``new``;
    "hand" needs a person, "check" may need one, and ``why`` gives the reason."""

    line: int
    kind: str
    old: str
    new: str = ""
    why: str = ""

    def __str__(self) -> str:
        what = f"{self.old} → {self.new}" if self.new else f"{self.old}: {self.why}"
        return f"{self.line:5}  {self.kind:7}{what}"


def import_lines(roots: Sequence[str], names: dict[str, str]) -> list[str]:
    """Import lines for roots, under the names that they have in a file."""
    made = []
    for root in roots:
        package, name = ROOTS[root], names[root]
        is_inside = package == f"fxlite.{root}"
        line = f"from fxlite import {root}" if is_inside else f"import {package}"
        made.append(line if name == (root if is_inside else package) else f"{line} as {name}")
    return made


def from_import(text: str, bound: str) -> str:
    """``from fxlite import Node as N`` for ``fx.Node`` and N."""
    package, _, name = text.rpartition(".")
    root, dot, rest = package.partition(".")
    full = f"{ROOTS.get(root, root)}{dot}{rest}"
    return f"from {full} import {name}" + (f" as {bound}" if bound != name else "")


def package_root(package: str) -> str:
    """The root that a package of torch is, "" for another."""
    return _PACKAGES.get(package, "")
