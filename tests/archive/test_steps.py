"""Format 6: devices, implementations, steps, assets and features; what is read, and what is malformed."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aotpack
from aotpack.archive import (
    ArchiveReader,
    Asset,
    FileSource,
    Implementation,
    Manifest,
    Reference,
    Source,
    Step,
    decode_manifest,
    encode_manifest,
    read_manifest,
)
from aotpack.archive.encode import canonical
from aotpack.errors import ArchiveError, MalformedArchiveError, UnsupportedTargetError
from aotpack.spec import DimRef, Expr
from tests.archive.test_agreement import mutations, pack, verdict
from tests.support.archives import tensor
from tests.support.splice import Part, splice

Archive = Callable[[str], Path]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture
def steps(archive: Archive, tmp_path: Path) -> Path:
    """affine, affine, affine: x -> h, then h -> other, then other -> output; the state's device is the first."""
    (entry,) = read_manifest(archive("affine")).entries
    part = archive("affine")
    return splice(
        tmp_path / "steps.aotpack",
        [
            Part(part, ("input 0",), ("value 0",)),
            Part(part, ("value 0",), ("output 1",), device=None),
            Part(part, ("output 1",), ("output 0",), device=1),
        ],
        dims=entry.dims,
        inputs=entry.inputs,
        outputs=[*entry.outputs, tensor("other", ["batch", 4])],
        values=[dataclasses.replace(tensor("h", [DimRef("batch"), Expr("u0")], order=(1, 0)), device=None)],
        devices=("main", "second"),
    )


