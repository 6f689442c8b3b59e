// Runs the generated function of a module, and turns what it throws into the error of the call.
#pragma once

#include <algorithm>
#include <new>
#include <vector>

#include "shim/failures.h"
#include "shim/handles.h"

namespace aotpack::module {

inline void run_model(Call& scope, const aotpack_module_call* call, uint32_t inputs, uint32_t outputs,
                      uint32_t constants) {
  using torch::aot_inductor::ConstantHandle;
  std::vector<ConstantHandle> constant_handles;
  constant_handles.reserve(constants);
  for (uint32_t i = 0; i < constants; ++i) constant_handles.emplace_back(scope.borrow(call->constants[i]));
  // Inputs and outputs in one array, so that a call needs one more block at most.
  std::vector<Tensor*> handles(inputs + outputs, nullptr);
  for (uint32_t i = 0; i < inputs; ++i) {
    handles[i] = scope.borrow(call->inputs[i]);
    handles[i]->storage->on_host = call->input_devices[i].type == kHostDevice;
  }
  torch::aot_inductor::AOTInductorModel model(constant_handles);
  model.run_impl(handles.data(), handles.data() + inputs, call->stream, nullptr);
  scope.give(handles.data() + inputs, outputs, call->outputs);
  std::fill_n(call->output_devices, outputs, call->device);
}

inline int32_t run(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants) {
  Call scope(call);
  try {
    run_model(scope, call, inputs, outputs, constants);
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

// Defines the exported function. `imports` is an array of names; `assets` one of `num_assets` names, or null.
#define AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, imports, run, features, num_assets, \
                                    assets)                                                                      \
  extern "C" __attribute__((visibility("default"))) const aotpack_module* aotpack_module_query(                  \
      uint32_t max_abi_version) {                                                                                \
    static const aotpack_module module = {AOTPACK_MODULE_ABI_VERSION,                                            \
                                          sizeof(aotpack_module),                                                \
                                          target_name,                                                           \
                                          inputs,                                                                \
                                          outputs,                                                               \
                                          constants,                                                             \
                                          std::size(imports),                                                    \
                                          imports,                                                               \
                                          run,                                                                   \
                                          features,                                                              \
                                          num_assets,                                                            \
                                          0,                                                                     \
                                          assets};                                                               \
    return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &module : nullptr;                                    \
  }
