"""`rewrite_pattern`: the public way to replace operators and patterns of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from aotpack.errors import BuildError, PassError
from aotpack.export.diagnostics.internal_errors import callers_own
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import Rewriter, same_strides
from aotpack.export.passes.runner import propagate, run_passes
from aotpack.export.rewriting.match import Match, Number, match_of
from aotpack.export.rewriting.pattern import Found, FunctionPattern, OperatorPattern, Pattern
from aotpack.export.rewriting.replacement import insert
from aotpack.export.torch_compat.graphs import is_erased
from aotpack.export.torch_compat.operators import OpOverload, OpOverloadPacket, schema_or_none
from aotpack.export.torch_compat.tensors import storage_id

aten = torch.ops.aten
Where = Callable[[Match], bool]


class Rewrite:
    """A pass that replaces each place that matches a pattern: what `rewrite_pattern` makes.

    As a function it returns a program, in which graphs inside (branches, loops) are rewritten as well:
    `program = rewrite(program)`. In a build it runs where `build_archive(..., passes=[rewrite])` runs passes.

    Attributes:
        name: as it is in reports.
        summary: what it does, in a sentence.
    """

    def __init__(
        self, pattern: Pattern, replacement: Callable[..., Any], where: Where | None, name: str, summary: str
    ) -> None:
        self.name = name
        self.summary = summary
        self._pattern = pattern
        self._replacement = replacement
        self._where = where

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, program: Program) -> Program:
        """The program after the rewrite.

        Raises:
            PassError: the pattern, its condition or its replacement fails, or the replacement has another dtype or
                shape than what it replaces.
        """
        return run_passes(program, (_named(self),))

    def step(self, program: Program) -> Program:
        """The rewrite of one graph."""
        editor = Rewriter(program)
        moved = False
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or is_erased(node):
                continue
            found = self._found(editor, node)
            if found is not None:
                moved = self._replace(editor, found) or moved
        program = editor.finish(self.name, self.summary)
        if moved:
            propagate(program)
        return program

    def _found(self, editor: Rewriter, node: torch.fx.Node) -> Found | None:
        """The first match at a node that may be replaced."""
        for found in self._pattern.find(node):
            if not _is_free(found):
                continue
            if self._where is None:
                return found
            match = match_of(editor, node, found.values)
            with callers_own():
                if self._where(match):
                    return found
        return None

    def _replace(self, editor: Rewriter, found: Found) -> bool:
        """Puts the replacement in; whether strides have changed."""
        output = found.output
        try:
            results = insert(editor, found, self._replacement)
        except BuildError as error:
            where = match_of(editor, output, found.values)
            at = f"\n  at {where.line}" if where.line else ""
            raise PassError(f"rewrite {self.name}: {error}{at}", hint=error.hint) from error
        editor.report(output, f"{output.name} replaced")
        if not isinstance(output.meta["val"], (tuple, list)):
            return self._put(editor, output, results[0])
        moved = False
        for reader in list(output.users):
            moved = self._put(editor, reader, results[_index(reader)]) or moved
        return moved

    def _put(self, editor: Rewriter, old: torch.fx.Node, new: torch.fx.Node) -> bool:
        if _is_exposed(editor, old, new):
            new = editor.call(aten.clone.default, (new,), before=old)
        moved = not same_strides(old, new)
        editor.replace(old, new)
        return moved


def rewrite_pattern(
    pattern: Callable[..., Any],
    *,
    where: Where | None = None,
    examples: Sequence[torch.Tensor | Number] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], Rewrite]:
    """Makes a pass of a function: each place of a program that computes `pattern` computes the function instead.

    >>> @rewrite_pattern(lambda x: x * torch.sigmoid(x))
    ... def use_silu(x):
    ...     '''Replaces x * sigmoid(x) by silu.'''
    ...     return torch.nn.functional.silu(x)
    >>> build_archive(program, "model.aotpack", passes=[use_silu])

    The function is traced at each place with the values there. It returns what the place returns, with the same dtype
    and shape. Places are replaced in the order of the program, and replacements are not searched again.

    A function as a pattern is captured as a model is. Each of its parameters stands for any tensor, or for any number
    where its example is a number. A parameter that is used twice stands for one value. A place matches if it calls the
    same operators with the same other arguments, and if nothing else reads the values between them. The two operands of
    a sum or a product may be exchanged.

    Args:
        pattern: a function of tensors that returns one tensor; or an operator (`torch.ops.aten.gelu`) or an overload of
            it. The function that takes the place of an operator gets its arguments in the order of its schema,
            keyword-only ones by name. Arguments at their defaults are left out if it has no parameters for them.
        where: a condition: a function of a `Match` that returns whether to replace it.
        examples: arguments for which to capture the pattern, one for each parameter. Default: float32 matrices, with
            which elementwise operators, linears and matrix products can be captured. Numbers must differ from all
            other numbers of the pattern.
        name: of the pass. Default: the name of the function, with dashes. The first line of its docstring describes it.

    Raises:
        TypeError: the function cannot take the parameters of the pattern, or `pattern` is nothing of the above.
    """
    found: Pattern
    if isinstance(pattern, (OpOverload, OpOverloadPacket)):
        if examples is not None:
            raise TypeError("an operator has no examples")
        found = OperatorPattern(pattern)
    elif callable(pattern):
        found = FunctionPattern(pattern, examples)
    else:
        raise TypeError(f"a pattern is a function or an operator, not a {type(pattern).__name__}")

    def decorate(function: Callable[..., Any]) -> Rewrite:
        found.check(function)
        called = name or function.__name__.strip("_").replace("_", "-")
        summary = (function.__doc__ or f"Rewrites a pattern by {function.__name__}").strip().partition("\n")[0]
        return Rewrite(found, function, where, called, summary)

    return decorate


def _named(rewrite: Rewrite) -> Callable[[Program], Program]:
    """The step of one graph, with the name that errors have."""

    @functools.wraps(rewrite.step)
    def step(program: Program) -> Program:
        return rewrite.step(program)

    step.__name__ = rewrite.name
    return step


def _is_exposed(editor: Rewriter, old: torch.fx.Node, new: torch.fx.Node) -> bool:
    """Whether what takes the place of a value of its own is memory of an input or constant, and that can be seen: it is
    a result of the program, or the program writes to memory.
    """
    before = [node for node in editor.graph.nodes if node.op in ("placeholder", "get_attr")]
    given = {storage_id(value) for node in before if isinstance(value := node.meta.get("val"), torch.Tensor)}
    shared = [storage_id(node.meta["val"]) in given for node in (old, new)]
    if shared != [False, True]:
        return False
    return any(user.op == "output" for user in old.users) or any(map(_writes, editor.graph.nodes))


def _index(reader: torch.fx.Node) -> int:
    """Which of several results a `getitem` reads."""
    index: Any = reader.args[1]
    return int(index)


def _is_free(found: Found) -> bool:
    """Whether nothing else reads what is computed inside, and nothing is written between its calls."""
    calls = {found.output, *found.inner}
    if any(user not in calls for node in found.inner for user in node.users):
        return False
    if _writes(found.output):
        return False
    remaining = set(found.inner)
    node = found.output
    while remaining:
        node = node.prev
        remaining.discard(node)
        if _writes(node):
            return False
    return True


def _writes(node: torch.fx.Node) -> bool:
    schema = schema_or_none(node.target)
    return schema is not None and schema.is_mutable
