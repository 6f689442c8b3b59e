// Random data, dtype-agnostic buffers and comparison for the kernel tests.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "element_types.h"

namespace aotpack::kernels::test {

inline std::mt19937& rng() {
  static std::mt19937 generator(20240611);
  return generator;
}
inline int64_t pick(std::initializer_list<int64_t> values) {
  return *(values.begin() + std::uniform_int_distribution<size_t>(0, values.size() - 1)(rng()));
}
inline int64_t pick_in(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(rng()); }
inline bool coin() { return pick_in(0, 1) == 1; }
inline float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(rng()); }

inline constexpr DType kDTypes[] = {DType::f32, DType::bf16, DType::f16};
inline const char* dtype_name(DType dtype) {
  return dtype == DType::f32 ? " f32" : dtype == DType::bf16 ? " bf16" : " f16";
}

// `size` elements of any dtype that start `offset` elements after the allocation, so at odd addresses too.
// Exactly sized, so that the address sanitizer sees every element read or written beyond the end.
class Buffer {
 public:
  Buffer() : Buffer(DType::f32, 0) {}
  Buffer(DType dtype, int64_t size, int64_t offset = 0)
      : dtype_(dtype), offset_(offset), size_(size), bytes_(static_cast<size_t>(size + offset) * dtype_size(dtype)) {}
  static Buffer random(DType dtype, int64_t size, int64_t offset = 0, float low = -1, float high = 1) {
    Buffer b(dtype, size, offset);
    b.assign([&] { return uniform(low, high); });
    return b;
  }
  static Buffer filled(DType dtype, int64_t size, float value, int64_t offset = 0) {
    Buffer b(dtype, size, offset);
    b.assign([&] { return value; });
    return b;
  }
  float get(int64_t i) const {
    if (i < 0 || i >= size_) FAIL("element ", i, " of ", size_);
    return with_type(dtype_, [&]<class T>() {
      T v;
      std::memcpy(&v, at(i), sizeof v);
      return to_float(v);
    });
  }
  void set(int64_t i, float value) {
    with_type(dtype_, [&]<class T>() {
      T v;
      from_float(value, &v);
      std::memcpy(at(i), &v, sizeof v);
    });
  }
  // All elements.
  std::vector<double> numbers() const {
    std::vector<double> all(static_cast<size_t>(size_));
    with_type(dtype_, [&]<class T>() {
      for (int64_t i = 0; i < size_; ++i) {
        T v;
        std::memcpy(&v, at(i), sizeof v);
        all[static_cast<size_t>(i)] = to_float(v);
      }
    });
    return all;
  }
  void* data() { return at(0); }
  const void* data() const { return const_cast<Buffer*>(this)->at(0); }
  int64_t size() const { return size_; }
  DType dtype() const { return dtype_; }

 private:
  template <class Next>
  void assign(const Next& next) {
    with_type(dtype_, [&]<class T>() {
      for (int64_t i = 0; i < size_; ++i) {
        T v;
        from_float(next(), &v);
        std::memcpy(at(i), &v, sizeof v);
      }
    });
  }
  char* at(int64_t i) { return bytes_.data() + static_cast<size_t>(offset_ + i) * dtype_size(dtype_); }
  const char* at(int64_t i) const { return const_cast<Buffer*>(this)->at(i); }
  DType dtype_;
  int64_t offset_, size_;
  std::vector<char> bytes_;
};

// Rows of `c` elements, `step` apart: what is between them is NaN, and nothing comes after the last.
inline Buffer spread_rows(const Buffer& rows, int64_t c, int64_t step, int64_t offset) {
  const int64_t count = c == 0 ? 0 : rows.size() / c;
  Buffer spread = Buffer::filled(rows.dtype(), count == 0 ? 0 : (count - 1) * step + c, NAN, offset);
  for (int64_t i = 0; i < count * c; ++i) spread.set(i / c * step + i % c, rows.get(i));
  return spread;
}

inline double reference_act(Act act, double x) {
  const auto relu6 = [](double v) { return std::min(std::max(v, 0.0), 6.0); };
  switch (act) {
    case Act::none:
      return x;
    case Act::relu:
      return std::max(x, 0.0);
    case Act::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Act::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Act::silu:
      return x / (1 + std::exp(-x));
    case Act::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Act::tanh:
      return std::tanh(x);
    case Act::hardswish:
      return x * relu6(x + 3) / 6;
    case Act::relu6:
      return relu6(x);
    case Act::hardsigmoid:
      return relu6(x + 3) / 6;
  }
  return x;
}
inline Act random_act() { return static_cast<Act>(pick_in(0, 9)); }
inline DType random_dtype() { return kDTypes[pick_in(0, 2)]; }

// How far a result may be from the exact one: float sums of `terms` products of magnitude up to 1, then rounding to
// dtype.
inline double tolerance(DType dtype, double expected, double terms) {
  const double sum = 1e-6 * (4 + terms);
  const double relative = dtype == DType::f32 ? 2e-6 : dtype == DType::bf16 ? 1 / 250.0 : 1 / 2000.0;
  return sum + relative * std::abs(expected);
}
inline bool close(double got, double expected, double allowed) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  return std::abs(got - expected) <= allowed;
}

}  // namespace aotpack::kernels::test
