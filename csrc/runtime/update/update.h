// Replaces a model's weights by those of a caller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aotpack/aotpack.h"
#include "model/model.h"

namespace aotpack::runtime {

// Borrowed from the caller.
struct GivenWeights {
  const char* const* names;
  const DLTensor* const* tensors;
  size_t count;
  const aotpack_weight_delta* const* deltas;
  size_t delta_count;
  bool partial = false;        // weights that are not given keep the value that they have in the base
  bool from_archive = false;   // the base is the archive's set instead of the current one
  bool keep_originals = true;  // also of constants that only the fold reads
};

// See aotpack_model_update_weights. Checks everything, copies the tensors that are to be kept, adds the deltas, and
// runs the fold on `num_threads` threads if what it reads has changed. Constants that come out as they are in the base
// share its memory. Throws INVALID_ARGUMENT with everything that is wrong, OUT_OF_MEMORY, or what the fold's module
// fails with; nothing has changed then. What is held at most: the new set, the scratch memory of the fold, and the
// factors of one delta.
//
// All of this happens on the host. On another device, what calls read there is then uploaded: for that time memory of
// the host holds what changed, and the device holds it besides the old values.
void update_weights(Model* model, const GivenWeights& given, int32_t num_threads);

}  // namespace aotpack::runtime
