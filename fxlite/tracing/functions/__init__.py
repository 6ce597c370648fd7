"""NumPy's functions that are compositions of ops, by topic."""
