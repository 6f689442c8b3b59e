"""The classes of operators and of their schemas, which torch has under private names only.

Private interfaces touched (torch 2.11 to 2.13):
  torch._ops.{OpOverload, OpOverloadPacket, HigherOrderOperator}
  torch._C.{Argument, FunctionSchema}
  OpOverload.{_schema, _overloadname}, OpOverloadPacket._qualified_op_name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch._C import Argument, FunctionSchema
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

__all__ = [
    "Argument",
    "FunctionSchema",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "operator_schema",
    "overload_name",
    "packet_name",
    "schema_or_none",
    "written_arguments",
]


def operator_schema(op: OpOverload) -> FunctionSchema:
    """The arguments and results of an operator."""
    return op._schema


def schema_or_none(func: Any) -> FunctionSchema | None:
    """The same; None for what is no operator."""
    return getattr(func, "_schema", None)


def written_arguments(schema: FunctionSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """What a call with these arguments, values or nodes of a graph, writes to; what lists hold one by one."""
    found: list[Any] = []
    for position, argument in enumerate(schema.arguments):
        if argument.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            found += given if isinstance(given, (list, tuple)) else [given]
    return found


def overload_name(op: OpOverload) -> str:
    """The attribute of its packet that an operator is: "default", "Tensor"."""
    return op._overloadname


def packet_name(packet: OpOverloadPacket) -> str:
    """ "namespace::name"."""
    return packet._qualified_op_name
