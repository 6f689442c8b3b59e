"""Building archives for the scenarios of the seed documents, and running them in a process without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aotpack.export import BuildOptions, Program, aot_export, build_archive
from tests.support.declared import check_declared_sizes
from tests.support.torchless import RemoteModel, Torchless


@pytest.fixture(scope="session")
def torchless() -> Iterator[Torchless]:
    process = Torchless()
    yield process
    process.close()


@pytest.fixture
def captured(tmp_path: Path, cache_dir: Path) -> Callable[..., tuple[Program, Path]]:
    """Captures and builds a model; returns the program and the archive's path."""

    def run(
        model: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        *,
        mode: str = "forward",
        dynamic_shapes: Any = None,
        partitioning: Any = None,
        variants: Any = None,
        **options: Any,
    ) -> tuple[Program, Path]:
        program = aot_export(model, tuple(args), kwargs, mode=mode, dynamic_shapes=dynamic_shapes, variants=variants)
        output = tmp_path / f"{len(list(tmp_path.iterdir()))}.aotpack"
        build_archive(program, output, options=BuildOptions(cache_dir=cache_dir, **options), partitioning=partitioning)
        return program, output

    return run


@pytest.fixture
def built(captured: Callable[..., tuple[Program, Path]]) -> Callable[..., Path]:
    """Captures and builds a model; returns the archive's path."""
    return lambda *args, **options: captured(*args, **options)[1]


@pytest.fixture
def build(captured: Callable[..., tuple[Program, Path]], torchless: Torchless) -> Callable[..., RemoteModel]:
    """Captures, builds and loads a model in the process without torch; `path` of the result is the archive. It is
    called with sizes from all over the declared ranges.
    """

    def run(model: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None, **options: Any) -> RemoteModel:
        program, path = captured(model, args, kwargs, **options)
        archive = torchless.load(path, verify="full", num_threads=2)
        check_declared_sizes(program, model, args, kwargs, path, archive)
        return archive

    return run


@pytest.fixture
def traced(
    built: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[RemoteModel, Callable[[], list[dict[str, Any]]]]]]:
    """Builds with operators that note what they are given (csrc/module/trace.h).

    Returns the model, and a function that gives the calls of operators so far.
    """
    file = tmp_path / "trace.jsonl"
    process = Torchless({"AOTPACK_TRACE_FILE": str(file)})

    def run(*args: Any, **options: Any) -> tuple[RemoteModel, Callable[[], list[dict[str, Any]]]]:
        with monkeypatch.context() as patch:
            patch.setenv("AOTPACK_TRACE", "1")
            path = built(*args, **options)
        return process.load(path), lambda: [json.loads(line) for line in file.read_text().splitlines()]

    yield run
    process.close()
