// Failures inside of generated kernels, which must not leave a parallel region.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensor.h"

// Thrown where generated kernel code finds an index out of range. The build wraps the innermost loop body around such a
// check in AOTPACK_GUARD_BEGIN/END (aotpack/export/backends/cpu/kernel_source.py), so it never leaves the parallel
// region.
struct AotpackKernelFault {
  const char* message;
};

inline void aoti_torch_check(bool condition, const char*, const char*, uint32_t, const char* message) {
  if (!condition) throw AotpackKernelFault{message};
}
inline void aoti_torch_warn(const char*, const char*, uint32_t, const char*) {}
#define AOTI_TORCH_WARN(...) static_cast<void>(0)
#define AOTI_TORCH_CHECK(condition, ...)                                                    \
  if (!(condition)) {                                                                       \
    throw AotpackKernelFault{aotpack_check_message(#condition __VA_OPT__(, ) __VA_ARGS__)}; \
  }
inline const char* aotpack_check_message(const char* condition) { return condition; }
template <typename... Rest>
inline const char* aotpack_check_message(const char*, const char* message, const Rest&...) {
  return message;
}

#define AOTPACK_FAULT_DECLARE std::atomic<const char*> aotpack_fault{nullptr};
#define AOTPACK_GUARD_BEGIN try {
#define AOTPACK_GUARD_END                                          \
  }                                                                \
  catch (const AotpackKernelFault& fault) {                        \
    aotpack_fault.store(fault.message, std::memory_order_relaxed); \
  }
#define AOTPACK_FAULT_RAISE \
  if (const char* message = aotpack_fault.load(std::memory_order_relaxed)) aotpack::module::throw_invalid(message);
