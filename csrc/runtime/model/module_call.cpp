#include "model/module_call.h"

namespace aotpack::runtime {

ModuleCall::ModuleCall(const Executable& executable, size_t num_inputs, size_t num_outputs, size_t num_constants)
    : call_(executable.call()),
      names_devices_(executable.abi_version() >= 2),
      inputs_(num_inputs, call_.device),
      constants_(num_constants, call_.device),
      outputs_(num_outputs, call_.device) {
  call_.input_devices = inputs_.data();
  call_.constant_devices = constants_.data();
}

}  // namespace aotpack::runtime
