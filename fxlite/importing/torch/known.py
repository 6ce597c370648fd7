"""Values that are known during an export: those of tensors that are computed only from numbers and small buffers.

torch.export runs a model with tensors that have no values. If the model needs a value (``if mask.any()``, a padding
that is computed with a buffer), the export fails, even if the value does not depend on inputs: it may be a mask of
ones that the model makes itself, or a stride. :class:`Known` computes such values during the export. It also replaces
the functions that an export cannot follow (:mod:`exportable`).

A loop over ``mask.nonzero()``, as of a mixture of experts over those that were chosen, gets a round for each place,
set or not. Whether the rounds that a run would leave out change nothing is tested, not proven: see :class:`LeftOut`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from fxlite.importing.torch.exportable import DEFINITIONS

_MOST = 1 << 16  # elements of a known tensor
_FEW = 64  # elements of a known buffer
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)
_READS = frozenset("item tolist __bool__ __int__ __index__ __float__ __format__".split())
_DRAWS = ("rand", "normal", "bernoulli", "multinomial", "dropout", "empty")
#: Functions that make a tensor with the shape of another, or only with its dtype.
_ALIKE = frozenset("ones_like zeros_like full_like new_ones new_zeros new_full new_tensor".split())
_JOINS = frozenset("cat concat concatenate stack hstack vstack".split())
#: Functions that take sizes and bounds as separate arguments.
_SIZED = frozenset("view reshape expand repeat narrow arange zeros ones full new_zeros new_ones new_full".split())


#: The most rounds of a loop over places.
_ROUNDS = 256
#: Functions of places that are columns of one number, with these numbers as the result.
_IN_A_LINE = ("flatten", "squeeze", "ravel")


class LeftOut(TorchFunctionMode):
    """A context manager: ``seen`` says whether ``nonzero`` left out places of a mask of one axis inside."""

    seen = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") == "nonzero" and isinstance(found, torch.Tensor) and args[0].ndim == 1:
            self.seen |= len(found) < len(args[0])
        return found


class Known(TorchFunctionMode):
    """A context manager: inside, a model can read the values of such tensors. ``changing``: buffers without known
    values, because the model writes into them."""

    def __init__(self, model: torch.nn.Module, changing: Collection[str] = ()) -> None:
        super().__init__()
        self.model = model
        small = ((name, value) for name, value in model.named_buffers() if value.numel() <= _FEW)
        self.buffers = {name: value for name, value in small if name not in changing}
        self.values: Any = WeakTensorKeyDictionary()
        self.places: Any = WeakTensorKeyDictionary()  # results of nonzero, and the numbers of places of their masks
        self.loops = False  #: whether there are loops over places
        self.entered = False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(function, "__name__", "")
        if name == "__get__":
            return function(*args, **kwargs)
        function = DEFINITIONS.get(function, function)
        self._enter_buffers()
        if name in _READS and (value := self._value(args[0])) is not None:
            with _disable_current_modes():
                return function(value, *args[1:], **kwargs)
        if name in ("__iter__", "unbind", "tolist") and args[0] in self.places:
            found = self._all_places(args[0], name)
            return iter(found) if name == "__iter__" else found
        if name not in _JOINS:
            args = [
                self._with_numbers(a) if i == 0 or name not in _SIZED else self._number(a) for i, a in enumerate(args)
            ]
            kwargs = self._with_numbers(kwargs)
        if name == "__setitem__" and self._sets_at_positions(*args):
            return None
        found = function(*args, **kwargs)
        self._remember(function, name, args, kwargs, found)
        self._remember_places(name, args, found)
        return found

    def _remember_places(self, name: str, args: Any, found: Any) -> None:
        """Note that a result has the places at which a mask is set."""
        if name == "nonzero" and isinstance(found, torch.Tensor) and args[0].ndim == 1:
            count = args[0].shape[0]
            if type(count) is int and count <= _ROUNDS:
                self.places[found] = count
        elif name in _IN_A_LINE and args[0] in self.places:
            self.places[found] = self.places[args[0]]

    def _all_places(self, x: torch.Tensor, name: str) -> Any:
        """The places of a mask, whether they are set or not, for a loop over those that are."""
        self.loops, count = True, self.places[x]
        numbers = [[place] if x.ndim > 1 else place for place in range(count)]
        if name == "tolist":
            return numbers
        rows = [torch.tensor(number) for number in numbers]
        with _disable_current_modes():
            self.values.update((row, torch.tensor(number)) for row, number in zip(rows, numbers))
        return tuple(rows)

    def _enter_buffers(self) -> None:
        """Register the values of the buffers that stand for the model's own during the export."""
        if self.entered or not self.buffers:
            return
        pairs = [(now, self.buffers[name]) for name, now in self.model.named_buffers() if name in self.buffers]
        self.entered = any(now is not value for now, value in pairs)
        with _disable_current_modes():
            for now, value in pairs if self.entered else ():
                self.values[now] = value.detach().clone()

    def _value(self, x: torch.Tensor) -> torch.Tensor | None:
        """The value of a tensor. A tensor that is not fake, and does not stand for a row of a fake one, has its own
        value."""
        own = type(x) is torch.Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        return x if own and x.numel() <= _FEW and not x.requires_grad else self.values.get(x)

    def _with_numbers(self, value: Any) -> Any:
        """A value with numbers in place of sizes and bounds that are known tensors."""
        if isinstance(value, slice):
            return slice(*(self._number(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self._with_numbers(part) for key, part in value.items()}
        if type(value) in (list, tuple):
            kind, parts = type(value), [self._with_numbers(part) for part in value]
            mixed = any(type(part) is int for part in parts) or kind is tuple
            return kind(self._number(part) for part in parts) if mixed else kind(parts)
        return value

    def _number(self, value: Any) -> Any:
        known = self._value(value) if isinstance(value, torch.Tensor) else None
        if isinstance(value, (list, tuple, slice)):
            return self._with_numbers(value)
        if known is None or known.ndim or known.is_floating_point() or known.dtype is torch.bool:
            return value
        with _disable_current_modes():
            return known.item()

    def _sets_at_positions(self, x: torch.Tensor, key: Any, value: Any) -> bool:
        """Whether a write at positions that are tensors (``cache[:, position] = x``) was expressed with one of
        torch's ops. Torch itself would read the positions as numbers, which an export does not have."""
        parts = list(key) if isinstance(key, tuple) else [key]
        is_place = [isinstance(p, torch.Tensor) and not p.ndim and p.dtype in _INTEGERS for p in parts]
        others = [p for p, place in zip(parts, is_place) if not place and p is not None and p is not Ellipsis]
        if not any(is_place) or not all(type(p) in (int, slice) for p in others):
            return False
        if Ellipsis in [p for p, place in zip(parts, is_place) if not place]:
            at = next(i for i, p in enumerate(parts) if p is Ellipsis)
            rest = [slice(None)] * (x.ndim - len(others) - sum(is_place))
            parts[at : at + 1], is_place[at : at + 1] = rest, [False] * len(rest)
        view = x[tuple(slice(None) if place else p for p, place in zip(parts, is_place))]
        kept = [p if place else None for p, place in zip(parts, is_place) if type(p) is not int]
        while kept and kept[-1] is None:
            kept.pop()
        value = value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=x.dtype)
        torch.ops.aten.index_put_(view, kept, value.to(x.dtype))
        return True

    def _remember(self, function: Any, name: str, args: Any, kwargs: Any, found: Any) -> None:
        """Compute the result of a function of known tensors. If one of them may be written into, forget its value and
        those of tensors that share its memory."""
        results = [leaf for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        writes = name == "__setitem__" or "out" in kwargs or (name.endswith("_") and not name.endswith("__"))
        writes = writes or (name.startswith("__i") and name not in ("__invert__", "__index__", "__int__"))
        if not writes and not results:
            return
        small = all(all(type(n) is int for n in r.shape) and r.numel() <= _MOST for r in results)
        is_alike = name in _ALIKE and small and bool(given) and self._value(given[0]) is None
        needed = given[1:] if is_alike else given
        numbers = not any(isinstance(leaf, torch.SymInt) for leaf in tree_leaves((args, kwargs)))
        draws = any(word in name for word in _DRAWS)
        known = [g for g in needed if self._value(g) is not None]
        if small and numbers and not draws and len(known) == len(needed):
            with _disable_current_modes(), contextlib.suppress(Exception):
                if is_alike:
                    args = [torch.empty(tuple(results[0].shape), dtype=results[0].dtype), *args[1:]]
                real = tree_map(lambda v: v if is_alike and v is args[0] else self._real(v), (args, kwargs))
                computed = [v for v in tree_leaves(function(*real[0], **real[1])) if isinstance(v, torch.Tensor)]
                self.values.update(zip(results, computed))
                return
        writes = writes and bool(given) and self._value(given[0]) is not None
        changing = [g for g in known if any(_shares(r, g) for r in results if r is not g)] + given[:1] * writes
        for lost in [v for v in self.values if any(_shares(v, g) for g in changing)] if changing else ():
            del self.values[lost]

    def _real(self, value: Any) -> Any:
        return self._value(value) if isinstance(value, torch.Tensor) else value


def _shares(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.untyped_storage()._cdata == other.untyped_storage()._cdata)
