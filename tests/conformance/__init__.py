"""Conformance: PyTorch's own operator database against archives. `python -m tests.conformance.opinfo --help`."""
