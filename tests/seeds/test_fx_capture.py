"""Captures of section 003: asserts, models without memory, functions by any name, and what is known of each node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from aotpack import Dim
from aotpack.archive import ArchiveReader, read_manifest
from aotpack.archive.report import parse_report
from aotpack.errors import ExecutionError, InputError
from aotpack.export import BuildOptions, Program, aot_export, build_archive
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.runtime.packing import pack_weights
from tests.seeds import fx_models
from tests.support.building import assert_close
from tests.support.torchless import RemoteModel, Torchless

pytestmark = pytest.mark.torch
Build = Callable[..., RemoteModel]


# ---- asserts --------------------------------------------------------------------------------------------------------


def check_assert(build: Build, model: nn.Module, message: str) -> None:
    """A call that violates the assert fails with its message, and the next one is right."""
    archive = build(model, (torch.tensor(3), torch.tensor(3)))
    for _ in range(2):
        with pytest.raises(ExecutionError) as info:
            archive(torch.tensor(3), torch.tensor(5))
        assert message in str(info.value)
        assert archive(torch.tensor(4), torch.tensor(4)) == 8


def test_call_to_assert_no_msg(build: Build) -> None:
    check_assert(build, fx_models.WithoutMessage(), "assertion failed: a == b")


def test_call_to_assert_with_msg(build: Build) -> None:
    check_assert(build, fx_models.WithMessage(), "test message")


def test_call_to_assert_with_empty_msg(build: Build) -> None:
    check_assert(build, fx_models.WithEmptyMessage(), "assertion failed: a == b")


def test_call_to_assert_with_multiline_message(build: Build) -> None:
    check_assert(build, fx_models.WithMultilineMessage(), "An error message with\nterminating newline")


def test_asserts_of_sizes(build: Build) -> None:
    """An assert on sizes is a condition of calls: it is checked before anything runs."""
    shapes = {"a": {0: Dim("n")}, "b": {0: Dim("k")}}
    args = (torch.randn(5), torch.randn(3))
    archive = build(fx_models.OfSizes(), args, dynamic_shapes=shapes)
    with pytest.raises(InputError):
        archive(torch.randn(3), torch.randn(3))
    assert_close(archive(torch.ones(4), torch.ones(3)), torch.full((3,), 5.0))


# ---- models without memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [15, 35])
def test_meta_tracer(batch: int, tmp_path: Path, cache_dir: Path, torchless: Torchless) -> None:
    """The program is captured from meta tensors, and its weights are packed afterwards. The branch is that of the
    size.
    """
    torch.manual_seed(0)
    model = fx_models.OnMeta().eval()
    with torch.device("meta"):
        empty = fx_models.OnMeta().eval()
    x = torch.zeros(batch, dtype=torch.long).random_(42)
    program = aot_export(empty, (x,))
    options = BuildOptions(cache_dir=cache_dir, opt_level=1, code_only=True)
    code, file, packed = tmp_path / "code.aotpack", tmp_path / "w.safetensors", tmp_path / "m.aotpack"
    build_archive(program, code, options=options)
    assert all(parameter.is_meta for parameter in empty.parameters())
    save_file(model.state_dict(), file)
    pack_weights(code, file, packed)
    with torch.no_grad():
        assert_close(torchless.load(packed)(x), model(x))


# ---- functions ------------------------------------------------------------------------------------------------------


def test_traceable_function_with_nonstandard_name(build: Build) -> None:
    """Functions, not only modules: lambdas, partial functions, closures, methods, callable objects, odd names."""
    import functools

    def foo(x: Tensor) -> Tensor:
        return torch.relu(x)

    foo.__name__ = foo.__qualname__ = "nonstandard name-é<>"

    class Call:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __call__(self, x: Tensor) -> Tensor:
            return torch.relu(x) * self.factor

        def method(self, x: Tensor) -> Tensor:
            return torch.relu(x) + self.factor

    x = torch.randn(4)
    functions: list[Any] = [
        foo,
        lambda x: torch.relu(x),
        functools.partial(torch.clamp, min=0.0),
        Call(2.0),
        Call(2.0).method,
        torch.relu,
    ]
    programs = [aot_export(function, (x,), entry=f"entry_{i}") for i, function in enumerate(functions)]
    for program, function in zip(programs, functions, strict=True):
        assert_close(program.runnable()(x)[0], function(x))
    archive = build(foo, (x,))
    assert_close(archive(x), torch.relu(x))
    assert read_manifest(Path(archive.path)).name == programs[0].name


# ---- nodes ----------------------------------------------------------------------------------------------------------


class ConvBnSum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(5, eps=1e-3)
        self.linear = nn.Linear(5, 4)

    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = self.bn(self.conv(a))
        values, indices = self.linear(y.mean((2, 3))).topk(2)
        return values + b, indices


def fetched(program: Program) -> dict[str, dict[str, Any]]:
    """By module: the arguments of its call by the schema's names, with the values of weights."""
    found: dict[str, dict[str, Any]] = {}
    for node in program.graph.nodes:
        stack = node.meta.get("nn_module_stack") or {}
        path = next(reversed(stack.values()))[0] if stack else ""
        if node.op == "call_function" and hasattr(node.target, "overloadpacket") and path:
            arguments = bound_arguments(node)
            constants = {
                name: program.value(str(value.target))
                for name, value in arguments.items()
                if isinstance(value, torch.fx.Node) and value.op == "get_attr"
            }
            found[path] = {"operator": str(node.target), **arguments, **constants}
    return found


