#include "rnn_bf16.h"

#include "element_types.h"

namespace aotpack::kernels {

bool rnn_takes_bf16(const RnnArgs& g) {
  if (kBf16Rows == 0 || g.dtype != DType::bf16 || !bf16_works()) return false;
  // Pairing must pay. A row or two of weights beyond the caches take the time that memory takes, either way.
  constexpr int64_t kRows = 8, kSteps = 4, kCached = 2 << 20;
  const int64_t weights = (g.gru ? 3 : 4) * g.hidden * g.hidden * static_cast<int64_t>(sizeof(bf16));
  if (weights > kCached) return g.batch >= kRows && g.steps >= kSteps;
  return g.steps > 1 && g.steps * g.batch >= kRows;
}

int64_t rnn_bf16_depth(int64_t hidden) { return bf16_padded(hidden); }

void rnn_bf16_pair(const RnnArgs& g, Range panels, bf16* paired) {
  const auto* weights = static_cast<const bf16*>(g.w_hh);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    bf16_pair_panel(weights + panel * g.hidden * kPanel, kPanel, kPanel, g.hidden,
                    paired + panel * bf16_padded(g.hidden) * kPanel);
  }
}

void rnn_bf16_multiply(Bf16Unit* unit, const RnnArgs& g, const bf16* h, int64_t h_stride, const bf16* paired,
                       const float* bias, float* gates, int64_t gates_stride) {
  const int64_t tiles = ceil_div(g.batch, kBf16Tile);
  for (int64_t t = 0; t < tiles; ++t) {
    const Range rows = share(g.batch, t, tiles);
    Bf16Args a = {};
    a.rows = h + rows.begin * h_stride;
    a.stride = h_stride;
    a.k = bf16_padded(g.hidden);
    a.paired = paired;
    a.init = bias;
    a.sums = gates + rows.begin * gates_stride;
    a.sums_stride = gates_stride;
    unit->multiply(static_cast<int>(rows.end - rows.begin), a);
  }
}

}  // namespace aotpack::kernels
