// How linear goes through its operands.
#pragma once

#include "caches.h"
#include "linear.h"
#include "micro.h"

namespace aotpack::kernels {

inline constexpr int64_t kWholeDepth = 1024;  // of k: up to here sums stay in registers from beginning to end
inline constexpr int64_t kPieceDepth = 768;   // otherwise k is cut into pieces of about this; each begins at zero
inline constexpr int64_t kMostPanels = 32;    // that share a staged tile of rows, however the knobs stand
inline constexpr int64_t kMaxPanels = 12;     // the same where they are not turned
inline constexpr int64_t kPartialPanels = 8;  // the same where partial sums are kept on the stack
// Of B at a time, for a second-level cache of 1 MiB. Where a tile has many rows, B may come out of the third-level
// cache, and x is copied less often.
inline constexpr int64_t kPanelBytes = kMaxRows >= 12 ? 1280 << 10 : 384 << 10;
inline constexpr int64_t kReuse = 16;  // row tiles that go by before the next piece of k

// The knobs of linear.
enum LinearKnob : int { kLinearDepth, kLinearPanels, kLinearGrid, kLinearStage, kLinearThreads };
inline constexpr std::array<int64_t, 4> kLinearDepths = {256, 384, 512, kWholeDepth};
inline constexpr std::array<int64_t, 4> kLinearPanelBytes = {128 << 10, 320 << 10, (1920 << 10) - kPanelBytes,
                                                             2560 << 10};

struct LinearPlan {
  bool stage;      // rows are copied (and widened) before use
  int64_t depth;   // of k at a time
  int64_t panels;  // at a time
  int64_t tiles;   // at a time
};

// For a thread's share of the tiles and panels.
inline LinearPlan linear_plan(const LinearArgs& g, DType y_dtype, int64_t tiles, int64_t panels) {
  LinearPlan p;
  // Rows a multiple of 2 KiB apart evict each other from a set-associative cache.
  const bool aliasing = g.m > 6 && g.k >= 256 && (g.x_stride * 4) % 2048 == 0;
  p.stage = g.dtype != DType::f32 || aliasing;
  if (g.knobs.at(kLinearStage) == 1) p.stage = !p.stage || g.dtype != DType::f32;
  const int64_t piece = turned(g.knobs, kLinearDepth, kLinearDepths, g.k <= kWholeDepth ? kWholeDepth : kPieceDepth);
  p.depth = max64(1, g.k <= piece ? g.k : round_up(ceil_div(g.k, ceil_div(g.k, piece)), 16));
  const int64_t bytes = p.depth * kPanel * static_cast<int64_t>(dtype_size(g.dtype));
  const bool turned_panels = g.knobs.at(kLinearPanels) != 0;
  p.panels = turned(g.knobs, kLinearPanels, kLinearPanelBytes, near_bytes(kPanelBytes)) / bytes;
  p.panels = max64(1, min64(min64(panels, turned_panels ? kMostPanels : kMaxPanels), p.panels));
  // A single tile passes over B only once: panel by panel, as it lies in memory.
  if (tiles == 1 && !p.stage && p.depth < g.k) p.panels = 1;
  p.tiles = tiles;
  if (p.depth < g.k) {
    p.tiles = min64(tiles, y_dtype == DType::f32 ? kReuse : kReuse / 4);
    if (y_dtype != DType::f32) p.panels = min64(p.panels, kPartialPanels);
  }
  return p;
}

}  // namespace aotpack::kernels
