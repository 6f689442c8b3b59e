"""Variants: an entry captured again for fixed values of some of its dims, or for inputs that are one tensor.

The general capture says what the entry is: its dims, its inputs and outputs and how these lie in memory. A variant is
captured from the same model with the example call cut or tiled to its sizes, and must be the same entry from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from aotpack.archive import Groups, Guard
from aotpack.errors import BuildError, CaptureError
from aotpack.export.capture.same_tensors import as_one_tensor, call_leaves, checked_groups, names_of
from aotpack.export.capture.variant_signature import as_entry
from aotpack.export.ir.program import Program, ProgramVariant
from aotpack.export.symbolic_shapes.expressions import size_of
from aotpack.export.torch_compat import pytree
from aotpack.spec import (
    DYNAMIC,
    UNSTATED,
    Dim,
    DimRef,
    Signature,
    TensorLeaf,
    TensorSpec,
)


@dataclass(frozen=True)
class Variant:
    """What the calls of a variant have in common (docs/dims.md).

    Attributes:
        sizes: name of each dim that the variant fixes → its size.
        same: groups of inputs, by their names in the signature, of which a call passes one tensor each, as `model(x,
            x)`. The model sees one tensor: `a is b` holds, a write to one is a write to all, and in `mode="joint"`
            the gradient of each is that of the tensor.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    same: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Variants:
    """The variants of an entry (docs/dims.md).

    Attributes:
        sizes: for each variant, the dims that it fixes, by name, or a `Variant`; `{}` is the general program.
        select: the variant for a call that matches several: `"declared"`: the first in `sizes`; `"tightest"`: the one
            that matches fewer sizes, and before it those for inputs that are one tensor.
    """

    sizes: Sequence[Mapping[str, int] | Variant]
    select: str = "declared"


GENERAL = "general"


def has_same(variants: Variants | Sequence[Mapping[str, int] | Variant]) -> bool:
    """Whether a variant is for inputs that are one tensor."""
    given = variants.sizes if isinstance(variants, Variants) else variants
    return isinstance(given, Sequence) and any(isinstance(variant, Variant) and variant.same for variant in given)


def with_variants(
    general: Program,
    variants: Variants | Sequence[Mapping[str, int] | Variant],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    capture: Callable[..., Program],
) -> Program:
    """The program with its variants.

    Args:
        general: the capture with all dims open.
        variants: the variants, or their sizes alone; `{}` is `general` itself.
        args, kwargs: the example call that `general` was captured with.
        capture: captures anew; called with `args`, `kwargs` and `dynamic_shapes`, and with `same`, the groups of names
            of inputs that are one tensor, where there are any.

    Raises:
        CaptureError: a dim or input is unknown, a size is not one of its dim's, inputs cannot be one tensor, two
            variants are equal, or a capture fails.
        BuildError: a variant differs from the general program in what it takes or returns.
    """
    if not isinstance(variants, Variants):
        variants = Variants(variants)
    if variants.select not in ("declared", "tightest"):
        raise CaptureError(f"select is {variants.select!r}", hint='use "declared" or "tightest"')
    made = []
    for pins, same in _checked(variants.sizes, general.signature):
        name = _name(pins, same, general.signature)
        if not pins and not same:
            made.append(ProgramVariant(name, (), general))
            continue
        try:
            program = _captured(general.signature, pins, same, args, kwargs, capture)
        except CaptureError as error:
            raise CaptureError(f"the variant {name!r}: {error}", hint=error.hint) from error
        made.append(_variant(general, name, pins, same, program))
    if variants.select == "tightest":
        made.sort(key=lambda variant: _admitted(variant, general.signature.dims))
    notes = [
        replace(note, subject=f"variant {variant.name}: {note.subject}")
        for variant in made
        for note in variant.program.notes
        if note not in general.notes
    ]
    return replace(general, variants=tuple(made), notes=(*general.notes, *notes))


def _captured(
    signature: Signature,
    pins: Mapping[str, int],
    same: Groups,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    capture: Callable[..., Program],
) -> Program:
    """The capture at these sizes. It may be right for fewer of the other sizes than the general one is."""
    dims = {dim.name: dim for dim in signature.dims if dim.name not in pins}
    call, shapes = example_at(signature, pins, dims, args, kwargs)
    if same:
        call = as_one_tensor(call, signature, same)
        capture = partial(capture, same=names_of(same, signature))
    try:
        return capture(*call, dynamic_shapes=shapes)
    except CaptureError:
        # Without declared ranges, a range that the capture narrows becomes a guard, not an error.
        open_dims = {name: Dim(name, min(dim.min, UNSTATED), None, dim.multiple_of) for name, dim in dims.items()}
        if open_dims == dims:
            raise
        _, shapes = example_at(signature, pins, open_dims, args, kwargs)
        try:
            return capture(*call, dynamic_shapes=shapes)
        except CaptureError:
            pass
        raise


