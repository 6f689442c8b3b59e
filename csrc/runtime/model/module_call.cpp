#include "model/module_call.h"

namespace aotpack::runtime {

ModuleCall::ModuleCall(const Executable& executable, const std::vector<bool>& numbers, size_t num_outputs,
                       size_t num_constants)
    : call_(executable.call()),
      names_devices_(executable.abi_version() >= 2),
      inputs_(numbers.size(), call_.device),
      constants_(num_constants, call_.device),
      outputs_(num_outputs, call_.device) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i]) inputs_[i] = {kDLCPU, 0};
  }
  call_.input_devices = inputs_.data();
  call_.constant_devices = constants_.data();
}

}  // namespace aotpack::runtime
