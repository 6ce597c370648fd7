"""Matrix products in C."""
