"""Declared sizes work: archives called at the bounds of the declared ranges and in between, beside eager.

The fixtures that build archives (tests/support/building.py, tests/seeds/conftest.py) do so for every model with dims
that have bounds, so that a new test of dynamic shapes is covered without more ado.
"""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

from aotpack.archive import ArchiveReader
from aotpack.export.capture.variants import call_leaves, dim_values, example_at
from aotpack.export.ir.program import Program
from aotpack.export.tracing.interface import draws_random_numbers
from aotpack.spec import Dim, TensorLeaf
from tests.support.acceptance import satisfied

# The sizes of a call multiply to no more than this many times those of the example, or than this.
_LARGER = 64
_SMALL = 1 << 14
_DRAWN = 3


def declared_points(
    dims: Sequence[Dim], promised: frozenset[str], example: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """Sizes in the declared ranges: all least ones, all greatest ones that are not too large, each bound by itself,
    and some drawn by lot. Dims without a bound of the user's stay as in the example.
    """
    draw = random.Random(0)
    ranges = {dim.name: _range(dim, example[dim.name]) for dim in dims if dim.name in promised}
    points = [{name: sizes[0] for name, sizes in ranges.items()}, {name: sizes[-1] for name, sizes in ranges.items()}]
    points += [{name: draw.choice(sizes) for name, sizes in ranges.items()} for _ in range(_DRAWN)]
    if len(ranges) > 1:
        points += [{name: sizes[end]} for name, sizes in ranges.items() for end in (0, -1)][:12]
    limit = max(_LARGER * _volume(example), _SMALL)
    seen: set[tuple[int, ...]] = set()
    for point in points:
        sizes = {**example, **point}
        while _volume(sizes) > limit:
            # Halve what is largest beside the example.
            name = max(ranges, key=lambda key: sizes[key] / max(example[key], 1))
            smaller = [size for size in ranges[name] if size <= sizes[name] // 2]
            if not smaller:
                break
            sizes[name] = smaller[-1]
        if (key := tuple(sizes.values())) not in seen:
            seen.add(key)
            yield sizes


def _range(dim: Dim, example: int) -> range:
    high = 3 * abs(example) + 5 if dim.max is None else dim.max
    low = max(dim.min, -abs(example) - 3)
    step = dim.multiple_of
    return range(-(-low // step) * step, high // step * step + 1, step)


def _volume(sizes: Mapping[str, int]) -> int:
    return math.prod(max(abs(size), 1) for size in sizes.values())


def check_declared_sizes(
    program: Program,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    path: Path,
    archive: Callable[..., Any],
    *,
    method: str = "forward",
) -> int:
    """Calls archive and eager at `declared_points`: what eager accepts, the archive accepts, and answers alike.

    Archives with state, and those that draw random numbers, are not called: whether they accept the sizes is read from
    the manifest. Returns the number of calls that eager accepts.
    """
    if not program.promised or not program.signature.dims or program.signature.name == "joint" or program.variants:
        return 0
    with ArchiveReader(path) as reader:
        entry = reader.manifest.entry(program.signature.name)
    assert entry is not None
    (variant,) = entry.variants
    given = {key: (kwargs or {})[key] for key in program.signature.in_spec.kwargs_keys}
    leaves = pytree.tree_leaves((tuple(args), given))
    inputs = [leaf for leaf, spec in zip(leaves, _specs(program), strict=True) if spec]
    example = dim_values(program.signature, inputs)
    accepted = 0
    for sizes in declared_points(entry.dims, program.promised, example):
        (call_args, call_kwargs), _ = example_at(program.signature, sizes, {}, tuple(args), given)
        call_args, call_kwargs = pytree.tree_map_only(torch.Tensor, _without_ties, (call_args, call_kwargs))
        eager = copy.deepcopy(model)
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = eager if method == "forward" else getattr(eager, method)
                expected = call(*copy.deepcopy(call_args), **copy.deepcopy(call_kwargs))
        except Exception:
            continue
        accepted += 1
        assert satisfied(entry.dims, variant.checks, sizes), (
            f"eager accepts {sizes}, the archive demands {variant.when(entry.inputs)}"
        )
        if _repeatable(program):
            compare(archive(*call_args, **call_kwargs), expected, f"at {sizes}")
    return accepted


def _without_ties(tensor: torch.Tensor) -> torch.Tensor:
    """Floats a little smaller, each by another factor: repeated rows of the example would have no order."""
    if not tensor.is_floating_point():
        return tensor
    return tensor * (1 - 1e-3 * torch.rand_like(tensor, dtype=torch.float64)).to(tensor.dtype)


def compare(got: Any, expected: Any, where: str) -> None:
    """The same shapes, and values that no other way through the model would give; tests look closer at other sizes."""
    answers, wanted = pytree.tree_leaves(got), pytree.tree_leaves(expected)
    assert len(answers) == len(wanted), where
    for a, e in zip(answers, wanted, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e or math.isclose(a, e, rel_tol=1e-9) or (a != a and e != e), f"{where}: {a!r}, not {e!r}"
            continue
        a = torch.as_tensor(a)
        assert a.shape == e.shape, f"{where}: {tuple(a.shape)} instead of {tuple(e.shape)}"
        if not (e.is_floating_point() or e.is_complex()):
            assert torch.equal(a.to(e.dtype), e), where
            continue
        wide = torch.complex128 if e.is_complex() else torch.float64
        a, e = a.to(wide), e.detach().to(wide)
        finite = e[e.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 1.0
        torch.testing.assert_close(
            a, e, rtol=0.0, atol=0.02 * scale + 1e-5, equal_nan=True, msg=lambda m: f"{where}: {m}"
        )


def _repeatable(program: Program) -> bool:
    """Whether equal calls have equal answers."""
    mutated = [info.mutated for info in program.constants.values()] + [
        spec.mutated for spec in program.signature.inputs
    ]
    return not any(mutated) and not draws_random_numbers(program.graph_module)


def _specs(program: Program) -> list[bool]:
    """For each leaf of the call whether it is an input."""
    return [isinstance(leaf, TensorLeaf) for leaf in call_leaves(program.signature.in_spec)]
