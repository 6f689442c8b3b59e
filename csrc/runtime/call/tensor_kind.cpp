#include "call/tensor_kind.h"

#include <string>

#include "base/dltensor.h"
#include "base/status.h"
#include "model/describe.h"

namespace aotpack::runtime {

void check_tensor_kind(const char* role, const EntryRecord& entry, const ValueRecord& value, const DLTensor* given,
                       DLDevice device) {
  const auto refuse = [&](const std::string& why) {
    throw Error(AOTPACK_INVALID_ARGUMENT, std::string(role) + " '" + value.name + "'" + why);
  };
  if (given == nullptr) refuse(" is missing");
  if (!is_on_host(given->device) && !same_device(given->device, device)) {
    const std::string places = is_on_host(device) ? "the CPU" : "the CPU or " + device_name(device);
    refuse(" must be on " + places + ", got " + device_name(given->device));
  }
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
