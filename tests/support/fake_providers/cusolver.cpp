// cuSOLVER, by textbook algorithms.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <numeric>
#include <vector>

#include "queue.h"

using namespace fake_providers;

namespace {

constexpr int kInvalidValue = 3, kExecutionFailed = 6;

struct Handle {
  void* stream = nullptr;
};
std::atomic<uint64_t> calls{0};

template <typename T>
struct Numbers {
  using Real = T;
  static T conj(T x) { return x; }
  static T make(double real, double) { return static_cast<T>(real); }
};
template <typename T>
struct Numbers<std::complex<T>> {
  using Real = T;
  static std::complex<T> conj(std::complex<T> x) { return std::conj(x); }
  static std::complex<T> make(double real, double imaginary) {
    return {static_cast<T>(real), static_cast<T>(imaginary)};
  }
};
template <typename T>
T conj_of(T x) {
  return Numbers<T>::conj(x);
}

// Column-major.
template <typename T>
struct View {
  T* data;
  size_t lead;
  T& operator()(size_t i, size_t j) const { return data[i + j * lead]; }
};

template <typename T>
View<T> view(const void* data, int lead, int columns) {
  return {access<T>(data, static_cast<size_t>(lead) * static_cast<size_t>(columns)), static_cast<size_t>(lead)};
}

// Elements of work areas.
constexpr int kArea = 24;

template <typename Work>
int queue(const char* function, void* handle, void* area, int size, size_t item, Work work) {
  if (fails(function)) return kExecutionFailed;
  ++calls;
  const bool is_taken = submit(static_cast<Handle*>(handle)->stream, [=] {
    work();
    if (area != nullptr) spoil(area, static_cast<size_t>(size) * item);
  });
  return is_taken ? 0 : kInvalidValue;
}

template <typename T>
int cholesky(View<T> a, size_t n, bool upper) {
  // Of the lower triangle, or of the upper one by its adjoint.
  const auto at = [&](size_t i, size_t j) -> T& { return upper ? a(j, i) : a(i, j); };
  const auto value = [&](size_t i, size_t j) { return upper ? conj_of(at(i, j)) : at(i, j); };
  const auto set = [&](size_t i, size_t j, T x) { at(i, j) = upper ? conj_of(x) : x; };
  for (size_t j = 0; j < n; ++j) {
    T sum = value(j, j);
    for (size_t k = 0; k < j; ++k) sum -= value(j, k) * conj_of(value(j, k));
    const double pivot = std::real(sum);
    if (!(pivot > 0)) return static_cast<int>(j) + 1;
    set(j, j, Numbers<T>::make(std::sqrt(pivot), 0));
    for (size_t i = j + 1; i < n; ++i) {
      T x = value(i, j);
      for (size_t k = 0; k < j; ++k) x -= value(i, k) * conj_of(value(j, k));
      set(i, j, x / value(j, j));
    }
  }
  return 0;
}

template <typename T>
int factor(View<T> a, size_t m, size_t n, int* pivots) {
  int info = 0;
  for (size_t j = 0; j < std::min(m, n); ++j) {
    size_t best = j;
    for (size_t i = j + 1; i < m; ++i) {
      if (std::abs(a(i, j)) > std::abs(a(best, j))) best = i;
    }
    pivots[j] = static_cast<int>(best) + 1;
    for (size_t k = 0; k < n; ++k) std::swap(a(j, k), a(best, k));
    if (a(j, j) == T(0)) {
      if (info == 0) info = static_cast<int>(j) + 1;
      continue;
    }
    for (size_t i = j + 1; i < m; ++i) {
      a(i, j) /= a(j, j);
      for (size_t k = j + 1; k < n; ++k) a(i, k) -= a(i, j) * a(j, k);
    }
  }
  return info;
}

template <typename T>
void solve(View<T> lu, size_t n, const int* pivots, int operation, T* x) {
  const auto swap_back = [&](size_t i) { std::swap(x[i], x[static_cast<size_t>(pivots[i]) - 1]); };
  if (operation == 0) {
    for (size_t i = 0; i < n; ++i) swap_back(i);
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < i; ++k) x[i] -= lu(i, k) * x[k];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t k = i + 1; k < n; ++k) x[i] -= lu(i, k) * x[k];
      x[i] /= lu(i, i);
    }
    return;
  }
  const auto at = [&](size_t i, size_t j) { return operation == 2 ? conj_of(lu(j, i)) : lu(j, i); };
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) x[i] -= at(i, k) * x[k];
    x[i] /= at(i, i);
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) x[i] -= at(i, k) * x[k];
  }
  for (size_t i = n; i-- > 0;) swap_back(i);
}

