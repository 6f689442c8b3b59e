"""Archives with sources, for tests that compile nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from aotpack.archive import ArchiveReader, FileSource, write_archive
from aotpack.archive.sources import SOURCES_PATH, encode_sources


def with_sources(archive: Path, output: Path, files: Mapping[str, str] | None = None) -> Path:
    """The archive with sources: by default one of each module, a shared header, and a CMakeLists.txt."""
    with ArchiveReader(archive) as reader:
        manifest = reader.manifest
        given = dict(files or {"CMakeLists.txt": "project(model)\n", "aotpack/tensor.h": "// a header\n"})
        for file in manifest.files if files is None else ():
            if file.path.startswith("modules/") and file.path.endswith(".so"):
                folder = f"src/{file.path.removeprefix('modules/').removesuffix('.so')}"
                given |= {f"{folder}/wrapper.cpp": "int x;\n", f"{folder}/program.txt": "forward(x)\n"}
        encoded = encode_sources({path: text.encode() for path, text in given.items()})
        sources = [reader.source(index) for index in range(len(manifest.files))]
        sources.append(FileSource.from_bytes(SOURCES_PATH, encoded))
        write_archive(output, dataclasses.replace(manifest, files=()), sources)
    return output
