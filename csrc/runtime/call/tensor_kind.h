// Whether a tensor of a call is of the kind that the signature asks for.
#pragma once

#include "aotpack/dlpack.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// Checks that a tensor is there, on the CPU or on `device`, and of this dtype and rank; `role` ("input") starts the
// message. Throws INVALID_ARGUMENT.
void check_tensor_kind(const char* role, const EntryRecord& entry, const ValueRecord& value, const DLTensor* given,
                       DLDevice device);

}  // namespace aotpack::runtime
