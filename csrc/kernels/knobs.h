// Ways to do the same work: which one is fastest depends on the processor, the sizes and the number of threads, and is
// found by measurement (docs/tuning.md). No way needs other weights, and results differ by rounding alone.
#pragma once

#include <array>
#include <cstdint>

#include "parallel.h"

namespace aotpack::kernels {

// A kernel has up to eight knobs, each with up to sixteen positions: four bits each, the first lowest. Position 0 of
// each is what the kernel chooses by itself. What a kernel does not know counts as 0, so that any number is valid.
struct Knobs {
  uint32_t bits = 0;

  constexpr int at(int knob) const { return static_cast<int>(bits >> (4 * knob) & 15); }
};

// Values of a knob's positions from 1 on; `otherwise` at position 0 and beyond the last.
template <size_t kCount>
constexpr int64_t turned(Knobs knobs, int knob, const std::array<int64_t, kCount>& values, int64_t otherwise) {
  const int at = knobs.at(knob);
  return at >= 1 && static_cast<size_t>(at) <= kCount ? values[static_cast<size_t>(at) - 1] : otherwise;
}

// How many positions each knob has, for those who try them; 0 after the last knob.
using KnobSizes = std::array<uint8_t, 8>;

// Positions of a knob of threads: as estimated, one, half of those that there are, all.
inline constexpr uint8_t kThreadPositions = 4;
inline int turned_threads(Knobs knobs, int knob, int num_threads, int otherwise) {
  const int all = num_threads > 1 ? num_threads : 1;
  const int counts[] = {otherwise, 1, (all + 1) / 2, all};
  const int at = knobs.at(knob);
  return at < kThreadPositions ? counts[at] : otherwise;
}

// Positions of a knob that shares a grid among threads: as estimated, cut along the rows alone, along the columns
// alone, or about as often along each.
inline constexpr uint8_t kGridPositions = 4;
inline Rectangle turned_grid(Knobs knobs, int knob, int64_t rows, int64_t columns, double row_bytes,
                             double column_bytes, int thread, int threads) {
  int cuts = 0;
  if (knobs.at(knob) == 1) cuts = threads;
  if (knobs.at(knob) == 2) cuts = 1;
  if (knobs.at(knob) == 3) {
    for (cuts = 1; cuts * cuts < threads || threads % cuts != 0;) ++cuts;
  }
  if (cuts == 0) return share_grid(rows, columns, row_bytes, column_bytes, thread, threads);
  return cell(rows, columns, cuts, thread, threads);
}

}  // namespace aotpack::kernels
