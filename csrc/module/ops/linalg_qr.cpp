// Householder reflectors: QR, and products of its Q.
#include "declare/linalg_qr.h"

#include "kernels/linalg/householder.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::Arena;
using linalg::View;

namespace {

double operations(int64_t m, int64_t n, int64_t k) { return 4.0 * double(m) * double(n) * double(k); }

struct Reflectors {
  Owned a, tau;
  explicit Reflectors(const Tensor* source)
      : a(column_major_copy(source)),
        tau(empty_vectors(source, std::min(rows_of(source), cols_of(source)), source->dtype)) {
    const int64_t m = rows_of(source), n = cols_of(source), k = std::min(m, n);
    dispatch_linalg(source, "geqrf", [&](auto value) {
      using T = decltype(value);
      const Matrices<T> matrices(a.get());
      for_matrices(batch_of(source), operations(m, n, k), linalg::reflectors_room<T>(m, n),
                   [&](int64_t i, Arena arena) { linalg::qr_factor(matrices[i], tau->as<T>() + i * k, arena); });
    });
  }
};

void check_reflectors(const Tensor* v, const Tensor* tau, const char* op) {
  check_matrix(v, op);
  check_same_dtype(v, tau, op);
  if (tau->rank != v->rank - 1) {
    throw_invalid(std::string(op) + ": tau must have one dimension less than the reflectors");
  }
  for (int32_t d = 0; d + 2 < v->rank; ++d) {
    if (tau->sizes[d] != v->sizes[d]) throw_invalid(std::string(op) + ": tau must have the batch of the reflectors");
  }
  if (tau->sizes[tau->rank - 1] > std::min(rows_of(v), cols_of(v))) {
    throw_invalid(std::string(op) + ": there are more reflectors than columns");
  }
}

}  // namespace

void aoti_torch_cpu_geqrf(AotpackTensor self, AotpackTensor* ret0, AotpackTensor* ret1) {
  check_matrix(self, "geqrf");
  Reflectors result(self);
  *ret0 = result.a.release();
  *ret1 = result.tau.release();
}

void aoti_torch_cpu_linalg_qr(AotpackTensor A, const char* mode, AotpackTensor* Q, AotpackTensor* R) {
  check_matrix(A, "linalg.qr");
  const bool complete = std::strcmp(mode, "complete") == 0, wanted = std::strcmp(mode, "r") != 0;
  const int64_t m = rows_of(A), n = cols_of(A), k = std::min(m, n), columns = complete ? m : k;
  Reflectors factored(A);
  Owned q(wanted ? empty_matrices(A, m, columns, A->dtype) : empty_none(A->dtype));
  Owned r(empty_matrices(A, columns, n, A->dtype));
  dispatch_linalg(A, "linalg.qr", [&](auto value) {
    using T = decltype(value);
    const Matrices<T> reflectors(factored.a.get()), triangles(r.get());
    for_matrices(
        batch_of(A), operations(m, columns, k), linalg::reflectors_room<T>(m, columns), [&](int64_t i, Arena arena) {
          const View<T> v = reflectors[i], triangle = triangles[i];
          linalg::copy(triangle, v.block(0, 0, columns, n));
          linalg::keep_upper(triangle);
          if (!wanted) return;
          linalg::make_q(v.block(0, 0, m, k).reading(), factored.tau->as<T>() + i * k, Matrices<T>(q.get())[i], arena);
        });
  });
  *Q = q.release();
  *R = r.release();
}

void aoti_torch_cpu_linalg_householder_product(AotpackTensor input, AotpackTensor tau, AotpackTensor* ret0) {
  const char* op = "torch.linalg.householder_product";
  check_reflectors(input, tau, op);
  if (rows_of(input) < cols_of(input)) {
    throw_invalid(std::string(op) + ": input.shape[-2] must be greater than or equal to input.shape[-1]");
  }
  const int64_t m = rows_of(input), n = cols_of(input), k = tau->sizes[tau->rank - 1];
  Owned q(empty_matrices(input, m, n, input->dtype)), factors(contiguous(tau));
  dispatch_linalg(input, op, [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> reflectors(input);
    const Matrices<T> results(q.get());
    for_matrices(batch_of(input), operations(m, n, k), linalg::reflectors_room<T>(m, n), [&](int64_t i, Arena arena) {
      linalg::make_q(reflectors[i].block(0, 0, m, k), factors->as<T>() + i * k, results[i], arena);
    });
  });
  *ret0 = q.release();
}

void aoti_torch_cpu_ormqr(AotpackTensor self, AotpackTensor input2, AotpackTensor input3, int32_t left,
                          int32_t transpose, AotpackTensor* ret0) {
  check_reflectors(self, input2, "torch.ormqr");
  check_matrix(input3, "torch.ormqr");
  check_same_dtype(self, input3, "torch.ormqr");
  const int64_t m = rows_of(self), k = input2->sizes[input2->rank - 1];
  if ((left != 0 ? rows_of(input3) : cols_of(input3)) != m) {
    throw_invalid(std::string("torch.ormqr: other.shape[") + (left != 0 ? "-2" : "-1") +
                  "] must be equal to input.shape[-2]");
  }
  if (batch_of(self) != batch_of(input3)) throw_invalid("torch.ormqr: batches of input and other must be equal");
  Owned c(column_major_copy(input3)), factors(contiguous(input2));
  const int64_t n = left != 0 ? cols_of(input3) : rows_of(input3);
  dispatch_linalg(self, "torch.ormqr", [&](auto value) {
    using T = decltype(value);
    const Matrices<const T> reflectors(self);
    const Matrices<T> results(c.get());
    for_matrices(batch_of(self), operations(m, n, k), linalg::reflectors_room<T>(m, n), [&](int64_t i, Arena arena) {
      const View<const T> v = reflectors[i].block(0, 0, m, k);
      const T* tau = factors->as<T>() + i * k;
      if (left != 0) {
        linalg::multiply_q(v, tau, transpose != 0, results[i], arena);
      } else {
        linalg::multiply_q_right(v, tau, transpose != 0, results[i], arena);
      }
    });
  });
  *ret0 = c.release();
}
