"""What users may write for `dynamic_shapes`, and what each mistake gets."""

from __future__ import annotations

import dataclasses
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim as TorchDim

from aotpack import DYNAMIC, Dim
from aotpack.errors import CaptureError
from aotpack.export.capture.dynamic_shapes import Shapes, parse
from aotpack.export.capture.user_dims import LEAST
from aotpack.export.symbolic_shapes.declared import NUMBER
from aotpack.spec import DimRef


@dataclasses.dataclass
class Batch:
    ids: Tensor
    mask: Tensor


Pair = namedtuple("Pair", ["left", "right"])


def model(x: Tensor, y: Tensor, *rest: Tensor, n: int = 3, f: float = 0.5, flag: bool = True, **more: Tensor) -> Tensor:
    return x


X, Y = torch.zeros(4, 6), torch.zeros(8)


def read(shapes: Any, *args: Any, function: Callable[..., Any] = model, **kwargs: Any) -> Shapes:
    return parse(function, function, args or (X, Y), kwargs, shapes)


def names(shapes: Shapes) -> list[dict[int, str]]:
    return [{axis: str(ref) for axis, ref in sizes.items()} for sizes in shapes.declared.sizes]


def varying(shapes: Shapes, count: int) -> list[Any]:
    """The axes that torch may vary, for each leaf; "number" for an int."""
    leaves: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict) and all(isinstance(key, int) for key in value):
            leaves.append(sorted(value))
        elif isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                walk(item)
        else:
            leaves.append(None if value is None else "number")

    walk(shapes.torch)
    assert len(leaves) == count
    return leaves


BATCH = Dim("batch", 1, 64)


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: BATCH}, "y": {0: 2 * BATCH}},
        {"x": (BATCH, None), "y": [BATCH * 2]},
        ({0: BATCH, 1: 6}, {0: 2 * BATCH}),
        [{0: "batch", 1: TorchDim.STATIC}, {0: 2 * BATCH}],
        {"x": {0: TorchDim("batch", min=1, max=64), 1: "static"}, "y": {0: 2 * TorchDim("batch", min=1, max=64)}},
        {"y": {0: BATCH + 4}, "x": {0: BATCH}, "f": None},
    ],
)
def test_forms_of_one_thing(shapes: Any) -> None:
    result = read(shapes)
    plus = isinstance(shapes, dict) and "f" in shapes
    assert result.declared.sizes == ({0: DimRef("batch")}, {0: DimRef("batch", 1, 4) if plus else DimRef("batch", 2)})
    assert dict(result.declared.dims) == {"batch": BATCH}
    assert result.declared.explicit_min == {"batch"}
    assert varying(result, 2) == [[0], [0]]


def test_nothing_varies() -> None:
    for shapes in (None, {}, {"x": None}, (None, None), {"x": {}, "y": {0: None}}, {"x": {0: 4}, "y": (8,)}):
        result = read(shapes)
        assert result.torch is None
        assert names(result) == [{}, {}]


def test_auto() -> None:
    everything = read("auto", X, Y, n=3, f=0.5, flag=True)
    assert varying(everything, 5) == [[0, 1], [0], None, None, None]
    assert everything.numbers == {} and names(everything) == [{}] * 5 and not everything.demanded
    assert varying(read({"x": "auto"}), 2) == [[0, 1], None]
    assert varying(read({"x": {1: TorchDim.AUTO}}), 2) == [[1], None]
    nested = read({"x": "auto"}, {"a": X, "n": 3, "s": "text"}, Y)
    assert varying(nested, 4) == [[0, 1], None, None, None]
    assert nested.numbers == {}


def test_sizes_that_must_vary() -> None:
    result = read({"x": {0: DYNAMIC}, "y": {0: TorchDim.DYNAMIC}})
    assert result.demanded == {(0, 0), (1, 0)}
    bounded = read({"x": {0: TorchDim.DYNAMIC(min=2, max=9)}})
    assert names(bounded) == [{0: "x_0"}, {}]
    assert bounded.declared.dims["x_0"] == Dim("x_0", 2, 9)


