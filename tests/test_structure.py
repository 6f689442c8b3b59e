"""The import graph: folders are layers, of which each imports only lower ones, and no two files import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A folder imports itself and what stands before it. `package/__init__` is what a package offers to users:
# a facade over folders that may import files beside it.
LAYERS = (
    "aotpack",
    "aotpack/targets",
    "aotpack/costs",
    "aotpack/archive",
    "aotpack/building",
    "aotpack/runtime",
    "aotpack/runtime/packing",
    "aotpack/torch",
    "aotpack/export/torch_compat",
    "aotpack/export/torch_compat/triton",
    "aotpack/export/diagnostics",
    "aotpack/export/symbolic_shapes",
    "aotpack/export/ir",
    "aotpack/export/ops",
    "aotpack/export/ops/cuda",
    "aotpack/export/custom_ops",
    "aotpack/export/decompositions",
    "aotpack/export/decompositions/complex",
    "aotpack/export/decompositions/creation",
    "aotpack/export/decompositions/elementwise",
    "aotpack/export/decompositions/indexing",
    "aotpack/export/decompositions/linalg",
    "aotpack/export/decompositions/nn",
    "aotpack/export/decompositions/quantization",
    "aotpack/export/decompositions/reductions",
    "aotpack/export/decompositions/signal",
    "aotpack/export/decompositions/__init__",
    "aotpack/export/overrides",
    "aotpack/export/torch_compat/inductor",
    "aotpack/export/torch_compat/inductor/cuda",
    "aotpack/export/tracing/python_state",
    "aotpack/export/tracing",
    "aotpack/export/probing",
    "aotpack/export/training",
    "aotpack/export/passes",
    "aotpack/export/passes/patterns",
    "aotpack/export/passes/common",
    "aotpack/export/passes/cpu/layouts",
    "aotpack/export/passes/cpu",
    "aotpack/export/passes/cuda",
    "aotpack/export/autograd",
    "aotpack/export/capture",
    "aotpack/export/rewriting",
    "aotpack/export/onnx/base",
    "aotpack/export/onnx/ops",
    "aotpack/export/onnx",
    "aotpack/export/backends",
    "aotpack/export/backends/cpu",
    "aotpack/export/backends/cuda",
    "aotpack/export/weights",
    "aotpack/export/partition",
    "aotpack/export/blocks",
    "aotpack/export/driver",
    "aotpack/export/__init__",
    "aotpack/cli",
    "aotpack/__main__",
    "aotpack/__init__",
)
_PASSES = ("aotpack.export.passes.common.", "aotpack.export.passes.cpu.", "aotpack.export.passes.cuda.")
FACADES = (
    "aotpack/__init__", "aotpack/__main__", "aotpack/export/__init__", "aotpack/export/decompositions/__init__",
)  # fmt: skip


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted((ROOT / "aotpack").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, inside functions and for type checkers too."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in known or node.module in known:
                    yield name if name in known else node.module


def folder(path: Path) -> str:
    """The layer that a file belongs to."""
    name = path.relative_to(ROOT).with_suffix("").as_posix()
    return name if name in FACADES else name.rpartition("/")[0]


@cache
def edges() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(imports(path)) - {name} for name, path in modules().items()}


def test_every_folder_is_a_layer() -> None:
    assert {folder(path) for path in modules().values()} == set(LAYERS)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_folder_imports_lower_ones(layer: str) -> None:
    allowed = set(LAYERS[: LAYERS.index(layer) + 1])
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if folder(path) == layer
        for other in sorted(edges()[name])
        if folder(modules()[other]) not in allowed
    ]
    assert not wrong, "\n".join(wrong)


def test_export_and_runtime_know_nothing_of_each_other() -> None:
    for name, found in edges().items():
        if name.startswith("aotpack.export"):
            assert not any(other.startswith(("aotpack.runtime", "aotpack.cli")) for other in found), name
        if name.startswith(("aotpack.runtime", "aotpack.archive", "aotpack.building", "aotpack.costs")):
            assert not any(other.startswith(("aotpack.export", "aotpack.cli")) for other in found), name


def test_no_pass_imports_another() -> None:
    for name, found in edges().items():
        if name.startswith(_PASSES) and "pipeline" not in name:
            beside = {other for other in found if folder(modules()[other]) == folder(modules()[name])}
            assert not beside or ".layouts." in name, f"{name} imports {beside}"


def test_no_two_files_import_each_other() -> None:
    graph = {name: set(found) for name, found in edges().items()}
    while True:
        leaves = {name for name, found in graph.items() if not found & graph.keys()}
        if not leaves:
            break
        graph = {name: found for name, found in graph.items() if name not in leaves}
    # What is left reaches a circle; the facades import files that import `aotpack` for its version alone.
    assert not graph, sorted(graph)


def test_the_top_of_export_has_few_files() -> None:
    assert len(list((ROOT / "aotpack" / "export").glob("*.py"))) <= 8


# Folders of tests of what no single folder of the package does.
TOPICS = {"control_flow", "operators"}


def test_the_tests_of_export_lie_in_folders_as_its_sources() -> None:
    tests = ROOT / "tests" / "export"
    assert not list(tests.glob("test_*.py"))
    for folder in tests.rglob("*/"):
        if (folder / "__init__.py").exists() and folder != tests:
            name = folder.relative_to(tests).as_posix()
            assert name in TOPICS or f"aotpack/export/{name}" in LAYERS or _over_layers(name), name


def _over_layers(name: str) -> bool:
    return any(layer.startswith(f"aotpack/export/{name}/") for layer in LAYERS)


@pytest.mark.parametrize("folder", ["passes/common", "passes/cpu", "passes/cuda"])
def test_every_pass_has_a_file_of_tests(folder: str) -> None:
    passes = {path.stem for path in (ROOT / "aotpack" / "export" / folder).glob("*.py")} - {"__init__", "pipeline"}
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "export" / folder).glob("test_*.py")}
    assert passes <= tested, passes - tested
