"""What holds of results that are not unique: decompositions, and the order of equal elements.

Each check raises Wrong. Tolerances are a hundred units in the last place of the dtype, scaled by the size of the
problem: the backward error of the algorithms in LAPACK.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tests.conformance.compare import Wrong
from tests.conformance.program import Call


def svd(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """U diag(S) Vh is the matrix, U and V have orthonormal columns, S is eager's. `torch.svd` gives V."""
    (matrix, u, s, v), unit = _wide(inputs[0], *actual), _unit(inputs[0])
    _near(s, expected[1].to(s.dtype), unit * _norm(matrix), "singular values")
    _, _, kwargs = call.case.arguments(inputs)
    if not u.numel() or not v.numel() or not matrix.numel() or not kwargs.get("compute_uv", True):
        return
    vh = v.mH if call.op.name == "svd" else v
    k = s.shape[-1]
    _near((u[..., :, :k] * s.unsqueeze(-2)) @ vh[..., :k, :], matrix, unit * _norm(matrix), "U S Vh")
    _orthonormal(u, unit)
    _orthonormal(vh.mH, unit)


def low_rank(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """U diag(S) Vh is eager's: the samples have no more than the rank that is asked for."""
    (u, s, v), (eager_u, eager_s, eager_v) = _wide(*actual), _wide(*expected)
    unit = _unit(inputs[0])
    wanted = (eager_u * eager_s.unsqueeze(-2)) @ eager_v.mH
    limit = unit * _norm(wanted)
    _near((u * s.unsqueeze(-2)) @ v.mH, wanted, limit, "U S Vh")
    _near(s, eager_s, limit, "singular values")


def written_once(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Each element is one of those that `max_unpool` writes to its place, or 0 where it writes none."""
    axes = int(call.op.name.split("max_unpool")[1][0])
    values, places = (t.flatten(-axes).flatten(0, -2) for t in inputs[:2])
    found = actual[0].flatten(-axes).flatten(0, -2)
    met = torch.zeros_like(found, dtype=torch.bool)
    for value, place in zip(values.unbind(1), places.unbind(1), strict=True):
        place = place.unsqueeze(1)
        met.scatter_(1, place, met.gather(1, place) | (found.gather(1, place) == value.unsqueeze(1)))
    if not bool((met | ((found == 0) & (torch.zeros_like(met).scatter_(1, places, True).logical_not()))).all()):
        raise Wrong("an element is none of those that are written there")


def svd_lowrank(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """As `low_rank`; with M, A - M has a higher rank than is asked for, and the range is found by a random draw.

    Then U and V have orthonormal columns, U^H (A - M) V is diag(S), and what is left of A - M is not much more than the
    best approximation of this rank leaves.
    """
    a, args, kwargs = call.case.arguments(inputs)
    if kwargs.get("M") is None:
        return low_rank(call, inputs, actual, expected)
    a, b, m, u, s, v = _wide(a, args[0], kwargs["M"], *actual)
    unit, product = _unit(inputs[0]), a @ b.mT
    limit = unit * (_norm(product) + _norm(m))
    _orthonormal(u, unit)
    _orthonormal(v, unit)
    _near(u.mH @ (product - m) @ v, torch.diag_embed(s).to(u.dtype), limit, "U^H (A - M) V")
    left = torch.linalg.matrix_norm(product - m - (u * s.unsqueeze(-2)) @ v.mH)
    best = torch.linalg.svdvals(product - m)[..., s.shape[-1] :].square().sum(-1).sqrt()
    if not bool((left <= 10 * best + limit[..., 0, 0]).all()):
        raise Wrong(f"U S Vh leaves {left.max().item():.3g}, the best {best.max().item():.3g}")


def eigh(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """A V is V diag(L), V has orthonormal columns, L is eager's; A is what one triangle of the input says."""
    (matrix, values, vectors), unit = _wide(inputs[0], *actual), _unit(inputs[0])
    _, args, kwargs = call.case.arguments(inputs)
    triangle = kwargs.get("UPLO", args[0] if args else "L")
    half = matrix.triu(1) if triangle in ("U", "u") else matrix.tril(-1)
    diagonal = torch.diag_embed(matrix.diagonal(dim1=-2, dim2=-1).real.to(matrix.dtype))
    matrix = half + half.mH + diagonal
    scale = unit * _norm(matrix)
    _near(values, expected[0].to(values.dtype), scale, "eigenvalues")
    _near(matrix @ vectors, vectors * values.unsqueeze(-2), scale, "A V")
    _orthonormal(vectors, unit)


def eig(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """A V is V diag(L), columns of V have length 1, L is eager's in any order."""
    eigenvalues(call, inputs, actual[:1], expected[:1])
    unit = _unit(inputs[0])
    values, vectors = (x.to(torch.complex128) for x in actual)
    matrix = inputs[0].to(torch.complex128)
    _near(matrix @ vectors, vectors * values.unsqueeze(-2), unit * _norm(matrix), "A V")
    lengths = torch.linalg.vector_norm(vectors, dim=-2)
    _near(lengths, torch.ones_like(lengths), lengths.new_tensor(unit), "lengths of eigenvectors")


def eigenvalues(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Eager's, in any order."""
    found, wanted = actual[0].to(torch.complex128), expected[0].to(torch.complex128)
    if not found.numel():
        return
    matrix = inputs[0].to(torch.complex128)
    distances = (found.unsqueeze(-1) - wanted.unsqueeze(-2)).abs()
    # Those of a matrix that is not normal move by the root of the rounding error where they coincide.
    limit = (_unit(inputs[0]) ** 0.5 * _norm(matrix)).reshape(*distances.shape[:-2], 1)
    if not bool((distances.amin(-1) <= limit).all() and (distances.amin(-2) <= limit).all()):
        raise Wrong("eigenvalues differ")


def qr(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """Q R is the matrix, Q has orthonormal columns, R is upper triangular."""
    (matrix, q, r), unit = _wide(inputs[0], *actual), _unit(inputs[0])
    if not torch.equal(r, r.triu()):
        raise Wrong("R is not upper triangular")
    if not matrix.numel():
        return
    if q.numel():
        _orthonormal(q, unit)
        _near(q @ r, matrix, unit * _norm(matrix), "Q R")
    else:
        _near(r.mH @ r, matrix.mH @ matrix, unit * _norm(matrix) ** 2, "Rh R")


def order(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """The values are eager's, and the indices lead to them; along its dim, no index is there twice."""
    *values, indices = actual
    *wanted, known = expected
    given = inputs[0]
    if given.dim() == 0:
        given, indices, known = given.reshape(1), indices.reshape(1), known.reshape(1)
        values, wanted = [v.reshape(1) for v in values], [w.reshape(1) for w in wanted]
    for dim in range(given.dim()):
        shape, other = list(given.shape), list(known.shape)
        if known.dim() != given.dim():
            continue
        shape[dim] = other[dim] = 0
        if shape != other or _repeats(known, dim) or (known.numel() and int(known.max()) >= given.shape[dim]):
            continue
        reached = given.gather(dim, known)
        if wanted and not _equal(reached, wanted[0]):
            continue
        if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < given.shape[dim]:
            raise Wrong("an index is out of range")
        if not _equal(given.gather(dim, indices), reached) or (values and not _equal(values[0], wanted[0])):
            continue
        if _repeats(indices, dim):
            raise Wrong("an index is there twice")
        return
    raise Wrong("the indices do not lead to eager's values")


def chosen(call: Call, inputs: Sequence[torch.Tensor], actual: Sequence[Any], expected: Sequence[Any]) -> None:
    """The value is eager's, and the index, one per slice, leads to it: `median`, `mode`, `kthvalue`."""
    if not _equal(actual[0], expected[0]) or len(expected) != 2:
        raise Wrong("values differ")
    (value, index), (wanted, known) = actual, expected
    given = inputs[0]
    if given.dim() == 0 or not value.numel():
        return
    for dim in range(given.dim()):
        i, k = (x if x.dim() == given.dim() else x.unsqueeze(dim) for x in (index, known))
        w = wanted if wanted.dim() == given.dim() else wanted.unsqueeze(dim)
        shape = list(given.shape)
        shape[dim] = 1
        if list(k.shape) != shape or not _equal(given.gather(dim, k), w):
            continue
        if int(i.min()) >= 0 and int(i.max()) < given.shape[dim] and _equal(given.gather(dim, i), w):
            return
    raise Wrong("the indices do not lead to the values")


# ---- arithmetic -----------------------------------------------------------------------------------------------------


def _unit(tensor: torch.Tensor) -> float:
    return 100 * torch.finfo(tensor.dtype).eps


def _wide(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t.detach().to(torch.complex128 if t.is_complex() else torch.float64) for t in tensors)


def _norm(matrix: torch.Tensor) -> torch.Tensor:
    """The Frobenius norm and the longer side, for every matrix: errors are a part of their product."""
    return (torch.linalg.matrix_norm(matrix) * max(matrix.shape[-2:])).reshape(*matrix.shape[:-2], 1, 1)


def _near(actual: torch.Tensor, expected: torch.Tensor, limit: torch.Tensor, what: str) -> None:
    limit = limit.clamp_min(1e-300)
    if actual.dim() < limit.dim():
        limit = limit.squeeze(-1)
    if not bool(((actual - expected).abs() <= limit).all()):
        raise Wrong(f"{what}: off by {(actual - expected).abs().max().item():.3g}")


def _orthonormal(columns: torch.Tensor, unit: float) -> None:
    product = columns.mH @ columns
    identity = torch.eye(product.shape[-1], dtype=product.dtype)
    limit = product.new_tensor(unit * max(columns.shape[-2:]), dtype=torch.float64)
    if not bool(((product - identity).abs() <= limit).all()):
        raise Wrong("columns are not orthonormal")


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _repeats(indices: torch.Tensor, dim: int) -> bool:
    return bool((indices.sort(dim=dim).values.diff(dim=dim) == 0).any())
