"""The tiles of convolutions: the C text of their innermost loops."""
