#include "hal/imports.h"

#include "aotpack/module_abi.h"

namespace aotpack::runtime {
namespace {

CallState& state_of(void* runtime) noexcept { return *static_cast<CallState*>(runtime); }

void* import_alloc(void* runtime, size_t bytes) noexcept {
  CallState& state = state_of(runtime);
  // In this version of the ABI a block is its data: its modules run on the host.
  void* block = state.allocator->allocate(bytes);
  if (block == nullptr) state.allocation_failed = true;
  return block;
}

void import_free(void*, void* block) noexcept {
  if (block != nullptr) Allocator::release_block(block);
}

void import_fail(void* runtime, int32_t code, const char* message, size_t length) noexcept {
  CallState& state = state_of(runtime);
  if (state.fail_code != 0) return;  // the first reason is the cause
  state.fail_code = code;
  try {
    if (message != nullptr) state.fail_message.assign(message, length);
  } catch (...) {  // no memory for the message; the code says enough
  }
}

// SplitMix64 (G. L. Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014).
uint64_t import_seed(void* runtime) noexcept {
  uint64_t z = state_of(runtime).seed += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

void* find_import(std::string_view name) noexcept {
  // Through a variable of the type that module_abi.h promises.
#define AOTPACK_FIND(wanted)                                           \
  {                                                                    \
    constexpr aotpack_import_##wanted##_fn function = import_##wanted; \
    if (name == #wanted) return reinterpret_cast<void*>(function);     \
  }
  AOTPACK_MODULE_IMPORTS(AOTPACK_FIND)
#undef AOTPACK_FIND
  return nullptr;
}

const char* import_names() noexcept {
#define AOTPACK_NAME(name) ", " #name
  constexpr const char* kNames = AOTPACK_MODULE_IMPORTS(AOTPACK_NAME);
#undef AOTPACK_NAME
  return kNames + 2;  // without the first comma
}

}  // namespace aotpack::runtime
