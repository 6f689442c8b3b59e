#include "model/devices.h"

#include <algorithm>

#include "base/dltensor.h"
#include "base/status.h"
#include "hal/cpu/device.h"
#include "hal/cuda/device.h"
#include "hal/cuda/vendor_library.h"

namespace aotpack::runtime {

Device& host_device() noexcept { return cpu_device(); }

Device& default_device() noexcept { return cpu_device(); }

Device& find_device(DLDevice id) {
  if (id.device_type == 0 && id.device_id == 0) return default_device();
  if (id.device_type == kDLCPU && id.device_id == 0) return cpu_device();
  if (id.device_type == kDLCUDA) return cuda::cuda_device(id.device_id);
  fail(AOTPACK_UNSUPPORTED_TARGET, "there is no such device; this version runs archives on cpu, cuda:0, cuda:1, ...");
}

void add_library_folders(const std::string& folders) { cuda::add_library_folders(folders); }

size_t choose_target(const Device& device, const std::vector<Candidate>& available, const std::string& what) {
  for (const std::string_view target : device.targets()) {
    const auto at = std::find_if(available.begin(), available.end(), [&](const Candidate& candidate) {
      return candidate.target == target && candidate.obstacle.empty();
    });
    if (at != available.end()) return static_cast<size_t>(at - available.begin());
  }
  const std::string runner = device.is_host() ? "this host" : device.description();
  std::string message = what + " has no module that " + runner + " runs:";
  for (const Candidate& candidate : available) {
    const std::string missing = device.missing(candidate.target);
    message += &available.front() == &candidate ? " " : "; ";
    message += std::string(candidate.target) + " needs " + (missing.empty() ? candidate.obstacle : missing);
  }
  message += device.is_host() ? " (the host's best target is " : " (the device's best target is ";
  message += device.targets().empty() ? "none" : std::string(device.targets().front());
  message += "; build the archive for that one too)";
  throw Error(AOTPACK_UNSUPPORTED_TARGET, message);
}

}  // namespace aotpack::runtime
