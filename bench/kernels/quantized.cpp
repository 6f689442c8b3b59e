// Linears with weights of 4 and 8 bits, and convolutions of bytes.
#include <string>
#include <vector>

#include "benchmarks.h"
#include "conv_int8.h"
#include "measure.h"
#include "quantized_linear.h"

namespace aotpack::kernels::bench {
namespace {

// With a weight of 4 or 8 bits; offsets where `offset`. The bytes are those of the weight with its scales.
void bench_quantized_linear(DType dtype, int bits, int64_t m, int64_t n, int64_t k, int64_t group, bool offset) {
  const std::string name = "int" + std::to_string(bits) + " linear " + dtype_name(dtype) + " " + std::to_string(m) +
                           "x" + std::to_string(n) + "x" + std::to_string(k) + " g" + std::to_string(group) +
                           (offset ? " offset" : "");
  if (name.find(filter) == std::string::npos) return;
  const int64_t columns = round_up(n, kPanel), scales = columns * ceil_div(k, group);
  const auto x = numbers(dtype, m * k), w = floats(columns * k * bits / 32), scale = floats(scales),
             offsets = floats(offset ? scales : 0);
  Floats y(static_cast<size_t>(m * n));
  QuantizedLinearArgs g = {};
  g.dtype = dtype;
  g.m = m;
  g.n = n;
  g.k = k;
  g.x = x.data();
  g.x_stride = k;
  g.bits = bits;
  g.group = group;
  g.w_packed = w.data();
  g.scale = scale.data();
  g.offset = offset ? offsets.data() : nullptr;
  g.act = Act::none;
  g.y = y.data();
  g.y_stride = n;
  g.num_threads = threads;
  std::vector<char> scratch(quantized_linear_scratch_bytes(g));
  g.scratch = scratch.data();
  report(name, 2.0 * double(m) * double(n) * double(k), double(columns * k * bits / 8 + 4 * (scales + offsets.size())),
         [&] { quantized_linear(g); });
}

// The same for quantized ones: bytes to bytes, multiply-adds counted as two. c == groups is depthwise.
void bench_conv_int8(int64_t n, int64_t c, int64_t oc, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                     int64_t groups = 1, bool residual = false) {
  const int64_t out = (size + 2 * padding - kernel) / stride + 1;
  const std::string name = "conv_int8 " + std::to_string(n) + "x" + std::to_string(c) + "x" + std::to_string(size) +
                           " to " + std::to_string(oc) + " k" + std::to_string(kernel) + " s" + std::to_string(stride) +
                           (groups == c && oc == c ? " dw"
                            : groups > 1           ? " grouped"
                                                   : "") +
                           (residual ? " residual" : "");
  if (name.find(filter) == std::string::npos) return;
  Int8ConvArgs a = {};
  a.n = n, a.c = c, a.oc = oc, a.groups = groups;
  for (int d = 0; d < 3; ++d) {
    a.in[d] = d == 0 ? 1 : size;
    a.out[d] = d == 0 ? 1 : out;
    a.kernel[d] = d == 0 ? 1 : kernel;
    a.stride[d] = d == 0 ? 1 : stride;
    a.dilation[d] = 1;
    a.before[d] = a.after[d] = d == 0 ? 0 : padding;
  }
  using Bytes = std::vector<uint8_t, Aligned<uint8_t>>;
  const int64_t columns = int8_columns(c, oc, groups), taps = kernel * kernel;
  const Int8Runs runs = int8_runs(c / groups, groups, a.kernel, a.dilation);
  // Enough for depthwise ones too.
  const Bytes w(static_cast<size_t>(columns * max64(runs.outer * runs.steps(), 2 * taps) * 4), 3);
  const Bytes x(static_cast<size_t>(n * size * size * c), 7), other(static_cast<size_t>(n * out * out * oc), 9);
  const std::vector<int32_t, Aligned<int32_t>> init(static_cast<size_t>(columns), 5);
  const Floats factor(static_cast<size_t>(columns), 0.01f), offset(static_cast<size_t>(columns), 0.5f);
  Bytes y(static_cast<size_t>(n * out * out * oc));
  a.result = Int8Result::u8;
  a.x = x.data();
  a.w_packed = reinterpret_cast<const int8_t*>(w.data());
  a.init = init.data(), a.factor = factor.data(), a.offset = offset.data();
  a.high = a.high_after = 255;
  a.keep = 0.5f, a.gain = 0.5f;
  a.residual = residual ? other.data() : nullptr;
  a.y = y.data();
  a.num_threads = threads;
  Bytes scratch(conv_int8_scratch_bytes(a));
  a.scratch = scratch.data();
  report(name, 2.0 * double(n * out * out) * double(oc * (c / groups)) * double(taps),
         double(x.size() + y.size() + w.size()), [&] { conv_int8(a); });
}

}  // namespace

void run_quantized_linears() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int bits : {4, 8}) {
      for (const int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
        bench_quantized_linear(dtype, bits, m, 4096, 4096, 128, false);
        bench_quantized_linear(dtype, bits, m, 11008, 4096, 128, false);
        bench_quantized_linear(dtype, bits, m, 4096, 4096, 32, true);
        if (m <= 64) bench_quantized_linear(dtype, bits, m, 32000, 4096, 32, false);
      }
    }
  }
}

// Those of MobileNetV2 and ResNet-50.
void run_int8_networks() {
  bench_conv_int8(1, 3, 32, 224, 3, 2, 1);
  bench_conv_int8(1, 3, 64, 224, 7, 2, 3);
  for (const int64_t c : {32, 144, 192, 384, 576, 960}) {
    const int64_t size = c == 32 ? 112 : c == 144 ? 56 : c == 192 ? 28 : c == 960 ? 7 : 14;
    bench_conv_int8(1, c, c, size, 3, 1, 1, c);
  }
  for (const int64_t c : {96, 144, 192, 576}) {
    bench_conv_int8(1, c, c, c == 96 ? 112 : c == 144 ? 56 : c == 192 ? 28 : 14, 3, 2, 1, c);
  }
  bench_conv_int8(1, 120, 120, 28, 5, 1, 2, 120);
  bench_conv_int8(1, 16, 96, 112, 1, 1, 0);
  bench_conv_int8(1, 24, 144, 56, 1, 1, 0);
  bench_conv_int8(1, 144, 24, 56, 1, 1, 0, 1, true);
  bench_conv_int8(1, 32, 192, 28, 1, 1, 0);
  bench_conv_int8(1, 384, 64, 14, 1, 1, 0, 1, true);
  bench_conv_int8(1, 160, 960, 7, 1, 1, 0);
  bench_conv_int8(1, 320, 1280, 7, 1, 1, 0);
  for (const int64_t size : {56, 28, 14, 7}) {
    const int64_t width = 64 * 56 / size;
    bench_conv_int8(1, 4 * width, width, size, 1, 1, 0);
    bench_conv_int8(1, width, width, size, 3, 1, 1);
    bench_conv_int8(1, width, 4 * width, size, 1, 1, 0, 1, true);
    if (size > 7) bench_conv_int8(1, 2 * width, 2 * width, size, 3, 2, 1);
    if (size > 7) bench_conv_int8(1, 4 * width, 8 * width, size, 1, 2, 0);
  }
}

}  // namespace aotpack::kernels::bench
