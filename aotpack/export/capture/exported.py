"""Captures from a `.pt2` file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch.export import ExportedProgram

from aotpack.building.collector import rare_collections
from aotpack.building.frames import roomy
from aotpack.errors import CaptureError
from aotpack.export.capture.forward import forward_program
from aotpack.export.capture.model_files import foreign
from aotpack.export.capture.models import aot_export
from aotpack.export.capture.variants import Variant, Variants, has_same, with_variants
from aotpack.export.custom_ops.triton_launches import launches_traced
from aotpack.export.diagnostics.internal_errors import reported, summary
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.deserialized_guards import restore_guards
from aotpack.export.torch_compat.late_code import code_generated_late
from aotpack.export.torch_compat.patches import exclusive
from aotpack.export.tracing import eager, open_results
from aotpack.export.tracing.interface import Call
from aotpack.export.tracing.numbers import constant
from aotpack.export.tracing.quiet import torch_quiet


@reported("capture")
@rare_collections()
@roomy
@exclusive
@code_generated_late()
@launches_traced()
def load_exported(
    path: str | os.PathLike[str],
    *,
    variants: Variants | Sequence[Mapping[str, int] | Variant] | None = None,
) -> Program:
    """Loads the program in a `.pt2` file written by `torch.export.save`. The file must contain example inputs.

    `variants` are as in `aot_export`, but for those whose inputs are one tensor: the program was traced with a tensor
    for each input.

    Raises:
        CaptureError: the file is not an exported program or has no example inputs, or a variant cannot be captured.
        OSError: the file cannot be read.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise CaptureError(
            f"load_exported expects a file, but the path is a {type(path).__name__}",
            hint="save the program with torch.export.save(program, path), or capture program.module() with aot_export",
        )
    other = foreign(path)
    if other is not None:
        raise CaptureError(f"{os.fspath(path)} is not an exported program but {other.what}", hint=other.hint)
    try:
        with torch_quiet():
            exported = torch.export.load(path)
    except Exception as error:
        raise CaptureError(
            f"{os.fspath(path)} could not be read as an exported program: {summary(error)}",
            hint="save it again with torch.export.save(torch.export.export(model, args), path), with this version of "
            f"torch ({torch.__version__})",
        ) from error
    if exported.example_inputs is None:
        raise CaptureError(f"{os.fspath(path)} contains no example inputs", hint="export and save the program again")
    restore_guards(exported)
    args, kwargs = exported.example_inputs
    args, kwargs = eager.detached((tuple(args), dict(kwargs)))
    with open_results.watched() as open_reasons:
        outputs = eager.run(exported.module(), args, kwargs)
    call = Call(args, kwargs, _names_of_exported(exported, len(args)), numbers=_numbers_of_exported(exported))
    program = forward_program(exported, call, Path(path).stem, outputs)
    program = open_results.noted(replace(program, state_dict=dict(exported.state_dict)), open_reasons)
    if variants is None:
        return program
    if has_same(variants):
        raise CaptureError(
            "the program in the file was traced with a tensor for each input; it has no variants for inputs that are "
            "one tensor",
            hint="capture the model itself with aot_export(…, variants=…)",
        )
    return with_variants(program, variants, args, kwargs, partial(aot_export, exported.module()))


def _names_of_exported(exported: ExportedProgram, count: int) -> list[str | None]:
    """Argument names out of the placeholders, which torch.export names after them; nested ones have no single name."""
    args_tree = exported.call_spec.in_spec.children()[0]
    user_inputs = [str(name) for name in exported.graph_signature.user_inputs]
    names: list[str | None] = []
    position = 0
    for child in args_tree.children():
        name = user_inputs[position] if child.is_leaf() and position < len(user_inputs) else ""
        names.append(name if name.isidentifier() else None)
        position += child.num_leaves
    return [*names, *([None] * count)][:count]


def _numbers_of_exported(exported: ExportedProgram) -> dict[int, str]:
    """The int arguments that vary, by leaf of the example call."""
    names = exported.graph_signature.user_inputs
    values = {node.name: node.meta.get("val") for node in exported.graph.find_nodes(op="placeholder")}
    known = [values.get(name) if isinstance(name, str) else None for name in names]
    return {i: "int" for i, v in enumerate(known) if isinstance(v, torch.SymInt) and constant(v) is None}
