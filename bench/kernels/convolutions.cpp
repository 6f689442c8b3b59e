// Convolutions, and blocks of them around a depthwise one.
#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "conv.h"
#include "depthwise_block.h"
#include "linear.h"
#include "measure.h"

namespace aotpack::kernels::bench {
namespace {

// Square images, kernels and strides; c == groups is depthwise.
void bench_conv(DType dtype, int64_t n, int64_t c, int64_t oc, int64_t size, int64_t kernel, int64_t stride,
                int64_t padding, int64_t groups = 1, bool transposed = false, Act act = Act::relu,
                Winograd winograd = Winograd::none) {
  const int64_t out =
      transposed ? (size - 1) * stride - 2 * padding + kernel : (size + 2 * padding - kernel) / stride + 1;
  const std::string name = "conv " + std::string(dtype_name(dtype)) + " " + std::to_string(n) + "x" +
                           std::to_string(c) + "x" + std::to_string(size) + " to " + std::to_string(oc) + " k" +
                           std::to_string(kernel) + " s" + std::to_string(stride) +
                           (groups == c && oc == c ? " dw"
                            : groups > 1           ? " grouped"
                                                   : "") +
                           (transposed ? " transposed" : "") +
                           (winograd == Winograd::none  ? ""
                            : winograd == Winograd::two ? " winograd 2x2"
                                                        : " winograd 4x4");
  if (name.find(filter) == std::string::npos) return;
  ConvArgs a = {};
  a.dtype = dtype;
  a.n = n;
  a.c = c;
  a.oc = oc;
  a.groups = groups;
  for (int d = 0; d < 3; ++d) {
    a.in[d] = d == 0 ? 1 : size;
    a.out[d] = d == 0 ? 1 : out;
    a.kernel[d] = d == 0 ? 1 : kernel;
    a.stride[d] = d == 0 ? 1 : stride;
    a.padding[d] = d == 0 ? 0 : padding;
    a.dilation[d] = 1;
  }
  a.transposed = transposed;
  a.winograd = winograd;
  a.act = act;
  a.num_threads = threads;
  const auto x = floats(n * c * size * size), bias = floats(oc);
  const auto w = floats(winograd != Winograd::none ? round_up(oc, 32) * winograd_elements(winograd) * c
                        : conv_layout(groups, c / groups, oc / groups, transposed) == ConvLayout::panels
                            ? groups * round_up(oc / groups, 32) * kernel * kernel * (c / groups)
                            : round_up(oc, 32) * kernel * kernel * (c / groups));
  Floats y(static_cast<size_t>(n * oc * out * out));
  std::vector<char> scratch(conv_scratch_bytes(a));
  a.x = x.data();
  a.w_packed = w.data();
  a.bias = bias.data();
  a.y = y.data();
  a.scratch = scratch.data();
  const double macs =
      double(n * oc * kernel * kernel) * double(c / groups) * double(transposed ? size * size : out * out);
  report(name, 2.0 * macs, double(dtype_size(dtype)) * double(x.size() + y.size()), [&] { conv(a); });
  report_knobs(conv_knobs(a), [&](Knobs knobs) {
    a.knobs = knobs;
    scratch.resize(std::max(scratch.size(), conv_scratch_bytes(a)));
    a.scratch = scratch.data();
    conv(a);
  });
}

// Square images; without c no expansion, without oc no projection. In parts: each convolution by itself.
void bench_depthwise_block(DType dtype, int64_t c, int64_t channels, int64_t oc, int64_t size, int64_t kernel,
                           int64_t stride) {
  const std::string name = "block " + std::string(dtype_name(dtype)) + " " + std::to_string(c) + "-" +
                           std::to_string(channels) + "-" + std::to_string(oc) + "x" + std::to_string(size) + " k" +
                           std::to_string(kernel) + " s" + std::to_string(stride);
  const int64_t out = (size - 1) / stride + 1, in_pixels = size * size, out_pixels = out * out;
  const int64_t from = c > 0 ? c : channels, to = oc > 0 ? oc : channels;
  const auto x = floats(in_pixels * from), w = floats(kernel * kernel * channels), bias = floats(channels + to);
  const auto expand = floats(round_up(channels, 32) * from), project = floats(round_up(to, 32) * channels);
  Floats y(static_cast<size_t>(out_pixels * to)), between(static_cast<size_t>(in_pixels * channels)),
      reduced(static_cast<size_t>(out_pixels * channels));
  DepthwiseBlockArgs a = {};
  a.dtype = dtype;
  a.n = 1;
  a.c = from;
  a.channels = channels;
  a.oc = to;
  for (int d = 0; d < 2; ++d) {
    a.in[d] = size;
    a.out[d] = out;
    a.kernel[d] = kernel;
    a.stride[d] = stride;
    a.padding[d] = kernel / 2;
    a.dilation[d] = 1;
  }
  a.x = x.data();
  a.x_pixel = from;
  if (c > 0) a.expand = {expand.data(), bias.data(), Act::relu6};
  a.depthwise = {w.data(), bias.data(), Act::relu6};
  if (oc > 0) a.project = {project.data(), bias.data(), Act::none};
  a.y = y.data();
  a.num_threads = threads;
  std::vector<char> scratch(depthwise_block_scratch_bytes(a));
  a.scratch = scratch.data();
  const double flops = 2.0 * double(channels) * (double(c * in_pixels) + double((oc + kernel * kernel) * out_pixels));
  const double bytes = double(dtype_size(dtype)) * double(x.size() + y.size());
  report(name, flops, bytes, [&] { depthwise_block(a); });
  ConvArgs d = depthwise_of(a);
  d.x = c > 0 ? between.data() : x.data();
  d.y = oc > 0 ? reduced.data() : y.data();
  std::vector<char> more(conv_scratch_bytes(d));
  d.scratch = more.data();
  report(name + " in parts", flops, bytes, [&] {
    if (c > 0) {
      linear({dtype, in_pixels, channels, c, x.data(), c, expand.data(), bias.data(), nullptr, 0, Act::relu6,
              between.data(), channels, threads});
    }
    conv(d);
    if (oc > 0) {
      linear({dtype, out_pixels, oc, channels, reduced.data(), channels, project.data(), bias.data(), nullptr, 0,
              Act::none, y.data(), oc, threads});
    }
  });
}

}  // namespace

void run_convolutions() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // VGG and ResNet, direct and transformed in turns.
    if (dtype == DType::f32) {
      const int64_t layers[][3] = {{64, 64, 224},  {64, 128, 112}, {128, 128, 112}, {128, 256, 56},
                                   {256, 256, 56}, {256, 512, 28}, {512, 512, 28},  {512, 512, 14},
                                   {64, 64, 56},   {128, 128, 28}, {256, 256, 14},  {512, 512, 7}};
      for (const auto& [c, oc, size] : layers) {
        for (const Winograd winograd : {Winograd::none, Winograd::two, Winograd::four}) {
          bench_conv(dtype, 1, c, oc, size, 3, 1, 1, 1, false, Act::relu, winograd);
        }
      }
    }
    // ResNet, ConvNeXt, ViT, MobileNet, transposed.
    bench_conv(dtype, 1, 64, 64, 56, 3, 1, 1);
    bench_conv(dtype, 1, 128, 128, 28, 3, 1, 1);
    bench_conv(dtype, 1, 256, 256, 14, 3, 1, 1);
    bench_conv(dtype, 1, 512, 512, 7, 3, 1, 1);
    bench_conv(dtype, 1, 128, 128, 56, 3, 2, 1);
    bench_conv(dtype, 1, 256, 512, 56, 1, 2, 0);
    bench_conv(dtype, 1, 1024, 2048, 14, 1, 2, 0);
    bench_conv(dtype, 1, 3, 64, 224, 7, 2, 3);
    bench_conv(dtype, 1, 3, 32, 224, 3, 2, 1);
    bench_conv(dtype, 1, 3, 96, 224, 4, 4, 0);
    bench_conv(dtype, 1, 3, 768, 224, 16, 16, 0);
    bench_conv(dtype, 1, 96, 192, 56, 2, 2, 0);
    bench_conv(dtype, 1, 128, 128, 56, 3, 1, 1, 32);
    bench_conv(dtype, 1, 256, 256, 28, 3, 1, 1, 32);
    bench_conv(dtype, 1, 512, 512, 14, 3, 1, 1, 32);
    bench_conv(dtype, 1, 1024, 1024, 7, 3, 1, 1, 32);
    bench_conv(dtype, 1, 256, 256, 56, 3, 2, 1, 32);
    bench_conv(dtype, 1, 192, 192, 28, 3, 1, 1, 8);
    bench_conv(dtype, 1, 240, 60, 28, 1, 1, 0, 3);
    bench_conv(dtype, 1, 192, 48, 28, 1, 1, 0, 4);
    bench_conv(dtype, 1, 384, 96, 28, 1, 1, 0, 8);
    bench_conv(dtype, 1, 96, 96, 28, 3, 1, 1, 8);
    bench_conv(dtype, 1, 64, 256, 28, 3, 1, 1, 64);
    bench_conv(dtype, 1, 256, 128, 14, 4, 2, 1, 1, true);
    bench_conv(dtype, 1, 32, 32, 112, 3, 1, 1, 32, false, Act::relu6);
    bench_conv(dtype, 1, 96, 96, 112, 3, 2, 1, 96, false, Act::relu6);
    bench_conv(dtype, 1, 144, 144, 56, 3, 1, 1, 144, false, Act::relu6);
    bench_conv(dtype, 1, 384, 384, 14, 3, 1, 1, 384, false, Act::relu6);
    bench_conv(dtype, 1, 960, 960, 7, 3, 1, 1, 960, false, Act::relu6);
    bench_conv(dtype, 1, 96, 96, 56, 7, 1, 3, 96, false, Act::none);
    bench_conv(dtype, 1, 384, 384, 14, 7, 1, 3, 384, false, Act::none);
    bench_conv(dtype, 1, 768, 768, 7, 7, 1, 3, 768, false, Act::none);
    bench_conv(dtype, 1, 256, 128, 28, 2, 2, 0, 1, true);
    bench_conv(dtype, 1, 64, 3, 64, 4, 2, 1, 1, true);
  }
}

void run_depthwise_blocks() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    // MobileNetV2, layer by layer, and EfficientNet's.
    bench_depthwise_block(dtype, 0, 32, 16, 112, 3, 1);
    bench_depthwise_block(dtype, 16, 96, 24, 112, 3, 2);
    bench_depthwise_block(dtype, 24, 144, 24, 56, 3, 1);
    bench_depthwise_block(dtype, 24, 144, 32, 56, 3, 2);
    bench_depthwise_block(dtype, 32, 192, 32, 28, 3, 1);
    bench_depthwise_block(dtype, 32, 192, 64, 28, 3, 2);
    bench_depthwise_block(dtype, 64, 384, 64, 14, 3, 1);
    bench_depthwise_block(dtype, 96, 576, 96, 14, 3, 1);
    bench_depthwise_block(dtype, 160, 960, 160, 7, 3, 1);
    bench_depthwise_block(dtype, 24, 144, 0, 56, 5, 2);
    bench_depthwise_block(dtype, 40, 240, 40, 28, 5, 1);
  }
}

}  // namespace aotpack::kernels::bench
