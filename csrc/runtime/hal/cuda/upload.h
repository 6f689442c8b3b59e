// Many copies from the host to a CUDA device, as at load: the pages of a file reach the device through pinned memory.
#pragma once

#include <vector>

#include "hal/device.h"

namespace aotpack::runtime::cuda {

class CudaDevice;

// Ends when everything is there. Throws what CudaDevice::check throws.
void upload_all(CudaDevice& device, const std::vector<Transfer>& transfers);

}  // namespace aotpack::runtime::cuda
