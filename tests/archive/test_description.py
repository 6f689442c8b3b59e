"""The description of programs: written and read back, and refused in every other form."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from aotpack.archive.description import (
    MAX_BYTES,
    DescribedBlock,
    DescribedNode,
    DescribedStep,
    DescribedValue,
    DescribedVariant,
    encode_description,
    parse_description,
)
from aotpack.errors import MalformedArchiveError

VALUE = DescribedValue("float32", ("batch", 4), "cpu")
NODES = (
    DescribedNode("x", "input", "x", "", (), (VALUE,), (), None),
    DescribedNode("cond", "call", "cond", "a.b", (0,), (VALUE, DescribedValue("int", (), "")), ("true_graph_0",), 1),
    DescribedNode("output", "output", "", "", (1,), (), (), None),
    DescribedNode("mm", "call", "aten.mm", "a.b", (0,), (VALUE,), (), None, sequence=7, backward_of="aten.linear"),
)
STEP = DescribedStep(((1,), ()), (DescribedBlock("buf0", 16, 0, 1, True),))
GOOD = {"forward": {"default": DescribedVariant({"": "Model", "a.b": "Linear"}, NODES, {"x86-64-v3": (STEP,)})}}


def test_it_comes_back() -> None:
    assert parse_description(encode_description(GOOD)) == GOOD


def test_format_8_says_nothing_of_the_backward() -> None:
    value = json.loads(zlib.decompress(encode_description(GOOD)))
    for node in value["entries"]["forward"]["default"]["nodes"]:
        del node["sequence"], node["backward_of"]
    (read,) = parse_description(zlib.compress(json.dumps(value).encode()), 8).values()
    assert [node.backward_of for node in read["default"].nodes] == [""] * 4


def test_equal_descriptions_have_equal_bytes() -> None:
    turned = copy.deepcopy(GOOD)
    variant = turned["forward"]["default"]
    turned["forward"]["default"] = DescribedVariant({"a.b": "Linear", "": "Model"}, variant.nodes, variant.targets)
    assert encode_description(turned) == encode_description(GOOD)


def test_what_there_is_to_say_of_several_values() -> None:
    node = NODES[1]
    assert (node.shapes, node.dtypes, node.devices) == ("[batch, 4], ", "float32, int", "cpu, ")
    alike = DescribedNode("n", "call", "f", "", (), (VALUE, VALUE), (), None)
    assert (alike.shapes, alike.dtypes) == ("[batch, 4]", "float32")


def changed(change: Callable[[Any], object]) -> bytes:
    value = json.loads(zlib.decompress(encode_description(GOOD)))
    change(value["entries"]["forward"]["default"])
    return zlib.compress(json.dumps(value).encode())


def node(variant: Any) -> Any:
    return variant["nodes"][1]


def step(variant: Any) -> Any:
    return variant["targets"]["x86-64-v3"][0]


WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "a key is missing": (lambda v: v.pop("nodes"), "the key 'nodes' is missing"),
    "an unknown key": (lambda v: v.update(more=1), "unknown key 'more'"),
    "a list of modules": (lambda v: v.update(modules=[]), "modules: expected an object"),
    "an unknown kind": (lambda v: node(v).update(kind="loop"), "'loop' is not one of input, constant, call, output"),
    "a node that is not there": (lambda v: node(v).update(inputs=[4]), "index 4 is out of range: there are 4 nodes"),
    "a negative index": (lambda v: node(v).update(inputs=[-1]), "index -1 is out of range"),
    "a bool as an index": (lambda v: node(v).update(inputs=[True]), "expected an integer, got true or false"),
    "a size of the wrong type": (lambda v: node(v)["values"][0].update(shape=[1.5]), "expected an integer"),
    "a negative size": (lambda v: node(v)["values"][0].update(shape=[-1]), "-1 is not in [0,"),
    "a negative stage": (lambda v: node(v).update(stage=-1), "stage: -1 is not in [0,"),
    "a sequence that is no number": (lambda v: node(v).update(sequence="1"), "sequence: expected an integer"),
    "a negative sequence": (lambda v: node(v).update(sequence=-1), "sequence: -1 is not in [0,"),
    "backward of a number": (lambda v: node(v).update(backward_of=1), "backward_of: expected a string"),
    "a kernel of an unknown node": (lambda v: step(v)["kernels"].append([9]), "index 9 is out of range"),
    "a block of an unknown kernel": (lambda v: step(v)["blocks"][0].update(last=2), "there are 2 kernels"),
    "a block that ends before it begins": (lambda v: step(v)["blocks"][0].update(first=1, last=0), "from the kernel 1"),
    "an output that is a number": (lambda v: step(v)["blocks"][0].update(output=1), "expected true or false"),
    "a name that is a number": (lambda v: node(v).update(name=1), "expected a string"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_refused(name: str) -> None:
    change, message = WRONG[name]
    with pytest.raises(MalformedArchiveError) as info:
        parse_description(changed(change))
    assert message in str(info.value)
    assert "description: entries.forward.default" in str(info.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zlib.compress(b"{"),
        zlib.compress(b"[]"),
        zlib.compress(b"\xff"),
        encode_description(GOOD)[:-1],
        encode_description(GOOD) + b"x",
        zlib.compress(b"[" * 100_000),
    ],
    ids=["empty", "not compressed", "cut JSON", "no object", "not UTF-8", "cut", "more behind it", "deep"],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedArchiveError, match="description"):
        parse_description(data)


def test_a_bomb_does_not_fill_the_memory() -> None:
    compress = zlib.compressobj(9)
    bomb = b"".join(compress.compress(bytes(1 << 20)) for _ in range((MAX_BYTES >> 20) + 1)) + compress.flush()
    assert len(bomb) < 1 << 20
    with pytest.raises(MalformedArchiveError, match="at most"):
        parse_description(bomb)
