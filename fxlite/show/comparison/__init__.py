"""Comparing graphs: whether two are the same program, and what changed from one to the other."""
