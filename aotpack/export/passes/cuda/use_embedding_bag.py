"""Embedding bags become calls of this project's kernel."""

from __future__ import annotations

from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, dtype_of
from aotpack.export.passes.patterns import embedding_bags


def use_embedding_bag(program: Program) -> Program:
    """Replaces embedding bags of which only the pooled result is read by `aotpack::cuda_embedding_bag`."""
    # Triton is there where something is built for CUDA.
    from aotpack.export.ops.cuda import embedding_bag

    rewriter = Rewriter(program)
    for node in rewriter.nodes(*embedding_bags.OPERATORS):
        call = embedding_bags.plain_bags(node, embedding_bag.DTYPES)
        # With factors of another dtype, torch refuses the call.
        if call is None or (call[4] is not None and dtype_of(call[4]) != dtype_of(call[0])):
            continue
        matrix = embedding_bags.rows_of_indices(call) if call[4] is None else None
        if matrix is not None:
            call = (call[0], matrix, None, *call[3:])
        rewriter.report(node, "embedding bag by our kernel")
        embedding_bags.replace_bags(rewriter, node, rewriter.call(embedding_bag.OPERATOR, call, node))
    return rewriter.finish("use-embedding-bag", f"{rewriter.changed} embedding bags by our kernel")
