// Packing of weights at run time.
#include "ops/pack.h"

#include "declare/pack.h"
#include "kernels/conv_layout.h"
#include "kernels/pack_weight.h"
#include "kernels/transpose_copy.h"
#include "tensor.h"
#include "trace.h"

namespace kernels = aotpack::kernels;

namespace aotpack::module {
namespace {

void require_packable(const Tensor* weight, const char* op) {
  const int64_t size = element_size(weight->dtype);
  if (size > 8) throw_invalid(std::string(op) + " does not support " + dtype_name(weight->dtype));
}

// Sizes and strides of up to three kernel dims, depth first; those that are missing count 1.
struct Kernel {
  int64_t sizes[3] = {1, 1, 1}, strides[3] = {0, 0, 0};
  int64_t taps() const { return sizes[0] * sizes[1] * sizes[2]; }
};
Kernel kernel_of(const Tensor* weight) {
  Kernel k;
  for (int32_t d = 2; d < weight->rank; ++d) {
    k.sizes[3 - weight->rank + d] = weight->sizes[d];
    k.strides[3 - weight->rank + d] = weight->strides[d];
  }
  return k;
}

// A convolution's channels per group and where its packed weight goes.
struct Channels {
  int64_t inputs, outputs;
  kernels::ConvLayout layout;
};
Channels channels_of(const Tensor* weight, int64_t groups, bool transposed) {
  const int64_t first = weight->sizes[0] / groups, second = weight->sizes[1];
  const int64_t inputs = transposed ? first : second, outputs = transposed ? second : first;
  return {inputs, outputs, kernels::conv_layout(groups, inputs, outputs, transposed)};
}

}  // namespace

int64_t PackedConv::numel() const {
  int64_t n = 1;
  for (int32_t d = 0; d < rank; ++d) n *= sizes[d];
  return n;
}

PackedConv packed_conv_sizes(const Tensor* weight, int64_t groups, bool transposed, const char* op) {
  if (weight->rank < 3 || weight->rank > 5) {
    throw_invalid(std::string(op) + ": the weight has rank " + std::to_string(weight->rank) + ", not 3 to 5");
  }
  if (groups < 1 || weight->sizes[0] % groups != 0) {
    throw_invalid(std::string(op) + ": " + std::to_string(weight->sizes[0]) + " channels are not divisible into " +
                  std::to_string(groups) + " groups");
  }
  require_packable(weight, op);
  const int64_t taps = kernel_of(weight).taps();
  const auto [inputs, outputs, layout] = channels_of(weight, groups, transposed);
  switch (layout) {
    case kernels::ConvLayout::depthwise:
      return {2, {taps, groups}};
    case kernels::ConvLayout::grouped:
      return {4, {kernels::ceil_div(weight->sizes[0], kernels::kPanel), taps, inputs, kernels::kPanel}};
    case kernels::ConvLayout::panels:
      break;
  }
  return {5, {groups, kernels::ceil_div(outputs, kernels::kPanel), taps, inputs, kernels::kPanel}};
}

void pack_conv(const Tensor* weight, int64_t groups, bool transposed, void* packed) {
  const Kernel k = kernel_of(weight);
  const int64_t size = element_size(weight->dtype), *strides = weight->strides;
  const int threads = Call::current().num_threads();
  const auto [inputs, outputs, layout] = channels_of(weight, groups, transposed);
  if (layout == kernels::ConvLayout::depthwise) {
    const int64_t sizes[4] = {k.sizes[0], k.sizes[1], k.sizes[2], groups};
    const int64_t from[4] = {k.strides[0], k.strides[1], k.strides[2], strides[0]};
    kernels::transpose_copy(packed, weight->data, 4, sizes, from, size, threads);
    return;
  }
  kernels::PackWeightArgs args{};
  args.elem_size = size;
  // A grouped layout is that of a weight with all outputs in one group.
  const bool grouped = layout == kernels::ConvLayout::grouped;
  args.groups = grouped ? 1 : groups;
  args.outputs = grouped ? weight->sizes[0] : outputs;
  args.inputs = inputs;
  args.output_stride = strides[transposed ? 1 : 0];
  args.input_stride = strides[transposed ? 0 : 1];
  args.group_stride = weight->sizes[0] / groups * strides[0];
  for (int d = 0; d < 3; ++d) {
    args.kernel[d] = k.sizes[d];
    args.kernel_strides[d] = k.strides[d];
  }
  args.w = weight->data;
  args.packed = packed;
  args.num_threads = threads;
  kernels::pack_weight(args);
}

}  // namespace aotpack::module

using namespace aotpack::module;

void aoti_torch_cpu_pack_linear(AotpackTensor weight, AotpackTensor* ret0) {
  Trace trace("pack_linear");
  trace.moved("weight", weight);
  if (weight->rank != 2) {
    throw_invalid("pack_linear: the weight has rank " + std::to_string(weight->rank) + ", not 2");
  }
  require_packable(weight, "pack_linear");
  Call& call = Call::current();
  const int64_t n = weight->sizes[0], k = weight->sizes[1];
  const int64_t sizes[3] = {kernels::ceil_div(n, kernels::kPanel), k, kernels::kPanel};
  Owned packed(call.empty_contiguous(3, sizes, weight->dtype));
  kernels::PackWeightArgs args{element_size(weight->dtype),
                               1,
                               n,
                               k,
                               {1, 1, 1},
                               weight->data,
                               0,
                               weight->strides[0],
                               weight->strides[1],
                               {},
                               packed->data,
                               call.num_threads()};
  kernels::pack_weight(args);
  *ret0 = packed.release();
}

void aoti_torch_cpu_pack_conv(AotpackTensor weight, int64_t groups, int32_t transposed, AotpackTensor* ret0) {
  Trace trace("pack_conv");
  trace.moved("weight", weight);
  const PackedConv shape = packed_conv_sizes(weight, groups, transposed != 0, "pack_conv");
  Owned packed(Call::current().empty_contiguous(shape.rank, shape.sizes, weight->dtype));
  pack_conv(weight, groups, transposed != 0, packed->data);
  *ret0 = packed.release();
}
