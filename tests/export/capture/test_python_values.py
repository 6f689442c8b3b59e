"""Arguments and results that torch.export knows, or users pass, beside tensors and plain numbers."""

from __future__ import annotations

import collections
import enum
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aotpack.errors import CaptureError, InputError
from aotpack.export import aot_export
from aotpack.runtime.structure import flatten, unflatten
from aotpack.spec import name_of_value
from tests.support.building import Build, assert_close

pytestmark = pytest.mark.torch


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Size(enum.IntEnum):
    SMALL = 2
    LARGE = 3


class Word(enum.StrEnum):
    YES = "yes"


def _all(
    x: Tensor,
    dtype: torch.dtype,
    device: torch.device,
    how: dict[str, Any],
    shape: torch.Size,
    *,
    word: Word = Word.YES,
) -> dict[str, Any]:
    y = x.to(dtype).to(device) * how["size"]
    if how["color"] is Color.RED and word is Word.YES:
        y = y + 1
    result: dict[str, Any] = collections.defaultdict(list, y=y.reshape(shape), size=x.shape)
    result["ordered"] = collections.OrderedDict(b=y.sum(), a=x.contiguous(memory_format=how["format"]))
    return result


def _call() -> tuple[Tensor, torch.dtype, torch.device, dict[str, Any], torch.Size]:
    how = collections.OrderedDict(size=Size.LARGE, color=Color.RED, format=torch.contiguous_format)
    return torch.randn(2, 3), torch.float64, torch.device("cpu"), how, torch.Size([3, 2])


def test_values_are_constants_by_name(build: Build) -> None:
    args = _call()
    archive = build(_all, args, {"word": Word.YES})
    expected = _all(*args)
    actual = archive(*args, word=Word.YES)
    assert_close(actual, expected)
    assert (list(actual), actual["size"], list(actual["ordered"])) == (list(expected), (2, 3), ["b", "a"])
    # Where torch and the enum are not at hand, names do.
    named = (args[0], "torch.float64", "cpu", {"size": "Size.LARGE", "color": "Color.RED"}, (3, 2))
    named[3]["format"] = "torch.contiguous_format"  # type: ignore[index]
    assert_close(archive(*named, word="Word.YES"), expected)
    for position, wrong in ((1, torch.float32), (1, "float64"), (2, torch.device("meta")), (4, (2, 3))):
        with pytest.raises(InputError):
            archive(*args[:position], wrong, *args[position + 1 :], word=Word.YES)
    for key, other in (("size", Size.SMALL), ("size", 3), ("color", Color.BLUE), ("color", 1)):
        with pytest.raises(InputError, match=key):
            archive(*args[:3], {**args[3], key: other}, args[4], word=Word.YES)


def test_structures_alone() -> None:
    program = aot_export(_all, _call(), {"word": Word.YES})
    spec = program.signature.in_spec
    args = _call()
    assert flatten(spec, args, {"word": Word.YES}) == [args[0]]
    assert unflatten(program.signature.out_spec, ["y", "b", "a"])["size"] == (2, 3)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Color.RED, "Color.RED"),
        (Size.SMALL, "Size.SMALL"),
        (Word.YES, "Word.YES"),
        (torch.bfloat16, "torch.bfloat16"),
        (torch.device("cpu"), "cpu"),
        (torch.strided, "torch.strided"),
        (torch.channels_last, "torch.channels_last"),
        (3, None),
        ("Color.RED", None),
        (None, None),
        (torch.ones(1), None),
    ],
)
def test_names(value: object, name: str | None) -> None:
    assert name_of_value(value) == name


class Odd(enum.Enum):
    PAIR = (1, 2)


class Nothing(enum.Enum):
    NONE = None
    NAN = float("nan")


def _results(x: Tensor) -> dict[str, Any]:
    return {
        "y": x + 1,
        "dtype": x.dtype,
        "device": x.device,
        "layout": x.layout,
        "list": [torch.channels_last, Color.BLUE, Size.LARGE, Word.YES, Nothing.NONE],
    }


def test_results_are_constants() -> None:
    program = aot_export(_results, (torch.ones(2),))
    result = unflatten(program.signature.out_spec, ["y"])
    assert result == {
        "y": "y",
        "dtype": "torch.float32",
        "device": "cpu",
        "layout": "torch.strided",
        "list": ["torch.channels_last", 2, 3, "yes", None],
    }
    assert [type(value) for value in result["list"][1:4]] == [int, int, str]


def test_results_that_archives_cannot_return() -> None:
    with pytest.raises(CaptureError, match=r"output\[1\]\['v'\] is Odd.PAIR, .* value is a tuple, which an archive"):
        aot_export(lambda x: (x + 1, {"v": Odd.PAIR}), (torch.ones(2),))


# ---- keys of dicts --------------------------------------------------------------------------------------------------


def _keyed(layers: dict[Any, Any], by_color: dict[Color, Tensor]) -> dict[Any, Any]:
    first, last = layers[0]["x"], layers[-7]
    return {
        0: first + last,
        "0": {Color.RED: by_color[Color.BLUE] * 2, Word.YES: first - last},
        2**62: [first.sum()],
        Size.LARGE: by_color[Color.RED],
    }