# ---- what the user asks for -----------------------------------------------------------------------------------------


def _checked(sizes: Sequence[Mapping[str, int] | Variant], signature: Signature) -> list[tuple[dict[str, int], Groups]]:
    """The dims that each variant fixes, in the order of the signature, and the inputs that are one tensor."""
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise CaptureError(
            "variants must be a list of dicts from dims to sizes", hint='use variants=[{"batch": 1}, {}]'
        )
    dims = {dim.name: dim for dim in signature.dims}
    result: list[tuple[dict[str, int], Groups]] = []
    for given in sizes:
        variant = given.sizes if isinstance(given, Variant) else given
        if not isinstance(variant, Mapping):
            raise CaptureError(
                f"a variant is {given!r}",
                hint='a variant is a dict from dims to sizes, such as {"batch": 1}, or a Variant',
            )
        for name, size in variant.items():
            if name not in dims:
                known = f"its dims are {', '.join(dims)}" if dims else "it has none"
                raise CaptureError(
                    f"a variant fixes {name!r}, which is not a dim of the entry {signature.name!r}",
                    hint=f"{known}; declare dynamic dims in dynamic_shapes",
                )
            _check_size(dims[name], size)
        pins = {name: int(variant[name]) for name in dims if name in variant}
        same = checked_groups(given.same, signature) if isinstance(given, Variant) else ()
        if (pins, same) in result:
            raise CaptureError(f"the variant {_name(pins, same, signature)!r} is given twice")
        result.append((pins, same))
    return result


def _check_size(dim: Dim, size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool):
        raise CaptureError(f"a variant fixes {dim.name!r} to {size!r}", hint="give an int")
    if size < dim.min or (dim.max is not None and size > dim.max):
        raise CaptureError(f"a variant fixes {dim.name!r} to {size}, but {dim}")
    if size % dim.multiple_of:
        raise CaptureError(f"a variant fixes {dim.name!r} to {size}, which is not a multiple of {dim.multiple_of}")


def _name(pins: Mapping[str, int], same: Groups, signature: Signature) -> str:
    sizes = [f"{name}={size}" for name, size in pins.items()]
    groups = [" is ".join(signature.inputs[index].name for index in group) for group in same]
    return ",".join((*sizes, *groups)) or GENERAL


