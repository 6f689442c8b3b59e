// Errors out of what LAPACK calls info, in torch's words.
#include "declare/linalg_check.h"

#include "ops/linalg.h"
#include "ops/linalg_failures.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

std::string reason(const std::string& api, int32_t info) {
  const auto is = [&](const char* part) { return api.find(part) != std::string::npos; };
  const std::string number = std::to_string(info);
  if (info < 0) return ": Argument " + std::to_string(-int64_t{info}) + " has illegal value.";
  if (is("inv")) {
    return ": The diagonal element " + number +
           " is zero, the inversion could not be completed because the input matrix is singular.";
  }
  if (is("solve")) return ": The solver failed because the input matrix is singular.";
  if (is("cholesky")) {
    return ": The factorization could not be completed because the input is not positive-definite (the leading minor "
           "of order " +
           number + " is not positive-definite).";
  }
  if (is("svd")) {
    return ": The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
           "singular values (error code: " +
           number + ").";
  }
  if (is("eig") || is("syevd")) {
    return ": The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
           "eigenvalues (error code: " +
           number + ").";
  }
  if (is("lstsq")) {
    return ": The least squares solution could not be computed because the input matrix does not have full rank "
           "(error code: " +
           number + ").";
  }
  if (is("lu_factor")) {
    return ": U[" + number + "," + number +
           "] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the "
           "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)";
  }
  return ": The diagonal element " + number + " is zero.";
}

}  // namespace

void aoti_torch_cpu_linalg_check_errors(AotpackTensor info, const char* api_name, int32_t is_matrix,
                                        AotpackTensor* ret0) {
  if (info->dtype != AOTPACK_DTYPE_INT32) throw_invalid("linalg_check_errors: info must be int32");
  Owned dense(contiguous(info));
  FirstFailure failure;
  for (int64_t i = 0; i < dense->numel() && !failure.any(); ++i) {
    if (dense->as<int32_t>()[i] != 0) failure.note(i);
  }
  if (failure.any()) {
    int64_t i = 0;
    while (dense->as<int32_t>()[i] == 0) ++i;
    throw_invalid(api_name + failure.element(is_matrix != 0) + reason(api_name, dense->as<int32_t>()[i]));
  }
  Owned copied(Call::current().empty_contiguous(info->rank, info->sizes, info->dtype));
  std::copy(dense->as<int32_t>(), dense->as<int32_t>() + dense->numel(), copied->as<int32_t>());
  *ret0 = copied.release();
}
