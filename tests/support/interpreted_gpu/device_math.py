"""The functions of CUDA's libdevice that TorchInductor's kernels and ours call, by torch on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice
from triton.runtime.interpreter import TensorHandle, interpreter_semantic

Array = npt.NDArray[Any]

# By name; the arguments are tensors of one floating dtype.
_OF_TORCH = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf"),
    *("erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "lgamma", "log", "log10", "log1p", "log2"),
    *("nextafter", "pow", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


def _precise(name: str) -> Callable[..., Tensor]:
    """In double precision: libdevice errs by few units in the last place, as torch's vectorized functions do not."""
    function = getattr(torch, name)

    def call(*args: Tensor) -> Tensor:
        result: Tensor = function(*(arg.double() for arg in args))
        return result.to(args[0].dtype)

    return function if name in ("nextafter", "fmod", "copysign", "trunc") else call


def _predicate(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x).int()


def _ilogb(x: Tensor) -> Tensor:
    exponent = torch.frexp(x)[1] - 1
    return torch.where(x == 0, torch.tensor(-(2**31), dtype=torch.int32), exponent.int())


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: _precise(name) for name in _OF_TORCH},
    "fast_tanhf": _precise("tanh"),
    "tgamma": lambda x: torch.lgamma(x.double()).exp().to(x.dtype),
    "cyl_bessel_i0": lambda x: torch.special.i0(x.double()).to(x.dtype),
    "cyl_bessel_i1": lambda x: torch.special.i1(x.double()).to(x.dtype),
    "fma": lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype),
    "mul_rn": torch.mul,
    "isnan": _predicate(torch.isnan),
    "isinf": _predicate(torch.isinf),
    "isfinited": _predicate(torch.isfinite),
    "finitef": _predicate(torch.isfinite),
    "signbit": _predicate(torch.signbit),
    "nearbyint": torch.round,
    "rint": torch.round,
    "llrint": lambda x: x.round().long(),
    "round": lambda x: torch.trunc(x + torch.copysign(torch.tensor(0.5, dtype=x.dtype), x)),
    "ilogb": _ilogb,
    "ldexp": lambda x, n: torch.ldexp(x.double(), n).to(x.dtype),
    "mulhi": lambda x, y: ((x.long() * y.long()) >> 32).int(),
}


def _interpreted(function: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None) -> Any:
        values = [interpreter_semantic.to_tensor(arg) for arg in args]
        shape = next((value.shape for value in values if value.type.is_block()), None)
        arrays = np.broadcast_arrays(*(value.handle.data for value in values))
        result = function(*(torch.from_numpy(np.array(array)) for array in arrays)).numpy()
        dtype = getattr(tl, str(result.dtype))
        # A number has one element here.
        kind = dtype if shape is None else tl.block_type(dtype, list(shape))
        return tl.tensor(TensorHandle(result, dtype), kind)

    return call


def install() -> None:
    """Gives the functions of `triton.language.extra.libdevice` meaning in the interpreter; others raise."""
    module = libdevice

    def missing(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"libdevice.{name} has no meaning in {__name__}")

        return call

    for name in [name for name in vars(module) if not name.startswith("_") and callable(getattr(module, name))]:
        function = _FUNCTIONS.get(name)
        setattr(module, name, missing(name) if function is None else _interpreted(function))
