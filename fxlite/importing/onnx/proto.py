"""ONNX files as Python values: models, tensors, attributes, types.

In: protobuf messages, and the folder for external data. Out: NumPy arrays, which are mapped if they are in a
separate file; numbers, texts and lists; dtypes. Nothing in a file is executed, and no file outside of the model's
folder is read.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from fxlite.base.errors import ModelImportError, number_of


def onnx_library() -> Any:
    """The package ``onnx``, of which only the messages and schemas are used. Raises ModelImportError if it is not
    installed."""
    try:
        import onnx
    except ImportError as error:
        raise ModelImportError('reading ONNX needs the package onnx: pip install "fxlite[onnx]"') from error
    return onnx


#: The names of NumPy's and ml_dtypes' dtypes for ONNX's element types, numbered from 1; 8 are texts.
_ELEMENTS = (
    "float32 uint8 int8 uint16 int16 int32 int64 text bool float16 float64 uint32 uint64 complex64 complex128 bfloat16 "
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu uint2 int2"
).split()
TEXT = _ELEMENTS.index("text") + 1
#: The dtypes by those numbers; None for one that the installed ml_dtypes lacks.
ELEMENTS: dict[int, np.dtype[Any] | None] = {
    number: np.dtype(getattr(ml_dtypes, name, name)) if number < 16 or hasattr(ml_dtypes, name) else None
    for number, name in enumerate(_ELEMENTS, 1)
    if name != "text"
}
NUMBER_OF = {dtype: number for number, dtype in ELEMENTS.items() if dtype is not None}
#: The bits of elements of which several are packed into a byte.
_PACKED = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}


def element(number: int, what: str) -> np.dtype[Any]:
    """The dtype of an element type. Raises ModelImportError for texts and unknown ones."""
    found = ELEMENTS.get(number)
    if found is None:
        name = "text (string)" if number == TEXT else f"the element type {number}"
        raise ModelImportError(f"ONNX: {what} holds {name}, for which fxlite has no dtype")
    return found


# -- the file --------------------------------------------------------------------------------------
def load(source: Any) -> tuple[Any, Path | None, str]:
    """A model (ModelProto), its folder, and its name in messages. ``source`` is a path, the bytes of a file, or a
    ModelProto. Raises ModelImportError for anything else."""
    onnx = onnx_library()
    if isinstance(source, onnx.ModelProto):
        return source, None, source.graph.name or "model.onnx"
    folder, name = None, "model.onnx"
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelImportError(f"ONNX: {path} cannot be read: {error.strerror or error}") from error
        except MemoryError as error:
            raise ModelImportError(
                f"ONNX: {path} has {path.stat().st_size} bytes, more than there is memory for; "
                "save it with its weights as external data, which is mapped"
            ) from error
        folder, name = path.resolve().parent, str(path)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
    else:
        kind = type(source).__name__
        raise ModelImportError(f"ONNX: a model is a path, bytes or an onnx.ModelProto, not a {kind}")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, or the errors of its parser for bad text
        raise ModelImportError(f"ONNX: {name} is damaged, or not an ONNX file: {error}") from error
    wrong = _text_that_is_none(model)
    if wrong is not None:
        raise ModelImportError(f"ONNX: {name} is damaged: the {wrong} of a part of it is not text (UTF-8)")
    if not model.HasField("graph") or not model.opset_import:
        raise ModelImportError(f"ONNX: {name} has no graph and opset; it is damaged, or not an ONNX file")
    return model, folder, name


def domain_of(holder: Any) -> str:
    """The domain of a node, function or opset; ONNX's own has two names."""
    return "" if holder.domain == "ai.onnx" else str(holder.domain)


def opsets_of(holder: Any) -> dict[str, int]:
    """The versions of the opsets that a model or a function imports, by domain."""
    return {domain_of(o): o.version for o in holder.opset_import}


def _text_that_is_none(model: Any) -> str | None:
    """The text field of a message whose bytes are not text; None if there is none."""
    work = [model]
    while work:
        for field, value in work.pop().ListFields():
            if field.type == field.TYPE_MESSAGE:
                work += value if hasattr(value, "add") else [value]
            elif field.type == field.TYPE_STRING:
                texts = [value] if isinstance(value, (str, bytes)) else value
                if any(isinstance(text, bytes) for text in texts):
                    return str(field.name)
    return None


