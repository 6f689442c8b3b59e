"""Whether an archive's results are right, and by which rule.

In order: `tolerance` (equal to eager within torch.testing's tolerances for the dtype), `operator's tolerance` (within
those that the operator database has for the operator), `float64` (every element is within tolerance of eager or of
eager in float64), `nearer` (farther from eager than allowed, but at most as far from float64 as eager is, at its worst
element and on average), `rounding` (for operators that sum products alone, whose terms may be far greater than their
sum: as far from float64 as eager but for a factor of four, or for eight units in the last place of the greatest
result). Shapes and dtypes are always the same, and NaN is where eager has it.

Private interfaces touched (torch 2.11 to 2.13):
  torch.testing._comparison.default_tolerances
  torch.testing._internal.common_device_type.toleranceOverride
  torch.testing._internal.opinfo.core.DecorateInfo
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Tests of torch's whose tolerances are about one call on the CPU: (class, test), None for any.
_TESTS = {
    (None, None),
    ("TestCommon", None),
    ("TestCommon", "test_noncontiguous_samples"),
    ("TestDecomp", "test_comprehensive"),
    ("TestDecomp", "test_quick"),
    ("TestInductorOpInfo", "test_comprehensive"),
}


# Their results are sums of products, which every implementation adds up in an order, or rounds in places, of its own.
# Polynomials are among them because their recurrences subtract terms far greater than the result: of
# `special.hermite_polynomial_he` in float32, eager is off by 1.2e-5 of an element, and an archive as much. Embedding
# bags need it in bfloat16 alone: in one of 12 cases an element differs by three units in the last place. So do elements
# that are accumulated at indices, on GPUs. Gradients of `logcumsumexp` go through logarithms of their sums.
_SUMS = re.compile(
    r"conv|mm$|bmm$|^matmul|^__rmatmul__|mv$|dot$|^addr$|^inner$|einsum|linear$|bilinear$|attention|tensordot|^linalg\."
    r"|^cdist$|^corrcoef$|^cov$|histogram|cholesky|^lu_solve$|solve$|matrix_exp|pinverse|ormqr|_polynomial_|embedding_bag$"
    r"|_accumulate$|^logcumsumexp$"
)


@dataclass(frozen=True)
class Tolerance:
    """|actual - expected| <= atol + rtol * |expected|."""

    rtol: float
    atol: float


def default_tolerance(dtype: torch.dtype) -> Tolerance:
    """That of torch.testing.assert_close; exact for integers and bools."""
    from torch.testing._comparison import default_tolerances

    return Tolerance(*default_tolerances(dtype))


def own_tolerance(op: Any, dtype: torch.dtype) -> Tolerance:
    """The default, widened by what the database says of the operator in this dtype."""
    default = default_tolerance(dtype)
    rtol, atol = default.rtol, default.atol
    for info in op.decorators or ():
        test = (getattr(info, "cls_name", None), getattr(info, "test_name", None))
        if test not in _TESTS or getattr(info, "device_type", None) not in (None, "cpu"):
            continue
        for decorator in getattr(info, "decorators", [info]):
            known = getattr(decorator, "d", {}) if type(decorator).__name__ == "toleranceOverride" else {}
            if dtype in known:
                rtol, atol = max(rtol, known[dtype].rtol), max(atol, known[dtype].atol)
    return Tolerance(rtol, atol)


class Wrong(Exception):
    """A result is not right; the message says how."""


def compare(
    op: Any, actual: Sequence[Any], expected: Sequence[Any], precise: Callable[[], Sequence[Any] | None]
) -> str:
    """The name of the rule by which all results are right.

    Args:
        op: the operator's entry in the database.
        actual: the archive's results.
        expected: eager's.
        precise: computes eager's in float64 or complex128; None where eager cannot.

    Raises:
        Wrong: one is not.
    """
    if len(actual) != len(expected):
        raise Wrong(f"{len(actual)} results instead of {len(expected)}")
    rules = [_compare(op, i, a, e, precise) for i, (a, e) in enumerate(zip(actual, expected, strict=True))]
    order = ["tolerance", "operator's tolerance", "float64", "nearer", "rounding"]
    return max(rules, key=order.index, default="tolerance")


def _compare(op: Any, index: int, actual: Any, expected: Any, precise: Callable[[], Sequence[Any] | None]) -> str:
    if not isinstance(expected, torch.Tensor):
        return _compare_numbers(index, actual, expected)
    check_meta(index, actual, expected)
    expected = expected.detach().resolve_conj().resolve_neg()
    if within(actual, expected, default_tolerance(expected.dtype)):
        return "tolerance"
    own = own_tolerance(op, expected.dtype)
    if within(actual, expected, own):
        return "operator's tolerance"
    if expected.is_floating_point() or expected.is_complex():
        results = precise()
        reference = None if results is None or index >= len(results) else results[index]
        if isinstance(reference, torch.Tensor) and reference.shape == expected.shape:
            reference = reference.detach().resolve_conj().resolve_neg().to(_wide(expected))
            # What is beyond the dtype's range is infinite in it.
            rounded = reference.to(expected.dtype).to(_wide(expected))
            reference = torch.where(rounded.isfinite(), reference, rounded)
            near = _close(actual, expected, own) | _close(actual, reference, own)
            if bool(near.all()):
                return "float64"
            if _nearer(actual, expected, reference):
                return "nearer"
            if _SUMS.search(op.name) and _nearer(actual, expected, reference, factor=4.0, units=8.0):
                return "rounding"
    raise Wrong(f"result {index}: {_difference(actual, expected, own)}")


def check_meta(index: int, actual: Any, expected: torch.Tensor) -> None:
    """Compares dtype and shape.

    Raises:
        Wrong: they differ.
    """
    if not isinstance(actual, torch.Tensor):
        raise Wrong(f"result {index}: a {type(actual).__name__} instead of a tensor")
    if actual.dtype != expected.dtype:
        raise Wrong(f"result {index}: {actual.dtype} instead of {expected.dtype}")
    if actual.shape != expected.shape:
        raise Wrong(f"result {index}: shape {tuple(actual.shape)} instead of {tuple(expected.shape)}")


def within(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether all elements are within tolerance; NaN equals NaN."""
    return bool(_close(actual, expected, tolerance).all())


