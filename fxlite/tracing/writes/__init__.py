"""Views and writes in place, traced: who shares memory with whom."""
