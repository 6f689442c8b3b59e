// at::vec's vectors of float, double, int32_t and int64_t.
#pragma once

#include <stdint.h>

#include "lanes.h"

namespace at::vec {

namespace own = aotpack::generated;

template <typename T>
struct Vectorized {
  using value_type = T;
  static constexpr int size() { return own::Lanes<T>::kCount; }

  own::Vector<T> values;

  Vectorized() : values{} {}
  Vectorized(own::Vector<T> x) : values(x) {}
  // Not the sum with 0, which is 0.f for -0.f.
  Vectorized(T x) : values(x - own::Vector<T>{}) {}

  static Vectorized loadu(const void* from, int64_t count = size()) {
    if (count != size()) return own::load(static_cast<const T*>(from), own::first<T>(count));
    Vectorized x;
    __builtin_memcpy(&x.values, from, sizeof(x.values));
    return x;
  }
  void store(void* to, int64_t count = size()) const {
    if (count == size())
      __builtin_memcpy(to, &values, sizeof(values));
    else if (count > 0)
      own::store(static_cast<T*>(to), own::first<T>(count), values);
  }

  static Vectorized blendv(Vectorized a, Vectorized b, Vectorized mask) { return mask.chosen() ? b.values : a.values; }
  // b in the first elements.
  static Vectorized set(Vectorized a, Vectorized b, int64_t count = size()) {
    return count == size() ? b : Vectorized(own::first<T>(count) ? b.values : a.values);
  }
  template <typename Step>
  static Vectorized arange(T base, Step step) {
    if constexpr (!own::kFloat<T> && !own::kFloat<Step>) return own::iota<T>() * T(step) + base;
    Vectorized x;
    for (int i = 0; i < size(); ++i) x.values[i] = base + i * step;
    return x;
  }

  // Of a mask: the elements that it selects.
  own::Mask<T> chosen() const { return bits() < 0; }
  own::Mask<T> bits() const { return (own::Mask<T>)values; }
  static Vectorized of(own::Mask<T> bits) { return (own::Vector<T>)bits; }

  Vectorized operator==(Vectorized b) const { return of(values == b.values); }
  Vectorized operator!=(Vectorized b) const { return of(values != b.values); }
  Vectorized operator<(Vectorized b) const { return of(values < b.values); }
  Vectorized operator<=(Vectorized b) const { return of(values <= b.values); }
  Vectorized operator>(Vectorized b) const { return of(values > b.values); }
  Vectorized operator>=(Vectorized b) const { return of(values >= b.values); }
  Vectorized isnan() const { return of(values != values); }
  Vectorized neg() const {
    if constexpr (!own::kFloat<T>) return -values;
    return of(bits() ^ sign());
  }
  Vectorized abs() const {
    if constexpr (!own::kFloat<T>) return values < 0 ? -values : values;
    return of(bits() & ~sign());
  }
  Vectorized reciprocal() const { return Vectorized(T(1)) / *this; }
  // Defined in functions.h, of floats.
  Vectorized exp() const;
  Vectorized expm1() const;
  Vectorized log() const;
  Vectorized log1p() const;
  Vectorized sin() const;
  Vectorized cos() const;
  Vectorized tanh() const;
  Vectorized sqrt() const;
  Vectorized rsqrt() const;

