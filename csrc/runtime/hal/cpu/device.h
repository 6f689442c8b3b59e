// The CPU: memory of the process, work that ends before the function that gives it returns.
#pragma once

#include "hal/device.h"

namespace aotpack::runtime {

Device& cpu_device() noexcept;

}  // namespace aotpack::runtime
