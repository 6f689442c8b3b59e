// bench.cpp: throughput of the kernels on one machine. kernel_bench_<march> [filter] [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "linear.h"

using namespace aotpack::kernels;

namespace {

int threads = 2;
std::string filter;

// The best of several runs, in seconds: other load on the machine only ever adds.
double best_of(const std::function<void()>& run) {
  using clock = std::chrono::steady_clock;
  run();
  double best = 1e9, total = 0;
  for (int i = 0; i < 1000 && (total < 0.3 || i < 5); ++i) {
    const auto start = clock::now();
    run();
    const double seconds = std::chrono::duration<double>(clock::now() - start).count();
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

std::vector<float> floats(int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  return v;
}

const char* dtype_name(DType d) { return d == DType::f32 ? "f32" : "bf16"; }

void bench_linear(DType dtype, int64_t m, int64_t n, int64_t k, Act act = Act::none) {
  const std::string name = "linear " + std::string(dtype_name(dtype)) + " " + std::to_string(m) + "x" +
                           std::to_string(n) + "x" + std::to_string(k) + " act" + std::to_string(static_cast<int>(act));
  if (name.find(filter) == std::string::npos) return;
  const auto x = floats(m * k), w = floats(round_up(n, 32) * k), bias = floats(n);
  std::vector<float> y(static_cast<size_t>(m * n));
  report(name, 2.0 * double(m) * double(n) * double(k), double(n * k) * double(dtype_size(dtype)),
         [&] { linear({dtype, m, n, k, x.data(), k, w.data(), bias.data(), nullptr, 0, act, y.data(), n, threads}); });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) filter = argv[1];
  if (argc > 2) threads = std::atoi(argv[2]);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    bench_linear(dtype, 2048, 2048, 2048);
    bench_linear(dtype, 128, 768, 768);
    bench_linear(dtype, 128, 3072, 768, Act::gelu);
    bench_linear(dtype, 128, 768, 3072);
    bench_linear(dtype, 197, 768, 768);
    bench_linear(dtype, 3136, 64, 64);
    bench_linear(dtype, 196, 256, 1024);
    bench_linear(dtype, 49, 512, 2048);
    bench_linear(dtype, 12544, 96, 16);
    for (const int64_t m : {1, 2, 4, 8, 16}) bench_linear(dtype, m, 4096, 4096);
    bench_linear(dtype, 1, 768, 768);
    bench_linear(dtype, 1, 50257, 768);
  }
}
