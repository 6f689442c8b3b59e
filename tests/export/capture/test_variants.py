"""Variants: code for some sizes beside the general one, chosen per call; the same entry whichever runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack import DYNAMIC, Dim
from aotpack.archive import Entry, Guard
from aotpack.errors import BuildError, CaptureError, InputError
from aotpack.export import BuildOptions, Variant, Variants, aot_export, build_archive, load_exported, without_weights
from aotpack.export.capture.variants import resized
from tests.support.building import Pack, assert_close, check_joint, in_double, manifest_of

pytestmark = pytest.mark.torch

BATCH = Dim("batch", 1, 64)
LENGTH = Dim("length", 1, 32)


def entry_of(path: Path) -> Entry:
    return manifest_of(path).entries[0]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 40)
        self.second = nn.Linear(40, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def test_the_first_variant_that_fits_runs(pack: Pack) -> None:
    net = Mlp().eval()
    variants = [{"batch": 1}, {"batch": 8}, {}]
    path = pack(aot_export(net, (torch.randn(3, 8),), dynamic_shapes=({0: BATCH},), variants=variants))
    entry = entry_of(path)
    assert [v.name for v in entry.variants] == ["batch=1", "batch=8", "general"]
    assert [v.guards for v in entry.variants] == [(Guard("batch", 1, 1),), (Guard("batch", 8, 8),), ()]
    assert str(entry.signature) == "forward(x: float32[batch, 8]) -> float32[batch, 4] where batch in [1, 64]"
    alone = manifest_of(pack(aot_export(net, (torch.randn(3, 8),), dynamic_shapes=({0: BATCH},))))
    assert manifest_of(path).constants == alone.constants, "the variants share all weights"
    model, context = aotpack.load(path, verify="full"), aotpack.load(path).context()
    assert model.entry("forward").variants == ["batch=1", "batch=8", "general"]
    for batch, taken in [(1, "batch=1"), (8, "batch=8"), (2, "general"), (64, "general"), (1, "batch=1")]:
        x = torch.randn(batch, 8)
        with torch.no_grad():
            assert_close(context(x), net.double()(x.double()))
        net.float()
        assert context.variant == taken
    with pytest.raises(InputError, match=r"'batch'.*must be in \[1, 64\], got 65"):
        model(torch.randn(65, 8))


def test_without_the_general_one_other_sizes_are_refused(pack: Pack) -> None:
    net = Mlp().eval()
    shapes = {"x": {0: BATCH}}
    path = pack(aot_export(net, (torch.randn(3, 8),), dynamic_shapes=shapes, variants=[{"batch": 1}, {"batch": 8}]))
    assert [v.name for v in entry_of(path).variants] == ["batch=1", "batch=8"]
    model = aotpack.load(path)
    for batch in (1, 8):
        x = torch.randn(batch, 8)
        assert_close(model(x), net(x).detach())
    with pytest.raises(InputError, match=r"no variant of entry 'forward' matches.*'batch' = 1.*'batch' = 8"):
        model(torch.randn(3, 8))


def test_each_variant_has_an_example_to_verify(pack: Pack) -> None:
    variants = [{"batch": 5}, {}]
    path = pack(aot_export(Mlp(), (torch.randn(3, 8),), dynamic_shapes=({0: BATCH},), variants=variants))
    shapes = [golden.inputs[0].shape for golden in entry_of(path).goldens]
    assert shapes == [(5, 8), (3, 8)]


class Related(nn.Module):
    """Sizes that depend on each other, in nested arguments; a number of its own; a result in another layout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 5, 3, padding=1)

    def forward(self, pair: dict[str, Tensor], *, mask: Tensor) -> tuple[Tensor, Tensor, int]:
        x, y = pair["x"], pair["y"]
        images = self.conv(x) * mask.sum()
        return images.contiguous(memory_format=torch.channels_last), y[1::2] + y[: y.shape[0] // 2], x.shape[0]


def related(batch: int, length: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = torch.randn(batch, 3, length, 7).to(memory_format=torch.channels_last)
    return ({"x": x, "y": torch.randn(2 * batch, 4)},), {"mask": torch.rand(length + 1)}


RELATED = {"pair": {"x": {0: BATCH, 2: LENGTH}, "y": {0: 2 * BATCH}}, "mask": {0: LENGTH + 1}}


def test_related_sizes_follow_the_fixed_dim(pack: Pack) -> None:
    net = Related().eval()
    args, kwargs = related(3, 6)
    variants = [{"batch": 1}, {"length": 5}, {"batch": 2, "length": 9}, {}]
    program = aot_export(net, args, kwargs, dynamic_shapes=RELATED, variants=Variants(variants, "tightest"))
    path = pack(program)
    entry = entry_of(path)
    assert [v.name for v in entry.variants] == ["batch=2,length=9", "batch=1", "length=5", "general"]
    assert entry.outputs[0].order == (0, 2, 3, 1)
    inside = {v.name: v.program.signature for v in program.variants}
    assert [spec.shape[0] for spec in inside["batch=1"].inputs[:2]] == [1, 2]
    assert inside["length=5"].inputs[2].shape == (6,)
    context = aotpack.load(path, verify="full").context()
    for (batch, length), taken in {
        (1, 5): "batch=1",
        (1, 1): "batch=1",
        (2, 9): "batch=2,length=9",
        (2, 5): "length=5",
        (4, 11): "general",
    }.items():
        args, kwargs = related(batch, length)
        got = context(*args, **kwargs)
        with torch.no_grad():
            expected = net.double()(*in_double(args), **in_double(kwargs))
        net.float()
        assert context.variant == taken
        assert_close(got, expected)
        assert isinstance(got[2], int)
        assert got[0].is_contiguous(memory_format=torch.channels_last)


def test_the_tightest_is_the_one_with_the_fewest_sizes() -> None:
    shapes = ({0: Dim("batch"), 1: LENGTH},)
    variants = [{}, {"length": 3}, {"batch": 2}, {"batch": 1}]

    def order(select: str) -> list[str]:
        args = (torch.randn(4, 6),)
        program = aot_export(lambda x: x * 2, args, dynamic_shapes=shapes, variants=Variants(variants, select))
        return [variant.name for variant in program.variants]

    assert order("declared") == ["general", "length=3", "batch=2", "batch=1"]
    assert order("tightest") == ["batch=2", "batch=1", "length=3", "general"]


def counted(x: Tensor, n: int, scale: float) -> tuple[Tensor, int, float]:
    return x[:, :n] * scale, n * 2, scale


def test_numbers_may_be_fixed(pack: Pack) -> None:
    x = torch.randn(3, 9)
    shapes = {"x": {0: BATCH}, "n": Dim("n", 1, 9), "scale": DYNAMIC}
    program = aot_export(counted, (x, 4, 0.5), dynamic_shapes=shapes, variants=[{"n": 3}, {}])
    assert [spec.number for spec in program.variants[0].program.signature.inputs] == [None, "int", "float"]
    context = aotpack.load(pack(program), verify="full").context()
    for n, scale, taken in [(3, 2.0, "n=3"), (5, -1.0, "general"), (3, 0.0, "n=3")]:
        got, expected = context(x, n, scale), counted(x, n, scale)
        assert context.variant == taken
        assert_close(got[0], expected[0])
        assert got[1:] == expected[1:]
        assert [type(value) for value in got[1:]] == [int, float]


def tiered(x: Tensor) -> Tensor:
    return x * 2 if x.shape[0] * x.shape[1] <= 64 else x * 3


def test_a_variant_may_fit_fewer_sizes_than_the_general_one(pack: Pack) -> None:
    with pytest.raises(CaptureError, match=r"batch\*length <= 64, but the model also works for"):
        aot_export(tiered, (torch.randn(4, 4),), dynamic_shapes=({0: BATCH, 1: LENGTH},), variants=[{"batch": 8}, {}])
    shapes = ({0: "batch", 1: "length"},)
    program = aot_export(tiered, (torch.randn(4, 4),), dynamic_shapes=shapes, variants=[{"batch": 8}, {}])
    path = pack(program)
    narrow, general = entry_of(path).variants
    assert narrow.guards == (Guard("batch", 8, 8), Guard("length", 0, 8))
    assert [check.text for check in general.checks] == ["batch*length <= 64"]
    context = aotpack.load(path).context()
    for shape, taken in [((8, 8), "batch=8"), ((2, 32), "general")]:
        x = torch.randn(shape)
        assert_close(context(x), tiered(x))
        assert context.variant == taken
    with pytest.raises(InputError, match=r"no variant of entry 'forward' matches"):
        context(torch.randn(8, 9))


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.linear(x)
        return nn.functional.mse_loss(scores, y), scores


def test_joint_graphs_have_variants(pack: Pack) -> None:
    net = Loss()
    args = torch.randn(3, 8, requires_grad=True), torch.randn(3, 4)
    batch = Dim("batch", 2, 64)
    shapes = ({0: batch}, {0: batch})
    path = pack(aot_export(net, args, mode="joint", dynamic_shapes=shapes, variants=[{"batch": 4}, {}]))
    calls = [(torch.randn(n, 8, requires_grad=True), torch.randn(n, 4)) for n in (4, 6)]
    check_joint(aotpack.load(path), net, *calls)


def test_streamed_weights(pack: Pack, tmp_path: Path) -> None:
    from safetensors.torch import save_model

    net = Mlp().eval()
    save_model(net, str(tmp_path / "mlp.safetensors"))
    with without_weights():
        empty = Mlp().eval()
    weights, shapes = tmp_path / "mlp.safetensors", ({0: BATCH},)
    program = aot_export(
        empty, (torch.randn(3, 8),), dynamic_shapes=shapes, weights=weights, variants=[{"batch": 1}, {}]
    )
    model = aotpack.load(pack(program))
    for batch in (1, 4):
        x = torch.randn(batch, 8)
        assert_close(model(x), net(x).detach())
    names = [constant.name for constant in manifest_of(Path(model.path)).constants]
    assert len(names) == 4


def test_an_exported_program_is_captured_again(pack: Pack, tmp_path: Path) -> None:
    net = Mlp().eval()
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    torch.export.save(torch.export.export(net, (torch.randn(3, 8),), dynamic_shapes=shapes), tmp_path / "mlp.pt2")
    name = load_exported(tmp_path / "mlp.pt2").signature.dims[0].name
    program = load_exported(tmp_path / "mlp.pt2", variants=Variants([{name: 2}, {}], select="tightest"))
    path = pack(program)
    assert len(manifest_of(path).constants) == 4
    context = aotpack.load(path).context()
    for batch, taken in [(2, f"{name}=2"), (7, "general")]:
        x = torch.randn(batch, 8)
        assert_close(context(x), net(x).detach())
        assert context.variant == taken


def _written(a: Tensor, *, b: Tensor, scale: float = 1.0, c: Tensor) -> Tensor:
    a.add_(1)
    b.mul_(2)
    return a + b + c * scale


def test_inputs_that_are_one_tensor(pack: Pack) -> None:
    """By name, with fixed sizes too; those that more inputs of a call must be are the tightest."""
    args, kwargs = (torch.randn(4, 3),), {"c": torch.randn(4, 3), "b": torch.randn(4, 3)}
    dims = {name: {0: Dim("n", 1, 16)} for name in "abc"}
    same = [{}, Variant(same=[("b", "a")]), Variant({"n": 1}, same=[("a", "c", "b")])]
    program = aot_export(_written, args, kwargs, dynamic_shapes=dims, variants=Variants(same, select="tightest"))
    assert [spec.name for spec in program.signature.inputs] == ["a", "c", "b"]
    assert [(variant.name, variant.same) for variant in program.variants] == [
        ("n=1,a is c is b", ((0, 1, 2),)),
        ("a is b", ((0, 2),)),
        ("general", ()),
    ]
    path = pack(program)
    assert [golden.same for golden in manifest_of(path).entries[0].goldens] == [((0, 1, 2),), ((0, 2),), ()]
    context = aotpack.load(path).context()
    for rows, given, variant in ((1, "aaa", "n=1,a is c is b"), (1, "aca", "a is b"), (5, "aca", "a is b")):
        tensors = {name: torch.randn(rows, 3) for name in "abc"}
        copies = {name: tensor.clone() for name, tensor in tensors.items()}
        expected = _written(copies[given[0]], c=copies[given[1]], b=copies[given[2]])
        assert_close(context(tensors[given[0]], b=tensors[given[2]], c=tensors[given[1]]), expected)
        assert_close(tensors, copies)
        assert context.variant == variant


def test_an_exported_program_has_a_tensor_for_each_input(tmp_path: Path) -> None:
    exported = torch.export.export(nn.Bilinear(2, 2, 2), (torch.randn(1, 2), torch.randn(1, 2)))
    torch.export.save(exported, tmp_path / "two.pt2")
    with pytest.raises(CaptureError, match="was traced with a tensor for each input"):
        load_exported(tmp_path / "two.pt2", variants=[Variant(same=[("input1", "input2")]), {}])


def test_variants_of_several_entries_are_updated_together(pack: Pack, tmp_path: Path, cache_dir: Path) -> None:
    net, args, shapes = Mlp().eval(), (torch.randn(3, 8),), ({0: BATCH},)
    programs = [
        aot_export(net, args, dynamic_shapes=shapes, variants=[{"batch": 1}, {}]),
        aot_export(net, args, dynamic_shapes=shapes, entry="again", variants=[{"batch": 4}]),
    ]
    path = tmp_path / "all.aotpack"
    report = build_archive(programs, path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    assert {entry: list(variants) for entry, variants in report.passes.items()} == {
        "forward": ["batch=1", "general"],
        "again": ["batch=4"],
        "fold": ["default"],
    }
    model, other = aotpack.load(path, verify="full"), Mlp().eval()
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    model.update_weights(other.state_dict())
    for entry, batch in [("forward", 1), ("forward", 5), ("again", 4)]:
        x = torch.randn(batch, 8)
        assert_close(model.entry(entry)(x), other(x).detach())


def test_the_build_says_which_variant_it_compiles(tmp_path: Path, cache_dir: Path) -> None:
    args, shapes = (torch.randn(3, 8),), ({0: BATCH},)
    program = aot_export(Mlp(), args, dynamic_shapes=shapes, variants=[{"batch": 1}, {}])
    told: list[tuple[str, str]] = []
    build_archive(
        program,
        tmp_path / "x.aotpack",
        targets=["native"],
        options=BuildOptions(cache_dir=cache_dir),
        progress=lambda phase, _, detail: told.append((phase, detail)),
    )
    lowered = dict.fromkeys(detail.partition(" ")[0] for phase, detail in told if phase == "lower")
    assert list(lowered) == ["forward[batch=1]", "forward[general]"]


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ([{"width": 1}], "a variant fixes 'width', which is not a dim of the entry 'forward'"),
        ([{"batch": 65}], r"a variant fixes 'batch' to 65, but batch in \[1, 64\]"),
        ([{"batch": 0}], r"a variant fixes 'batch' to 0, but batch in \[1, 64\]"),
        ([{"batch": 1.5}], "a variant fixes 'batch' to 1.5"),
        ([{"batch": True}], "a variant fixes 'batch' to True"),
        ([{"batch": 1}, {}, {"batch": 1}], "the variant 'batch=1' is given twice"),
        ([{}, {}], "the variant 'general' is given twice"),
        ([], "variants must be a list"),
        ({"batch": 1}, "variants must be a list"),
        (["batch=1"], "a variant is 'batch=1'"),
    ],
)
def test_variants_that_make_no_sense(variants: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        aot_export(Mlp(), (torch.randn(3, 8),), dynamic_shapes=({0: BATCH},), variants=variants)


def test_a_size_that_is_no_multiple() -> None:
    shapes = ({0: Dim("batch", 8, 64, multiple_of=8)},)
    with pytest.raises(CaptureError, match="to 12, which is not a multiple of 8"):
        aot_export(Mlp(), (torch.randn(16, 8),), dynamic_shapes=shapes, variants=[{"batch": 12}])


def test_an_order_that_is_not_known() -> None:
    with pytest.raises(CaptureError, match="select is 'best'"):
        aot_export(Mlp(), (torch.randn(3, 8),), dynamic_shapes=({0: BATCH},), variants=Variants([{}], select="best"))


def test_a_capture_that_fails_names_the_variant() -> None:
    def picky(x: Tensor) -> Tensor:
        if x.shape[0] == 5:
            raise ValueError("five is right out")
        return x * 2

    with pytest.raises(CaptureError, match=r"the variant 'batch=5': .*five is right out"):
        aot_export(picky, (torch.randn(4),), dynamic_shapes=({0: "batch"},), variants=[{"batch": 5}, {}])


@pytest.mark.parametrize(
    ("special", "message"),
    [
        (lambda x: (x, x), "returns another structure than the general one"),
        (lambda x: x.double(), "the dtype of output 'output' is float64, but float32 in general"),
        (lambda x: x[0], "the number of dims of output 'output' is 0, but 1 in general"),
        (lambda x: x.add_(1), "writes to input 'x'"),
    ],
)
def test_a_variant_that_is_another_entry_is_refused(special: Callable[[Tensor], Any], message: str) -> None:
    def forward(x: Tensor) -> Any:
        return special(x) if x.shape[0] == 5 else x * 1

    shapes = ({0: Dim("batch", 6)},)
    with pytest.raises(BuildError, match=message):
        # The general one is traced for 6 and more; the variant's capture is tried all the same.
        _force(forward, shapes)


def _force(forward: Callable[[Tensor], Any], shapes: Any) -> None:
    """Captures a variant out of the general one's range, as the same entry."""
    from aotpack.export.capture.variant_signature import as_entry

    general = aot_export(forward, (torch.randn(8),), dynamic_shapes=shapes)
    as_entry(aot_export(forward, (torch.randn(5),)), general.signature, "batch=5")


# ---- example calls --------------------------------------------------------------------------------------------------


def test_examples_are_cut_and_tiled() -> None:
    x = torch.arange(6).reshape(2, 3)
    assert resized(x, (1, 2), (0, 1)).tolist() == [[0, 1]]
    assert resized(x, (3, 4), (0, 1)).tolist() == [[0, 1, 2, 0], [3, 4, 5, 3], [0, 1, 2, 0]]
    assert resized(x, (2, 0), (0, 1)).shape == (2, 0)
    assert resized(x[:0], (2, 3), (0, 1)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert resized(x, (2, 3), (0, 1)) is x


def test_examples_keep_their_layout_and_gradient() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    y = resized(x, (7, 3, 4, 2), (0, 2, 3, 1))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert y.requires_grad
    assert y.is_leaf
    np.testing.assert_array_equal(y[6].detach().numpy(), x[0, :, :, :2].detach().numpy())
