"""Reads from generated code how the operands of our convolutions lie, so that tests see what happens at run time."""

from __future__ import annotations

import re
from typing import NamedTuple

import sympy

from aotpack.export.dims import expression
from aotpack.export.lower import lower
from aotpack.export.program import Program


class Traffic(NamedTuple):
    """What generated code moves between layouts.

    copies: calls of `to_layout`. implicit: operands that a convolution copies because they lie otherwise.
    """

    copies: int
    implicit: list[str]
    convolutions: int


def traffic(program: Program) -> Traffic:
    """The copies between layouts in the code for a program; of every tensor, by its strides in the wrapper."""
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    text = lower(program, "x86-64-v3").wrapper
    sizes = [[[str(expression(s)) for s in numbers] for numbers in (x.shape, x.stride())] for x in inputs]
    return read(text[text.index("::run_impl(") :], [_is_channels_last(*lengths) for lengths in sizes])


_TOKENS = re.compile(
    r"int64_t (?P<array>int_array_\d+)\[\] = \{(?P<values>[^}]*)\};"
    r"|aoti_torch_empty_strided\(\d+, (?P<sizes>\w+), (?P<strides>\w+),.*?&(?P<made>\w+)_handle\)"
    r"|auto (?P<input>\w+) = std::move\(inputs\[(?P<number>\d+)\]\)"
    r"|auto (?P<moved>\w+) = std::move\((?P<of>\w+)\)"
    r"|auto (?P<view>\w+) = .*?reinterpret_tensor_wrapper\((?P<base>\w+), \d+, (?P<vsizes>\w+), (?P<vstrides>\w+),"
    r"|aoti_torch_cpu_(?P<call>packed_conv|to_layout)\((?P<args>.*?), &(?P<result>\w+)_handle\)\);"
)
_VIEW = re.compile(
    r"(?:wrap_with_raii_handle_if_needed\()?reinterpret_tensor_wrapper\((\w+), \d+, (\w+), (\w+), [^)]*\)\)?"
)


def read(text: str, inputs: list[bool]) -> Traffic:
    """As `traffic`, of the wrapper's function; `inputs` says which inputs are channels-last."""
    arrays: dict[str, list[str]] = {}
    lies: dict[str, bool | None] = {}  # whether a tensor is dense and channels-last; None for what is not known
    copies, convolutions, implicit = 0, 0, []

    def channels_last(sizes: str, strides: str) -> bool:
        return _is_channels_last(arrays[sizes], arrays[strides])

    def operand(argument: str) -> bool | None:
        view = _VIEW.search(argument)
        if view:
            return channels_last(view[2], view[3])
        name = re.search(r"\b(?:buf|arg)\w*", argument)
        return lies.get(name[0].removesuffix("_handle")) if name else None

    for match in _TOKENS.finditer(text):
        found = match.groupdict()
        if found["array"]:
            arrays[found["array"]] = [v.strip() for v in found["values"].split(",")]
        elif found["made"]:
            lies[found["made"]] = channels_last(found["sizes"], found["strides"])
        elif found["input"]:
            lies[found["input"]] = inputs[int(found["number"])]
        elif found["moved"]:
            lies[found["moved"]] = lies.get(found["of"])
        elif found["view"]:
            lies[found["view"]] = channels_last(found["vsizes"], found["vstrides"])
        elif found["call"] == "to_layout":
            copies += 1
            order = [int(v) for v in re.findall(r"(\d+)L", found["args"].split("{", 1)[1])]
            lies[found["result"]] = order == [0, *range(2, len(order)), 1]
        else:
            convolutions += 1
            lies[found["result"]] = True
            arguments = _split(found["args"])
            for argument in (arguments[0], arguments[3]):
                if argument != "nullptr" and operand(argument) is not True:
                    implicit.append(argument)
    return Traffic(copies, implicit, convolutions)


def _split(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [*parts, current.strip()]


def _is_channels_last(sizes: list[str], strides: list[str]) -> bool:
    def value(term: str) -> sympy.Expr:
        return sympy.sympify(re.sub(r"(\d)L\b", r"\1", term))

    step = sympy.Integer(1)
    for d in [1, *range(len(sizes) - 1, 1, -1), 0] if len(sizes) > 2 else range(len(sizes) - 1, -1, -1):
        if value(sizes[d]) != 1 and sympy.expand(value(strides[d]) - step) != 0:
            return False
        step = step * value(sizes[d])
    return True
