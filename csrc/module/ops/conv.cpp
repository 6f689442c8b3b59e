// Convolutions: brings activations into channels-last and calls the kernel.
#include "kernels/conv.h"

#include <optional>

#include "declare/conv.h"
#include "kernels/conv_plain.h"
#include "ops/channels_last.h"
#include "ops/common.h"
#include "ops/pack.h"
#include "tensor.h"
#include "trace.h"
#include "tuned.h"

using namespace aotpack::module;
namespace kernels = aotpack::kernels;

namespace {

// A number for each spatial dim, or one for all of them, as torch takes both.
struct PerDim {
  const int64_t* values;
  int64_t count;

  int64_t at(int dim, int spatial) const {
    if (count != 1 && count != spatial) {
      throw_invalid("convolution: " + std::to_string(count) + " numbers for " + std::to_string(spatial) + " dims");
    }
    return values[count == 1 ? 0 : dim];
  }
};

// Of `padding` what is after each dim: as much as before, unless there are twice as many numbers.
PerDim padding_after(const PerDim& padding, int spatial) {
  return padding.count == 2 * spatial ? PerDim{padding.values + spatial, spatial} : padding;
}
PerDim padding_before(const PerDim& padding, int spatial) {
  return padding.count == 2 * spatial ? PerDim{padding.values, spatial} : padding;
}

struct Shape {
  const int64_t* kernel;
  PerDim stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups, out_channels;
  kernels::Winograd winograd = kernels::Winograd::none;
};

// A transformed weight has 16 or 36 elements for the 9 taps of its kernel.
kernels::Winograd transform_of(const Tensor* packed, const int64_t* kernel, int64_t rank) {
  if (packed->rank != 5 || rank != 2 || kernel[0] != 3 || kernel[1] != 3) return kernels::Winograd::none;
  for (const kernels::Winograd tiles : {kernels::Winograd::two, kernels::Winograd::four}) {
    if (packed->sizes[2] == kernels::winograd_elements(tiles)) return tiles;
  }
  return kernels::Winograd::none;
}

// The numbers of each dim into a kernel's arguments, and the sizes of the result.
template <class Args>
void fit(const Tensor* x, const Shape& shape, Args* args, int64_t* sizes) {
  const int spatial = x->rank - 2;
  if (spatial < 1 || spatial > 3) throw_invalid("convolution of a tensor of rank " + std::to_string(x->rank));
  const PerDim before = padding_before(shape.padding, spatial), after = padding_after(shape.padding, spatial);
  sizes[0] = x->sizes[0];
  sizes[1] = shape.out_channels;
  for (int d = 0; d < 3; ++d) {
    const int s = d - (3 - spatial);  // the kernel counts depth, height, width; missing ones come first
    args->in[d] = s < 0 ? 1 : x->sizes[2 + s];
    args->kernel[d] = s < 0 ? 1 : shape.kernel[s];
    args->stride[d] = s < 0 ? 1 : shape.stride.at(s, spatial);
    args->padding[d] = s < 0 ? 0 : before.at(s, spatial);
    args->dilation[d] = s < 0 ? 1 : shape.dilation.at(s, spatial);
    const int64_t reach = args->dilation[d] * (args->kernel[d] - 1) + 1;
    if (s < 0) {
      args->out[d] = 1;
    } else if (shape.transposed) {
      args->out[d] =
          (args->in[d] - 1) * args->stride[d] - 2 * args->padding[d] + reach + shape.output_padding.at(s, spatial);
    } else {
      const int64_t padded = args->in[d] + args->padding[d] + after.at(s, spatial);
      args->out[d] = padded < reach ? -1 : (padded - reach) / args->stride[d] + 1;
    }
    if (args->out[d] < 0) throw_invalid("convolution: the kernel is larger than the padded input");
    if (s >= 0) sizes[2 + s] = args->out[d];
  }
}

Tensor* convolve(Tensor* x, const void* packed, Tensor* bias, Tensor* residual, const Shape& shape, kernels::Act act,
                 Trace& trace) {
  Call& call = Call::current();
  kernels::ConvArgs args{};
  args.dtype = kernel_dtype(x, "convolution");
  args.n = x->sizes[0];
  args.c = x->sizes[1];
  args.oc = shape.out_channels;
  args.groups = shape.groups;
  args.transposed = shape.transposed;
  args.winograd = shape.winograd;
  int64_t sizes[AOTPACK_MAX_RANK];
  fit(x, shape, &args, sizes);
  if (args.winograd != kernels::Winograd::none && !kernels::takes_winograd(args)) {
    throw_invalid("packed_conv: the weight is transformed, which only a dense fp32 convolution of stride 1 can have");
  }
  args.planar = x->is_contiguous() && !is_channels_last(x) && kernels::takes_planar(args);
  std::optional<Pixels> pixels;
  if (!args.planar) {
    pixels.emplace(x, kernels::takes_strided(args));
    args.x_pixel = pixels->step();
  }
  const Tensor* const source = pixels ? pixels->get() : x;
  int64_t strides[AOTPACK_MAX_RANK];
  channels_last_strides(x->rank, sizes, strides);
  Owned y(call.empty(x->rank, sizes, strides, x->dtype, replaceable(residual, x)));
  Owned added(residual == nullptr ? nullptr : channels_last(residual));
  Owned dense_bias(bias == nullptr ? nullptr : contiguous(bias));
  trace.tensor("x", x, source);
  trace.tensor("bias", bias, dense_bias.get());
  trace.tensor("residual", residual, added.get());
  args.x = source->data;
  args.w_packed = packed;
  args.bias = bias == nullptr ? nullptr : dense_bias->data;
  args.residual = residual == nullptr ? nullptr : added->data;
  args.act = act;
  args.y = y->data;
  args.num_threads = call.num_threads();
  const TunedCall tuned("conv",
                        {static_cast<int64_t>(args.dtype),
                         args.n,
                         args.c,
                         args.oc,
                         args.groups,
                         args.in[0],
                         args.in[1],
                         args.in[2],
                         args.out[0],
                         args.out[1],
                         args.out[2],
                         args.kernel[0],
                         args.kernel[1],
                         args.kernel[2],
                         args.stride[0],
                         args.stride[1],
                         args.stride[2],
                         args.dilation[0],
                         args.dilation[1],
                         args.dilation[2],
                         args.transposed,
                         static_cast<int64_t>(args.winograd),
                         args.planar,
                         static_cast<int64_t>(act),
                         residual != nullptr},
                        [&] { return kernels::conv_knobs(args); });
  args.knobs = tuned.knobs();
  Scratch scratch(static_cast<int64_t>(kernels::conv_scratch_bytes(args)));
  args.scratch = scratch.get();
  kernels::conv(args);
  return y.release();
}

// Doubles and integers, for which there is no tuned kernel. Contiguous.
template <class T>
Tensor* convolve_plain(Tensor* x, Tensor* weight, Tensor* bias, const Shape& shape, Trace& trace) {
  Call& call = Call::current();
  kernels::PlainConvArgs<T> args{};
  int64_t sizes[AOTPACK_MAX_RANK];
  fit(x, shape, &args, sizes);
  Owned source(contiguous(x)), dense(contiguous(weight)), added(bias == nullptr ? nullptr : contiguous(bias));
  trace.tensor("x", x, source.get());
  trace.tensor("weight", weight, dense.get());
  trace.tensor("bias", bias, added.get());
  Owned y(call.empty_contiguous(x->rank, sizes, x->dtype));
  args.n = x->sizes[0];
  args.c = x->sizes[1];
  args.oc = shape.out_channels;
  args.groups = shape.groups;
  args.transposed = shape.transposed;
  args.x = source->as<T>();
  args.w = dense->as<T>();
  args.bias = bias == nullptr ? nullptr : added->as<T>();
  args.y = y->as<T>();
  args.num_threads = call.num_threads();
  kernels::conv_plain(args);
  return y.release();
}

Tensor* convolve_plain(Tensor* x, Tensor* weight, Tensor* bias, const Shape& shape, Trace& trace) {
  switch (x->dtype) {
    case AOTPACK_DTYPE_FLOAT64:
      return convolve_plain<double>(x, weight, bias, shape, trace);
    case AOTPACK_DTYPE_INT64:
      return convolve_plain<int64_t>(x, weight, bias, shape, trace);
    case AOTPACK_DTYPE_INT32:
      return convolve_plain<int32_t>(x, weight, bias, shape, trace);
    case AOTPACK_DTYPE_INT16:
      return convolve_plain<int16_t>(x, weight, bias, shape, trace);
    case AOTPACK_DTYPE_INT8:
      return convolve_plain<int8_t>(x, weight, bias, shape, trace);
    case AOTPACK_DTYPE_UINT8:
      return convolve_plain<uint8_t>(x, weight, bias, shape, trace);
    default:
      throw_invalid(std::string("convolution does not support ") + dtype_name(x->dtype));
  }
}

bool has_kernel(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_FLOAT32 || dtype == AOTPACK_DTYPE_BFLOAT16 || dtype == AOTPACK_DTYPE_FLOAT16;
}

}  // namespace

