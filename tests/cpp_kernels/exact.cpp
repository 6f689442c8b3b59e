#include "exact.h"

namespace aotpack::kernels::test {

void add_product(double* y, const double* a, const double* b, int64_t m, int64_t n, int64_t k) {
  for (int64_t i = 0; i < m; ++i) {
    double* __restrict__ row = y + i * n;
    for (int64_t p = 0; p < k; ++p) {
      const double factor = a[i * k + p];
      const double* __restrict__ from = b + p * n;
      for (int64_t j = 0; j < n; ++j) row[j] += factor * from[j];
    }
  }
}

}  // namespace aotpack::kernels::test
