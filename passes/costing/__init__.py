"""Costs of a program as formulas: reports, comparisons, break-even sizes, and memory over time."""
