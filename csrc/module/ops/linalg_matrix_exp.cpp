// The exponential of matrices.
#include "declare/linalg_matrix_exp.h"

#include "kernels/linalg/exponential.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::Complex;
using linalg::View;

namespace {

template <typename T>
struct Wide {
  using type = double;
};
template <typename R>
struct Wide<Complex<R>> {
  using type = Complex<double>;
};

double widened(double x) { return x; }
template <typename R>
Complex<double> widened(Complex<R> x) {
  return {double(x.re), double(x.im)};
}
template <typename T>
T narrowed(double x) {
  return static_cast<T>(x);
}
template <typename T>
T narrowed(Complex<double> x) {
  return {static_cast<linalg::Real<T>>(x.re), static_cast<linalg::Real<T>>(x.im)};
}

double exp_of(double x) { return std::exp(x); }
Complex<double> exp_of(Complex<double> x) { return Complex<double>(std::cos(x.im), std::sin(x.im)) * std::exp(x.re); }

}  // namespace

void aoti_torch_cpu_linalg_matrix_exp(AotpackTensor self, AotpackTensor* ret0) {
  check_square(self, "linalg.matrix_exp");
  const int64_t n = rows_of(self);
  Owned result(empty_matrices(self, n, n, self->dtype, true));
  dispatch_linalg(self, "linalg.matrix_exp", [&](auto value) {
    using T = decltype(value);
    // Squaring doubles errors every time: it is done in double precision.
    using W = typename Wide<T>::type;
    const Matrices<const T> matrices(self);
    const Matrices<T> results(result.get());
    const int64_t room = linalg::exponential_room<W>(n) + 2 * Arena::room<W>(n * n);
    for_matrices(batch_of(self), 20.0 * double(n) * double(n) * double(n), room, [&](int64_t b, Arena arena) {
      const View<const T> a = matrices[b];
      const View<T> out = results[b];
      const View<W> from = linalg::columns(arena.take<W>(n * n), n, n),
                    to = linalg::columns(arena.take<W>(n * n), n, n);
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < n; ++i) from(i, j) = widened(a(i, j));
      if (n == 1) {
        to(0, 0) = exp_of(from(0, 0));
      } else {
        linalg::exponential(from.reading(), to, arena);
      }
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < n; ++i) out(i, j) = narrowed<T>(to(i, j));
    });
  });
  *ret0 = result.release();
}
