"""The C++ between generated code and kernels of the user, written from an operator's schema.

Generated code calls `aoti_torch_cpu_custom_<name>` with the arguments that TorchInductor passes for the schema. That
function is `Glue.shim`, in the wrapper: it turns them into those of aotpack/operator.h and calls a function of the
namespace `aotpack::op::glue`. That one is `Glue.definition`, behind the user's source: it checks the signature of the
user's function and calls it. The two are the same for every target.

Private interface touched (torch 2.11 to 2.13): an operator's _schema, and the types of its arguments and results
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.errors import BuildError
from aotpack.export.custom_ops.kernels import CustomKernel, qualified_name
from aotpack.export.torch_compat.operators import Argument, FunctionSchema, OpOverload, operator_schema

_PREFIX = "aoti_torch_cpu_"
# What stands unqualified in types.
_OURS = re.compile(r"\b(Tensor|Call|Scalar|DType)\b")


@dataclass(frozen=True)
class _Kind:
    """How values of one type of a schema are passed.

    Attributes:
        shown: the parameter in the user's function, as people write it (inside aotpack::op).
        exact: its type without const and reference.
        wrapper: parameters of the shim, `{}` standing for the name.
        convert: how the shim makes the user's argument of them.
    """

    shown: str
    exact: str
    wrapper: str
    convert: str

    def passed(self, name: str) -> str:
        """The shim's parameters as arguments."""
        return ", ".join(part.split()[-1] for part in self.wrapper.format(name).split(", "))


_SCALARS = {
    "Tensor": _Kind("const Tensor&", "Tensor", "AtenTensorHandle {0}", "custom_view({0}, {writable})"),
    "int": _Kind("int64_t", "int64_t", "int64_t {0}", "{0}"),
    "float": _Kind("double", "double", "double {0}", "{0}"),
    "bool": _Kind("bool", "bool", "int32_t {0}", "{0} != 0"),
    "str": _Kind("std::string_view", "std::string_view", "const char* {0}", "std::string_view({0})"),
    "number": _Kind("Scalar", "Scalar", "CustomScalar {0}", "{0}.scalar"),
    "ScalarType": _Kind("DType", "DType", "int32_t {0}", "static_cast<aotpack::op::DType>({0})"),
}


def _optional(exact: str, wrapper: str, convert: str) -> _Kind:
    return _Kind(f"std::optional<{exact}>", f"std::optional<{exact}>", wrapper, convert)


_OPTIONALS = {
    "Tensor": _optional("Tensor", "AtenTensorHandle* {0}", "custom_optional({0}, {writable})"),
    "int": _optional("int64_t", "const int64_t* {0}", "custom_optional<int64_t>({0})"),
    "float": _optional("double", "const double* {0}", "custom_optional<double>({0})"),
    "bool": _optional("bool", "const int32_t* {0}", "custom_optional<bool>({0})"),
    "str": _optional("std::string_view", "const char* const* {0}", "custom_optional<std::string_view>({0})"),
    "ScalarType": _optional("DType", "const int32_t* {0}", "custom_optional<aotpack::op::DType>({0})"),
    "List[int]": _optional(
        "std::span<const int64_t>", "CustomList<int64_t> {0}, int64_t {0}_count", "{0}.list({0}_count)"
    ),
    "List[float]": _optional(
        "std::span<const double>", "CustomList<double> {0}, int64_t {0}_count", "{0}.list({0}_count)"
    ),
}


def _span(element: str, wrapper: str, convert: str) -> _Kind:
    return _Kind(
        f"std::span<const {element}>",
        f"std::span<const {element}>",
        f"{wrapper} {{0}}, int64_t {{0}}_count",
        f"{convert}({{0}}, {{0}}_count)",
    )


_LISTS = {
    "Tensor": _Kind(
        "std::span<const Tensor>",
        "std::span<const Tensor>",
        "const AtenTensorHandle* {0}, int64_t {0}_count",
        "custom_tensors({0}, {0}_count, {writable})",
    ),
    "Optional[Tensor]": _span("std::optional<Tensor>", "const AtenTensorHandle**", "custom_optionals"),
    "int": _span("int64_t", "const int64_t*", "custom_span"),
    "float": _span("double", "const double*", "custom_span"),
    "bool": _Kind(
        "std::span<const bool>",
        "std::span<const bool>",
        "const int32_t* {0}, int64_t {0}_count",
        "CustomBools({0}, {0}_count).list()",
    ),
    "str": _span("std::string_view", "const char* const*", "custom_strings"),
}


@dataclass(frozen=True)
class Glue:
    """What joins an operator to its kernel.

    Attributes:
        operator: its qualified name.
        kernel: what the user gave.
        schema: the operator's, as torch prints it.
        shim_name: the C++ function that generated code calls.
        signature: of the user's function, as people write it.
        declaration: of the user's function, for objects without a header.
        shim: text for the wrapper.
        definition: text behind the user's source.
    """

    operator: str
    kernel: CustomKernel
    schema: str
    shim_name: str
    signature: str
    declaration: str
    shim: str
    definition: str


def shim_name(op: OpOverload) -> str:
    """The function that generated code calls for an operator with a kernel of the user."""
    return f"{_PREFIX}custom_{_identifier(op)}"


