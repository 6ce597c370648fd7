"""What keeps a quantized program accurate: equalization, GPTQ, bias correction."""
