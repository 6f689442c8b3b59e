"""The C++ of score functions (`ir/score_functions.py`): one loop over the keys of a row for each.

What does not depend on the key is computed before the loop. Integers are int32 where their bounds show that this is
enough: compilers make vectors of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.fx

from aotpack.export.ir import regions
from aotpack.export.ir.score_functions import COMPARISONS, KEY, ScoreFunctions, Step, parse
from aotpack.export.ops.flex_attention import flex_attention

# What the source includes, by its path in csrc/module.
HEADER = "ops/score_math.h"
_PREFIX = (
    f'#include "{HEADER}"\n\n#include <cstring>\n\nnamespace {{\nnamespace op = aotpack::score;\nusing op::ScoreRow;\n'
)

_TYPES = {
    "bool": "bool",
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "double",
}
# As they lie in memory.
_STORED = {**_TYPES, "bool": "uint8_t", "float16": "op::f16", "bfloat16": "op::bf16"}
_RANGES = {
    "bool": (0, 1),
    "uint8": (0, 2**8 - 1),
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
_DIVISIONS = {"floor_divide", "trunc_divide", "remainder"}
_SYMBOLS = {"and": "&", "or": "|", "xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def score_source(module: torch.fx.GraphModule) -> str:
    """The source with the functions of the attentions in a graph and those inside; "" if there are none."""
    texts = [str(node.args[6]) for node in regions.all_nodes(module) if node.target is flex_attention]
    return functions_source(dict.fromkeys(texts)) if texts else ""


def functions_source(texts: Iterable[str]) -> str:
    """The source with the functions of these texts."""
    parts, table = [_PREFIX], []
    for number, text in enumerate(texts):
        functions = parse(text)
        names = []
        for kind in ("score", "mask"):
            steps = functions.score if kind == "score" else functions.mask
            name = f"{kind}_{number}"
            names.append(f"reinterpret_cast<AnyScoreFunction>(&{name})" if steps else "nullptr")
            if steps:
                parts.append(_function(name, functions, steps, masks=kind == "mask"))
        table.append(f"    {{{json.dumps(text)}, {{{', '.join(names)}}}}},\n")
    return "".join(
        [
            *parts,
            "using aotpack::kernels::AnyScoreFunction;\n",
            "struct Named {\n  const char* name;\n  AotpackScoreFunctions functions;\n};\n",
            "const Named kFunctions[] = {\n",
            *table,
            "};\n}  // namespace\n\n",
            "const AotpackScoreFunctions* aotpack_score_functions(const char* name) {\n",
            "  for (const Named& each : kFunctions) {\n",
            "    if (std::strcmp(each.name, name) == 0) return &each.functions;\n",
            "  }\n  return nullptr;\n}\n",
        ]
    )


@dataclass(frozen=True)
class _Known:
    """A value that is computed: its variable, C++ type, bounds if it is an integer, whether it differs from key to
    key."""

    name: str
    type: str
    bounds: tuple[int, int] | None
    varies: bool


def _function(name: str, functions: ScoreFunctions, steps: Sequence[Step], *, masks: bool) -> str:
    number = _TYPES[functions.dtype]
    values: list[_Known] = []
    before: list[str] = []
    inside: list[str] = []
    for step in steps:
        value, setup, text = _step(step, len(values), [values[i] for i in step.inputs], number)
        before += setup
        (inside if value.varies else before).append(f"const {value.type} {value.name} = {text};")
        values.append(value)
    last = values[-1].name
    infinity = f"-std::numeric_limits<{number}>::infinity()"
    result = f"{last} ? scores[c] : {infinity}" if masks else f"static_cast<{number}>({last})"
    lines = [
        f"bool {name}(const ScoreRow& row, int64_t first, int64_t count, {number}* __restrict scores) {{",
        "  int bad = 0;",
        *(f"  {line}" for line in before),
        "  for (int64_t c = 0; c < count; ++c) {",
        *(f"    {line}" for line in inside),
        f"    scores[c] = {result};",
        "  }",
        "  return bad == 0;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _step(step: Step, index: int, inputs: list[_Known], number: str) -> tuple[_Known, list[str], str]:
    """The value of a step, lines in front of the loop, and the expression that computes it."""
    name = f"t{index}"
    bounds = _bounds(step, inputs)
    type_ = "int32_t" if step.dtype == "int64" and bounds is not None and _fits_int32(bounds) else _TYPES[step.dtype]
    varies = any(value.varies for value in inputs)
    if step.name == "score":
        return _Known(name, type_, None, True), [], "scores[c]"
    if step.name == "position":
        axis = step.where[0]
        text = "static_cast<int32_t>(first + c)" if axis == KEY else f"static_cast<int32_t>(row.at[{axis}])"
        return _Known(name, "int32_t", bounds, axis == KEY), [], text
    if step.name == "number":
        return _Known(name, type_, bounds, False), [], f"row.numbers[{step.where[0]}]"
    if step.name == "literal":
        return _Known(name, type_, bounds, False), [], _literal(step.value, type_)
    if step.name == "load":
        return _load(step, name, type_, bounds)
    if step.name == "gather":
        return _gather(step, name, type_, bounds, inputs, varies)
    return _Known(name, type_, bounds, varies), [], _operator(step, type_, inputs)


def _literal(value: str, type_: str) -> str:
    if type_ == "double":
        number = float.fromhex(value)
        if number != number:
            return "std::numeric_limits<double>::quiet_NaN()"
        if number in (float("inf"), float("-inf")):
            return f"{'-' if number < 0 else ''}std::numeric_limits<double>::infinity()"
        return number.hex()
    # The least integer has no literal of its own.
    return "std::numeric_limits<int64_t>::min()" if int(value) == -(2**63) else f"{value}LL"


def _load(step: Step, name: str, type_: str, bounds: tuple[int, int] | None) -> tuple[_Known, list[str], str]:
    operand, axes = step.where[0], step.where[1:]
    stored = _STORED[step.dtype]
    terms = [
        f" + {'first' if axis == KEY else f'row.at[{axis}]'} * op::stride(row, {operand}, {dim})"
        for dim, axis in enumerate(axes)
    ]
    pointer = f"const {stored}* p_{name} = static_cast<const {stored}*>(row.operands[{operand}].data){''.join(terms)};"
    if KEY not in axes:
        return _Known(name, type_, bounds, False), [pointer], _brought(step.dtype, f"*p_{name}")
    setup = [pointer, f"const int64_t s_{name} = op::stride(row, {operand}, {axes.index(KEY)});"]
    return _Known(name, type_, bounds, True), setup, _brought(step.dtype, f"p_{name}[c * s_{name}]")


def _gather(
    step: Step, name: str, type_: str, bounds: tuple[int, int] | None, inputs: list[_Known], varies: bool
) -> tuple[_Known, list[str], str]:
    operand, stored = step.where[0], _STORED[step.dtype]
    setup = [f"const {stored}* p_{name} = static_cast<const {stored}*>(row.operands[{operand}].data);"]
    terms = []
    for dim, value in enumerate(inputs):
        setup.append(f"const int64_t n_{name}_{dim} = row.operands[{operand}].sizes[{dim}];")
        setup.append(f"const int64_t s_{name}_{dim} = op::stride(row, {operand}, {dim});")
        terms.append(f"op::place({value.name}, n_{name}_{dim}, bad) * s_{name}_{dim}")
    return _Known(name, type_, bounds, varies), setup, _brought(step.dtype, f"p_{name}[{' + '.join(terms)}]")


def _brought(dtype: str, text: str) -> str:
    if dtype == "bool":
        return f"{text} != 0"
    return f"aotpack::kernels::to_float({text})" if dtype in ("float16", "bfloat16") else text


def _operator(step: Step, type_: str, inputs: list[_Known]) -> str:
    names = [value.name for value in inputs]
    if step.name == "where":
        return f"{names[0]} ? static_cast<{type_}>({names[1]}) : static_cast<{type_}>({names[2]})"
    if step.name == "cast":
        return _rounded(step.dtype, f"{names[0]} != 0" if step.dtype == "bool" else f"static_cast<{type_}>({names[0]})")
    wide = _widest([value.type for value in inputs] + ([] if step.name in COMPARISONS else [type_]))
    given = [
        name if value.type == wide else f"static_cast<{wide}>({name})"
        for name, value in zip(names, inputs, strict=True)
    ]
    if step.name in _SYMBOLS:
        text = f"{given[0]} {_SYMBOLS[step.name]} {given[1]}"
    elif step.name == "not":
        text = f"op::bit_not({given[0]})"
    elif step.name in ("floor", "ceil", "round", "trunc") and wide not in ("float", "double"):
        text = given[0]
    elif step.name in _DIVISIONS:
        text = f"op::{step.name}<{wide}>({given[0]}, {given[1]}, bad)"
    else:
        text = f"op::{step.name}({', '.join(given)})"
    return _rounded(step.dtype, text if wide == type_ or step.name in COMPARISONS else f"static_cast<{type_}>({text})")


def _rounded(dtype: str, text: str) -> str:
    half = {"float16": "f16", "bfloat16": "bf16"}.get(dtype)
    return text if half is None else f"op::rounded<op::{half}>({text})"


def _widest(types: Sequence[str]) -> str:
    """int64_t beside int32_t; others are equal."""
    return "int64_t" if "int64_t" in types else types[0]


def _fits_int32(bounds: tuple[int, int]) -> bool:
    low, high = _RANGES["int32"]
    return low <= bounds[0] and bounds[1] <= high


def _bounds(step: Step, inputs: list[_Known]) -> tuple[int, int] | None:
    """What an integer is between; None for floating-point numbers."""
    full = _RANGES.get(step.dtype)
    if full is None:
        return None
    found = _exact_bounds(step, inputs)
    # Beyond the range of its dtype it wraps around.
    return found if found is not None and full[0] <= found[0] and found[1] <= full[1] else full


def _exact_bounds(step: Step, inputs: list[_Known]) -> tuple[int, int] | None:
    if step.name == "position":
        return 0, step.where[1] - 1 if step.where[1] > 0 else 2**31 - 1
    if step.name == "literal":
        return int(step.value), int(step.value)
    known = [value.bounds for value in inputs]
    if step.name == "where":
        known = known[1:]
    if not known or any(bounds is None for bounds in known):
        return None
    (a, b), *rest = [bounds for bounds in known if bounds is not None]
    if step.name == "cast":
        return a, b
    if step.name == "neg":
        return -b, -a
    if step.name == "abs":
        return 0 if a <= 0 <= b else min(abs(a), abs(b)), max(abs(a), abs(b))
    if not rest:
        return None
    c, d = rest[0]
    products = (a * c, a * d, b * c, b * d)
    return {
        "add": (a + c, b + d),
        "sub": (a - d, b - c),
        "mul": (min(products), max(products)),
        "maximum": (max(a, c), max(b, d)),
        "minimum": (min(a, c), min(b, d)),
        "where": (min(a, c), max(b, d)),
        # By a positive number they only come closer to 0.
        "floor_divide": (min(a, -1), max(b, 0)) if c > 0 else None,
        "trunc_divide": (min(a, 0), max(b, 0)) if c > 0 else None,
        "remainder": (0, d - 1) if c > 0 else None,
    }.get(step.name)
