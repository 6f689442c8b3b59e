"""Checks of data-dependent sizes: generated code that says what was checked, in the model's words and names.

TorchInductor compiles `torch._check` into a test of its own symbols, and throws with these. Here the error has the
message of the model's check, the condition in the user's names, the values, and the line that each value came from.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.ir.AssertScalar.{codegen, scalar}
  torch._inductor.virtualized.V.graph.{wrapper_code.codegen_cpp_sizevar, sizevars.shape_env}
  torch.fx.experimental.symbolic_shapes.ShapeEnv.unbacked_renamings
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy

from aotpack.export.diagnostics.check_messages import condition_key
from aotpack.export.torch_compat.patches import replaced


@dataclass(frozen=True)
class Wording:
    """What is known of the symbols of a graph.

    Attributes:
        names: by symbol, the user's name of a dim.
        origins: by symbol, as it is in the program's graph, where in the model a value comes out of the data.
        messages: by condition, what the model says where it does not hold.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[sympy.Symbol, str] = field(default_factory=dict)
    messages: Mapping[sympy.Basic, str] = field(default_factory=dict)


@contextlib.contextmanager
def worded_asserts(wording: Wording) -> Iterator[None]:
    """While active, generated asserts are worded so, and each condition is tested once."""
    from torch._inductor import config, ir
    from torch._inductor.virtualized import V

    done: set[tuple[int, str]] = set()

    def codegen(self: Any, wrapper: Any) -> None:
        key = condition_key(self.scalar)
        # A graph inside of another one may not run.
        place = (id(V.graph), key)
        if not config.scalar_asserts or place in done:
            return
        done.add(place)
        # Not simplified: torch relies on the condition, so simplified it would be true.
        condition = V.graph.wrapper_code.codegen_cpp_sizevar(self.scalar, simplify=False)
        message = _message(self.scalar, wording, V.graph.sizevars.shape_env)
        wrapper.writeline(f"if (!({condition})) {{ throw std::runtime_error({message}); }}")

    with replaced(ir.AssertScalar, "codegen", codegen):
        yield


def _message(condition: sympy.Basic, wording: Wording, env: Any) -> str:
    """A C++ expression of type std::string."""
    origins = {_renamed(symbol, env): text for symbol, text in wording.origins.items()}
    messages = {_renamed_key(known, env): text for known, text in wording.messages.items()}
    symbols = sorted(condition.free_symbols, key=str)
    named = condition.xreplace({s: sympy.Symbol(wording.names[str(s)]) for s in symbols if str(s) in wording.names})
    said = messages.get(_renamed_key(condition, env), "").rstrip(".")
    checked = f"the model checks {_text(named)}"
    parts = [_literal(f"{said}: {checked}" if said else checked)]
    for i, symbol in enumerate(symbols):
        name = str(symbol)
        parts.append(_literal(f"{', got ' if i == 0 else ', '}{wording.names.get(name, name)} = "))
        parts.append(f"std::to_string({name})")
        origin = origins.get(_renamed(symbol, env))
        if origin is not None:
            parts.append(_literal(f" ({origin})"))
    return f"std::string({parts[0]})" + "".join(f" + {part}" for part in parts[1:])


def _text(condition: sympy.Basic) -> str:
    """As in Python; sympy writes `Ne(n, 0)`."""
    if isinstance(condition, (sympy.Eq, sympy.Ne)):
        return f"{condition.lhs} {'==' if isinstance(condition, sympy.Eq) else '!='} {condition.rhs}"
    return str(condition)


def _renamed(symbol: sympy.Symbol, env: Any) -> sympy.Symbol:
    """What a symbol became when torch traced once more."""
    while symbol in env.unbacked_renamings:
        symbol = env.unbacked_renamings[symbol]
    return symbol


def _renamed_key(condition: sympy.Basic, env: Any) -> str:
    return condition_key(condition.xreplace({symbol: _renamed(symbol, env) for symbol in condition.free_symbols}))


def _literal(text: str) -> str:
    """A C++ string literal: JSON's escapes are C++'s, but for characters beyond ASCII."""
    return json.dumps(text.encode("ascii", "replace").decode())
