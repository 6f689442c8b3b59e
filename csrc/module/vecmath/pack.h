// pack.h: a vector of N elements, by GCC's vector extension, so that one source serves every instruction set.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

namespace aotpack::vecmath {

/// Wrapped in a struct: compilers drop the attributes of a bare vector type that is a template's argument.
template <typename T, int N>
struct Pack {
  typedef T Vector __attribute__((vector_size(N * sizeof(T))));
  Vector v;
};

#define AOTPACK_VEC static inline __attribute__((always_inline))

/// f on every lane, for functions that are too rare to be worth a vector algorithm.
template <typename T, int N, typename F>
AOTPACK_VEC Pack<T, N> by_lane(Pack<T, N> x, F f) {
  T lanes[N];
  std::memcpy(lanes, &x.v, sizeof(lanes));
  for (int i = 0; i < N; ++i) lanes[i] = f(lanes[i]);
  std::memcpy(&x.v, lanes, sizeof(lanes));
  return x;
}

template <typename T, int N, typename F>
AOTPACK_VEC Pack<T, N> by_lane(Pack<T, N> x, Pack<T, N> y, F f) {
  T a[N], b[N];
  std::memcpy(a, &x.v, sizeof(a));
  std::memcpy(b, &y.v, sizeof(b));
  for (int i = 0; i < N; ++i) a[i] = f(a[i], b[i]);
  std::memcpy(&x.v, a, sizeof(a));
  return x;
}

}  // namespace aotpack::vecmath
