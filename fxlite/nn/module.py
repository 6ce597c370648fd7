"""Module and Parameter: torch.nn's containers over NumPy arrays.

In: arrays assigned as attributes. Out: modules that run eagerly on arrays, and whose weights become
``get_attr`` nodes while a tracer is active, with torch's names in ``state_dict``.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from fxlite.base.checked import checked_methods
from fxlite.base.errors import ArgumentError, FxliteError, MemberError, expect
from fxlite.base.facade import above
from fxlite.base.outside_text import is_path_part
from fxlite.base.state import active_tracer
from fxlite.types.dtypes import NUMBERS, plain_array

_DEEPEST = 500  # levels of modules inside modules


class StateDictError(FxliteError, ValueError):
    """A state_dict does not fit a module. The message names all entries that are missing or unexpected or
    have the wrong shape."""


class Parameter(np.ndarray[Any, Any]):
    """A trainable array. If it is assigned to an attribute of a module, it belongs to the state_dict.

    Views of a parameter, and results computed from it, are plain arrays for a module."""

    is_parameter: bool = False
    is_plain_array = True  # its operations are those of an ndarray: see fxlite.types.dtypes
    requires_grad: bool = True

    def __new__(cls, data: Any, requires_grad: bool = True) -> Parameter:
        base = plain_array(data, "a parameter")
        made = base.view(cls)
        made.is_parameter = True
        made.requires_grad = requires_grad
        return made

    def __array_finalize__(self, obj: Any) -> None:
        self.is_parameter = False

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Any:
        array = np.array(self, subok=False)
        made = Parameter(array, self.requires_grad) if self.is_parameter else array
        if memo is not None:
            memo[id(self)] = made
        return made

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __reduce__(self) -> Any:
        if not self.is_parameter:
            return np.asarray(self).__reduce__()
        return (Parameter, (np.array(self, subok=False), self.requires_grad))

    @property
    def data(self) -> Any:
        """The plain array (a writable view)."""
        return self.view(np.ndarray)


def _outside_of_tracing(init: Callable[..., None]) -> Callable[..., None]:
    """Run ``init`` outside of tracing, so that a module created by a traced program fills its parameters
    with arrays, not with traced values."""

    @functools.wraps(init)
    def construct(self: Any, /, *args: Any, **kwargs: Any) -> None:
        if active_tracer.get() is None:
            return init(self, *args, **kwargs)
        token = active_tracer.set(None)
        try:
            return init(self, *args, **kwargs)
        finally:
            active_tracer.reset(token)

    return construct


@checked_methods
class Module:
    """The base class of all layers and models. It works like torch.nn.Module, but has no hooks.

    Attributes that are Parameters belong to the state_dict, and so do arrays given to
    :meth:`register_buffer`. Modules become children. Any other value is a plain attribute."""

    training: bool
    #: Attributes that ``repr`` shows.
    _shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__ = _outside_of_tracing(cls.__init__)  # type: ignore[method-assign]

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _non_persistent=set(), training=True)

    # -- attributes ---------------------------------------------------------------------------
    def __setattr__(self, name: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            if isinstance(value, (Module, Parameter)):
                raise AttributeError(
                    f"call super().__init__() in {type(self).__name__}.__init__ before assigning {name!r}"
                )
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter) and value.is_parameter:
            self._enter(self._parameters, name, value)
        elif isinstance(value, Module):
            self._enter(self._modules, name, value)
        elif name in self._parameters:
            if value is not None and not isinstance(value, np.ndarray):
                raise TypeError(f"{name!r} is a parameter; assign an nn.Parameter or None")
            self._parameters[name] = None if value is None else Parameter(value)
        elif name in self._buffers:
            tracer = active_tracer.get()
            if tracer is not None:
                tracer.assign_buffer(self, name, value)
            else:
                self._buffers[name] = None if value is None else plain_array(value, name)
        else:
            if type(value) in NUMBERS:
                tracer = active_tracer.get()
                if tracer is not None:
                    tracer.assign_number(self, name)
            self._modules.pop(name, None)
            object.__setattr__(self, name, value)

    def _enter(self, group: dict[str, Any], name: str, value: Any) -> None:
        if not is_path_part(name):
            raise ArgumentError(
                f"the name of a parameter, buffer or module may not be {name!r}; printable text without dots can be one"
            )
        for other in (self._parameters, self._buffers, self._modules):
            if other is not group:
                other.pop(name, None)
        self.__dict__.pop(name, None)
        group[name] = value

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        for group in ("_parameters", "_buffers"):
            if name in state.get(group, ()):
                value = state[group][name]
                tracer = active_tracer.get()
                if tracer is None or value is None:
                    return value
                return tracer.attribute(self, name, value)
        if name in state.get("_modules", ()):
            return state["_modules"][name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for group in (self._parameters, self._buffers, self._modules):
            if name in group:
                del group[name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        """Register a non-trainable array. It belongs to the state_dict unless ``persistent`` is False."""
        self._enter(self._buffers, name, None if value is None else plain_array(value, name))
        (self._non_persistent.discard if persistent else self._non_persistent.add)(name)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Register a parameter, which may be None."""
        self._enter(self._parameters, name, value)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a child under ``name``. Raises ArgumentError for a value that is not a module."""
        if module is not None:
            expect(module, Module, f"the child {name!r} of a {type(self).__name__}")
        self._enter(self._modules, name, module)

    register_module = add_module

    # -- calling ------------------------------------------------------------------------------
    #: Advice for a graph that calls the module as a leaf if only ops are accepted.
    leaf_advice = "trace without leaf="

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The computation of the module; subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = active_tracer.get()
        if tracer is None:
            return self.forward(*args, **kwargs)
        return tracer.call_module(self, self.forward, args, kwargs)

    # -- tree ---------------------------------------------------------------------------------
    def children(self) -> Iterator[Module]:
        """The immediate children."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        for name, module in self._modules.items():
            if module is not None:
                yield name, module

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(path, module) for this module and all modules below it. With ``remove_duplicate``, a shared
        module appears once; without it, a module that contains itself raises RecursionError."""
        seen: set[int] = set()
        work: list[tuple[str, Module, int]] = [(prefix, self, 0)]
        while work:
            path, module, depth = work.pop()
            if remove_duplicate:
                if id(module) in seen:
                    continue
                seen.add(id(module))
            elif depth > _DEEPEST:
                raise RecursionError(f"modules are nested more than {_DEEPEST} deep")
            yield path, module
            if module._modules:
                dot = f"{path}." if path else ""
                work += [
                    (dot + name, child, depth + 1)
                    for name, child in reversed(module._modules.items())
                    if child is not None
                ]

    def modules(self) -> Iterator[Module]:
        """This module and all modules below it."""
        for _, module in self.named_modules():
            yield module

    def _named(self, group: str, prefix: str, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix, remove_duplicate):
            for name, value in module.__dict__[group].items():
                if value is None or (remove_duplicate and id(value) in seen):
                    continue
                seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) for all parameters, each of them once."""
        if not recurse:
            yield from ((n, p) for n, p in self._parameters.items() if p is not None)
            return
        yield from self._named("_parameters", prefix, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "") -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """(path, buffer) for all buffers, each of them once."""
        yield from self._named("_buffers", prefix, True)

    def buffers(self) -> Iterator[np.ndarray[Any, Any]]:
        for _, buffer in self.named_buffers():
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path. Raises AttributeError, which names the step that fails."""
        return self._below(target)

    def _below(self, target: str) -> Module:
        module = self
        for position, part in enumerate(target.split(".") if target else ()):
            found = module._modules.get(part)
            if found is None:
                at = ".".join(target.split(".")[:position]) or type(self).__name__
                raise MemberError(f"{at} has no submodule {part!r} (looking for {target!r})")
            module = found
        return module

    def get_attribute(self, target: str) -> Any:
        """The parameter, buffer, child or plain attribute at a dotted path (even while tracing, the array
        and not a proxy)."""
        path, _, name = target.rpartition(".")
        module = self._below(path) if path else self
        for group in (module._parameters, module._buffers, module._modules, module.__dict__):
            if name in group:
                return group[name]
        raise MemberError(f"{path or type(self).__name__} has no attribute {name!r}")

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. Raises AttributeError if there is none, or if the attribute is
        not a parameter."""
        return self._member("_parameters", "parameter", target)  # type: ignore[no-any-return]

    def get_buffer(self, target: str) -> np.ndarray[Any, Any]:
        """The buffer at a dotted path. Raises AttributeError if there is none, or if the attribute is not
        a buffer, such as a plain array."""
        return self._member("_buffers", "buffer", target)  # type: ignore[no-any-return]

    def _member(self, group: str, kind: str, target: str) -> Any:
        found = self.get_attribute(target)
        path, _, name = target.rpartition(".")
        members = vars(self._below(path))
        if name not in members[group]:
            kinds = ("_parameters", "parameter"), ("_buffers", "buffer"), ("_modules", "module")
            other = next((k for g, k in kinds if name in members[g]), type(found).__name__)
            raise MemberError(f"{target!r} is not a {kind} but a {other}; use get_attribute")
        return found

    def apply(self, function: Callable[[Module], None]) -> Module:
        """Call ``function`` on every module, children first."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Switch to training mode, with dropout and batch statistics, or with ``mode=False`` to inference
        mode. Returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch to inference mode, without dropout and with running statistics. Returns the module."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def astype(self, dtype: Any) -> Module:
        """Cast all floating-point parameters and buffers in place. Returns the module."""
        from fxlite.types import dtypes

        target = dtypes.dtype(dtype)
        for module in self.modules():
            for group in (module._parameters, module._buffers):
                for name, value in group.items():
                    if value is not None and dtypes.dtype(value.dtype).is_float:
                        new = np.asarray(value).astype(target.numpy)
                        group[name] = Parameter(new) if group is module._parameters else new
        return self

    def float(self) -> Module:
        return self.astype("f32")

    def double(self) -> Module:
        return self.astype("f64")

    # -- weights ------------------------------------------------------------------------------
    def state_dict(self, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
        """A dict from name to array (not copied), with the keys and the order of torch.nn."""
        result: dict[str, np.ndarray[Any, Any]] = {}
        for path, module in self.named_modules(prefix, remove_duplicate=False):
            dot = f"{path}." if path else ""
            for name, value in module._parameters.items():
                if value is not None:
                    result[dot + name] = np.asarray(value)
            for name, value in module._buffers.items():
                if value is not None and name not in module._non_persistent:
                    result[dot + name] = value
        return result

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any] | str | os.PathLike[str],
        strict: bool = True,
        assign: bool = False,
        rename: Callable[[str], str | None] | Mapping[str, str] | None = None,
    ) -> tuple[list[str], list[str]]:
        """Copy arrays into the parameters and buffers, cast to their dtypes. Nothing is copied unless
        everything fits. Returns (missing keys, unexpected keys).

        ``state_dict`` is a dict of arrays, or a file that ``fx.load_weights`` reads. ``rename`` is a
        function from the name of an array there to its name in the module, or to None to leave the array
        out; or a dict of the names that differ.

        With ``assign``, arrays of the right dtype replace the module's own instead of being copied, so
        that weights that are mapped from a file stay there. As in torch, tied weights are then no longer
        tied, unless the arrays are the same object.

        Raises StateDictError, which names all missing and unexpected keys (if ``strict``), the missing key
        that is nearest to each unexpected one, and all wrong shapes."""
        given: Any = state_dict
        if rename is not None or isinstance(given, (str, os.PathLike)):
            given = above("state_of")(given, rename)
        expect(given, Mapping, "a state dict", "give arrays by name, as state_dict() does, or a file")
        own = self.state_dict()
        missing = [k for k in own if k not in given]
        unexpected = [k for k in given if k not in own]
        arrays = {k: plain_array(given[k], k) for k in own if k in given}
        problems = [
            f"{k}: expected shape {own[k].shape}, got {v.shape}" for k, v in arrays.items() if v.shape != own[k].shape
        ]
        problems += [
            f"{k}: expected {own[k].dtype}, got {v.dtype}, whose imaginary parts would be lost"
            for k, v in arrays.items()
            if v.dtype.kind == "c" != own[k].dtype.kind
        ]
        if strict:
            import difflib

            problems += _prefix_advice(missing, unexpected)
            problems += [f"missing: {k} {own[k].shape}" for k in missing]
            for number, key in enumerate(unexpected):
                # each search compares with all missing keys
                near = difflib.get_close_matches(key, missing, 1) if number < 50 else []
                problems.append(f"unexpected: {key}" + (f" (did you mean {near[0]}?)" if near else ""))
        if problems:
            listed = "\n  ".join(problems)
            raise StateDictError(f"the state_dict does not fit {type(self).__name__}, nothing was loaded:\n  {listed}")
        for key, value in arrays.items():
            if assign and value.dtype == own[key].dtype:
                self._replace(key, value)
            elif not own[key].flags.writeable:
                self._replace(key, value.astype(own[key].dtype))
            else:
                own[key][...] = value
        return missing, unexpected

    def _replace(self, key: str, value: np.ndarray[Any, Any]) -> None:
        path, _, name = key.rpartition(".")
        module = self.get_submodule(path)
        if name in module._parameters:
            module._parameters[name] = Parameter(value, module._parameters[name].requires_grad)
        else:
            module._buffers[name] = value

    # -- text ---------------------------------------------------------------------------------
    def extra_repr(self) -> str:
        """The arguments that ``repr`` shows."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)

    def __repr__(self) -> str:
        lines = [f"({n}): {m!r}".replace("\n", "\n  ") for n, m in self._modules.items()]
        extra = self.extra_repr()
        if not lines:
            return f"{type(self).__name__}({extra})"
        body = "\n  ".join(([extra] if extra else []) + lines)
        return f"{type(self).__name__}(\n  {body}\n)"


