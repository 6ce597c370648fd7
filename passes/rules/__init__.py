"""The standard rewrites: identities, folding, fusion and merging."""
