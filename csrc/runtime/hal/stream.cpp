#include "hal/stream.h"

#include "base/status.h"

namespace aotpack::runtime {

void Stream::launch(const aotpack_module_launch& launch) {
  fail(AOTPACK_INTERNAL, "kernel '%s': the device runs no kernels", launch.kernel);
}

void Stream::fill(void*, uint64_t, size_t, size_t) { fail(AOTPACK_INTERNAL, "the device has no fill"); }

void Stream::tensor_map(const aotpack_module_tensor_map&) { fail(AOTPACK_INTERNAL, "the device has no tensor maps"); }

void Stream::upload(void* to, const void* from, size_t bytes) {
  copy(to, from, bytes);
  wait();
}

void Stream::download(void* to, const void* from, size_t bytes) {
  copy(to, from, bytes);
  wait();
}

}  // namespace aotpack::runtime
