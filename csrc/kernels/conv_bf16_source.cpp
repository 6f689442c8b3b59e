#include "conv_bf16_source.h"

#include <cstring>

namespace aotpack::kernels {

void copy_with_padding(const ConvArgs& g, const int64_t* size, int64_t pixel, bf16* to, Range rows) {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int64_t h = row % size[1] - g.padding[1], d = row / size[1] % size[0] - g.padding[0];
    const int64_t image = row / size[1] / size[0];
    const bool inside = h >= 0 && h < g.in[1] && d >= 0 && d < g.in[0];
    bf16* const line = to + row * size[2] * pixel;
    if (!inside) {
      std::memset(line, 0, static_cast<size_t>(size[2] * pixel) * sizeof(bf16));
      continue;
    }
    const int64_t left = min64(max64(g.padding[2], 0), size[2]), skipped = max64(-g.padding[2], 0);
    const int64_t count = max64(0, min64(g.in[2] - skipped, size[2] - left));
    const bf16* from =
        static_cast<const bf16*>(g.x) + (((image * g.in[0] + d) * g.in[1] + h) * g.in[2] + skipped) * g.c;
    std::memset(line, 0, static_cast<size_t>(left * pixel) * sizeof(bf16));
    const int64_t together = pixel == g.c ? count : 1;  // pixels
    for (int64_t w = 0; w < count; w += together) {
      std::memcpy(line + (left + w) * pixel, from + w * g.c, static_cast<size_t>(together * g.c) * sizeof(bf16));
    }
    std::memset(line + (left + count) * pixel, 0, static_cast<size_t>((size[2] - left - count) * pixel) * sizeof(bf16));
  }
}

}  // namespace aotpack::kernels