// Jacobi's rotations. The argument becomes the vectors.
template <typename T>
int diagonalize(View<T> a, size_t n, bool upper, typename Numbers<T>::Real* values) {
  std::vector<T> matrix(n * n), vectors(n * n, T(0));
  const View<T> m{matrix.data(), n}, v{vectors.data(), n};
  for (size_t i = 0; i < n; ++i) {
    v(i, i) = T(1);
    for (size_t j = 0; j <= i; ++j) {
      const T x = upper ? conj_of(a(j, i)) : a(i, j);
      m(i, j) = i == j ? Numbers<T>::make(std::real(x), 0) : x;
      m(j, i) = conj_of(m(i, j));
      if (!std::isfinite(std::abs(x))) return 1;
    }
  }
  const auto rotate = [&](size_t p, size_t q) {
    const double size = std::abs(m(p, q));
    if (size < 1e-30) return;
    const T phase = m(p, q) / T(static_cast<typename Numbers<T>::Real>(size));
    const double angle = 0.5 * std::atan2(2 * size, std::real(m(q, q)) - std::real(m(p, p)));
    const T c = Numbers<T>::make(std::cos(angle), 0), s = Numbers<T>::make(std::sin(angle), 0);
    const auto turn = [&](View<T> x) {  // columns
      for (size_t i = 0; i < n; ++i) {
        const T first = x(i, p), second = x(i, q);
        x(i, p) = c * first - s * conj_of(phase) * second;
        x(i, q) = s * phase * first + c * second;
      }
    };
    turn(m);
    turn(v);
    for (size_t j = 0; j < n; ++j) {
      const T first = m(p, j), second = m(q, j);
      m(p, j) = c * first - s * phase * second;
      m(q, j) = s * conj_of(phase) * first + c * second;
    }
  };
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) rotate(p, q);
    }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return std::real(m(i, i)) < std::real(m(j, j)); });
  for (size_t j = 0; j < n; ++j) {
    values[j] = std::real(m(order[j], order[j]));
    for (size_t i = 0; i < n; ++i) a(i, j) = v(i, order[j]);
  }
  return 0;
}

// x := (I - tau v v^H) x for the columns from `first` on; v is 1 and what lies below row j of column j of `a`.
template <typename T>
void reflect(View<T> a, size_t m, size_t j, T tau, View<T> x, size_t first, size_t columns) {
  for (size_t k = first; k < columns; ++k) {
    T sum = x(j, k);
    for (size_t i = j + 1; i < m; ++i) sum += conj_of(a(i, j)) * x(i, k);
    sum *= tau;
    x(j, k) -= sum;
    for (size_t i = j + 1; i < m; ++i) x(i, k) -= a(i, j) * sum;
  }
}

template <typename T>
void reflectors(View<T> a, size_t m, size_t n, T* tau) {
  for (size_t j = 0; j < std::min(m, n); ++j) {
    double rest = 0;
    for (size_t i = j + 1; i < m; ++i) rest += std::norm(a(i, j));
    const T alpha = a(j, j);
    if (rest == 0 && std::imag(alpha) == 0) {
      tau[j] = T(0);
      continue;
    }
    const double beta = -std::copysign(std::sqrt(std::norm(alpha) + rest), std::real(alpha));
    tau[j] = Numbers<T>::make((beta - std::real(alpha)) / beta, -std::imag(alpha) / beta);
    const T scale = T(1) / (alpha - Numbers<T>::make(beta, 0));
    for (size_t i = j + 1; i < m; ++i) a(i, j) *= scale;
    reflect(a, m, j, conj_of(tau[j]), a, j + 1, n);
    a(j, j) = Numbers<T>::make(beta, 0);
  }
}

