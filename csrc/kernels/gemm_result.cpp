#include "gemm_result.h"

#include "element_types.h"
#include "epilogue.h"

namespace aotpack::kernels {

void write_result(const GemmArgs& g, int64_t item, int64_t row, int64_t column, int64_t rows, int64_t columns,
                  float* sums, int64_t stride) {
  const int64_t bias_at = item * g.bias_batch + row * g.bias_row + column * g.bias_col;
  const int64_t y_at = item * g.y_batch + row * g.y_row + column * g.y_col;
  const auto scale = [&](const auto* bias) {
    for (int64_t r = 0; r < rows; ++r) {
      float* s = sums + r * stride;
      if (g.alpha != 1.0f) {
        for (int64_t j = 0; j < columns; ++j) s[j] *= g.alpha;
      }
      if (!has_bias(g)) continue;
      const auto* from = bias + bias_at + r * g.bias_row;
      for (int64_t j = 0; j < columns; ++j) s[j] += g.beta * to_float(from[j * g.bias_col]);
    }
  };
  const auto scatter = [&](auto* y) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) from_float(sums[r * stride + j], y + y_at + r * g.y_row + j * g.y_col);
    }
  };
  with_type(g.dtype, [&]<class T>() {
    scale(static_cast<const T*>(g.bias));
    if (g.y_col != 1) scatter(static_cast<T*>(g.y));
  });
  if (g.y_col == 1) {
    finish(sums, stride, rows, columns, g.dtype, nullptr, 0, Act::none, advance(g.y, y_at, g.dtype), g.y_row);
  }
}

}  // namespace aotpack::kernels
