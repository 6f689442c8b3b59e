// Knobs to try: every position of every one, and some at random, of which kernels know only a part.
#pragma once

#include <vector>

#include "knobs.h"
#include "util.h"

namespace aotpack::kernels::test {

inline std::vector<Knobs> turns_of(const KnobSizes& sizes) {
  std::vector<Knobs> turns;
  for (size_t knob = 0; knob < sizes.size(); ++knob) {
    for (uint32_t at = 1; at < sizes[knob]; ++at) turns.push_back({at << (4 * knob)});
  }
  for (int i = 0; i < 3; ++i) turns.push_back({static_cast<uint32_t>(pick_in(0, 0xffffffff))});
  for (int i = 0; i < 3; ++i) {
    Knobs knobs;
    for (size_t knob = 0; knob < sizes.size(); ++knob) {
      if (sizes[knob] > 1) knobs.bits |= static_cast<uint32_t>(pick_in(0, sizes[knob] - 1)) << (4 * knob);
    }
    turns.push_back(knobs);
  }
  return turns;
}

}  // namespace aotpack::kernels::test
