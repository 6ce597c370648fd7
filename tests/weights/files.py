"""Good files of weights of each format, small, made without the code under test."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import fxlite as fx

ARRAYS = {
    "layer.0.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layer.0.bias": np.array([1, -2, 3], np.float16),
    "count": np.array(7, np.int64),
    "empty": np.zeros((0, 2), np.float32),
}


def safetensors(path: Path) -> None:
    fx.save_safetensors(ARRAYS, path)


def npz(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **ARRAYS)  # type: ignore[arg-type]


def npz_packed(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **ARRAYS)  # type: ignore[arg-type]


#: GGUF's tensors: name, type number, dims as the file has them (the fastest first), bytes.
def gguf_bytes(tensors: list[tuple[str, int, tuple[int, ...], bytes]], alignment: int = 32) -> bytes:
    """A GGUF file of version 3, as its documentation lays it out."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 3)
    head += text("general.alignment") + struct.pack("<II", 4, alignment)
    head += text("general.name") + struct.pack("<I", 8) + text("small")
    head += text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bc")
    data = b""
    for name, kind, dims, content in tensors:
        head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


def gguf(path: Path) -> None:
    drawn = np.random.default_rng(0)
    path.write_bytes(
        gguf_bytes(
            [
                ("layer.0.weight", 0, (4, 3), ARRAYS["layer.0.weight"].tobytes()),
                ("layer.0.bias", 1, (3,), ARRAYS["layer.0.bias"].tobytes()),
                ("blocks", 12, (256, 2), drawn.bytes(288)),
                ("more", 8, (64,), drawn.bytes(68)),
            ]
        )
    )


def torch_zip(path: Path) -> None:
    """What ``torch.save`` writes, of a dict of one float32 tensor, without torch."""
    path.write_bytes(torch_zip_bytes(pickle_of_tensor(b"ctorch._utils\n_rebuild_tensor_v2\n")))


def pickle_of_tensor(rebuild: bytes, count: int = 12) -> bytes:
    """{"w": a tensor [3, 4] of the storage "0"}, made by the global that ``rebuild`` names."""
    storage = (
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK"
        + bytes([count])
        + b"tQ"
    )
    tensor = rebuild + b"(" + storage + b"K\x00K\x03K\x04\x86K\x04K\x01\x86\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01" + tensor + b"q\x02s."


def torch_zip_bytes(pickled: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", ARRAYS["layer.0.weight"].tobytes())
    return target.getvalue()


def torch_legacy(path: Path) -> None:
    """The format before torch 1.6: five pickles, then the storages."""
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    version, system = b"\x80\x02M\xe9\x03.", b"\x80\x02}X\x0d\x00\x00\x00little_endian\x88s."
    tensor = pickle_of_tensor(b"ctorch._utils\n_rebuild_tensor_v2\n").replace(b"K\x0ctQ", b"K\x0cNtQ")
    keys = b"\x80\x02]X\x01\x00\x00\x000a."
    data = struct.pack("<Q", 12) + ARRAYS["layer.0.weight"].tobytes()
    path.write_bytes(magic + version + system + tensor + keys + data)


def index(path: Path) -> None:
    safetensors(path.with_name("part.safetensors"))
    places = dict.fromkeys(ARRAYS, "part.safetensors")
    path.write_text(json.dumps({"metadata": {"total_size": 62}, "weight_map": places}))


#: Name of a file -> what writes it.
GOOD: dict[str, Callable[[Path], Any]] = {
    "w.safetensors": safetensors,
    "w.npz": npz,
    "packed.npz": npz_packed,
    "w.gguf": gguf,
    "w.pt": torch_zip,
    "legacy.pt": torch_legacy,
    "w.safetensors.index.json": index,
}