def glue(op: OpOverload, kernel: CustomKernel) -> Glue:
    """The glue for an operator.

    Raises:
        BuildError: its schema has something that a kernel cannot take or return.
    """
    name, schema = qualified_name(op), operator_schema(op)
    kinds = [_argument_kind(name, argument) for argument in schema.arguments]
    result = _result_type(name, schema)
    writable = [_is_written(argument) for argument in schema.arguments]
    identifier, function = _identifier(op), kernel.function.removeprefix("::")
    # Names of a schema may be keywords of C++.
    names = [f"{argument.name}_" for argument in schema.arguments]
    shown = ", ".join(["Call& call", *(f"{k.shown} {a.name}" for k, a in zip(kinds, schema.arguments, strict=True))])
    signature = f"{result} {function}({shown})"
    parameters = ", ".join(["Call& call", *(f"const {k.exact}& {n}" for k, n in zip(kinds, names, strict=True))])
    returns = "void" if result == "void" else "std::vector<Tensor>"
    declaration = f"{returns} {identifier}({parameters})"
    guards = [
        f"  const CustomWritten {n}written({k.passed(n)});\n"
        for k, n, w in zip(kinds, names, writable, strict=True)
        if w and "{writable}" in k.convert
    ]
    converted = [k.convert.format(n, writable=str(w).lower()) for k, n, w in zip(kinds, names, writable, strict=True)]
    passed = [*(k.wrapper.format(n) for k, n in zip(kinds, names, strict=True)), "Results... results"]
    handed = "" if result == "void" else ", results..."
    shim = (
        f"namespace aotpack::op::inline v1::glue {{\n{declaration};\n}}\n"
        "namespace aotpack::module {\n"
        f"template <typename... Results>\ninline void {_PREFIX}custom_{identifier}({', '.join(passed)}) {{\n"
        f"{''.join(guards)}"
        f"  run_custom({_quoted(name)}, [&](aotpack::op::Call& call) {{\n"
        f"    return aotpack::op::glue::{identifier}({', '.join(['call', *converted])});\n  }}{handed});\n}}\n}}\n"
        f"using aotpack::module::{_PREFIX}custom_{identifier};\n"
    )
    call = f"::{function}({', '.join(['call', *names])})"
    # What is compared has neither const nor references: kernels may take arguments by value.
    fits = f"Fits<{result}({', '.join(['Call', *(k.exact for k in kinds)])}), decltype(&::{function})>::value"
    wanted = f"the schema {schema} requires the function: {signature}"
    definition = (
        "namespace aotpack::op::inline v1::glue {\n"
        f"static_assert({fits}, {_quoted(wanted)});\n"
        f"{declaration} {{ {f'{call};' if result == 'void' else f'return results({call});'} }}\n}}\n"
    )
    return Glue(
        name,
        kernel,
        str(schema),
        f"{_PREFIX}custom_{identifier}",
        signature,
        _declared(function, result, [k.shown for k in kinds]),
        shim,
        definition,
    )


def _declared(function: str, result: str, types: list[str]) -> str:
    *scopes, name = function.split("::")
    text = _OURS.sub(r"aotpack::op::\1", f"{result} {name}({', '.join(['Call&', *types])});")
    for scope in reversed(scopes):
        text = f"namespace {scope} {{ {text} }}"
    return text


def _identifier(op: OpOverload) -> str:
    """A C++ identifier of its own for each operator."""
    name = qualified_name(op)
    plain = re.sub(r"::|\.", "__", name)
    # Only these can be equal for two operators; identifiers with __ at their ends are reserved for the compiler.
    if "__" in name or re.search(r"(^|::|\.)_|_(::|\.|$)", name):
        plain += "_" + hashlib.sha256(name.encode()).hexdigest()[:8]
    return plain


def _is_written(argument: Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _argument_kind(name: str, argument: Argument) -> _Kind:
    kind = argument.real_type
    found: _Kind | None
    if isinstance(kind, torch.OptionalType):
        found = _OPTIONALS.get(_spelled(kind.getElementType()))
    elif isinstance(kind, torch.ListType):
        found = _LISTS.get(_spelled(kind.getElementType()))
    else:
        found = _SCALARS.get(_spelled(kind))
    if found is None:
        raise BuildError(
            f"the argument {argument.name!r} of {name} is of the type {kind}, which kernels do not support",
            hint="remove it from the schema, or use an int or a str",
        )
    if argument.alias_info is not None and not argument.alias_info.is_write:
        raise BuildError(
            f"a result of {name} is a view of its argument {argument.name!r}, which kernels do not support"
        )
    return found


def _spelled(kind: Any) -> str:
    return "int" if isinstance(kind, torch.SymIntType) else str(kind)


def _result_type(name: str, schema: FunctionSchema) -> str:
    """The result of the user's function in C++.

    Raises:
        BuildError: the schema returns something other than tensors of its own.
    """
    types = [str(result.type) for result in schema.returns]
    if any(result.alias_info is not None for result in schema.returns):
        raise BuildError(
            f"{name} returns one of its arguments, which custom operators must not",
            hint="an operator that writes to an argument must return nothing: `-> ()`",
        )
    if not types:
        return "void"
    if types == ["List[Tensor]"]:
        return "std::vector<Tensor>"
    if any(kind != "Tensor" for kind in types):
        raise BuildError(
            f"{name} returns ({', '.join(types)}), but kernels return tensors",
            hint="return numbers as tensors of rank 0, and lists one operator each",
        )
    return "Tensor" if len(types) == 1 else f"std::tuple<{', '.join(types)}>"


def _quoted(text: str) -> str:
    return json.dumps(text)


def of_shims(kernels: Mapping[OpOverload, CustomKernel], shims: Collection[str]) -> list[Glue]:
    """The glue of those operators whose functions are among `shims`, in a fixed order.

    Raises:
        BuildError: as `glue`.
    """
    called = [(op, kernel) for op, kernel in kernels.items() if shim_name(op) in shims]
    return [glue(op, kernel) for op, kernel in sorted(called, key=lambda item: qualified_name(item[0]))]


def wrapper_text(called: Sequence[Glue]) -> str:
    """What the wrapper of a module that calls these operators begins with."""
    return '#include "custom.h"\n' + "".join(glue.shim for glue in called) if called else ""
