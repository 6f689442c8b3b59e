"""Patterns: where in a graph they occur."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.fx

from aotpack.errors import PassError
from aotpack.export.capture.models import aot_export
from aotpack.export.ir.rewriter import bound_arguments, schema_of
from aotpack.export.rewriting.match import Number
from aotpack.export.torch_compat.operators import OpOverload, OpOverloadPacket, operator_schema

aten = torch.ops.aten

# Operators whose first two arguments may be exchanged; `add` with alpha 1 alone.
_COMMUTATIVE = frozenset(
    {
        aten.add.Tensor,
        aten.mul.Tensor,
        aten.maximum.default,
        aten.minimum.default,
        aten.eq.Tensor,
        aten.ne.Tensor,
        aten.logical_and.default,
        aten.logical_or.default,
        aten.bitwise_and.Tensor,
        aten.bitwise_or.Tensor,
    }
)


@dataclass(frozen=True)
class Found:
    """A place that matches.

    Attributes:
        output: the node whose value is replaced.
        inner: the other calls of the match.
        values: nodes and numbers by the names of parameters, in order.
        keywords: those of `values` that are passed by name.
        of_operator: whether the values are all arguments of an operator, also those at their defaults.
    """

    output: torch.fx.Node
    inner: tuple[torch.fx.Node, ...]
    values: Mapping[str, Any]
    keywords: frozenset[str] = frozenset()
    of_operator: bool = False


class Pattern(Protocol):
    """Something that occurs in graphs."""

    def find(self, node: torch.fx.Node) -> Iterator[Found]:
        """The ways in which `node` computes it."""

    def check(self, function: Callable[..., Any]) -> None:
        """Raises TypeError if a function cannot take the parameters of this pattern."""


class OperatorPattern:
    """The calls of an operator, or of all overloads of it.

    Raises:
        TypeError: an overload writes to its arguments.
    """

    def __init__(self, operator: Any) -> None:
        overloads = operator.overloads() if isinstance(operator, OpOverloadPacket) else []
        self._targets = {getattr(operator, name) for name in overloads} or {operator}
        if all(operator_schema(target).is_mutable for target in self._targets):
            raise TypeError(f"{operator} writes to its arguments: captured programs do not call such operators")

    def find(self, node: torch.fx.Node) -> Iterator[Found]:
        if node.op != "call_function" or node.target not in self._targets:
            return
        arguments = schema_of(node).arguments
        values = bound_arguments(node)
        yield Found(node, (), values, frozenset(each.name for each in arguments if each.kwarg_only), of_operator=True)

    def check(self, function: Callable[..., Any]) -> None:
        """Arguments differ from overload to overload: they are checked where one is called."""


class FunctionPattern:
    """What a function of tensors computes. It is captured when it is first looked for.

    Args:
        function: of tensors, and of numbers where `examples` has some.
        examples: arguments for which it is captured. Default: matrices of float32.

    Raises:
        TypeError: the function has other parameters than positional ones, or not as many as examples.
    """

    def __init__(self, function: Callable[..., Any], examples: Sequence[torch.Tensor | Number] | None) -> None:
        parameters = inspect.signature(function).parameters.values()
        if any(each.kind not in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters):
            raise TypeError("a pattern has positional parameters only")
        self._names = tuple(each.name for each in parameters)
        self._examples = tuple(torch.zeros(2, 2) for _ in self._names) if examples is None else tuple(examples)
        if len(self._examples) != len(self._names):
            raise TypeError(f"{len(self._examples)} examples for the parameters {', '.join(self._names)}")
        self._function = function
        self._output: _Call | None = None

    def find(self, node: torch.fx.Node) -> Iterator[Found]:
        if self._output is None:
            self._output = self._captured()
        if node.op != "call_function" or node.target is not self._output.target:
            return
        for state in _unify(self._output, node, _State({}, {})):
            inner = tuple(state.calls[call] for call in state.calls if call is not self._output)
            yield Found(node, inner, {name: state.values[name] for name in self._names})

    def check(self, function: Callable[..., Any]) -> None:
        try:
            inspect.signature(function).bind(*self._names)
        except TypeError as error:
            raise TypeError(
                f"the replacement must take the parameters of its pattern, {', '.join(self._names)}: {error}"
            ) from None

    def _captured(self) -> _Call:
        tensors = [example for example in self._examples if isinstance(example, torch.Tensor)]

        def of_tensors(*given: torch.Tensor) -> Any:
            rest = iter(given)
            return self._function(*(next(rest) if isinstance(e, torch.Tensor) else e for e in self._examples))

        graph = aot_export(of_tensors, tuple(tensors)).graph
        results = graph.output_node().args[0]
        if not isinstance(results, tuple) or len(results) != 1 or not isinstance(results[0], torch.fx.Node):
            raise PassError("a pattern returns one tensor", hint="write a rewrite for each of the results")
        constants = [str(node.target) for node in graph.find_nodes(op="get_attr")]
        if constants:
            raise PassError("a pattern contains a tensor", hint="make it a parameter of the pattern")
        names = [n for n, e in zip(self._names, self._examples, strict=True) if isinstance(e, torch.Tensor)]
        known: dict[torch.fx.Node, object] = {
            node: _Tensor(name) for node, name in zip(graph.find_nodes(op="placeholder"), names, strict=True)
        }
        numbers = {n: e for n, e in zip(self._names, self._examples, strict=True) if not isinstance(e, torch.Tensor)}
        output = _pattern_of(results[0], known, numbers)
        if not isinstance(output, _Call):
            raise PassError("a pattern calls at least one operator")
        missing = [name for name in self._names if name not in _parameters(output)]
        if missing:
            raise PassError(
                f"the parameter {missing[0]!r} of the pattern is not an argument of an operator in it",
                hint="a pattern must use all of its parameters; numbers cannot be used in computations",
            )
        return output


@dataclass(frozen=True)
class _Tensor:
    """A parameter that is a tensor."""

    name: str


@dataclass(frozen=True)
class _Number:
    """A parameter that is a number."""

    name: str


@dataclass(frozen=True, eq=False)
class _Call:
    """A call in a pattern, with all arguments by name."""

    target: Any
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class _State:
    """What the parameters and calls of a pattern are, as far as they are known."""

    values: Mapping[str, Any]
    calls: Mapping[_Call, torch.fx.Node]

    def with_value(self, name: str, value: Any) -> _State | None:
        if name not in self.values:
            return _State({**self.values, name: value}, self.calls)
        known = self.values[name]
        same = known is value if isinstance(value, torch.fx.Node) else _equal(known, value)
        return self if same else None


def _pattern_of(value: Any, known: dict[torch.fx.Node, object], numbers: Mapping[str, Number]) -> object:
    """An argument of a call in the pattern's graph."""
    if isinstance(value, torch.fx.Node):
        if value not in known:
            arguments = {name: _pattern_of(item, known, numbers) for name, item in _written(value, numbers).items()}
            known[value] = _Call(value.target, arguments)
        return known[value]
    if isinstance(value, (list, tuple)):
        return [_pattern_of(item, known, numbers) for item in value]
    return value