void aoti_torch_cpu_packed_conv(AotpackTensor x, AotpackTensor weight, AotpackTensor* bias, AotpackTensor* residual,
                                int64_t out_channels, const int64_t* kernel, int64_t rank, const int64_t* stride,
                                int64_t strides, const int64_t* padding, int64_t paddings, const int64_t* dilation,
                                int64_t dilations, int32_t transposed, const int64_t* output_padding,
                                int64_t output_paddings, int64_t groups, int64_t act, AotpackTensor* ret0) {
  const Shape shape{kernel,
                    {stride, strides},
                    {padding, paddings},
                    {dilation, dilations},
                    {output_padding, output_paddings},
                    transposed != 0,
                    groups,
                    out_channels,
                    transform_of(weight, kernel, rank)};
  Trace trace("packed_conv");
  trace.in_place("weight", weight);
  *ret0 = convolve(x, weight->data, optional(bias), optional(residual), shape, static_cast<kernels::Act>(act), trace);
}

void aoti_torch_cpu_convolution(AotpackTensor input, AotpackTensor weight, AotpackTensor* bias, const int64_t* stride,
                                int64_t strides, const int64_t* padding, int64_t paddings, const int64_t* dilation,
                                int64_t dilations, int32_t transposed, const int64_t* output_padding,
                                int64_t output_paddings, int64_t groups, AotpackTensor* ret0) {
  Trace trace("convolution");
  const int64_t out_channels = transposed != 0 ? weight->sizes[1] * groups : weight->sizes[0];
  const Shape shape{weight->sizes + 2,
                    {stride, strides},
                    {padding, paddings},
                    {dilation, dilations},
                    {output_padding, output_paddings},
                    transposed != 0,
                    groups,
                    out_channels};
  // Generated code expects the layout of torch's result: the input's.
  const bool plain = input->rank > 2 && input->is_contiguous();
  if (!has_kernel(input->dtype)) {
    Owned y(convolve_plain(input, weight, optional(bias), shape, trace));
    Owned laid(plain ? y.release() : channels_last(y.get()));
    *ret0 = laid.release();
    return;
  }
  trace.moved("weight", weight);
  const PackedConv sizes = packed_conv_sizes(weight, groups, transposed != 0, "convolution");
  Scratch packed(sizes.numel() * element_size(weight->dtype));
  pack_conv(weight, groups, transposed != 0, packed.get());
  Owned y(convolve(input, packed.get(), optional(bias), nullptr, shape, kernels::Act::none, trace));
  if (plain) {
    Owned copy(contiguous(y.get()));
    trace.tensor("result", copy.get(), y.get());
    *ret0 = copy.release();
  } else {
    *ret0 = y.release();
  }
}
