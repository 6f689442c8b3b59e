// Exact sums, in double: most of the work of the tests. exact.cpp is optimized and not instrumented, whatever the tests
// are.
#pragma once

#include <cstdint>

namespace aotpack::kernels::test {

// y += a b: of m x k and k x n, all with their rows one after the other.
void add_product(double* y, const double* a, const double* b, int64_t m, int64_t n, int64_t k);

}  // namespace aotpack::kernels::test
