"""Graphs of ONNX, values between nodes, and the table of operators."""
