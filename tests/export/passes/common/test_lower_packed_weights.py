"""The pass that makes arithmetic of products with weights that torch packed."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from aotpack.export import aot_export, ops
from aotpack.export.ir.program import Program
from aotpack.export.passes.common.lower_packed_weights import lower_packed_weights
from aotpack.export.passes.common.pipeline import COMMON
from aotpack.export.passes.cpu.use_quantized_weight import use_quantized_weight
from aotpack.export.passes.runner import run_passes
from aotpack.export.torch_compat import int4_packing
from tests.export.packed_weights import DynamicInt4Linear, Int4Linear
from tests.export.pass_checks import count

aten = torch.ops.aten

PACKED = (
    aten._convert_weight_to_int4pack_for_cpu.default,
    aten._weight_int4pack_mm_for_cpu.default,
    aten._dyn_quant_pack_4bit_weight.default,
    aten._dyn_quant_matmul_4bit.default,
)
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def _check(model: nn.Module, *inputs: Tensor, dynamic: bool = False, linears: int = 1) -> Program:
    """The graph behind the passes answers as eager does."""
    shapes = ({0: torch.export.Dim.DYNAMIC},) if dynamic else None
    before = aot_export(model, (inputs[0],), dynamic_shapes=shapes)
    assert count(before, *PACKED) > 0
    lowered = lower_packed_weights(before)
    assert count(lowered, *PACKED) == 0
    after = run_passes(before, (*COMMON, use_quantized_weight))
    assert count(after, ops.quantized_linear) == linears
    for x, program in itertools.product(inputs, (lowered, after)):
        with torch.no_grad():
            expected, (found,) = model(x), program.runnable()(x)
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        greatest = expected.abs().max().double() if expected.numel() else 0
        torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCES[x.dtype] * float(greatest))
    return after


@pytest.mark.parametrize("n", [32, 48, 64, 80, 96, 112, 192, 240])
@pytest.mark.parametrize("group", [32, 64, 128, 256])
def test_products_with_packed_int4_weights(n: int, group: int) -> None:
    model = Int4Linear(n, 768, group, torch.float32)
    after = _check(model, torch.randn(3, 768), torch.randn(1, 768), torch.randn(9, 768), dynamic=True)
    (node,) = (node for node in after.graph.nodes if node.target is ops.quantized_linear)
    assert node.args[1].meta["val"].shape == (-(-n // 32), 768, 16)
    assert node.args[2].meta["val"].shape[1] == 768 // group


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [(1,), (5,), (1, 1), (2, 3)])
def test_activations_of_any_dtype_and_rank(dtype: torch.dtype, sizes: tuple[int, ...]) -> None:
    _check(Int4Linear(112, 512, 32, dtype), torch.randn(*sizes, 512).to(dtype))


def test_weights_that_are_packed_in_the_graph() -> None:
    # The floats are not larger than the constant, int32.
    _check(Int4Linear(112, 512, 32, torch.float32, packs=True), torch.randn(3, 512), linears=0)
    _check(DynamicInt4Linear(40, 512, 32, bias=True, packs=True), torch.randn(3, 512))


def test_weights_that_are_no_constants() -> None:
    model = Int4Linear(112, 64, 32, torch.float32)

    def product(x: Tensor, weight: Tensor, scales_and_zeros: Tensor) -> Tensor:
        y: Tensor = aten._weight_int4pack_mm_for_cpu(x, weight, 32, scales_and_zeros)
        return y

    arguments = (torch.randn(3, 64), model.weight, model.scales_and_zeros)
    lowered = lower_packed_weights(aot_export(product, arguments))
    assert count(lowered, *PACKED) == 0
    (found,) = lowered.runnable()(*arguments)
    torch.testing.assert_close(found, product(*arguments), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", [32, 64, 512])
@pytest.mark.parametrize("bias", [False, True])
def test_products_that_quantize_activations(group: int, bias: bool) -> None:
    x = torch.randn(4, 512)
    others = torch.stack([x[0].abs(), -x[1].abs(), torch.zeros(512), torch.ones(512), x[2] * 1e-3, x[3] + 2])
    _check(DynamicInt4Linear(40, 512, group, bias=bias), x, others, x[:1], dynamic=True)


@pytest.mark.parametrize("bias", [False, True])
def test_bfloat16_activations_are_quantized(bias: bool) -> None:
    packed = DynamicInt4Linear(40, 512, 512, bias=bias)
    try:
        packed(torch.randn(4, 512).bfloat16())
    except RuntimeError:
        pytest.skip("this torch quantizes none of bfloat16")
    _check(packed, torch.randn(4, 512).bfloat16())


def test_what_torch_packs_is_read_back() -> None:
    """Fails where torch packs in a way that is not known."""
    for n in range(16, 288, 16):
        layout = int4_packing.packing_of(n)
        assert layout is not None
        numbers = torch.randint(0, 16, (n, 6), dtype=torch.int32)
        packed = aten._convert_weight_to_int4pack_for_cpu(numbers, 1)
        call = int4_packing._apply
        assert torch.equal(int4_packing.unpack(call, packed, n, 6, layout).int(), numbers)
        assert torch.equal(int4_packing.pack(call, numbers, n, 6, layout), packed)
