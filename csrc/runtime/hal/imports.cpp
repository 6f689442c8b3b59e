#include "hal/imports.h"

#include <algorithm>

#include "aotpack/module_abi.h"
#include "base/status.h"

namespace aotpack::runtime {
namespace {

CallState& state_of(void* runtime) noexcept { return *static_cast<CallState*>(runtime); }

void* import_alloc(void* runtime, size_t bytes) noexcept { return state_of(runtime).allocate(bytes); }

void import_free(void* runtime, void* block) noexcept {
  if (block != nullptr) state_of(runtime).release(block);
}

void import_fail(void* runtime, int32_t code, const char* message, size_t length) noexcept {
  state_of(runtime).fail(code, AOTPACK_OK, message, length);
}

void import_mark(void* runtime, uint32_t kernel, uint32_t end) noexcept {
  if (Profile* profile = state_of(runtime).profile) profile->mark(kernel, end != 0);
}

// SplitMix64 (G. L. Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014).
uint64_t import_seed(void* runtime) noexcept {
  if (Recorder* recorder = state_of(runtime).recorder) {
    recorder->refuse();  // the next call has another seed
    return 0;
  }
  uint64_t z = state_of(runtime).seed += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Runs `body` on the stream of the call; what it throws becomes the failure of the call.
template <typename Body>
int32_t submit(void* runtime, Body body) noexcept {
  CallState& state = state_of(runtime);
  const auto failed = [&](aotpack_code error, const std::string& message) {
    const int32_t code = error == AOTPACK_OUT_OF_MEMORY ? AOTPACK_MODULE_OUT_OF_MEMORY : AOTPACK_MODULE_FAILED;
    state.fail(code, error, message.data(), message.size());
    return code;
  };
  try {
    body(*state.stream);
    return AOTPACK_MODULE_OK;
  } catch (const Error& error) {
    return failed(error.code(), error.message());
  } catch (...) {
    return failed(AOTPACK_OUT_OF_MEMORY, {});
  }
}

int32_t import_launch(void* runtime, const aotpack_module_launch* launch) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.launch(*launch); });
}

int32_t import_copy(void* runtime, void* to, const void* from, size_t bytes) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.copy_on_device(to, from, bytes); });
}

int32_t import_upload(void* runtime, void* to, const void* from, size_t bytes) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.upload(to, from, bytes); });
}

int32_t import_download(void* runtime, void* to, const void* from, size_t bytes) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.download(to, from, bytes); });
}

int32_t import_fill(void* runtime, void* to, uint64_t value, size_t item, size_t count) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.fill(to, value, item, count); });
}

int32_t import_tensor_map(void* runtime, const aotpack_module_tensor_map* map) noexcept {
  return submit(runtime, [&](Stream& stream) { stream.tensor_map(*map); });
}

// The memory of a call, for libraries.
class CallMemory final : public WorkMemory {
 public:
  explicit CallMemory(CallState& state) : state_(state) {}
  void* allocate(size_t bytes) noexcept override { return state_.allocate(bytes); }
  void release(void* memory) noexcept override { state_.release(memory); }

 private:
  CallState& state_;
};

int32_t import_provide(void* runtime, const aotpack_module_library_call* call, uint32_t* out_done) noexcept {
  *out_done = 0;
  CallMemory memory(state_of(runtime));
  return submit(runtime, [&](Stream& stream) { *out_done = stream.provide(*call, memory) ? 1 : 0; });
}

}  // namespace

void* CallState::allocate(size_t bytes) noexcept {
  void* block = nullptr;
  try {
    if (recorder != nullptr) {
      block = recorder->allocate(bytes);
      allocation_failed = allocation_failed || block == nullptr;
      return block;
    }
    block = allocator->allocate(bytes);
    if (block != nullptr) {
      void* data = Allocator::data(block);
      if (data != block) blocks.emplace_back(data, block);
      return data;
    }
  } catch (...) {
    if (block != nullptr) Allocator::release_block(block);
  }
  allocation_failed = true;
  return nullptr;
}

void CallState::release(void* memory) noexcept {
  if (recorder != nullptr) return recorder->free(memory);
  // What was allocated last is released first more often than not.
  for (size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].first != memory) continue;
    Allocator::release_block(blocks[i].second);
    blocks[i] = blocks.back();
    return blocks.pop_back();
  }
  if (allocator->is_host()) Allocator::release_block(memory);
}

bool CallState::take_blocks(aotpack_module_tensor* outputs, size_t count) noexcept {
  if (allocator->is_host()) return true;
  const auto find = [&](const void* memory) {
    return std::find_if(blocks.begin(), blocks.end(), [&](const auto& block) { return block.first == memory; });
  };
  for (size_t i = 0; i < count; ++i) {
    if (outputs[i].block != nullptr && find(outputs[i].block) == blocks.end()) return false;
  }
  for (size_t i = 0; i < count; ++i) {
    if (outputs[i].block != nullptr) outputs[i].block = find(outputs[i].block)->second;
  }
  for (const auto& [data, block] : blocks) {
    const auto is_in = [&, own = block](const aotpack_module_tensor& output) { return output.block == own; };
    if (std::none_of(outputs, outputs + count, is_in)) Allocator::release_block(block);
  }
  blocks.clear();
  return true;
}

void CallState::release_blocks() noexcept {
  for (const auto& [data, block] : blocks) Allocator::release_block(block);
  blocks.clear();
}

void CallState::fail(int32_t code, aotpack_code reason, const char* message, size_t length) noexcept {
  if (fail_code != 0) return;  // the first reason is the cause
  fail_code = code;
  error = reason;
  try {
    if (message != nullptr) fail_message.assign(message, length);
  } catch (...) {  // no memory for the message; the code says enough
  }
}

void* find_import(std::string_view name, bool on_host) noexcept {
  // Through a variable of the type that module_abi.h promises.
#define AOTPACK_FIND(wanted)                                           \
  {                                                                    \
    constexpr aotpack_import_##wanted##_fn function = import_##wanted; \
    if (name == #wanted) return reinterpret_cast<void*>(function);     \
  }
  AOTPACK_MODULE_IMPORTS(AOTPACK_FIND)
  AOTPACK_PROFILE_IMPORTS(AOTPACK_FIND)
  if (on_host) return nullptr;
  AOTPACK_DEVICE_IMPORTS(AOTPACK_FIND)
  AOTPACK_TENSOR_MAP_IMPORTS(AOTPACK_FIND)
  AOTPACK_PROVIDER_IMPORTS(AOTPACK_FIND)
#undef AOTPACK_FIND
  return nullptr;
}

const char* import_names(bool on_host) noexcept {
#define AOTPACK_NAME(name) ", " #name
  constexpr const char* kHostNames = AOTPACK_MODULE_IMPORTS(AOTPACK_NAME) AOTPACK_PROFILE_IMPORTS(AOTPACK_NAME);
  constexpr const char* kNames =
      AOTPACK_MODULE_IMPORTS(AOTPACK_NAME) AOTPACK_PROFILE_IMPORTS(AOTPACK_NAME) AOTPACK_DEVICE_IMPORTS(AOTPACK_NAME)
          AOTPACK_TENSOR_MAP_IMPORTS(AOTPACK_NAME) AOTPACK_PROVIDER_IMPORTS(AOTPACK_NAME);
#undef AOTPACK_NAME
  return (on_host ? kHostNames : kNames) + 2;  // without the first comma
}

}  // namespace aotpack::runtime
