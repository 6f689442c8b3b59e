"""The classes of operators and of their schemas, which torch has under private names only.

Private interfaces touched (torch 2.11 to 2.13):
  torch._ops.{OpOverload, OpOverloadPacket, HigherOrderOperator}
  torch._C.{Argument, FunctionSchema}
"""

from __future__ import annotations

from torch._C import Argument, FunctionSchema
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = ["Argument", "FunctionSchema", "HigherOrderOperator", "OpOverload", "OpOverloadPacket"]