def _prefix_advice(missing: list[str], unexpected: list[str]) -> list[str]:
    """Advice (one line or none) if most unexpected names are missing names with an additional prefix, or
    without a prefix that the missing names have."""
    if not missing or not unexpected:
        return []

    def common(longer: list[str], shorter: list[str]) -> str:
        """The prefix that more than half of ``longer`` have before names of ``shorter``."""
        names, parts = {*shorter}, longer[0].split(".")
        for count in range(1, len(parts)):
            prefix = ".".join(parts[:count]) + "."
            if sum(n.startswith(prefix) and n.removeprefix(prefix) in names for n in longer) * 2 > len(longer):
                return prefix
        return ""

    if prefix := common(unexpected, missing):
        return [f"most names begin with {prefix!r}: give rename=lambda name: name.removeprefix({prefix!r})"]
    if prefix := common(missing, unexpected):
        return [f"most names lack {prefix!r}: give rename=lambda name: {prefix!r} + name"]
    return []


def made_with(module: Module) -> dict[str, Any] | None:
    """The arguments with which a layer of fxlite was made, as far as it keeps them and they are plain
    data; None for modules of other origin."""
    names = _parameters_of(type(module))  # type: ignore[arg-type]
    if names is None:
        return None
    kept = {name: vars(module)[name] for name in names if name in vars(module)}
    return {name: v for name, v in kept.items() if v is None or isinstance(v, _PLAIN)}


_PLAIN = (bool, int, float, complex, str, tuple)


@functools.cache
def _parameters_of(made_by: Any) -> tuple[str, ...] | None:
    if not made_by.__module__.startswith("fxlite.nn."):
        return None
    return tuple(inspect.signature(made_by.__init__).parameters)[1:]


class FunctionLayer(Module):
    """A layer whose forward calls ``function`` with x and the attributes that ``repr`` shows."""

    function: ClassVar[Callable[..., Any]]

    def forward(self, x: Any) -> Any:
        return type(self).function(x, *(getattr(self, name) for name in self._shown))
