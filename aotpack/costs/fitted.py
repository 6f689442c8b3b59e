"""What the terms of `model.py` count for. Written by `python -m bench.costs --write`."""

# The processor that was measured, and how many times were.
MEASURED_ON = "AuthenticAMD-25-17-1 (zen4), x86-64-v4"
MEASUREMENTS = 332

COEFFICIENTS: dict[str, float] = {
    "block.depthwise": 1.2912,
    "block.images": 1.4233,
    "block.pointwise": 0.9491,
    "block.results": 2.9629,
    "block.weights": 0.3666,
    "direct.calls": 2.7587,
    "direct.products": 0.993,
    "fused.again": 1.0,
    "fused.bands": 1.0867,
    "fused.between": 1.2982,
    "images": 2.4897,
    "parts.between": 0.8899,
    "start": 3.0732,
    "weights": 0.4334,
    "winograd.calls": 2.1733,
    "winograd.products": 1.0119,
    "winograd_2x2.inputs": 2.9349,
    "winograd_2x2.outputs": 6.0413,
    "winograd_4x4.inputs": 5.1862,
    "winograd_4x4.outputs": 6.9823,
}
