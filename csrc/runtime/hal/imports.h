// The functions that modules may ask for (module_abi.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"
#include "hal/allocator.h"
#include "hal/profile.h"
#include "hal/recorder.h"
#include "hal/stream.h"

namespace aotpack::runtime {

// What imports act on: `aotpack_module_call::runtime` points to one. Belongs to a context.
struct CallState {
  Allocator* allocator = nullptr;
  Stream* stream = nullptr;
  Recorder* recorder = nullptr;  // where the call is recorded: the stream, and memory comes from here too
  Profile* profile = nullptr;    // where calls are profiled
  uint64_t seed = 0;             // of the generator behind "seed"
  bool allocation_failed = false;
  int32_t fail_code = 0;
  std::string fail_message;
  aotpack_code error = AOTPACK_OK;  // what the device failed with, if it was that
  // What the module has allocated on a device, where memory does not tell its block: data and block.
  std::vector<std::pair<void*, void*>> blocks;

  // Before a call.
  void reset() noexcept {
    allocation_failed = false;
    fail_code = 0;
    fail_message.clear();
    error = AOTPACK_OK;
  }

  // Memory as modules get it: on the host the block itself, elsewhere its data.
  void* allocate(size_t bytes) noexcept;
  void release(void* memory) noexcept;
  // After a module has succeeded: turns the memory that outputs are in, as modules know it, into blocks, and releases
  // what no output is in. False, with nothing changed, when the module did not allocate some of it.
  bool take_blocks(aotpack_module_tensor* outputs, size_t count) noexcept;
  // After one that has failed.
  void release_blocks() noexcept;
  // Records why the call fails, unless an earlier reason is recorded.
  void fail(int32_t code, aotpack_code error, const char* message, size_t length) noexcept;
};

// NULL when the runtime has no import of this name; modules that run on the host have fewer.
void* find_import(std::string_view name, bool on_host) noexcept;
// All of them, for messages.
const char* import_names(bool on_host) noexcept;

}  // namespace aotpack::runtime
