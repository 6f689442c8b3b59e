// Triangular systems.
#include "declare/linalg_triangular.h"

#include "kernels/linalg/product.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

namespace {

void check(const Tensor* a, const Tensor* b, bool left, const char* op) {
  check_square(a, op);
  check_matrix(b, op);
  check_same_dtype(a, b, op);
  if ((left ? rows_of(b) : cols_of(b)) != rows_of(a)) {
    throw_invalid(std::string(op) + ": Incompatible shapes of A and B for the equation " +
                  (left ? "AX = B" : "XA = B"));
  }
}

// B := A^-1 B, or B A^-1; A's batch is broadcast to B's.
void solve_all(const Tensor* a, bool upper, bool left, bool transpose, bool unit, Tensor* b, const char* op) {
  const int64_t n = rows_of(a), m = left ? cols_of(b) : rows_of(b);
  Owned broadcast(expand_batch(a, b->rank, b->sizes));
  dispatch_linalg(a, op, [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(broadcast.get());
    const Matrices<T> sides(b);
    for_matrices(
        batch_of(b), double(n) * double(n) * double(m), linalg::triangular_room<T>(n, m), [&](int64_t i, Arena arena) {
          // X A = B is A^T X^T = B^T.
          const bool turned = transpose == left;
          const View<const T> matrix = turned ? matrices[i].transposed() : matrices[i];
          linalg::solve_triangular(matrix, upper == turned, unit, left ? sides[i] : sides[i].transposed(), arena);
        });
  });
}

}  // namespace

void aoti_torch_cpu_linalg_solve_triangular(AotpackTensor A, AotpackTensor B, int32_t upper, int32_t left,
                                            int32_t unitriangular, AotpackTensor* ret0) {
  check(A, B, left != 0, "linalg.solve_triangular");
  int64_t sizes[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_batches(A, B, sizes);
  Owned broadcast(expand_batch(B, rank, sizes));
  Owned x(column_major_copy(broadcast.get()));
  solve_all(A, upper != 0, left != 0, false, unitriangular != 0, x.get(), "linalg.solve_triangular");
  *ret0 = x.release();
}

void aoti_torch_cpu_triangular_solve(AotpackTensor self, AotpackTensor A, int32_t upper, int32_t transpose,
                                     int32_t unitriangular, AotpackTensor* ret0, AotpackTensor* ret1) {
  check(A, self, true, "triangular_solve");
  int64_t sizes[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_batches(A, self, sizes);
  Owned sides(expand_batch(self, rank, sizes)), matrices(expand_batch(A, rank, sizes));
  Owned x(column_major_copy(sides.get())), copied(column_major_copy(matrices.get()));
  solve_all(A, upper != 0, true, transpose != 0, unitriangular != 0, x.get(), "triangular_solve");
  *ret0 = x.release();
  *ret1 = copied.release();
}
