// Runs the generated function of a module, and turns what it throws into the error of the call.
#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <vector>

#include "shim/failures.h"
#include "tensor.h"

namespace aotpack::module {

// What `run_function` does, called with its constants, inputs, and room for its outputs.
template <class ConstantHandle, class Function>
void run_in(Call& scope, const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants,
            const Function& function) {
  std::vector<ConstantHandle> constant_handles;
  constant_handles.reserve(constants);
  for (uint32_t i = 0; i < constants; ++i) constant_handles.emplace_back(scope.borrow(call->constants[i]));
  // Inputs and outputs in one array, so that a call needs one more block at most.
  std::vector<Tensor*> handles(inputs + outputs, nullptr);
  for (uint32_t i = 0; i < inputs; ++i) {
    handles[i] = scope.borrow(call->inputs[i]);
    handles[i]->storage->on_host = call->input_devices[i].type == kHostDevice;
  }
  function(constant_handles, handles.data(), handles.data() + inputs);
  scope.give(handles.data() + inputs, outputs, call->outputs);
  std::fill_n(call->output_devices, outputs, call->device);
}

// Calls `function(constants, inputs, outputs)`: a vector of handles, and arrays of tensors. Returns the status of the
// module.
template <class ConstantHandle, class Function>
int32_t run_function(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants,
                     const Function& function) {
  Call scope(call);
  try {
    run_in<ConstantHandle>(scope, call, inputs, outputs, constants, function);
    return AOTPACK_MODULE_OK;
  } catch (const ImportFailure& failure) {
    return failure.code;
  } catch (const Error& error) {
    scope.fail(error);
    return error.code();
  } catch (const AotpackKernelFault& fault) {
    scope.fail(Error(AOTPACK_MODULE_INVALID_ARGUMENT, fault.message));
    return AOTPACK_MODULE_INVALID_ARGUMENT;
  } catch (const std::bad_alloc&) {
    scope.fail(Error(AOTPACK_MODULE_OUT_OF_MEMORY, "out of memory"));
    return AOTPACK_MODULE_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    scope.fail(Error(AOTPACK_MODULE_FAILED, error.what()));
    return AOTPACK_MODULE_FAILED;
  } catch (...) {
    scope.fail(Error(AOTPACK_MODULE_FAILED, "unknown exception"));
    return AOTPACK_MODULE_FAILED;
  }
}

}  // namespace aotpack::module
