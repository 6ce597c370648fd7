"""Graphs and weights as files, which contain only data: nothing in them is executed."""
