"""Ops that slide windows over the spatial axes of images."""
