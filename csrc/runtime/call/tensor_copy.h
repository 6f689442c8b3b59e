// Copies of whole tensors, of the host or of a device.
#pragma once

#include "aotpack/dlpack.h"

namespace aotpack::runtime {

// See aotpack_tensor_copy. Throws INVALID_ARGUMENT, UNSUPPORTED_TARGET for a device that is not there, or what streams
// throw.
void copy_tensor(const DLTensor& from, const DLTensor& to);

}  // namespace aotpack::runtime
