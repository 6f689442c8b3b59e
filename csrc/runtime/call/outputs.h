// Checks what a module returned and writes it into buffers of the caller.
#pragma once

#include <cstddef>
#include <vector>

#include "aotpack/dlpack.h"
#include "aotpack/module_abi.h"
#include "hal/stream.h"
#include "model/module_call.h"
#include "model/plan.h"

namespace aotpack::runtime {

// That the module kept to the manifest; `sizes` are those of the call, by slot. Throws INTERNAL.
void check_outputs(const EntryPlan& plan, const std::vector<aotpack_module_tensor>& outputs, const int64_t* sizes);

// The same for where the outputs are; `devices[i]` is what the module said of output i.
void check_output_devices(const EntryRecord& entry, const ModuleCall& call, const aotpack_module_device* devices);

// What can be known of the caller's buffers before the call. Throws INVALID_ARGUMENT.
void check_destinations(const EntryRecord& entry, const DLTensor* const* destinations, size_t count);
// And what only the results tell: their sizes.
void check_destination_sizes(const EntryRecord& entry, const std::vector<aotpack_module_tensor>& outputs,
                             const DLTensor* const* destinations);

// Whether the memory of an output may overlap that of some destination.
bool touches_any(const ValueRecord& value, const aotpack_module_tensor& output, const DLTensor* const* destinations,
                 size_t count) noexcept;

// Into a destination that was checked.
void copy_out(const ValueRecord& value, const aotpack_module_tensor& output, const DLTensor& destination,
              Stream& stream);

}  // namespace aotpack::runtime
