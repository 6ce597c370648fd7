"""Converts files written for torch.fx to fxlite, and lists what a person must decide."""
