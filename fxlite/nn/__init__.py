"""torch.nn's layers over NumPy: same names, arguments, defaults and state_dict keys."""

from fxlite.nn.module import Module, Parameter

__all__ = ["Module", "Parameter"]
