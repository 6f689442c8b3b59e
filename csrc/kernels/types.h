// Element types, activations and small helpers that all kernels share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "half.h"

namespace aotpack::kernels {

// The numbers are those of module_abi.h.
enum class DType : int32_t { f16 = 5, f32 = 6, bf16 = 15 };

// Applied to the finished sum, in float. Definitions as in torch.nn.functional.
enum class Act : int32_t {
  none = 0,
  relu = 1,
  gelu = 2,  // 0.5 x (1 + erf(x / sqrt 2))
  gelu_tanh = 3,
  silu = 4,
  sigmoid = 5,
  tanh = 6,
  hardswish = 7,
  relu6 = 8,
  hardsigmoid = 9
};

// Columns of a packed panel: `packed[ceil(N/32)][K][32]`, the same for all targets.
inline constexpr int64_t kPanel = 32;

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;

inline constexpr size_t dtype_size(DType dtype) { return dtype == DType::f32 ? 4 : 2; }
inline constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
inline constexpr int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
inline constexpr int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

// `index` elements past `base`; null stays null.
inline const void* advance(const void* base, int64_t index, DType dtype) {
  return base == nullptr ? nullptr : static_cast<const char*>(base) + index * static_cast<int64_t>(dtype_size(dtype));
}
inline void* advance(void* base, int64_t index, DType dtype) {
  return base == nullptr ? nullptr : static_cast<char*>(base) + index * static_cast<int64_t>(dtype_size(dtype));
}

// Hands out 64-byte aligned pieces of a caller's scratch block. With a null base it only counts.
class Scratch {
 public:
  explicit Scratch(void* base) : begin_(reinterpret_cast<uintptr_t>(base)), next_(round64(begin_)) {}
  template <class T>
  T* take(int64_t count) {
    T* piece = begin_ == 0 ? nullptr : reinterpret_cast<T*>(next_);
    next_ = round64(next_ + static_cast<size_t>(count) * sizeof(T));
    return piece;
  }
  // What the caller must provide; the slack lets it be aligned in any way.
  size_t bytes() const { return next_ - begin_ + 64; }

 private:
  static uintptr_t round64(uintptr_t at) { return (at + 63) & ~static_cast<uintptr_t>(63); }
  uintptr_t begin_;
  uintptr_t next_;
};

}  // namespace aotpack::kernels
