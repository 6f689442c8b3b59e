// Real and complex numbers alike, for the templates of this folder.
//
// Complex is plain: std::complex follows Annex G, whose checks for NaN keep loops from being vectorised.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace aotpack::linalg {

// As complex64 (R float) and complex128 (R double) lie in memory.
template <typename R>
struct Complex {
  R re, im;
  Complex() = default;
  constexpr Complex(R real, R imaginary = R(0)) : re(real), im(imaginary) {}

  friend Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
  friend Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
  friend Complex operator-(Complex a) { return {-a.re, -a.im}; }
  friend Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
  friend Complex operator*(Complex a, R b) { return {a.re * b, a.im * b}; }
  friend Complex operator*(R a, Complex b) { return {a * b.re, a * b.im}; }
  friend Complex operator/(Complex a, R b) { return {a.re / b, a.im / b}; }
  // Smith's, which does not overflow where the quotient does not.
  friend Complex operator/(Complex a, Complex b) {
    if (std::abs(b.re) >= std::abs(b.im)) {
      // Real divisors (zero, infinite or NaN ones too) divide as reals do.
      if (b.im == R(0)) return {a.re / b.re, a.im / b.re};
      const R ratio = b.im / b.re, denominator = b.re + b.im * ratio;
      return {(a.re + a.im * ratio) / denominator, (a.im - a.re * ratio) / denominator};
    }
    const R ratio = b.re / b.im, denominator = b.re * ratio + b.im;
    return {(a.re * ratio + a.im) / denominator, (a.im * ratio - a.re) / denominator};
  }
  Complex& operator+=(Complex b) { return *this = *this + b; }
  Complex& operator-=(Complex b) { return *this = *this - b; }
  Complex& operator*=(Complex b) { return *this = *this * b; }
  Complex& operator/=(Complex b) { return *this = *this / b; }
  friend bool operator==(Complex a, Complex b) { return a.re == b.re && a.im == b.im; }
};

template <typename T>
struct RealOf {
  using type = T;
};
template <typename R>
struct RealOf<Complex<R>> {
  using type = R;
};
template <typename T>
using Real = typename RealOf<T>::type;
template <typename T>
inline constexpr bool is_complex = !std::is_same_v<T, Real<T>>;

inline float real(float x) { return x; }
inline double real(double x) { return x; }
template <typename R>
R real(Complex<R> x) {
  return x.re;
}
inline float imag(float) { return 0; }
inline double imag(double) { return 0; }
template <typename R>
R imag(Complex<R> x) {
  return x.im;
}
inline float conj(float x) { return x; }
inline double conj(double x) { return x; }
template <typename R>
Complex<R> conj(Complex<R> x) {
  return {x.re, -x.im};
}
inline float abs(float x) { return std::abs(x); }
inline double abs(double x) { return std::abs(x); }
template <typename R>
R abs(Complex<R> x) {
  return std::hypot(x.re, x.im);
}
// |re| + |im|: what LAPACK chooses pivots by.
template <typename T>
Real<T> abs1(T x) {
  return std::abs(real(x)) + std::abs(imag(x));
}
// |x|^2.
template <typename T>
Real<T> square(T x) {
  return real(x) * real(x) + imag(x) * imag(x);
}
template <typename T>
bool is_finite(T x) {
  return std::isfinite(real(x)) && std::isfinite(imag(x));
}
// The square root with a real part that is not negative.
template <typename R>
Complex<R> square_root(Complex<R> x) {
  const R magnitude = abs(x);
  if (magnitude == R(0)) return {R(0), R(0)};
  const R root = std::sqrt((magnitude + std::abs(x.re)) / 2), other = x.im / (2 * root);
  if (x.re >= R(0)) return {root, other};
  return {std::abs(other), std::copysign(root, x.im)};
}

template <typename R>
inline constexpr R kEpsilon = std::numeric_limits<R>::epsilon();
template <typename R>
inline constexpr R kTiny = std::numeric_limits<R>::min();

}  // namespace aotpack::linalg
