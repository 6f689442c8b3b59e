// The one exported symbol of a module. The generated wrapper ends with AOTPACK_DEFINE_MODULE.
#pragma once

#include <algorithm>
#include <iterator>
#include <new>

#include "shim.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_NAME(name) #name,
inline constexpr const char* kImportNames[] = {AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_NAME)};
#undef AOTPACK_IMPORT_NAME

// OpenMP keeps the team size per thread of the caller, who may use OpenMP too: it is put back.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(omp_get_max_threads()) {
    if (before_ != count) omp_set_num_threads(count);
  }
  ~ThreadCount() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

inline void run_model(Call& scope, const aotpack_module_call* call, uint32_t inputs, uint32_t outputs,
                      uint32_t constants) {
  using torch::aot_inductor::ConstantHandle;
  std::vector<ConstantHandle> constant_handles;
  constant_handles.reserve(constants);
  for (uint32_t i = 0; i < constants; ++i) constant_handles.emplace_back(scope.borrow(call->constants[i]));
  // Inputs and outputs in one array, so that a call needs one more block at most.
  std::vector<Tensor*> handles(inputs + outputs, nullptr);
  for (uint32_t i = 0; i < inputs; ++i) handles[i] = scope.borrow(call->inputs[i]);
  torch::aot_inductor::AOTInductorModel model(constant_handles);
  model.run_impl(handles.data(), handles.data() + inputs, nullptr, nullptr);
  scope.give(handles.data() + inputs, outputs, call->outputs);
  std::fill_n(call->output_devices, outputs, call->device);
}

inline int32_t run(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants) {
  ThreadCount threads(call->num_threads);
  Call scope(call);
  try {
    run_model(scope, call, inputs, outputs, constants);
    return AOTPACK_MODULE_OK;
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

#define AOTPACK_DEFINE_MODULE(target_name, inputs, outputs, constants)                          \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                          \
    return aotpack::module::run(call, inputs, outputs, constants);                              \
  }                                                                                             \
  extern "C" __attribute__((visibility("default"))) const aotpack_module* aotpack_module_query( \
      uint32_t max_abi_version) {                                                               \
    static const aotpack_module module = {AOTPACK_MODULE_ABI_VERSION,                           \
                                          sizeof(aotpack_module),                               \
                                          target_name,                                          \
                                          inputs,                                               \
                                          outputs,                                              \
                                          constants,                                            \
                                          std::size(aotpack::module::kImportNames),             \
                                          aotpack::module::kImportNames,                        \
                                          aotpack_module_run,                                   \
                                          0,                                                    \
                                          0,                                                    \
                                          0,                                                    \
                                          nullptr};                                             \
    return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &module : nullptr;                   \
  }
