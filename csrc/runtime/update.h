// From tensors that a caller gives to a new set of weights.
#ifndef AOTPACK_RUNTIME_UPDATE_H_
#define AOTPACK_RUNTIME_UPDATE_H_

#include <cstdint>
#include <memory>

#include "aotpack/dlpack.h"
#include "model.h"

namespace aotpack::runtime {

// Checks all tensors, copies those that modules read, and runs the fold on `num_threads` threads. Throws
// INVALID_ARGUMENT with everything that is wrong, OUT_OF_MEMORY, or what the fold's module fails with; nothing has
// changed then. The model is updatable. What is held at most: the new set, and the scratch memory of the fold.
std::shared_ptr<const WeightSet> make_updated_set(Model* model, uint64_t id, const char* const* names,
                                                  const DLTensor* const* tensors, size_t count, int32_t num_threads);

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_UPDATE_H_
