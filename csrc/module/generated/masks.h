// at::vec's masks: vectors whose elements have all bits set or none.
#pragma once

#include <stdint.h>

#include "lanes.h"
#include "vectors.h"

namespace at::vec {

template <typename T, int N>
struct VecMask {
  static constexpr int kEach = Vectorized<T>::size();
  static constexpr int size() { return kEach * N; }

  own::Mask<T> parts[N];

  VecMask() : parts{} {}
  VecMask(const VectorizedN<T, N>& mask) {
    for (int i = 0; i < N; ++i) parts[i] = mask[i].bits();
  }
  VecMask(Vectorized<T> mask) : parts{mask.bits()} { static_assert(N == 1); }

  // Selects all elements, or none.
  static VecMask from(bool chosen) {
    VecMask mask;
    for (auto& part : mask.parts) part = own::Mask<T>{} - chosen;
    return mask;
  }
  static VecMask from(int chosen) { return from(chosen != 0); }
  // Selects those that are not 0.
  template <typename U, int M>
  static VecMask from(const VectorizedN<U, M>& x) {
    return VecMask<U, M>(x != VectorizedN<U, M>(U(0))).template cast<T, N>();
  }
  template <typename U>
  static VecMask from(Vectorized<U> x) {
    return VecMask<U, 1>(x != Vectorized<U>(U(0))).template cast<T, N>();
  }
  static VecMask from(const bool* chosen, int count = size()) {
    VecMask mask;
    for (int i = 0; i < count; ++i) mask.parts[i / kEach][i % kEach] = -static_cast<int>(chosen[i]);
    return mask;
  }
  static VecMask set(const VecMask& a, const VecMask& b, int64_t count = size()) {
    VecMask mask;
    for (int i = 0; i < N; ++i, count -= kEach) {
      const int64_t own = count < 0 ? 0 : count < kEach ? count : kEach;
      mask.parts[i] = own::first<T>(own) ? b.parts[i] : a.parts[i];
    }
    return mask;
  }
  static VecMask blendv(const VecMask& a, const VecMask& b, const VecMask& chosen) {
    VecMask mask;
    for (int i = 0; i < N; ++i) mask.parts[i] = chosen.parts[i] < 0 ? b.parts[i] : a.parts[i];
    return mask;
  }

  template <typename U, int M>
  VecMask<U, M> cast() const {
    VecMask<U, M> to;
    static_assert(to.size() == size(), "at::vec has rules for others");
    if constexpr (sizeof(U) == sizeof(T)) {
      for (int i = 0; i < N; ++i) to.parts[i] = (own::Mask<U>)parts[i];
    } else if constexpr (sizeof(U) > sizeof(T)) {
      for (int i = 0; i < N; ++i) {
        to.parts[2 * i] = __builtin_convertvector(own::half<0>(parts[i]), own::Mask<U>);
        to.parts[2 * i + 1] = __builtin_convertvector(own::half<1>(parts[i]), own::Mask<U>);
      }
    } else {
      using Half = typename own::Lanes<typename own::Signed<U>::type, own::kBytes / 2>::Vector;
      for (int i = 0; i < M; ++i) {
        to.parts[i] =
            own::joined(__builtin_convertvector(parts[2 * i], Half), __builtin_convertvector(parts[2 * i + 1], Half));
      }
    }
    return to;
  }

  operator VectorizedN<T, N>() const {
    VectorizedN<T, N> x;
    for (int i = 0; i < N; ++i) x[i] = Vectorized<T>::of(parts[i]);
    return x;
  }
  operator Vectorized<T>() const {
    static_assert(N == 1);
    return Vectorized<T>::of(parts[0]);
  }

  // 1 where an element is selected.
  template <typename U, int M>
  auto to() const {
    const VecMask<U, M> mask = cast<U, M>();
    VectorizedN<U, M> x;
    for (int i = 0; i < M; ++i) x[i] = mask.parts[i] ? Vectorized<U>(U(1)).values : Vectorized<U>(U(0)).values;
    if constexpr (M == 1)
      return x[0];
    else
      return x;
  }
  void store(bool* to, int64_t count = size()) const {
    for (int i = 0; i < N && count > 0; ++i, count -= kEach) {
      const Bytes ones = bytes(i) & 1;
      if (count >= kEach)
        __builtin_memcpy(to + i * kEach, &ones, sizeof(ones));
      else
        for (int each = 0; each < count; ++each) to[i * kEach + each] = ones[each];
    }
  }
  bool all_masked() const {
    Bytes all = bytes(0);
    for (int i = 1; i < N; ++i) all &= bytes(i);
    return none(~all);
  }
  bool all_zero() const {
    Bytes any = bytes(0);
    for (int i = 1; i < N; ++i) any |= bytes(i);
    return none(any);
  }

  bool is_masked(int i) const { return parts[i / kEach][i % kEach] != 0; }

  // The selected elements of what is at `from`; no other memory is read.
  template <typename U, int M>
  auto loadu(const U* from) const {
    const VecMask<U, M> mask = cast<U, M>();
    VectorizedN<U, M> x;
    for (int i = 0; i < M; ++i) x[i] = own::load(from + i * Vectorized<U>::size(), mask.parts[i]);
    if constexpr (M == 1)
      return x[0];
    else
      return x;
  }

 private:
  // A byte for each element.
  using Bytes = typename own::Lanes<int8_t, own::Lanes<T>::kCount>::Vector;
  Bytes bytes(int part) const { return __builtin_convertvector(parts[part], Bytes); }
  static bool none(Bytes bytes) {
    int8_t together = 0;
    for (int i = 0; i < kEach; ++i) together |= bytes[i];
    return together == 0;
  }
};

#define AOTPACK_OPERATOR(sign)                                                         \
  template <typename T, int N, typename U, int M>                                      \
  inline VecMask<T, N> operator sign(const VecMask<T, N>& a, const VecMask<U, M>& b) { \
    const VecMask<T, N> second = b.template cast<T, N>();                              \
    VecMask<T, N> mask;                                                                \
    for (int i = 0; i < N; ++i) mask.parts[i] = a.parts[i] sign second.parts[i];       \
    return mask;                                                                       \
  }
AOTPACK_OPERATOR(&)
AOTPACK_OPERATOR(|)
AOTPACK_OPERATOR(^)
#undef AOTPACK_OPERATOR
template <typename T, int N>
inline VecMask<T, N> operator~(const VecMask<T, N>& a) {
  VecMask<T, N> mask;
  for (int i = 0; i < N; ++i) mask.parts[i] = ~a.parts[i];
  return mask;
}

}  // namespace at::vec

// a with the first elements of b.
#define AOTPACK_REDUCE(name, result, of_masks)                                                                     \
  template <typename T>                                                                                            \
  inline T name(const T& a, const T& b, int64_t count) {                                                           \
    return T::set(a, result, count);                                                                               \
  }                                                                                                                \
  inline at::vec::VecMask<float, 1> name(const at::vec::VecMask<float, 1>& a, const at::vec::VecMask<float, 1>& b, \
                                         int64_t count) {                                                          \
    return at::vec::VecMask<float, 1>::set(a, of_masks, count);                                                    \
  }
AOTPACK_REDUCE(sum_masked_reduce, a + b, a | b)
AOTPACK_REDUCE(max_masked_reduce, at::vec::maximum(a, b), a | b)
AOTPACK_REDUCE(min_masked_reduce, at::vec::minimum(a, b), a& b)
#undef AOTPACK_REDUCE
