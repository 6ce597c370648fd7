"""What emitted C files have in common: printers, heads, what is left out."""
