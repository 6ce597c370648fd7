"""Ops of quantized programs: integers with a scale, their products and recurrences."""
