// The greatest elements of windows.
#include "kernels/max_pool.h"

#include <string>

#include "declare/max_pool.h"
#include "ops/channels_last.h"
#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

kernels::PoolType type_of(const Tensor* x) {
  switch (x->dtype) {
    case AOTPACK_DTYPE_FLOAT32:
      return kernels::PoolType::f32;
    case AOTPACK_DTYPE_BFLOAT16:
      return kernels::PoolType::bf16;
    case AOTPACK_DTYPE_FLOAT16:
      return kernels::PoolType::f16;
    case AOTPACK_DTYPE_UINT8:
      return kernels::PoolType::u8;
    case AOTPACK_DTYPE_INT8:
      return kernels::PoolType::s8;
    default:
      throw_invalid(std::string("max_pool does not support ") + dtype_name(x->dtype));
  }
}

// As torch has it: with `ceil`, a last window may go over the end, but begins inside.
int64_t outputs(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0 && (!ceil || room + stride <= 0)) return 0;
  const int64_t count = (room + (ceil ? stride - 1 : 0)) / stride + 1;
  return ceil && (count - 1) * stride >= in + padding ? count - 1 : count;
}

}  // namespace

void aoti_torch_cpu_max_pool(AotpackTensor x, AotpackTensor* scale, const int64_t* kernel, int64_t kernel_len,
                             const int64_t* stride, int64_t stride_len, const int64_t* padding, int64_t padding_len,
                             const int64_t* dilation, int64_t dilation_len, int32_t ceil_mode, AotpackTensor* ret0) {
  Call& call = Call::current();
  if (x->rank != 4) throw_invalid("max_pool: the tensor must have four dims");
  if (kernel_len != 2 || stride_len != 2 || padding_len != 2 || dilation_len != 2) {
    throw_invalid("max_pool: there must be a number for height and one for width");
  }
  const AotpackTensor sign = optional(scale);
  if (sign != nullptr && (sign->dtype != AOTPACK_DTYPE_FLOAT32 || sign->numel() != 1)) {
    throw_invalid("max_pool: the scale must be one fp32 number");
  }
  Trace trace("max_pool");
  const Pixels source(x);
  trace.tensor("x", x, source.get());
  kernels::MaxPoolArgs args{};
  args.type = type_of(x);
  args.n = x->sizes[0];
  args.c = x->sizes[1];
  int64_t sizes[4] = {args.n, args.c}, strides[4];
  for (int d = 0; d < 2; ++d) {
    args.in[d] = x->sizes[2 + d];
    args.kernel[d] = kernel[d];
    args.stride[d] = stride[d];
    args.padding[d] = padding[d];
    args.dilation[d] = dilation[d];
    args.out[d] = sizes[2 + d] = outputs(args.in[d], kernel[d], stride[d], padding[d], dilation[d], ceil_mode != 0);
    if (args.out[d] <= 0) throw_invalid("max_pool: the tensor is smaller than the window");
  }
  channels_last_strides(4, sizes, strides);
  Owned y(call.empty(4, sizes, strides, x->dtype));
  args.least = sign != nullptr && *reinterpret_cast<const float*>(sign->data) < 0;
  args.x = source.data();
  args.x_step = source.step();
  args.y = y->data;
  args.num_threads = call.num_threads();
  kernels::max_pool(args);
  *ret0 = y.release();
}