def _written(node: torch.fx.Node, numbers: Mapping[str, Number]) -> dict[str, Any]:
    """All arguments of a call, in which the numbers that are parameters are marked. Defaults are not parameters."""
    args, kwargs = _marked(node.args, numbers), _marked(dict(node.kwargs), numbers)
    if not isinstance(node.target, OpOverload):
        return {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    found: dict[str, Any] = {}
    for position, argument in enumerate(operator_schema(node.target).arguments):
        default = argument.default_value if argument.has_default_value() else None
        found[argument.name] = args[position] if position < len(args) else kwargs.get(argument.name, default)
    return found


def _marked(value: Any, numbers: Mapping[str, Number]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_marked(item, numbers) for item in value]
    if isinstance(value, dict):
        return {key: _marked(item, numbers) for key, item in value.items()}
    if isinstance(value, (bool, int, float)):
        return next((_Number(name) for name, number in numbers.items() if _equal(value, number)), value)
    return value


def _parameters(value: object) -> set[str]:
    if isinstance(value, (_Tensor, _Number)):
        return {value.name}
    if isinstance(value, _Call):
        return set().union(*map(_parameters, value.arguments.values()))
    return set().union(*map(_parameters, value)) if isinstance(value, list) else set()


def _unify(pattern: object, value: Any, state: _State) -> Iterator[_State]:
    """The ways to complete `state` so that a value of the graph is what the pattern says."""
    if isinstance(pattern, (_Tensor, _Number)):
        fits = _is_tensor(value) if isinstance(pattern, _Tensor) else isinstance(value, (bool, int, float))
        bound = state.with_value(pattern.name, value) if fits else None
        if bound is not None:
            yield bound
    elif isinstance(pattern, _Call):
        yield from _unify_call(pattern, value, state)
    elif isinstance(pattern, list):
        if isinstance(value, (list, tuple)) and len(value) == len(pattern):
            yield from _unify_all(pattern, value, state)
    elif not isinstance(value, torch.fx.Node) and _equal(pattern, value):
        yield state


def _unify_call(pattern: _Call, value: Any, state: _State) -> Iterator[_State]:
    if pattern in state.calls:
        if state.calls[pattern] is value:
            yield state
        return
    if not isinstance(value, torch.fx.Node) or value.op != "call_function" or value.target is not pattern.target:
        return
    found = _State(state.values, {**state.calls, pattern: value})
    arguments = _written(value, {})
    if arguments.keys() != pattern.arguments.keys():
        return
    wanted, given = list(pattern.arguments.values()), list(arguments.values())
    yield from _unify_all(wanted, given, found)
    if pattern.target in _COMMUTATIVE and arguments.get("alpha", 1) == 1:
        yield from _unify_all(wanted, [given[1], given[0], *given[2:]], found)


def _unify_all(patterns: Sequence[object], values: Sequence[Any], state: _State) -> Iterator[_State]:
    if not patterns:
        yield state
        return
    for found in _unify(patterns[0], values[0], state):
        yield from _unify_all(patterns[1:], values[1:], found)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _equal(first: Any, second: Any) -> bool:
    """Whether two literals are the same; True is not 1."""
    return isinstance(first, bool) == isinstance(second, bool) and bool(first == second)
