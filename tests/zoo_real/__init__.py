"""Architectures written by others: torchvision's, timm's and those of transformers, with random
weights and reduced sizes, imported by ``fx.from_torch`` and compared with torch."""
