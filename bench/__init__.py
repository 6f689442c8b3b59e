"""Measures aotpack beside eager PyTorch, stock AOTInductor and ONNX Runtime. Start with `python -m bench.run --help`."""
