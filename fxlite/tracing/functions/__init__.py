"""NumPy's functions that are compositions of ops, by what they are about."""