def test_nested_structures() -> None:
    def nested(batch: Batch, states: list[Any], pair: Pair, extra: dict[str, Tensor]) -> Tensor:
        return batch.ids

    args = (Batch(torch.zeros(2, 3), torch.zeros(2)), [torch.zeros(2), (torch.zeros(5), 7)], Pair(X, None), {"a": Y})
    torch.export.register_dataclass(Batch)
    expected = [{0: "n", 1: "m"}, {0: "n"}, {}, {0: "k"}, {}, {1: "m+3"}, {}, {0: "n+6"}]
    m = Dim("m")
    pair = {"right": None, "left": {1: m + 3}}
    for shapes in (
        {"batch": {"ids": ("n", m), "mask": {0: "n"}}, "states": [None, ({0: "k"}, None)], "pair": pair}
        | {"extra": {"a": {0: Dim("n") + 6}}},
        (Batch(("n", m), ("n",)), {1: [("k",), None]}, Pair((None, m + 3), None), {"a": (Dim("n") + 6,)}),  # type: ignore[arg-type]
        {"batch.ids": ("n", m), "batch.mask": ("n",), "states.1.0": {0: "k"}, "pair.left": {1: m + 3}}
        | {"extra.a": {0: Dim("n") + 6}},
    ):
        result = read(shapes, *args, function=nested)
        assert names(result) == expected
        assert set(result.torch) == {"batch", "states", "pair", "extra"}


def test_more_arguments_than_parameters() -> None:
    z, w = torch.zeros(4), torch.zeros(6)
    for shapes in (
        {"rest": ({0: "b"}, None), "w": {0: "c"}},
        {"rest": ({0: "b"}, None), "more": {"w": {0: "c"}}},
        {"arg2": {0: "b"}, "w": ("c",)},
        (None, None, {0: "b"}, None, {0: "c"}),
        (None, None, ({0: "b"}, None), {0: "c"}),
    ):
        result = read(shapes, X, Y, z, z, w=w)
        assert names(result) == [{}, {}, {0: "b"}, {}, {0: "c"}]
        assert varying(result, 5) == [None, None, [0], None, [0]]


