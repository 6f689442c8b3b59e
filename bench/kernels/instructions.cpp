// Calls a kernel or a function of many numbers, for bench/instructions.py: `instructions NAME COUNT`.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "module/vecmath/detail/vecmath.h"

using namespace aotpack::kernels;

namespace {

// Enough for every operand below.
constexpr size_t kElements = size_t{1} << 17;
constexpr int64_t kM = 48, kN = 96, kK = 128;

std::vector<float> some() {
  std::vector<float> values(kElements);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
  return values;
}

const std::vector<float> x = some(), w = some();
std::vector<float> y(kElements);
std::vector<char> scratch(size_t{1} << 22);

void call_linear() {
  LinearArgs g = {};
  g.dtype = DType::f32;
  g.m = kM, g.n = kN, g.k = kK;
  g.x = x.data(), g.x_stride = kK;
  g.w_packed = w.data();
  g.y = y.data(), g.y_stride = kN;
  g.num_threads = 1;
  linear(g);
}

void call_gemm() {
  GemmArgs g = {};
  g.dtype = DType::f32;
  g.batch = 1, g.m = kM, g.n = kN, g.k = kK;
  g.a = x.data(), g.a_row = kK, g.a_col = 1;
  g.b = w.data(), g.b_row = kN, g.b_col = 1;
  g.alpha = 1.0f;
  g.y = y.data(), g.y_row = kN, g.y_col = 1;
  g.num_threads = 1;
  g.scratch = scratch.data();
  gemm(g);
}

// 3 x 3, 16 to 64 channels, 8 x 8 pixels.
void call_conv() {
  ConvArgs g = {};
  g.dtype = DType::f32;
  g.n = 1, g.c = 16, g.oc = 64, g.groups = 1;
  for (int d = 0; d < 3; ++d) {
    g.in[d] = g.out[d] = d == 0 ? 1 : 8;
    g.kernel[d] = d == 0 ? 1 : 3;
    g.padding[d] = d == 0 ? 0 : 1;
    g.stride[d] = g.dilation[d] = 1;
  }
  g.x = x.data(), g.w_packed = w.data();
  g.act = Act::relu;
  g.y = y.data();
  g.num_threads = 1;
  g.scratch = scratch.data();
  conv(g);
}

// One head, 64 queries and keys of 64.
void call_attention() {
  AttentionArgs g = {};
  g.dtype = DType::f32;
  g.batch = g.q_heads = g.kv_heads = 1;
  g.q_len = g.kv_len = g.head_dim = g.v_dim = 64;
  g.q = x.data(), g.k = w.data(), g.v = x.data() + 64 * 64;
  for (int64_t* strides : {g.q_strides, g.k_strides, g.v_strides, g.y_strides}) {
    strides[0] = strides[1] = 64 * 64;
    strides[2] = 64;
  }
  g.scale = 0.125f;
  g.y = y.data();
  g.num_threads = 1;
  g.scratch = scratch.data();
  attention(g);
}

void call_layer_norm() {
  LayerNormArgs g = {};
  g.dtype = DType::f32;
  g.rows = 16, g.k = 768;
  g.x = x.data(), g.x_stride = 768;
  g.weight = g.bias = w.data();
  g.eps = 1e-5f;
  g.y = y.data();
  g.num_threads = 1;
  layer_norm(g);
}

#if defined(AOTPACK_VECMATH_SVE256)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
using Lanes = aotpack::vecmath::Pack<float, kLanes>;

// As generated loops do, of 1024 numbers.
template <typename Function>
void for_vectors(Function function) {
  for (size_t i = 0; i < 1024; i += kLanes) {
    Lanes lanes;
    std::memcpy(&lanes, &x[i], sizeof(lanes));
    lanes = function(lanes);
    std::memcpy(&y[i], &lanes, sizeof(lanes));
  }
}

// As torch's vectors do where they know no function of vectors.
Lanes by_libm(Lanes lanes, float (*function)(float)) {
  for (int i = 0; i < kLanes; ++i) lanes.v[i] = function(lanes.v[i]);
  return lanes;
}

struct Named {
  std::string_view name;
  void (*call)();
};

constexpr Named kCalls[] = {
    {"linear", call_linear},
    {"gemm", call_gemm},
    {"conv", call_conv},
    {"attention", call_attention},
    {"layer_norm", call_layer_norm},
    {"exp", [] { for_vectors([](Lanes v) { return aotpack::vecmath::exp(v); }); }},
    {"exp_by_libm", [] { for_vectors([](Lanes v) { return by_libm(v, expf); }); }},
    {"tanh", [] { for_vectors([](Lanes v) { return aotpack::vecmath::tanh(v); }); }},
    {"tanh_by_libm", [] { for_vectors([](Lanes v) { return by_libm(v, tanhf); }); }},
    {"erf", [] { for_vectors([](Lanes v) { return aotpack::vecmath::erf(v); }); }},
    {"erf_by_libm", [] { for_vectors([](Lanes v) { return by_libm(v, erff); }); }},
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  for (const Named& named : kCalls) {
    if (named.name != arguments[1]) continue;
    for (int left = std::atoi(arguments[2]); left > 0; --left) named.call();
    return 0;
  }
  return 2;
}
