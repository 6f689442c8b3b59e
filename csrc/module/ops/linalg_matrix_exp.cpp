// The exponential of matrices.
#include "declare/linalg_matrix_exp.h"

#include "kernels/linalg/exponential.h"
#include "ops/linalg.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::Complex;

namespace {

template <typename R>
R exp_of(R x) {
  return std::exp(x);
}
template <typename R>
Complex<R> exp_of(Complex<R> x) {
  return Complex<R>(std::cos(x.im), std::sin(x.im)) * std::exp(x.re);
}

}  // namespace

void aoti_torch_cpu_linalg_matrix_exp(AotpackTensor self, AotpackTensor* ret0) {
  check_square(self, "linalg.matrix_exp");
  const int64_t n = rows_of(self);
  Owned result(empty_matrices(self, n, n, self->dtype, true));
  dispatch_linalg(self, "linalg.matrix_exp", [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(self);
    const Matrices<T> results(result.get());
    for_matrices(batch_of(self), 20.0 * double(n) * double(n) * double(n), linalg::exponential_room<T>(n),
                 [&](int64_t i, Arena arena) {
                   if (n == 1) {
                     results[i](0, 0) = exp_of(matrices[i](0, 0));
                   } else {
                     // exp(A^T) = exp(A)^T, and results lie by rows.
                     linalg::exponential(matrices[i].transposed(), results[i].transposed(), arena);
                   }
                 });
  });
  *ret0 = result.release();
}
