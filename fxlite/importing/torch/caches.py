"""Caches of transformers as pytrees, which torch.export can flatten.

In: the classes of caches that are loaded. Each becomes a dict of lists: keys, values, and other state of its layers,
and lists of tensors of its own, as a model with states beside its layers has. A cache for encoder and decoder becomes a
dict of two.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field
from typing import Any

import torch

#: The names of fields of a cache's layer in inputs and results, if they are not their own.
_FIELDS = {"keys": "key_cache", "values": "value_cache"}
_BOTH = ["self_attention_cache", "cross_attention_cache"]


@dataclass(frozen=True)
class _Emptied:
    """A cache without its tensors, with the fields of each layer. Two are equal if the kinds and fields of their layers
    are."""

    cache: Any = field(compare=False)
    layers: tuple[tuple[type, tuple[str, ...]], ...]

    def __deepcopy__(self, memo: Any) -> _Emptied:
        return self  # torch copies contexts, but cannot copy what a layer has computed from fake tensors


def register_caches() -> None:
    """Register the caches of transformers, and those that models derive from them."""
    library, trees = sys.modules.get("transformers.cache_utils"), torch.utils._pytree
    if library is None:
        return
    both = library.EncoderDecoderCache
    kinds = [both, library.DynamicCache, library.StaticCache]
    for kind in kinds:
        kinds += [derived for derived in kind.__subclasses__() if derived not in kinds]
    for kind in kinds:
        if kind not in trees.SUPPORTED_NODES:
            takes, makes = (_flatten_both, _unflatten_both) if issubclass(kind, both) else (_flatten, _unflatten)

            def keyed(cache: Any, takes: Any = takes) -> Any:
                values, context = takes(cache)
                return [(trees.MappingKey(name), value) for name, value in zip(context[0], values)], context

            name = f"{kind.__module__}.{kind.__name__}"
            trees.register_pytree_node(kind, takes, makes, serialized_type_name=name, flatten_with_keys_fn=keyed)


def _remembered(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else [value]
    return any(isinstance(part, torch.Tensor) for part in parts)


def _flatten(cache: Any) -> tuple[list[Any], tuple[list[str], _Emptied]]:
    by_field: dict[str, list[Any]] = {}
    emptied, had = copy.copy(cache), []
    emptied.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in emptied.layers:
        names = tuple(n for n, value in vars(layer).items() if not n.startswith("_") and _remembered(value))
        for name in names:
            by_field.setdefault(_FIELDS.get(name, name), []).append(getattr(layer, name))
            setattr(layer, name, None)
        had.append((type(layer), names))
    for name, value in vars(cache).items():
        if isinstance(value, list) and any(isinstance(part, torch.Tensor) for part in value):
            by_field[name] = value
            setattr(emptied, name, [])
    return [*by_field.values()], ([*by_field], _Emptied(emptied, tuple(had)))


def _unflatten(values: Any, context: tuple[list[str], _Emptied]) -> Any:
    by_field, emptied = {n: iter(v) for n, v in zip(context[0], values)}, context[1]
    made = copy.copy(emptied.cache)
    made.layers = [copy.copy(layer) for layer in made.layers]
    for layer, (_, names) in zip(made.layers, emptied.layers):
        for name in names:
            setattr(layer, name, next(by_field[_FIELDS.get(name, name)]))
    for name, own in by_field.items():
        if isinstance(getattr(made, name, None), list):
            setattr(made, name, [*own])
    return made


def _flatten_both(cache: Any) -> tuple[list[Any], tuple[list[str], _Emptied]]:
    emptied = copy.copy(cache)
    for name in _BOTH:
        setattr(emptied, name, None)
    return [getattr(cache, name) for name in _BOTH], (_BOTH, _Emptied(emptied, ()))


def _unflatten_both(values: Any, context: tuple[list[str], _Emptied]) -> Any:
    made = copy.copy(context[1].cache)
    for name, value in zip(context[0], values):
        setattr(made, name, value)
    return made
