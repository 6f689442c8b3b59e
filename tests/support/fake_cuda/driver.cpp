// The driver's functions. Signatures as in cuda.h of CUDA 12.0.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "control.h"
#include "state.h"

using namespace fake_cuda;

namespace {

int version() {
  const char* text = std::getenv("FAKE_CUDA_VERSION");
  return text != nullptr ? std::atoi(text) : 12040;
}

template <typename T>
int fill(Address to, T value, size_t count, CUstream_st* stream) {
  return submit(stream, [=] {
    char* memory = device_access(to, count * sizeof(T));
    for (size_t i = 0; i < count; ++i) std::memcpy(memory + i * sizeof(T), &value, sizeof(T));
  });
}

}  // namespace

EXPORT int cuDriverGetVersion(int* out) {
  *out = version();
  return 0;
}

EXPORT int cuInit(unsigned flags) {
  const std::lock_guard lock(state().mutex);
  initialise();
  if (const int failed = enter(__func__, false)) return failed;
  if (flags != 0) return 1;
  return state().devices.empty() ? 100 : 0;
}

EXPORT int cuGetErrorName(int result, const char** out) {
  *out = result == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return 0;
}

EXPORT int cuGetErrorString(int result, const char** out) {
  *out = result == 700 ? "an illegal memory access was encountered" : result == 2 ? "out of memory" : "a fake error";
  return 0;
}

EXPORT int cuDeviceGetCount(int* out) {
  ENTER(false);
  *out = static_cast<int>(state().devices.size());
  return 0;
}

EXPORT int cuDeviceGet(int* out, int index) {
  ENTER(false);
  if (index < 0 || static_cast<size_t>(index) >= state().devices.size()) return 101;
  *out = index;
  return 0;
}

EXPORT int cuDeviceGetName(char* out, int size, int device) {
  ENTER(false);
  std::snprintf(out, static_cast<size_t>(size), "Fake GPU %d", device);
  return 0;
}

EXPORT int cuDeviceGetAttribute(int* out, int attribute, int device) {
  ENTER(false);
  const Device& of = state().devices[static_cast<size_t>(device)];
  if (attribute != 75 && attribute != 76) return 1;
  *out = attribute == 75 ? of.major : of.minor;
  return 0;
}

EXPORT int cuDeviceTotalMem_v2(size_t* out, int device) {
  ENTER(false);
  *out = state().devices[static_cast<size_t>(device)].memory->capacity();
  return 0;
}

EXPORT int cuDevicePrimaryCtxRetain(CUctx_st** out, int device) {
  ENTER(false);
  Device& of = state().devices[static_cast<size_t>(device)];
  ++of.retained;
  *out = &of.context;
  return 0;
}

EXPORT int cuCtxGetCurrent(CUctx_st** out) {
  ENTER(false);
  *out = current.empty() ? nullptr : current.back();
  return 0;
}

EXPORT int cuCtxPushCurrent_v2(CUctx_st* context) {
  ENTER(false);
  if (context == nullptr) return 201;
  current.push_back(context);
  return 0;
}

EXPORT int cuCtxPopCurrent_v2(CUctx_st** out) {
  ENTER(false);
  if (current.empty()) return 201;
  *out = current.back();
  current.pop_back();
  return 0;
}

EXPORT int cuMemAlloc_v2(Address* out, size_t bytes) {
  ENTER(true);
  if (bytes == 0) return 1;
  *out = here().memory->allocate(bytes);
  return *out != 0 ? 0 : 2;
}

EXPORT int cuMemGetInfo_v2(size_t* out_free, size_t* out_total) {
  ENTER(true);
  *out_total = here().memory->capacity();
  *out_free = *out_total - here().memory->live_bytes();
  return 0;
}

EXPORT int cuMemFree_v2(Address address) {
  ENTER(true);
  if (const int failed = drain_all()) return failed;
  for (Device& device : state().devices) {
    if (device.memory->free(address)) return 0;
  }
  return 1;
}

