// The input pixels under a strip of output pixels, which lie next to each other in a row; for the
// convolutions that are not matrix products.
#pragma once

#include "caches.h"
#include "conv.h"

namespace aotpack::kernels {

// Input columns under `outputs` output pixels.
inline int columns_under(const ConvArgs& g, int outputs) {
  return static_cast<int>((outputs - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1);
}
// Input rows under `rows` output rows.
inline int64_t rows_under(const ConvArgs& g, int64_t rows) {
  return (rows - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1;
}
// Without kernel depth, consecutive output rows share input rows.
inline bool is_flat(const ConvArgs& g) { return g.kernel[0] == 1 && g.padding[0] == 0; }

// Output rows to go down in one strip of a flat convolution, of input with elements of so many bytes.
inline int64_t band_rows(const ConvArgs& g, int64_t element) {
  constexpr int64_t kBandBytes = 384 << 10;  // of input that a band of output rows reads
  return max64(4, min64(64, near_bytes(kBandBytes) / max64(1, g.in[2] * g.c * element * g.stride[1])));
}

// Pointers that point_band or point_deep fill, for at most `rows` output rows.
inline int64_t strip_pointers(const ConvArgs& g, int64_t rows, int columns) {
  return max64(1, is_flat(g) ? rows_under(g, rows) * columns : g.kernel[0] * g.kernel[1] * columns);
}

// to[column] for the input row (image, id, ih) of x under the output pixels from `ow` on; `zeros` outside of x.
template <class T>
void point_row(const ConvArgs& g, const T* x, const T* zeros, int64_t image, int64_t id, int64_t ih, int64_t ow,
               int columns, const T** to) {
  const bool inside = id >= 0 && id < g.in[0] && ih >= 0 && ih < g.in[1];
  const int64_t pixel = pixel_step(g);
  const T* const row = x + (inside ? ((image * g.in[0] + id) * g.in[1] + ih) * g.in[2] * pixel : 0);
  const int64_t first = ow * g.stride[2] - g.padding[2];
  for (int column = 0; column < columns; ++column) {
    const int64_t iw = first + column;
    to[column] = inside && iw >= 0 && iw < g.in[2] ? row + iw * pixel : zeros;
  }
}

// to[input row][column] for `rows` output rows from `oh` on, of a flat convolution.
template <class T>
void point_band(const ConvArgs& g, const T* x, const T* zeros, int64_t image, int64_t od, int64_t oh, int64_t rows,
                int64_t ow, int columns, const T** to) {
  const int64_t top = oh * g.stride[1] - g.padding[1];
  for (int64_t r = 0; r < rows_under(g, rows); ++r, to += columns) {
    point_row(g, x, zeros, image, od * g.stride[0], top + r, ow, columns, to);
  }
}

// to[tap in depth][tap in height][column] for one output row.
template <class T>
void point_deep(const ConvArgs& g, const T* x, const T* zeros, int64_t image, int64_t od, int64_t oh, int64_t ow,
                int columns, const T** to) {
  for (int64_t kd = 0; kd < g.kernel[0]; ++kd) {
    for (int64_t kh = 0; kh < g.kernel[1]; ++kh, to += columns) {
      point_row(g, x, zeros, image, od * g.stride[0] - g.padding[0] + kd * g.dilation[0],
                oh * g.stride[1] - g.padding[1] + kh * g.dilation[1], ow, columns, to);
    }
  }
}

}  // namespace aotpack::kernels
