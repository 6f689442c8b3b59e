// The matrices P, L and U out of LU factors.
#include "declare/lu_unpack.h"

#include "kernels/linalg/lu.h"
#include "ops/linalg.h"
#include "tensor.h"

using namespace aotpack::module;
namespace linalg = aotpack::linalg;
using linalg::View;

namespace {

template <typename T>
void unpack(View<const T> lu, View<T> l, View<T> u) {
  for (int64_t i = 0; i < l.rows; ++i)
    for (int64_t j = 0; j < l.cols; ++j) l(i, j) = i == j ? T(1) : j < i ? lu(i, j) : T(0);
  for (int64_t i = 0; i < u.rows; ++i)
    for (int64_t j = 0; j < u.cols; ++j) u(i, j) = i <= j ? lu(i, j) : T(0);
}

}  // namespace

void aoti_torch_cpu_lu_unpack(AotpackTensor LU_data, AotpackTensor LU_pivots, int32_t unpack_data,
                              int32_t unpack_pivots, AotpackTensor* ret0, AotpackTensor* ret1, AotpackTensor* ret2) {
  check_matrix(LU_data, "torch.lu_unpack");
  if (unpack_pivots != 0 && LU_pivots->dtype != AOTPACK_DTYPE_INT32) {
    throw_invalid("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.");
  }
  const int64_t m = rows_of(LU_data), n = cols_of(LU_data), k = std::min(m, n), batch = batch_of(LU_data);
  const int32_t dtype = LU_data->dtype;
  Owned p(unpack_pivots != 0 ? empty_matrices(LU_data, m, m, dtype, true) : empty_none(dtype));
  Owned l(unpack_data != 0 ? empty_matrices(LU_data, m, k, dtype, true) : empty_none(dtype));
  Owned u(unpack_data != 0 ? empty_matrices(LU_data, k, n, dtype, true) : empty_none(dtype));
  Owned pivots(contiguous(LU_pivots));
  Scratch order(unpack_pivots != 0 ? m * static_cast<int64_t>(sizeof(int64_t)) : 0);
  dispatch_linalg(LU_data, "torch.lu_unpack", [&](auto value) {
    using T = decltype(value);
    for (int64_t i = 0; i < batch; ++i) {
      if (unpack_data != 0) unpack(Matrices<const T>(LU_data)[i], Matrices<T>(l.get())[i], Matrices<T>(u.get())[i]);
      if (unpack_pivots == 0) continue;
      int64_t* permutation = order.as<int64_t>();
      if (!linalg::lu_permutation(pivots->as<int32_t>() + i * k, k, m, permutation)) {
        throw_invalid(
            "torch.lu_unpack: pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive. Did you properly "
            "pass the result of lu_factor?");
      }
      const View<T> matrix = Matrices<T>(p.get())[i];
      linalg::fill(matrix, T(0));
      for (int64_t r = 0; r < m; ++r) matrix(permutation[r], r) = T(1);
    }
  });
  *ret0 = p.release();
  *ret1 = l.release();
  *ret2 = u.release();
}
