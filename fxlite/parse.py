"""To be written by the lead: parse, save, load."""
from typing import Any
def load_if_saved(root: Any) -> Any:
    return root
