"""Python's reader and the runtime read the format alike: the same manifests pass, the others fail by the same name."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import aotpack
from aotpack.archive import (
    ArchiveReader,
    FileSource,
    Variant,
    decode_manifest,
    encode_manifest,
    write_archive,
)
from aotpack.archive.code import UndefinedError, evaluate, type_of
from aotpack.archive.encode import canonical
from aotpack.archive.writer import _write
from aotpack.errors import AotpackError, ArchiveError, InputError, UnsupportedVersionError
from aotpack.spec import Check, Code
from tests.support.codes import BOTTOM, TOP, random_code
from tests.support.files import write_anew

STRINGS = ["", "x", "weights/x", "a" * 64]
VALUES: list[Any] = [None, True, -1, 0, 3, 4096, 2**63, 2**70, 0.5, -0.0, *STRINGS, [], {}, [0], ["x"]]
# For the items of codes, and for what only some strings say.
WORDS: list[Any] = ["+", "<", "not", "select", "trunc", "$batch", "$", {"float": 1}, {"float": True}, {"float": "x"}]
FORMULAS = [
    {"dim": "n", "mul": 2, "add": -1},
    {"dim": "n", "mul": 1, "add": 0},
    {"dim": "n", "mul": 0, "add": 1},
    {"dim": "m", "mul": 2, "add": 0},
    {"expr": "n", "code": ["$n"]},
    {"expr": "n", "code": ["$m"]},
    {"expr": "n", "code": None},
]
# What the manifest says and the module says too.
OF_MODULES = (".imports", ".module.constants", ".steps.0.inputs", ".steps.0.outputs", ".features")
KINDS = {
    "same": [[[0, 1]], [[0]], [[0, 1], [1, 2]], [[1, 0]], [[0, 3]], [0]],
    "number": ["int", "float", "bool"],
    "dim": ["n", "rows", "batch", "length", *FORMULAS],
    "dtype": ["int64", "bool"],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values below."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutations(manifest: dict[str, Any], *, everything: bool) -> Iterator[tuple[str, Any]]:
    """Manifests that differ from this one in one place; only in signatures and conditions, unless `everything`."""
    # Faster to copy than by copy.deepcopy.
    text = json.dumps(manifest)
    for path in places(manifest):
        if not everything and (path[0] != "entries" or "targets" in path or "goldens" in path):
            continue
        extra = WORDS if "code" in path else KINDS.get(str(path[-1]), [])
        for value in (*VALUES, *extra, "delete", "twice"):
            changed = json.loads(text)
            parent = changed
            for key in path[:-1]:
                parent = parent[key]
            if value == "delete":
                del parent[path[-1]]
            elif value == "twice" and isinstance(parent, list):
                parent.insert(path[-1], copy.deepcopy(parent[path[-1]]))
            elif value == "twice":
                parent[f"{path[-1]}_"] = parent[path[-1]]
            else:
                if type(parent[path[-1]]) is type(value) and parent[path[-1]] == value:
                    continue
                parent[path[-1]] = value
            yield f"{'.'.join(map(str, path))} = {value!r}", changed


def pack(manifest: bytes, files: list[FileSource]) -> bytes:
    """An archive whose container is right, whatever its manifest."""
    first = FileSource.from_bytes("manifest.json", manifest)
    output = io.BytesIO()
    _write(output, [first, *files], first.sha256)
    return output.getvalue()


def verdict(check: Callable[[], object]) -> type[AotpackError] | None:
    try:
        check()
    except AotpackError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    "name", ["affine", "nested", "dict", "updatable", "sizes", "variants", "same", "numbers", "code_only"]
)
def test_every_single_change(archive: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    with ArchiveReader(archive(name)) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
        manifest = json.loads(encode_manifest(reader.manifest))
    path = tmp_path / "changed.aotpack"
    differences = []
    for description, changed in mutations(manifest, everything=name in ("affine", "updatable", "code_only")):
        encoded = canonical(changed)
        write_anew(path, pack(encoded, files))
        in_python = verdict(lambda: ArchiveReader(path).verify())
        in_runtime = verdict(lambda: aotpack.load(path, verify="full"))
        if in_runtime is not None and not issubclass(in_runtime, ArchiveError):
            in_runtime = None  # a good archive that this machine or module cannot serve
        if in_python is None and in_runtime is UnsupportedVersionError:
            in_runtime = None  # a module of a later ABI: inspection is still possible
        if in_python is None and any(part in description for part in OF_MODULES):
            in_runtime = None  # the manifest is fine, but it is not what the module itself says
        if in_python is not in_runtime:
            names = [error.__name__ if error else "passes" for error in (in_python, in_runtime)]
            differences.append(f"{description}: Python {names[0]}, runtime {names[1]}")
        elif in_python is None:
            # Equal numbers, 0 and 0.0, are all that the objects do not keep apart.
            assert json.loads(encode_manifest(decode_manifest(encoded))) == changed, description
    assert not differences, "\n".join(differences)


def test_nesting(archive: Callable[[str], Path], tmp_path: Path) -> None:
    with ArchiveReader(archive("affine")) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
        manifest = json.loads(encode_manifest(reader.manifest))
    path = tmp_path / "nested.aotpack"
    verdicts = []
    for depth in range(55, 70):
        spec: Any = {"kind": "tensor", "index": 0}
        for _ in range(depth):
            spec = {"kind": "list", "items": [spec]}
        manifest["entries"][0]["out_spec"] = spec
        write_anew(path, pack(canonical(manifest), files))
        in_python = verdict(lambda: ArchiveReader(path).verify())
        assert in_python is verdict(lambda: aotpack.load(path, verify="full"))
        verdicts.append(in_python is None)
    assert verdicts[0]
    assert not verdicts[-1]


def test_codes_mean_the_same(archive: Callable[[str], Path], tmp_path: Path) -> None:
    """An entry per code, whose first variant fits just where the code has the value that Python gives it."""
    generator = random.Random()
    with ArchiveReader(archive("codes")) as reader:
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in reader.manifest.files]
        (template,) = reader.manifest.entries
    (implementation,) = template.variants[0].implementations
    cases: list[tuple[Code, int, Any]] = []
    entries = []
    while len(cases) < 600:
        code = random_code(generator, ["n"], length=generator.randrange(2, 14))
        n = generator.choice([0, 1, -1, 2, 5, 64, 1000, BOTTOM, TOP, generator.randrange(-(10**6), 10**6)])
        try:
            value = evaluate(code, {"n": n})
        except UndefinedError:
            value = None
        if isinstance(value, float) and not math.isfinite(value):
            continue  # there is no such constant
        # What is undefined fits nothing, whatever it is compared with.
        equal = (*code, constant_like(code) if value is None else value, "==")
        variants: tuple[Variant, ...] = (Variant("equal", (), (implementation,), (Check("it", equal),)),)
        if value is not None:
            variants += (Variant("other", (), (implementation,)),)
        entries.append(dataclasses.replace(template, name=f"e{len(cases)}", variants=variants))
        cases.append((code, n, value))
    path = tmp_path / "codes.aotpack"
    write_archive(path, dataclasses.replace(reader.manifest, entries=tuple(entries), files=()), files)
    context = aotpack.load(path).context()
    undefined = 0
    for i, (code, n, value) in enumerate(cases):
        entry = context.entry(f"e{i}")
        if value is None:
            undefined += 1
            with pytest.raises(InputError, match="must satisfy it, which cannot be evaluated"):
                entry(n)
        else:
            entry(n)
            assert entry.variant == "equal", (code, n, value)
    assert undefined > 5
    assert len(cases) - undefined > 300


def constant_like(code: Code) -> int | float | bool:
    """Some constant of the code's type."""
    return {int: 0, float: 0.0, bool: False}[type_of(code, {"n"})]
