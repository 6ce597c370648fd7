"""Graphs written as ONNX models: :func:`fxlite.codegen.onnx.model.to_onnx`.

In: a traced graph. Out: a ModelProto, or a file. One table says what each op becomes; ops that ONNX lacks
are decomposed, and elementwise ones are written from their bodies.
"""
