"""Files of weights that other programs write: safetensors, PyTorch, GGUF, NumPy."""
