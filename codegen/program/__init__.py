"""A whole program: order, memory, names and sizes of what it computes."""