template <typename T>
void generate(View<T> a, size_t m, size_t n, size_t k, const T* tau) {
  std::vector<T> result(m * n, T(0));
  const View<T> q{result.data(), m};
  for (size_t j = 0; j < n; ++j) q(j, j) = T(1);
  for (size_t j = k; j-- > 0;) reflect(a, m, j, tau[j], q, size_t{0}, n);
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < m; ++i) a(i, j) = q(i, j);
  }
}

size_t number(int value) { return static_cast<size_t>(value); }

}  // namespace

EXPORT uint64_t fake_cusolver_calls() { return calls; }

EXPORT int cusolverGetVersion(int* out) {
  *out = version();
  return 0;
}
EXPORT int cusolverDnCreate(void** out) {
  *out = new Handle;
  return 0;
}
EXPORT int cusolverDnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
EXPORT int cusolverDnSetStream(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}

#define DEFINE(L, T, SY, ORG)                                                                                         \
  EXPORT int cusolverDn##L##potrf_bufferSize(void*, int, int, void*, int, int* out) {                                 \
    *out = kArea;                                                                                                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##potrf(void* handle, int fill, int n, void* a, int lda, void* work, int size, int* info) { \
    return queue("potrf", handle, work, size, sizeof(T),                                                              \
                 [=] { *access<int>(info, 1) = cholesky(view<T>(a, lda, n), number(n), fill == 1); });                \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##getrf_bufferSize(void*, int, int, void*, int, int* out) {                                 \
    *out = kArea;                                                                                                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##getrf(void* handle, int m, int n, void* a, int lda, void* work, int* pivots, int* info) { \
    return queue("getrf", handle, work, kArea, sizeof(T), [=] {                                                       \
      *access<int>(info, 1) =                                                                                         \
          factor(view<T>(a, lda, n), number(m), number(n), access<int>(pivots, number(std::min(m, n))));              \
    });                                                                                                               \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##getrs(void* handle, int operation, int n, int sides, const void* a, int lda,              \
                                  const int* pivots, void* b, int ldb, int* info) {                                   \
    return queue("getrs", handle, nullptr, 0, 0, [=] {                                                                \
      *access<int>(info, 1) = 0;                                                                                      \
      const View<T> x = view<T>(b, ldb, sides);                                                                       \
      for (size_t j = 0; j < number(sides); ++j)                                                                      \
        solve(view<T>(a, lda, n), number(n), access<int>(pivots, number(n)), operation, &x(0, j));                    \
    });                                                                                                               \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##SY##evd_bufferSize(void*, int, int, int, const void*, int, const void*, int* out) {       \
    *out = kArea;                                                                                                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##SY##evd(void* handle, int, int fill, int n, void* a, int lda, void* values, void* work,   \
                                    int size, int* info) {                                                            \
    return queue("syevd", handle, work, size, sizeof(T), [=] {                                                        \
      *access<int>(info, 1) =                                                                                         \
          diagonalize(view<T>(a, lda, n), number(n), fill == 1, access<Numbers<T>::Real>(values, number(n)));         \
    });                                                                                                               \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##geqrf_bufferSize(void*, int, int, void*, int, int* out) {                                 \
    *out = kArea;                                                                                                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##geqrf(void* handle, int m, int n, void* a, int lda, void* tau, void* work, int size,      \
                                  int* info) {                                                                        \
    return queue("geqrf", handle, work, size, sizeof(T), [=] {                                                        \
      *access<int>(info, 1) = 0;                                                                                      \
      reflectors(view<T>(a, lda, n), number(m), number(n), access<T>(tau, number(std::min(m, n))));                   \
    });                                                                                                               \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##ORG##qr_bufferSize(void*, int, int, int, const void*, int, const void*, int* out) {       \
    *out = kArea;                                                                                                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  EXPORT int cusolverDn##L##ORG##qr(void* handle, int m, int n, int k, void* a, int lda, const void* tau, void* work, \
                                    int size, int* info) {                                                            \
    return queue("orgqr", handle, work, size, sizeof(T), [=] {                                                        \
      *access<int>(info, 1) = 0;                                                                                      \
      generate(view<T>(a, lda, n), number(m), number(n), number(k), access<T>(tau, number(k)));                       \
    });                                                                                                               \
  }
DEFINE(S, float, sy, org)
DEFINE(D, double, sy, org)
DEFINE(C, std::complex<float>, he, ung)
DEFINE(Z, std::complex<double>, he, ung)
#undef DEFINE
