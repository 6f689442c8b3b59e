// Small squares of elements, transposed in registers; elements are moved, whatever they mean.
#pragma once

#include <cstdint>

namespace aotpack::kernels::detail {

// Square<T>::move(from, fs, to): to(c)[r] = from[r * fs + c] for r, c < side, where to(c) is the address of row c.
template <class T>
struct Square {
  static constexpr int64_t side = 1;
  template <class To>
  static void move(const T* from, int64_t, const To& to) {
    *to(0) = *from;
  }
};

#if defined(__AVX__)
using u32x8 = uint32_t __attribute__((vector_size(32)));
typedef uint32_t u32x8_mem __attribute__((vector_size(32), aligned(4), may_alias));
static_assert(alignof(u32x8_mem) == 4);
template <>
struct Square<uint32_t> {
  static constexpr int64_t side = 8;
  template <class To>
  static void move(const uint32_t* from, int64_t fs, const To& to) {
    u32x8 a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const u32x8_mem*>(from + i * fs);
    for (int i = 0; i < 8; i += 2) {  // pairs of rows, then fours, then eights; within each half of a register
      b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        a[i + 2 * j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 2 * j + 1] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      }
    }
    for (int i = 0; i < 4; ++i) {
      *reinterpret_cast<u32x8_mem*>(to(i)) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
      *reinterpret_cast<u32x8_mem*>(to(i + 4)) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
  }
};
#else
using u32x4 = uint32_t __attribute__((vector_size(16)));
typedef uint32_t u32x4_mem __attribute__((vector_size(16), aligned(4), may_alias));
static_assert(alignof(u32x4_mem) == 4);
template <>
struct Square<uint32_t> {
  static constexpr int64_t side = 4;
  template <class To>
  static void move(const uint32_t* from, int64_t fs, const To& to) {
    u32x4 a[4];
    for (int i = 0; i < 4; ++i) a[i] = *reinterpret_cast<const u32x4_mem*>(from + i * fs);
    const u32x4 ab = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5),
                cd = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    const u32x4 ef = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7),
                gh = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    *reinterpret_cast<u32x4_mem*>(to(0)) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *reinterpret_cast<u32x4_mem*>(to(1)) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *reinterpret_cast<u32x4_mem*>(to(2)) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    *reinterpret_cast<u32x4_mem*>(to(3)) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
  }
};
#endif

using u16x8 = uint16_t __attribute__((vector_size(16)));
typedef uint16_t u16x8_mem __attribute__((vector_size(16), aligned(2), may_alias));
static_assert(alignof(u16x8_mem) == 2);
template <>
struct Square<uint16_t> {
  static constexpr int64_t side = 8;
  template <class To>
  static void move(const uint16_t* from, int64_t fs, const To& to) {
    u16x8 a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = *reinterpret_cast<const u16x8_mem*>(from + i * fs);
    for (int round = 0; round < 3; ++round) {  // three perfect shuffles make a transposition
      for (int i = 0; i < 4; ++i) {
        b[2 * i] = __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
        b[2 * i + 1] = __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
      }
      for (int i = 0; i < 8; ++i) a[i] = b[i];
    }
    for (int i = 0; i < 8; ++i) *reinterpret_cast<u16x8_mem*>(to(i)) = a[i];
  }
};

}  // namespace aotpack::kernels::detail
