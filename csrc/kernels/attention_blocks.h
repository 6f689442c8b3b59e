// What attention in double and the backward of attention share: elements, masks, rows of weights.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>

#include "block_product.h"
#include "parallel.h"

namespace aotpack::kernels {

inline constexpr int64_t kBlockQueries = 64;
inline constexpr int64_t kBlockKeys = 128;

template <class A>
inline constexpr A kMinusInfinity = -std::numeric_limits<A>::infinity();

template <class A, class T>
A element(T x) {
  if constexpr (std::is_same_v<T, double>) return static_cast<A>(x);
  if constexpr (!std::is_same_v<T, double>) return static_cast<A>(to_float(x));
}

// `count` rows of `dim` elements, `stride` apart, times `factor`; each padded with zeros to `padded`.
template <class A, class T>
void bring_rows(const T* from, int64_t stride, int64_t count, int64_t dim, A factor, A* to, int64_t padded) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < dim; ++i) to[r * padded + i] = element<A>(from[r * stride + i]) * factor;
    for (int64_t i = dim; i < padded; ++i) to[r * padded + i] = A(0);
  }
}

// The same transposed: to[i * kBlockKeys + r], zeros for count <= r < kBlockKeys.
template <class A, class T>
void bring_columns(const T* from, int64_t stride, int64_t count, int64_t dim, A* to) {
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < dim; ++i) to[i * kBlockKeys + r] = element<A>(from[r * stride + i]);
  }
  for (int64_t i = 0; i < dim; ++i) {
    for (int64_t r = count; r < kBlockKeys; ++r) to[i * kBlockKeys + r] = A(0);
  }
}

template <class A, class M>
void add_mask_row(const M* mask, int64_t stride, int64_t count, A* scores) {
  for (int64_t j = 0; j < count; ++j) scores[j] += element<A>(mask[j * stride]);
}

// `mask` points at the row's first key; kinds as in AttentionArgs, T being the type of kind 2.
template <class A, class T>
void mask_row(const void* mask, int kind, int64_t stride, int64_t count, A* scores) {
  if (kind == 1) {
    const uint8_t* keep = static_cast<const uint8_t*>(mask);
    for (int64_t j = 0; j < count; ++j) scores[j] = keep[j * stride] != 0 ? scores[j] : kMinusInfinity<A>;
  } else if (kind == 2) {
    add_mask_row(static_cast<const T*>(mask), stride, count, scores);
  } else if (kind == 3) {
    add_mask_row(static_cast<const float*>(mask), stride, count, scores);
  }
}

// The row's mask at key j, null without one.
template <class T>
const void* mask_at(const void* mask, int kind, const int64_t strides[4], int64_t item, int64_t head, int64_t i,
                    int64_t j) {
  if (mask == nullptr || kind == 0) return nullptr;
  const size_t size = kind == 1 ? 1 : kind == 3 ? 4 : sizeof(T);
  const int64_t at = item * strides[0] + head * strides[1] + i * strides[2] + j * strides[3];
  return static_cast<const char*>(mask) + at * static_cast<int64_t>(size);
}

// x[j] = exp(x[j] - top) for j < count, a multiple of the vector width; the arguments are about 0 or less.
inline void exponentials(float* x, int64_t count, float top) {
  const vf shift = vset(top);
  for (int64_t j = 0; j < count; j += kWidth) store(x + j, vexp_nonpositive(load(x + j) - shift));
}
inline void exponentials(double* x, int64_t count, double top) {
  for (int64_t j = 0; j < count; ++j) x[j] = std::exp(x[j] - top);
}

}  // namespace aotpack::kernels
