"""The description of programs in an archive: values, the sources of kernels, memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotpack.archive import ArchiveReader, read_manifest
from aotpack.archive.description import DescribedVariant, parse_description, read_description
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.support.described import HOSTILE, build_staged


@pytest.fixture(scope="module")
def described(described_archives: Path) -> DescribedVariant:
    return of(described_archives / "described.aotpack")


def of(path: Path) -> DescribedVariant:
    with ArchiveReader(path) as reader:
        description = read_description(reader)
    assert description is not None
    return description["forward"]["default"]


def test_values_have_operator_module_shape_and_dtype(described: DescribedVariant) -> None:
    nodes = {node.name: node for node in described.nodes}
    assert all(node.values for node in described.nodes if node.kind != "output")
    head = next(node for node in described.nodes if node.operator == "aten.linear" and node.module == "head")
    (value,) = head.values
    assert (value.dtype, value.shape, value.device) == ("float32", ("batch", 8), "cpu")
    assert described.modules["head"] == "Linear"
    assert described.modules[HOSTILE] == "LayerNorm"
    assert nodes["x"].kind == "input"
    assert [described.nodes[i].kind for i in head.inputs] == ["call", "constant", "constant"]


def test_graphs_inside_are_there(described: DescribedVariant) -> None:
    inside = [node for node in described.nodes if node.name.startswith("true_graph_0.")]
    assert any(node.operator == "aten.linear" and node.module == "branch" for node in inside)


def test_kernels_have_the_nodes_that_they_compute(described: DescribedVariant, described_archives: Path) -> None:
    manifest = read_manifest(described_archives / "described.aotpack")
    (implementation,) = manifest.entries[0].variants[0].implementations
    kernels = implementation.steps[0].module.kernels
    (steps,) = described.targets.values()
    found = [
        (kernel.name, [described.nodes[i].operator for i in nodes], [described.nodes[i].module for i in nodes])
        for kernel, nodes in zip(kernels, steps[0].kernels, strict=True)
    ]
    convolution = next(each for each in found if each[0] == "packed_conv")
    assert "aten.conv2d" in convolution[1]
    assert "aten.relu" in convolution[1]
    linears = [modules for name, _, modules in found if name == "packed_linear"]
    # In the order of the code: that of the branch, then the one of the head, twice.
    assert [modules[0].partition(".")[0] for modules in linears] == ["branch", "head", "head"]
    assert [kernel.ops for kernel in kernels] == [tuple(dict.fromkeys(operators)) for _, operators, _ in found]
    assert all(operators for _, operators, _ in found)


def test_every_call_is_computed_by_a_kernel(described: DescribedVariant) -> None:
    (steps,) = described.targets.values()
    computed = {index for nodes in steps[0].kernels for index in nodes}
    calls = {i for i, node in enumerate(described.nodes) if node.kind == "call"}
    left = {described.nodes[i].operator for i in calls - computed}
    assert left <= {"cond", "getitem", "aten.gt", "aten.sum", "aten.sym_size"}, left


def test_memory_is_in_use_from_its_kernel_to_its_last_reader(described: DescribedVariant) -> None:
    (steps,) = described.targets.values()
    blocks, kernels = steps[0].blocks, steps[0].kernels
    # The result of the convolution, at the batch of the example.
    convolution = max(blocks, key=lambda block: block.nbytes)
    assert convolution.nbytes == 4 * 8 * 8 * 8 * 4
    computes = [described.nodes[i].operator for i in kernels[convolution.first]]
    assert "aten.conv2d" in computes
    assert not convolution.output
    assert convolution.last < len(kernels) - 1
    assert sum(block.output for block in blocks) == 2


def test_stages_of_nodes(described_archives: Path) -> None:
    staged = of(described_archives / "staged.aotpack")
    stages = {node.module: node.stage for node in staged.nodes if node.operator == "aten.linear"}
    assert stages == {"first": 0, "second": 1}
    (steps,) = staged.targets.values()
    assert [any(nodes) for step in steps for nodes in step.kernels]
    assert len(steps) == 2


def test_descriptions_are_reproducible(tmp_path: Path, cache_dir: Path, described_archives: Path) -> None:
    build_staged(tmp_path / "again.aotpack", cache_dir, profile=True)
    again = (tmp_path / "again.aotpack").read_bytes()
    assert again == (described_archives / "staged.aotpack").read_bytes()


def test_builds_without_a_description(tmp_path: Path, cache_dir: Path) -> None:
    program = aot_export(lambda x: x.sin(), (torch.randn(3),))
    build_archive(program, tmp_path / "a", options=BuildOptions(cache_dir=cache_dir, description=False))
    manifest = read_manifest(tmp_path / "a")
    assert manifest.description is None
    (kernel,) = manifest.entries[0].variants[0].implementations[0].steps[0].module.kernels
    assert kernel.ops == ("aten.sin",)


def test_descriptions_are_small(described_archives: Path) -> None:
    with ArchiveReader(described_archives / "described.aotpack") as reader:
        assert reader.manifest.description is not None
        data = reader.read(reader.manifest.description)
    count = len(parse_description(data)["forward"]["default"].nodes)
    assert len(data) < 60 * count
