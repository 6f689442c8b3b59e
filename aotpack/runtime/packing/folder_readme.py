"""The README.md of an unpacked archive."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aotpack.archive import Manifest

_TEXT = """\
# {name}

This folder was made by `aotpack unpack`. It contains the program, its generated sources with all
headers that they include, and the weights.

{signatures}

## Build and pack

```
cmake -B build && cmake --build build -j$(nproc)
aotpack pack . -o ../{file}.aotpack
```

CMake compiles the modules into `modules/`, with any compiler for C++20 and OpenMP. It needs no torch.
`aotpack pack` checks the folder and writes an archive from it. A module that is older than a source
that was changed is an error: build first.

## Contents

| path | contents |
|---|---|
{rows}

`manifest.json` is the archive's manifest. `pack` computes sizes, offsets and hashes again. Other keys
may be edited, such as `name`.

Example calls (`goldens/`) are left out of the new archive if code or weights have changed, because
their answers are those of the old ones. `aotpack pack --goldens` keeps them.
"""


def readme(manifest: Manifest, modules: Sequence[str], sources: Collection[str]) -> str:
    """The text for a folder with these modules and sources."""
    rows = []
    for path in modules:
        folder = f"src/{path.removeprefix('modules/').removesuffix('.so')}/"
        rows.append((folder, f"generated C++ of `{path}`, and in `program.txt` the graph that it computes"))
    if any(path.endswith(".ptx") for path in sources):
        rows.append(("src/…/*.ptx", "kernels for the GPU, to read; the compiled kernels are `modules/…/*.cubin`"))
    tops = {path.partition("/")[0] for path in sources if "/" in path}
    known = {
        "aotpack": "kernels and headers of aotpack",
        "custom": "kernels and headers of custom operators",
        "torch": "headers of PyTorch that generated code includes",
    }
    rows += [(f"{top}/", known.get(top, "headers")) for top in sorted(tops - {"src"})]
    rows += [
        ("CMakeLists.txt", "sources, flags and libraries of each module"),
        ("modules/", "the compiled modules, where CMake writes them"),
        ("weights/weights.safetensors", "all constants by their names in the manifest"),
        ("manifest.json", "signature, dims, variants, constants: docs/format.md"),
        ("checksums.json", "hashes of the sources as they were unpacked"),
    ]
    folders = {file.path.partition("/")[0] for file in manifest.files}
    if "goldens" in folders:
        rows.append(("goldens/", "example calls with their answers"))
    if "reports" in folders:
        rows.append(("reports/", "what the passes of the build changed"))
    if any(file.path.startswith("tuning/") for file in manifest.files):
        rows.append(("tuning/", "which ways kernels go on hosts where `aotpack tune` measured them"))
    listed = "\n".join(f"| `{path}` | {text} |" for path, text in rows)
    signatures = "\n".join(f"    {entry.signature}" for entry in manifest.entries)
    name = " ".join(manifest.name.split()) or "model"
    file = "".join(c if c.isalnum() or c in "._-" else "-" for c in name)
    return _TEXT.format(name=name, signatures=signatures, file=file, rows=listed)