 private:
  static own::Mask<T> sign() {
    using I = typename own::Signed<T>::type;
    return own::Mask<T>{} + I(I(1) << (8 * sizeof(I) - 2)) * 2;
  }
};

#define AOTPACK_OPERATOR(sign, result)                                   \
  template <typename T>                                                  \
  inline Vectorized<T> operator sign(Vectorized<T> a, Vectorized<T> b) { \
    return result;                                                       \
  }
AOTPACK_OPERATOR(+, a.values + b.values)
AOTPACK_OPERATOR(-, a.values - b.values)
AOTPACK_OPERATOR(*, a.values* b.values)
AOTPACK_OPERATOR(&, Vectorized<T>::of(a.bits() & b.bits()))
AOTPACK_OPERATOR(|, Vectorized<T>::of(a.bits() | b.bits()))
AOTPACK_OPERATOR(^, Vectorized<T>::of(a.bits() ^ b.bits()))
#undef AOTPACK_OPERATOR
template <typename T>
inline Vectorized<T> operator/(Vectorized<T> a, Vectorized<T> b) {
  static_assert(own::kFloat<T>, "of floats");
  return a.values / b.values;
}
template <typename T>
inline Vectorized<T> operator~(Vectorized<T> a) {
  return Vectorized<T>::of(~a.bits());
}

// These two keep NaN.
template <typename T>
inline Vectorized<T> maximum(Vectorized<T> a, Vectorized<T> b) {
  const own::Vector<T> greater = a.values > b.values ? a.values : b.values;
  if constexpr (!own::kFloat<T>) return greater;
  return Vectorized<T>(greater) | (Vectorized<T>(a).isnan() | b.isnan());
}
template <typename T>
inline Vectorized<T> minimum(Vectorized<T> a, Vectorized<T> b) {
  const own::Vector<T> smaller = a.values < b.values ? a.values : b.values;
  if constexpr (!own::kFloat<T>) return smaller;
  return Vectorized<T>(smaller) | (Vectorized<T>(a).isnan() | b.isnan());
}
// As the instructions do: where one is NaN, the value.
template <typename T>
inline Vectorized<T> clamp_min(Vectorized<T> a, Vectorized<T> low) {
  return low.values > a.values ? low.values : a.values;
}
template <typename T>
inline Vectorized<T> clamp_max(Vectorized<T> a, Vectorized<T> high) {
  return high.values < a.values ? high.values : a.values;
}

// Several in a row.
template <typename T, int N>
struct VectorizedN {
  using value_type = T;
  static constexpr int kEach = Vectorized<T>::size();
  static constexpr int size() { return kEach * N; }

  Vectorized<T> parts[N];

  VectorizedN() = default;
  explicit VectorizedN(T x) {
    for (int i = 0; i < N; ++i) parts[i] = Vectorized<T>(x);
  }
  Vectorized<T>& operator[](int i) { return parts[i]; }
  const Vectorized<T>& operator[](int i) const { return parts[i]; }

  static VectorizedN loadu(const void* from, int64_t count = size()) {
    VectorizedN x;
    for (int i = 0; i < N; ++i, count -= kEach) {
      const T* part = static_cast<const T*>(from) + i * kEach;
      // The value of those behind is at::vec's.
      x.parts[i] = count > 0 ? Vectorized<T>::loadu(part, count < kEach ? count : kEach) : Vectorized<T>(T(1));
    }
    return x;
  }
  void store(void* to, int64_t count = size()) const {
    for (int i = 0; i < N && count > 0; ++i, count -= kEach)
      parts[i].store(static_cast<T*>(to) + i * kEach, count < kEach ? count : kEach);
  }
  template <typename Step>
  static VectorizedN arange(T base, Step step) {
    VectorizedN x;
    for (int i = 0; i < N; ++i, base += step * kEach) x.parts[i] = Vectorized<T>::arange(base, step);
    return x;
  }
  static VectorizedN blendv(const VectorizedN& a, const VectorizedN& b, const VectorizedN& mask) {
    VectorizedN x;
    for (int i = 0; i < N; ++i) x.parts[i] = Vectorized<T>::blendv(a.parts[i], b.parts[i], mask.parts[i]);
    return x;
  }

#define AOTPACK_EACH(name)                                    \
  VectorizedN name() const {                                  \
    VectorizedN x;                                            \
    for (int i = 0; i < N; ++i) x.parts[i] = parts[i].name(); \
    return x;                                                 \
  }
  AOTPACK_EACH(isnan)
  AOTPACK_EACH(neg)
  AOTPACK_EACH(abs)
  AOTPACK_EACH(reciprocal)
#undef AOTPACK_EACH

