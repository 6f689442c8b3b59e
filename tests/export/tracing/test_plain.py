"""Objects in arguments and results: an archive takes and returns plain containers in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

import aotpack
from aotpack import Dim
from aotpack.errors import CaptureError
from aotpack.export import aot_export
from aotpack.export.tracing.plain import from_plain, to_plain
from tests.support.building import Pack, assert_close

pytestmark = pytest.mark.torch


class Box:
    """A pytree node that names its children."""

    def __init__(self, low: Any, high: Any, unit: str = "m") -> None:
        self.low, self.high, self.unit = low, high, unit


class Bag:
    """A pytree node whose children have numbers."""

    def __init__(self, *items: Any) -> None:
        self.items = list(items)


@dataclass
class Answer:
    box: Box
    total: Tensor


for _cls, _flatten, _unflatten, _keyed in (
    (
        Box,
        lambda box: ([box.low, box.high], box.unit),
        lambda children, unit: Box(*children, unit=unit),
        lambda box: ([(pytree.GetAttrKey("low"), box.low), (pytree.GetAttrKey("high"), box.high)], box.unit),
    ),
    (Bag, lambda bag: (bag.items, None), lambda children, _: Bag(*children), None),
):
    pytree.register_pytree_node(_cls, _flatten, _unflatten, flatten_with_keys_fn=_keyed)


class Boxes(nn.Module):
    def forward(self, box: Box, bags: list[Bag], scale: float = 1.0) -> tuple[Answer, Bag]:
        assert isinstance(box, Box)
        assert box.unit == "km"
        items = [item for bag in bags for item in bag.items]
        grown = Box(box.low - scale, torch.cat([box.high, items[0]]), unit="m")
        return Answer(grown, sum(items, torch.zeros(()))), Bag(items[0] * 2, Bag(box.low))


def boxes(n: int) -> tuple[Box, list[Bag]]:
    return Box(torch.randn(n), torch.randn(n), "km"), [Bag(torch.randn(n), torch.randn(n)), Bag(torch.randn(n))]


@pytest.mark.parametrize(
    "value",
    [
        *((torch.ones(2), None), {"a": [1, "b"]}, (), [Bag()], Bag(Bag(1), [2, Box(3, None)])),
        {"x": Box(torch.ones(1), Bag(torch.zeros(1)), "cm"), "y": (Box(1, 2),)},
    ],
)
def test_there_and_back(value: Any) -> None:
    pytree.register_dataclass(Answer) if Answer not in pytree.SUPPORTED_NODES else None
    plain = to_plain(value)
    kinds = {type(node) for node in _nodes(plain)}
    assert kinds <= {tuple, list, dict, int, str, type(None), Tensor}
    assert pytree.tree_structure(from_plain(plain, value)) == pytree.tree_structure(value)
    assert all(a is b for a, b in zip(pytree.tree_leaves(plain), pytree.tree_leaves(value), strict=True))


def _nodes(value: Any) -> list[Any]:
    below = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [value, *(node for item in below for node in _nodes(item))]


def test_a_value_without_objects_stays_itself() -> None:
    value = ({"a": [torch.ones(1)]}, 3)
    assert to_plain(value) is value


def test_nodes_in_an_archive(pack: Pack) -> None:
    net, (box, bags) = Boxes(), boxes(3)
    n = Dim("n", 1, 8)
    shapes = {"box": {"low": {0: n}, "high": {0: "n"}}, "bags": [[{0: "n"}, {0: "n"}], [{0: "n"}]]}
    program = aot_export(net, (box, bags), dynamic_shapes=shapes, variants=[{"n": 1}, {}])
    assert str(program.signature).startswith("forward(box: {'low': float32[n], 'high': float32[n]}, bags: [[float32[n]")
    model = aotpack.load(pack(program))
    for size in (1, 2, 8):
        box, bags = boxes(size)
        answer, bag = model({"low": box.low, "high": box.high}, [item.items for item in bags])
        expected, expected_bag = net(box, bags)
        assert_close([answer.box["low"], answer.box["high"]], [expected.box.low, expected.box.high])
        assert_close(answer.total, expected.total)
        assert_close([bag[0], bag[1][0]], [expected_bag.items[0], expected_bag.items[1].items[0]])


class UnknownCache:
    def __init__(self, states: Tensor) -> None:
        self.states = states


def test_a_cache_that_torch_does_not_know() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, use_cache: bool = True) -> Any:
            return (x * 2, UnknownCache(x)) if use_cache else x * 2

    with pytest.raises(CaptureError, match="returns a UnknownCache") as caught:
        aot_export(Net(), (torch.ones(2),))
    assert "use_cache=False" in (caught.value.hint or "")
    aot_export(Net(), (torch.ones(2),), {"use_cache": False})


# ---- caches of transformers -----------------------------------------------------------------------------------------


def test_caches_there_and_back() -> None:
    transformers = pytest.importorskip("transformers")
    own, cross = transformers.DynamicCache(), transformers.DynamicCache()
    for layer in range(2):
        own.update(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4), layer)
        cross.update(torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4), layer)
    both = transformers.EncoderDecoderCache(own, cross)
    plain = to_plain((both,))[0]
    assert list(plain) == ["self_attention_cache", "cross_attention_cache"]
    assert list(plain["cross_attention_cache"]) == ["key_cache", "value_cache"]
    assert plain["cross_attention_cache"]["value_cache"][1] is cross.layers[1].values
    made = from_plain(plain, both)
    made.self_attention_cache.update(torch.randn(1, 2, 1, 4), torch.randn(1, 2, 1, 4), 0)
    made.is_updated[0] = False
    assert made.get_seq_length() == 4
    assert both.get_seq_length() == 3, "the example stays as it was"
    assert both.is_updated[0]
    assert to_plain(transformers.DynamicCache()) == {"key_cache": [], "value_cache": []}


def test_a_language_model_as_it_is_called(pack: Pack) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 16, "max_position_embeddings": 64}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
    net = transformers.LlamaForCausalLM(config).eval()
    ids = torch.randint(31, (2, 4))
    with torch.no_grad():
        past = net(ids).past_key_values
    axes = {0: Dim("b", 1, 4), 2: Dim("past", 1, 32)}
    shapes = {"input_ids": {0: axes[0]}, "past_key_values": {"key_cache": [axes] * 2, "value_cache": [axes] * 2}}
    example = {"input_ids": ids[:, :1], "past_key_values": past}
    programs = [
        aot_export(net, (ids,), dynamic_shapes={"input_ids": {0: axes[0], 1: Dim("n", 1, 32)}}, entry="prefill"),
        aot_export(net, (), example, dynamic_shapes=shapes, entry="decode"),
    ]
    model = aotpack.load(pack(programs))
    for batch, length in ((1, 1), (2, 7), (4, 32)):
        ids = torch.randint(31, (batch, length))
        got = model.entry("prefill")(ids)
        with torch.no_grad():
            expected = net(ids)
        for _ in range(3):
            assert_close(got.logits, expected.logits, 1e-3)
            assert set(got.past_key_values) == {"key_cache", "value_cache"}
            assert_close(got.past_key_values, to_plain(expected.past_key_values), 1e-3)
            if got.past_key_values["key_cache"][0].shape[2] == 32:
                break
            ids = expected.logits[:, -1:].argmax(-1)
            got = model.entry("decode")(input_ids=ids, past_key_values=got.past_key_values)
            with torch.no_grad():
                expected = net(ids, past_key_values=expected.past_key_values)