def test_numbers() -> None:
    result = read({"n": Dim("n", 0, 100), "f": DYNAMIC, "flag": DYNAMIC}, X, Y, n=3, f=0.5, flag=True)
    assert result.numbers == {2: "int", 3: "float", 4: "bool"}
    assert names(result) == [{}, {}, {NUMBER: "n"}, {}, {}]
    assert varying(result, 5) == [None, None, "number", None, None]
    for any_value in ("auto", DYNAMIC, TorchDim.DYNAMIC):
        assert dict(read({"n": any_value}, X, Y, n=-3).declared.dims) == {"n": Dim("n", LEAST)}
    assert dict(read({"n": "rows", "x": {0: "rows"}}, X, Y, n=4).declared.dims) == {"rows": Dim("rows")}
    assert read({"n": 3, "f": None}, X, Y, n=3).numbers == {}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (3, "dynamic_shapes is 3, a int"),
        ({"z": {0: "b"}}, "names 'z', which is not in the example call"),
        ({"n": "k"}, "names 'n', which is not in the example call"),
        ((None,), "has 1 elements, but the example call has 2 arguments"),
        ({"x": {2: "b"}}, "axis 2 of the input 'x', a tensor with 2 dims"),
        ({"x": {-1: "b"}}, "axis -1 of the input 'x'"),
        ({"x": {"0": "b"}}, "axis '0' of the input 'x'"),
        ({"x": ("b",)}, "has 1 sizes for the input 'x', a tensor with 2 dims"),
        ({"x": "batch"}, "dynamic_shapes of the input 'x' is 'batch', a str"),
        ({"x": {0: 5}}, "input 'x', axis 0 is 4 in the example call, but dynamic_shapes fixes it to 5"),
        ({"x": {0: 1.5}}, "input 'x', axis 0: 1.5, a float, is not a size"),
        ({"x": {0: True}}, "input 'x', axis 0: True, a bool, is not a size"),
        ({"x": {0: "a b"}}, "input 'x', axis 0: 'a b', a str, is not a size"),
        ({"x": {0: Dim("a b")}}, "'a b' cannot name a dim"),
        ({"x": {0: Dim("auto")}}, "'auto' cannot name a dim"),
        ({"x": {0: Dim("b", 5, 2)}}, "the range of the dim 'b' is empty: b in [5, 2]"),
        ({"x": {0: Dim("b", multiple_of=0)}}, "multiple_of of the dim 'b' is 0"),
        ({"x": {0: Dim("b", max=2.0)}}, "max of the dim 'b' is 2.0, which is not an int"),
        ({"x": {0: -1 * Dim("b")}}, "input 'x', axis 0: -1*b does not grow with 'b'"),
        ({"x": {0: Dim("b", 5)}}, "the dim 'b' is 4 in the example call (input 'x', axis 0), but b >= 5"),
        ({"x": {0: Dim("b", max=3)}}, "the dim 'b' is 4 in the example call (input 'x', axis 0), but b in [0, 3]"),
        ({"x": {0: Dim("b", multiple_of=3)}}, "which is not a multiple of 3"),
        ({"x": {0: 3 * Dim("b")}}, "input 'x', axis 0 is 4 in the example call, which is not 3*b"),
        ({"x": {0: Dim("b") + 9}}, "input 'x', axis 0 is 4 in the example call, which is not b+9"),
        ({"x": {0: "b"}, "y": {0: "b"}}, "input 'y', axis 0 is b = 8 in the example call, so 'b' is 8, but 4 by"),
        ({"x": {0: Dim("b", 1), 1: Dim("b", 2)}}, "input 'x', axis 1: there are two dims named 'b': b >= 1 and b >= 2"),
        ({"x": {"a": None}}, "axis 'a' of the input 'x'"),
    ],
)  # fmt: skip
def test_mistakes(shapes: Any, message: str) -> None:
    with pytest.raises(CaptureError, match=re.escape(message)):
        read(shapes)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"n": {0: "b"}}, "input 'n' is an int, but dynamic_shapes has {0: 'b'}"),
        ({"n": 2 * Dim("n")}, "input 'n' is 3 in the example call, which is not 2*n"),
        ({"n": 4}, "input 'n' is 3 in the example call, but dynamic_shapes fixes it to 4"),
        ({"n": Dim("n", multiple_of=3)}, "input 'n': the dim 'n' has multiple_of=3"),
        ({"n": Dim("n", 4)}, "the dim 'n' is 3 in the example call (input 'n'), but n >= 4"),
        ({"n": "b", "x": {0: "b"}}, "input 'n' is b = 3 in the example call, so 'b' is 3, but 4 by input 'x', axis 0"),
        ({"f": "auto"}, "input 'f' is a float, but dynamic_shapes has 'auto'"),
        ({"flag": Dim("b")}, "input 'flag' is a bool"),
        ({"note": "b"}, "dynamic_shapes has a dim for the input 'note', which is 'text', a str"),
        ({"tree": [None]}, "dynamic_shapes of 'tree' is [None], a list, but 'tree' is a list of 2"),
        ({"tree": {2: None}}, "dynamic_shapes of 'tree' names '2'"),
        ({"tree": {0: {0: "b"}}, "tree.0": {0: "b"}}, "contains the input 'tree.0' twice"),
    ],
)
def test_mistakes_with_numbers_and_structures(shapes: Any, message: str) -> None:
    def function(x: Tensor, tree: Any, n: int, f: float, flag: bool, note: str) -> Tensor:
        return x

    with pytest.raises(CaptureError, match=re.escape(message)):
        read(shapes, X, [Y, Y], 3, 0.5, True, "text", function=function)


def test_keyword_arguments_in_another_order() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, *, a: Tensor, b: Tensor) -> Tensor:
            return x + a.sum() + b.sum()

    from aotpack.export import aot_export

    call = {"b": torch.zeros(5, 2), "a": torch.zeros(7)}
    program = aot_export(Model(), (X,), call, dynamic_shapes={"b": {0: "rows"}, "a": {0: "length"}})
    assert {spec.name: spec.shape for spec in program.signature.inputs} == {
        "x": (4, 6),
        "a": (DimRef("length"),),
        "b": (DimRef("rows"), 2),
    }
