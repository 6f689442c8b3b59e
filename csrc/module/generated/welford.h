// Mean and variance by Welford's algorithm, as torch/csrc/inductor/cpp_prefix.h computes them.
// https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance
#pragma once

#include <stdint.h>

#include "masks.h"
#include "vectors.h"

namespace aotpack::generated {

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<at::vec::Vectorized<T>> = true;

template <typename T>
struct Element {
  using type = T;
};
template <typename T>
struct Element<at::vec::Vectorized<T>> {
  using type = T;
};

// 1, 1/2, 1/3, … in T.
template <typename T, uint64_t Count>
struct Reciprocals {
  T of[Count];
  Reciprocals() {
    for (uint64_t i = 0; i < Count; ++i) of[i] = static_cast<T>(1.0 / static_cast<double>(i + 1));
  }
};

}  // namespace aotpack::generated

template <typename T>
struct Welford {
  T mean = T(0);
  T m2 = T(0);
  // Of each lane: in tails they differ.
  T weight = T(0);
  uint64_t index = 0;
};

// Partial results of chunks, combined in a cascade, which keeps the error small.
template <typename T, uint64_t Chunk>
struct WelfordHelper {
  using E = typename aotpack::generated::Element<T>::type;
  inline static const aotpack::generated::Reciprocals<E, Chunk> reciprocals;
  Welford<T> stack[64];
  uint64_t depth = 0;
  uint64_t chunks = 0;
  explicit WelfordHelper(uint64_t count) {
    const uint64_t all = (count + Chunk - 1) / Chunk;
    depth = all <= 1 ? 0 : 64 - __builtin_clzll(all - 1);
  }
};

template <typename T>
inline Welford<T> welford_combine(const Welford<T>& a, const Welford<T>& b, bool use_index = false) {
  if (a.index == 0) return b;
  if (b.index == 0) return a;
  auto delta = b.mean - a.mean;
  // Infinite and equal means differ by 0.
  if constexpr (aotpack::generated::kIsVector<T>) {
    delta = T::blendv(delta, T(0), a.mean == b.mean);
  } else {
    if (__builtin_isinf(a.mean) && a.mean == b.mean) delta = T(0);
  }
  const auto a_weight = use_index ? T(a.index) : a.weight;
  const auto b_weight = use_index ? T(b.index) : b.weight;
  const auto weight = a_weight + b_weight;
  auto share = b_weight / weight;
  if constexpr (aotpack::generated::kIsVector<T>) share = T::blendv(share, T(0), weight == T(0));
  return Welford<T>{a.mean + delta * share, a.m2 + b.m2 + delta * delta * a_weight * share, weight, a.index + b.index};
}

// With one more value.
template <typename T, uint64_t Chunk = 1>
inline Welford<T> welford_combine(Welford<T>& acc, T& data, WelfordHelper<T, Chunk>* w = nullptr) {
  if (w != nullptr && w->depth > 0 && acc.index == Chunk) {
    w->stack[0] = welford_combine(w->stack[0], acc);
    w->chunks += 1;
    acc = Welford<T>();
    uint64_t mask = w->chunks;
    for (uint64_t j = 1; j < w->depth && (mask & 1) == 0; ++j) {
      w->stack[j] = welford_combine(w->stack[j], w->stack[j - 1]);
      w->stack[j - 1] = Welford<T>();
      mask >>= 1;
    }
  }
  const auto weight = acc.weight + T(1);
  const auto delta = data - acc.mean;
  const T mean =
      acc.mean + (w == nullptr || acc.index >= Chunk ? delta / weight : delta * T(w->reciprocals.of[acc.index]));
  return Welford<T>{mean, acc.m2 + delta * (data - mean), weight, acc.index + 1};
}

// With one more value in the first lanes.
template <typename T, uint64_t Chunk = 1>
inline Welford<T> welford_combine(Welford<T>& acc, T& data, int64_t count, WelfordHelper<T, Chunk>* w = nullptr) {
  const auto all = welford_combine(acc, data, w);
  return Welford<T>{T::set(acc.mean, all.mean, count), T::set(acc.m2, all.m2, count),
                    T::set(acc.weight, all.weight, count), all.index};
}

// With what the cascade holds.
template <typename T, uint64_t Chunk>
inline Welford<T> welford_combine(Welford<T>& acc, WelfordHelper<T, Chunk>* w) {
  for (uint64_t i = 0; i < w->depth; ++i) acc = welford_combine(acc, w->stack[i]);
  return acc;
}

namespace aotpack::generated {

// What torch combines the lanes with, n = 1, 2, 4, …: in lane i lane i + n, and first 3 in 0 and 1 in 2.
template <typename T>
inline at::vec::Vectorized<T> lanes_down(const at::vec::Vectorized<T>& x, int n) {
  constexpr int count = at::vec::Vectorized<T>::size();
  T lanes[2 * count] = {};
  x.store(lanes);
  if (n > 1) return at::vec::Vectorized<T>::loadu(lanes + n);
  T others[count];
  for (int i = 0; i < count; ++i) others[i] = lanes[i / 4 * 4 + (i % 4 < 2 ? 3 : 1)];
  return at::vec::Vectorized<T>::loadu(others);
}

}  // namespace aotpack::generated

// All lanes together.
template <typename T>
inline Welford<T> welford_vec_reduce_all(Welford<at::vec::Vectorized<T>> acc) {
  using V = at::vec::Vectorized<T>;
  if (acc.index == 0) return {};
  const V index(acc.index);
  const bool same = at::vec::VecMask<T, 1>(acc.weight == index).all_masked();
  for (int n = 1; n < V::size(); n *= 2) {
    const Welford<V> others{aotpack::generated::lanes_down(acc.mean, n), aotpack::generated::lanes_down(acc.m2, n),
                            same ? V(0) : aotpack::generated::lanes_down(acc.weight, n), acc.index};
    acc = welford_combine(acc, others, same);
  }
  const T weight = acc.weight.values[0];
  return {acc.mean.values[0], acc.m2.values[0], weight, static_cast<uint64_t>(weight)};
}
