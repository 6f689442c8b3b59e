// Hooks around the calls of kernels, in modules that are built for profiles. Included by generated wrappers.
//
//   AOTPACK_KERNEL(3)
//   cpp_fused_relu_3(...);
//   AOTPACK_KERNEL_END
#pragma once

#include <iterator>

#include "tensor.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_NAME(name) #name,
inline constexpr const char* kProfiledImportNames[] = {AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_NAME)
                                                           AOTPACK_PROFILE_IMPORTS(AOTPACK_IMPORT_NAME)};
#undef AOTPACK_IMPORT_NAME

// Tells the runtime when a kernel begins and ends, also when it throws.
class KernelMark {
 public:
  explicit KernelMark(uint32_t kernel) : kernel_(kernel) { mark(0); }
  ~KernelMark() { mark(1); }
  KernelMark(const KernelMark&) = delete;
  KernelMark& operator=(const KernelMark&) = delete;

 private:
  void mark(uint32_t end) const {
    const aotpack_module_call& call = Call::current().arguments();
    void* import = call.imports[std::size(kProfiledImportNames) - 1];
    reinterpret_cast<aotpack_import_mark_fn>(import)(call.runtime, kernel_, end);
  }

  uint32_t kernel_;
};

}  // namespace aotpack::module

#define AOTPACK_KERNEL(index) \
  {                           \
    const aotpack::module::KernelMark aotpack_kernel_mark(index);
#define AOTPACK_KERNEL_END }

// As AOTPACK_DEFINE_MODULE (entry.h), for a module with hooks.
#define AOTPACK_DEFINE_PROFILED_MODULE(target_name, inputs, outputs, constants)                               \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                        \
    aotpack::module::ThreadCount threads(call->num_threads);                                                  \
    return aotpack::module::run(call, inputs, outputs, constants);                                            \
  }                                                                                                           \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kProfiledImportNames, \
                              aotpack_module_run, 0, 0, nullptr)
