"""From files written for torch.fx to files for fxlite, and what people must decide there."""
