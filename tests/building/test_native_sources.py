"""Which sources a module links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aotpack.building import native_sources


class TestSources:
    def test_what_every_module_links(self) -> None:
        names = {path.name for path in native_sources.sources_for([])}
        assert {"tensor.cpp", "copy.cpp", "convert.cpp", "openmp.cpp"} <= names
        assert not any(path.parent.name == "ops" for path in native_sources.sources_for([]))

    @pytest.mark.parametrize("shim", sorted(native_sources.operator_groups()))
    def test_an_operators_sources_define_it_and_are_closed(self, shim: str) -> None:
        sources = native_sources.sources_for([shim])
        assert sources == sorted(set(sources))
        folder = native_sources.module_folder() / "ops"
        own = folder / f"{native_sources.operator_groups()[shim]}.cpp"
        assert own in sources
        assert re.search(rf"\b{shim}\b", own.read_text()) or _made_by_macro(shim, own)
        for source in sources:
            assert source.is_file()
            for header in native_sources.local_includes(source):
                implementation = header.with_suffix(".cpp")
                assert not implementation.is_file() or implementation in sources, f"{source} needs {implementation}"

    def test_modules_link_what_they_use(self) -> None:
        groups = native_sources.operator_groups()
        assert len(set(groups.values())) > 3
        everything = set(native_sources.sources_for(groups))
        for shim in groups:
            assert set(native_sources.sources_for([shim])) < everything

    def test_the_module_abi_is_that_of_the_header(self) -> None:
        assert native_sources.module_abi_version() == 2
        assert native_sources.module_imports() == ("alloc", "free", "fail", "seed")

    def test_hashes_follow_headers(self, tmp_path: Path) -> None:
        (tmp_path / "inner.h").write_text("int inner;")
        (tmp_path / "outer.h").write_text('#include "inner.h"\n')
        source = tmp_path / "a.cpp"
        source.write_text('#include "outer.h"\n#include <vector>\n#include "absent.h"\n')
        assert {path.name for path in native_sources.local_includes(source)} == {"inner.h", "outer.h"}
        before = native_sources.content_hash(source)
        (tmp_path / "inner.h").write_text("long inner;")
        native_sources._content.cache_clear()
        native_sources.content_hash.cache_clear()
        assert native_sources.content_hash(source) != before


def _made_by_macro(shim: str, source: Path) -> bool:
    """Whether the definition's name is put together by a macro: its varying part is an argument there."""
    text = source.read_text()
    return any(
        re.search(rf"\b[A-Z_]+\([^)\n]*\b{shim[start:]}\b", text) for start in range(len("aoti_torch_"), len(shim))
    )
