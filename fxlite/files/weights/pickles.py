"""Reads pickled containers without executing anything.

In: the bytes of a pickle, and the meaning of each global name that is allowed in it. Out: numbers, texts, tuples,
lists, sets, dicts, and the caller's values for these globals. A pickle is a program for a stack machine
(https://docs.python.org/3/library/pickletools.html lists its opcodes). Here, instructions that import and call only
use the caller's table, and there is none that sets attributes of an object. So no name in a file leads to a function
of this process.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from fxlite.base.errors import FileFormatError
from fxlite.files.weights.entry import shown

#: Global name in a pickle -> a function that is called with the arguments given in the pickle, or any
#: other value, which replaces the name.
Globals = Mapping[str, Any]

_MARK = object()


class _Stop(Exception):
    """Raised at the end of the pickle."""


def read_pickle(data: Any, start: int, known: Globals, persistent: Callable[[Any], Any], name: str) -> tuple[Any, int]:
    """The value of the pickle in ``data`` from byte ``start`` on, and the position of its end.

    ``persistent`` converts the pickle's reference to an external object to a value. ``name`` is that of the file.
    Raises FileFormatError for a pickle that is damaged, or contains a global that is not in ``known``."""
    machine = _Machine(data, start, known, persistent, name)
    try:
        while True:
            machine.step()
    except _Stop:
        pass
    except (
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        struct.error,
        OverflowError,
        MemoryError,
        RecursionError,
    ) as error:
        if isinstance(error, FileFormatError):
            raise
        what = shown(f"{type(error).__name__}: {error}")
        raise FileFormatError(f"{name} is damaged: its pickle at byte {machine.place:,}: {what}") from None
    return machine.stack[0], machine.place


def checked_key(key: Any) -> Any:
    """A key of a dict, or an element of a set. Raises TypeError for one that would take long to hash, such as deeply
    nested tuples each of which contains the previous one twice."""
    if not isinstance(key, (str, bytes, int, float, type(None))):
        raise TypeError(f"a {type(key).__name__} is a key")
    return key


class _Machine:
    def __init__(self, data: Any, start: int, known: Globals, persistent: Callable[[Any], Any], name: str) -> None:
        self.data, self.place, self.known, self.persistent, self.name = data, start, known, persistent, name
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.functions = {id(value) for value in known.values() if callable(value)}

    # -- reading ---------------------------------------------------------------------------------
    def take(self, count: int) -> bytes:
        """The next bytes. Raises ValueError if there are not enough."""
        if not 0 <= count <= len(self.data) - self.place:
            raise ValueError(f"{count:,} bytes are to follow, and the file ends before")
        self.place += count
        return bytes(self.data[self.place - count : self.place])

    def number(self, form: str) -> Any:
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))[0]

    def text(self, form: str) -> str:
        return self.take(self.number(form)).decode("utf-8", "surrogatepass")

    def line(self) -> str:
        end = self.data.find(b"\n", self.place)
        if not 0 <= end <= self.place + 10_000:
            raise ValueError("a line does not end")
        found = self.take(end - self.place)
        self.place += 1
        return found.decode("ascii")

    # -- the stack -------------------------------------------------------------------------------
    def marked(self) -> list[Any]:
        """The values above the last mark, which are removed together with the mark."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise ValueError("there is no mark")

    def top(self, kind: type) -> Any:
        """The value on top of the stack, which must be an instance of ``kind``."""
        if not isinstance(self.stack[-1], kind):
            raise TypeError(f"a {type(self.stack[-1]).__name__} is found where a {kind.__name__} is expected")
        return self.stack[-1]

    def find(self, module: str, name: str) -> None:
        full = f"{module}.{name}"
        if full not in self.known:
            raise FileFormatError(
                f"{self.name} is refused: its pickle holds the global {shown(full)}, and only tensors and containers "
                f"are read, so that no code of a file runs; where it was made, save "
                f"torch.save(model.state_dict(), path), or safetensors.torch.save_model(model, path)"
            )
        self.stack.append(self.known[full])

    def call(self, function: Any, arguments: Any) -> None:
        if not isinstance(arguments, tuple) or id(function) not in self.functions:
            raise TypeError("the value that is called is not a function")
        self.stack.append(function(*arguments))

    # -- instructions ----------------------------------------------------------------------------
    def step(self) -> None:
        code = self.take(1)
        if code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code]())
        elif code in _NUMBERS:
            self.stack.append(self.number(_NUMBERS[code]))
        elif code in _TEXTS:
            self.stack.append(self.text(_TEXTS[code]))
        elif code in _BYTES:
            self.stack.append(self.take(self.number(_BYTES[code])))
        elif code in _MEMO_WRITES:
            self.memo[self.number(_MEMO_WRITES[code])] = self.stack[-1]
        elif code in _MEMO_READS:
            self.stack.append(self.memo[self.number(_MEMO_READS[code])])
        elif code in _TUPLES:
            count = _TUPLES[code]
            if len(self.stack) < count:
                raise IndexError("the stack has too few values")
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif code in _INSTRUCTIONS:
            _INSTRUCTIONS[code](self)
        else:
            raise ValueError(f"the instruction {code!r} is not one of those that build tensors and containers")

    def protocol(self) -> None:
        if self.number("B") > 5:
            raise ValueError("a newer protocol")

    def frame(self) -> None:
        """Skip the length of a frame, which only readers of streams need."""
        self.take(8)

    def pop(self) -> None:
        self.stack.pop()

    def stop(self) -> None:
        if len(self.stack) != 1:
            raise ValueError(f"{len(self.stack)} values are left")
        raise _Stop

    def long(self, form: str) -> None:
        length = self.number(form)
        if length > 64:  # sizes and counts have at most 8 bytes
            raise ValueError(f"an integer of {length:,} bytes")
        self.stack.append(int.from_bytes(self.take(length), "little", signed=True))

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def make_tuple(self) -> None:
        self.stack.append(tuple(self.marked()))

    def append(self) -> None:
        value = self.stack.pop()
        self.top(list).append(value)

    def appends(self) -> None:
        values = self.marked()
        self.top(list).extend(values)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.top(dict)[checked_key(key)] = value

    def set_items(self) -> None:
        values = self.marked()
        if len(values) % 2:
            raise ValueError("a key without a value")
        self.top(dict).update(zip(map(checked_key, values[::2]), values[1::2]))

    def add_items(self) -> None:
        values = self.marked()
        self.top(set).update(map(checked_key, values))

    def global_(self) -> None:
        module = self.line()
        self.find(module, self.line())

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError("the name of a global is not text")
        self.find(module, name)

    def reduce(self) -> None:
        arguments = self.stack.pop()
        self.call(self.stack.pop(), arguments)

    def build(self) -> None:
        """Skip the state of an object, which only an OrderedDict may have: its attributes (``_metadata`` of a state
        dict) do not affect its tensors."""
        state = self.stack.pop()
        if not isinstance(state, dict) or type(self.stack[-1]) is not OrderedDict:
            raise TypeError(f"attributes are set on a {type(self.stack[-1]).__name__}")

    def persistent_id(self) -> None:
        self.stack.append(self.persistent(self.stack.pop()))


