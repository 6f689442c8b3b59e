#include "measure.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>

#include "half.h"

namespace aotpack::kernels::bench {

int threads = 2;
bool turns_knobs = false;
std::string filter;

namespace {

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

}  // namespace

void report(const std::string& name, double flops, double bytes, const std::function<void()>& run) {
  if (name.find(filter) == std::string::npos) return;
  const double seconds = best_of(run);
  std::printf("%-44s %10.1f us %8.1f GFLOP/s %7.1f GB/s\n", name.c_str(), seconds * 1e6, flops / seconds * 1e-9,
              bytes / seconds * 1e-9);
  std::fflush(stdout);
}

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

Floats floats(int64_t n) {
  Floats v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) {
    const uint32_t half = std::bit_cast<uint32_t>(static_cast<float>(i % 17) * 0.1f - 0.8f) >> 16;
    v[i] = std::bit_cast<float>(half << 16 | half);
  }
  return v;
}

Floats numbers(DType dtype, int64_t n) {
  Floats v = floats(n);
  if (dtype == DType::bf16) {
    auto* to = reinterpret_cast<bf16*>(v.data());
    for (int64_t i = 0; i < n; ++i) from_float(float(v[static_cast<size_t>(i)]), to + i);
  }
  return v;
}

}  // namespace aotpack::kernels::bench
