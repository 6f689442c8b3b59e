"""Predicts how long the algorithms of a shape take, on a class of processors with a number of threads.

A time is a sum of terms. A term is what a part of the work would take at the documented rate of the processor
(`processors.py`): multiply-adds at its peak, bytes at the rate of the memory that they come from. What a term counts
for, its coefficient, is fitted to measurements (`fitted.py`, by `python -m bench.costs`). All coefficients are at least
0, and terms grow with the work: for one thread, more work never takes less time. With several it may where it is what
another thread is woken for.

Classes that were not measured have the coefficients of a class that is like them (`_LIKE`) at their own documented
rates.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotpack.costs.fitted import FITS
from aotpack.costs.processors import Processor
from aotpack.costs.shapes import PANEL, BlockShape, ConvShape, Shape

# Tiles of the micro kernel have about so many rows (kMaxRows of csrc/kernels/micro.h); by lanes.
_ROWS = {16: 14, 8: 6, 4: 6}
# A team of threads is woken for more work than this on each, as worth_threads of csrc/kernels/parallel.h.
_LEAST_SECONDS = 8e-6
# As kBandBytes, kMaxBandRows and kWeightBytes of csrc/kernels/depthwise_block.cpp.
_BAND_BYTES = 384 << 10
_BAND_ROWS = 8
_WEIGHT_BYTES = 512 << 10

# Multiply-adds in the time of a number of a transform, as kTransformFlops of csrc/kernels/conv_winograd.cpp.
_TRANSFORM = 6.0
# Outputs along a side of the tiles.
_SIDES = {"winograd_2x2": 2, "winograd_4x4": 4}

# Where a class that was not measured has its coefficients from.
_LIKE = {"zen5": "zen4", "avx512": "zen4", "amx": "zen4", "neon": "sse4", "neon_bf16": "sse4", "sve256": "avx2"}

Terms = dict[str, float]


def terms(shape: Shape, algorithm: str, processor: Processor, threads: int, weights: int = 0) -> Terms:
    """Seconds of each part of the work at the documented rates.

    Args:
        shape: what is computed.
        algorithm: one of `shape.algorithms`.
        processor: the class.
        threads: of a call.
        weights: bytes of all weights of the model: those of a call come from memory that holds them all.
    """
    if isinstance(shape, ConvShape):
        if algorithm == "direct":
            return _direct(shape, processor, threads, weights)
        return _winograd(shape, processor, threads, weights, side=_SIDES[algorithm])
    return _block(shape, processor, threads, weights, fused=algorithm == "fused")


def predict(shape: Shape, algorithm: str, processor: Processor, threads: int, weights: int = 0) -> float:
    """Seconds of a call; arguments as `terms` has them."""
    return weighted(terms(shape, algorithm, processor, threads, weights), coefficients_of(processor))


def coefficients_of(processor: Processor) -> Mapping[str, float]:
    """By term."""
    name = processor.name
    return FITS[name if name in FITS else _LIKE[name]].coefficients


def weighted(found: Terms, coefficients: Mapping[str, float]) -> float:
    """The sum of the terms, each times its coefficient."""
    return sum(seconds * coefficients[name] for name, seconds in found.items())


def runs_in_bands(shape: BlockShape, threads: int) -> bool:
    """Whether the kernel for blocks expands a few rows at a time in the cache, as `plan` of its source says
    (csrc/kernels/depthwise_block.cpp); otherwise it expands all of them first.
    """
    rows, in_row, out_row = _band(shape)
    ring = (rows - 1) * shape.stride[0] + _reach(shape)
    own, again = shape.images * shape.result[0] // threads, max(0, _reach(shape) - shape.stride[0]) * shape.expands
    image = shape.images * shape.image[0] * shape.image[1] * shape.channels * shape.itemsize
    return (
        (threads == 1 or own * shape.stride[0] >= 6 * again)
        and _pointwise_bytes(shape) <= _WEIGHT_BYTES
        and ring * in_row + rows * out_row <= 2 * _BAND_BYTES
        and image > _BAND_BYTES
    )


def _panels(outputs: int) -> int:
    """Output channels in whole panels, as weights are packed."""
    return _whole(outputs, PANEL)


def _whole(count: int, of: int) -> int:
    return -(-count // of) * of


def _workers(seconds: float, threads: int) -> float:
    """How many threads share work that takes one of them so long."""
    return min(float(threads), max(1.0, seconds / _LEAST_SECONDS))


def _moved(count: float, working: float, processor: Processor, workers: float) -> float:
    """Seconds in which `count` bytes come from where `working` bytes stay between their uses."""
    if working <= processor.l2 * workers:
        return count / (processor.l2_rate * processor.clock * workers)
    if working <= processor.l3:
        return count / (processor.l3_rate * processor.clock * workers)
    return count / (processor.memory_rate * processor.clock * min(workers, processor.memory_cores))


def _direct(shape: ConvShape, processor: Processor, threads: int, weights: int) -> Terms:
    pixels = shape.images * shape.result[0] * shape.result[1]
    products = 9.0 * pixels * shape.channels * _whole(shape.outputs, processor.lanes) / processor.peak
    workers = _workers(products, threads)
    panels = _panels(shape.outputs)
    calls = -(-pixels // _ROWS[processor.lanes]) * (panels // PANEL)
    own = 4 * 9 * shape.channels * panels
    return {
        "direct.products": products / workers,
        # Pointers to the rows of each tap, and the tile's epilogue.
        "direct.calls": 9.0 * calls / (processor.clock * workers),
        **_shared(shape, own, processor, workers, weights),
    }


def _winograd(shape: ConvShape, processor: Processor, threads: int, weights: int, *, side: int) -> Terms:
    """`side`: outputs along one of a tile."""
    elements = (side + 2) ** 2
    tiles = shape.images * -(-shape.result[0] // side) * -(-shape.result[1] // side)
    outputs = _whole(shape.outputs, processor.lanes)
    products = float(elements) * tiles * shape.channels * outputs / processor.peak
    transforms = float(elements) * tiles * (shape.channels + outputs) / processor.peak
    workers = _workers(products + _TRANSFORM * transforms, threads)
    vectors = processor.peak * workers
    panels = _panels(shape.outputs)
    calls = -(-tiles // _ROWS[processor.lanes]) * (panels // PANEL)
    own = 4 * elements * shape.channels * panels
    name = f"winograd_{side}x{side}"
    return {
        "winograd.products": products / workers,
        "winograd.calls": float(elements) * calls / (processor.clock * workers),
        # Numbers of the transforms of the input and of the result.
        f"{name}.inputs": float(elements) * tiles * _whole(shape.channels, processor.lanes) / vectors,
        f"{name}.outputs": float(elements) * tiles * outputs / vectors,
        **_shared(shape, own, processor, workers, weights),
    }


def _shared(shape: ConvShape, own: int, processor: Processor, workers: float, weights: int) -> Terms:
    source = shape.images * shape.image[0] * shape.image[1] * shape.channels
    result = shape.images * shape.result[0] * shape.result[1] * shape.outputs
    images = 4.0 * (source + result)
    return {
        "weights": _moved(own, max(own, weights), processor, workers),
        "images": _moved(images, images, processor, workers),
        "start": 1e-6,
    }


def _block(shape: BlockShape, processor: Processor, threads: int, weights: int, *, fused: bool) -> Terms:
    before = shape.images * shape.image[0] * shape.image[1]
    behind = shape.images * shape.result[0] * shape.result[1]
    taps = shape.kernel[0] * shape.kernel[1]
    rate = processor.peak * (processor.half_products if shape.itemsize == 2 else 1.0)
    wide, narrow = _whole(shape.channels, processor.lanes), _whole(shape.outputs, processor.lanes)
    expand = float(before) * shape.inputs * wide * shape.expands
    project = float(behind) * shape.channels * narrow * shape.projects
    results = float(before) * wide * shape.expands + float(behind) * narrow * shape.projects
    pointwise, depthwise = (expand + project) / rate, float(taps) * behind * wide / processor.peak
    workers = _workers(pointwise + depthwise, threads)
    own = shape.itemsize * shape.channels * (taps + _pointwise_channels(shape))
    ends = shape.itemsize * (before * (shape.inputs if shape.expands else shape.channels) + behind * shape.outputs)
    found = {
        "block.pointwise": pointwise / workers,
        "block.depthwise": depthwise / workers,
        "block.results": results / processor.peak / workers,
        "block.weights": _moved(own, max(own, weights), processor, workers),
        "block.images": _moved(ends, ends, processor, workers),
        "start": 1e-6,
    }
    if not fused or not runs_in_bands(shape, int(workers)):
        # Written once and read once, between the convolutions.
        between = 2 * shape.itemsize * shape.channels * (before * shape.expands + behind * shape.projects)
        found["parts.between"] = _moved(between, between, processor, workers)
        is_one_region = fused and workers > 1 and _pointwise_bytes(shape) <= _WEIGHT_BYTES
        found["start"] *= 1 if is_one_region else 1 + shape.expands + shape.projects
        return found
    # Neighbours both expand the rows that they share, and weights go by for each band of rows.
    again = (workers - 1.0) * max(0, _reach(shape) - shape.stride[0]) / (shape.images * shape.image[0])
    rows, in_row, out_row = _band(shape)
    bands = -(-shape.images * shape.result[0] // rows)
    found["fused.again"] = again * expand / rate / workers
    found["fused.bands"] = bands * own / (processor.l2_rate * processor.clock * workers)
    # The rows of bands lie in the second-level cache, unless that is small.
    ring = (rows - 1) * shape.stride[0] + _reach(shape)
    moved = 2 * shape.itemsize * shape.channels * (before * shape.expands + behind * shape.projects)
    found["fused.between"] = _moved(moved, (ring * in_row + rows * out_row) * workers, processor, workers)
    return found


def _pointwise_bytes(shape: BlockShape) -> int:
    """Bytes of the pointwise weights."""
    return _pointwise_channels(shape) * shape.channels * shape.itemsize


def _pointwise_channels(shape: BlockShape) -> int:
    """Of the ends: times `channels`, the numbers of the pointwise weights."""
    return (shape.inputs if shape.expands else 0) + (shape.outputs if shape.projects else 0)


def _reach(shape: BlockShape) -> int:
    """Rows of the image under one of the result."""
    return (shape.kernel[0] - 1) * shape.dilation[0] + 1


def _band(shape: BlockShape) -> tuple[int, int, int]:
    """Rows of the result in a band, and the bytes of a row that is expanded, and of one that is filtered."""
    in_row = shape.itemsize * shape.channels * shape.image[1] * shape.expands
    out_row = shape.itemsize * shape.channels * shape.result[1] * shape.projects
    each, overlap = max(1, shape.stride[0] * in_row + out_row), (_reach(shape) - shape.stride[0]) * in_row
    return max(1, min(_BAND_ROWS, (_BAND_BYTES - overlap) // each)), in_row, out_row
