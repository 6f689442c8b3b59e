"""What the manifest may say of dims, sizes, numbers and variants; each thing that it may not has its own error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aotpack.archive import decode_manifest, encode_manifest, read_manifest, write_archive
from aotpack.archive.encode import canonical
from aotpack.errors import MalformedArchiveError
from aotpack.spec import Check, Dim, Expr
from tests.support.archives import build_manifest
from tests.support.recipes import RECIPES

Change = Callable[[dict[str, Any]], Any]


def entry_of(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.aotpack"
    if not path.exists():
        write_archive(path, *build_manifest(RECIPES[name], b"code"))
    value: dict[str, Any] = json.loads(encode_manifest(read_manifest(path)))
    return value


def put(*path: Any) -> Change:
    """Sets the value at a path below the entry; the last one is the value."""

    def change(entry: dict[str, Any]) -> None:
        at: Any = entry
        for key in path[:-2]:
            at = at[key]
        at[path[-2]] = path[-1]

    return change


def code(items: list[Any]) -> Change:
    return put("variants", 0, "checks", [{"text": "the check", "code": items}])


BATCH = {"dim": "batch", "mul": 1, "add": 0}

CASES: dict[str, tuple[str, Change, str]] = {
    # dims
    "multiple of 0": ("sizes", put("dims", 1, "multiple_of", 0), "dims[1].multiple_of: 0 is not in"),
    "multiple missing": ("sizes", lambda e: e["dims"][1].pop("multiple_of"), "the key 'multiple_of' is missing"),
    "max below min": ("sizes", put("dims", 0, "max", 0), "dims[0].max: 0 is less than the least, 1"),
    "negative size": ("numbers", put("dims", 0, "min", -1), "dims[0].min: -1 is negative, but no int gives the dim"),
    "guard of no dim": ("variants", put("variants", 0, "guards", 0, "dim", "size"), "there is no dim 'size'"),
    "guard by multiples of 0": ("variants", put("variants", 1, "guards", 0, "multiple_of", 0), "multiple_of: 0"),
    "same of one": ("same", put("variants", 0, "same", [[0]]), "variants[0].same[0]: has less than two inputs"),
    "same in disorder": ("same", put("variants", 0, "same", [[1, 0]]), "same[0]: not in ascending order"),
    "same twice": ("same", put("variants", 0, "same", [[0, 1], [1, 2]]), "same[1]: 'b' is in two groups"),
    "same of no input": ("same", put("variants", 0, "same", [[0, 3]]), "same[0][1]: index 3 is out of range"),
    "same dtype": ("same", put("inputs", 1, "dtype", "int32"), "'a' and 'b' differ in dtype, order or device"),
    "same order": ("same", put("inputs", 1, "order", [1, 0]), "'a' and 'b' differ in dtype, order or device"),
    "same device": ("same", put("inputs", 1, "device", None), "'a' and 'b' differ in dtype, order or device"),
    "same number": ("numbers", put("variants", 0, "same", [[0, 1]]), "is a number"),
    # sizes
    "input out of the data": ("sizes", put("inputs", 2, "shape", 0, "code", None), "only outputs may have sizes"),
    "input's code missing": ("sizes", lambda e: e["inputs"][2]["shape"][0].pop("code"), "the key 'code' is missing"),
    "text of a size": ("sizes", put("inputs", 2, "shape", 0, "expr", ""), "shape[0].expr: empty"),
    "size that is no int": ("sizes", put("outputs", 1, "shape", 0, "code", [1.5]), "expected an integer, got a number"),
    "size that is a float": ("sizes", put("outputs", 1, "shape", 0, "code", [{"float": 2}]), "float instead of int"),
    "size that is a bool": ("sizes", put("inputs", 2, "shape", 0, "code", [True]), "code: bool instead of int"),
    # codes
    "empty code": ("sizes", code([]), "checks[0].code: leaves 0 values"),
    "check that is an int": ("sizes", code(["$batch"]), "int instead of bool"),
    "unknown operator": ("sizes", code(["$batch", 1, "<<"]), "item 2: unknown operator '<<'"),
    "operands of a wrong type": ("sizes", code(["$batch", True, "=="]), "item 2: '==' of int, bool"),
    "too few operands": ("sizes", code(["$batch", "=="]), "item 1: '==' needs 2 operands"),
    "too many values": ("sizes", code([True, True]), "leaves 2 values"),
    "code of no dim": ("sizes", code(["$size", 1, "=="]), "item 0: there is no dim 'size'"),
    "code too long": ("sizes", code([True] + ["not"] * 256), "257 items"),
    "code too deep": ("sizes", code([True] * 33 + ["and"] * 32), "more than 32 values"),
    "code of null": ("sizes", code([None]), "code[0]: expected an integer, got null"),
    "code of a list": ("sizes", code([[]]), "code[0]: expected an integer, got a list"),
    "float of a string": ("sizes", code([{"float": "1"}]), "expected a number, got a string"),
    "float of two keys": ("sizes", code([{"float": 1, "int": 1}]), "unknown key 'int'"),
    "int beyond 64 bits": ("sizes", code([2**63, 1, "=="]), "is not in"),
    "code that is no list": ("sizes", put("variants", 0, "checks", 0, "code", "$batch"), "expected a list"),
    "text of a check": ("sizes", put("variants", 0, "checks", 0, "text", ""), "checks[0].text: empty"),
    # numbers
    "unknown number": ("numbers", put("inputs", 1, "number", "complex"), "'complex' is not one of int, float, bool"),
    "number of another dtype": ("numbers", put("inputs", 2, "dtype", "float32"), "number: float is float64 of rank 0"),
    "int of another dtype": ("numbers", put("outputs", 1, "dtype", "int32"), "number: int is int64 of rank 0"),
    "bool of another dtype": ("numbers", put("outputs", 3, "dtype", "uint8"), "number: bool is bool of rank 0"),
    "number with a shape": (
        "numbers",
        lambda e: e["inputs"][2].update(shape=[1], order=[0]),
        "not float64 of rank 1",
    ),
    "dim of a float": ("numbers", put("inputs", 2, "dim", "n"), "only an input that is an int gives a dim"),
    "dim of a tensor": ("numbers", put("inputs", 0, "dim", "n"), "only an input that is an int gives a dim"),
    "dim of an output": ("numbers", put("outputs", 1, "dim", "n"), "only an input that is an int gives a dim"),
    "number of no dim": ("numbers", put("inputs", 1, "dim", "m"), "there is no dim 'm'"),
    "formula of no dim": (
        "numbers",
        put("inputs", 1, "dim", {"dim": "m", "mul": 2, "add": 0}),
        "there is no dim 'm'",
    ),
    "formula that is a dim": (
        "numbers",
        put("inputs", 1, "dim", {"dim": "n", "mul": 1, "add": 0}),
        "a plain dim is given by its name",
    ),
    "formula alone": (
        "numbers",
        put("inputs", 1, "dim", {"dim": "n", "mul": 2, "add": 0}),
        "the dim 'n' is used, but no input determines it",
    ),
    "formula of a float": (
        "numbers",
        put("inputs", 2, "dim", {"dim": "n", "mul": 2, "add": 0}),
        "only an input that is an int gives a dim",
    ),
    "formula out of the data": (
        "numbers",
        put("inputs", 1, "dim", {"expr": "n", "code": None}),
        "sizes out of the data",
    ),
    "number that is mutated": ("numbers", put("inputs", 1, "mutated", True), "mutated: a number cannot be mutated"),
    # dims without a value
    "output's dim": ("numbers", put("inputs", 1, "dim", None), "the dim 'n' is used, but no input determines it"),
    "check's dim": ("sizes", lambda e: _undetermined(e, code(["$free", 1, "=="])), "the dim 'free' is used"),
    "size's dim": (
        "sizes",
        lambda e: _undetermined(e, put("inputs", 2, "shape", 0, "code", ["$free"])),
        "the dim 'free' is used",
    ),
    "output size's dim": (
        "sizes",
        lambda e: _undetermined(e, put("outputs", 1, "shape", 0, "code", ["$free"])),
        "the dim 'free' is used",
    ),
    "guard's dim": (
        "variants",
        lambda e: _undetermined(e, put("variants", 0, "guards", 0, "dim", "free")),
        "the dim 'free' is used",
    ),
}


def _undetermined(entry: dict[str, Any], change: Change) -> None:
    entry["dims"].append({"name": "free", "min": 0, "max": None, "multiple_of": 1})
    change(entry)


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    name, change, message = CASES[case]
    manifest = entry_of(name, tmp_path)
    before = copy.deepcopy(manifest)
    change(manifest["entries"][0])
    assert manifest != before
    with pytest.raises(MalformedArchiveError) as info:
        decode_manifest(canonical(manifest))
    assert message in str(info.value)
    assert "manifest: entries[0]." in str(info.value)


def test_a_dim_that_nothing_uses_needs_no_input(tmp_path: Path) -> None:
    manifest = entry_of("sizes", tmp_path)
    _undetermined(manifest["entries"][0], lambda entry: None)
    assert decode_manifest(canonical(manifest)).entries[0].dims[-1] == Dim("free")


def test_a_dim_that_a_number_gives_may_be_negative(tmp_path: Path) -> None:
    manifest = entry_of("numbers", tmp_path)
    manifest["entries"][0]["dims"][1]["min"] = -5
    assert decode_manifest(canonical(manifest)).entries[0].dims[1] == Dim("n", -5, 10)


def test_a_number_too_large_for_a_double(tmp_path: Path) -> None:
    data = canonical(entry_of("numbers", tmp_path)).replace(b'"tolerance":0.0001', b'"tolerance":1e9999')
    with pytest.raises(MalformedArchiveError, match="1e9999 is out of range"):
        decode_manifest(data)


def test_values_come_back(tmp_path: Path) -> None:
    entry_of("sizes", tmp_path)
    entry = read_manifest(tmp_path / "sizes.aotpack").entries[0]
    assert entry.dims[1] == Dim("length", 0, 512, 4)
    assert entry.inputs[2].shape == (Expr("batch*length", ("$batch", "$length", "*")),)
    assert entry.variants[0].checks == (Check("batch*length <= 1024", ("$batch", "$length", "*", 1024, "<=")),)
    entry_of("variants", tmp_path)
    mixed = read_manifest(tmp_path / "variants.aotpack").entries[0].variants[2].checks[1].code
    assert [type(item) for item in mixed] == [str, str, float, str, str, int, str, bool, str]
    entry_of("numbers", tmp_path)
    entry = read_manifest(tmp_path / "numbers.aotpack").entries[0]
    assert [value.number for value in entry.inputs] == [None, "int", "float", "bool"]
    assert entry.inputs[1].dim == "n"
    assert str(entry.signature) == (
        "forward(x: float32[rows], n: int[n], *, scale: float, flag: bool) -> "
        "{'y': float64[n], 'total': int, 'product': float, 'other': bool} where rows >= 0, n in [1, 10]"
    )
