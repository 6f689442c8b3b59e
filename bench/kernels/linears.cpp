// Linears and products of matrices.
#include <algorithm>
#include <string>
#include <vector>

#include "benchmarks.h"
#include "gemm.h"
#include "linear.h"
#include "measure.h"

namespace aotpack::kernels::bench {
namespace {

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

}  // namespace

void run_linears() {
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
  }
}

void run_products() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
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
  }
}

}  // namespace aotpack::kernels::bench
