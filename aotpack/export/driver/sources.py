"""The sources of an archive: what its modules are compiled from, and the graphs that they compute, in words."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from aotpack.archive.sources import encode_sources
from aotpack.building.module_sources import ModuleSources
from aotpack.building.source_tree import source_tree
from aotpack.errors import BuildError
from aotpack.export.backends.backend import Tools
from aotpack.export.driver.compiled import CompiledModule
from aotpack.export.ir.program import Program

# A graph's comments name the files of the model; where these lie on the build machine is left out, and the numbers
# that differ from run to run.
_FOLDER = re.compile(r"(# File: )[^\n]*?([^/\n]+:\d+ in )")
_EVALUATED = re.compile(r"<eval_with_key>\.\d+")


def encoded_sources(name: str, modules: Mapping[str, CompiledModule], tools: Tools) -> bytes:
    """The file of the sources of these modules, by their paths in the archive.

    Raises:
        BuildError: the sources are too large or have names that cannot be stored.
        CompileError: a source of the user cannot be preprocessed.
        OSError: a source cannot be read.
    """
    tree = source_tree(name, {path: _module(each, tools) for path, each in modules.items()})
    try:
        return encode_sources(tree)
    except ValueError as error:
        raise BuildError(f"the sources cannot be stored: {error}", hint="build without sources") from error


def _module(each: CompiledModule, tools: Tools) -> ModuleSources:
    sources = each.backend.sources(each.lowered, tools)
    return dataclasses.replace(sources, texts={**sources.texts, "program.txt": program_text(each.program)})


def program_text(program: Program) -> str:
    """The signature and the graph of a program, as Python with dtypes and shapes."""
    graph = program.graph_module.print_readable(print_output=False)
    graph = _EVALUATED.sub("<eval_with_key>", _FOLDER.sub(r"\1\2", graph))
    return f"{program.signature}\n\n{graph.strip()}\n"
