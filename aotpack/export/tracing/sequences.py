"""Which call of the forward a node of a joint graph is, or derives.

Autograd numbers the operators that it records (`seq_nr`), and traces of a backward carry the number of the operator
that they derive. The numbers count all operators of the process; here they count those of the graph.

What torch writes into `meta` of the nodes of a joint graph, which is not documented (2.11 to 2.13):
  seq_nr             the number
  partitioner_tag    "is_backward" for nodes of the backward
"""

from __future__ import annotations

import torch.fx

from aotpack.export.ir.rewriter import operator_name

OF_AUTOGRAD = ("seq_nr", "partitioner_tag")


def number_calls(graph: torch.fx.Graph) -> None:
    """Has the calls of a joint graph carry `sequence`, the number of a call of the forward: its own, or that of the
    call that it derives. Then `backward_of` is the operator of that call, or "?" if it is not in the graph any more.
    """
    calls = [node for node in graph.nodes if node.op == "call_function" and "seq_nr" in node.meta]
    numbers = {number: i for i, number in enumerate(sorted({node.meta["seq_nr"] for node in calls}))}
    forward: dict[int, str] = {}
    for node in calls:
        number = numbers[node.meta.pop("seq_nr")]
        node.meta["sequence"] = number
        if node.meta.pop("partitioner_tag", None) == "is_backward":
            node.meta["backward_of"] = forward.get(number, "?")
        else:
            # What follows under the number of an operator, such as a detach of what is saved, is part of it.
            forward.setdefault(number, operator_name(node))
