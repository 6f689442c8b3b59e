#include "base/dltensor.h"

#include <algorithm>

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

std::string device_name(DLDevice device) {
  if (device.device_type == kDLCPU && device.device_id == 0) return "cpu";
  const char* type = device.device_type == kDLCPU ? "cpu" : device.device_type == kDLCUDA ? "cuda" : nullptr;
  return type != nullptr ? format("%s:%d", type, device.device_id)
                         : format("DLPack device type %d", static_cast<int>(device.device_type));
}

}  // namespace aotpack::runtime
