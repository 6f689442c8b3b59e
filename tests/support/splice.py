"""Archives of several steps, made of archives of one: each becomes a step of one entry. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aotpack.archive import (
    ArchiveReader,
    Constant,
    Entry,
    FileSource,
    Golden,
    GoldenTensor,
    Implementation,
    Manifest,
    Module,
    Reference,
    Source,
    Step,
    Variant,
    write_archive,
)
from aotpack.spec import CallSpec, Dim, TensorLeaf, TensorSpec, TupleSpec
from tests.support.archives import Example


@dataclass(frozen=True)
class Part:
    """An archive whose one module becomes a step: what it reads and makes, such as "input 0", "value 1", "output 0"."""

    path: Path
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: int | None = 0


def reference(text: str) -> Reference:
    """`value 1` → the value with index 1."""
    source, index = text.split()
    return Reference(Source(source), int(index))


def splice(
    path: Path,
    parts: Sequence[Part],
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    values: Sequence[TensorSpec],
    dims: Sequence[Dim] = (),
    devices: tuple[str, ...] = ("main",),
    name: str = "spliced",
    example: Example | None = None,
) -> Path:
    """Writes an archive with the entry `forward`, of the last part's target, and with one golden, an `example`."""
    files: list[FileSource] = []
    constants: list[Constant] = []
    steps = []
    target = ""
    for number, part in enumerate(parts):
        with ArchiveReader(part.path) as reader:
            manifest = reader.manifest
            first_file, first_constant = len(files), len(constants)
            # Goldens and reports stay behind; weights and modules come first.
            kept = [file for file in manifest.files if file.path.startswith(("weights/", "modules/"))]
            assert tuple(kept) == manifest.files[: len(kept)]
            for file in kept:
                folder, _, rest = file.path.partition("/")
                files.append(FileSource.from_bytes(f"{folder}/{number}/{rest}", reader.read(file.path)))
            for constant in manifest.constants:
                own_name = f"{number}.{constant.name}"
                constants.append(dataclasses.replace(constant, name=own_name, file=constant.file + first_file))
            (module,) = manifest.entries[0].variants[0].modules
        target = module.target
        steps.append(
            Step(
                _moved(module, first_file, first_constant),
                tuple(map(reference, part.inputs)),
                tuple(map(reference, part.outputs)),
                part.device,
            )
        )
    goldens: tuple[Golden, ...] = ()
    if example is not None:
        goldens = (_golden(example, len(files)),)
        data = b"".join(raw for _, _, raw in (*example.inputs, *example.outputs))
        files.append(FileSource.from_bytes("goldens/0.bin", data))
    entry = Entry(
        name="forward",
        dims=tuple(dims),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        in_spec=CallSpec(tuple(TensorLeaf(i) for i in range(len(inputs))), (None,) * len(inputs)),
        out_spec=TupleSpec(tuple(TensorLeaf(i) for i in range(len(outputs)))),
        variants=(Variant("default", (), (Implementation(target, tuple(steps), tuple(values)),)),),
        goldens=goldens,
    )
    write_archive(path, Manifest(name, {}, tuple(constants), (entry,), devices=devices), files)
    return path


def _golden(example: Example, file: int) -> Golden:
    tensors = []
    offset = 0
    for dtype, shape, raw in (*example.inputs, *example.outputs):
        tensors.append(GoldenTensor(dtype, shape, file, offset, len(raw)))
        offset += len(raw)
    count = len(example.inputs)
    return Golden(tuple(tensors[:count]), tuple(tensors[count:]), example.tolerance)


def _moved(module: Module, first_file: int, first_constant: int) -> Module:
    return dataclasses.replace(
        module,
        file=module.file + first_file,
        constants=tuple(index + first_constant for index in module.constants),
    )
