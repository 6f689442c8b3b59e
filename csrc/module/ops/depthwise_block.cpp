// Depthwise convolutions together with the pointwise ones around them.
#include "declare/depthwise_block.h"

#include "kernels/depthwise_block.h"
#include "ops/channels_last.h"
#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

const void* data(const Tensor* tensor) { return tensor == nullptr ? nullptr : tensor->data; }

Tensor* dense(const Tensor* tensor) { return tensor == nullptr ? nullptr : contiguous(tensor); }

}  // namespace

void aoti_torch_cpu_depthwise_block(AotpackTensor x, AotpackTensor* expand_weight, AotpackTensor* expand_bias,
                                    AotpackTensor weight, AotpackTensor* bias, AotpackTensor* project_weight,
                                    AotpackTensor* project_bias, AotpackTensor* residual, int64_t out_channels,
                                    const int64_t* kernel, int64_t rank, const int64_t* stride, int64_t,
                                    const int64_t* padding, int64_t paddings, const int64_t* dilation, int64_t,
                                    const int64_t* acts, int64_t, AotpackTensor* ret0) {
  Call& call = Call::current();
  if (x->rank != 4 || rank != 2) throw_invalid("depthwise_block of a tensor of rank " + std::to_string(x->rank));
  kernels::DepthwiseBlockArgs args{};
  args.dtype = kernel_dtype(x, "depthwise_block");
  args.n = x->sizes[0];
  args.c = x->sizes[1];
  args.channels = weight->sizes[1];
  args.oc = out_channels;
  int64_t sizes[4] = {args.n, args.oc}, strides[4];
  for (int d = 0; d < 2; ++d) {
    args.in[d] = x->sizes[2 + d];
    args.kernel[d] = kernel[d];
    args.stride[d] = stride[d];
    args.padding[d] = padding[d];
    args.dilation[d] = dilation[d];
    const int64_t after = padding[paddings == 4 ? 2 + d : d];
    const int64_t room = args.in[d] + padding[d] + after - dilation[d] * (kernel[d] - 1) - 1;
    if (room < 0) throw_invalid("convolution: the kernel is larger than the padded input");
    args.out[d] = sizes[2 + d] = room / stride[d] + 1;
  }
  channels_last_strides(4, sizes, strides);
  Owned y(call.empty(4, sizes, strides, x->dtype));
  Tensor* const other = optional(residual);
  const Pixels source(x);
  Owned added(other == nullptr ? nullptr : channels_last(other));
  Owned bias1(dense(optional(expand_bias))), bias2(dense(optional(bias))), bias3(dense(optional(project_bias)));
  Trace trace("depthwise_block");
  trace.tensor("x", x, source.get());
  trace.in_place("weight", weight);
  trace.tensor("residual", other, added.get());
  args.x = source.data();
  args.x_pixel = source.step();
  args.expand = {data(optional(expand_weight)), data(bias1.get()), static_cast<kernels::Act>(acts[0])};
  args.depthwise = {weight->data, data(bias2.get()), static_cast<kernels::Act>(acts[1])};
  args.project = {data(optional(project_weight)), data(bias3.get()), static_cast<kernels::Act>(acts[2])};
  args.residual = data(added.get());
  args.y = y->data;
  args.num_threads = call.num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::depthwise_block_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::depthwise_block(args);
  *ret0 = y.release();
}
