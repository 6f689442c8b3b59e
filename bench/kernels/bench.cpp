// Throughput of the kernels on one machine. kernel_bench_<march> [filter] [threads] [knobs]
// With `knobs`, linear, conv and gemm also run at every position of each knob (knobs.h), in turns with position 0.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "benchmarks.h"
#include "measure.h"
#include "simd.h"

namespace aotpack::kernels::bench {
namespace {

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
}  // namespace aotpack::kernels::bench

int main(int argc, char** argv) {
  using namespace aotpack::kernels::bench;
  if (argc > 1) filter = argv[1];
  if (argc > 2) threads = std::atoi(argv[2]);
  turns_knobs = argc > 3 && std::string(argv[3]) == "knobs";
  bench_peak();
  run_int8_networks();
  run_linears();
  run_depthwise_blocks();
  run_convolutions();
  run_attention();
  run_quantized_linears();
  run_products();
  run_recurrent_layers();
  run_pools();
  run_copies();
}
