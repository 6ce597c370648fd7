"""What may come from somebody else: hostile and damaged files, a cache that others can reach."""