  static VectorizedN set(const VectorizedN& a, const VectorizedN& b, int64_t count = size()) {
    VectorizedN x;
    for (int i = 0; i < N; ++i, count -= kEach)
      x.parts[i] = count <= 0 ? a.parts[i] : Vectorized<T>::set(a.parts[i], b.parts[i], count < kEach ? count : kEach);
    return x;
  }
};

#define AOTPACK_EACH(name)                                                                \
  template <typename T, int N>                                                            \
  inline VectorizedN<T, N> name(const VectorizedN<T, N>& a, const VectorizedN<T, N>& b) { \
    VectorizedN<T, N> x;                                                                  \
    for (int i = 0; i < N; ++i) x.parts[i] = name(a.parts[i], b.parts[i]);                \
    return x;                                                                             \
  }
#define AOTPACK_EACH_SIGN(sign)                                                                    \
  template <typename T, int N>                                                                     \
  inline VectorizedN<T, N> operator sign(const VectorizedN<T, N>& a, const VectorizedN<T, N>& b) { \
    VectorizedN<T, N> x;                                                                           \
    for (int i = 0; i < N; ++i) x.parts[i] = a.parts[i] sign b.parts[i];                           \
    return x;                                                                                      \
  }
AOTPACK_EACH_SIGN(+)
AOTPACK_EACH_SIGN(-)
AOTPACK_EACH_SIGN(*)
AOTPACK_EACH_SIGN(/)
AOTPACK_EACH_SIGN(&)
AOTPACK_EACH_SIGN(|)
AOTPACK_EACH_SIGN(^)
AOTPACK_EACH_SIGN(==)
AOTPACK_EACH_SIGN(!=)
AOTPACK_EACH_SIGN(<)
AOTPACK_EACH_SIGN(<=)
AOTPACK_EACH_SIGN(>)
AOTPACK_EACH_SIGN(>=)
AOTPACK_EACH(maximum)
AOTPACK_EACH(minimum)
AOTPACK_EACH(clamp_min)
AOTPACK_EACH(clamp_max)
#undef AOTPACK_EACH
#undef AOTPACK_EACH_SIGN

// The elements as another type.
template <typename To, int M, typename From, int N>
inline auto convert(const VectorizedN<From, N>& x) {
  static_assert(VectorizedN<To, M>::size() == VectorizedN<From, N>::size(), "at::vec has rules for others");
  VectorizedN<To, M> to;
  if constexpr (M == N) {
    for (int i = 0; i < N; ++i) to[i] = __builtin_convertvector(x[i].values, own::Vector<To>);
  } else if constexpr (M > N) {
    for (int i = 0; i < N; ++i) {
      to[2 * i] = __builtin_convertvector(own::half<0>(x[i].values), own::Vector<To>);
      to[2 * i + 1] = __builtin_convertvector(own::half<1>(x[i].values), own::Vector<To>);
    }
  } else {
    using Half = typename own::Lanes<To, own::kBytes / 2>::Vector;
    for (int i = 0; i < M; ++i) {
      to[i] = own::joined(__builtin_convertvector(x[2 * i].values, Half),
                          __builtin_convertvector(x[2 * i + 1].values, Half));
    }
  }
  if constexpr (M == 1)
    return to[0];
  else
    return to;
}
template <typename To, int M, typename From, int N>
inline auto convert(Vectorized<From> x) {
  VectorizedN<From, 1> one;
  one[0] = x;
  return convert<To, M, From, 1>(one);
}

template <typename To, typename From>
inline Vectorized<To> convert(Vectorized<From> x) {
  return convert<To, 1, From, 1>(x);
}

template <int Distance, typename T, int... I>
inline Vectorized<T> swapped(Vectorized<T> x, own::Indices<I...>) {
  return own::shuffled<own::Vector<T>, (I ^ Distance)...>(x.values, x.values);
}
template <int Distance, typename T, typename Combine>
inline Vectorized<T> halved(Combine combine, Vectorized<T> x) {
  Vectorized<T> y = swapped<Distance>(x, typename own::Range<own::Lanes<T>::kCount>::type{});
  x = combine(x, y);
  if constexpr (Distance > 1) return halved<Distance / 2>(combine, x);
  return x;
}

// All elements combined, halves with halves: the order of at::vec for floats.
template <typename T, int N, typename Combine>
inline T vec_reduce_all(Combine combine, Vectorized<T> x) {
  static_assert(sizeof(T) == 4 && N == 1, "at::vec has another order");
  return halved<own::Lanes<T>::kCount / 2>(combine, x).values[0];
}

}  // namespace at::vec
