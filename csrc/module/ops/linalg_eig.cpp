// Eigenvalues and -vectors of general matrices.
#include "declare/linalg_eig.h"

#include "kernels/linalg/eig.h"
#include "ops/linalg.h"
#include "ops/linalg_failures.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

namespace {

// `vectors` null: values alone.
void decompose(const Tensor* self, Tensor* values, Tensor* vectors, const char* op) {
  const int64_t n = rows_of(self);
  FirstFailure failure;
  dispatch_linalg(self, op, [&](auto value) {
    using T = decltype(value);
    using C = linalg::Complex<linalg::Real<T>>;
    const Matrices<const T> matrices(self);
    for (int64_t i = 0; i < batch_of(self); ++i) {
      if (!linalg::all_finite(matrices[i])) {
        throw_invalid(std::string("torch.") + op + ": input tensor should not contain infs or NaNs.");
      }
    }
    const int64_t room = linalg::eig_room<T>(n) + Arena::room<T>(n * n);
    for_matrices(batch_of(self), 25.0 * double(n) * double(n) * double(n), room, [&](int64_t i, Arena arena) {
      const View<T> work = linalg::columns(arena.take<T>(n * n), n, n);
      linalg::copy(work, matrices[i]);
      const View<C> out = vectors == nullptr ? View<C>{nullptr, 0, 0, 1, 1} : Matrices<C>(vectors)[i];
      if (!linalg::eig(work, values->as<C>() + i * n, out, arena)) failure.note(i);
    });
  });
  if (failure.any()) {
    throw_invalid(op + failure.element(self->rank == 2) +
                  ": The algorithm failed to converge because the input matrix is ill-conditioned or has too many "
                  "repeated eigenvalues.");
  }
}

int32_t complex_dtype(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_FLOAT32   ? AOTPACK_DTYPE_COMPLEX64
         : dtype == AOTPACK_DTYPE_FLOAT64 ? AOTPACK_DTYPE_COMPLEX128
                                          : dtype;
}

}  // namespace

void aoti_torch_cpu_linalg_eig(AotpackTensor self, AotpackTensor* eigenvalues, AotpackTensor* eigenvectors) {
  check_square(self, "linalg.eig");
  const int32_t dtype = complex_dtype(self->dtype);
  Owned values(empty_vectors(self, rows_of(self), dtype));
  Owned vectors(empty_matrices(self, rows_of(self), rows_of(self), dtype));
  decompose(self, values.get(), vectors.get(), "linalg.eig");
  *eigenvalues = values.release();
  *eigenvectors = vectors.release();
}

void aoti_torch_cpu_linalg_eigvals(AotpackTensor self, AotpackTensor* ret0) {
  check_square(self, "linalg.eigvals");
  Owned values(empty_vectors(self, rows_of(self), complex_dtype(self->dtype)));
  decompose(self, values.get(), nullptr, "linalg.eigvals");
  *ret0 = values.release();
}