def decoded(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(encode_manifest(read_manifest(path)))
    return value


def implementation(manifest: dict[str, Any]) -> Any:
    return manifest["entries"][0]["variants"][0]["targets"][0]


def step(manifest: dict[str, Any], number: int) -> Any:
    return implementation(manifest)["steps"][number]


def module(manifest: dict[str, Any]) -> Any:
    return step(manifest, 0)["module"]


def inputs(number: int, *references: Any) -> Change:
    return lambda m: step(m, number).update(inputs=list(references))


def outputs(number: int, *references: Any) -> Change:
    return lambda m: step(m, number).update(outputs=list(references))


def asset(**changes: Any) -> Change:
    return lambda m: module(m).update(assets=[{"name": "a", "file": 1, "offset": 0, "nbytes": 8} | changes])


def mutated(manifest: dict[str, Any]) -> None:
    """The first step's constant is state, which the last one reads too, on another device."""
    manifest["constants"][0]["mutated"] = True
    step(manifest, 2)["module"]["constants"] = module(manifest)["constants"]


WRONG: dict[str, tuple[Change, str]] = {
    "no device": (lambda m: m.update(devices=[]), "devices: empty"),
    "device twice": (lambda m: m.update(devices=["main", "main"]), "'main' appears twice"),
    "device without a name": (lambda m: m.update(devices=["main", ""]), "devices[1]: empty"),
    "devices missing": (lambda m: m.pop("devices"), "the key 'devices' is missing"),
    "unknown device of a value": (
        lambda m: m["entries"][0]["inputs"][0].update(device=2),
        "inputs[0].device: index 2 is out of range",
    ),
    "negative device": (lambda m: m["entries"][0]["inputs"][0].update(device=-1), "index -1 is out of range"),
    "unknown device of an intermediate": (
        lambda m: implementation(m)["values"][0].update(device=2),
        "values[0].device: index 2",
    ),
    "unknown device of a step": (lambda m: step(m, 2).update(device=2), "steps[2].device: index 2 is out of range"),
    "no implementation": (lambda m: m["entries"][0]["variants"][0].update(targets=[]), "targets: empty"),
    "target twice": (
        lambda m: m["entries"][0]["variants"][0]["targets"].append(implementation(m)),
        "'x86-64-v3' appears twice",
    ),
    "no step": (lambda m: implementation(m).update(steps=[]), "steps: empty"),
    "value twice": (
        lambda m: implementation(m)["values"].append(implementation(m)["values"][0]),
        "the name 'h' appears twice",
    ),
    "value that is mutated": (lambda m: implementation(m)["values"][0].update(mutated=True), "unknown key 'mutated'"),
    "value with an unknown dim": (
        lambda m: implementation(m)["values"][0]["shape"][0].update(dim="n"),
        "there is no dim 'n'",
    ),
    "value with a dim without source": (
        lambda m: (
            m["entries"][0]["dims"].append({"name": "n", "min": 0, "max": None, "multiple_of": 1}),
            implementation(m)["values"][0]["shape"][0].update(dim="n"),
        ),
        "the dim 'n' is used, but no input determines it",
    ),
    "used before it is produced": (inputs(0, {"value": 0}), "inputs[0]: no earlier step produces the value 0"),
    "its own output": (inputs(1, {"output": 1}), "no earlier step produces the output 1"),
    "an output of a later step": (inputs(1, {"output": 0}), "no earlier step produces the output 0"),
    "no such input": (inputs(1, {"input": 1}), "input: index 1 is out of range: there are 1 inputs"),
    "no such output": (inputs(2, {"output": 2}), "output: index 2 is out of range: there are 2 outputs"),
    "no such value": (inputs(2, {"value": 1}), "value: index 1 is out of range: there are 1 values"),
    "a reference to a constant": (
        inputs(2, {"constant": 0}),
        "expected an object with one key of input, output, value",
    ),
    "a reference to two": (inputs(2, {"input": 0, "value": 0}), "expected an object with one key"),
    "a reference that is a number": (inputs(2, 0), "expected an object with one key"),
    "produced twice": (outputs(2, {"output": 0}, {"output": 1}), "outputs[1]: the output 1 is produced twice"),
    "value produced twice": (outputs(1, {"output": 1}, {"value": 0}), "outputs[1]: the value 0 is produced twice"),
    "input produced": (outputs(2, {"output": 0}, {"input": 0}), "expected an object with one key of output, value"),
    "output not produced": (outputs(2), "no step produces the output 0"),
    "value not produced": (
        lambda m: implementation(m)["values"].append(dict(implementation(m)["values"][0], name="g")),
        "no step produces the value 1",
    ),
    "state on two devices": (mutated, "steps on several devices read the constant '0.w', which is mutated"),
    "asset twice": (
        lambda m: module(m).update(assets=[{"name": "a", "file": 1, "offset": 0, "nbytes": 8}] * 2),
        "the name 'a' appears twice",
    ),
    "asset without a name": (asset(name=""), "assets[0].name: empty"),
    "asset of no file": (asset(file=99), "file: index 99 is out of range"),
    "asset among the weights": (asset(file=0), "does not begin with 'modules/'"),
    "asset that is not aligned": (asset(offset=32), "offset: 32 is not a multiple of 64"),
    "asset out of range": (asset(nbytes=1 << 30), "nbytes: bytes 0 to 1073741824 of a file of"),
    "asset that begins behind the end": (asset(offset=1 << 40), "of a file of"),
    "feature twice": (lambda m: module(m).update(features=["async", "async"]), "'async' appears twice"),
    "feature without a name": (lambda m: module(m).update(features=[""]), "features[0]: empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_malformed(name: str, steps: Path) -> None:
    change, message = WRONG[name]
    with ArchiveReader(steps) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
    manifest = decoded(steps)
    change(manifest)
    with pytest.raises(MalformedArchiveError) as info:
        decode_manifest(canonical(manifest))
    assert message in str(info.value)
    steps.write_bytes(pack(canonical(manifest), files))
    with pytest.raises(MalformedArchiveError):
        aotpack.load(steps)


def test_every_single_change_of_steps(steps: Path) -> None:
    """Both readers agree on what is malformed; whether modules fit their steps, the runtime alone can tell."""
    with ArchiveReader(steps) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
    manifest = decoded(steps)
    differences = []
    for description, changed in mutations(manifest, everything=True):
        if ".targets." not in description and "device" not in description:
            continue
        encoded = canonical(changed)
        steps.write_bytes(pack(encoded, files))
        in_python = verdict(lambda: ArchiveReader(steps).verify())
        in_runtime = verdict(lambda: aotpack.load(steps))
        if in_python is None:
            if in_runtime is not None and issubclass(in_runtime, ArchiveError):
                assert ".steps." in description, description
            assert json.loads(encode_manifest(decode_manifest(encoded))) == changed, description
        elif in_python is not in_runtime:
            differences.append(f"{description}: Python {in_python.__name__}, runtime {in_runtime}")
    assert not differences, "\n".join(differences)


def test_round_trip(steps: Path) -> None:
    manifest = read_manifest(steps)
    (only,) = manifest.entries[0].variants[0].implementations
    assert [s.device for s in only.steps] == [0, None, 1]
    assert only.steps[2].inputs == (Reference(Source.OUTPUT, 1),)
    first = dataclasses.replace(
        only.steps[0].module, assets=(Asset("code", only.steps[0].module.file, 64, 10),), features=("async", "novel")
    )
    changed = dataclasses.replace(only, steps=(dataclasses.replace(only.steps[0], module=first), *only.steps[1:]))
    assert decode_manifest(encode_manifest(with_implementation(manifest, changed))) == with_implementation(
        manifest, changed
    )


def with_implementation(manifest: Manifest, *implementations: Implementation) -> Manifest:
    (entry,) = manifest.entries
    variant = dataclasses.replace(entry.variants[0], implementations=implementations)
    return dataclasses.replace(manifest, entries=(dataclasses.replace(entry, variants=(variant,)),))


def test_an_earlier_format_holds_one_module_per_target(steps: Path, archive: Archive) -> None:
    manifest = read_manifest(archive("affine"))
    (only,) = manifest.entries[0].variants[0].implementations
    earlier = dataclasses.replace(manifest, format_version=5)
    value = json.loads(encode_manifest(earlier))
    assert "devices" not in value
    assert value["entries"][0]["variants"][0]["modules"][0].keys() == {
        *("target", "abi_version", "file", "constants", "imports", "kernels")
    }
    assert "device" not in value["entries"][0]["inputs"][0]
    assert decode_manifest(encode_manifest(earlier)) == earlier

    def refused(changed: Manifest) -> str:
        with pytest.raises(ValueError, match="format version 5 has") as info:
            encode_manifest(dataclasses.replace(changed, format_version=5))
        return str(info.value)

    assert "one device, 'main'" in refused(dataclasses.replace(manifest, devices=("gpu",)))
    spliced = dataclasses.replace(read_manifest(steps), devices=("main",))
    assert "one module per target" in refused(spliced)
    on_host = dataclasses.replace(only.steps[0], device=None)
    assert "one module per target" in refused(with_implementation(manifest, Implementation(only.target, (on_host,))))
    feature = dataclasses.replace(only.steps[0].module, features=("async",))
    assert "without assets and features" in refused(
        with_implementation(manifest, Implementation.of_module(feature, 1, 1))
    )
    entry = manifest.entries[0]
    elsewhere = dataclasses.replace(entry.inputs[0], device=None)
    assert "no devices of values" in refused(
        dataclasses.replace(manifest, entries=(dataclasses.replace(entry, inputs=(elsewhere,)),))
    )


def test_a_module_with_an_unknown_feature_is_passed_over(steps: Path) -> None:
    """The archive stays readable, and other implementations run."""
    with ArchiveReader(steps) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
    manifest = decoded(steps)
    step(manifest, 1)["module"]["features"] = ["novel"]
    steps.write_bytes(pack(canonical(manifest), files))
    read_manifest(steps)
    with pytest.raises(
        UnsupportedTargetError, match="x86-64-v3 needs the feature 'novel', which this runtime does not"
    ):
        aotpack.load(steps)
    other = copy.deepcopy(implementation(decoded(steps)))
    step(manifest, 1)["module"]["features"] = []
    other["target"] = "x86-64"
    other["steps"][0]["module"]["features"] = ["novel"]
    manifest["entries"][0]["variants"][0]["targets"].insert(0, other)
    steps.write_bytes(pack(canonical(manifest), files))
    assert aotpack.load(steps).target == "x86-64-v3"


def test_whole_references_are_shared() -> None:
    """Reading an entry with many inputs and many modules takes memory for each once."""
    module = read_module()
    first, second = (Implementation.of_module(module, 1000, 10).steps[0] for _ in range(2))
    assert first.inputs is second.inputs
    assert first == second == Step(module, first.inputs, first.outputs)


def read_module() -> Any:
    from aotpack.archive import Module

    return Module("x86-64", 1, 0, (), ())
