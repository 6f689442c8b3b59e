#include "device/cusolver.h"

#include "device/device.h"
#include "device/provided.h"
#include "ops/linalg.h"
#include "ops/linalg_failures.h"

namespace aotpack::module::cusolver {

namespace {

// To generated code, which does not read all results.
void give(AotpackTensor* to, Owned& result) {
  if (to != nullptr) *to = result.release();
}

struct Factors {
  Owned lu, pivots, info;
  explicit Factors(const Tensor* a)
      : lu(empty_matrices(a, rows_of(a), cols_of(a), a->dtype)),
        pivots(empty_vectors(a, std::min(rows_of(a), cols_of(a)), AOTPACK_DTYPE_INT32)),
        info(empty_vectors(a, -1, AOTPACK_DTYPE_INT32)) {}
  bool compute(const Tensor* a) { return provide("lu_factor", {a, lu.get(), pivots.get(), info.get()}, {}); }
};

bool solve(const Factors& factors, const Tensor* sides, bool left, bool adjoint, Tensor* x) {
  Owned lu(expand_batch(factors.lu.get(), sides->rank, sides->sizes));
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(sides->sizes, sides->sizes + sides->rank - 2, sizes);
  sizes[sides->rank - 2] = rows_of(factors.lu.get());
  Owned pivots(expand(factors.pivots.get(), sides->rank - 1, sizes));
  return provide("lu_solve", {lu.get(), pivots.get(), sides, x}, {left, adjoint});
}

}  // namespace

bool linalg_cholesky(AotpackTensor A, int32_t upper, AotpackTensor* L, AotpackTensor* info) {
  check_square(A, "linalg.cholesky");
  Owned factor(empty_matrices(A, rows_of(A), cols_of(A), A->dtype)), infos(empty_vectors(A, -1, AOTPACK_DTYPE_INT32));
  if (!provide("cholesky", {A, factor.get(), infos.get()}, {upper != 0})) return false;
  give(L, factor);
  give(info, infos);
  return true;
}

bool linalg_lu_factor(AotpackTensor A, AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info) {
  check_matrix(A, "torch.linalg.lu_factor");
  Factors factors(A);
  if (!factors.compute(A)) return false;
  give(LU, factors.lu);
  give(pivots, factors.pivots);
  give(info, factors.info);
  return true;
}

bool linalg_inv(AotpackTensor A, AotpackTensor* inverse, AotpackTensor* info) {
  check_square(A, "linalg.inv");
  Factors factors(A);
  Owned result(empty_matrices(A, rows_of(A), cols_of(A), A->dtype));
  if (!factors.compute(A)) return false;
  if (!provide("lu_inverse", {factors.lu.get(), factors.pivots.get(), result.get()}, {})) return false;
  give(inverse, result);
  give(info, factors.info);
  return true;
}

bool linalg_solve(AotpackTensor A, AotpackTensor B, int32_t left, int32_t of_transpose, AotpackTensor* result,
                  AotpackTensor* LU, AotpackTensor* pivots, AotpackTensor* info) {
  check_square(A, "linalg.solve");
  Owned sides(broadcast_sides(A, B, left != 0, "linalg.solve"));
  Owned x(empty_solution(sides.get(), left != 0));
  Owned other(of_transpose != 0 ? transposed(A) : Call::current().retain(A));
  Factors factors(other.get());
  if (!factors.compute(other.get())) return false;
  if (!solve(factors, sides.get(), left != 0, of_transpose != 0, x.get())) return false;
  give(result, x);
  give(LU, factors.lu);
  give(pivots, factors.pivots);
  give(info, factors.info);
  return true;
}

// Waits for the result, to know whether the algorithm has converged.
bool linalg_eigh(AotpackTensor A, const char* UPLO, int32_t compute_v, AotpackTensor* eigenvalues,
                 AotpackTensor* eigenvectors) {
  check_square(A, "linalg.eigh");
  const bool upper = *UPLO == 'U' || *UPLO == 'u', wanted = compute_v != 0;
  Owned vectors(empty_matrices(A, rows_of(A), cols_of(A), A->dtype));
  Owned values(empty_vectors(A, rows_of(A), real_dtype(A->dtype))), info(empty_vectors(A, -1, AOTPACK_DTYPE_INT32));
  if (!provide("eigh", {A, vectors.get(), values.get(), info.get()}, {upper, wanted})) return false;
  std::vector<int32_t> infos(static_cast<size_t>(batch_of(A)));
  read(info.get(), infos.data(), static_cast<int64_t>(infos.size() * sizeof(int32_t)));
  FirstFailure failure;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i] != 0) failure.note(static_cast<int64_t>(i));
  }
  failure.check_eigh(A->rank);
  give(eigenvalues, values);
  if (eigenvectors != nullptr) *eigenvectors = wanted ? vectors.release() : empty_none(A->dtype);
  return true;
}

bool linalg_qr(AotpackTensor A, const char* mode, AotpackTensor* Q, AotpackTensor* R) {
  check_matrix(A, "linalg.qr");
  const int64_t m = rows_of(A), n = cols_of(A), k = std::min(m, n);
  const bool complete = std::string(mode) == "complete", wanted = std::string(mode) != "r";
  const int64_t rank = complete ? m : k;
  Owned r(empty_matrices(A, rank, n, A->dtype));
  Owned q(wanted ? empty_matrices(A, m, rank, A->dtype) : empty_none(A->dtype));
  if (!(wanted ? provide("qr", {A, q.get(), r.get()}, {}) : provide("qr", {A, r.get()}, {}))) return false;
  give(Q, q);
  give(R, r);
  return true;
}

}  // namespace aotpack::module::cusolver
