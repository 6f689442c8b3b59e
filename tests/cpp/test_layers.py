"""The folders of csrc/ in layers: what each may include, read from the sources."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
RUNTIME = CSRC / "runtime"

# By folder of csrc/runtime, the lowest layer first: the other folders whose headers its files include.
LAYERS: dict[str, set[str]] = {
    "base": set(),
    "host": {"base"},
    "shape": {"base"},
    "manifest": {"base", "shape"},
    "safetensors": {"base", "host", "manifest"},
    "archive": {"base", "host", "manifest"},
    "hal": {"base", "host", "manifest"},
    "hal/cpu": {"base", "hal", "host"},
    "hal/cuda": {"base", "hal", "host"},
    "model": {"archive", "base", "hal", "hal/cpu", "hal/cuda", "host", "manifest"},
    "call": {"base", "hal", "host", "manifest", "model", "safetensors"},
    "update": {"base", "call", "hal", "manifest", "model"},
    "pipeline": {"base", "call", "host", "model"},
    "api": {"base", "call", "host", "model", "pipeline", "update"},
}
# The same for the folders of csrc. "include" is what they share with code outside.
PARTS: dict[str, set[str]] = {
    "include": set(),
    "third_party": set(),
    "kernels": {"third_party"},
    "module": {"include", "kernels"},
    "probe": {"kernels"},
    "runtime": {"include"},
    "python": {"include"},
}
SOURCES = {".h", ".hpp", ".cpp", ".inc"}

Edges = dict[str, dict[str, list[str]]]


def sources(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.suffix in SOURCES)


def included(path: Path, *roots: Path) -> list[Path]:
    """The files of the project that `path` includes: beside it or below one of `roots`, as the compiler finds them."""
    found = []
    for name in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE):
        candidates = [root / name for root in (path.parent, *roots) if (root / name).is_file()]
        found += [candidates[0].resolve()] if candidates else []
    return found


def folder_edges(root: Path, folder_of: dict[Path, str], *roots: Path) -> Edges:
    """Folder -> included folder -> the files that include from it."""
    edges: Edges = defaultdict(lambda: defaultdict(list))
    for path in sources(root):
        for other in included(path, *roots):
            source, target = folder_of[path.resolve()], folder_of.get(other)
            if target is not None and target != source:
                edges[source][target].append(str(path.relative_to(root)))
    return edges


def violations(layers: dict[str, set[str]], edges: Edges) -> list[str]:
    """Every include that the layers do not allow."""
    return [
        f"{file} includes from {target}/"
        for source, targets in edges.items()
        for target, files in targets.items()
        if target not in layers[source]
        for file in files
    ]


def circle(edges: Edges) -> list[str]:
    """Folders that include each other, in a circle; empty where there is none."""
    done: set[str] = set()

    def visit(folder: str, above: list[str]) -> list[str]:
        if folder in above:
            return above[above.index(folder) :]
        if folder in done:
            return []
        done.add(folder)
        return next((found for other in edges.get(folder, {}) if (found := visit(other, [*above, folder]))), [])

    return next((found for folder in list(edges) if (found := visit(folder, []))), [])


def runtime_edges(root: Path) -> Edges:
    return folder_edges(root, {path.resolve(): str(path.parent.relative_to(root)) for path in sources(root)}, root)


def part_edges() -> Edges:
    folder_of = {path.resolve(): path.relative_to(CSRC).parts[0] for path in sources(CSRC)}
    # Private headers of the runtime are out of reach of the other folders, whose build does not have their path.
    return folder_edges(CSRC, folder_of, CSRC / "include", CSRC / "third_party", CSRC)


def test_runtime_keeps_to_its_layers() -> None:
    edges = runtime_edges(RUNTIME)
    assert {str(path.parent.relative_to(RUNTIME)) for path in sources(RUNTIME)} == set(LAYERS)
    assert violations(LAYERS, edges) == []
    assert circle(edges) == []
    # What is allowed is used: the table says what is there.
    assert {folder: set(edges.get(folder, {})) for folder in LAYERS} == LAYERS


@pytest.mark.parametrize("table", [LAYERS, PARTS], ids=["runtime", "csrc"])
def test_declared_layers_only_look_down(table: dict[str, set[str]]) -> None:
    order = list(table)
    for at, folder in enumerate(order):
        assert table[folder] <= set(order[:at]), folder


def test_parts_of_csrc_keep_apart() -> None:
    edges = part_edges()
    assert violations(PARTS, edges) == []
    assert {folder: set(edges.get(folder, {})) for folder in PARTS} == PARTS


def test_runtime_includes_by_path_from_its_root() -> None:
    for path in sources(RUNTIME):
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            assert (RUNTIME / name).is_file() or (CSRC / "include" / name).is_file(), f"{path}: {name}"


def test_every_source_of_the_runtime_is_built() -> None:
    listed = set(re.findall(r"^ {4}([\w/]+\.cpp)\b", (RUNTIME / "CMakeLists.txt").read_text(), re.MULTILINE))
    listed |= {"api/c_api.cpp", "api/pipeline.cpp", "api/saved.cpp"}
    assert listed == {str(path.relative_to(RUNTIME)) for path in RUNTIME.rglob("*.cpp")}


def test_every_header_has_the_one_guard() -> None:
    headers = [path for path in sources(CSRC) if path.suffix in {".h", ".hpp"} and "third_party" not in path.parts]
    for path in headers:
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL).lstrip()
        assert code.startswith("#pragma once\n"), path


def test_violations_and_circles_are_found(tmp_path: Path) -> None:
    for name, text in {
        "low/a.h": "#pragma once\n",
        "low/a.cpp": '#include "low/a.h"\n#include "high/b.h"\n',
        "high/b.h": '#pragma once\n#include "low/a.h"\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    edges = runtime_edges(tmp_path)
    assert violations({"low": set(), "high": {"low"}}, edges) == ["low/a.cpp includes from high/"]
    assert sorted(circle(edges)) == ["high", "low"]
