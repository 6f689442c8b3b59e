"""What the terms of `model.py` count for. Written by `python -m bench.costs --write`."""

# The processor that was measured, and how many times were.
MEASURED_ON = "AuthenticAMD-25-17-1 (zen4), x86-64-v4"
MEASUREMENTS = 432

COEFFICIENTS: dict[str, float] = {
    "block.depthwise": 1.3892,
    "block.images": 2.0526,
    "block.pointwise": 0.9679,
    "block.results": 3.1589,
    "block.weights": 0.6627,
    "direct.calls": 2.9392,
    "direct.products": 1.0154,
    "fused.again": 2.6806,
    "fused.bands": 0.184,
    "fused.between": 1.1133,
    "images": 4.0049,
    "parts.between": 0.8135,
    "start": 2.2337,
    "weights": 0.4747,
    "winograd.calls": 1.307,
    "winograd.inputs": 4.2443,
    "winograd.outputs": 5.83,
    "winograd.products": 1.0332,
}
