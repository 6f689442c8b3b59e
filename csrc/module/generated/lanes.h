// A register of the target, as GCC's vector extension has it, and how a part of one moves.
#pragma once

#include <stdint.h>

namespace aotpack::generated {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kBytes = 64;
#else
inline constexpr int kBytes = 32;
#endif
#define __at_align__ __attribute__((aligned(aotpack::generated::kBytes)))

template <typename T>
inline constexpr bool kFloat = T(0.5) != T(0);

// The integers of a size.
template <typename T>
struct Signed;
template <>
struct Signed<float> {
  using type = int32_t;
};
template <>
struct Signed<double> {
  using type = int64_t;
};
template <>
struct Signed<int8_t> {
  using type = int8_t;
};
template <>
struct Signed<int32_t> {
  using type = int32_t;
};
template <>
struct Signed<int64_t> {
  using type = int64_t;
};

// Wrapped in structs: a bare vector type loses its attributes as a template's argument.
template <typename T, int Bytes = kBytes>
struct Lanes {
  typedef T Vector __attribute__((vector_size(Bytes)));
  // What comparisons return: all bits set, or none.
  typedef typename Signed<T>::type Mask __attribute__((vector_size(Bytes)));
  static constexpr int kCount = Bytes / int(sizeof(T));
};

template <typename T>
using Vector = typename Lanes<T>::Vector;
template <typename T>
using Mask = typename Lanes<T>::Mask;

// The elements of `Vector` with these indices.
template <typename V, int... Index>
inline V shuffled(V x, V y) {
  return __builtin_shufflevector(x, y, Index...);
}

template <int...>
struct Indices {};
template <int Count>
struct Range {
  template <int... I>
  static Indices<I...> of(Indices<I...>);
  using type = Indices<__integer_pack(Count)...>;
};

// Two halves side by side.
template <typename Half, int... I>
inline auto joined(Half low, Half high, Indices<I...>) {
  return __builtin_shufflevector(low, high, I...);
}
template <typename T>
inline auto joined(T low, T high) {
  return joined(low, high, typename Range<2 * int(sizeof(T) / sizeof(low[0]))>::type{});
}

// The half of x that begins at element `First`.
template <int First, typename V, int... I>
inline auto half(V x, Indices<I...>) {
  return __builtin_shufflevector(x, x, (First + I)...);
}

// The lower (Part 0) or upper half (1).
template <int Part, typename V>
inline auto half(V x) {
  constexpr int count = int(sizeof(V) / sizeof(x[0])) / 2;
  return half<Part * count>(x, typename Range<count>::type{});
}

// Loads and stores the elements that `mask` selects, and touches no other memory; others are read as 0.
#if defined(CPU_CAPABILITY_AVX512)
inline auto bits_of(Mask<int32_t> mask) { return __builtin_ia32_cvtd2mask512(mask); }
inline auto bits_of(Mask<int64_t> mask) {
  typedef long long Words __attribute__((vector_size(kBytes)));
  return __builtin_ia32_cvtq2mask512((Words)mask);
}
#define AOTPACK_PARTS(type, word, suffix)                                                                  \
  inline Vector<type> load(const type* from, Mask<type> mask) {                                            \
    typedef word Words __attribute__((vector_size(kBytes)));                                               \
    return (Vector<type>)__builtin_ia32_load##suffix##512_mask((const word*)from, Words{}, bits_of(mask)); \
  }                                                                                                        \
  inline void store(type* to, Mask<type> mask, Vector<type> x) {                                           \
    typedef word Words __attribute__((vector_size(kBytes)));                                               \
    __builtin_ia32_store##suffix##512_mask((word*)to, (Words)x, bits_of(mask));                            \
  }
AOTPACK_PARTS(float, float, ups)
AOTPACK_PARTS(double, double, upd)
AOTPACK_PARTS(int32_t, int, dqusi)
AOTPACK_PARTS(int64_t, long long, dqudi)
#else
#define AOTPACK_PARTS(type, word, integer, suffix)                                                 \
  inline Vector<type> load(const type* from, Mask<type> mask) {                                    \
    typedef word Words __attribute__((vector_size(kBytes)));                                       \
    typedef integer Integers __attribute__((vector_size(kBytes)));                                 \
    return (Vector<type>)__builtin_ia32_maskload##suffix##256((const Words*)from, (Integers)mask); \
  }                                                                                                \
  inline void store(type* to, Mask<type> mask, Vector<type> x) {                                   \
    typedef word Words __attribute__((vector_size(kBytes)));                                       \
    typedef integer Integers __attribute__((vector_size(kBytes)));                                 \
    __builtin_ia32_maskstore##suffix##256((Words*)to, (Integers)mask, (Words)x);                   \
  }
AOTPACK_PARTS(float, float, int, ps)
AOTPACK_PARTS(double, double, long long, pd)
AOTPACK_PARTS(int32_t, int, int, d)
AOTPACK_PARTS(int64_t, long long, long long, q)
#endif
#undef AOTPACK_PARTS

// 0, 1, 2, …
template <typename T, int... I>
inline Vector<T> iota(Indices<I...>) {
  return Vector<T>{T(I)...};
}
template <typename T>
inline Vector<T> iota() {
  return iota<T>(typename Range<Lanes<T>::kCount>::type{});
}

// Selects the first elements.
template <typename T>
inline Mask<T> first(int64_t count) {
  using I = typename Signed<T>::type;
  return iota<I>() < (Vector<I>{} + I(count));
}

}  // namespace aotpack::generated
