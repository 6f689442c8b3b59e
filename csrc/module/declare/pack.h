// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
// A linear's weight [n, k], of any strides and elements of up to 8 bytes, packed: [ceil(n / 32), k, 32].
void aoti_torch_cpu_pack_linear(AotpackTensor weight, AotpackTensor* ret0);
// A convolution's weight: [groups, ceil(oc / groups / 32), taps, c / groups, 32]; [taps, c] for depthwise.
void aoti_torch_cpu_pack_conv(AotpackTensor weight, int64_t groups, int32_t transposed, AotpackTensor* ret0);
// clang-format on
