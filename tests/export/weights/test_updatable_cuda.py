"""Archives for GPUs whose weights can be replaced: the fold runs on the host, the rest in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import aotpack
from aotpack.archive import ArchiveReader, read_manifest
from aotpack.errors import WeightsError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.runtime.packing import pack_weights
from tests.gpu.updatable import Net, answer, network
from tests.support.building import assert_close
from tests.support.interpreted_gpu.recording import recorded_kernels
from tests.support.torchless import RemoteModel, Torchless

pytest.importorskip("triton")
pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, kernels: Path, cache_dir: Path) -> Path:
    """For one GPU and one CPU."""
    path = tmp_path_factory.mktemp("updatable") / "net.aotpack"
    options = BuildOptions(cache_dir=cache_dir, updatable=True)
    program = aot_export(network(0), (torch.randn(3, 6, 10),), dynamic_shapes={"x": {0: aotpack.Dim("batch", 1, 64)}})
    with recorded_kernels(kernels):
        build_archive(program, path, targets=["x86-64-v3", "cuda-sm_90"], options=options)
    return path


@pytest.fixture(scope="module")
def gpu(fake_driver: Path, kernels: Path) -> Iterator[Torchless]:
    process = Torchless(
        {"AOTPACK_LIBCUDA": str(fake_driver), "FAKE_CUDA_DEVICES": "9.0"},
        ["tests.support.interpreted_gpu.worker", str(fake_driver), str(kernels)],
    )
    yield process
    process.close()


def constants_of(path: Path) -> dict[str, Tensor]:
    found = {}
    with ArchiveReader(path) as reader:
        for index, constant in enumerate(reader.manifest.constants):
            raw = bytearray(reader.constant(index))
            flat = torch.frombuffer(raw, dtype=getattr(torch, str(constant.dtype)))
            found[constant.name] = flat.as_strided(constant.shape, constant.stride)
    return found


def check(context: RemoteModel, net: Net, *, batches: tuple[int, ...] = (1, 5)) -> None:
    for batch in batches:
        x = torch.randn(batch, 6, 10)
        context.method("reset")
        for _ in range(3):  # launched, then as a graph
            context.method("reset")
            assert_close(context(x), answer(net, x))


def test_the_fold_runs_on_the_host(archive: Path) -> None:
    with ArchiveReader(archive) as reader:
        manifest = reader.manifest
    assert manifest.weights is not None
    assert manifest.weights.fold is not None
    (fold,) = (entry for entry in manifest.entries if entry.name == manifest.weights.fold.entry)
    implementations = fold.variants[0].implementations
    assert [each.target for each in implementations] == ["x86-64-v3", "cuda-sm_90"]
    assert all(step.device is None for each in implementations for step in each.steps)
    assert {module.target for each in implementations for module in each.modules} == {"x86-64-v3"}
    assert len({module.file for each in implementations for module in each.modules}) == 1
    assert all(value.device is None for value in (*fold.inputs, *fold.outputs))


def test_an_archive_for_gpus_alone_has_a_module_for_the_host(tmp_path: Path, cache_dir: Path) -> None:
    options = BuildOptions(cache_dir=cache_dir, updatable=True)
    path = tmp_path / "net.aotpack"
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).eval().bfloat16()
    example = torch.randn(3, 4, dtype=torch.bfloat16)
    targets = ["cuda-sm_90", "cuda-sm_80"]
    report = build_archive(aot_export(net, (example,)), path, targets=targets, options=options)
    assert report.targets == ("cuda-sm_90", "cuda-sm_80")
    with ArchiveReader(path) as reader:
        fold = next(entry for entry in reader.manifest.entries if entry.name == "fold")
        paths = [file.path for file in reader.manifest.files]
    assert [each.target for each in fold.variants[0].implementations] == ["cuda-sm_90", "cuda-sm_80"]
    assert paths.count("modules/x86-64-v3/fold.so") == 1
    assert not any(path.startswith("modules/x86-64-v3/forward") for path in paths)
    # Packing needs the CPU alone.
    save_file(net.state_dict(), tmp_path / "same.safetensors")
    pack_weights(path, tmp_path / "same.safetensors", tmp_path / "packed.aotpack")
    before, after = constants_of(path), constants_of(tmp_path / "packed.aotpack")
    assert before.keys() == after.keys()
    for name in before:
        assert_close(after[name], before[name].double(), 1e-2)


def test_new_weights_take_effect(archive: Path, gpu: Torchless, tmp_path: Path) -> None:
    model = gpu.load(archive, device="cuda:0")
    context = model.context()
    check(context, network(0))
    for seed in (1, 2):
        model.method("update_weights", network(seed).state_dict())
        check(context, network(seed))
    save_file(network(3).state_dict(), tmp_path / "new.safetensors")
    model.method("update_weights", str(tmp_path / "new.safetensors"))
    check(context, network(3))
    check(model.context(), network(3))
    model.method("reset_weights")
    check(context, network(0))


def test_some_weights_and_adapters(archive: Path, gpu: Torchless) -> None:
    model = gpu.load(archive, device="cuda:0")
    context = model.context()
    net, other = network(0), network(1)
    model.method("update_weights", {"scale": other.scale.detach()}, partial=True)
    net.scale = other.scale
    check(context, net)
    model.method("update_weights", {"norm.running_var": other.norm.running_var}, partial=True)
    net.norm.running_var = other.norm.running_var
    check(context, net)
    a, b = torch.randn(2, 16), torch.randn(8, 2)
    model.method("add_lora", {"left.lora_A.weight": a, "left.lora_B.weight": b}, scale=0.5)
    with torch.no_grad():
        net.left.weight += 0.5 * b @ a
    check(context, net)
    with pytest.raises(WeightsError, match=r"'conv\.weight' is missing"):
        model.method("update_weights", {"scale": other.scale.detach()})
    check(context, net)


def test_the_cpu_reads_the_same_archive(archive: Path) -> None:
    process = Torchless()
    model = process.load(archive)
    model.method("update_weights", network(1).state_dict())
    check(model.context(), network(1))
    process.close()


def test_packed_weights_run_on_both(archive: Path, gpu: Torchless, tmp_path: Path) -> None:
    save_file(network(2).state_dict(), tmp_path / "new.safetensors")
    packed = tmp_path / "packed.aotpack"
    report = pack_weights(archive, tmp_path / "new.safetensors", packed)
    assert report.derived > 0
    with ArchiveReader(packed) as reader:
        reader.verify()
        assert reader.manifest.targets == ("x86-64-v3", "cuda-sm_90")
    model = gpu.load(packed, device="cuda:0")
    check(model.context(), network(2), batches=(3,))
    process = Torchless()
    check(process.load(packed).context(), network(2), batches=(3,))
    process.close()


def test_packed_code_is_the_same(archive: Path, kernels: Path, tmp_path: Path, cache_dir: Path) -> None:
    with torch.device("meta"):
        bare = Net().eval()
    dims = {"x": {0: aotpack.Dim("batch", 1, 64)}}
    program = aot_export(bare, (torch.randn(3, 6, 10),), dynamic_shapes=dims)
    code, packed, wanted = (tmp_path / f"{name}.aotpack" for name in ("code", "packed", "wanted"))
    options = BuildOptions(cache_dir=cache_dir, code_only=True)
    with recorded_kernels(kernels):
        build_archive(program, code, targets=["x86-64-v3", "cuda-sm_90"], options=options)
    assert not any(file.path.startswith("weights/") for file in read_manifest(code).files)
    save_file(network(2).state_dict(), tmp_path / "new.safetensors")
    pack_weights(code, tmp_path / "new.safetensors", packed)
    # Which runs on both, see above.
    pack_weights(archive, tmp_path / "new.safetensors", wanted)
    made, good = read_manifest(packed), read_manifest(wanted)
    assert (made.files, made.constants, made.weights) == (good.files, good.constants, good.weights)
