// What the processor can do at most: multiplications by number format, and reads of memory. Prints JSON.
//   roof THREADS
#include <immintrin.h>
#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

int threads = 1;
volatile float sink;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Operations a second of `work(rounds)`, which each thread does: the best of several runs, as other load only takes.
template <class Work>
double rate(double operations_of_a_round, Work work) {
  constexpr int kRounds = 200'000;
  double best = 0;
  for (int run = 0; run < 60; ++run) {
    const double start = now();
#pragma omp parallel num_threads(threads)
    work(kRounds);
    best = std::max(best, operations_of_a_round * kRounds * threads / (now() - start));
  }
  return best;
}

// More sums than the latency of an instruction times those that start in a cycle.
constexpr int kSums = 12;

#if defined(__AVX512F__)
using Floats = __m512;
Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
Floats all(float x) { return _mm512_set1_ps(x); }
float first(Floats x) { return _mm512_cvtss_f32(x); }
#else
using Floats = __m256;
Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
Floats all(float x) { return _mm256_set1_ps(x); }
float first(Floats x) { return _mm256_cvtss_f32(x); }
#endif

double fp32() {
  return rate(2.0 * kSums * sizeof(Floats) / sizeof(float), [](int rounds) {
    Floats sums[kSums], x = all(0.5f);
    for (Floats& sum : sums) sum = all(1.0f);
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) sums[i] = fma(x, sums[i], x);
    }
    for (const Floats& sum : sums) sink = first(sum);
  });
}

#if defined(__AVX512BF16__)
double bf16_vectors() {
  return rate(2.0 * kSums * 32, [](int rounds) {
    __m512 sums[kSums];
    __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-3f), _mm512_set1_ps(1e-3f));
    for (__m512& sum : sums) sum = _mm512_set1_ps(0);
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], x, x);
      asm volatile("" : "+v"(x));
    }
    for (const __m512& sum : sums) sink = _mm512_cvtss_f32(sum);
  });
}
#endif

#if defined(__AVX512VNNI__)
double int8_vectors() {
  return rate(2.0 * kSums * 64, [](int rounds) {
    __m512i sums[kSums], x = _mm512_set1_epi8(1);
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    for (int r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
      for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
      asm volatile("" : "+v"(x));
    }
    for (const __m512i& sum : sums) sink = static_cast<float>(_mm512_cvtsi512_si32(sum));
  });
}
#endif

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)
// The system has to permit tiles (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
bool tiles_permitted() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

struct alignas(64) Configuration {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

template <bool kInt8>
double tiles() {
  // 16 x 16 sums of 64 bytes in each of four instructions.
  return rate(4.0 * 2 * 16 * 16 * (kInt8 ? 64 : 32), [](int rounds) {
    Configuration configuration;
    // GCC takes the instruction for one that reads 8 bytes.
    asm volatile("" : "+m"(configuration));
    _tile_loadconfig(&configuration);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int r = 0; r < rounds; ++r) {
      if constexpr (kInt8) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
      } else {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_release();
  });
}
#endif

// Bytes a second of reads that no cache holds.
double reads() {
  constexpr size_t kCount = size_t{1} << 27;  // 512 MiB
  std::vector<float> data(kCount, 1.0f);
  double best = 0;
  for (int run = 0; run < 12; ++run) {
    const double start = now();
#pragma omp parallel num_threads(threads)
    {
      const size_t part = kCount / static_cast<size_t>(threads),
                   from = part * static_cast<size_t>(omp_get_thread_num());
      constexpr size_t kStep = sizeof(Floats) / sizeof(float);
      Floats sums[8];
      for (Floats& sum : sums) sum = all(0);
      for (size_t i = from; i + 8 * kStep <= from + part; i += 8 * kStep) {
        for (size_t k = 0; k < 8; ++k) {
          Floats x;
          __builtin_memcpy(&x, data.data() + i + k * kStep, sizeof x);
          sums[k] = sums[k] + x;
        }
      }
      for (const Floats& sum : sums) sink = first(sum);
    }
    best = std::max(best, double(kCount * sizeof(float)) / (now() - start));
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  threads = argc > 1 ? std::max(1, std::atoi(argv[1])) : 1;
  double bf16 = 0, int8 = 0;
#if defined(__AVX512BF16__)
  bf16 = bf16_vectors();
#endif
#if defined(__AVX512VNNI__)
  int8 = int8_vectors();
#endif
#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)
  if (tiles_permitted()) bf16 = std::max(bf16, tiles<false>()), int8 = std::max(int8, tiles<true>());
#endif
  std::printf("{\"fp32\": %.4g, \"bf16\": %.4g, \"int8\": %.4g, \"reads\": %.4g}\n", fp32(), bf16, int8, reads());
}
