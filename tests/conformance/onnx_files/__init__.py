"""ONNX files of other people and of exporters, as archives, against ONNX Runtime."""
