// Low-rank changes of weights: what adapters such as LoRA bring.
#pragma once

#include "aotpack/aotpack.h"
#include "call/given.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// For each tensor of the manifest the delta that was given for it, or NULL. Everything that does not fit is a problem,
// two deltas for one tensor of the model too.
std::vector<const aotpack_weight_delta*> match_deltas(const std::vector<WeightRecord>& weights,
                                                      const aotpack_weight_delta* const* deltas, size_t count,
                                                      Problems* problems);

// Adds a delta that passed `match_deltas` to the row-major elements of its weight. Sums are double, rounded once.
void add_delta(const WeightRecord& weight, const aotpack_weight_delta& delta, void* elements);

}  // namespace aotpack::runtime
