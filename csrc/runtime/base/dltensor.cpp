#include "base/dltensor.h"

#include <algorithm>

#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "base/status.h"

namespace aotpack::runtime {

bool strides_of(const DLTensor& tensor, int64_t* buffer, const int64_t** out) noexcept {
  if (tensor.strides != nullptr) {
    *out = tensor.strides;
    return true;
  }
  int64_t run = 1;
  for (int32_t axis = tensor.ndim; axis-- > 0;) {
    buffer[axis] = run;
    if (!checked_mul(run, std::max<int64_t>(tensor.shape[axis], 1), &run)) return false;
  }
  *out = buffer;
  return true;
}

const char* difference_of(const DLTensor& a, const DLTensor& b) noexcept {
  if (!same_device(a.device, b.device)) return "devices";
  if (data_of(a) != data_of(b)) return "addresses";
  if (!std::equal(a.shape, a.shape + a.ndim, b.shape)) return "shapes";
  int64_t compact[2][AOTPACK_MAX_RANK];
  const int64_t* strides[2];
  // Strides that overflow are those of an empty tensor or of one that no call accepts.
  if (!strides_of(a, compact[0], &strides[0]) || !strides_of(b, compact[1], &strides[1])) return "strides";
  for (int32_t axis = 0; axis < a.ndim; ++axis) {
    if (a.shape[axis] != 1 && strides[0][axis] != strides[1][axis]) return "strides";
  }
  return nullptr;
}

std::string device_name(DLDevice device) {
  if (device.device_type == kDLCPU && device.device_id == 0) return "cpu";
  const char* type = device.device_type == kDLCPU ? "cpu" : device.device_type == kDLCUDA ? "cuda" : nullptr;
  return type != nullptr ? format("%s:%d", type, device.device_id)
                         : format("DLPack device type %d", static_cast<int>(device.device_type));
}

}  // namespace aotpack::runtime
