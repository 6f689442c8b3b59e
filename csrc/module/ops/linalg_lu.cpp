// LU factors, and what is made of them: determinants, inverses, solutions.
#include "declare/linalg_lu.h"

#include "kernels/linalg/lu.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::Real;
using linalg::View;

namespace {

struct Factors {
  Owned lu, pivots, info;
  explicit Factors(const Tensor* a)
      : lu(column_major_copy(a)),
        pivots(empty_vectors(a, std::min(rows_of(a), cols_of(a)), AOTPACK_DTYPE_INT32)),
        info(empty_vectors(a, -1, AOTPACK_DTYPE_INT32)) {
    const int64_t m = rows_of(a), n = cols_of(a), k = std::min(m, n);
    dispatch_linalg(a, "linalg.lu_factor", [&](auto value) {
      using T = decltype(value);
      const Matrices<T> matrices(lu.get());
      for_matrices(batch_of(a), 2.0 * double(m) * double(n) * double(k), linalg::lu_room<T>(m, n),
                   [&](int64_t i, Arena arena) {
                     info->as<int32_t>()[i] = linalg::lu_factor(matrices[i], pivots->as<int32_t>() + i * k, arena);
                   });
    });
  }
};

// Pivots, contiguous, with the batch broadcast to the first rank - 2 of `sizes`.
class Pivots {
 public:
  Pivots(const Tensor* pivots, int32_t rank, const int64_t* sizes)
      : dense_(contiguous(pivots)), view_(view(rank, sizes)) {}
  const int32_t* operator[](int64_t number) const {
    const int32_t* data = view_->as<int32_t>();
    for (int32_t d = view_->rank - 2; d >= 0; --d) {
      data += number % view_->sizes[d] * view_->strides[d];
      number /= view_->sizes[d];
    }
    return data;
  }

 private:
  Tensor* view(int32_t rank, const int64_t* sizes) {
    int64_t full[AOTPACK_MAX_RANK];
    std::copy(sizes, sizes + rank - 2, full);
    full[rank - 2] = dense_->sizes[dense_->rank - 1];
    return expand(dense_.get(), rank - 1, full);
  }
  Owned dense_, view_;
};

template <typename T>
void conjugate(View<T> x) {
  if constexpr (linalg::is_complex<T>) {
    for (int64_t j = 0; j < x.cols; ++j)
      for (int64_t i = 0; i < x.rows; ++i) x(i, j) = linalg::conj(x(i, j));
  }
}

// X A = B is A^T X^T = B^T.
template <typename T>
bool solve_one(View<const T> lu, const int32_t* pivots, bool left, bool adjoint, View<T> b, Arena arena) {
  if (left) return linalg::lu_solve(lu, pivots, adjoint, b, arena);
  conjugate(b);
  const bool solved = linalg::lu_solve(lu, pivots, !adjoint, b.transposed(), arena);
  conjugate(b);
  return solved;
}

// B := A^-1 B of tensors with one batch, B's; LU may be broadcast to it.
void solve_all(const Tensor* lu, const Tensor* pivots, bool left, bool adjoint, Tensor* b, const char* op) {
  const int64_t n = rows_of(lu), m = left ? cols_of(b) : rows_of(b);
  Owned factors(expand_batch(lu, b->rank, b->sizes));
  const Pivots swaps(pivots, b->rank, b->sizes);
  bool valid = true;
  dispatch_linalg(lu, op, [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> matrices(factors.get());
    const Matrices<T> sides(b);
    for_matrices(batch_of(b), 2.0 * double(n) * double(n) * double(m), linalg::lu_solve_room<T>(n, m),
                 [&](int64_t i, Arena arena) {
                   if (!solve_one(matrices[i], swaps[i], left, adjoint, sides[i], arena)) {
#pragma omp atomic write
                     valid = false;
                   }
                 });
  });
  if (!valid) {
    throw_invalid(
        "Pivots given to lu_solve must all be greater or equal to 1. Did you properly pass the result of lu_factor?");
  }
}

// B with the batches of A and B broadcast together, in the layout of a solution.
Tensor* right_sides(const Tensor* a, const Tensor* b, bool left, const char* op) {
  Owned broadcast(broadcast_sides(a, b, left, op));
  Owned x(empty_solution(broadcast.get(), left));
  copy_strided(x.get(), broadcast.get());
  return x.release();
}

template <typename T, typename F>
void over_diagonals(const Factors& factors, F f) {
  const int64_t n = rows_of(factors.lu.get());
  const Matrices<const T> matrices(factors.lu.get());
  for (int64_t i = 0; i < batch_of(factors.lu.get()); ++i) {
    const int32_t* pivots = factors.pivots->as<int32_t>() + i * n;
    bool odd = false;
    for (int64_t k = 0; k < n; ++k) odd ^= pivots[k] != k + 1;
    f(i, matrices[i], odd);
  }
}

}  // namespace

