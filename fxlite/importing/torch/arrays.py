"""Tensors of torch as arrays of NumPy over the same memory, dtypes of either as the other's.

In: a tensor on the CPU. Out: an array that shares its memory. NumPy's own conversion knows no
bfloat16 or float8, which are taken as integers of their size and read as ml_dtypes' types.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch

from fxlite.base.errors import DTypeError
from fxlite.types import dtypes
from fxlite.types.dtypes import DType

#: fxlite's dtype for each of torch's.
DTYPES: dict[Any, DType] = {
    torch.bool: dtypes.bool_,
    torch.uint8: dtypes.uint8,
    torch.uint16: dtypes.uint16,
    torch.uint32: dtypes.uint32,
    torch.uint64: dtypes.uint64,
    torch.int8: dtypes.int8,
    torch.int16: dtypes.int16,
    torch.int32: dtypes.int32,
    torch.int64: dtypes.int64,
    torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16,
    torch.float32: dtypes.float32,
    torch.float64: dtypes.float64,
    torch.complex64: dtypes.complex64,
    torch.complex128: dtypes.complex128,
}
TORCH = {own: theirs for theirs, own in DTYPES.items()}
_AS_INTEGERS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


def dtype_of(torch_dtype: Any) -> DType:
    """fxlite's dtype for one of torch. Raises DTypeError for those that it lacks."""
    if torch_dtype not in DTYPES:
        raise DTypeError(f"fxlite has no dtype for {torch_dtype}")
    return DTYPES[torch_dtype]


def array_of(tensor: Any) -> np.ndarray[Any, Any]:
    """An array over a tensor's memory; what is on another device, or a tensor of a class without
    plain memory (sparse, quantized), is copied or refused. Raises DTypeError."""
    plain = tensor.detach()
    if plain.is_sparse or plain.is_quantized or plain.is_meta:
        raise DTypeError(f"a tensor that is sparse, quantized or on the device meta has no array: {plain.layout}")
    plain = plain.cpu().resolve_conj().resolve_neg()
    if plain.dtype in _AS_INTEGERS:
        integer, own = _AS_INTEGERS[plain.dtype]
        return plain.view(integer).numpy().view(own)  # type: ignore[no-any-return]
    return plain.numpy()  # type: ignore[no-any-return]


def tensor_of(array: np.ndarray[Any, Any]) -> Any:
    """A tensor over an array's memory."""
    array = np.asarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(array if array.flags.writeable else array.copy())
