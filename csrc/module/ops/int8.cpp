// Convolutions and linears of 8-bit activations.
#include "declare/int8.h"

#include <algorithm>

#include "kernels/conv_int8.h"
#include "ops/channels_last.h"
#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

bool is_signed(const Tensor* x) {
  if (x->dtype == AOTPACK_DTYPE_INT8) return true;
  if (x->dtype == AOTPACK_DTYPE_UINT8) return false;
  throw_invalid(std::string("int8 products of ") + dtype_name(x->dtype));
}

int32_t dtype_of(int64_t result) {
  switch (static_cast<kernels::Int8Result>(result)) {
    case kernels::Int8Result::f32:
      return AOTPACK_DTYPE_FLOAT32;
    case kernels::Int8Result::u8:
      return AOTPACK_DTYPE_UINT8;
    default:
      return AOTPACK_DTYPE_INT8;
  }
}

// What the constants say.
void read(const Tensor* weight, const Tensor* channels, const Tensor* limits, kernels::Int8ConvArgs* args) {
  const int64_t columns = kernels::int8_columns(args->c, args->oc, args->groups);
  if (channels->sizes[1] != columns || limits->numel() != 11) throw_invalid("int8: constants of other sizes");
  const int32_t* rows = reinterpret_cast<const int32_t*>(channels->data);
  const float* numbers = reinterpret_cast<const float*>(limits->data);
  args->w_packed = reinterpret_cast<const int8_t*>(weight->data);
  args->init = rows;
  args->factor = reinterpret_cast<const float*>(rows + columns);
  args->offset = reinterpret_cast<const float*>(rows + 2 * columns);
  args->x_zero = static_cast<int32_t>(numbers[0]);
  args->y_zero = static_cast<int32_t>(numbers[1]);
  args->low = numbers[2];
  args->high = numbers[3];
  args->round_first = numbers[4] != 0;
  args->keep = numbers[5];
  args->gain = numbers[6];
  args->residual_zero = numbers[7];
  args->low_after = numbers[8];
  args->high_after = numbers[9];
  args->weight_zero = numbers[10] != 0 ? rows + 3 * columns : nullptr;
}

void compute(kernels::Int8ConvArgs* args, const Tensor* x, const Tensor* residual, Tensor* y) {
  args->x_signed = is_signed(x);
  args->x = x->data;
  args->residual_signed = residual != nullptr && is_signed(residual);
  args->residual = residual == nullptr ? nullptr : residual->data;
  args->y = y->data;
  args->num_threads = Call::current().num_threads();
  Scratch scratch(static_cast<int64_t>(kernels::conv_int8_scratch_bytes(*args)));
  args->scratch = scratch.get();
  kernels::conv_int8(*args);
}

}  // namespace

void aoti_torch_cpu_int8_conv(AotpackTensor x, AotpackTensor weight, AotpackTensor channels, AotpackTensor limits,
                              AotpackTensor* residual, int64_t out_channels, const int64_t* kernel, int64_t rank,
                              const int64_t* stride, int64_t, const int64_t* padding, int64_t, const int64_t* dilation,
                              int64_t, int64_t groups, int64_t result, AotpackTensor* ret0) {
  Call& call = Call::current();
  if (x->rank != rank + 2 || rank < 1 || rank > 3) throw_invalid("int8_conv of a tensor of another rank");
  kernels::Int8ConvArgs args{};
  args.n = x->sizes[0];
  args.c = x->sizes[1];
  args.oc = out_channels;
  args.groups = groups;
  args.result = static_cast<kernels::Int8Result>(result);
  int64_t sizes[AOTPACK_MAX_RANK] = {x->sizes[0], out_channels};
  for (int64_t d = 0; d < 3; ++d) {
    const int64_t s = d - (3 - rank);  // the kernel counts depth, height, width; missing ones come first
    args.in[d] = s < 0 ? 1 : x->sizes[2 + s];
    args.kernel[d] = s < 0 ? 1 : kernel[s];
    args.stride[d] = s < 0 ? 1 : stride[s];
    args.dilation[d] = s < 0 ? 1 : dilation[s];
    args.before[d] = s < 0 ? 0 : padding[s];
    args.after[d] = s < 0 ? 0 : padding[rank + s];
    const int64_t room = args.in[d] + args.before[d] + args.after[d] - args.dilation[d] * (args.kernel[d] - 1) - 1;
    if (room < 0) throw_invalid("convolution: the kernel is larger than the padded input");
    args.out[d] = room / args.stride[d] + 1;
    if (s >= 0) sizes[2 + s] = args.out[d];
  }
  read(weight, channels, limits, &args);
  int64_t strides[AOTPACK_MAX_RANK];
  channels_last_strides(x->rank, sizes, strides);
  Tensor* other = optional(residual);
  Owned y(call.empty(x->rank, sizes, strides, dtype_of(result), replaceable(other, x)));
  Owned source(channels_last(x)), added(other == nullptr ? nullptr : channels_last(other));
  Trace trace("int8_conv");
  trace.tensor("x", x, source.get());
  trace.in_place("weight", weight);
  trace.tensor("residual", other, added.get());
  compute(&args, source.get(), added.get(), y.get());
  *ret0 = y.release();
}

void aoti_torch_cpu_int8_linear(AotpackTensor x, AotpackTensor weight, AotpackTensor channels, AotpackTensor limits,
                                AotpackTensor* residual, int64_t out_features, int64_t result, AotpackTensor* ret0) {
  Call& call = Call::current();
  kernels::Int8ConvArgs args{};
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t rows = 1;
  for (int32_t d = 0; d + 1 < x->rank; ++d) rows *= sizes[d] = x->sizes[d];
  sizes[x->rank - 1] = out_features;
  args.n = 1;
  args.c = x->sizes[x->rank - 1];
  args.oc = out_features;
  args.groups = 1;
  args.result = static_cast<kernels::Int8Result>(result);
  for (int d = 0; d < 3; ++d) args.in[d] = args.out[d] = args.kernel[d] = args.stride[d] = args.dilation[d] = 1;
  args.in[2] = args.out[2] = rows;
  read(weight, channels, limits, &args);
  Tensor* other = optional(residual);
  Owned y(call.empty_contiguous(x->rank, sizes, dtype_of(result), replaceable(other, x)));
  Owned source(contiguous(x)), added(other == nullptr ? nullptr : contiguous(other));
  Trace trace("int8_linear");
  trace.tensor("x", x, source.get());
  trace.in_place("weight", weight);
  trace.tensor("residual", other, added.get());
  compute(&args, source.get(), added.get(), y.get());
  *ret0 = y.release();
}
