"""Normalisation of section 003: calls have one form, however they are written, over a slice of the operator database.

`canonicalize` brings calls into the form of their operator's schema. Here calls are written out with all arguments by
name and all defaults, which must lead to the same form as the calls of the capture, with the same metadata and results.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from aotpack.export import Program, aot_export
from aotpack.export.ir.rewriter import bound_arguments
from aotpack.export.passes.common.canonicalize import canonicalize
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from tests.support.building import assert_close

pytestmark = pytest.mark.torch
aten = torch.ops.aten


def written_out(program: Program) -> Program:
    """The program with all arguments of its calls by name."""
    module = program.editable()
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.args, node.kwargs = (), bound_arguments(node)
    module.recompile()
    return program.with_graph(module)


def calls(program: Program) -> list[tuple[Any, ...]]:
    """The calls of a program: operator, arguments and what they are known by."""
    found = []
    for node in program.graph.nodes:
        if node.op == "call_function":
            value = node.meta["val"]
            described = (value.dtype, tuple(value.shape)) if isinstance(value, Tensor) else str(value)
            names = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.name)
            found.append((node.name, node.target, str(names), described, node.meta.get("stack_trace")))
    return found


def check_form(program: Program) -> None:
    """Positional arguments by position, the others by name, and no default at the end."""
    for node in program.graph.nodes:
        if isinstance(node.target, OpOverload):
            arguments = operator_schema(node.target).arguments
            positional = [each for each in arguments if not each.kwarg_only]
            assert len(node.args) <= len(positional), node.format_node()
            assert set(node.kwargs) <= {each.name for each in arguments if each.kwarg_only}, node.format_node()
            last = positional[len(node.args) - 1] if node.args else None
            if last is not None and last.has_default_value() and not isinstance(node.args[-1], torch.fx.Node):
                same_type = type(node.args[-1]) is type(last.default_value)
                assert not (same_type and node.args[-1] == last.default_value), node.format_node()


def check(program: Program) -> Program:
    """The program after canonicalization; however its calls are written, the result is the same."""
    first, second = canonicalize(program), canonicalize(written_out(program))
    check_form(first)
    assert calls(first) == calls(second)
    return first


# Each 25th operator of the database that takes float32 and has one form of input, without those whose results differ
# from call to call, those whose Python code keeps something from call to call, and those for GPUs.
LEFT_OUT = ("empty_strided", "randint", "uniform")
SLICE = [op for op in op_db if torch.float32 in op.dtypes and not op.variant_test_name][::25]
SLICE = [op for op in SLICE if op.name not in LEFT_OUT and not op.name.startswith("jiterator")]


@pytest.mark.parametrize("op", SLICE, ids=lambda op: op.name)
def test_normalize_operator_exhaustive(op: OpInfo) -> None:
    sample = next(iter(op.sample_inputs("cpu", torch.float32)))
    leaves, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def function(*given: Tensor) -> Any:
        rest = iter(given)
        filled = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        first, args, kwargs = torch.utils._pytree.tree_unflatten(filled, spec)
        return op.op(first, *args, **kwargs)

    program = aot_export(function, tuple(tensors))
    after = check(program)
    assert program.reference is not None
    for actual, expected in zip(after.runnable()(*tensors), program.reference.outputs, strict=True):
        assert_close(actual, expected)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.table = nn.EmbeddingBag(10, 4, mode="sum")
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        y = nn.functional.adaptive_avg_pool2d(self.bn(self.conv(x)), 1).flatten(start_dim=1)
        y = torch.add(other=self.table(ids), input=self.linear(y), alpha=2)
        return torch.sum(input=nn.functional.gelu(y, approximate="tanh"), dim=-1, keepdim=True)


@pytest.fixture(scope="module")
def program() -> Program:
    return aot_export(Model().eval(), (torch.randn(2, 3, 4, 4), torch.randint(0, 10, (2, 5))))


def test_normalize_args(program: Program) -> None:
    """Arguments of functions and of modules."""
    after = check(program)
    (add,) = (node for node in after.graph.nodes if node.target is aten.add.Tensor)
    assert (len(add.args), add.kwargs) == (2, {"alpha": 2})
    (total,) = (node for node in after.graph.nodes if node.target is aten.sum.dim_IntList)
    assert total.args[1:] == ([-1], True)
    (result,) = after.runnable()(torch.ones(2, 3, 4, 4), torch.zeros(2, 5, dtype=torch.long))
    (expected,) = program.runnable()(torch.ones(2, 3, 4, 4), torch.zeros(2, 5, dtype=torch.long))
    assert_close(result, expected)


def test_normalize_args_preserve_meta(program: Program) -> None:
    """What nodes carry stays: values, modules, lines."""
    after = canonicalize(written_out(program))
    kept = {node.name: node for node in after.graph.nodes}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.name in kept:
            assert kept[node.name].meta.keys() == node.meta.keys()
            assert kept[node.name].meta.get("nn_module_stack") == node.meta.get("nn_module_stack")
            assert kept[node.name].meta.get("val") is node.meta.get("val")


def test_normalize_args_perserve_type(program: Program) -> None:
    """Numbers and lists keep their types: True is not 1, and 1 is not 1.0."""
    for first, second in zip(calls(canonicalize(program)), calls(canonicalize(written_out(program))), strict=True):
        assert first[2] == second[2]
    after = canonicalize(aot_export(lambda x: torch.add(x, 1, alpha=2.0) + True, (torch.randn(3),)))
    adds = [node for node in after.graph.nodes if node.target is aten.add.Tensor]
    assert [type(node.args[1]) for node in adds] == [int, bool]


def test_normalize_modules_exhaustive() -> None:
    """Modules with all of their options: the call of each has its arguments in one form."""
    modules: list[tuple[nn.Module, tuple[int, ...]]] = [
        (nn.Conv1d(2, 4, 3, stride=2, padding=1, dilation=1, groups=2, bias=False, padding_mode="circular"), (1, 2, 8)),
        (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (1, 2, 4, 4)),
        (nn.MaxPool2d(2, stride=1, padding=1, ceil_mode=True), (1, 2, 5, 5)),
        (nn.AvgPool2d(3, count_include_pad=False), (1, 2, 6, 6)),
        (nn.LayerNorm(4, eps=1e-3, elementwise_affine=False), (2, 4)),
        (nn.GroupNorm(2, 4, affine=False), (1, 4, 3)),
        (nn.LeakyReLU(0.2), (3,)),
        (nn.Hardtanh(-2, 2), (3,)),
        (nn.Softmax(dim=-1), (2, 3)),
        (nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), (1, 2, 3, 3)),
        (nn.PixelShuffle(2), (1, 4, 2, 2)),
        (nn.Unfold(2, stride=2), (1, 2, 4, 4)),
    ]
    for module, shape in modules:
        x = torch.randn(shape)
        after = check(aot_export(module.eval(), (x,)))
        with torch.no_grad():
            assert_close(after.runnable()(x)[0], module(x))


def node_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.fx.Node:
    return torch.fx.Graph().call_function(target, args, kwargs)


def test_normalize_quantized_eb() -> None:
    """All arguments of a quantized operator by the names of its schema."""
    target = torch.ops.quantized.embedding_bag_byte_rowwise_offsets.default
    found = bound_arguments(node_of(target, ("weight", "indices"), {"offsets": "offsets"}))
    assert list(found) == [
        "weight",
        "indices",
        "offsets",
        "scale_grad_by_freq",
        "mode",
        "pruned_weights",
        "per_sample_weights",
        "compressed_indices_mapping",
        "include_last_offset",
    ]
    assert (found["offsets"], found["mode"], found["include_last_offset"]) == ("offsets", 0, False)


def test_normalize_args_op_overload() -> None:
    """An overload that is called by name, with arguments out of order."""
    found = bound_arguments(node_of(aten.resize_as_.default, ("x",), {"memory_format": None, "the_template": "y"}))
    assert found == {"self": "x", "the_template": "y", "memory_format": None}

    def function(x: Tensor, y: Tensor) -> Tensor:
        return aten.addmm.default(beta=2, mat2=y, mat1=x, self=y)

    after = check(aot_export(function, (torch.randn(3, 3), torch.randn(3, 3))))
    (call,) = (node for node in after.graph.nodes if node.target is aten.addmm.default)
    assert [str(argument) for argument in call.args] == ["y", "x", "y"]
    assert call.kwargs == {"beta": 2}
