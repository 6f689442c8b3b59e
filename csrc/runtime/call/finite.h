// See aotpack_context_set_check_finite.
#pragma once

#include <vector>

#include "aotpack/module_abi.h"
#include "call/workspace.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// Throws EXECUTION_FAILED with the first output that has an infinite element or a NaN, or OUT_OF_MEMORY. Reads outputs
// of real and complex floating dtypes; those of a device are copied to the host.
void check_finite(const EntryRecord& entry, const std::vector<aotpack_module_tensor>& outputs,
                  const Workspace& workspace);

}  // namespace aotpack::runtime
