// Copies between layouts on a CUDA device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "hal/cuda/driver_functions.h"

namespace aotpack::runtime::cuda {

class CudaDevice;
class Kernel;

// The views of a copy as the kernel reads them.
struct StridedCopy {
  static constexpr int32_t kMaxRank = 17;  // AOTPACK_MAX_RANK, and one for the pieces of an element

  Address to = 0;
  Address from = 0;
  uint64_t count = 1;  // units
  uint32_t rank = 0;
  uint32_t unit = 1;  // bytes: 1, 2, 4 or 8
  int64_t sizes[kMaxRank] = {};
  int64_t to_strides[kMaxRank] = {};  // units
  int64_t from_strides[kMaxRank] = {};

  // Whether both views are one dense run of the same order.
  bool is_dense() const noexcept { return rank == 0 || (rank == 1 && to_strides[0] == 1 && from_strides[0] == 1); }
};

// Merges axes that lie next to each other in both views, in the order of the destination, and chooses the greatest unit
// that the addresses allow. Arguments as of strided_copy (base/strided.h).
StridedCopy plan_strided_copy(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                              const int64_t* sizes, int32_t rank, size_t item) noexcept;

// The kernels of a device that do it, compiled by the driver from PTX at their first use. Thread-safe.
class StridedKernels {
 public:
  StridedKernels();
  ~StridedKernels();
  // The context of the device is current.
  void launch(CudaDevice& device, const StridedCopy& copy, StreamHandle stream);

 private:
  std::mutex mutex_;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace aotpack::runtime::cuda
