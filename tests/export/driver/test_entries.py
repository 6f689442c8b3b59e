"""Several programs in one archive: what they share is there once, and state goes from one to the other."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import BuildError, SourceFreedError
from aotpack.export import BuildOptions, Program, aot_export, build_archive
from aotpack.export.ops.weight_packing import pack_linear
from aotpack.export.weights.identity import Identities, frozen
from tests.support.building import Pack, assert_close, in_double, manifest_of

pytestmark = pytest.mark.torch


class Twin(nn.Module):
    """Two ways to call one stack of layers; both fold the norm into the convolution and pack all weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 32, 3, padding=1)
        self.norm = nn.BatchNorm1d(32)
        self.hidden = nn.Linear(32, 48)
        self.head = nn.Linear(48, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))

    def embed(self, x: Tensor) -> Tensor:
        return torch.relu(self.hidden(torch.relu(self.norm(self.conv(x))).mean(-1)))


def twin(seed: int = 0) -> Twin:
    torch.manual_seed(seed)
    net = Twin().eval()
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 2)
    return net


def test_weights_are_stored_and_listed_once(pack: Pack) -> None:
    net, x = twin(), torch.randn(3, 8, 20)
    whole = pack([aot_export(net, (x,))])
    both = pack([aot_export(net, (x,)), aot_export(net, (x,), method="embed")])
    one, two = manifest_of(whole), manifest_of(both)
    assert [entry.name for entry in two.entries] == ["forward", "embed"]
    assert two.constants == one.constants, "embed reads nothing that forward does not"
    weights = [[(f.path, f.size) for f in m.files if f.path.startswith("weights/")] for m in (one, two)]
    assert weights[0] == weights[1]
    model, y = aotpack.load(both, verify="full"), torch.randn(3, 8, 20)
    reference = twin().double()
    with torch.no_grad():
        assert_close(model(y), reference(y.double()))
        assert_close(model.entry("embed")(y), reference.embed(y.double()))


