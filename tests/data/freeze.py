"""Freezes a set of archives in the current format, with calls and eager's answers: `python -m tests.data.freeze`.

README.md beside this file says when and how. Needs torch, a C++ compiler and a git checkout.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import lzma
import platform
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import nn

from aotpack import DYNAMIC, Dim
from aotpack.archive import read_manifest
from aotpack.archive.manifest import FORMAT_VERSION
from aotpack.export import BuildOptions, Program, Variant, aot_export, build_archive
from aotpack.runtime.packing import pack_weights
from aotpack.spec import DType
from tests.data import models
from tests.data.recorder import Recorder
from tests.support.archives import Example
from tests.support.splice import Part, splice

FOLDER = Path(__file__).resolve().parent
TARGET = "x86-64-v3"


@dataclass(frozen=True)
class Frozen:
    """How an archive is made, the calls that it repeats, and the first format version that can hold it."""

    model: Callable[[], nn.Module]
    programs: Callable[[Any], list[Program]]
    record: Callable[[Recorder], None]
    state: tuple[str, ...] = ()
    updatable: bool = False
    # Built without weights, which are packed by those who run the archive, or before it is frozen.
    pack: Literal["later", "before"] | None = None
    # Modules that record their kernels.
    profile: bool = False
    since: int = 3
    # Makes the archive of archives, one of each program; None: one archive has all programs.
    join: Callable[[Any, list[Path], Path, str], object] | None = None


def integers(limit: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, limit, shape)


# ---- mlp ------------------------------------------------------------------------------------------------------------


def _mlp(model: nn.Module) -> list[Program]:
    return [aot_export(model, (torch.randn(3, 12),), dynamic_shapes={"x": {0: Dim("batch", 1, 64)}})]


def _mlp_calls(record: Recorder) -> None:
    for batch in (1, 2, 7, 64):
        record.call("forward", torch.randn(batch, 12))
    record.refused("input", "forward", torch.randn(65, 12))
    record.refused("input", "forward", torch.randn(0, 12))
    record.refused("input", "forward", torch.randn(2, 11))


# ---- cnn ------------------------------------------------------------------------------------------------------------


def _cnn(model: nn.Module) -> list[Program]:
    dims = {
        0: Dim("batch", 1, 4),
        2: Dim("height", 4, 16, multiple_of=2),
        3: Dim("width", 4, 16, multiple_of=2),
    }
    return [aot_export(model, (_image(2, 8, 12),), dynamic_shapes={"image": dims})]


def _image(batch: int, height: int, width: int) -> torch.Tensor:
    return torch.randn(batch, 3, height, width).contiguous(memory_format=torch.channels_last)


def _cnn_calls(record: Recorder) -> None:
    for batch, height, width in ((1, 4, 4), (1, 16, 16), (4, 10, 4), (4, 6, 16)):
        record.call("forward", _image(batch, height, width))
    record.refused("input", "forward", _image(1, 7, 8))
    record.refused("input", "forward", _image(5, 8, 8))


# ---- decoder --------------------------------------------------------------------------------------------------------


def _decoder(model: nn.Module) -> list[Program]:
    return [
        aot_export(
            model,
            (integers(24, 1, 5),),
            method="prefill",
            dynamic_shapes={"ids": {1: Dim("length", 1, 15)}},
            variants=[{"length": 4}, {}],
        ),
        aot_export(
            model, (integers(24, 1, 1), 5), method="decode", dynamic_shapes={"position": Dim("position", 0, 15)}
        ),
    ]


def _decoder_calls(record: Recorder) -> None:
    for length in (1, 4, 13, 15):
        record.call("prefill", integers(24, 1, length))
        for position in range(length, min(length + 3, 16)):
            record.call("decode", integers(24, 1, 1), position)
    record.reset_state()
    for position in (0, 1, 2):
        record.call("decode", integers(24, 1, 1), position)
    record.refused("input", "prefill", integers(24, 1, 16))
    record.refused("input", "decode", integers(24, 1, 1), 16)


# ---- updatable ------------------------------------------------------------------------------------------------------


def _updatable(model: nn.Module) -> list[Program]:
    return [aot_export(model, (torch.randn(2, 4, 10),), dynamic_shapes={"x": {0: Dim("batch", 1, 8)}})]


def _new_weights(model: nn.Module, calls: float) -> dict[str, torch.Tensor]:
    new = {
        name: torch.rand_like(value) + 0.5 if value.is_floating_point() else value + 1
        for name, value in model.state_dict().items()
    }
    new["decode.weight"] = new["encode.weight"]
    new["calls"] = torch.tensor([calls])
    return new


def _updatable_calls(record: Recorder) -> None:
    def calls() -> None:
        for batch in (1, 3, 8):
            record.call("forward", torch.randn(batch, 4, 10))

    calls()
    record.update(_new_weights(record.eager, 40.0))
    calls()
    record.reset_state()
    calls()
    record.update({"norm.running_var": torch.rand(8) + 2, "decode.bias": torch.randn(6)}, partial=True)
    calls()
    tied = torch.randn(6, 8)
    record.update({"encode.weight": tied, "decode.weight": tied, "conv.weight": torch.randn(8, 4, 3)}, partial=True)
    calls()
    record.reset_weights()
    record.reset_state()
    calls()


def _packed_calls(record: Recorder) -> None:
    for batch in (1, 8):
        record.call("forward", torch.randn(batch, 4, 10))
    record.update({"norm.running_var": torch.rand(8) + 2}, partial=True)
    record.call("forward", torch.randn(3, 4, 10))
    record.reset_weights()
    record.reset_state()
    record.call("forward", torch.randn(3, 4, 10))


# ---- entries --------------------------------------------------------------------------------------------------------


def _batch(a: int, b: int) -> dict[str, Any]:
    return {
        "x": torch.randn(a, b, dtype=torch.complex64),
        "ids": (integers(9, a), integers(9, b).to(torch.int32)),
        "halves": [torch.randn(a).bfloat16(), torch.randn(a).half()],
    }


def _entries(model: nn.Module) -> list[Program]:
    def entry(method: str, args: tuple[Any, ...], dynamic_shapes: Any) -> Program:
        return aot_export(model, args, method=method, dynamic_shapes=dynamic_shapes)

    n, a, b = Dim("n", 1, 32), Dim("a", 1, 16), Dim("b", 1, 16)
    return [
        entry(
            "numbers",
            (torch.randn(4, 3), 0.5, 3, True),
            {"x": {0: n}, "factor": DYNAMIC, "count": Dim("count", -5, 100), "flag": DYNAMIC},
        ),
        entry("chosen", (torch.randn(6, 3), torch.tensor(4)), {"x": {0: n}}),
        entry("write", (torch.randn(6), torch.randn(4)), {"buffer": {0: a}, "step": {0: b}}),
        entry(
            "nested",
            (_batch(2, 3), torch.rand(2, 3) > 0.5),
            {
                "batch": {"x": {0: a, 1: b}, "ids": ({0: a}, {0: b}), "halves": [{0: a}, {0: a}]},
                "mask": {0: a, 1: b},
            },
        ),
    ]


def _entries_calls(record: Recorder) -> None:
    for rows, factor, count, flag in ((1, 2.5, -5, True), (32, -1e30, 100, False), (5, -1e-3, 0, True)):
        record.call("numbers", torch.randn(rows, 3), factor, count, flag)
    record.refused("input", "numbers", torch.randn(2, 3), 1.0, 101, True)
    for rows, limit in ((1, 0), (1, 1), (32, 32), (7, 3)):
        record.call("chosen", torch.randn(rows, 3), torch.tensor(limit))
    record.call("chosen", -torch.rand(3, 3), torch.tensor(0))
    record.refused("execution", "chosen", torch.randn(3, 3), torch.tensor(4))
    for size, written in ((1, 1), (16, 16), (16, 1), (9, 5)):
        record.call("write", torch.randn(size), torch.randn(written))
    record.refused("input", "write", torch.randn(3), torch.randn(4))
    for rows, columns in ((1, 1), (16, 16), (3, 5)):
        record.call("nested", _batch(rows, columns), mask=torch.rand(rows, columns) > 0.5)


# ---- what later formats brought -------------------------------------------------------------------------------------


def _formula(model: nn.Module) -> list[Program]:
    n = Dim("n", 1, 16)
    return [aot_export(model, (torch.randn(3, 4), 6), dynamic_shapes={"x": {0: n}, "double": 2 * n})]


def _formula_calls(record: Recorder) -> None:
    for size in (1, 2, 16):
        record.call("forward", torch.randn(size, 4), 2 * size)
    record.refused("input", "forward", torch.randn(3, 4), 7)


def _unsigned(size: int) -> tuple[Any, ...]:
    batch = {
        0: integers(1 << 16, size, 2).to(torch.uint16),
        7: integers(1 << 31, size, 2).to(torch.uint32),
        9: integers(1 << 62, size, 2).to(torch.uint64),
    }
    return batch, torch.randn(size).to(torch.float8_e4m3fn)


def _dtypes(model: nn.Module) -> list[Program]:
    n = Dim("n", 1, 16)
    return [
        aot_export(model, _unsigned(3), dynamic_shapes={"batch": {key: {0: n} for key in (0, 7, 9)}, "low": {0: n}})
    ]


def _dtypes_calls(record: Recorder) -> None:
    for size in (1, 5, 16):
        record.call("forward", *_unsigned(size))


def _steps(model: nn.Module) -> list[Program]:
    image = _image(2, 8, 8)
    dims = {0: Dim("batch", 1, 4), 2: Dim("side", 4, 16), 3: Dim("side", 4, 16)}
    encode, tally = model.get_submodule("0"), model.get_submodule("1")
    return [
        aot_export(encode, (image,), dynamic_shapes=(dims,)),
        aot_export(tally, (torch.zeros(4), encode(image).detach()), dynamic_shapes={"total": {}, "hidden": dims}),
    ]


def _join_steps(model: nn.Module, archives: list[Path], path: Path, name: str) -> None:
    given = (torch.randn(4), _image(2, 8, 8))
    before = tuple(tensor.clone() for tensor in given)
    with torch.no_grad():
        results = copy.deepcopy(model)(*given)
    encode, tally = (read_manifest(archive).entries[0] for archive in archives)
    splice(
        path,
        [
            Part(archives[0], ("input 1",), ("output 1",)),
            Part(archives[1], ("input 0", "output 1"), ("output 0",)),
        ],
        dims=encode.dims,
        inputs=[tally.inputs[0], dataclasses.replace(encode.inputs[0], name="image")],
        outputs=[tally.outputs[0], dataclasses.replace(encode.outputs[0], name="hidden")],
        values=[],
        name=name,
        example=Example(_raw(before), _raw(results)),
    )


def _raw(tensors: Iterable[torch.Tensor]) -> tuple[tuple[DType, tuple[int, ...], bytes], ...]:
    """float32 tensors as a golden has them."""
    return tuple((DType.FLOAT32, tuple(each.shape), each.contiguous().numpy().tobytes()) for each in tensors)


def _steps_calls(record: Recorder) -> None:
    for batch, side in ((1, 4), (4, 16), (3, 5)):
        record.call("forward", torch.randn(4), _image(batch, side, side))
    record.reset_state()
    record.call("forward", torch.randn(4), _image(1, 16, 16))
    record.refused("input", "forward", torch.randn(4), _image(1, 3, 3))
    record.refused("input", "forward", torch.randn(4), _image(1, 4, 5))


def _same(model: nn.Module) -> list[Program]:
    dims = {name: {0: Dim("n", 1, 16)} for name in "abc"}
    variants = [Variant({"n": 4}, same=[("a", "b", "c")]), Variant(same=[("a", "b")]), {}]
    return [aot_export(model, _rows(2, 3), dynamic_shapes=dims, variants=variants)]


def _rows(size: int, count: int) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(size, 3) for _ in range(count))


def _same_calls(record: Recorder) -> None:
    for size in (1, 4, 16):
        a, b, c = _rows(size, 3)
        record.call("forward", a, b, c)
        record.call("forward", a, a, c)
    (one,) = _rows(4, 1)
    record.call("forward", one, one, one)
    record.refused("input", "forward", *_rows(17, 3))


SETS = {
    "mlp": Frozen(models.MLP, _mlp, _mlp_calls),
    "cnn": Frozen(models.CNN, _cnn, _cnn_calls),
    "decoder": Frozen(models.Decoder, _decoder, _decoder_calls, state=("keys", "values")),
    "updatable": Frozen(models.Updatable, _updatable, _updatable_calls, state=("calls",), updatable=True),
    "entries": Frozen(models.Entries, _entries, _entries_calls),
    "formula": Frozen(models.Formula, _formula, _formula_calls, since=4),
    "dtypes": Frozen(models.Dtypes, _dtypes, _dtypes_calls, since=5),
    "steps": Frozen(models.Steps, _steps, _steps_calls, state=("1.calls",), since=6, join=_join_steps),
    "code": Frozen(models.Updatable, _updatable, _packed_calls, state=("calls",), pack="later", since=7),
    "packed": Frozen(models.Updatable, _updatable, _packed_calls, state=("calls",), pack="before", since=7),
    "profiled": Frozen(models.MLP, _mlp, _mlp_calls, profile=True, since=8),
    "same": Frozen(models.Same, _same, _same_calls, since=9),
}


def freeze(name: str, folder: Path) -> Path:
    """Writes NAME.aotpack (git ignores it), NAME.json and NAME.npz to `folder`; returns the archive's path."""
    frozen = SETS[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    model = frozen.model().eval()
    recorder = Recorder(model, frozen.state)
    path = folder / f"{name}.aotpack"
    options = BuildOptions(updatable=frozen.updatable, code_only=frozen.pack is not None, profile=frozen.profile)
    programs = frozen.programs(model)
    if frozen.join is None:
        build_archive(programs, path, name=name, targets=[TARGET], options=options)
    else:
        with tempfile.TemporaryDirectory() as parts:
            archives = [Path(parts) / f"{number}.aotpack" for number in range(len(programs))]
            for program, archive in zip(programs, archives, strict=True):
                build_archive(program, archive, targets=[TARGET], options=options)
            frozen.join(model, archives, path, name)
    if frozen.pack is not None:
        weights = _new_weights(model, 7.0)
        recorder.packed(weights, before=frozen.pack == "before")
        if frozen.pack == "before":
            with tempfile.TemporaryDirectory() as files:
                file = Path(files) / "weights.safetensors"
                save_file({name: value.contiguous().clone() for name, value in weights.items()}, str(file))
                pack_weights(path, file, path)
    frozen.record(recorder)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    about = {"format_version": FORMAT_VERSION, "commit": commit, "torch": torch.__version__}
    recorder.write(path, about | {"target": TARGET, "libc": " ".join(platform.libc_ver())})
    return path


def pack(folder: Path) -> Path:
    """Writes the archives in `folder` to archives.tar.xz: what their modules have in common is stored once."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode = 0, 0, 0, "", "", 0o644
        return info

    output = folder / "archives.tar.xz"
    with (
        lzma.open(output, "wb", preset=9 | lzma.PRESET_EXTREME) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in sorted(folder.glob("*.aotpack")):
            tar.add(path, path.name, filter=plain)
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description="Freezes archives in the current format, with eager's answers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)}; all that the format can hold")
    names = parser.parse_args().names or [name for name, frozen in SETS.items() if frozen.since <= FORMAT_VERSION]
    folder = FOLDER / f"format{FORMAT_VERSION}"
    folder.mkdir(exist_ok=True)
    for name in names:
        path = freeze(name, folder)
        print(f"{path.relative_to(FOLDER)}: {path.stat().st_size} bytes")
    path = pack(folder)
    print(f"{path.relative_to(FOLDER)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
