"""Ops of quantized programs: integers of a scale, their products and recurrences."""