def _close(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    if not (expected.is_floating_point() or expected.is_complex()):
        return actual == expected
    actual, expected = actual.to(_wide(actual)), expected.to(_wide(expected))
    return torch.isclose(actual, expected, rtol=tolerance.rtol, atol=tolerance.atol, equal_nan=True)


def _nearer(
    actual: torch.Tensor, expected: torch.Tensor, reference: torch.Tensor, *, factor: float = 1.0, units: float = 0.0
) -> bool:
    """Whether the error is at most `factor` times eager's, or `units` in the last place of the greatest element."""
    wide, eps = _wide(expected), torch.finfo(expected.dtype).eps
    actual, expected = actual.to(wide), expected.to(wide)
    finite = reference.isfinite()
    if not torch.equal(actual.isfinite(), finite) or not bool(finite.any()):
        return False
    if not torch.isclose(actual[~finite], reference[~finite], equal_nan=True).all():
        return False
    ours, eagers = (actual - reference)[finite].abs(), (expected - reference)[finite].abs().nan_to_num(torch.inf)
    floor = units * eps * reference[finite].abs().max()
    return all(bool(f(ours) <= torch.maximum(factor * f(eagers), floor)) for f in (torch.max, torch.mean))


def _compare_numbers(index: int, actual: Any, expected: Any) -> str:
    if isinstance(actual, torch.Tensor):
        actual = actual.item()
    if type(actual) is not type(expected):
        raise Wrong(f"result {index}: {actual!r} instead of {expected!r}")
    same = actual == expected or (actual != actual and expected != expected)
    if not same and not (isinstance(expected, float) and abs(actual - expected) <= 1e-5 + 1.3e-6 * abs(expected)):
        raise Wrong(f"result {index}: {actual!r} instead of {expected!r}")
    return "tolerance"


def _wide(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _difference(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> str:
    wrong = ~_close(actual, expected, tolerance)
    place = tuple(wrong.nonzero()[0].tolist())
    found, wanted = actual[place].item(), expected[place].item()
    return f"{int(wrong.sum())} of {wrong.numel()} elements differ, at {list(place)} {found} instead of {wanted}"
