// Eigenvalues and -vectors of Hermitian matrices.
#include "declare/linalg_eigh.h"

#include "kernels/linalg/eigh.h"
#include "ops/linalg.h"
#include "ops/linalg_failures.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

void aoti_torch_cpu_linalg_eigh(AotpackTensor A, const char* UPLO, int32_t compute_v, AotpackTensor* eigenvalues,
                                AotpackTensor* eigenvectors) {
  check_square(A, "linalg.eigh");
  const int64_t n = rows_of(A);
  const bool upper = *UPLO == 'U' || *UPLO == 'u', wanted = compute_v != 0;
  Owned vectors(empty_matrices(A, n, n, A->dtype)), values(empty_vectors(A, n, real_dtype(A->dtype)));
  FirstFailure failure;
  dispatch_linalg(A, "linalg.eigh", [&](auto value) {
    using T = decltype(value);
    const Matrices<T> results(vectors.get());
    const Matrices<const T> matrices(A);
    for_matrices(batch_of(A), 12.0 * double(n) * double(n) * double(n), linalg::eigh_room<T>(n),
                 [&](int64_t i, Arena arena) {
                   const View<T> a = results[i];
                   linalg::copy(a, upper ? matrices[i].adjoint() : matrices[i]);
                   if (!linalg::eigh(a, wanted, values->as<linalg::Real<T>>() + i * n, arena)) failure.note(i);
                 });
  });
  failure.check_eigh(A->rank);
  *eigenvalues = values.release();
  *eigenvectors = wanted ? vectors.release() : empty_none(A->dtype);
}
