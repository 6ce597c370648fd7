"""Imports ONNX models as graphs (docs/onnx.md): reading the file, walking over its nodes, and the table with each op in
terms of fxlite's ops."""
