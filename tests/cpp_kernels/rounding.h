// How far sums are from exact ones.
#pragma once

#include <cmath>
#include <cstdint>

#include "util.h"

namespace aotpack::kernels::test {

// The root of the mean square of y - exact(r, j), rows x columns, of that of exact(r, j).
template <class Exact>
double relative_error(const Buffer& y, int64_t rows, int64_t columns, const Exact& exact) {
  double squares = 0, errors = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < columns; ++j) {
      const double sum = exact(r, j), error = y.get(r * columns + j) - sum;
      squares += sum * sum;
      errors += error * error;
    }
  }
  return std::sqrt(errors / squares);
}

}  // namespace aotpack::kernels::test
