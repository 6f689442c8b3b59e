"""Functions that torch.export does not follow, spelled by others that it does.

Some compute a Python bool (`torch.equal`), a place that torch binds to no tensor (`torch.narrow` from one out of data),
a size that need not come out of data at all (`torch.combinations`), or have a name that is none in a graph
(`Tensor.random_(from, to)`). They are replaced while a model is traced.
The results are the same, and so is where they fail, but what `narrow` takes from a place out of data is a copy.

What `torch.cov` does is stated in torch's documentation of it.

Private interfaces touched (torch 2.11 to 2.13):
  torch._C._VariableFunctions.{unique_consecutive, unique_dim}   what torch.unique and torch.unique_consecutive call
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from aotpack.export.ops.histogram import counted, edges_of
from aotpack.export.ops.random import last_integer, random_between

_TABLE: dict[Any, Callable[..., Any]] = {}
# Where torch's Python functions find those that they wrap.
_functions: Any = torch._C._VariableFunctions


@contextlib.contextmanager
def functions_respelled() -> Iterator[None]:
    """While active, calls of functions of the table run what is registered for them."""
    with _Respelling():
        yield


class _Respelling(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        function = _TABLE.get(func) if callable(func) and getattr(func, "__hash__", None) else None
        result = NotImplemented if function is None else function(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {})) if result is NotImplemented else result


def _spells(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers what computes these; it may return `NotImplemented` to leave a call as it is."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _TABLE.update(dict.fromkeys(functions, function))
        return function

    return register


# ---- bools out of data ----------------------------------------------------------------------------------------------


@_spells(torch.equal, Tensor.equal)
def _equal(input: Tensor, other: Tensor) -> Any:
    if input.shape != other.shape:
        return False
    return (input == other).all().item()


@_spells(torch.allclose, Tensor.allclose)
def _allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Any:
    return torch.isclose(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan).all().item()


# ---- sizes ----------------------------------------------------------------------------------------------------------


@_spells(torch.masked_select, Tensor.masked_select)
def _masked_select(input: Tensor, mask: Tensor) -> Any:
    # torch takes the result for no greater than `input`, also where the mask makes more of it.
    return torch.masked_select(*torch.broadcast_tensors(input, mask))


@_spells(torch.narrow, Tensor.narrow)
def _narrow(input: Tensor, dim: int, start: Any, length: Any) -> Any:
    if not isinstance(start, Tensor):
        return NotImplemented
    size = input.shape[dim]
    torch._assert_async((start >= -size) & (start + length <= size), "narrow: start and length exceed the dimension")
    places = torch.where(start < 0, start + size, start) + torch.arange(length, device=input.device)
    return input.index_select(dim, places)


@_spells(torch.combinations)
def _combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    if input.dim() != 1 or isinstance(input.shape[0], torch.SymInt) or r < 2:
        return NotImplemented
    n = input.shape[0]
    count = math.comb(n + r - 1, r) if with_replacement and n else math.comb(n, r)
    places = torch.meshgrid([torch.arange(n, device=input.device)] * r, indexing="ij")
    kept = torch.ones_like(places[0], dtype=torch.bool)
    for before, after in itertools.pairwise(places):
        kept = kept & (before <= after if with_replacement else before < after)
    return input[torch.nonzero_static(kept, size=count)]


@_spells(torch.nn.functional.one_hot)
def _one_hot(input: Tensor, num_classes: int = -1) -> Any:
    if num_classes != -1:
        return NotImplemented
    torch._assert_async((input >= 0).all(), "Class values must be non-negative.")
    classes: Any = (input.max() + 1).clamp(min=0).item()
    torch._check(classes >= 0)
    return (input.unsqueeze(-1) == torch.arange(classes, device=input.device)).to(torch.int64)


# torch takes the size of what these return from the wrong end where `dim` is negative.


@_spells(_functions.unique_consecutive)
def _unique_consecutive(input: Tensor, *args: Any, dim: int | None = None, **kwargs: Any) -> Any:
    if dim is None or dim >= 0:
        return NotImplemented
    return _functions.unique_consecutive(input, *args, dim=dim + max(input.dim(), 1), **kwargs)


@_spells(_functions.unique_dim)
def _unique_dim(input: Tensor, dim: int, *args: Any, **kwargs: Any) -> Any:
    if dim >= 0:
        return NotImplemented
    return _functions.unique_dim(input, dim + max(input.dim(), 1), *args, **kwargs)


@_spells(torch.cdist)
def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Any:
    # Which way is faster would be decided by the number of rows, which then could not vary.
    rows = (x1.shape[-2], x2.shape[-2])
    if p != 2 or "necessary" not in compute_mode or not any(isinstance(size, torch.SymInt) for size in rows):
        return NotImplemented
    return torch.cdist(x1, x2, p, "donot_use_mm_for_euclid_dist")


# ---- draws ----------------------------------------------------------------------------------------------------------


@_spells(Tensor.random_)
def _random_(input: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
    named = dict(zip(("from", "to"), args, strict=False)) | kwargs
    if generator is not None or len(named) < 2 or input.is_complex():
        return NotImplemented
    low, to = named["from"], named["to"]
    full = to is None and isinstance(low, int) and low == torch.iinfo(torch.int64).min
    if full and input.dtype not in (torch.int64, torch.float64, torch.float32, torch.bfloat16):
        raise RuntimeError("random_ of all of int64 handles only int64, double, float and bfloat16")
    last = torch.iinfo(torch.int64).max if full else last_integer(input.dtype) if to is None else to - 1
    if isinstance(low, int) and isinstance(last, int):
        if low > last:
            raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={to}")
        least, most = (0, 1) if input.dtype == torch.bool else _range(input.dtype)
        for name, value in (("from", low), ("to - 1", last)):
            if not least <= value <= most:
                raise RuntimeError(f"{name} is out of bounds for {input.dtype}")
    return input.copy_(random_between(input, low, last))


def _range(dtype: torch.dtype) -> tuple[float, float]:
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return limits.min, limits.max


# ---- statistics -----------------------------------------------------------------------------------------------------


@_spells(torch.cov, Tensor.cov)
def _cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    if input.dim() > 2 or input.dtype == torch.bool:
        return NotImplemented
    x = input.reshape(1, -1) if input.dim() < 2 else input
    for weights in (fweights, aweights):
        if weights is not None:
            torch._assert_async((weights >= 0).all(), "cov(): weights cannot be negative")
    given = [weights for weights in (fweights, aweights) if weights is not None]
    weights = math.prod(given[1:], start=given[0]) if given else None
    total = torch.full((), x.shape[1], device=x.device) if weights is None else weights.sum()
    if weights is not None:
        torch._assert_async(total != 0, "cov(): weights sum to zero, can't be normalized")
    mean = (x if weights is None else x * weights).sum(1) / total
    if weights is not None and aweights is not None and correction != 0:
        degrees = total - correction * (weights * aweights).sum() / total
    else:
        degrees = total - correction
    degrees = torch.where(degrees <= 0, 0, degrees)
    centred = x - mean.unsqueeze(1)
    products = centred @ (centred if weights is None else centred * weights).t().conj()
    return torch.true_divide(products, degrees).squeeze()


@_spells(torch.corrcoef, Tensor.corrcoef)
def _corrcoef(input: Tensor) -> Any:
    covariance = _cov(input)
    if covariance is NotImplemented:
        return NotImplemented
    if covariance.dim() == 0:
        return covariance / covariance
    variance = covariance.diag()
    deviation = (variance.real if variance.is_complex() else variance).sqrt()
    result = covariance / deviation.view(-1, 1) / deviation.view(1, -1)
    if result.is_complex():
        return torch.complex(result.real.clamp(-1, 1), result.imag.clamp(-1, 1))
    return result.clamp(-1, 1)


# torch knows no sizes of what its own operators for histograms return.


@_spells(torch.histogram, Tensor.histogram)
def _histogram(
    input: Tensor, bins: Any, *, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    points = input.reshape(-1, 1)
    edges = bins.clone() if isinstance(bins, Tensor) else edges_of(points, [bins], range)[0].clone()
    return torch.return_types.histogram((counted(points, [edges], weight, density), edges))


@_spells(torch.histogramdd)
def _histogramdd(
    input: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None, density: bool = False
) -> Any:
    if isinstance(bins, int):
        bins = [bins] * input.shape[-1]
    if all(isinstance(count, int) for count in bins):
        edges = [edge.clone() for edge in edges_of(input, bins, range)]
    else:
        edges = [edge.clone() for edge in bins]
    return torch.return_types.histogramdd((counted(input, edges, weight, density), tuple(edges)))
