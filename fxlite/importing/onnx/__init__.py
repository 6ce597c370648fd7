"""ONNX models become graphs (docs/onnx.md): the file, the walk over its nodes, and in ``table`` what
each op is in fxlite's."""
