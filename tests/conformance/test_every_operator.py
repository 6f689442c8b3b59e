"""No operator is forgotten: whatever torch computes on a CPU is decomposed, lowered has a C function or stands here.

The database (op_db) does not have all operators that models reach. A new version of torch fails this test with the
names of those that it brought.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.torch

# Tensors that archives do not have, by what a name has in it.
_OTHER_TENSORS = ("sparse", "coalesce", "nested", "quantize", "mkldnn", "_spdiags", "hspmm", "padded", "int_repr")
_OTHER_TENSORS += (
    "_csr",
    "_csc",
    "_bsr",
    "_bsc",
    "fbgemm",
    "ccol_indices",
    "crow_indices",
    "col_indices",
    "row_indices",
)
_OTHER_TENSORS += ("_to_dense", "values", "q_per_channel")

_WHY = {
    "captured otherwise: a override or another operator comes in its place": (
        "_cholesky_solve_helper _ctc_loss _ctc_loss_backward _logcumsumexp linalg_lstsq randint_like random "
        "upsample_bicubic2d upsample_bilinear2d multi_margin_loss_backward multilabel_margin_loss_backward"
    ),
    "called by other operators' implementations alone": (
        "_compute_linear_combination _efficientzerotensor _fw_primal _fw_primal_copy _grid_sampler_2d_cpu_fallback "
        "_grid_sampler_2d_cpu_fallback_backward _index_put_impl _lazy_clone _make_dual _make_dual_copy "
        "_new_zeros_with_same_feature_meta _nnpack_spatial_convolution _pin_memory _reshape_copy _resize_output "
        "_slow_conv2d_backward _slow_conv2d_forward _stack batch_norm_update_stats "
        "convolution_backward_overrideable convolution_overrideable linalg__powsum native_norm set slice_inverse "
        "slow_conv3d_forward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d "
        "_scaled_dot_product_fused_attention_overrideable _scaled_dot_product_fused_attention_overrideable_backward "
        "_transform_bias_rescale_qkv linear_backward matmul_backward _make_dep_token"
    ),
    "torch's fast path, which a trace does not take": "_native_multi_head_attention _transformer_encoder_layer_fwd",
    "checks of sizes, which the trace takes in": (
        "_functional_assert_scalar _functional_sym_constrain_range _functional_sym_constrain_range_for_size"
    ),
    "steps of optimizers, which forward and joint captures do not have": (
        "_amp_foreach_non_finite_check_and_unscale _amp_update_scale _fused_adagrad _fused_adam _fused_adamw _fused_sgd"
    ),
    "made arithmetic by the pass lower-packed-weights": (
        "_dyn_quant_matmul_4bit _dyn_quant_pack_4bit_weight _convert_weight_to_int4pack_for_cpu"
    ),
    "of sparse tensors": "indices _indices indices_copy _indices_copy",
    "refused (docs/operators.md)": (
        "from_file hash_tensor _pack_padded_sequence _philox_normal _philox_uniform quantized_gru quantized_lstm "
        "_foreach_addcdiv _foreach_addcmul"
    ),
}
_KNOWN = {name for names in _WHY.values() for name in names.split()}


def _operators() -> Iterator[Any]:
    """Those that neither write nor are made of others, with an implementation for a CPU."""
    names = {name.removeprefix("aten::").partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    for name in sorted(name for name in names if not name.startswith("_test_")):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            operator = getattr(packet, overload)
            schema = operator._schema
            keys = torch._C._dispatch_dump(operator.name())
            if schema.is_mutable or any(argument.is_out for argument in schema.arguments):
                continue
            # torch.export does not capture named tensors.
            if any("Dimname" in str(argument.type) for argument in schema.arguments):
                continue
            if "CompositeImplicitAutograd[alias]" in keys or not ("CPU:" in keys or "CompositeExplicit" in keys):
                continue
            if any(result.type.kind() in ("TensorType", "ListType") for result in schema.returns):
                yield operator


def test_no_operator_is_forgotten() -> None:
    from torch._inductor import compile_fx, lowering
    from torch._inductor.codegen.common import pointwise_overrides_data

    from aotpack.export import decompositions
    from aotpack.export.backends.cpu.lower import supported_shims
    from aotpack.export.torch_compat.inductor.fallbacks import key

    with decompositions.our_decompositions():
        table = compile_fx.select_decomp_table()  # type: ignore[attr-defined]
    functions = {key(name) for name in supported_shims()}
    inlined = {name.removeprefix("special_") for name, data in pointwise_overrides_data.items() if data.cpp}
    forgotten, met = set(), set()
    for operator in _operators():
        name = operator._schema.name.removeprefix("aten::")
        lowered = operator in table or (operator in lowering.lowerings and operator not in lowering.fallbacks)
        if (
            lowered
            or name.removeprefix("special_") in inlined
            or key(str(operator)) in functions
            or key(f"aten.{name}") in functions
        ):
            continue
        if name in _KNOWN:
            met.add(name)
        elif not any(part in name for part in _OTHER_TENSORS):
            forgotten.add(str(operator))
    assert not forgotten, f"no kernel, no decomposition, and not said why: {sorted(forgotten)}"
    assert {"hash_tensor", "_pin_memory"} <= met, "the list of operators was not read"
