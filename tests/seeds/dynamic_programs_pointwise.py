"""Operator programs: pointwise arithmetic, comparisons, activations, broadcasting, mixed dtypes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.seeds.dynamic_template import bools, floats, ints, positive, program

POINTWISE = (
    program("add_scaled", lambda x, y: torch.add(x, y, alpha=0.5), "b n", "b n"),
    program("sub_reversed", lambda x: 3 - x * 2, "b n"),
    program("mul_broadcast", lambda x, y: x * y, "b n k", "n 1"),
    program("div_rounded", lambda x, y: torch.div(x, y, rounding_mode="floor"), "b n", positive("b n", 0.5, 3.0)),
    program("remainder", lambda x: torch.remainder(x, 0.7), positive("n", 0.0, 0.6)),
    program("fmod_ints", lambda x, y: torch.fmod(x, y), ints("b n", 50, low=-50), ints("b n", 9, low=1)),
    program("floor_divide_ints", lambda x, y: x // y, ints("b n", 50, low=-50), ints("n", 9, low=1)),
    program("pow_scalar", lambda x: x**3 + x**0.5, positive("b n")),
    program("pow_tensor", torch.pow, positive("b n"), "b n"),
    program("exp_log", lambda x: (x.exp() + 1).log() + x.expm1().log1p(), positive("b n k")),
    program("rsqrt_reciprocal", lambda x: x.rsqrt() + x.reciprocal() + x.sqrt(), positive("b n")),
    program("trigonometry", lambda x: x.sin() * x.cos() + x.tan(), positive("b n", -1.0, 1.0)),
    program("inverse_trigonometry", lambda x: x.asin() + x.acos() + x.atan(), positive("b n", -0.9, 0.9)),
    program("hyperbolic", lambda x: x.sinh() + x.cosh() + x.tanh() + x.asinh(), "b n"),
    program("atan2", torch.atan2, "b n", "b 1"),
    program("erf", lambda x: x.erf() + x.erfc(), "b n"),
    program("special_functions", lambda x: x.lgamma() + x.digamma(), positive("n", 0.5, 4.0)),
    program("rounding", lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.frac()), "b n"),
    program("sign_abs", lambda x: (x.sign() * x.abs(), x.neg(), x.sgn()), "b n"),
    program("clamp", lambda x, low: x.clamp(min=low).clamp(max=0.5), "b n", "n"),
    program("minimum_maximum", lambda x, y: (torch.minimum(x, y), torch.fmax(x, y)), "b n", "b n"),
    program("where", lambda c, x, y: torch.where(c, x, y), bools("b n"), "b n", "n"),
    program("where_scalar", lambda x: torch.where(x > 0, x, 0.0), "b n"),
    program("masked_fill", lambda x, m: x.masked_fill(m, float("-inf")), "b n", bools("1 n")),
    program("comparisons", lambda x, y: (x < y, x >= y, x == y, x != 0), "b n", "b 1"),
    program("logical", lambda a, b: (a & b, a | ~b, a ^ b, torch.logical_not(a)), bools("b n"), bools("n")),
    program("bitwise", lambda a, b: (a & b, a << 2, a >> 1, ~a), ints("b n"), ints("b n")),
    program("isfinite", lambda x: ((1 / (x - x)).isfinite(), (x / 0).isinf(), x.isnan()), "b n"),
    program("lerp", lambda x, y, w: torch.lerp(x, y, w), "b n", "b n", positive("n", 0.0, 1.0)),
    program("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=2.0), "b n", "n", "b 1"),
    program("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z), "b n", "b n", positive("b n")),
    program("hypot", torch.hypot, "b n", "b n"),
    program("nan_to_num", lambda x: (x / x.abs().floor()).nan_to_num(0.5, 7.0, -7.0), "b n"),
    program("relu_family", lambda x: (F.relu(x), F.leaky_relu(x, 0.1), F.relu6(x), F.elu(x)), "b n"),
    program("smooth_activations", lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x)), "b n"),
    program("hard_activations", lambda x: (F.hardtanh(x), F.hardswish(x), F.hardsigmoid(x), F.softsign(x)), "b n"),
    program("soft_activations", lambda x: (F.softplus(x), F.logsigmoid(x), F.tanhshrink(x), F.selu(x)), "b n"),
    program("prelu", lambda x, w: F.prelu(x, w), "b c n", "c"),
    program("glu", lambda x: F.glu(x, dim=-1), "b 2*n"),
    program("copysign", torch.copysign, "b n", "n"),
    program("logaddexp", torch.logaddexp, "b n", "n"),
    program("heaviside", torch.heaviside, "b n", "n"),
    program("polynomial", lambda x: torch.stack([x**i for i in range(4)]).sum(0), "b n"),
    program("inplace_chain", lambda x: x.clone().add_(1).mul_(2).relu_().sub_(0.5), "b n"),
)

DTYPES = (
    program("int_plus_float", lambda x, y: x + y, ints("b n"), "b n"),
    program("bool_times_float", lambda m, x: m * x, bools("b n"), "b n"),
    program("int_true_division", lambda x, y: x / y, ints("b n"), ints("n", 9, low=1)),
    program("small_ints_wrap", lambda x: x + 100, ints("b n", 120, dtype=torch.int8)),
    program("uint8_to_float", lambda x: x.float() / 255, ints("b h w", 256, dtype=torch.uint8)),
    program("float_to_int", lambda x: (x * 10).to(torch.int32), positive("b n", 0.01, 0.99)),
    program("double_accumulate", lambda x: x.double().sum(-1).float(), "b n"),
    program("bfloat16_chain", lambda x: (x * 2 + 1).relu(), floats("b n", torch.bfloat16), tolerance=2e-2),
    program("bfloat16_sum", lambda x: x.sum(-1), floats("b n", torch.bfloat16), tolerance=2e-2),
    program(
        "float16_scale", lambda x, y: x * y, floats("b n", torch.float16), floats("n", torch.float16), tolerance=2e-3
    ),
    program(
        "half_matmul", lambda x, y: x @ y, floats("n k", torch.bfloat16), floats("k m", torch.bfloat16), tolerance=3e-2
    ),
    program("int32_arithmetic", lambda x, y: x * y - 3, ints("b n", dtype=torch.int32), ints("b n", dtype=torch.int32)),
    program("type_as", lambda x, y: x.type_as(y) + y, ints("n"), "n"),
    program("bool_count", lambda x: (x > 0).sum(), "b n"),
    program("mixed_cat", lambda x, y: torch.cat([x, y]), ints("n"), "k"),
    program("mixed_where", lambda m, x: torch.where(m, x, 1.5), bools("n"), ints("n")),
)