# -- tensors ---------------------------------------------------------------------------------------
class Tensors:
    """Reads tensors; large ones may be in files next to the model, which are mapped."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._maps: dict[str, Any] = {}

    def read(self, tensor: Any) -> np.ndarray[Any, Any]:
        """The array of a TensorProto. Raises ModelImportError for damaged ones."""
        what = f"the tensor {tensor.name!r}" if tensor.name else "a tensor"
        shape = tuple(tensor.dims)
        if any(size < 0 for size in shape):
            raise ModelImportError(f"ONNX: {what} has a negative size: {list(shape)}")
        if tensor.data_type == TEXT:
            if len(tensor.string_data) != math.prod(shape):
                raise ModelImportError(f"ONNX: {what} has {len(tensor.string_data)} texts for a shape {list(shape)}")
            texts = np.empty(shape, dtype="O")
            texts.reshape(-1)[:] = [t.decode(errors="replace") for t in tensor.string_data]
            return texts.astype("U") if texts.size else np.empty(shape, "U1")
        dtype = element(tensor.data_type, what)
        bits = _PACKED.get(tensor.data_type)
        count = math.prod(shape)
        size = count * dtype.itemsize if bits is None else -(-count * bits // 8)
        if tensor.data_location == 1:
            raw = self._external(tensor, what, size)
        elif tensor.HasField("raw_data"):
            raw = np.frombuffer(tensor.raw_data, np.uint8)
        else:
            return self._typed(tensor, what, dtype, shape)
        if raw.size != size:
            raise ModelImportError(f"ONNX: {what} has {raw.size} bytes; {dtype}{list(shape)} takes {size}")
        if bits is not None:
            return _unpacked(raw, dtype, bits, count).reshape(shape)
        found = raw.view(np.uint8 if dtype.kind == "b" else dtype)
        return (found != 0 if dtype.kind == "b" else found).reshape(shape)

    def _typed(self, tensor: Any, what: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The array from the field for its type."""
        fields = {"float32": "float_data", "complex64": "float_data", "float64": "double_data"}
        fields |= {"complex128": "double_data", "int64": "int64_data", "uint32": "uint64_data", "uint64": "uint64_data"}
        field = fields.get(dtype.name, "int32_data")
        held = np.asarray(getattr(tensor, field), dtype={"float_data": "f4", "double_data": "f8"}.get(field))
        bits, count = _PACKED.get(tensor.data_type), math.prod(shape)
        try:
            if bits is not None:
                held = _unpacked(held.astype(np.uint8), dtype, bits, count)
            elif dtype.kind == "c":
                held = held.view(dtype)
            elif field == "int32_data" and dtype.kind not in "biu":
                held = held.astype(f"u{dtype.itemsize}").view(dtype)
            else:
                held = held.astype(dtype)
            return held.reshape(shape)
        except (ValueError, OverflowError) as error:
            raise ModelImportError(
                f"ONNX: {what} has {number_of(held.size, 'element')} for a shape {list(shape)}"
            ) from error

    def _external(self, tensor: Any, what: str, size: int) -> np.ndarray[Any, Any]:
        """The bytes of a tensor in another file."""
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        path = self._place(location, what)
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
        except ValueError as error:
            raise ModelImportError(f"ONNX: {what} has a place in {location!r} that is not a number: {error}") from error
        if location not in self._maps:
            try:
                self._maps[location] = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
            except OSError as error:
                if error.errno == errno.ENOMEM:
                    hint = f"its {path.stat().st_size} bytes do not fit into the memory that this process may have"
                else:
                    hint = "put the file beside the model"
                raise ModelImportError(
                    f"ONNX: {what} is in {location!r}, which cannot be read ({error.strerror or error}); {hint}"
                ) from error
        mapped = self._maps[location]
        if offset < 0 or length < 0 or offset + length > mapped.size:
            raise ModelImportError(
                f"ONNX: {what} is at {offset} to {offset + length} in {location!r}, which has {mapped.size} bytes"
            )
        found: np.ndarray[Any, Any] = mapped[offset : offset + length]
        return found

    def _place(self, location: str, what: str) -> Path:
        """The file of external data, which must be in the model's folder."""
        if self.folder is None:
            raise ModelImportError(f"ONNX: {what} is in the file {location!r}; give the model as a path, not as bytes")
        parts = location.replace("\\", "/").split("/")
        folder = self.folder.resolve()
        is_inside = bool(location) and "\0" not in location and ".." not in parts and not Path(location).is_absolute()
        is_inside = is_inside and ":" not in parts[0]
        path = (folder / location).resolve() if is_inside else folder
        if not is_inside or not path.is_relative_to(folder):
            raise ModelImportError(
                f"ONNX: {what} is said to be in {location!r}, outside of the model's folder; such a file is not read"
            )
        return path


def _unpacked(raw: np.ndarray[Any, Any], dtype: np.dtype[Any], bits: int, count: int) -> np.ndarray[Any, Any]:
    """The elements of 2 or 4 bits from bytes, the low bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    held = ((raw.reshape(-1, 1) >> shifts) & (2**bits - 1)).astype(np.uint8).reshape(-1)[:count]
    made: np.ndarray[Any, Any] = held.astype(dtype) if "int" in dtype.name else held.view(dtype)
    return made


# -- attributes and types --------------------------------------------------------------------------
def attribute(message: Any, tensors: Tensors) -> Any:
    """The value of an AttributeProto: a number, a text, an array, a graph, or a list of them."""
    kind = message.type
    single = {1: "f", 2: "i", 5: "g", 13: "tp"}
    several = {6: "floats", 7: "ints", 10: "graphs", 14: "type_protos"}
    if kind in single:
        return getattr(message, single[kind])
    if kind in several:
        return list(getattr(message, several[kind]))
    if kind == 3:
        return message.s.decode(errors="replace")
    if kind == 4:
        return tensors.read(message.t)
    if kind == 8:
        return [s.decode(errors="replace") for s in message.strings]
    if kind == 9:
        return [tensors.read(t) for t in message.tensors]
    raise ModelImportError(f"ONNX: the attribute {message.name!r} is of a kind ({kind}) that fxlite cannot read")


def texts(entries: Any) -> Mapping[str, str]:
    """Metadata, as a dict from key to value."""
    return {e.key: e.value for e in entries}
