#include "dltensor.h"

#include <algorithm>

#include "bytes.h"
#include "describe.h"
#include "status.h"

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
  const char* type = device.device_type == kDLCUDA ? "cuda" : nullptr;
  return type != nullptr ? format("%s:%d", type, device.device_id)
                         : format("DLPack device type %d", static_cast<int>(device.device_type));
}

void check_tensor_kind(const char* role, const EntryRecord& entry, const ValueRecord& value, const DLTensor* given) {
  const auto refuse = [&](const std::string& why) {
    throw Error(AOTPACK_INVALID_ARGUMENT, std::string(role) + " '" + value.name + "'" + why);
  };
  if (given == nullptr) refuse(" is missing");
  if (!is_on_host(given->device)) refuse(" must be on the CPU, got " + device_name(given->device));
  if (!same_dtype(given->dtype, value.dtype->dlpack)) {
    refuse(std::string(": expected ") + value.dtype->name + ", got " + dtype_name(given->dtype));
  }
  const auto rank = static_cast<int32_t>(value.shape.size());
  if (given->ndim != rank) {
    refuse(format(": expected %d dims %s, got %d", rank, describe_shape(entry, value).c_str(), given->ndim));
  }
  if (rank > 0 && given->shape == nullptr) refuse(" has no shape");
}

}  // namespace aotpack::runtime
