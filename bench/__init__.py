"""Measures aotpack beside eager PyTorch, stock AOTInductor and ONNX Runtime: see `python -m bench.run --help`."""
