// Linear with a packed weight.
#include "kernels/linear.h"

#include "declare/linear.h"
#include "ops/common.h"
#include "ops/strided_rows.h"
#include "tensor.h"
#include "trace.h"
#include "tuned.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

void aoti_torch_cpu_packed_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual,
                                  int64_t out_features, int64_t act, AotpackTensor* ret0) {
  Call& call = Call::current();
  kernels::LinearArgs args{};
  args.dtype = kernel_dtype(x, "linear");
  const int64_t k = x->sizes[x->rank - 1];
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t rows = 1;
  for (int32_t d = 0; d + 1 < x->rank; ++d) rows *= sizes[d] = x->sizes[d];
  sizes[x->rank - 1] = out_features;
  Tensor* added = optional(residual);
  const StridedRows source(x, k), added_rows(added, out_features);
  Owned y(call.empty_contiguous(x->rank, sizes, x->dtype, replaceable(added, x)));
  Owned bias_owned(optional(bias) == nullptr ? nullptr : contiguous(optional(bias)));
  Trace trace("packed_linear");
  trace.tensor("x", x, source.get());
  trace.in_place("weight", weight);
  trace.tensor("bias", optional(bias), bias_owned.get());
  trace.tensor("residual", added, added_rows.get());
  args.m = rows;
  args.n = out_features;
  args.k = k;
  args.x = source.data();
  args.x_stride = source.stride();
  args.w_packed = weight->data;
  args.bias = bias_owned.get() == nullptr ? nullptr : bias_owned->data;
  args.residual = added_rows.data();
  args.residual_stride = added_rows.stride();
  args.act = static_cast<kernels::Act>(act);
  args.y = y->data;
  args.y_stride = out_features;
  args.num_threads = call.num_threads();
  const TunedCall tuned("linear",
                        {static_cast<int64_t>(args.dtype), args.m, args.n, args.k, args.x_stride == args.k, act,
                         args.residual != nullptr},
                        [&] { return kernels::linear_knobs(args); });
  args.knobs = tuned.knobs();
  kernels::linear(args);
  *ret0 = y.release();
}
