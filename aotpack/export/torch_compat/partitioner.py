"""The min-cut partitioner of AOTAutograd: which values of a forward are kept for its backward.

Private interfaces touched (torch 2.11 to 2.13):
  torch._functorch.partitioners.min_cut_rematerialization_partition
  torch._functorch.config.activation_memory_budget
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.fx


def saved_values(
    joint: torch.fx.GraphModule, num_forward_outputs: int, free: Sequence[int], memory_budget: float
) -> list[str]:
    """The names of the nodes whose values the forward keeps.

    Args:
        joint: a functional graph of a forward and its backward. Placeholders are named `primals_<n>`, or `tangents_<n>`
            for gradients of outputs. It is changed.
        num_forward_outputs: how many of its outputs are results of the forward; they come first.
        free: which of the primals exist in any case, as parameters do.
        memory_budget: 1 keeps what makes the backward fast, 0 keeps inputs alone; see torch's documentation of
            `activation_memory_budget`.
    """
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with config.patch(activation_memory_budget=memory_budget):
        forward, _ = min_cut_rematerialization_partition(
            joint, None, num_fwd_outputs=num_forward_outputs, static_lifetime_input_indices=list(free)
        )
    results = forward.graph.output_node().args[0]
    assert isinstance(results, (tuple, list))
    return [node.name for node in results[num_forward_outputs:] if isinstance(node, torch.fx.Node)]
