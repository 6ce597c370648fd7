"""Graphs and weights as files: data only, nothing in them is run."""
