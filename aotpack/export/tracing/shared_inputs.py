"""Inputs that the model writes to where AOTAutograd cannot follow: the error names them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from aotpack.errors import CaptureError
from aotpack.export.ir.storage import storage_key
from aotpack.export.tracing.aliases import may_be_written
from aotpack.export.tracing.interface import Call

_WRITTEN_LEAF = "requires gradients, and received a mutation"


@contextlib.contextmanager
def shared_inputs_named(exported: ExportedProgram, ordered: Call) -> Iterator[None]:
    """While active, a failure to trace because the example call passes one memory twice is an error that says so.

    Args:
        exported: what is traced.
        ordered: its example call, in the order of its user inputs.

    Raises:
        CaptureError: the trace fails, and the model writes to an example input that shares memory with another.
    """
    try:
        yield
    except CaptureError:
        raise
    except Exception as error:
        shared = _written_and_shared(exported, ordered)
        if shared is None:
            raise
        raise CaptureError(
            f"the example inputs {shared[0]!r} and {shared[1]!r} share memory, but the model writes to one of them",
            hint="capture with a copy of one of them, x.clone(): an archive refuses calls in which an input that it "
            "writes to shares memory with another. For calls that pass one tensor in both places add a variant: "
            f"variants=[Variant(same=[({shared[0]!r}, {shared[1]!r})]), {{}}]",
        ) from error


def refuse_written_leaves(exported: ExportedProgram, ordered: Call, wanted: Sequence[int], error: Exception) -> None:
    """Raises a CaptureError if a trace failed because the model writes to an input at one of the positions `wanted`.

    The model does so without gradients (eager refuses it otherwise), and AOTAutograd refuses it by this message.
    """
    if _WRITTEN_LEAF not in str(error):
        return
    nodes = _user_inputs(exported)
    for position in wanted:
        if may_be_written(exported.graph, [nodes[position]]):
            name = ordered.leaf_names()[position]
            raise CaptureError(
                f"the model writes to {name!r}, whose gradient is wanted, which AOTAutograd cannot trace",
                hint=f"compute a new tensor from {name!r} instead, or pass an example that does not require gradients",
            ) from error


def _written_and_shared(exported: ExportedProgram, ordered: Call) -> tuple[str, str] | None:
    nodes, names, leaves = _user_inputs(exported), ordered.leaf_names(), ordered.leaves()
    dense = [i for i, value in enumerate(leaves) if isinstance(value, torch.Tensor) and value.layout == torch.strided]
    for first, second in combinations(dense, 2):
        key = storage_key(leaves[first])
        if key is None or key != storage_key(leaves[second]):
            continue
        if may_be_written(exported.graph, [nodes[first]]) or may_be_written(exported.graph, [nodes[second]]):
            return names[first], names[second]
    return None


def _user_inputs(exported: ExportedProgram) -> list[torch.fx.Node]:
    specs = exported.graph_signature.input_specs
    nodes = exported.graph.find_nodes(op="placeholder")
    return [node for spec, node in zip(specs, nodes, strict=True) if spec.kind is InputKind.USER_INPUT]
