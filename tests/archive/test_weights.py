"""`weights` and `report` of a manifest: what must hold between tensors, constants and the fold, in both readers."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotpack
from aotpack.archive import ArchiveReader, FileSource, decode_manifest, encode_manifest, read_manifest
from aotpack.archive.encode import canonical
from aotpack.errors import MalformedArchiveError, MissingWeightsError
from tests.archive.test_agreement import pack, verdict

Change = Callable[[dict[str, Any]], Any]
EMPTY = hashlib.sha256().hexdigest()


def tensors(manifest: dict[str, Any]) -> Any:
    return manifest["weights"]["tensors"]


def fold(manifest: dict[str, Any]) -> Any:
    return next(entry for entry in manifest["entries"] if entry["name"] == "fold")


def reshape(value: dict[str, Any], shape: list[int], **changes: Any) -> None:
    value.update(shape=shape, order=list(range(len(shape))), **changes)


def fold_reads(manifest: dict[str, Any], constant: int) -> None:
    fold(manifest)["variants"][0]["targets"][0]["steps"][0]["module"]["constants"] = [constant]


def layout(manifest: dict[str, Any], stride: list[int], order: list[int]) -> None:
    """The folded constant as a [2, 2] matrix with these strides, the fold's output in this order."""
    manifest["constants"][2].update(shape=[2, 2], stride=stride)
    fold(manifest)["outputs"][0].update(shape=[2, 2], order=order)


# The updatable recipe has the constants weight, bias, packed (folded), count (mutated).
WRONG: dict[str, tuple[Change, str]] = {
    "report is another file": (lambda m: m.update(report=0), "does not begin with 'reports/'"),
    "description is another file": (lambda m: m.update(description=0), "does not begin with 'reports/'"),
    "description out of range": (lambda m: m.update(description=99), "out of range"),
    "report out of range": (lambda m: m.update(report=99), "out of range"),
    "tensor twice": (lambda m: tensors(m).append(tensors(m)[0]), "appears twice"),
    "tensor of another shape": (lambda m: tensors(m)[0].update(shape=[5]), "another dtype or shape"),
    "tensor of another rank": (lambda m: tensors(m)[0].update(shape=[4, 1]), "another dtype or shape"),
    "tensor of another dtype": (lambda m: tensors(m)[0].update(dtype="int32"), "another dtype or shape"),
    "tensor with a dynamic size": (
        lambda m: tensors(m)[4].update(shape=[{"dim": "batch", "mul": 1, "add": 0}]),
        "expected an integer",
    ),
    "tensor of a constant that overlaps": (lambda m: m["constants"][1].update(stride=[0]), "overlap"),
    "mutated constant that overlaps": (
        lambda m: (m["constants"][3].update(shape=[2], stride=[0]), tensors(m)[3].update(shape=[2])),
        "overlapping, but the constant is mutated",
    ),
    "no such entry": (lambda m: m["weights"]["fold"].update(entry="fald"), "there is no entry 'fald'"),
    "the fold takes other inputs": (lambda m: m["weights"]["fold"].update(entry="forward", results=[2, 2]), "is not"),
    "fewer results": (lambda m: m["weights"]["fold"].update(results=[]), "0 results of an entry with 1 outputs"),
    "result is a tensor's": (lambda m: m["weights"]["fold"].update(results=[0]), "is that of a tensor"),
    "result is mutated": (lambda m: m["weights"]["fold"].update(results=[3]), "is mutated"),
    "result twice": (
        lambda m: (
            fold(m)["outputs"].append({**fold(m)["outputs"][0], "name": "again"}),
            fold(m)["variants"][0]["targets"][0]["steps"][0]["outputs"].append({"output": 1}),
            m["weights"]["fold"].update(results=[2, 2]),
        ),
        "twice",
    ),
    "output of another dtype": (lambda m: fold(m)["outputs"][0].update(dtype="int32"), "is not what the output"),
    "output of another shape": (lambda m: reshape(fold(m)["outputs"][0], [2, 2]), "is not what the output"),
    "output of a computed size": (
        lambda m: fold(m)["outputs"][0].update(shape=[{"expr": "4", "code": [4]}]),
        "is not what the output",
    ),
    "output in another order": (lambda m: layout(m, [2, 1], [1, 0]), "is not what the output"),
    "constant that is not dense": (lambda m: m["constants"][2].update(shape=[2], stride=[3]), "is not what"),
    "input of another shape": (lambda m: reshape(fold(m)["inputs"][0], [2, 2]), "is not what the tensor is"),
    "input of another dtype": (lambda m: fold(m)["inputs"][0].update(dtype="int32"), "is not what the tensor is"),
    "input of another name": (lambda m: fold(m)["inputs"][0].update(name="wait"), "is not a tensor with a constant"),
    "input without a constant": (lambda m: tensors(m)[0].update(constant=None), "is not a tensor with a constant"),
    "input that is mutated": (lambda m: fold(m)["inputs"][0].update(mutated=True), "is not what the tensor is"),
    "input with a dynamic size": (
        lambda m: (
            fold(m)["dims"].append({"name": "n", "min": 4, "max": 4, "multiple_of": 1}),
            fold(m)["inputs"][0].update(shape=[{"dim": "n", "mul": 1, "add": 0}]),
        ),
        "is not what the tensor is",
    ),
    "the fold reads a tensor's constant": (lambda m: fold_reads(m, 1), "reads 'bias', which is not fixed"),
    "the fold reads a result": (lambda m: fold_reads(m, 2), "reads 'packed', which is not fixed"),
    "the fold reads state": (
        lambda m: (tensors(m)[3].update(constant=None), fold_reads(m, 3)),
        "reads 'count', which is not fixed",
    ),
}

