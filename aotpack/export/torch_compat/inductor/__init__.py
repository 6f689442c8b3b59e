"""The adapter to TorchInductor: every touch of its private interfaces is in this package, one file per concern.

Checked on torch 2.11, 2.12 and 2.13; `tests/export/torch_compat/inductor/test_inductor_adapter.py` fails loudly when a
touch point moves.
"""
