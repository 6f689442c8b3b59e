"""The operators of ONNX, by family. A file is imported by `aotpack.export.onnx.operators`."""
