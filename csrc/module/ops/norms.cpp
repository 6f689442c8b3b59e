// Normalizes rows.
#include "declare/norms.h"

#include "kernels/layer_norm.h"
#include "ops/common.h"
#include "ops/strided_rows.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;

void aoti_torch_cpu_layer_norm(AotpackTensor x, AotpackTensor* weight, AotpackTensor* bias, double eps,
                               AotpackTensor* ret0) {
  Call& call = Call::current();
  if (x->rank < 1) throw_invalid("layer_norm: a scalar has no rows");
  const int64_t k = x->sizes[x->rank - 1];
  for (const AotpackTensor each : {optional(weight), optional(bias)}) {
    const bool fits = each == nullptr || (each->rank == 1 && each->sizes[0] == k && each->dtype == x->dtype);
    if (!fits) throw_invalid("layer_norm: weight and bias must have an element for each of a row, of its dtype");
  }
  Trace trace("layer_norm");
  const StridedRows rows(x, k);
  const Owned scale(optional(weight) == nullptr ? nullptr : contiguous(optional(weight)));
  const Owned shift(optional(bias) == nullptr ? nullptr : contiguous(optional(bias)));
  trace.tensor("x", x, rows.get());
  trace.tensor("weight", optional(weight), scale.get());
  trace.tensor("bias", optional(bias), shift.get());
  Owned y(call.empty_contiguous(x->rank, x->sizes, x->dtype));
  int64_t count = 1;
  for (int32_t d = 0; d + 1 < x->rank; ++d) count *= x->sizes[d];
  aotpack::kernels::layer_norm({kernel_dtype(x, "layer_norm"), count, k, rows.data(), rows.stride(),
                                scale.get() == nullptr ? nullptr : scale->data,
                                shift.get() == nullptr ? nullptr : shift->data, static_cast<float>(eps), y->data,
                                call.num_threads()});
  *ret0 = y.release();
}
