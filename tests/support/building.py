"""Building archives in tests, and comparison with eager in double precision."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import aotpack
from aotpack.archive import ArchiveReader, Manifest
from aotpack.export import BuildOptions, Program, aot_export, build_archive
from tests.support.declared import check_declared_sizes

Build = Callable[..., aotpack.Model]
Pack = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path, cache_dir: Path) -> Build:
    """Captures, builds and loads a model; `build.path` of the result is `model.path`.

    `any_size=False`: values of the example call are right for its own sizes alone.
    """

    def run(
        model: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        mode: str = "forward",
        dynamic_shapes: Any = None,
        targets: Sequence[str] | None = None,
        verify: str = "full",
        without: Sequence[str] = (),
        any_size: bool = True,
    ) -> aotpack.Model:
        program = aot_export(model, tuple(args), kwargs, mode=mode, dynamic_shapes=dynamic_shapes)
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.aotpack"
        build_archive(
            program, output, targets=targets, options=BuildOptions(cache_dir=cache_dir, without=tuple(without))
        )
        archive = aotpack.load(output, verify=verify, num_threads=2)
        if any_size:
            check_declared_sizes(program, model, args, kwargs, output, archive)
        return archive

    return run


@pytest.fixture
def pack(tmp_path: Path, cache_dir: Path) -> Pack:
    """Builds an archive of one program or several; returns its path."""

    def run(programs: Program | Sequence[Program], **options: Any) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.aotpack"
        build_archive(programs, path, options=BuildOptions(cache_dir=cache_dir, **options))
        return path

    return run


def manifest_of(path: Path) -> Manifest:
    """The manifest of the archive at `path`."""
    with ArchiveReader(path) as reader:
        return reader.manifest


def told_of_module(path: Path, target: str, folder: Path, *command: str) -> str:
    """What a program such as `objdump -d` prints of the module of an archive's `forward`, which is left in `folder`."""
    module = folder / "module.so"
    with ArchiveReader(path) as reader:
        module.write_bytes(reader.read(f"modules/{target}/forward.so"))
    return subprocess.run([*command, str(module)], capture_output=True, text=True, check=True).stdout


def in_double(value: Any) -> Any:
    """The value with floating tensors converted to double."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, value)


def assert_close(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Every tensor's greatest error is at most `tolerance` of the greatest expected magnitude; integers are equal."""
    got, wanted = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(got) == len(wanted)
    for index, (a, e) in enumerate(zip(got, wanted, strict=True)):
        if not isinstance(e, torch.Tensor):
            assert a == e, f"output {index}: {a!r} instead of {e!r}"
            continue
        assert tuple(a.shape) == tuple(e.shape), f"output {index}: {tuple(a.shape)} instead of {tuple(e.shape)}"
        assert a.is_complex() == e.is_complex(), f"output {index}: {a.dtype} instead of {e.dtype}"
        if e.is_complex():
            a, e = (torch.view_as_real(t.resolve_conj()) for t in (a, e))
        if not e.is_floating_point():
            assert torch.equal(a, e), f"output {index} differs"
            continue
        if e.numel() == 0:
            continue
        assert torch.equal(a.isnan(), e.isnan()), f"output {index}: NaN at other places"
        scale = e.nan_to_num().abs().max().clamp_min(1e-30)
        error = ((a.double() - e.double()).nan_to_num().abs().max() / scale).item()
        assert error <= tolerance, f"output {index}: relative error {error:.3g} > {tolerance}"


def check(model: aotpack.Model, eager: torch.nn.Module, *calls: tuple[Any, ...], tolerance: float = 1e-4) -> None:
    """Compares the archive with eager in double precision on every call, twice, so that stale buffers show."""
    reference = copy.deepcopy(eager).double()
    for args in calls:
        with torch.no_grad():
            expected = reference(*in_double(args))
        for _ in range(2):
            assert_close(model(*args), expected, tolerance)


def joint_reference(model: torch.nn.Module, *args: Any) -> dict[str, Any]:
    """What a joint archive of `model` must return for a call, from eager's backward in double precision."""
    reference = copy.deepcopy(model).double()
    passed = pytree.tree_map_only(
        torch.Tensor, lambda t: in_double(t.detach().clone()).requires_grad_(t.requires_grad), args
    )
    outputs = reference(*passed)
    loss = next(leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor))
    leaves = [leaf for leaf in pytree.tree_leaves(passed) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    loss.backward()
    return {
        "outputs": pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, outputs),
        "gradients": {name: p.grad for name, p in reference.named_parameters() if p.requires_grad},
        "input_gradients": [leaf.grad for leaf in leaves],
    }


def check_joint(
    archive: aotpack.Model, model: torch.nn.Module, *calls: tuple[Any, ...], tolerance: float = 1e-4
) -> None:
    """Compares outputs, gradients and gradients of inputs with eager's in double precision, twice for every call.

    The greatest error of a gradient is at most `tolerance` of its own greatest magnitude, or of a thousandth of the
    greatest of all where it is smaller than that: some are zero but for rounding.
    """
    for args in calls:
        expected = joint_reference(model, *args)
        for _ in range(2):
            passed = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, args)
            result = archive(*passed)
            assert_close(result["outputs"], expected["outputs"], tolerance)
            assert list(result["gradients"]) == list(expected["gradients"])
            got = [*result["gradients"].values(), *result.get("input_gradients", {}).values()]
            wanted = [*expected["gradients"].values(), *expected["input_gradients"]]
            floor = 1e-3 * max(g.abs().max().item() for g in wanted if g is not None)
            names = [*result["gradients"], *result.get("input_gradients", {})]
            assert len(got) == len(wanted)
            for name, actual, gradient in zip(names, got, wanted, strict=True):
                assert (actual is None) == (gradient is None), name
                if gradient is None:
                    continue
                assert actual.shape == gradient.shape, name
                error = (actual.double() - gradient).abs().max().item() / max(gradient.abs().max().item(), floor)
                assert error <= tolerance, f"gradient of {name}: relative error {error:.3g} > {tolerance}"
