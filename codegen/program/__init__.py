"""A whole program: the order, memory, names and sizes of its values."""
