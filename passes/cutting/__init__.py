"""Cutting graphs: regions, partitions, submodules, and the smallest part that shows a fault."""
