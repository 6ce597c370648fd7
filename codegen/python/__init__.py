"""Regenerated Python: a module file that a person could have written."""
