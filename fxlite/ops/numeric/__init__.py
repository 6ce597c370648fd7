"""Ops of numerical programs: NumPy's rarer functions, sorting, linear algebra, randomness."""