def test_keys_are_strings_and_ints(build: Build) -> None:
    args = {0: {"x": torch.randn(3)}, -7: torch.randn(3)}, {Color.RED: torch.randn(2), Color.BLUE: torch.randn(2)}
    archive = build(_keyed, args, dynamic_shapes={"layers": {0: {"x": {0: "n"}}, -7: {0: "n"}}, "by_color": None})
    for n in (3, 1, 2, 5):
        given = {0: {"x": torch.randn(n)}, -7: torch.randn(n)}, {Color.RED: torch.randn(2), Color.BLUE: torch.randn(2)}
        expected = _keyed(*given)
        by_value = {member.value: tensor for member, tensor in given[1].items()}
        for call in (given, (dict(reversed(given[0].items())), by_value)):
            actual = archive(*call)
            assert list(actual) == [0, "0", 2**62, 3]
            assert list(actual["0"]) == [1, "yes"]
            assert {type(key) for key in actual} == {int, str}
            assert_close(actual, expected)
    names = [value.name for value in archive.signature.inputs]
    assert names == ["layers.0.x", "layers.-7", "by_color.1", "by_color.2"]
    x = torch.randn(2)
    for wrong, text in [
        ({1: x}, "lacks the key 2"),
        ({1: x, 2: x, 3: x}, "unknown key 3"),
        ({1: x, 2: x, "2": x}, "unknown key '2'"),
        ({1: x, 2: x, Color.RED: x}, "unknown key"),
        ({1: x, 2: x, (1, 2): x, 2.5: x}, "unknown key"),
        ({"1": x, "2": x}, "lacks the key 1"),
    ]:
        with pytest.raises(InputError, match=text):
            archive(given[0], wrong)


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((1.5,), "got 1.5"),
        ((True,), "got True"),
        (((1, 2),), r"got \(1, 2\)"),
        ((2**63,), "got 9223372036854775808"),
        ((Odd.PAIR,), "got <Odd.PAIR"),
        ((1, Color.RED), "the keys 1 and <Color.RED: 1> of a dict are the same"),
    ],
)
def test_keys_that_archives_cannot_have(keys: tuple[Any, ...], text: str) -> None:
    with pytest.raises(CaptureError, match=rf"the result, at \[1\]: .*{text}"):
        aot_export(lambda x: (x, dict.fromkeys(keys, x + 1)), (torch.ones(2),))
    with pytest.raises(CaptureError, match=rf"argument 0, at \[0\]\['a'\]: .*{text}"):
        aot_export(lambda d: next(iter(d[0]["a"].values())) + 1, ([{"a": {key: torch.ones(2) for key in keys}}],))


def test_variants_get_the_objects() -> None:
    program = aot_export(
        lambda x, color: x * (2 if color is Color.RED else 3),
        (torch.ones(4, 3), Color.RED),
        dynamic_shapes={"x": {0: "batch"}, "color": None},
        variants=[{"batch": 1}, {}],
    )
    assert len(program.variants) == 2


# ---- tensors that were made in inference mode -----------------------------------------------------------------------


def test_models_and_inputs_of_inference_mode(build: Build) -> None:
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()
        model.append(model[0])
        model[2] = nn.Identity()
        x = torch.randn(2, 4)
        expected = model(x).clone()
    weight = model[0].weight
    archive = build(model, (x,))
    assert model[0].weight is weight
    assert weight.is_inference()
    assert_close(archive(torch.tensor(x.tolist())), torch.tensor(expected.tolist()))


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_collections_of_shapes() -> None:
    x, batch = torch.randn(3, 4), {"y": torch.randn(3, 5)}
    shapes = torch.export.ShapesCollection()
    dim = torch.export.Dim("b", min=1, max=9)
    shapes[x] = {0: dim}
    shapes[batch["y"]] = {0: dim}
    program = aot_export(lambda x, batch: x.sum() + batch["y"].sum(1), (x, batch), dynamic_shapes=shapes)
    assert [str(value) for value in program.signature.inputs] == ["float32[b, 4]", "float32[b, 5]"]
    more = torch.export.AdditionalInputs()
    more.add((torch.randn(7, 4), {"y": torch.randn(7, 5)}))
    program = aot_export(lambda x, batch: x.sum() + batch["y"].sum(1), (x, batch), dynamic_shapes=more)
    assert all(not isinstance(value.shape[0], int) for value in program.signature.inputs)
    assert [value.shape[1] for value in program.signature.inputs] == [4, 5]
    shapes[torch.ones(2)] = {0: dim}
    with pytest.raises(CaptureError, match="ShapesCollection does not match"):
        aot_export(lambda x, batch: x, (x, batch), dynamic_shapes=shapes)


# ---- weights of rare dtypes -----------------------------------------------------------------------------------------

_RARE = (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2)


class Rare(nn.Module):
    """Weights that are stored in dtypes which nothing computes in: they are cast before they are used."""

    def __init__(self) -> None:
        super().__init__()
        for i, dtype in enumerate(_RARE):
            self.register_buffer(f"w{i}", (torch.arange(8) % 5).float().to(dtype).reshape(2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(x * getattr(self, f"w{i}").to(torch.float32) for i in range(len(_RARE)))


def test_weights_of_rare_dtypes(build: Build) -> None:
    model, x = Rare(), torch.randn(2, 4)
    assert_close(build(model, (x,))(x), model(x))
