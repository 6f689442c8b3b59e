"""Archives for CUDA devices, of the hand-written modules in tests/cpp/modules, and the driver without a GPU."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aotpack.archive import (
    ArchiveReader,
    Asset,
    Constant,
    Entry,
    FileSource,
    Golden,
    GoldenTensor,
    Implementation,
    Manifest,
    Module,
    Variant,
    Weights,
    WeightTensor,
    layout_constants,
    write_archive,
)
from aotpack.building.native_sources import module_abi_version
from aotpack.spec import CallSpec, Dim, DType, TensorLeaf, TensorSpec, TupleSpec
from tests.support.archives import CompileC, floats, number, tensor

Array = npt.NDArray[Any]

_ROOT = Path(__file__).parents[2]
_MODULES = _ROOT / "tests" / "cpp" / "modules"
_FAKE = Path(__file__).parent / "fake_cuda"
_IMPORTS = ("alloc", "free", "fail", "seed", "launch", "copy", "upload", "download", "fill")

# By the names of providers.
FAKE_PROVIDERS = {
    "cublaslt": "libcublasLt.so.12",
    "cudnn": "libcudnn.so.9",
    "cufft": "libcufft.so.12",
    "cusolver": "libcusolver.so.12",
}


def build_fake_driver(path: Path) -> Path:
    """Compiles tests/support/fake_cuda."""
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    subprocess.run(["c++", *flags, *map(str, sorted(_FAKE.glob("*.cpp"))), "-o", str(path)], check=True)
    return path


def build_fake_providers(folder: Path) -> Path:
    """Compiles tests/support/fake_providers into libraries of `folder`."""
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Werror"]
    for name, library in FAKE_PROVIDERS.items():
        source = _FAKE.parent / "fake_providers" / f"{name}.cpp"
        subprocess.run(["c++", *flags, str(source), "-o", str(folder / library)], check=True)
    return folder


def fake_cubin(architecture: str, kernel: str) -> bytes:
    """What the driver without a GPU loads as a cubin."""
    return f"FAKECUBIN {architecture} {kernel}\0".encode()


def module_source(name: str) -> str:
    """The C of a module of tests/cpp/modules in one piece."""

    def inline(match: re.Match[str]) -> str:
        path = _MODULES / match[1]
        return read(path) if path.exists() else match[0]

    def read(path: Path) -> str:
        text = path.read_text().replace("#pragma once", "")
        return re.sub(r'^#include "([^"]+)"$', inline, text, flags=re.MULTILINE)

    return read(_MODULES / f"{name}.c")


def affine_archive(
    path: Path,
    compile_c: CompileC,
    assets: dict[str, bytes] | None = None,
    target: str = "cuda-sm_90",
    *,
    updatable: bool = False,
) -> Path:
    """Entry `forward`: y = scale * x + w with x float32 [batch, 4] and the weight w = [1, 2, 3, 4]; scale is 2 for
    cuda-sm_90 and 3 for cuda-sm_80.
    """
    if assets is None:
        assets = {"affine.cubin": fake_cubin("sm_90", "affine"), "affine.ptx": b""}
    inputs = (tensor("x", ("batch", 4)),)
    outputs = (tensor("output", ("batch", 4)),)
    weights = {"w": (floats(1, 2, 3, 4), False)}
    code = compile_c(module_source("cuda_affine" if target == "cuda-sm_90" else "cuda_affine_80"))
    dims = (Dim("batch", 1, 1 << 20),)
    return _write(path, code, inputs, outputs, weights, assets, dims=dims, target=target, updatable=updatable)


def mutate_archive(path: Path, compile_c: CompileC, code_of_kernel: bytes | None = None) -> Path:
    """Entry `forward`: adds one to x float32 [4] and to the state `total` [1], 100 at first; returns both."""
    inputs = (tensor("x", (4,), mutated=True),)
    outputs = (tensor("view", (4,)), tensor("sum", (1,)))
    code = compile_c(module_source("cuda_mutate"))
    assets = {"increment.cubin": code_of_kernel or fake_cubin("sm_90", "increment")}
    return _write(path, code, inputs, outputs, {"total": (floats(100), True)}, assets)


def chain_archive(path: Path, compile_c: CompileC, code_of_kernel: bytes | None = None) -> Path:
    """Entry `forward`: y = 2 * (k * (x + w) + w) + w and z = x + w with x float32 [batch, 4], w = [1, 2, 3, 4] and the
    int k. Its work cannot be recorded where k is 96, 97 or 98 (tests/cpp/modules/cuda_chain.c).
    """
    inputs = (tensor("x", ("batch", 4)), number("k", "int"))
    outputs = (tensor("y", ("batch", 4)), tensor("z", ("batch", 4)))
    code = compile_c(module_source("cuda_chain"))
    assets = {"affine.cubin": code_of_kernel or fake_cubin("sm_90", "affine")}
    weights = {"w": (floats(1, 2, 3, 4), False)}
    return _write(path, code, inputs, outputs, weights, assets, dims=(Dim("batch", 1, 1 << 20),))


def with_golden(path: Path, to: Path, x: Array, y: Array) -> Path:
    """A copy of an `affine_archive` with an example call: the input `x` and eager's output `y`, both float32."""
    with ArchiveReader(path) as reader:
        manifest = reader.manifest
        files = [FileSource.from_bytes(file.path, reader.read(i)) for i, file in enumerate(manifest.files)]
    x_raw, y_raw = (np.ascontiguousarray(value, np.float32).tobytes() for value in (x, y))
    start = -(-len(x_raw) // 64) * 64
    golden = Golden(
        inputs=(GoldenTensor(DType.FLOAT32, x.shape, len(files), 0, len(x_raw)),),
        outputs=(GoldenTensor(DType.FLOAT32, y.shape, len(files), start, len(y_raw)),),
        tolerance=1e-4,
    )
    files.append(FileSource.from_bytes("goldens/0.bin", x_raw.ljust(start, b"\0") + y_raw))
    entries = tuple(dataclasses.replace(entry, goldens=(golden,)) for entry in manifest.entries)
    write_archive(to, dataclasses.replace(manifest, entries=entries, files=()), files)
    return to


def _write(
    path: Path,
    code: bytes,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    weights: dict[str, tuple[bytes, bool]],
    assets: dict[str, bytes],
    *,
    dims: tuple[Dim, ...] = (),
    target: str = "cuda-sm_90",
    updatable: bool = False,
) -> Path:
    layout = layout_constants((name, raw) for name, (raw, _) in weights.items())
    files = list(layout.segments)
    constants = tuple(
        Constant(
            name=name,
            role="buffer" if mutated else "parameter",
            sources=(name,),
            dtype=DType.FLOAT32,
            shape=(len(raw) // 4,),
            stride=(1,),
            file=layout.placements[name].segment,
            offset=layout.placements[name].offset,
            nbytes=layout.placements[name].nbytes,
            sha256=layout.placements[name].sha256,
            mutated=mutated,
        )
        for name, (raw, mutated) in weights.items()
    )
    files.append(FileSource.from_bytes(f"modules/{target}/forward.so", code))
    data = bytearray()
    records = []
    for name, raw in assets.items():
        data.extend(bytes(-len(data) % 64))
        records.append(Asset(name, len(files), len(data), len(raw)))
        data.extend(raw)
    module = Module(
        target=target,
        abi_version=module_abi_version(),
        file=len(files) - 1,
        constants=tuple(range(len(constants))),
        imports=_IMPORTS,
        kernels=(),
        assets=tuple(records),
        features=("async",),
    )
    files.append(FileSource.from_bytes(f"modules/{target}/assets", bytes(data)))
    implementation = Implementation.of_module(module, len(inputs), len(outputs))
    results = tuple(TensorLeaf(i) for i in range(len(outputs)))
    entry = Entry(
        name="forward",
        dims=dims,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        in_spec=CallSpec(tuple(TensorLeaf(i) for i in range(len(inputs))), tuple(value.name for value in inputs)),
        out_spec=results[0] if len(results) == 1 else TupleSpec(results),
        variants=(Variant("default", (), (implementation,)),),
        goldens=(),
    )
    tensors = tuple(WeightTensor(c.name, c.dtype, c.shape, i) for i, c in enumerate(constants))
    replaced = Weights(tensors, None) if updatable else None
    write_archive(path, Manifest("test", {}, constants, (entry,), weights=replaced), files)
    return path
