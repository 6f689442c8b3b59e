// Throughput of the kernels on one machine. kernel_bench_<march> [filter] [threads] [knobs]
// With `knobs`, linear, conv and gemm also run at every position of each knob (knobs.h), in turns with position 0.
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "attention.h"
#include "conv.h"
#include "conv_int8.h"
#include "depthwise_block.h"
#include "embedding_bag.h"
#include "gemm.h"
#include "linear.h"
#include "quantized_linear.h"
#include "rnn.h"
#include "simd.h"

using namespace aotpack::kernels;

namespace {

int threads = 2;
bool turns_knobs = false;
std::string filter;

// Processor time where one thread does the work, so that other load on the machine counts less; else wall time.
double now() {
  if (threads == 1) {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The best of several runs, in seconds: other load only ever adds.
double best_of(const std::function<void()>& run) {
  run();
  double best = 1e9, total = 0;
  for (int i = 0; i < 1000 && (total < 0.2 || i < 5); ++i) {
    const double start = now();
    run();
    const double seconds = now() - start;
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

void report(const std::string& name, double flops, double bytes, const std::function<void()>& run) {
  if (name.find(filter) == std::string::npos) return;
  const double seconds = best_of(run);
  std::printf("%-44s %10.1f us %8.1f GFLOP/s %7.1f GB/s\n", name.c_str(), seconds * 1e6, flops / seconds * 1e-9,
              bytes / seconds * 1e-9);
  std::fflush(stdout);
}

// Every position of every knob, each in turns with position 0 of all: the share of the time that it takes.
void report_knobs(const KnobSizes& sizes, const std::function<void(Knobs)>& run) {
  if (!turns_knobs) return;
  std::vector<Knobs> all = {Knobs{}};
  for (size_t knob = 0; knob < sizes.size(); ++knob) {
    for (uint32_t at = 1; at < sizes[knob]; ++at) all.push_back(Knobs{at << (4 * knob)});
  }
  std::vector<double> best(all.size(), 1e9);
  double total = 0;
  for (int round = 0; round < 400 && (total < 1.0 || round < 7); ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      const double start = now();
      run(all[i]);
      const double seconds = now() - start;
      best[i] = std::min(best[i], seconds);
      total += seconds;
    }
  }
  for (size_t i = 1; i < all.size(); ++i) std::printf("  %x:%.3f", all[i].bits, best[i] / best[0]);
  std::printf("\n");
  std::fflush(stdout);
}

// Memory as the runtime hands it out: aligned to 64 bytes.
template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const Aligned&) const { return true; }
};
using Floats = std::vector<float, Aligned<float>>;

// As many floats, or twice as many bf16: both halves of each float are the same ordinary number.
Floats floats(int64_t n) {
  Floats v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) {
    const uint32_t half = std::bit_cast<uint32_t>(static_cast<float>(i % 17) * 0.1f - 0.8f) >> 16;
    v[i] = std::bit_cast<float>(half << 16 | half);
  }
  return v;
}

// Memory of n numbers of the dtype.
Floats numbers(DType dtype, int64_t n) {
  Floats v = floats(n);
  if (dtype == DType::bf16) {
    auto* to = reinterpret_cast<bf16*>(v.data());
    for (int64_t i = 0; i < n; ++i) from_float(float(v[static_cast<size_t>(i)]), to + i);
  }
  return v;
}

const char* dtype_name(DType d) { return d == DType::f32 ? "f32" : "bf16"; }

void bench_linear(DType dtype, int64_t m, int64_t n, int64_t k, Act act = Act::none, bool residual = false) {
  const std::string name = "linear " + std::string(dtype_name(dtype)) + " " + std::to_string(m) + "x" +
                           std::to_string(n) + "x" + std::to_string(k) + " act" +
                           std::to_string(static_cast<int>(act)) + (residual ? " residual" : "");
  if (name.find(filter) == std::string::npos) return;
  const auto x = floats(m * k), w = floats(round_up(n, 32) * k), bias = floats(n);
  const auto added = residual ? floats(m * n) : Floats();
  Floats y(static_cast<size_t>(m * n));
  LinearArgs a = {dtype, m, n, k, x.data(), k, w.data(), bias.data(), nullptr, 0, act, y.data(), n, threads};
  if (residual) a.residual = added.data(), a.residual_stride = n;
  report(name, 2.0 * double(m) * double(n) * double(k), double(n * k) * double(dtype_size(dtype)), [&] { linear(a); });
  report_knobs(linear_knobs(a), [&](Knobs knobs) {
    a.knobs = knobs;
    linear(a);
  });
}

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

// Those of MobileNetV2 and ResNet-50.
void bench_int8_networks() {
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

void bench_gemm(DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  const std::string name = "gemm " + std::string(dtype_name(dtype)) + " " + std::to_string(batch) + "x" +
                           std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (ta ? " T" : " N") +
                           (tb ? "T" : "N");
  if (name.find(filter) == std::string::npos) return;
  const auto a = numbers(dtype, batch * m * k), b = numbers(dtype, batch * k * n);
  Floats y(static_cast<size_t>(batch * m * n));
  GemmArgs g = {dtype,    batch,    m,          n,          k,       a.data(), m * k,  ta ? 1 : k, ta ? m : 1,
                b.data(), k * n,    tb ? 1 : n, tb ? k : 1, nullptr, 0,        0,      0,          1.0f,
                0.0f,     y.data(), m * n,      n,          1,       threads,  nullptr};
  std::vector<char> scratch(gemm_scratch_bytes(g));
  g.scratch = scratch.data();
  report(name, 2.0 * double(batch * m) * double(n * k),
         double(dtype_size(dtype)) * double(a.size() + b.size() + y.size()), [&] { gemm(g); });
  report_knobs(gemm_knobs(g), [&](Knobs knobs) {
    g.knobs = knobs;
    scratch.resize(std::max(scratch.size(), gemm_scratch_bytes(g)));
    g.scratch = scratch.data();
    gemm(g);
  });
}

void bench_attention(DType dtype, int64_t batch, int64_t heads, int64_t kv_heads, int64_t q_len, int64_t kv_len,
                     int64_t dim, bool causal) {
  const std::string name = "attention " + std::string(dtype_name(dtype)) + " " + std::to_string(batch) + "x" +
                           std::to_string(heads) + "/" + std::to_string(kv_heads) + "x" + std::to_string(q_len) + "x" +
                           std::to_string(kv_len) + "x" + std::to_string(dim) + (causal ? " causal" : "");
  if (name.find(filter) == std::string::npos) return;
  const auto q = floats(batch * heads * q_len * dim), k = floats(batch * kv_heads * kv_len * dim);
  Floats y(q.size());
  AttentionArgs a = {};
  a.dtype = dtype;
  a.batch = batch;
  a.q_heads = heads;
  a.kv_heads = kv_heads;
  a.q_len = q_len;
  a.kv_len = kv_len;
  a.head_dim = a.v_dim = dim;
  a.q = q.data();
  a.k = a.v = k.data();
  a.y = y.data();
  const auto strides = [&](int64_t h, int64_t len, int64_t* to) {
    to[0] = h * len * dim;
    to[1] = dim;
    to[2] = h * dim;
  };
  strides(heads, q_len, a.q_strides);
  strides(heads, q_len, a.y_strides);
  strides(kv_heads, kv_len, a.k_strides);
  strides(kv_heads, kv_len, a.v_strides);
  a.causal = causal;
  a.scale = 0.125f;
  a.num_threads = threads;
  std::vector<char> scratch(attention_scratch_bytes(a));
  a.scratch = scratch.data();
  const double pairs = double(batch * heads) * double(q_len) * double(kv_len) * (causal ? 0.5 : 1.0);
  report(name, 4.0 * pairs * double(dim), double(dtype_size(dtype)) * 2.0 * double(k.size()), [&] { attention(a); });
}

void bench_rnn(DType dtype, bool gru, int64_t steps, int64_t batch, int64_t input, int64_t hidden) {
  const std::string name = std::string(gru ? "gru" : "lstm") + " " + dtype_name(dtype) + " " + std::to_string(steps) +
                           "x" + std::to_string(batch) + "x" + std::to_string(input) + "x" + std::to_string(hidden);
  if (name.find(filter) == std::string::npos) return;
  const int64_t columns = (gru ? 3 : 4) * hidden;
  const auto x = numbers(dtype, steps * batch * input), w_ih = numbers(dtype, input * round_up(columns, 32)),
             w_hh = numbers(dtype, hidden * round_up(columns, 32));
  Floats y(static_cast<size_t>(steps * batch * hidden));
  RnnArgs a = {dtype,       gru,         steps,   batch,   input,   hidden,  x.data(), batch * input, input,
               w_ih.data(), w_hh.data(), nullptr, nullptr, nullptr, nullptr, false,    y.data(),      batch * hidden,
               hidden,      nullptr,     nullptr, threads, nullptr};
  std::vector<char> scratch(rnn_scratch_bytes(a));
  a.scratch = scratch.data();
  report(name, 2.0 * double(steps * batch * columns) * double(input + hidden),
         double(dtype_size(dtype)) * double(steps) * double(hidden * columns), [&] { rnn(a); });
}

void bench_transpose(int64_t c, int64_t size, bool to_last, int64_t elem) {
  const std::string name = "transpose " + std::to_string(c) + "x" + std::to_string(size) + " e" + std::to_string(elem) +
                           (to_last ? " to nhwc" : " to nchw");
  if (name.find(filter) == std::string::npos) return;
  const auto x = floats(c * size * size);
  Floats y(x.size());
  const int64_t area = size * size;
  const int64_t last_sizes[3] = {size, size, c}, last_strides[3] = {size, 1, area};
  const int64_t first_sizes[3] = {c, size, size}, first_strides[3] = {1, size * c, c};
  report(name, 0, 2.0 * double(elem) * double(x.size()), [&] {
    transpose_copy(y.data(), x.data(), 3, to_last ? last_sizes : first_sizes, to_last ? last_strides : first_strides,
                   elem, threads);
  });
}

void bench_bag(int64_t rows, int64_t dim, int64_t bags, int64_t length) {
  const std::string name = "bag f32 " + std::to_string(rows) + "x" + std::to_string(dim) + " " + std::to_string(bags) +
                           "x" + std::to_string(length);
  if (name.find(filter) == std::string::npos) return;
  const auto table = floats(rows * dim);
  std::vector<int64_t> indices(static_cast<size_t>(bags * length));
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<int64_t>(i * 2654435761u % static_cast<size_t>(rows));
  Floats y(static_cast<size_t>(bags * dim));
  report(name, double(bags * length * dim), 4.0 * double(bags * length * dim), [&] {
    embedding_bag({DType::f32, BagMode::sum, table.data(), rows, dim, dim, true, indices.data(), bags * length, nullptr,
                   0, false, length, nullptr, -1, y.data(), dim, threads});
  });
}

// What the machine can do: independent multiply-adds in registers, on every thread.
__attribute__((noinline)) float multiply_adds(int64_t rounds, const float* seed) {
  constexpr int kChains = 12;
  vf acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = vset(seed[i]);
  const vf x = vset(seed[kChains]), c = vset(seed[kChains + 1]);
  for (int64_t r = 0; r < rounds; ++r) {
    AOTPACK_UNROLL
    for (int i = 0; i < kChains; ++i) acc[i] = acc[i] * x + c;
  }
  vf sum = acc[0];
  for (int i = 1; i < kChains; ++i) sum += acc[i];
  return sum_of(sum);
}

void bench_peak() {
  const int64_t rounds = 200000;
  const auto seed = floats(16);
  report("peak f32", double(threads) * double(rounds) * 12 * kWidth * 2, 0, [&] {
#pragma omp parallel num_threads(threads)
    if (multiply_adds(rounds, seed.data()) == 12345.0f) std::printf("!");  // used, so not left out
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) filter = argv[1];
  if (argc > 2) threads = std::atoi(argv[2]);
  turns_knobs = argc > 3 && std::string(argv[3]) == "knobs";
  bench_peak();
  bench_int8_networks();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench_linear(dtype, 1024, 1024, 1024);
    bench_linear(dtype, 2048, 2048, 2048);
    bench_linear(dtype, 4096, 768, 3072);
    bench_linear(dtype, 128, 768, 768);
    bench_linear(dtype, 128, 3072, 768, Act::gelu);
    bench_linear(dtype, 128, 768, 3072);
    bench_linear(dtype, 197, 768, 768);
    bench_linear(dtype, 3136, 64, 64);
    bench_linear(dtype, 3136, 256, 64, Act::relu, true);
    bench_linear(dtype, 784, 512, 128, Act::relu, true);
    bench_linear(dtype, 196, 256, 1024);
    bench_linear(dtype, 49, 512, 2048);
    bench_linear(dtype, 12544, 96, 16);
    bench_linear(dtype, 3136, 24, 144);
    // ConvNeXt-T, stage by stage.
    for (const int64_t stage : {0, 1, 2, 3}) {
      const int64_t pixels = 3136 >> (2 * stage), c = int64_t{96} << stage;
      bench_linear(dtype, pixels, 4 * c, c, Act::gelu);
      bench_linear(dtype, pixels, c, 4 * c);
    }
    for (const int64_t m : {1, 2, 4, 8, 16}) bench_linear(dtype, m, 4096, 4096);
    for (const int64_t m : {32, 128, 512}) {
      bench_linear(dtype, m, 4096, 4096);
      bench_linear(dtype, m, 11008, 4096);
    }
    bench_linear(dtype, 1, 768, 768);
    bench_linear(dtype, 1, 50257, 768);
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
    bench_attention(dtype, 1, 12, 12, 128, 128, 64, false);
    bench_attention(dtype, 1, 12, 12, 1024, 1024, 64, true);
    bench_attention(dtype, 1, 12, 12, 197, 197, 64, false);
    bench_attention(dtype, 1, 6, 6, 1500, 1500, 64, false);
    bench_attention(dtype, 1, 12, 12, 1, 1024, 64, false);
    bench_attention(dtype, 1, 32, 8, 1, 4096, 128, false);
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int bits : {4, 8}) {
      for (const int64_t m : {1, 2, 4, 8, 16, 32, 64, 128, 512}) {
        bench_quantized_linear(dtype, bits, m, 4096, 4096, 128, false);
        bench_quantized_linear(dtype, bits, m, 11008, 4096, 128, false);
        bench_quantized_linear(dtype, bits, m, 4096, 4096, 32, true);
        if (m <= 64) bench_quantized_linear(dtype, bits, m, 32000, 4096, 32, false);
      }
    }
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        bench_gemm(dtype, 1, 512, 512, 512, ta, tb);
        bench_gemm(dtype, 1, 1024, 1024, 1024, ta, tb);
        bench_gemm(dtype, 1, 2048, 2048, 2048, ta, tb);
        bench_gemm(dtype, 12, 128, 128, 64, ta, tb);
        bench_gemm(dtype, 64, 27, 27, 64, ta, tb);
        bench_gemm(dtype, 1, 8, 1024, 1024, ta, tb);
        bench_gemm(dtype, 1, 1, 4096, 4096, ta, tb);
      }
    }
    bench_rnn(dtype, false, 100, 1, 256, 256);
    bench_rnn(dtype, false, 100, 16, 256, 256);
    bench_rnn(dtype, false, 50, 1, 512, 512);
    bench_rnn(dtype, false, 50, 64, 512, 512);
    bench_rnn(dtype, true, 100, 1, 256, 256);
  }
  bench_transpose(3, 224, true, 4);
  bench_transpose(256, 56, true, 4);
  bench_transpose(256, 56, false, 4);
  bench_transpose(256, 56, true, 2);
  bench_bag(1000000, 64, 64, 32);
}
