"""Inputs that are one tensor in the calls of a variant: what users ask for, and the example call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from aotpack.archive import Groups
from aotpack.errors import CaptureError
from aotpack.export.torch_compat import pytree
from aotpack.spec import CallSpec, Signature, Spec, TensorLeaf, ValueLeaf, children


def checked_groups(groups: Sequence[Sequence[str]], signature: Signature) -> Groups:
    """The groups of inputs that are one tensor, by their indices, in the order of the signature.

    Raises:
        CaptureError: a group is not of two or more tensors of the entry, an input is in two groups, or its inputs
            cannot be one tensor.
    """
    known = {spec.name: index for index, spec in enumerate(signature.inputs)}
    result: list[tuple[int, ...]] = []
    if isinstance(groups, str) or not isinstance(groups, Sequence):
        raise CaptureError(f"same is {groups!r}", hint='give a list of groups of names: same=[("a", "b")]')
    for group in groups:
        if not isinstance(group, (tuple, list)) or len(group) < 2 or not all(isinstance(name, str) for name in group):
            raise CaptureError(
                f"a variant has the inputs {group!r} as one tensor", hint='give two or more names: same=[("a", "b")]'
            )
        for name in group:
            spec = signature.inputs[known[name]] if name in known else None
            if spec is None or spec.number is not None:
                tensors = ", ".join(repr(value.name) for value in signature.inputs if value.number is None)
                raise CaptureError(
                    f"a variant has {name!r} as one tensor with another, which is not a tensor of the entry "
                    f"{signature.name!r}",
                    hint=f"its tensors are {tensors}" if tensors else "it has none",
                )
        indices = tuple(sorted(known[name] for name in group))
        if len(set(indices)) != len(indices) or any(set(indices).intersection(other) for other in result):
            raise CaptureError(
                f"a variant has an input in {' and '.join(map(repr, group))} twice",
                hint="give one group of all of them",
            )
        first, *others = (signature.inputs[index] for index in indices)
        for other in others:
            if (first.dtype, first.order) != (other.dtype, other.order):
                raise CaptureError(
                    f"{first.name!r} and {other.name!r} cannot be one tensor: they are {first} and {other}",
                    hint="they need one dtype, rank and memory layout in the example call",
                )
        result.append(indices)
    return tuple(sorted(result))


def names_of(groups: Groups, signature: Signature) -> list[list[str]]:
    """The names of the inputs, in each group first the one that the model gets for all."""
    return [[signature.inputs[index].name for index in group] for group in _leaders_first(groups, signature)]


def _leaders_first(groups: Groups, signature: Signature) -> list[list[int]]:
    """The groups with the input first that the runtime brings into the model's layout: one that the call writes to."""
    return [sorted(group, key=lambda index: (not signature.inputs[index].mutated, index)) for group in groups]


def as_one_tensor(
    call: tuple[tuple[Any, ...], dict[str, Any]], signature: Signature, groups: Groups
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The example call with the values of the first input of each group in the others: equal, but tensors of their own.

    Raises:
        CaptureError: they differ in shape, or in whether they require gradients.
    """
    flat, tree = pytree.tree_flatten(call)
    leaf_of = {
        leaf.index: position
        for position, leaf in enumerate(call_leaves(signature.in_spec))
        if isinstance(leaf, TensorLeaf)
    }
    for first, *others in _leaders_first(groups, signature):
        source: torch.Tensor = flat[leaf_of[first]]
        for index in others:
            names = f"{signature.inputs[first].name!r} and {signature.inputs[index].name!r}"
            other: torch.Tensor = flat[leaf_of[index]]
            if source.shape != other.shape:
                raise CaptureError(
                    f"{names} are one tensor, but their shapes in the example call are {list(source.shape)} and "
                    f"{list(other.shape)}",
                    hint="give an example call in which they have one shape",
                )
            if source.requires_grad != other.requires_grad:
                raise CaptureError(
                    f"{names} are one tensor, but only one of them requires gradients in the example call",
                    hint="call requires_grad_() on both, or on neither",
                )
            flat[leaf_of[index]] = source.detach().clone().requires_grad_(source.requires_grad)
    args, kwargs = pytree.tree_unflatten(flat, tree)
    return args, kwargs


def call_leaves(spec: Spec | CallSpec) -> Iterator[TensorLeaf | ValueLeaf]:
    """What the arguments of a call are made of, in the order of the pytree."""
    if isinstance(spec, (TensorLeaf, ValueLeaf)):
        yield spec
    for child in children(spec):
        yield from call_leaves(child)
