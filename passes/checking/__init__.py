"""Checks of passes: the part that a pass changed runs before and after it, and the results must agree."""
