"""ONNX files: read, checked, and run by torch operators, so that they are captured as modules are."""
