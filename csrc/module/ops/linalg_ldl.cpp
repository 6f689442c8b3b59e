// Factors of symmetric and Hermitian matrices that need not be definite.
#include "declare/linalg_ldl.h"

#include "kernels/linalg/ldl.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;

void aoti_torch_cpu_linalg_ldl_factor(AotpackTensor self, int32_t hermitian, AotpackTensor* LD, AotpackTensor* pivots,
                                      AotpackTensor* info) {
  check_square(self, "torch.linalg.ldl_factor_ex");
  const int64_t n = rows_of(self);
  Owned factors(column_major_copy(self)), swaps(empty_vectors(self, n, AOTPACK_DTYPE_INT32));
  Owned infos(empty_vectors(self, -1, AOTPACK_DTYPE_INT32));
  dispatch_linalg(self, "torch.linalg.ldl_factor_ex", [&](auto value) {
    const Matrices<decltype(value)> matrices(factors.get());
    for_matrices(batch_of(self), double(n) * double(n) * double(n) / 3, 0, [&](int64_t i, Arena) {
      linalg::keep_lower(matrices[i]);
      infos->as<int32_t>()[i] = linalg::ldl_factor(matrices[i], hermitian != 0, swaps->as<int32_t>() + i * n);
    });
  });
  *LD = factors.release();
  *pivots = swaps.release();
  *info = infos.release();
}

void aoti_torch_cpu_linalg_ldl_solve(AotpackTensor LD, AotpackTensor pivots, AotpackTensor B, int32_t hermitian,
                                     AotpackTensor* ret0) {
  const char* op = "torch.linalg.ldl_solve";
  check_square(LD, op);
  check_matrix(B, op);
  check_same_dtype(LD, B, op);
  if (pivots->dtype != AOTPACK_DTYPE_INT32)
    throw_invalid(std::string(op) + ": Expected pivots to be integers of 32 bits");
  const int64_t n = rows_of(LD), m = cols_of(B);
  if (rows_of(B) != n) throw_invalid(std::string(op) + ": Incompatible shapes of LD and B");
  int64_t sizes[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_batches(LD, B, sizes);
  Owned broadcast(expand_batch(B, rank, sizes)), factors(expand_batch(LD, rank, sizes));
  Owned x(column_major_copy(broadcast.get()));
  int64_t pivot_sizes[AOTPACK_MAX_RANK];
  std::copy(sizes, sizes + rank - 2, pivot_sizes);
  pivot_sizes[rank - 2] = n;
  Owned expanded(expand(pivots, rank - 1, pivot_sizes));
  Owned swaps(contiguous(expanded.get()));
  bool valid = true;
  dispatch_linalg(LD, op, [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(factors.get());
    const Matrices<T> sides(x.get());
    for_matrices(batch_of(x.get()), 2.0 * double(n) * double(n) * double(m), 0, [&](int64_t i, Arena) {
      if (!linalg::ldl_solve(matrices[i], swaps->as<int32_t>() + i * n, hermitian != 0, sides[i])) {
#pragma omp atomic write
        valid = false;
      }
    });
  });
  if (!valid) throw_invalid(std::string(op) + ": pivots are not those of linalg.ldl_factor");
  *ret0 = x.release();
}