def test_each_constant_is_computed_once(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = twin(), torch.randn(3, 8, 20)
    asked: list[str] = []
    value = Program.value

    def count(program: Program, attribute: str) -> Tensor:
        if attribute.startswith("_packed"):
            asked.append(attribute)
        return value(program, attribute)

    monkeypatch.setattr(Program, "value", count)
    pack([aot_export(net, (x,)), aot_export(net, (x,), entry="again"), aot_export(net, (x,), method="embed")])
    assert asked
    assert len(asked) == len(set(asked))


class Named(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("table", torch.full((4,), value))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_values_that_differ_under_one_name_get_the_entrys(pack: Pack) -> None:
    x = torch.randn(4)
    path = pack([aot_export(Named(2.0), (x,), entry="two"), aot_export(Named(3.0), (x,), entry="three")])
    names = {constant.name for constant in manifest_of(path).constants}
    assert {"table", "three.table"} <= names
    # The literal is equal in both, so it is there once.
    assert len(names) == 3
    model, offset = aotpack.load(path), torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert_close(model.entry("two")(x), x * 2 + offset)
    assert_close(model.entry("three")(x), x * 3 + offset)


class Memory(nn.Module):
    """A running sum: one method writes it, others read it, in ways that passes would fold."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.linear = nn.Linear(4, 4)

    def add(self, x: Tensor) -> Tensor:
        self.total += self.linear(x)
        self.calls += 1
        return self.total.sum()

    def read(self, x: Tensor) -> Tensor:
        # A weight that could be packed, a subgraph that could be folded, a number that could be compiled in.
        return nn.functional.linear(x, self.total) + (self.total.double() * 2).float() * self.calls


def test_state_is_shared_and_never_folded(pack: Pack) -> None:
    torch.manual_seed(0)
    net, x = Memory(), torch.randn(4, 4)
    path = pack([aot_export(net, (x,), method="add"), aot_export(net, (x,), method="read")])
    constants = {constant.name: constant for constant in manifest_of(path).constants}
    assert constants["total"].mutated
    assert constants["calls"].mutated
    assert not any(c.sources == ("total",) and c.name != "total" for c in constants.values())
    model, reference = aotpack.load(path), net.double()
    first, second = model.context(), model.context()
    for seed in range(3):
        y = torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            assert_close(first.entry("add")(y), reference.add(in_double(y)))
            assert_close(first.entry("read")(y), reference.read(in_double(y)))
    assert torch.equal(second.entry("read")(x), torch.zeros(4, 4)), "the other context has seen no call"
    first.reset()
    assert torch.equal(first.entry("read")(x), torch.zeros(4, 4))


def test_the_reader_may_come_first(pack: Pack) -> None:
    net, x = Memory(), torch.randn(4, 4)
    path = pack([aot_export(net, (x,), method="read"), aot_export(net, (x,), method="add")])
    context = aotpack.load(path).context()
    context.entry("add")(x)
    net.add(x)
    with torch.no_grad():
        assert_close(context.entry("read")(x), net.read(x))


def test_entries_need_names_of_their_own(tmp_path: Path) -> None:
    program = aot_export(twin(), (torch.randn(1, 8, 4),))
    with pytest.raises(BuildError, match="two programs have the entry name 'forward'"):
        build_archive([program, program], tmp_path / "x.aotpack")
    with pytest.raises(BuildError, match="nothing to build"):
        build_archive([], tmp_path / "x.aotpack")


def test_one_update_reaches_all_entries(pack: Pack) -> None:
    net, x = twin(0), torch.randn(2, 8, 12)
    path = pack([aot_export(net, (x,)), aot_export(net, (x,), method="embed")], updatable=True)
    weights = manifest_of(path).weights
    assert weights is not None
    assert {t.name for t in weights.tensors} == set(net.state_dict())
    model, other = aotpack.load(path, verify="full"), twin(1)
    model.update_weights(other.state_dict())
    reference = other.double()
    with torch.no_grad():
        assert_close(model(x), reference(x.double()))
        assert_close(model.entry("embed")(x), reference.embed(x.double()))


def test_two_models_that_use_one_name_cannot_be_updated(tmp_path: Path) -> None:
    x = torch.randn(1, 8, 4)
    programs = [aot_export(twin(0), (x,)), aot_export(twin(1), (x,), method="embed")]
    with pytest.raises(BuildError, match=r"different tensors named 'conv\.weight'"):
        build_archive(programs, tmp_path / "x.aotpack", options=BuildOptions(updatable=True))


def test_two_models_in_a_frozen_archive(pack: Pack) -> None:
    x = torch.randn(1, 8, 4)
    first, second = twin(0), twin(1)
    model = aotpack.load(pack([aot_export(first, (x,)), aot_export(second, (x,), method="embed")]))
    with torch.no_grad():
        assert_close(model(x), first.double()(x.double()))
        assert_close(model.entry("embed")(x), second.double().embed(x.double()))


def test_the_source_is_freed_once_no_entry_needs_it(pack: Pack) -> None:
    net, x = twin(), torch.randn(2, 8, 12)
    expected = net.double()(x.double()).detach(), net.embed(x.double()).detach()
    net = twin()
    held = weakref.ref(net.hidden.weight.untyped_storage())
    programs = [aot_export(net, (x,), method="embed"), aot_export(net, (x,))]
    model = aotpack.load(pack(programs, free_source=True))
    gc.collect()
    assert net.hidden.weight.numel() == 0
    assert held() is None or held().nbytes() == 0
    with pytest.raises(SourceFreedError):
        net(x)
    assert_close(model.entry("forward")(x), expected[0])
    assert_close(model.entry("embed")(x), expected[1])


def test_constants_have_one_identity_however_they_are_captured() -> None:
    net, x = twin(), torch.randn(1, 8, 4)
    programs = [aot_export(net, (x,)), aot_export(net, (x,), method="embed"), aot_export(twin(), (x,))]
    identities = Identities()
    weights = [identities.number(program, "hidden.weight") for program in programs]
    assert weights[0] == weights[1] != weights[2]
    assert identities.number(programs[0], "hidden.bias") != weights[0]


def test_functions_are_equal_only_where_they_compute_the_same() -> None:
    def adds(number: float) -> Callable[[Tensor], Tensor]:
        return lambda t: t + number

    assert frozen(pack_linear) == frozen(pack_linear)
    assert frozen(partial(torch.add, alpha=2)) == frozen(partial(torch.add, alpha=2))
    assert frozen(partial(torch.add, alpha=2)) != frozen(partial(torch.add, alpha=2.0))
    assert frozen(adds(1.0)) == frozen(adds(1.0))
    assert frozen(adds(1.0)) != frozen(adds(2.0))
    assert frozen(adds(0.0)) != frozen(adds(-0.0))
    assert frozen(lambda t: t + 1) != frozen(lambda t: t + 2)
    assert frozen((1, True)) != frozen((True, 1))
    assert frozen({"a": [1]}) == frozen({"a": [1]})
    assert frozen({"a": [1]}) != frozen({"a": (1,)})
