// What the calls of one module have in common, worked out once at load.
#pragma once

#include <cstddef>
#include <vector>

#include "aotpack/module_abi.h"
#include "hal/executable.h"

namespace aotpack::runtime {

// Immutable. Refers to the executable, which outlives it.
class ModuleCall {
 public:
  ModuleCall() = default;
  // Of a module whose inputs, constants and outputs are all on the device that runs it, but for inputs that are
  // numbers: those are in memory of the host.
  ModuleCall(const Executable& executable, const std::vector<bool>& numbers, size_t num_outputs, size_t num_constants);
  ModuleCall(ModuleCall&&) = default;
  ModuleCall& operator=(ModuleCall&&) = default;
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  // A call without its tensors, output_devices, stream, runtime and number of threads.
  const aotpack_module_call& prepared() const noexcept { return call_; }
  // Whether the module fills output_devices. Those of ABI version 1 do not know them.
  bool names_devices() const noexcept { return names_devices_; }
  // Where each output must be.
  const std::vector<aotpack_module_device>& output_devices() const noexcept { return outputs_; }

 private:
  aotpack_module_call call_{};
  bool names_devices_ = false;
  std::vector<aotpack_module_device> inputs_;
  std::vector<aotpack_module_device> constants_;
  std::vector<aotpack_module_device> outputs_;
};

}  // namespace aotpack::runtime
