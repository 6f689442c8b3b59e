// The checks of generated kernels, as shim/failures.h has them, without the standard library.
#pragma once

extern "C" int omp_get_thread_num();
extern "C" int omp_get_max_threads();

namespace aotpack::generated {

// Thrown in the body of a loop, and caught there.
struct Fault {
  const char* message;
};

inline const char* check_message(const char* condition) { return condition; }
template <typename... Rest>
inline const char* check_message(const char*, const char* message, const Rest&...) {
  return message;
}

// Fails the call with this message.
[[noreturn]] __attribute__((visibility("hidden"))) void fail(const char* message);

}  // namespace aotpack::generated

#define AOTI_TORCH_CHECK(condition, ...)                                                                       \
  if (!(condition)) {                                                                                          \
    throw aotpack::generated::Fault{aotpack::generated::check_message(#condition __VA_OPT__(, ) __VA_ARGS__)}; \
  }
#define AOTPACK_FAULT_DECLARE const char* aotpack_fault = nullptr;
#define AOTPACK_GUARD_BEGIN try {
#define AOTPACK_GUARD_END                                              \
  }                                                                    \
  catch (const aotpack::generated::Fault& fault) {                     \
    __atomic_store_n(&aotpack_fault, fault.message, __ATOMIC_RELAXED); \
  }
#define AOTPACK_FAULT_RAISE \
  if (const char* message = __atomic_load_n(&aotpack_fault, __ATOMIC_RELAXED)) aotpack::generated::fail(message);