void aoti_torch_cpu_linalg_lu_factor(AotpackTensor A, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info) {
  check_matrix(A, "torch.linalg.lu_factor");
  Factors factors(A);
  *LU = factors.lu.release();
  *pivots = factors.pivots.release();
  *info = factors.info.release();
}

void aoti_torch_cpu_linalg_det(AotpackTensor A, AotpackTensor* result, AotpackTensor* LU, AotpackTensor* pivots) {
  check_square(A, "linalg.det");
  Factors factors(A);
  Owned det(empty_vectors(A, -1, A->dtype));
  dispatch_linalg(A, "linalg.det", [&](auto value) {
    using T = decltype(value);
    over_diagonals<T>(factors, [&](int64_t i, View<const T> lu, bool odd) {
      T product(1);
      for (int64_t k = 0; k < lu.rows; ++k) product *= lu(k, k);
      det->as<T>()[i] = odd ? -product : product;
    });
  });
  *result = det.release();
  *LU = factors.lu.release();
  *pivots = factors.pivots.release();
}

void aoti_torch_cpu_linalg_slogdet(AotpackTensor A, AotpackTensor* sign, AotpackTensor* logabsdet, AotpackTensor* LU,
                                   AotpackTensor* pivots) {
  check_square(A, "linalg.slogdet");
  Factors factors(A);
  Owned signs(empty_vectors(A, -1, A->dtype)), logs(empty_vectors(A, -1, real_dtype(A->dtype)));
  dispatch_linalg(A, "linalg.slogdet", [&](auto value) {
    using T = decltype(value);
    over_diagonals<T>(factors, [&](int64_t i, View<const T> lu, bool odd) {
      T direction(1);
      Real<T> sum = 0;
      for (int64_t k = 0; k < lu.rows; ++k) {
        const Real<T> size = linalg::abs(lu(k, k));
        sum += std::log(size);
        direction *= size == Real<T>(0) ? T(0) : lu(k, k) / size;
      }
      signs->as<T>()[i] = odd ? -direction : direction;
      logs->as<Real<T>>()[i] = sum;
    });
  });
  *sign = signs.release();
  *logabsdet = logs.release();
  *LU = factors.lu.release();
  *pivots = factors.pivots.release();
}

void aoti_torch_cpu_linalg_inv(AotpackTensor A, AotpackTensor* inverse, AotpackTensor* info) {
  check_square(A, "linalg.inv");
  Factors factors(A);
  const int64_t n = rows_of(A);
  Owned result(empty_matrices(A, n, n, A->dtype));
  dispatch_linalg(A, "linalg.inv", [&](auto value) {
    using T = decltype(value);
    const Matrices<T> matrices(result.get());
    for (int64_t i = 0; i < batch_of(A); ++i) linalg::set_identity(matrices[i]);
  });
  solve_all(factors.lu.get(), factors.pivots.get(), true, false, result.get(), "linalg.inv");
  *inverse = result.release();
  *info = factors.info.release();
}

void aoti_torch_cpu_linalg_solve(AotpackTensor A, AotpackTensor B, int32_t left, int32_t of_transpose,
                                 AotpackTensor* result, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info) {
  check_square(A, "linalg.solve");
  Owned x(right_sides(A, B, left != 0, "linalg.solve"));
  Owned other(of_transpose != 0 ? transposed(A) : Call::current().retain(A));
  Factors factors(other.get());
  solve_all(factors.lu.get(), factors.pivots.get(), left != 0, of_transpose != 0, x.get(), "linalg.solve");
  *result = x.release();
  *LU = factors.lu.release();
  *pivots = factors.pivots.release();
  *info = factors.info.release();
}

void aoti_torch_cpu_linalg_lu_solve(AotpackTensor LU, AotpackTensor pivots, AotpackTensor B, int32_t left,
                                    int32_t adjoint, AotpackTensor* ret0) {
  check_square(LU, "linalg.lu_solve");
  if (pivots->dtype != AOTPACK_DTYPE_INT32)
    throw_invalid("linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
  Owned x(right_sides(LU, B, left != 0, "linalg.lu_solve"));
  solve_all(LU, pivots, left != 0, adjoint != 0, x.get(), "linalg.lu_solve");
  *ret0 = x.release();
}
