"""Parts of formulas that models spell out."""

from __future__ import annotations

import math
from typing import Any

import torch.fx

from aotpack.export.ir.rewriter import bound_arguments


def operands(value: Any, op: Any) -> tuple[Any, Any] | None:
    """Both operands of a call of `op`, an operator of two, if it scales none of them."""
    if not isinstance(value, torch.fx.Node) or value.op != "call_function" or value.target is not op:
        return None
    arguments = bound_arguments(value)
    return None if arguments.get("alpha", 1) != 1 else (arguments["self"], arguments["other"])


def is_number(value: Any, number: float) -> bool:
    """Whether a value is this number, up to what is lost in single precision."""
    return isinstance(value, (int, float)) and math.isclose(value, number, rel_tol=1e-7)
