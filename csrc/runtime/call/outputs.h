// Checks what a module returned and writes it into buffers of the caller.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "aotpack/dlpack.h"
#include "aotpack/module_abi.h"
#include "call/workspace.h"
#include "hal/stream.h"
#include "model/module_call.h"
#include "model/plan.h"

namespace aotpack::runtime {

// Whether a module kept to what the manifest says of a value. `slots` are those of its axes, `sizes` those of the call.
bool is_as_declared(const ValueRecord& value, const aotpack_module_tensor& output, const uint32_t* slots,
                    const int64_t* sizes) noexcept;
// Throws INTERNAL; `step` is "" or ", step 2".
[[noreturn, gnu::noinline]] void refuse_output(const EntryRecord& entry, std::string_view step,
                                               const ValueRecord& value);
// That the module kept to the manifest; `sizes` are those of the call, by slot. Throws INTERNAL.
void check_outputs(const EntryPlan& plan, const std::vector<aotpack_module_tensor>& outputs, const int64_t* sizes);

// The same for where the outputs of a variant that is direct are; `devices[i]` is what the module said of output i.
void check_output_devices(const EntryRecord& entry, const ModuleCall& call, const aotpack_module_device* devices);
// The same for one output, number `index` of a step whose module names devices.
void check_output_device(const EntryRecord& entry, const std::string& step, const ValueRecord& value,
                         const ModuleCall& call, size_t index, aotpack_module_device device);

// A block that several outputs share comes with one reference; afterwards every output has its own. First of all that
// is done with outputs: an error further on then releases each of them rightly.
void adopt_outputs(std::vector<aotpack_module_tensor>* outputs) noexcept;
// Makes an output dense in the model's order, the owner of its block, and where the value lies; `on_host`: the module
// made it on the host, while the model's device is another. What aliases an input or a constant, or is a view of
// something bigger, gets memory of its own. Returns a block that is to be released once the stream has copied from it,
// or NULL. Throws OUT_OF_MEMORY or INTERNAL.
void* own_output(const ValueRecord& value, aotpack_module_tensor& output, bool on_host, const Workspace& workspace);

// What can be known of the caller's buffers, on the CPU or on `device`, before the call. Throws INVALID_ARGUMENT.
void check_destinations(const EntryRecord& entry, const DLTensor* const* destinations, size_t count, DLDevice device);
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
