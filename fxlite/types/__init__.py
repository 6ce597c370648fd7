"""Types of values: dtypes, dims with what is known of them, and conditions on dims."""

from fxlite.types.tensor_type import TensorType, parse_type, type_of

__all__ = ["TensorType", "parse_type", "type_of"]
