// Copies of whole tensors, of the host or of a device.
#pragma once

#include "aotpack/dlpack.h"
#include "call/workspace.h"

namespace aotpack::runtime {

// See aotpack_tensor_copy. Throws INVALID_ARGUMENT, UNSUPPORTED_TARGET for a device that is not there, or what streams
// throw.
void copy_tensor(const DLTensor& from, const DLTensor& to);

// See aotpack_context_to_device. Throws INVALID_ARGUMENT, OUT_OF_MEMORY, or what streams throw.
DLManagedTensorVersioned* copy_to_device(const DLTensor& from, const Workspace& workspace);

}  // namespace aotpack::runtime
