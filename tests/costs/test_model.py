"""The cost model: what it says grows with the work, fits what was measured, and tells processors apart."""

from __future__ import annotations

import dataclasses
import random

import pytest

from aotpack.costs.costs import ModelCosts, Times, current_costs, geometric_mean, using_costs
from aotpack.costs.fitted import FITS
from aotpack.costs.model import predict, runs_in_bands, terms
from aotpack.costs.processors import PROCESSORS, XEON, ZEN4, ZEN5, Processor, processors_of
from aotpack.costs.shapes import BlockShape, ConvShape, Shape
from aotpack.targets import TABLE

_MB = 1 << 20


def conv(channels: int, outputs: int, size: int, images: int = 1) -> ConvShape:
    return ConvShape(images, channels, outputs, (size, size), (size, size))


def block(inputs: int, channels: int, outputs: int, size: int, kernel: int = 3, stride: int = 1) -> BlockShape:
    out = (size - 1) // stride + 1
    pairs = (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2), (1, 1)
    return BlockShape(4, 1, inputs, channels, outputs, (size, size), (out, out), *pairs, expands=True, projects=True)


def larger(shape: ConvShape, generator: random.Random) -> ConvShape:
    """The same with one size larger."""
    more = generator.randint(1, 40)
    name = generator.choice(["images", "channels", "outputs", "image"])
    if name == "image":
        pair = shape.image[0] + more, shape.image[1] + more
        return dataclasses.replace(shape, image=pair, result=pair)
    return dataclasses.replace(shape, **{name: getattr(shape, name) + more})


@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda each: each.name)
@pytest.mark.parametrize("algorithm", ConvShape.algorithms)
def test_more_work_takes_no_less_time(processor: Processor, algorithm: str) -> None:
    generator = random.Random(0)
    for _ in range(300):
        small = conv(*(generator.randint(1, 400) for _ in range(2)), generator.randint(1, 120), generator.randint(1, 4))
        large = larger(small, generator)
        before, after = (predict(each, algorithm, processor, 1, 8 * _MB) for each in (small, large))
        assert 0 < before <= after, (small, large)


@pytest.mark.parametrize("shape", [conv(64, 64, 56), conv(512, 512, 14), block(24, 144, 24, 56)])
@pytest.mark.parametrize("processor", PROCESSORS, ids=lambda each: each.name)
def test_more_threads_and_less_weights_are_no_slower(processor: Processor, shape: Shape) -> None:
    for algorithm in shape.algorithms[:1]:
        times = [predict(shape, algorithm, processor, threads, 8 * _MB) for threads in (1, 2, 4, 8)]
        assert times == sorted(times, reverse=True)
        assert predict(shape, algorithm, processor, 1, 1) <= predict(shape, algorithm, processor, 1, 900 * _MB)


def test_coefficients_are_those_of_the_terms() -> None:
    shapes: list[Shape] = [conv(32, 32, 20), block(16, 96, 24, 112)]
    names = {n for each in shapes for a in each.algorithms for n in terms(each, a, ZEN4, 1)}
    for fit in FITS.values():
        assert names == set(fit.coefficients)
        assert min(fit.coefficients.values()) >= 0


# Microseconds on a Zen 4 (AuthenticAMD-25-17-1), one thread, in turns with the others (csrc/probe).
@pytest.mark.parametrize(
    ("shape", "direct", "two", "four"),
    [
        (conv(64, 64, 56), 2056, 1090, 643),
        (conv(128, 128, 28), 2015, 998, 640),
        (conv(256, 256, 14), 2026, 1049, 862),
        (conv(512, 512, 7), 2207, 1471, 1593),
        (conv(64, 64, 224), 32843, 17500, 10668),
        (conv(512, 512, 14), 8072, 4134, 3595),
        (conv(256, 256, 14, 8), 16093, 7667, 6097),
    ],
)
def test_what_was_measured(shape: ConvShape, direct: float, two: float, four: float) -> None:
    found = [1e6 * predict(shape, name, ZEN4, 1, 96 * _MB) for name in shape.algorithms]
    assert found == pytest.approx([direct, two, four], rel=0.25)


@pytest.mark.parametrize("target", [info.name for info in TABLE if info.backend == "cpu"])
def test_what_is_plain_on_every_target(target: str) -> None:
    large, thin, tiny = (ModelCosts([target]).times([s], weights=_MB)[0] for s in (
        conv(64, 64, 56), conv(3, 32, 40), conv(64, 64, 3)
    ))  # fmt: skip
    assert large.gain("winograd_2x2", "direct") > 0.3
    assert large.gain("winograd_4x4", "winograd_2x2") > 0.25
    for algorithm in ("winograd_2x2", "winograd_4x4"):
        assert thin.gain(algorithm, "direct") < 0.1  # as many sums in the transforms as products saved
        assert tiny.gain(algorithm, "direct") < 0.1  # read faster than multiplied
    assert not large.measured


def test_larger_weights_pay_with_more_images() -> None:
    one, many = ModelCosts(["x86-64-v4"]).times([conv(512, 512, 7), conv(512, 512, 7, 8)], weights=100 * _MB)
    assert one.gain("winograd_4x4", "winograd_2x2") < 0.1
    assert many.gain("winograd_4x4", "winograd_2x2") > 0.2


def test_processors_are_told_apart() -> None:
    assert ZEN5.peak > 1.9 * ZEN4.peak
    shape = conv(128, 128, 28)
    assert predict(shape, "direct", ZEN4, 1) > 1.5 * predict(shape, "direct", ZEN5, 1)
    # Products take half the time at the full rate, bytes do not: larger weights are worth less there.
    deep = conv(512, 512, 7)
    ratios = [predict(deep, "winograd_2x2", each, 1) / predict(deep, "direct", each, 1) for each in (ZEN4, XEON)]
    assert ratios[0] < ratios[1]
    assert all(processors_of(info.name) for info in TABLE)
    assert len({each.name for each in PROCESSORS}) == len(PROCESSORS)


def test_a_block_that_does_not_go_in_bands_takes_the_time_of_its_parts() -> None:
    small = block(16, 96, 16, 14)
    assert not runs_in_bands(small, 1)
    for processor in PROCESSORS:
        assert predict(small, "fused", processor, 1) == predict(small, "parts", processor, 1)
    large = block(16, 96, 24, 112, stride=2)
    assert runs_in_bands(large, 1)
    assert predict(large, "fused", ZEN4, 1) < predict(large, "parts", ZEN4, 1)


def test_passes_ask_what_is_in_use() -> None:
    assert isinstance(current_costs(), ModelCosts)
    costs = ModelCosts(["aarch64"])
    with using_costs(costs):
        assert current_costs() is costs
    assert current_costs() is not costs
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("fused", "noise", "predicted", "expected"),
    [
        (0.9, 0.0, 1.1, True),  # measured faster
        (1.1, 0.0, 0.9, False),  # measured slower
        (0.99, 0.0, 0.9, True),  # as good as equal: the model says
        (0.99, 0.0, 1.1, False),
        (0.95, 0.04, 1.1, False),  # by less than twice the noise
        (1.05, 0.04, 0.9, True),
        (0.95, 0.04, None, True),  # nothing was measured
    ],
)
def test_what_measurements_do_not_tell_the_model_does(
    fused: float, noise: float, predicted: float | None, *, expected: bool
) -> None:
    model = None if predicted is None else {"parts": 1.0, "fused": predicted}
    times = Times({"parts": 1.0, "fused": fused}, predicted is not None, noise, model)
    assert times.is_faster("fused", "parts", least=0.02) is expected
