#include "model/devices.h"

#include <algorithm>

#include "base/dltensor.h"
#include "base/status.h"
#include "hal/cpu/device.h"

namespace aotpack::runtime {

Device& host_device() noexcept { return cpu_device(); }

Device& default_device() noexcept { return cpu_device(); }

Device* find_device(DLDevice id) noexcept {
  if (id.device_type == 0 && id.device_id == 0) return &default_device();
  Device& cpu = cpu_device();
  return id.device_type == cpu.id().device_type && id.device_id == cpu.id().device_id ? &cpu : nullptr;
}

std::string device_names() { return device_name(cpu_device().id()); }

size_t choose_target(const Device& device, const std::vector<Candidate>& available, const std::string& what) {
  for (const std::string_view target : device.targets()) {
    const auto at = std::find_if(available.begin(), available.end(), [&](const Candidate& candidate) {
      return candidate.target == target && candidate.obstacle.empty();
    });
    if (at != available.end()) return static_cast<size_t>(at - available.begin());
  }
  std::string message = what + " has no module that this host runs:";
  for (const Candidate& candidate : available) {
    const std::string missing = device.missing(candidate.target);
    message += &available.front() == &candidate ? " " : "; ";
    message += std::string(candidate.target) + " needs " + (missing.empty() ? candidate.obstacle : missing);
  }
  message += " (the host's best target is ";
  message += device.targets().empty() ? "none" : std::string(device.targets().front());
  message += "; build the archive for that one too)";
  throw Error(AOTPACK_UNSUPPORTED_TARGET, message);
}

}  // namespace aotpack::runtime
