#include "control.h"

#include <cstring>
#include <memory>

#include "state.h"

using namespace fake_cuda;

EXPORT void fake_cuda_fail(const char* function, int n, int result) {
  const std::lock_guard lock(state().mutex);
  state().failures[function] = {state().calls[function] + static_cast<uint64_t>(n), result};
}

EXPORT void fake_cuda_recover(void) {
  const std::lock_guard lock(state().mutex);
  state().failures.clear();
  for (Device& device : state().devices) device.fault = 0;
}

EXPORT uint64_t fake_cuda_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

EXPORT uint64_t fake_cuda_all_calls(void) {
  const std::lock_guard lock(state().mutex);
  uint64_t count = 0;
  for (const auto& [function, calls] : state().calls) count += calls;
  return count;
}

EXPORT size_t fake_cuda_live(void) {
  const std::lock_guard lock(state().mutex);
  size_t count = 0;
  for (const Device& device : state().devices) count += device.memory->live();
  return count;
}

EXPORT size_t fake_cuda_live_bytes(void) {
  const std::lock_guard lock(state().mutex);
  size_t count = 0;
  for (const Device& device : state().devices) count += device.memory->live_bytes();
  return count;
}

EXPORT size_t fake_cuda_pinned(void) {
  const std::lock_guard lock(state().mutex);
  return state().pinned.size();
}

EXPORT size_t fake_cuda_streams(void) {
  const std::lock_guard lock(state().mutex);
  return state().streams.size();
}

EXPORT size_t fake_cuda_libraries(void) {
  const std::lock_guard lock(state().mutex);
  return state().libraries.size();
}

EXPORT size_t fake_cuda_execs(void) {
  const std::lock_guard lock(state().mutex);
  return state().execs.size();
}

EXPORT size_t fake_cuda_graphs(void) {
  const std::lock_guard lock(state().mutex);
  return state().graphs.size();
}

EXPORT uint64_t fake_cuda_early_starts(void) {
  const std::lock_guard lock(state().mutex);
  return state().early_starts;
}

EXPORT void fake_cuda_set_capturing(void* stream, int is_capturing) {
  const std::lock_guard lock(state().mutex);
  const auto known = state().streams.find(static_cast<CUstream_st*>(stream));
  if (known != state().streams.end()) known->second->is_capturing = is_capturing != 0;
}

EXPORT size_t fake_cuda_pending(void* stream) {
  const std::lock_guard lock(state().mutex);
  const auto known = state().streams.find(static_cast<CUstream_st*>(stream));
  return known != state().streams.end() ? known->second->work.size() : 0;
}

EXPORT uint64_t fake_cuda_allocate(int device, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  return state().devices[static_cast<size_t>(device)].memory->allocate(bytes);
}

EXPORT void fake_cuda_free(uint64_t address) {
  const std::lock_guard lock(state().mutex);
  for (Device& device : state().devices) {
    if (device.memory->free(address)) return;
  }
}

EXPORT void fake_cuda_read(void* to, uint64_t from, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  std::memcpy(to, access(from, bytes), bytes);
}

EXPORT void fake_cuda_write(uint64_t to, const void* from, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  std::memcpy(access(to, bytes), from, bytes);
}

EXPORT int fake_cuda_submit(void* stream, int (*run)(void* data), void* data, void (*drop)(void* data)) {
  const std::shared_ptr<void> owned(data, drop);
  ENTER(true);
  return submit(static_cast<CUstream_st*>(stream), [run, owned] {
    if (const int result = run(owned.get())) throw Fault{result};
  });
}

EXPORT void* fake_cuda_access(uint64_t address, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  try {
    return device_access(address, bytes);
  } catch (const Fault&) {
    return nullptr;
  }
}
