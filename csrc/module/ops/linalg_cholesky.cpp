// Cholesky factors and what is solved by them.
#include "declare/linalg_cholesky.h"

#include "kernels/linalg/cholesky.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

namespace {

// X with A X = B, for the factors of A.
void solve_all(const Tensor* factors, bool upper, Tensor* b) {
  const int64_t n = rows_of(factors), m = cols_of(b);
  Owned broadcast(expand_batch(factors, b->rank, b->sizes));
  dispatch_linalg(factors, "cholesky_solve", [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(broadcast.get());
    const Matrices<T> sides(b);
    for_matrices(batch_of(b), 2.0 * double(n) * double(n) * double(m), linalg::triangular_room<T>(n, m),
                 [&](int64_t i, Arena arena) {
                   const View<const T> factor = matrices[i], lower = upper ? factor.adjoint() : factor;
                   linalg::solve_triangular(lower, true, false, sides[i], arena);
                   linalg::solve_triangular(lower.adjoint(), false, false, sides[i], arena);
                 });
  });
}

template <typename T>
void adjoin_in_place(View<T> a) {
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = j; i < a.rows; ++i) {
      const T kept = linalg::conj(a(i, j));
      a(i, j) = linalg::conj(a(j, i));
      a(j, i) = kept;
    }
  }
}

}  // namespace

void aoti_torch_cpu_linalg_cholesky(AotpackTensor A, int32_t upper, AotpackTensor* L, AotpackTensor* info) {
  check_square(A, "linalg.cholesky");
  const int64_t n = rows_of(A);
  Owned factor(column_major_copy(A)), infos(empty_vectors(A, -1, AOTPACK_DTYPE_INT32));
  dispatch_linalg(A, "linalg.cholesky", [&](auto value) {
    using T = decltype(value);
    const Matrices<T> matrices(factor.get());
    for_matrices(batch_of(A), double(n) * double(n) * double(n) / 3, linalg::cholesky_room<T>(n),
                 [&](int64_t i, Arena arena) {
                   const View<T> a = matrices[i];
                   if (upper != 0) adjoin_in_place(a);
                   infos->as<int32_t>()[i] = linalg::cholesky(a, arena);
                   linalg::keep_lower(a);
                   if (upper != 0) adjoin_in_place(a);
                 });
  });
  *L = factor.release();
  *info = infos.release();
}

void aoti_torch_cpu_cholesky_solve(AotpackTensor self, AotpackTensor input2, int32_t upper, AotpackTensor* ret0) {
  check_square(input2, "cholesky_solve");
  check_matrix(self, "cholesky_solve");
  check_same_dtype(self, input2, "cholesky_solve");
  if (rows_of(self) != rows_of(input2)) throw_invalid("cholesky_solve: Incompatible matrix sizes");
  int64_t sizes[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_batches(self, input2, sizes);
  Owned broadcast(expand_batch(self, rank, sizes));
  Owned x(column_major_copy(broadcast.get()));
  solve_all(input2, upper != 0, x.get());
  *ret0 = x.release();
}

void aoti_torch_cpu_cholesky_inverse(AotpackTensor self, int32_t upper, AotpackTensor* ret0) {
  check_square(self, "cholesky_inverse");
  Owned x(empty_matrices(self, rows_of(self), rows_of(self), self->dtype));
  dispatch_linalg(self, "cholesky_inverse", [&](auto value) {
    const Matrices<decltype(value)> matrices(x.get());
    for (int64_t i = 0; i < batch_of(self); ++i) linalg::set_identity(matrices[i]);
  });
  solve_all(self, upper != 0, x.get());
  *ret0 = x.release();
}
