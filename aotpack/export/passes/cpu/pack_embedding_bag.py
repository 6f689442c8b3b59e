"""Uses the kernel for embedding bags of which only the pooled result is read."""

from __future__ import annotations

from aotpack.export import ops
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter
from aotpack.export.passes.patterns import embedding_bags


def pack_embedding_bag(program: Program) -> Program:
    """Replaces `embedding_bag` over fp32, bf16 or fp16 tables by `aotpack::embedding_bag`, of one result."""
    rewriter = Rewriter(program)
    for node in rewriter.nodes(*embedding_bags.OPERATORS):
        call = embedding_bags.plain_bags(node, ops.KERNEL_DTYPES)
        if call is not None:
            rewriter.report(node, "one kernel")
            embedding_bags.replace_bags(rewriter, node, rewriter.call(ops.embedding_bag, call, node))
    return rewriter.finish("pack-embedding-bag", f"sent {rewriter.changed} embedding bags to one kernel")
