// The one exported symbol of a module. The generated wrapper ends with AOTPACK_DEFINE_MODULE.
#pragma once

#include <iterator>

#include "run.h"
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

}  // namespace aotpack::module

#define AOTPACK_DEFINE_MODULE(target_name, inputs, outputs, constants)                                \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                \
    aotpack::module::ThreadCount threads(call->num_threads);                                          \
    return aotpack::module::run(call, inputs, outputs, constants);                                    \
  }                                                                                                   \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kImportNames, \
                              aotpack_module_run, 0, 0, nullptr)
