"""Reads from generated code how the operands of our convolutions lie, so that tests see what happens at run time."""

from __future__ import annotations

import re
from typing import NamedTuple

import sympy

from aotpack.export.backends.cpu.lower import lower
from aotpack.export.ir.program import Program
from aotpack.export.symbolic_shapes.dims import expression


class Traffic(NamedTuple):
    """What generated code moves between layouts.

    copies: calls of `to_layout`. implicit: operands that a convolution, a linear or a norm copies, since they lie
    otherwise.
    """

    copies: int
    implicit: list[str]
    convolutions: int


class Lies(NamedTuple):
    """How a tensor lies: whether dense and channels-last, whether in evenly spaced rows of its last dim, and whether in
    evenly spaced pixels, as some channels of what is channels-last do.
    """

    channels_last: bool
    rows: bool
    pixels: bool


def traffic(program: Program) -> Traffic:
    """The copies between layouts in the code for a program; of every tensor, by its strides in the wrapper."""
    inputs = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    text = lower(program, "x86-64-v3").wrapper
    lengths = [[[str(expression(s)) for s in numbers] for numbers in (x.shape, x.stride())] for x in inputs]
    return read(text[text.index("::run_impl(") :], [_lies(*pair) for pair in lengths])


_TOKENS = re.compile(
    r"int64_t (?P<array>int_array_\d+)\[\] = \{(?P<values>[^}]*)\};"
    r"|aoti_torch_empty_strided\(\d+, (?P<sizes>\w+), (?P<strides>\w+),.*?&(?P<made>\w+)_handle\)"
    r"|auto (?P<input>\w+) = (?:aotpack_)?std::move\(inputs\[(?P<number>\d+)\]\)"
    r"|auto (?P<moved>\w+) = (?:aotpack_)?std::move\((?P<of>\w+)\)"
    r"|auto (?P<view>\w+) = .*?reinterpret_tensor_wrapper\((?P<base>\w+), \d+, (?P<vsizes>\w+), (?P<vstrides>\w+),"
    r"|aoti_torch_cpu_(?P<call>packed_conv|packed_linear|layer_norm|interleave|max_pool|to_layout)"
    r"\((?P<args>.*?), &(?P<result>\w+)_handle\)\);"
)
_VIEW = re.compile(
    r"(?:wrap_with_raii_handle_if_needed\()?reinterpret_tensor_wrapper\((\w+), \d+, (\w+), (\w+), [^)]*\)\)?"
)


def read(text: str, inputs: list[Lies]) -> Traffic:
    """As `traffic`, of the wrapper's function; `inputs` says how the inputs lie."""
    arrays: dict[str, list[str]] = {}
    known: dict[str, Lies] = {}
    copies, convolutions, implicit = 0, 0, []

    def lies(sizes: str, strides: str) -> Lies:
        return _lies(arrays[sizes], arrays[strides])

    def operand(argument: str) -> Lies | None:
        view = _VIEW.search(argument)
        if view:
            return lies(view[2], view[3])
        name = re.search(r"\b(?:buf|arg|var_)\w*", argument)
        return known.get(name[0].removesuffix("_handle")) if name else None

    for match in _TOKENS.finditer(text):
        found = match.groupdict()
        if found["array"]:
            arrays[found["array"]] = [v.strip() for v in found["values"].split(",")]
        elif found["made"]:
            known[found["made"]] = lies(found["sizes"], found["strides"])
        elif found["input"]:
            known[found["input"]] = inputs[int(found["number"])]
        elif found["moved"]:
            if found["of"] in known:
                known[found["moved"]] = known[found["of"]]
        elif found["view"]:
            known[found["view"]] = lies(found["vsizes"], found["vstrides"])
        elif found["call"] == "to_layout":
            copies += 1
            order = [int(v) for v in re.findall(r"(\d+)L", found["args"].split("{", 1)[1])]
            last = order == [0, *range(2, len(order)), 1]
            known[found["result"]] = Lies(last, order == [*range(len(order))], last)
        elif found["call"] == "interleave":
            known[found["result"]] = Lies(True, False, True)
        elif found["call"] == "max_pool":
            known[found["result"]] = Lies(True, False, True)
            at = operand(_split(found["args"])[0])
            if at is None or not at.pixels:
                implicit.append(found["args"])
        elif found["call"] in ("packed_linear", "layer_norm"):
            known[found["result"]] = Lies(False, True, False)
            at = operand(_split(found["args"])[0])
            if at is None or not at.rows:
                implicit.append(found["args"])
        else:
            convolutions += 1
            known[found["result"]] = Lies(True, False, True)
            arguments = _split(found["args"])
            groups, outputs = (int(arguments[i].removesuffix("L")) for i in (-2, 4))
            strided = groups in (1, outputs)  # not grouped
            for argument, may_stride in ((arguments[0], strided), (arguments[3], False)):
                at = operand(argument)
                if argument != "nullptr" and (at is None or not (at.pixels if may_stride else at.channels_last)):
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


def _lies(sizes: list[str], strides: list[str]) -> Lies:
    pairs = [(_number(size), _number(stride)) for size, stride in zip(sizes, strides, strict=True)]
    rank = len(pairs)
    last = [pairs[d] for d in (0, *range(2, rank), 1)] if rank > 2 else pairs
    return Lies(_dense(last, sympy.Integer(1)), _in_rows(pairs), _in_rows(last))


def _in_rows(pairs: list[tuple[sympy.Expr, sympy.Expr]]) -> bool:
    """Whether runs of the innermost (last) dim lie evenly apart."""
    return bool(pairs) and 1 in pairs[-1] and _dense(pairs[:-1], None)


def _dense(pairs: list[tuple[sympy.Expr, sympy.Expr]], step: sympy.Expr | None) -> bool:
    """Whether dims follow each other without holes from the innermost (last) on, which steps by `step`, or by any."""
    for size, stride in reversed(pairs):
        if size == 1:
            continue
        if step is not None and sympy.expand(stride - step) != 0:
            return False
        step = stride * size
    return True


def _number(term: str) -> sympy.Expr:
    return sympy.sympify(re.sub(r"(\d)L\b", r"\1", term))
