"""Private torch: `aotpack/export/torch_compat` alone imports it, names it, reads it of an object, or patches torch.

Names of operators (`torch.ops.aten._fft_r2c`) are part of a graph's vocabulary, and `torch._check` is documented: these
are not private.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ADAPTER = ROOT / "aotpack" / "export" / "torch_compat"
SOURCES = sorted(path for path in (ROOT / "aotpack").rglob("*.py") if not path.is_relative_to(ADAPTER))

DOCUMENTED = ("torch._check",)
# A string that names something of torch, or a place of a patch.
PLACE = re.compile(r"torch(?:\.\w+)*(:[\w.]+)?")


def is_private(name: str) -> bool:
    if name in DOCUMENTED or name.startswith("torch.ops."):
        return False
    if name.startswith("torch.fx.experimental"):
        return True
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def of_torch(module: str | None) -> bool:
    return module is not None and module.split(".")[0] in ("torch", "functorch")


def dotted(node: ast.expr) -> list[str]:
    """`a.b.c` as its parts; empty for what does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def private_names(source: str) -> Iterator[str]:
    """What a file imports of private torch, and what it names of it through anything that it imports from torch."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if of_torch(alias.name):
                    names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else "torch"
                    if is_private(alias.name):
                        yield f"line {node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and of_torch(node.module):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if is_private(f"{node.module}.{alias.name}"):
                    yield f"line {node.lineno}: from {node.module} import {alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = PLACE.fullmatch(node.value)
            if place is not None and (place[1] or is_private(node.value)):
                yield f"line {node.lineno}: {node.value!r}"
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            parts = dotted(node)
            if parts and parts[0] in names and is_private(".".join([names[parts[0]], *parts[1:]])):
                yield f"line {node.lineno}: {'.'.join(parts)}"


# Of Python, not of torch.
PUBLIC = ("_fields", "_replace", "_getframe")


def private_attributes(source: str) -> Iterator[str]:
    """Private attributes of objects that another file defines: a program's, a node's, an operator's.

    What a file defines itself it may use: methods and functions, and attributes that it assigns to `self`.
    """
    tree = ast.parse(source)
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    operators = {"aten", "prims", "ops"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
            own.add(node.attr)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own.add(node.target.id)
    for node in ast.walk(tree):
        name, of, line = None, None, 0
        if isinstance(node, ast.Attribute):
            name, of, line = node.attr, node.value, node.lineno
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr", "delattr"):
            of, key = node.args[:2]
            name, line = str(getattr(key, "value", "")), node.lineno
        if name is None or of is None or not is_private(name) or name in own or name in PUBLIC or is_self(of):
            continue
        parts = dotted(of)
        if not operators & set(parts) and f"{'.'.join(parts)}.{name}" not in DOCUMENTED:
            yield f"line {line}: {ast.unparse(of)}.{name}"


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def patches(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        module = node.module if isinstance(node, ast.ImportFrom) else ""
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if any(f"{module}.{name}".lstrip(".").startswith("unittest.mock") for name in names):
            yield f"line {node.lineno}: unittest.mock"


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "import torch._dynamo as dynamo",
        "from torch import _C",
        "from torch._inductor import config",
        "from torch.fx.experimental import _config",
        "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
        "applied({'torch._inductor.graph:make_fallback': f})",
        "applied({'torch:SymInt.requires_grad': f})",
        "def f():\n    import torch.utils._pytree",
        "import torch\ntorch._C.DispatchKey.CPU",
        "import torch\ntorch.export._trace",
        "from torch import nn\nnn.functional._canonical_mask(x)",
        "import torch.nn as nn\nnn.functional._canonical_mask",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert list(private_names(source))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.ops.aten._fft_r2c.default",
        "import torch\ntorch._check(x > 0)",
        "import torch\ntorch.__version__",
        "from torch.export import Dim",
        "'torch.float32'",
        'def f():\n    """See torch._inductor."""',
        "import os\nos._exit(1)",
    ],
)
def test_public_names_are_not(source: str) -> None:
    assert not list(private_names(source))


@pytest.mark.parametrize(
    "source",
    [
        "program._graph_signature = signature",
        "node.meta['val'].node._expr",
        "tensor.untyped_storage()._cdata",
        "module._buffers['b']",
        "getattr(op, '_schema', None)",
        "class A:\n    def f(self, op):\n        return self.op._schema",
    ],
)
def test_private_attributes_are_found(source: str) -> None:
    assert list(private_attributes(source))


@pytest.mark.parametrize(
    "source",
    [
        "aten._fft_r2c.default",
        "torch.ops.aten._fft_r2c",
        "torch._check(x > 0)",
        "sys._getframe(1)",
        "class A:\n    def __init__(self):\n        self._x = 1\n    def f(self, other):\n        return other._x",
        "class A:\n    _x: int\n    def f(self, other):\n        return other._x",
        "class A:\n    def f(self):\n        return self._inherited",
    ],
)
def test_attributes_of_the_file_are_not(source: str) -> None:
    assert not list(private_attributes(source))


@pytest.mark.parametrize(
    "source", ["from unittest import mock", "import unittest.mock", "from unittest.mock import patch"]
)
def test_patches_are_found(source: str) -> None:
    assert list(patches(source))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_adapter_alone_touches_private_torch(path: Path) -> None:
    source = path.read_text()
    assert not list(private_names(source))
    assert not list(patches(source))
    # Elsewhere nothing has objects of torch.
    assert "export" not in path.relative_to(ROOT / "aotpack").parts or not list(private_attributes(source))


@pytest.mark.parametrize("path", sorted(ADAPTER.rglob("*.py")), ids=lambda path: str(path.relative_to(ADAPTER)))
def test_patches_of_the_adapter_are_in_its_table(path: Path) -> None:
    assert not list(patches(path.read_text()))
