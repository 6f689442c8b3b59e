"""The pass that transforms weights of 3 x 3 convolutions: which it chooses, and archives with them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import aotpack
from aotpack.archive import ArchiveReader
from aotpack.costs.processors import AVX2, processors_of
from aotpack.export import BuildOptions, aot_export, build_archive, ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import as_node, shape_of
from aotpack.export.passes.common.tied import merge_tied
from aotpack.export.passes.cpu.pack_conv import pack_conv
from aotpack.export.passes.cpu.winograd import use_winograd
from aotpack.targets import Target
from tests.export.pass_checks import Weights, attributes, calls, run
from tests.support.building import assert_close


class Net(nn.Module):
    """Layers of one image size each, before a head that makes room for larger weights."""

    def __init__(self, *layers: nn.Module, head: int = 1600) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(head, head)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x = layer(x)
        return x, self.head(y)


def inputs(channels: int, high: int, wide: int, head: int = 1600) -> tuple[Tensor, Tensor]:
    return torch.randn(1, channels, high, wide), torch.randn(1, head)


def conv(channels: int, outputs: int, kernel: int = 3, **arguments: int) -> nn.Conv2d:
    return nn.Conv2d(channels, outputs, kernel, **{"padding": 1, **arguments})


def elements(program: Program) -> list[int]:
    """Of a kernel in the weight of each convolution, in order: 9, or 16 and 36 where it is transformed."""
    return [int(shape_of(as_node(call.args[1]))[2]) for call in calls(program, ops.packed_conv)]


class TestChoice:
    @pytest.mark.parametrize("padding", [0, 1, 2])
    @pytest.mark.parametrize(
        ("head", "taken", "note"),
        [
            (400, 16, "takes 16 products instead of 36, with 70 KB more of weights"),  # there is no room for 270 KB
            (1600, 36, "takes 36 products instead of 144, with 270 KB more of weights"),
        ],
    )
    def test_a_convolution_of_many_products_is_transformed(
        self, padding: int, head: int, taken: int, note: str
    ) -> None:
        net = Net(conv(40, 33, padding=padding), head=head).eval()
        after = run(net, inputs(40, 30, 32, head), pack_conv, use_winograd)
        assert elements(after) == [taken]
        (report,) = [report for report in after.reports if report.name == "use-winograd"]
        (change,) = report.changes
        assert change.layer == "layers.0"
        found = re.fullmatch(note + r": (\d+) → (\d+) µs predicted", change.note)
        assert found is not None
        direct, transformed = map(int, found.groups())
        assert transformed < 0.9 * direct + 1

    @pytest.mark.parametrize(
        ("layer", "size"),
        [
            (conv(32, 32, stride=2), 40),
            (conv(32, 32, dilation=2), 40),
            (conv(64, 64, groups=2), 40),
            (conv(32, 32, kernel=5), 40),
            (conv(32, 32, kernel=1, padding=0), 40),
            (nn.ConvTranspose2d(32, 32, 3), 40),
            (conv(3, 32), 40),  # as many sums in the transforms as products saved
            (conv(32, 32), 3),  # read faster than multiplied
        ],
        ids=lambda value: "" if isinstance(value, int) else repr(value),
    )
    def test_others_stay(self, layer: nn.Module, size: int) -> None:
        channels = layer.in_channels
        assert isinstance(channels, int)
        after = run(Net(layer).eval(), inputs(channels, size, size), pack_conv, use_winograd)
        (kernel,) = [p.shape[2] * p.shape[3] for p in layer.parameters() if p.dim() == 4]
        assert elements(after) == [kernel]

    def test_halves_stay(self) -> None:
        net, args = Net(conv(32, 32)).eval().bfloat16(), tuple(x.bfloat16() for x in inputs(32, 40, 40))
        assert elements(run(net, args, pack_conv, use_winograd, tolerance=2e-2)) == [9]

    def test_the_archive_may_grow_by_a_quarter(self) -> None:
        # 28 KB for each of the convolutions over large images, or 108; 112 KB for the first over a smaller one, 448 KB
        # for the last.
        layers = [conv(32, 32), nn.ReLU(), conv(32, 32), nn.MaxPool2d(2), conv(32, 128), conv(128, 128)]
        found = []
        for head in (1, 253, 400, 820, 1900):
            net = Net(*layers, head=head).eval()
            after = run(net, inputs(32, 40, 40, head), pack_conv, use_winograd)
            found.append(elements(after))
            before = sum(p.numel() for p in net.parameters())
            constants = {str(n.target): n.meta["val"].numel() for n in after.graph.find_nodes(op="get_attr")}
            assert sum(constants.values()) <= 1.251 * before
        assert found[0] == [16, 16, 16, 9]
        assert found[-1] == [36] * 4
        assert len({tuple(each) for each in found}) == 5

    def test_a_weight_with_two_readers_is_transformed_once(self) -> None:
        def both(x: Tensor, w: Tensor, head: Tensor) -> tuple[Tensor, ...]:
            return F.conv2d(x, w, padding=1), F.conv2d(x * 2, w), head + 1

        model = Weights(both, torch.randn(32, 32, 3, 3), torch.randn(2000, 1000))
        after = run(model, (torch.randn(1, 32, 40, 40),), merge_tied, pack_conv, use_winograd)
        assert elements(after) == [36, 36]
        assert sum("winograd" in name for name in attributes(after)) == 1

    def test_a_weight_that_is_needed_as_it_is_stays(self) -> None:
        def both(x: Tensor, w: Tensor, head: Tensor) -> tuple[Tensor, ...]:
            return F.conv2d(x, w, padding=1), F.conv2d(x, w, stride=2), head + 1

        model = Weights(both, torch.randn(32, 32, 3, 3), torch.randn(2000, 1000))
        after = run(model, (torch.randn(1, 32, 20, 20),), merge_tied, pack_conv, use_winograd)
        assert elements(after) == [9, 9]

    def test_the_example_says_how_large_dynamic_images_are(self) -> None:
        net = Net(conv(32, 32)).eval()
        shapes = {"x": {0: Dim("n"), 2: Dim("h", min=3), 3: Dim("w", min=3)}, "y": None}
        for size, wanted in ((30, 36), (3, 9)):
            args, other = (torch.randn(2, 32, size, size), torch.randn(1, 1600)), inputs(32, 7, 9)
            after = run(net, args, pack_conv, use_winograd, dynamic_shapes=shapes, other_args=other)
            assert elements(after) == [wanted]


class Residual(nn.Module):
    """A block with a batch norm, a residual and activations around convolutions that are transformed."""

    def __init__(self, seed: int, head: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second, self.third = conv(8, 32), conv(32, 48, bias=False), conv(48, 32, padding=2)
        self.norm = nn.BatchNorm2d(48)
        self.norm.running_mean.uniform_(-1, 1)
        self.norm.running_var.uniform_(0.5, 2)
        self.head = nn.Linear(32, head)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        y = F.gelu(self.norm(self.second(x)))
        return self.head(F.relu(F.pad(x, (1, 1, 1, 1)) + self.third(y)).mean((2, 3)))


SHAPES = {"x": {0: Dim("n", max=8), 2: Dim("h", max=64), 3: Dim("w", max=64)}}
SIZES = [(1, 20, 24), (3, 7, 9), (2, 1, 1), (1, 64, 33)]

# Outputs of the head, and the elements of kernels for which there is room beside it. Where there is little, it depends
# on the costs of the host's processor which convolutions get them.
LITTLE = [9, 16, 16] if AVX2 in processors_of(Target.host().name) else [16, 16, 36]
HEADS = pytest.mark.parametrize(("head", "wanted"), [(3500, LITTLE), (90000, [9, 36, 36])])

Pack = Callable[..., Path]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Pack:
    def run(head: int, **options: object) -> Path:
        path = tmp_path_factory.mktemp("winograd") / "model.aotpack"
        program = aot_export(Residual(0, head).eval(), (torch.randn(1, 8, 24, 24),), dynamic_shapes=SHAPES)
        build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, **options))
        return path

    return run


def packed_elements(path: Path) -> list[int]:
    """Of kernels in the packed weights of an archive."""
    with ArchiveReader(path) as reader:
        return sorted(c.shape[2] for c in reader.manifest.constants if c.role == "packed" and len(c.shape) == 5)


def check(model: aotpack.Model, net: Residual) -> None:
    net = net.eval().double()
    for n, h, w in SIZES:
        x = torch.randn(n, 8, h, w)
        with torch.no_grad():
            assert_close(model(x), net(x.double()), 5e-6)


@HEADS
def test_an_archive(pack: Pack, head: int, wanted: list[int]) -> None:
    path = pack(head)
    assert packed_elements(path) == wanted
    check(aotpack.load(path, num_threads=2), Residual(0, head))
    check(aotpack.load(path, num_threads=1), Residual(0, head))


def test_an_archive_without(pack: Pack) -> None:
    path = pack(3500, without=("use-winograd",))
    assert packed_elements(path) == [9, 9, 9]
    check(aotpack.load(path, num_threads=2), Residual(0, 3500))


@HEADS
def test_new_weights_are_transformed_in_the_runtime(pack: Pack, head: int, wanted: list[int]) -> None:
    path = pack(head, updatable=True)
    assert packed_elements(path) == wanted
    model = aotpack.load(path, num_threads=2)
    check(model, Residual(0, head))
    for seed in (1, 2):
        model.update_weights(Residual(seed, head).state_dict())
        check(model, Residual(seed, head))
    # What the build transformed, and what the runtime does of the same weights, is the same to the last bit.
    x = torch.randn(2, 8, 20, 20)
    model.reset_weights()
    built = model(x)
    model.update_weights(Residual(0, head).state_dict())
    assert torch.equal(model(x), built)
