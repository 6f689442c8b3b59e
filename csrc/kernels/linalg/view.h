// Strided views of matrices, memory to work in, and loops over vectors.
#pragma once

#include <algorithm>

#include "kernels/linalg/numbers.h"

namespace aotpack::linalg {

// rows x cols elements at data[i * rs + j * cs]; `conjugate` has them read as their conjugates, and is for reading.
template <typename T>
struct View {
  T* data;
  int64_t rows, cols, rs, cs;
  bool conjugate = false;

  T& operator()(int64_t i, int64_t j) const { return data[i * rs + j * cs]; }
  std::remove_const_t<T> get(int64_t i, int64_t j) const {
    const std::remove_const_t<T> x = data[i * rs + j * cs];
    return conjugate ? conj(x) : x;
  }
  T* column(int64_t j) const { return data + j * cs; }
  View block(int64_t i, int64_t j, int64_t m, int64_t n) const {
    // An empty block may begin beyond the end, where a pointer must not be made.
    return {m == 0 || n == 0 ? data : data + i * rs + j * cs, m, n, rs, cs, conjugate};
  }
  View transposed() const { return {data, cols, rows, cs, rs, conjugate}; }
  View adjoint() const { return {data, cols, rows, cs, rs, is_complex<std::remove_const_t<T>> && !conjugate}; }
  View<const T> reading() const { return {data, rows, cols, rs, cs, conjugate}; }
};

// A column-major view.
template <typename T>
View<T> columns(T* data, int64_t rows, int64_t cols) {
  return {data, rows, cols, 1, std::max<int64_t>(rows, 1)};
}

// Memory that algorithms take their workspace from. They state how much they need; one that needs more is a bug.
class Arena {
 public:
  Arena(void* memory, int64_t bytes) : next_(static_cast<char*>(memory)), end_(next_ + bytes) {}
  template <typename T>
  T* take(int64_t count) {
    char* taken = next_;
    const int64_t bytes = room<T>(count);
    if (bytes > end_ - next_) __builtin_trap();
    next_ += bytes;
    return reinterpret_cast<T*>(taken);
  }
  // Bytes that `take<T>(count)` takes.
  template <typename T>
  static int64_t room(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

 private:
  char *next_, *end_;
};

template <typename T, typename U>
void copy(View<T> to, View<U> from) {
  for (int64_t j = 0; j < to.cols; ++j)
    for (int64_t i = 0; i < to.rows; ++i) to(i, j) = from.get(i, j);
}
template <typename T>
void fill(View<T> to, T value) {
  for (int64_t j = 0; j < to.cols; ++j)
    for (int64_t i = 0; i < to.rows; ++i) to(i, j) = value;
}
template <typename T>
void set_identity(View<T> to) {
  fill(to, T(0));
  for (int64_t i = 0; i < std::min(to.rows, to.cols); ++i) to(i, i) = T(1);
}
// Sets what is above (below) the diagonal to 0.
template <typename T>
void keep_lower(View<T> a) {
  for (int64_t j = 1; j < a.cols; ++j)
    for (int64_t i = 0; i < std::min(j, a.rows); ++i) a(i, j) = T(0);
}
template <typename T>
void keep_upper(View<T> a) {
  for (int64_t j = 0; j < a.cols; ++j)
    for (int64_t i = j + 1; i < a.rows; ++i) a(i, j) = T(0);
}
template <typename T>
bool all_finite(View<T> a) {
  for (int64_t j = 0; j < a.cols; ++j)
    for (int64_t i = 0; i < a.rows; ++i)
      if (!is_finite(a(i, j))) return false;
  return true;
}

// y += alpha x.
template <typename T>
void add_scaled(int64_t n, T alpha, const T* x, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += alpha * x[i];
}
template <typename T>
void add_scaled(int64_t n, T alpha, const T* x, int64_t sx, T* y, int64_t sy) {
  if (sx == 1 && sy == 1) return add_scaled(n, alpha, x, y);
  for (int64_t i = 0; i < n; ++i) y[i * sy] += alpha * x[i * sx];
}
// sum of conj(x) y.
template <typename T>
T dot(int64_t n, const T* x, const T* y) {
  Real<T> re = 0, im = 0;
  if constexpr (is_complex<T>) {
#pragma omp simd reduction(+ : re, im)
    for (int64_t i = 0; i < n; ++i) {
      re += x[i].re * y[i].re + x[i].im * y[i].im;
      im += x[i].re * y[i].im - x[i].im * y[i].re;
    }
    return {re, im};
  } else {
#pragma omp simd reduction(+ : re)
    for (int64_t i = 0; i < n; ++i) re += x[i] * y[i];
    return re;
  }
}
template <typename T, typename S>
void scale(int64_t n, S alpha, T* x) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * alpha;
}
// The Euclidean norm, also where squares over- or underflow.
template <typename T>
Real<T> norm(int64_t n, const T* x) {
  using R = Real<T>;
  R sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += square(x[i]);
  if (sum > kTiny<R> / kEpsilon<R> && sum <= std::numeric_limits<R>::max()) return std::sqrt(sum);
  R greatest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const R a = abs1(x[i]);
    if (std::isnan(a)) return a;
    greatest = std::max(greatest, a);
  }
  if (greatest == R(0) || !std::isfinite(greatest)) return greatest;
  sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += square(x[i] / greatest);
  return greatest * std::sqrt(sum);
}
template <typename T>
void swap_rows(View<T> a, int64_t i, int64_t k) {
  if (i == k) return;
  for (int64_t j = 0; j < a.cols; ++j) std::swap(a(i, j), a(k, j));
}

}  // namespace aotpack::linalg
