"""Types of values: dtypes, dims and the facts about them, and conditions on dims."""

from fxlite.types.tensor_type import TensorType, parse_type, type_of

__all__ = ["TensorType", "parse_type", "type_of"]
