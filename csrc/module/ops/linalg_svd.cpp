// Singular values and vectors.
#include "declare/linalg_svd.h"

#include "kernels/linalg/svd.h"
#include "ops/linalg.h"
#include "ops/linalg_failures.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

namespace {

// With `u` and `vh` that have no columns for values alone. A wide matrix is the adjoint of a tall one.
template <typename T>
bool decompose(View<const T> a, View<T> u, View<T> vh, linalg::Real<T>* values, Arena arena) {
  const bool wide = a.rows < a.cols;
  const int64_t m = std::max(a.rows, a.cols), n = std::min(a.rows, a.cols);
  const View<T> work = linalg::columns(arena.take<T>(m * n), m, n);
  linalg::copy(work, wide ? a.adjoint() : a);
  if (u.cols == 0 && vh.cols == 0) return linalg::svd(work, u, vh, values, arena);
  // A^H = L S R^H with L in V, R = U; what is V^H was found as V.
  const View<T> v = linalg::columns(arena.take<T>(vh.rows * vh.cols), vh.cols, vh.rows);
  const bool converged = wide ? linalg::svd(work, v, u, values, arena) : linalg::svd(work, u, v, values, arena);
  linalg::copy(vh, v.adjoint());
  return converged;
}

}  // namespace

void aoti_torch_cpu_linalg_svd(AotpackTensor A, int32_t full_matrices, int32_t compute_uv, AotpackTensor* U,
                               AotpackTensor* S, AotpackTensor* Vh) {
  check_matrix(A, "linalg.svd");
  const int64_t m = rows_of(A), n = cols_of(A), k = std::min(m, n);
  const bool wanted = compute_uv != 0, full = full_matrices != 0;
  Owned u(wanted ? empty_matrices(A, m, full ? m : k, A->dtype) : empty_none(A->dtype));
  Owned vh(wanted ? empty_matrices(A, full ? n : k, n, A->dtype) : empty_none(A->dtype));
  Owned s(empty_vectors(A, k, real_dtype(A->dtype)));
  FirstFailure failure;
  dispatch_linalg(A, "linalg.svd", [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(A);
    const int64_t room = linalg::svd_room<T>(std::max(m, n), k) + Arena::room<T>(m * n) + Arena::room<T>(n * n);
    for_matrices(batch_of(A), 20.0 * double(m) * double(n) * double(k), room, [&](int64_t i, Arena arena) {
      const View<T> none{nullptr, 0, 0, 1, 1};
      const View<T> left = wanted ? Matrices<T>(u.get())[i] : none, right = wanted ? Matrices<T>(vh.get())[i] : none;
      if (!decompose(matrices[i], left, right, s->as<linalg::Real<T>>() + i * k, arena)) failure.note(i);
    });
  });
  if (failure.any()) {
    throw_invalid("linalg.svd" + failure.element(A->rank == 2) +
                  ": The algorithm failed to converge because the input matrix contained non-finite values.");
  }
  *U = u.release();
  *S = s.release();
  *Vh = vh.release();
}
