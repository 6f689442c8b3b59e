"""What the terms of `model.py` count for. Written by `python -m bench.costs --write`."""

# The processor that was measured, and how many times were.
MEASURED_ON = "AuthenticAMD-25-17-1 (zen4), x86-64-v4"
MEASUREMENTS = 664

COEFFICIENTS: dict[str, float] = {
    "block.depthwise": 1.3964,
    "block.images": 1.169,
    "block.pointwise": 0.9844,
    "block.results": 3.8037,
    "block.weights": 0.583,
    "direct.calls": 3.559,
    "direct.products": 1.0136,
    "fused.again": 3.006,
    "fused.bands": 0.3424,
    "fused.between": 0.875,
    "images": 1.756,
    "parts.between": 0.7196,
    "start": 2.848,
    "weights": 0.5412,
    "winograd.calls": 2.2473,
    "winograd.products": 1.032,
    "winograd_2x2.inputs": 4.1768,
    "winograd_2x2.outputs": 6.8637,
    "winograd_4x4.inputs": 6.9995,
    "winograd_4x4.outputs": 8.9485,
}