def _admitted(variant: ProgramVariant, dims: Sequence[Dim]) -> tuple[int, int, int]:
    """How many calls fit: first those in which more inputs are one tensor, then by the dims without an upper bound, and
    by the number of sizes that the others may have together.
    """
    bounds = {dim.name: _range(dim) for dim in dims}
    for guard in variant.guards:
        bounds[guard.dim] = (guard.min, guard.max, guard.multiple_of)
    bounded = [(low, high, step) for low, high, step in bounds.values() if high is not None]
    sizes = math.prod(high // step - -(-low // step) + 1 for low, high, step in bounded)
    return -sum(len(group) - 1 for group in variant.same), len(bounds) - len(bounded), sizes


# ---- the example call of a variant ----------------------------------------------------------------------------------


def example_at(
    signature: Signature,
    pins: Mapping[str, int],
    dims: Mapping[str, Dim],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """The example call at these sizes, and the dynamic shapes, by input, that leave `dims`, the others, open."""
    flat, tree = pytree.tree_flatten((args, {key: kwargs[key] for key in signature.in_spec.kwargs_keys}))
    leaves = list(call_leaves(signature.in_spec))
    specs = [signature.inputs[leaf.index] if isinstance(leaf, TensorLeaf) else None for leaf in leaves]
    values = dim_values(signature, [v for v, spec in zip(flat, specs, strict=True) if spec is not None]) | dict(pins)
    sized: list[Any] = []
    shapes: dict[str, Any] = {}
    for value, spec in zip(flat, specs, strict=True):
        if spec is None:
            sized.append(value)
        elif spec.number is not None:
            number, shape = _number_at(spec, value, values, dims)
            sized.append(number)
            if shape is not None:
                shapes[spec.name] = shape
        else:
            sized.append(resized(value, [size_of(size, values) for size in spec.shape], spec.order))
            if open_axes := _open_axes(spec, dims):
                shapes[spec.name] = open_axes
    return pytree.tree_unflatten(sized, tree), shapes


def _number_at(spec: TensorSpec, value: Any, values: Mapping[str, int], dims: Mapping[str, Dim]) -> tuple[Any, Any]:
    """A number at these sizes, and what `dynamic_shapes` has for it; None where it is a constant."""
    if spec.formula is not None:
        number = size_of(spec.formula, values)
        if isinstance(spec.formula, DimRef):
            dim = dims.get(spec.formula.dim)
            return number, None if dim is None else dim * spec.formula.mul + spec.formula.add
        varies = any(f"${name}" in (spec.formula.code or ()) for name in dims)
        # What it depends on is found by the trace.
        return number, DYNAMIC if varies else None
    if spec.dim is None:
        return value, DYNAMIC
    return values[spec.dim], dims.get(spec.dim)


def _open_axes(spec: TensorSpec, dims: Mapping[str, Dim]) -> dict[int, Any]:
    axes: dict[int, Any] = {}
    for axis, size in enumerate(spec.shape):
        if isinstance(size, DimRef) and size.dim in dims:
            dim = dims[size.dim]
            axes[axis] = dim if (size.mul, size.add) == (1, 0) else dim * size.mul + size.add
        elif not isinstance(size, (int, DimRef)) and any(f"${name}" in (size.code or ()) for name in dims):
            # What it depends on is found by the trace.
            axes[axis] = torch.export.Dim.AUTO
    return axes


def dim_values(signature: Signature, inputs: Sequence[Any]) -> dict[str, int]:
    """The value of each dim in a call with these inputs: tensors and numbers, in the order of the signature."""
    values: dict[str, int] = {}
    for given, spec in zip(inputs, signature.inputs, strict=True):
        if spec.number is not None:
            if spec.dim is not None:
                values[spec.dim] = int(given)
            continue
        for size, element in zip(given.shape, spec.shape, strict=True):
            if isinstance(element, DimRef):
                values.setdefault(element.dim, (int(size) - element.add) // element.mul)
    return values


def resized(tensor: torch.Tensor, sizes: Sequence[int], order: Sequence[int]) -> torch.Tensor:
    """The tensor cut or tiled to `sizes`: element i of an axis is element i % (old size); zeros where it was empty.

    Its dims lie in memory in `order`, from outermost to innermost. On the meta device there are sizes alone.
    """
    if tuple(tensor.shape) == tuple(sizes):
        return tensor
    wanted = torch.empty([sizes[d] for d in order], dtype=tensor.dtype, device=tensor.device)
    result = wanted.permute([list(order).index(d) for d in range(tensor.dim())])
    with torch.no_grad():
        if tensor.numel() == 0:
            result.zero_()
        else:
            source = tensor.detach()
            for axis, size in enumerate(sizes):
                if size != source.shape[axis]:
                    source = source.index_select(axis, torch.arange(size) % source.shape[axis])
            result.copy_(source)
    return result.requires_grad_(tensor.requires_grad)


# ---- the same entry -------------------------------------------------------------------------------------------------


def _variant(general: Program, name: str, pins: Mapping[str, int], same: Groups, captured: Program) -> ProgramVariant:
    program = as_entry(captured, general.signature, name)
    own = {dim.name: dim for dim in program.signature.dims}
    unknown = [dim for name, dim in own.items() if all(name != known.name for known in general.signature.dims)]
    if unknown:
        raise BuildError(
            f"the variant {name!r} has the independent size {unknown[0]}, which is computed from others in general",
            hint="also fix the sizes that it depends on, or remove this variant",
        )
    guards = []
    for dim in general.signature.dims:
        if dim.name in pins:
            guards.append(Guard(dim.name, pins[dim.name], pins[dim.name]))
        elif dim.name in own and (guard := _narrowed(dim, own[dim.name])) != Guard(dim.name, *_range(dim)):
            guards.append(guard)
    program = replace(program, state_dict=general.state_dict, name=general.name)
    return ProgramVariant(name, tuple(guards), program, same)


def _range(dim: Dim) -> tuple[int, int | None, int]:
    return dim.min, dim.max, dim.multiple_of


def _narrowed(dim: Dim, own: Dim) -> Guard:
    highs = [high for high in (dim.max, own.max) if high is not None]
    step = math.lcm(dim.multiple_of, own.multiple_of)
    return Guard(dim.name, max(dim.min, own.min), min(highs) if highs else None, step)
