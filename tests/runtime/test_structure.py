"""Nested arguments to flat tensors and back, without an archive."""

from __future__ import annotations

import sys
from collections import namedtuple
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from aotpack.errors import InputError
from aotpack.runtime.structure import flatten, unflatten
from aotpack.spec import (
    CallSpec,
    DataclassSpec,
    DictSpec,
    ListSpec,
    NamedTupleSpec,
    Spec,
    TensorLeaf,
    TupleSpec,
    ValueLeaf,
)

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Box:
    low: Any
    high: Any = None


T = TensorLeaf
SPEC = CallSpec(
    args=(
        T(0),
        TupleSpec((T(2), ValueLeaf(1.5))),
        DictSpec(("ids", "mask"), (T(1), ListSpec((T(3),)))),
    ),
    names=("x", "pair", None),
    kwargs_keys=("point", "box"),
    kwargs_items=(
        NamedTupleSpec(f"{__name__}:Point", ("x", "y"), (T(4), ValueLeaf(None))),
        DataclassSpec(f"{__name__}:Box", ("low", "high"), (T(5), T(6))),
    ),
)
ARGS = ("a", ("c", 1.5), {"ids": "b", "mask": ["d"]})
KWARGS = {"point": Point("e", None), "box": Box("f", "g")}


def test_flatten() -> None:
    assert flatten(SPEC, ARGS, KWARGS) == list("abcdefg")
    # Lists pass for tuples; a dict's order does not matter; any object with the fields is a dataclass.
    other = {"box": type("Other", (), {"low": "f", "high": "g"})(), "point": Point("e", None)}
    assert flatten(SPEC, ("a", ["c", 1.5], {"mask": ("d",), "ids": "b"}), other) == list("abcdefg")


def test_positional_by_name() -> None:
    spec = CallSpec((T(0), T(1)), ("x", "y"))
    assert flatten(spec, ("a",), {"y": "b"}) == ["a", "b"]
    assert flatten(spec, (), {"y": "b", "x": "a"}) == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        (ARGS[:2], KWARGS, "argument '#2' is missing"),
        ((*ARGS, "x"), KWARGS, "accepts 3 positional arguments, got 4"),
        (ARGS, {"point": KWARGS["point"]}, "argument 'box' is missing"),
        (ARGS, KWARGS | {"more": 1}, "unknown argument 'more'"),
        (ARGS, KWARGS | {"x": 1}, "'x' is passed twice"),
        (("a", "c", ARGS[2]), KWARGS, r"'pair' must be a tuple, got 'c'"),
        (("a", ("c",), ARGS[2]), KWARGS, "'pair' must have 2 items, got 1"),
        (("a", ("c", 2.5), ARGS[2]), KWARGS, r"'pair\[1\]' must be 1.5, .*got 2.5"),
        (("a", ("c", object()), ARGS[2]), KWARGS, r"'pair\[1\]' must be 1.5, .*got a object"),
        ((*ARGS[:2], 5), KWARGS, "'#2' must be a dict, got 5"),
        ((*ARGS[:2], {"ids": "b"}), KWARGS, "'#2' lacks the key 'mask'"),
        ((*ARGS[:2], ARGS[2] | {"z": 0}), KWARGS, "'#2' has the unknown key 'z'"),
        ((*ARGS[:2], {"ids": "b", "mask": []}), KWARGS, r"#2\['mask'\]. must have 1 item, got 0"),
        (ARGS, KWARGS | {"point": Point("e", 0)}, "'point.y' must be None"),
        (ARGS, KWARGS | {"box": "f"}, "'box' must be a Box; 'f' has no field 'low'"),
    ],
)
def test_wrong_arguments(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        flatten(SPEC, args, kwargs)


@pytest.mark.parametrize(
    ("expected", "given", "same"),
    [(1, 1, True), (1, 1.0, False), (1, True, False), (0.0, 0.0, True), (None, None, True), ("a", "a", True),
     ("a", "b", False), (float("nan"), float("nan"), True), (float("inf"), float("inf"), True), (True, True, True)],
)  # fmt: skip
def test_constants(expected: Any, given: Any, same: bool) -> None:
    spec = CallSpec((ValueLeaf(expected),), ("value",))
    if same:
        assert flatten(spec, (given,), {}) == []
    else:
        with pytest.raises(InputError, match="'value' must be"):
            flatten(spec, (given,), {})


def test_unflatten() -> None:
    spec = DictSpec(("a", "b"), (TupleSpec((T(1), ValueLeaf(None))), ListSpec((T(0), T(1)))))
    assert unflatten(spec, ["x", "y"]) == {"a": ("y", None), "b": ["x", "y"]}


def test_unflatten_makes_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "here", sys.modules[__name__])
    assert unflatten(NamedTupleSpec("here:Point", ("x", "y"), (T(0), T(1))), [1, 2]) == Point(1, 2)
    assert unflatten(DataclassSpec("here:Box", ("low",), (T(0),)), [1]) == Box(1)


@pytest.mark.parametrize(
    "spec",
    [
        NamedTupleSpec("not.there:Point", ("x", "y"), (T(0), T(1))),
        NamedTupleSpec("here:Box", ("x", "y"), (T(0), T(1))),
        DataclassSpec("here:missing.Name", ("x", "y"), (T(0), T(1))),
        DataclassSpec("here:Box", ("x", "y"), (T(0), T(1))),
        DataclassSpec("os:system", ("x", "y"), (T(0), T(1))),
        DataclassSpec("here:Explodes", ("x", "y"), (T(0), T(1))),
    ],
)
def test_unflatten_stands_in_for_what_it_must_not_make(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("here")

    class Explodes:
        def __init__(self, x: Any, y: Any) -> None:
            raise AssertionError("an archive chose what is called")

    module.Box, module.Explodes = Box, Explodes  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "here", module)
    result = unflatten(spec, [1, 2])
    assert isinstance(result, tuple)
    assert (result.x, result.y) == (1, 2)  # type: ignore[attr-defined]
    assert type(result) is not Point
