"""Archives with sources: unpacked, built with CMake and packed again they are the same, and changes take effect."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aotpack import Dim
from aotpack.archive import ArchiveReader
from aotpack.archive.sources import SOURCES_PATH, decode_sources
from aotpack.errors import FolderError
from aotpack.export import (
    BuildOptions,
    Device,
    aot_export,
    build_archive,
    custom_kernel,
    partition,
)
from aotpack.export.custom_ops.kernels import custom_kernels_restored
from aotpack.runtime.packing import pack_folder, unpack
from tests.support.building import assert_close
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch

_library = torch.library.Library("aotpack_sources", "DEF")
_library.define("scale(Tensor x) -> Tensor")
_library.impl("scale", lambda x: x * 3, "CompositeExplicitAutograd")
# As if C++ had registered it: operators whose kernel is Python are traced through.
torch.library._impls.discard("aotpack_sources/scale/CompositeExplicitAutograd")
torch.library.register_fake("aotpack_sources::scale", lambda x: x.new_empty(x.shape), lib=_library)

KERNEL = """
#include "factor.h"
#include "aotpack/operator.h"
using namespace aotpack::op;
Tensor scale(Call& call, const Tensor& x) {
  const Tensor y = call.empty(x.sizes(), x.dtype());
  const auto* in = call.contiguous(x).data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) y.mutable_data<float>()[i] = in[i] * FACTOR;
  return y;
}
"""


class Counter(nn.Module):
    """State, a weight, and an operator of the user."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total.add_(1)
        y: Tensor = torch.ops.aotpack_sources.scale(x)
        return (y * self.weight + 0.125).exp(), self.total * 1


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    folder = tmp_path_factory.mktemp("original")
    (folder / "include").mkdir()
    (folder / "include" / "factor.h").write_text("#define FACTOR 3\n")
    (folder / "scale.cpp").write_text(KERNEL)
    program = aot_export(Counter(), (torch.randn(2, 4),), dynamic_shapes={"x": {0: Dim("batch", 1, 8)}})
    with custom_kernels_restored():
        custom_kernel("aotpack_sources::scale", sources=[folder / "scale.cpp"], include_dirs=[folder / "include"])
        build_archive(
            program,
            folder / "model.aotpack",
            targets=["x86-64-v3"],
            options=BuildOptions(cache_dir=cache_dir, opt_level=1, sources=True),
        )
    return folder / "model.aotpack"


@pytest.fixture(scope="module")
def torchless() -> Iterator[Torchless]:
    process = Torchless()
    yield process
    process.close()


def cmake(folder: Path) -> None:
    """Configures and builds, with neither torch nor the sources of aotpack in reach."""
    for command in (["cmake", "-S", folder, "-B", folder / "build"], ["cmake", "--build", folder / "build", "-j2"]):
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs CMake")
def test_build_again_and_change(original: Path, torchless: Torchless, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    report = unpack(original, folder)
    (module,) = report.modules
    assert module == "modules/x86-64-v3/forward.so"
    code = (folder / module).read_bytes()
    (folder / module).unlink()
    with pytest.raises(FolderError, match=f"{module} is missing: build it first"):
        pack_folder(folder, tmp_path / "none.aotpack")
    # The module of the folder's own sources is the one of the build.
    cmake(folder)
    assert (folder / module).read_bytes() == code
    assert pack_folder(folder, tmp_path / "same.aotpack").modules == ()
    assert (tmp_path / "same.aotpack").read_bytes() == original.read_bytes()

    # A change in generated code, and one in a header of the user's kernel.
    source = folder / "src" / "x86-64-v3" / "forward" / "kernels0.cpp"
    text = source.read_text()
    assert "0.125" in text
    source.write_text(text.replace("0.125", "0.25"))
    (header,) = (folder / "custom").rglob("factor.h")
    header.write_text("#define FACTOR 5\n")
    with pytest.raises(FolderError, match=r"kernels0.cpp was changed, but modules/x86-64-v3/forward.so is older"):
        pack_folder(folder, tmp_path / "none.aotpack")
    cmake(folder)
    packed = pack_folder(folder, tmp_path / "changed.aotpack")
    assert packed.modules == (module,)
    assert packed.dropped
    x = torch.randn(3, 4)
    with ArchiveReader(original) as reader:
        (index,) = (i for i, each in enumerate(reader.manifest.constants) if each.name == "weight")
        w = torch.frombuffer(bytearray(reader.constant(index)), dtype=torch.float32)
    for path, factor, shift in ((original, 3, 0.125), (tmp_path / "changed.aotpack", 5, 0.25)):
        model = torchless.load(path, verify="full")
        for call in (1, 2):
            y, total = model(x)
            assert_close(y, (x * factor * w + shift).exp())
            assert_close(total, torch.full((4,), float(call)))
    # The changed sources are those of the new archive.
    unpack(tmp_path / "changed.aotpack", tmp_path / "again")
    assert "0.25" in (tmp_path / "again" / source.relative_to(folder)).read_text()


def test_nothing_of_the_build_machine(original: Path) -> None:
    """The sources name no folder of the machine that built them, and say which graph they compute."""
    with ArchiveReader(original) as reader:
        files = decode_sources(reader.read(SOURCES_PATH))
    needles = [str(path).encode() for path in (original.parent, Path(torch.__file__).parent, Path(__file__).parent)]
    assert not [path for path, content in files.items() if any(needle in content for needle in needles)]
    program = files["src/x86-64-v3/forward/program.txt"].decode()
    assert program.startswith("forward(x: float32[batch, 4]) -> ")
    assert "torch.ops.aotpack_sources.scale.default" in program
    assert "# File: test_sources.py:" in program


class Shift(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0) + self.weight


def test_stages(cache_dir: Path, tmp_path: Path) -> None:
    """Each stage is a module with its sources; an unchanged folder is the archive."""
    net, x = nn.Sequential(Shift(), Shift()).eval(), torch.randn(4, 4)
    program = aot_export(net, (x,), dynamic_shapes={"input": {0: Dim("batch", 1, 64)}})
    devices = [Device("first", 1 << 16), Device("second", 1 << 20)]
    cut = partition(program, devices, "mapping", mapping={"0": "first", "": "second"})
    path = tmp_path / "a.aotpack"
    options = BuildOptions(cache_dir=cache_dir, opt_level=1, sources=True)
    build_archive(program, path, options=options, targets=["x86-64-v3"], partitioning=cut)
    report = unpack(path, tmp_path / "folder")
    assert report.modules == ("modules/x86-64-v3/forward.stage1.so", "modules/x86-64-v3/forward.stage2.so")
    for module in report.modules:
        folder = tmp_path / "folder" / "src" / module.removeprefix("modules/").removesuffix(".so")
        assert {item.name for item in folder.iterdir()} >= {"wrapper.cpp", "program.txt"}, module
    text = (tmp_path / "folder" / "CMakeLists.txt").read_text()
    assert text.count(" MODULE\n") == len(report.modules)
    pack_folder(tmp_path / "folder", tmp_path / "b.aotpack")
    assert (tmp_path / "b.aotpack").read_bytes() == path.read_bytes()