EXPORT int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  ENTER(true);
  *out = std::malloc(bytes);
  state().pinned.insert(*out);
  return 0;
}

EXPORT int cuMemFreeHost(void* memory) {
  ENTER(true);
  if (state().pinned.erase(memory) == 0) return 1;
  drain_all();
  std::free(memory);
  return 0;
}

EXPORT int cuMemcpyAsync(Address to, Address from, size_t bytes, CUstream_st* stream) {
  ENTER(true);
  return submit(stream, [=] { std::memmove(access(to, bytes), access(from, bytes), bytes); });
}

EXPORT int cuMemsetD8Async(Address to, unsigned char value, size_t count, CUstream_st* stream) {
  ENTER(true);
  return fill(to, value, count, stream);
}

EXPORT int cuMemsetD16Async(Address to, unsigned short value, size_t count, CUstream_st* stream) {
  ENTER(true);
  return fill(to, value, count, stream);
}

EXPORT int cuMemsetD32Async(Address to, unsigned value, size_t count, CUstream_st* stream) {
  ENTER(true);
  return fill(to, value, count, stream);
}

EXPORT int cuMemsetD2D32Async(Address to, size_t pitch, unsigned value, size_t width, size_t height,
                              CUstream_st* stream) {
  ENTER(true);
  return submit(stream, [=] {
    for (size_t row = 0; row < height; ++row) {
      char* memory = device_access(to + row * pitch, width * 4);
      for (size_t i = 0; i < width; ++i) std::memcpy(memory + 4 * i, &value, 4);
    }
  });
}

EXPORT int cuPointerGetAttribute(void* out, int attribute, Address address) {
  ENTER(false);
  if (attribute != 2) return 1;
  for (const Device& device : state().devices) {
    if (!device.memory->contains(address)) continue;
    *static_cast<unsigned*>(out) = 2;
    return 0;
  }
  return 1;
}

EXPORT int cuStreamCreate(CUstream_st** out, unsigned) {
  ENTER(true);
  auto made = std::make_unique<CUstream_st>();
  made->context = current.back();
  *out = made.get();
  state().streams.emplace(*out, std::move(made));
  return 0;
}

EXPORT int cuStreamDestroy_v2(CUstream_st* stream) {
  ENTER(true);
  if (!state().streams.contains(stream)) return 400;
  drain(stream);
  state().streams.erase(stream);
  return 0;
}

EXPORT int cuStreamSynchronize(CUstream_st* stream) {
  ENTER(true);
  CUstream_st* target = find(stream);
  return target != nullptr ? drain(target) : 400;
}

EXPORT int cuStreamGetCtx(CUstream_st* stream, CUctx_st** out) {
  ENTER(true);
  CUstream_st* target = find(stream);
  if (target == nullptr) return 400;
  *out = target->context;
  return 0;
}

EXPORT int cuStreamWaitEvent(CUstream_st* stream, CUevent_st* event, unsigned) {
  ENTER(true);
  if (!state().events.contains(event)) return 400;
  if (event->stream == nullptr) return 0;
  return submit(stream, [other = event->stream] {
    if (state().streams.contains(other)) drain(other);
  });
}

EXPORT int cuEventCreate(CUevent_st** out, unsigned) {
  ENTER(true);
  auto made = std::make_unique<CUevent_st>();
  *out = made.get();
  state().events.emplace(*out, std::move(made));
  return 0;
}

EXPORT int cuEventDestroy_v2(CUevent_st* event) {
  ENTER(true);
  return state().events.erase(event) != 0 ? 0 : 400;
}

EXPORT int cuEventRecord(CUevent_st* event, CUstream_st* stream) {
  ENTER(true);
  if (!state().events.contains(event) || find(stream) == nullptr) return 400;
  event->stream = find(stream);
  return 0;
}

EXPORT int cuEventSynchronize(CUevent_st* event) {
  ENTER(true);
  if (!state().events.contains(event)) return 400;
  return event->stream != nullptr ? drain(event->stream) : 0;
}