RIGHT: dict[str, Change] = {
    "frozen": lambda m: m.update(weights=None),
    "no report": lambda m: m.update(report=None),
    "no fold": lambda m: m["weights"].update(fold=None),
    "no tensors": lambda m: m.update(weights={"tensors": [], "fold": None}),
    "nothing depends on a tensor": lambda m: tensors(m)[1].update(constant=None),
    "the other order": lambda m: layout(m, [1, 2], [1, 0]),
    "row-major": lambda m: layout(m, [2, 1], [0, 1]),
    "stride of a dim of size 1": lambda m: (
        m["constants"][2].update(shape=[1, 4], stride=[77, 1]),
        reshape(fold(m)["outputs"][0], [1, 4]),
    ),
    "stride of an empty constant": lambda m: (
        m["constants"][2].update(shape=[0, 4], stride=[77, 0]),
        reshape(fold(m)["outputs"][0], [0, 4]),
    ),
    "a literal": lambda m: (tensors(m).pop(2), tensors(m).pop(1), fold_reads(m, 1)),
}

# The same without bytes.
CODE_ONLY_WRONG: dict[str, tuple[Change, str]] = {
    "an offset without a file": (lambda m: m["constants"][0].update(offset=0), "expected null, as the file is"),
    "a hash without a file": (lambda m: m["constants"][0].update(sha256="0" * 64), "expected null, as the file is"),
    "more bytes than the tensor spans": (lambda m: m["constants"][0].update(nbytes=32), "spans 16 bytes, not 32"),
    "fewer bytes than the tensor spans": (lambda m: m["constants"][0].update(nbytes=8), "spans 16 bytes, not 8"),
    "an earlier version": (lambda m: earlier(m, 6), "constants[0].file: expected an integer"),
    "frozen": (lambda m: m.update(weights=None), "'weight' has no bytes, but does not depend on the weights"),
    "not a tensor's": (lambda m: tensors(m)[3].update(constant=None), "'count' has no bytes, but does not depend"),
    "no result": (lambda m: m["weights"].update(fold=None), "'packed' has no bytes, but does not depend"),
    "bytes of one weight": (
        lambda m: (
            m["constants"][1].update(shape=[0], nbytes=0, file=0, offset=0, sha256=EMPTY)
            or tensors(m)[1].update(shape=[0])
            or tensors(m)[2].update(shape=[0])
            or m["files"].insert(0, {"path": "weights/none", "size": 0, "sha256": EMPTY})
            or shifted(m)
        ),
        "'bias' has bytes, but others that depend on the weights have none",
    ),
    "example calls": (
        lambda m: (
            m["files"].insert(0, {"path": "goldens/none", "size": 0, "sha256": EMPTY}),
            shifted(m),
            m["entries"][0]["goldens"].append(
                {
                    "same": [],
                    "inputs": [golden([0, 4])],
                    "outputs": [golden([0, 4]), golden([0])],
                    "tolerance": 0.1,
                }
            ),
        ),
        "has example calls",
    ),
}


