"""The derivative of `scan`.

torch has one for TorchInductor, which saves per step what the backward reads, weights among it. It does not accept
carries and results of integers, sizes among the operands, or scans in each other, and may return results that share
memory. The one here saves the carries alone and computes each step once more, as torch does for `map` and `cond`.

Private interfaces touched (torch 2.11 to 2.13):
  torch._higher_order_ops.scan.scan_op
  torch._higher_order_ops.scan.{ScanAutogradOp, HopGraphMinCutPartitioner}   replaced while a model is captured
  torch._higher_order_ops.utils.{_from_fun, _maybe_run_with_interpreter, first_slice_copy, materialize_as_graph,
    save_values_for_backward, saved_values}
  torch._dispatch.python.suspend_functionalization, torch._subclasses.functional_tensor.disable_functional_mode
  torch.fx.experimental.proxy_tensor.disable_proxy_modes_tracing
  torch._C.{_AutoDispatchBelowAutograd, _dispatch_tls_local_include_set, _dispatch_tls_local_exclude_set}
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dispatch.python import suspend_functionalization
from torch._higher_order_ops import utils
from torch._higher_order_ops.scan import scan_op
from torch._subclasses.functional_tensor import disable_functional_mode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.multiprocessing.reductions import StorageWeakRef

from aotpack.export.torch_compat.derivatives import refuse_random_numbers

__all__ = ["WHOLE", "ScanGradients"]

# In place of what divides the function of a scan into a forward and a backward: the function as it is.
WHOLE = types.SimpleNamespace(create_partitioned_graph=lambda function, *_args, **_options: function)


class ScanGradients(torch.autograd.Function):
    """A scan whose backward is a scan in reverse order.

    That carries the gradients of the carries, and the sums of the gradients of operands that all steps read. Its
    results are the gradients of the sequences.
    """

    @staticmethod
    def forward(ctx: Any, function: Any, carries: int, sequences: int, fixed: int, *operands: Any) -> Any:
        run = utils._maybe_run_with_interpreter(function)
        ctx.function, ctx.counts = run, (carries, sequences)
        ctx.keys = (torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())

        def step(*values: Any) -> Any:
            return (*run(*values), *(value.clone() for value in values[:carries]))

        with torch._C._AutoDispatchBelowAutograd():
            init, xs = operands[:carries], operands[carries : carries + sequences]
            results = tuple(scan_op(step, init, xs, operands[carries + sequences :]))
        returned, saved = results[:-carries], results[-carries:]
        utils.save_values_for_backward(ctx, (*saved, *operands[carries:]))
        ctx.mark_non_differentiable(*(value for value in returned if not _differentiable(value)))
        return returned

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        carries, sequences = ctx.counts
        values = utils.saved_values(ctx)
        derivative = _Derivative(
            ctx.function,
            carries,
            carries + sequences,
            [_differentiable(gradient) for gradient in gradients],
            [
                _differentiable(value) and (i < carries or needed)
                for i, (value, needed) in enumerate(zip(values, ctx.needs_input_grad[4:], strict=True))
            ],
        )
        known = [g.contiguous() for g, wanted in zip(gradients, derivative.results, strict=True) if wanted]
        count = sum(derivative.wanted[:carries])
        sums = [torch.zeros_like(values[i], memory_format=torch.contiguous_format) for i in derivative.summed()]
        init = [*known[:count], *sums]
        xs = [torch.flip(value, (0,)) for value in (*known[count:], *values[: carries + sequences])]
        fixed = values[carries + sequences :]
        with suspend_functionalization(), disable_functional_mode():
            with disable_proxy_modes_tracing():
                example = [
                    *map(utils._from_fun, init),
                    *(utils.first_slice_copy(utils._from_fun(value)) for value in xs),
                    *map(utils._from_fun, fixed),
                ]
            include, exclude = ctx.keys
            graph = utils.materialize_as_graph(
                derivative.step, tuple(example), include, exclude, force_enable_grad=True
            )
        refuse_random_numbers(graph)
        return (None, None, None, None, *derivative.per_operand(scan_op(graph, init, xs, fixed)))


@dataclass(frozen=True)
class _Derivative:
    """The gradients of one step.

    Attributes:
        function: the step.
        carries, sliced: how many of the operands are carries; carries and slices of sequences.
        results: which results of the step have a gradient: the new carries, then the others.
        wanted: which operands want one.
    """

    function: Callable[..., Any]
    carries: int
    sliced: int
    results: Sequence[bool]
    wanted: Sequence[bool]

    def summed(self) -> list[int]:
        """The operands that all steps read and that want a gradient."""
        return [i for i, wanted in enumerate(self.wanted) if wanted and i >= self.sliced]

    def step(self, *arguments: Any) -> Any:
        """From the gradients behind a step, the sums so far, the gradients of its results and its operands: the
        gradients before the step, the new sums, and the gradients of its slices.
        """
        given = iter(arguments)
        behind = [next(given) for known in self.results[: self.carries] if known]
        sums = [next(given) for _ in self.summed()]
        behind += [next(given) for known in self.results[self.carries :] if known]
        operands = [
            value.detach().requires_grad_(True) if wanted else value
            for value, wanted in zip(given, self.wanted, strict=True)
        ]
        inputs = [value for value, wanted in zip(operands, self.wanted, strict=True) if wanted]
        computed = [value for value, known in zip(self.function(*operands), self.results, strict=True) if known]
        reached = [(value, g) for value, g in zip(computed, behind, strict=True) if value.requires_grad]
        found: Sequence[Any] = [None] * len(inputs)
        if reached:
            values, seeds = zip(*reached, strict=True)
            found = torch.autograd.grad(values, inputs, seeds, allow_unused=True)
        dense = [
            torch.zeros_like(value, memory_format=torch.contiguous_format) if g is None else g.contiguous()
            for value, g in zip(inputs, found, strict=True)
        ]
        first, second = sum(self.wanted[: self.carries]), sum(self.wanted[: self.sliced])
        added = [before + g for before, g in zip(sums, dense[second:], strict=True)]
        return _apart(arguments, (*dense[:first], *added, *dense[first:second]))

    def per_operand(self, found: Sequence[Any]) -> Iterator[Any]:
        """The results of the backward in the order of the operands; None where none is wanted."""
        carries, sums = sum(self.wanted[: self.carries]), len(self.summed())
        before, summed, slices = iter(found[:carries]), iter(found[carries:][:sums]), iter(found[carries + sums :])
        for i, wanted in enumerate(self.wanted):
            if not wanted:
                yield None
            elif i < self.carries:
                yield next(before)
            else:
                yield torch.flip(next(slices), (0,)) if i < self.sliced else next(summed)


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _apart(inputs: Sequence[Any], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results, each in memory of its own."""
    taken = {_memory(value) for value in inputs if isinstance(value, torch.Tensor)}
    apart = []
    for value in results:
        own = value.clone() if _memory(value) in taken else value
        taken.add(_memory(own))
        apart.append(own)
    return apart


def _memory(value: torch.Tensor) -> StorageWeakRef:
    return StorageWeakRef(value.untyped_storage())