_CONSTANTS: dict[bytes, Callable[[], Any]] = {
    b"N": lambda: None,
    b"\x88": lambda: True,
    b"\x89": lambda: False,
    b")": tuple,
    b"]": list,
    b"}": dict,
    b"\x8f": set,
    b"(": lambda: _MARK,
}
_NUMBERS = {b"J": "i", b"K": "B", b"M": "H", b"G": "d"}
_TEXTS = {b"X": "I", b"\x8c": "B", b"\x8d": "Q"}
_BYTES = {b"B": "I", b"C": "B", b"\x8e": "Q", b"T": "i", b"U": "B"}
_MEMO_WRITES = {b"q": "B", b"r": "I"}
_MEMO_READS = {b"h": "B", b"j": "I"}
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}

_INSTRUCTIONS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"\x95": _Machine.frame,
    b".": _Machine.stop,
    b"\x8a": lambda machine: machine.long("B"),
    b"\x8b": lambda machine: machine.long("I"),
    b"\x94": _Machine.memoize,
    b"t": _Machine.make_tuple,
    b"l": lambda machine: machine.stack.append(machine.marked()),
    b"a": _Machine.append,
    b"e": _Machine.appends,
    b"s": _Machine.set_item,
    b"u": _Machine.set_items,
    b"\x90": _Machine.add_items,
    b"0": _Machine.pop,
    b"2": lambda machine: machine.stack.append(machine.stack[-1]),
    b"c": _Machine.global_,
    b"\x93": _Machine.stack_global,
    b"R": _Machine.reduce,
    b"b": _Machine.build,
    b"Q": _Machine.persistent_id,
}