def golden(shape: list[int]) -> dict[str, Any]:
    return {"dtype": "float32", "shape": shape, "file": 0, "offset": 0, "nbytes": 0, "step": 1}


def earlier(manifest: dict[str, Any], version: int) -> None:
    manifest["format_version"] = version
    del manifest["description"]


def shifted(manifest: dict[str, Any]) -> None:
    """After a file was inserted in front of the others."""
    for entry in manifest["entries"]:
        entry["variants"][0]["targets"][0]["steps"][0]["module"]["file"] += 1
    manifest["report"] += 1


@pytest.fixture
def change(archive: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    def apply(mutate: Change, name: str = "updatable") -> Path:
        with ArchiveReader(archive(name)) as reader:
            files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
            good = json.loads(encode_manifest(reader.manifest))
        manifest = copy.deepcopy(good)
        mutate(manifest)
        assert manifest != good
        inserted = [
            FileSource.from_bytes(file["path"], b"") for file in manifest["files"] if file["path"].endswith("/none")
        ]
        path = tmp_path / "changed.aotpack"
        path.write_bytes(pack(canonical(manifest), [*inserted, *files]))
        return path

    return apply


@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_refused(change: Callable[..., Path], name: str) -> None:
    refused(change(WRONG[name][0]), WRONG[name][1])


@pytest.mark.parametrize("name", CODE_ONLY_WRONG)
def test_wrong_ones_without_bytes_are_refused(change: Callable[..., Path], name: str) -> None:
    refused(change(CODE_ONLY_WRONG[name][0], "code_only"), CODE_ONLY_WRONG[name][1])


def refused(path: Path, message: str) -> None:
    with pytest.raises(MalformedArchiveError) as info:
        ArchiveReader(path)
    assert message in str(info.value)
    with pytest.raises(MalformedArchiveError):
        aotpack.load(path)


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_read(change: Callable[..., Path], name: str) -> None:
    path = change(RIGHT[name])
    manifest = read_manifest(path)
    assert decode_manifest(encode_manifest(manifest)) == manifest
    # What the module itself says may differ; the manifest is fine.
    if "literal" not in name:
        assert verdict(lambda: aotpack.load(path)) is None


def test_archives_without_weights(archive: Callable[[str], Path]) -> None:
    path = archive("code_only")
    with ArchiveReader(path) as reader:
        reader.verify()
        manifest = reader.manifest
        assert [constant.name for constant in manifest.absent] == ["weight", "bias", "packed", "count"]
        assert sum(constant.nbytes for constant in manifest.absent) == 52
        assert decode_manifest(encode_manifest(manifest)) == manifest
        with pytest.raises(MissingWeightsError, match="'packed' has no bytes") as info:
            reader.constant(2)
    assert f"aotpack pack {path}" in str(info.value.hint)
    for verify in ("code", "full"):
        with pytest.raises(MissingWeightsError, match=f"aotpack pack {path} --weights"):
            aotpack.load(path, verify=verify)
    with pytest.raises(ValueError, match="format version 6"):
        encode_manifest(dataclasses.replace(manifest, format_version=6))
    assert read_manifest(archive("updatable")).absent == ()


def test_what_is_read(archive: Callable[[str], Path]) -> None:
    manifest = read_manifest(archive("updatable"))
    assert manifest.weights is not None
    assert [tensor.name for tensor in manifest.weights.tensors] == ["weight", "bias", "tied", "count", "unused"]
    assert [tensor.constant for tensor in manifest.weights.tensors] == [0, 1, 1, 3, None]
    assert manifest.weights.fold is not None
    assert (manifest.weights.fold.entry, manifest.weights.fold.results) == ("fold", (2,))
    assert manifest.report is not None
    assert manifest.files[manifest.report].path == "reports/passes.json"
