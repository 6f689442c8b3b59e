// Linear with a weight of 4 or 8 bits.
#include "kernels/quantized_linear.h"

#include "declare/quantized_linear.h"
#include "ops/common.h"
#include "ops/strided_rows.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

// Whether bounds[0 .. groups] rise from 0 to k.
bool rises(const int32_t* bounds, int64_t groups, int64_t k) {
  for (int64_t g = 0; g < groups; ++g) {
    if (bounds[g] > bounds[g + 1]) return false;
  }
  return bounds[0] == 0 && bounds[groups] == k;
}

}  // namespace

void aoti_torch_cpu_quantized_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor scale, AotpackTensor* offset,
                                     AotpackTensor* bounds, AotpackTensor* bias, AotpackTensor* residual,
                                     int64_t out_features, int64_t group, int64_t act, AotpackTensor* ret0) {
  Call& call = Call::current();
  kernels::QuantizedLinearArgs args{};
  args.dtype = kernel_dtype(x, "quantized_linear");
  const int64_t k = x->sizes[x->rank - 1], panels = kernels::ceil_div(out_features, kernels::kPanel);
  const Tensor* added_to = optional(offset);
  const bool four = weight->sizes[2] * 2 == kernels::kPanel;
  const Tensor* unequal = optional(bounds);
  const int64_t groups = unequal != nullptr ? unequal->numel() - 1 : group > 0 ? kernels::ceil_div(k, group) : -1;
  const bool scales = scale->sizes[0] == panels && groups >= 0 && scale->sizes[1] == groups;
  if (weight->sizes[0] != panels || weight->sizes[1] != k || !scales ||
      (added_to != nullptr && added_to->numel() != scale->numel())) {
    throw_invalid("quantized_linear: constants of other sizes");
  }
  args.bounds = unequal == nullptr ? nullptr : reinterpret_cast<const int32_t*>(unequal->data);
  args.bounded = groups;
  if (unequal != nullptr && !rises(args.bounds, groups, k)) {
    throw_invalid("quantized_linear: groups do not follow one another from the first row to the last");
  }
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t rows = 1;
  for (int32_t d = 0; d + 1 < x->rank; ++d) rows *= sizes[d] = x->sizes[d];
  sizes[x->rank - 1] = out_features;
  Tensor* added = optional(residual);
  const StridedRows source(x, k), added_rows(added, out_features);
  Owned y(call.empty_contiguous(x->rank, sizes, x->dtype));
  Owned bias_owned(optional(bias) == nullptr ? nullptr : contiguous(optional(bias)));
  Trace trace("quantized_linear");
  trace.tensor("x", x, source.get());
  trace.in_place("weight", weight);
  trace.tensor("bias", optional(bias), bias_owned.get());
  trace.tensor("residual", added, added_rows.get());
  args.m = rows;
  args.n = out_features;
  args.k = k;
  args.x = source.data();
  args.x_stride = source.stride();
  args.bits = four ? 4 : 8;
  args.group = group;
  args.w_packed = weight->data;
  args.scale = reinterpret_cast<const float*>(scale->data);
  args.offset = added_to == nullptr ? nullptr : reinterpret_cast<const float*>(added_to->data);
  args.bias = bias_owned.get() == nullptr ? nullptr : bias_owned->data;
  args.residual = added_rows.data();
  args.residual_stride = added_rows.stride();
  args.act = static_cast<kernels::Act>(act);
  args.y = y->data;
  args.y_stride = out_features;
  args.num_threads = call.num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::quantized_linear_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::quantized_linear(args);
  *ret0 = y.release();
}
