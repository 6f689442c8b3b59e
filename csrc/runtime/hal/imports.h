// The functions that modules may ask for (module_abi.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "hal/allocator.h"

namespace aotpack::runtime {

// What imports act on: `aotpack_module_call::runtime` points to one. Belongs to a context.
struct CallState {
  Allocator* allocator = nullptr;
  uint64_t seed = 0;  // of the generator behind "seed"
  bool allocation_failed = false;
  int32_t fail_code = 0;
  std::string fail_message;

  // Before a call.
  void reset() noexcept {
    allocation_failed = false;
    fail_code = 0;
    fail_message.clear();
  }
};

// NULL when the runtime has no import of this name.
void* find_import(std::string_view name) noexcept;
// All of them, for messages.
const char* import_names() noexcept;

}  // namespace aotpack::runtime