def test_fetch(tmp_path: Path, cache_dir: Path) -> None:
    """Weights and attributes of each node, in the program and of the archive."""
    model, args = ConvBnSum().eval(), (torch.randn(2, 3, 8, 8), torch.randn(2, 2))
    program = aot_export(model, args)
    nodes = fetched(program)
    conv, bn, linear = nodes["conv"], nodes["bn"], nodes["linear"]
    assert conv["operator"] == "aten.conv2d.default"
    assert (conv["stride"], conv["padding"], conv["dilation"], conv["groups"]) == ([2, 2], [1, 1], [1, 1], 1)
    assert conv["bias"] is None
    assert torch.equal(conv["weight"], model.conv.weight)
    assert bn["eps"] == 1e-3
    assert torch.equal(bn["running_var"], model.bn.running_var)
    assert torch.equal(linear["weight"], model.linear.weight)
    assert torch.equal(linear["bias"], model.linear.bias)
    path = tmp_path / "m.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, opt_level=1, updatable=True))
    with ArchiveReader(path) as reader:
        weights = reader.manifest.weights
        assert weights is not None
        for tensor in weights.tensors:
            if tensor.constant is not None:
                raw = np.frombuffer(reader.constant(tensor.constant), str(tensor.dtype))
                np.testing.assert_array_equal(raw, model.state_dict()[tensor.name].numpy().ravel())
        assert {tensor.name for tensor in weights.tensors} == set(model.state_dict())
        assert reader.manifest.report is not None
        report = parse_report(reader.read(reader.manifest.report))
    layers = {change["layer"] for each in report["forward"]["default"] for change in each["changes"]}
    assert {"bn", "linear"} <= layers


def test_type_matches() -> None:
    """Every value has a dtype and a shape in the program: what signatures and steps of archives are made of."""
    shapes = {"a": {0: Dim("n", 1, 8)}, "b": {0: Dim("n", 1, 8)}}
    program = aot_export(ConvBnSum().eval(), (torch.randn(2, 3, 8, 8), torch.randn(2, 2)), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        if node.op != "output":
            value = node.meta["val"]
            assert isinstance(value, (Tensor, torch.SymInt, int, tuple, list)), node
    outputs = program.graph.output_node().args[0]
    assert isinstance(outputs, tuple)
    for node, spec in zip(outputs, program.signature.outputs, strict=True):
        assert isinstance(node, torch.fx.Node)
        assert str(node.meta["val"].dtype) == f"torch.{spec.dtype}"
        assert node.meta["val"].dim() == len(spec.shape)
    assert [str(spec.dtype) for spec in program.signature.outputs] == ["float32", "int64"]


def test_annotate_getitem_node() -> None:
    """Items of results that are several tensors have the types of these."""
    program = aot_export(ConvBnSum().eval(), (torch.randn(2, 3, 8, 8), torch.randn(2, 2)))
    items = [node for node in program.graph.nodes if str(node.target) == "<built-in function getitem>"]
    assert [node.meta["val"].dtype for node in items] == [torch.float32, torch.int64]
    for node in items:
        source = node.args[0]
        assert node.meta["val"].shape == source.meta["val"][node.args[1]].shape


def test_annotate_returns_with_schema() -> None:
    """What a node computes agrees with the returns of its operator's schema."""
    program = aot_export(ConvBnSum().eval(), (torch.randn(2, 3, 8, 8), torch.randn(2, 2)))
    seen = 0
    for node in program.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            returns = node.target._schema.returns
            value = node.meta["val"]
            values = value if isinstance(value, (tuple, list)) else (value,)
            assert len(values) == len(returns)
            pairs = zip(returns, values, strict=True)
            assert all(str(each.type) != "Tensor" or isinstance(v, Tensor) for each, v in pairs)
            seen += 1
    assert seen >= 6
