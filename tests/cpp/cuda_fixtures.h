// Archives for CUDA devices, and what tests need to run them on the fake driver (tests/support/fake_cuda).
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "../support/fake_cuda/control.h"
#include "fixtures.h"

namespace aotpack::tests {

// A function of the fake driver's control.h.
void* find_control(const char* name);
#define CONTROL(name) reinterpret_cast<decltype(&name)>(::aotpack::tests::find_control(#name))

std::string fake_cubin(const std::string& architecture, const std::string& kernel);
std::string fake_ptx(const std::string& architecture, const std::string& kernel);

struct AssetBytes {
  std::string name;
  std::string bytes;
};
// Adds a file with the assets to an archive, and returns the module with the device's imports, feature and assets.
Json cuda_module(ArchiveWriter& writer, const char* path, std::vector<Json> constants, const std::string& target,
                 const std::vector<AssetBytes>& assets);

// y = FACTOR * x + w with w = {1, 2, 3, 4}, x float32 [batch, 4]; one implementation for each target. FACTOR is 2 for
// cuda-sm_90, 3 for cuda-sm_80 and 2 for x86-64.
ArchiveWriter cuda_affine_archive(const std::vector<std::string>& targets = {"cuda-sm_90"}, bool with_ptx = true);
ArchiveWriter cuda_mutate_archive();
ArchiveWriter cuda_moves_archive();
// The half spectrum complex64 [rows, 5] of x float32 [rows, 8] by cuFFT, zeros without it: see modules/cuda_provide.c.
ArchiveWriter cuda_provide_archive();
// y = 2 * (k * (x + w) + w) + w and z = x + w, x float32 [batch, 4]: see modules/cuda_chain.c.
ArchiveWriter cuda_chain_archive();
// y = x + 6 * w, x float32 [batch, 4], w = [1, 2, 3, 4]: see modules/cuda_waits.c.
ArchiveWriter cuda_waits_archive();

// Memory of a device as a caller has it.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t bytes, int device = 0)
      : device_(device), address_(CONTROL(fake_cuda_allocate)(device, bytes)) {
    REQUIRE(address_ != 0);
  }
  template <typename T>
  explicit DeviceBuffer(const std::vector<T>& values, int device = 0)
      : DeviceBuffer(values.size() * sizeof(T), device) {
    CONTROL(fake_cuda_write)(address_, values.data(), values.size() * sizeof(T));
  }
  ~DeviceBuffer() { CONTROL(fake_cuda_free)(address_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return reinterpret_cast<void*>(address_); }
  DLDevice device() const { return {kDLCUDA, device_}; }
  template <typename T>
  std::vector<T> read(size_t count) const {
    std::vector<T> values(count);
    CONTROL(fake_cuda_read)(values.data(), address_, count * sizeof(T));
    return values;
  }

 private:
  int device_;
  uint64_t address_;
};

// The elements of a dense result on a device.
template <typename T>
std::vector<T> values_of(const DLTensor& tensor) {
  CHECK(tensor.device.device_type == kDLCUDA);
  size_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= static_cast<size_t>(tensor.shape[i]);
  std::vector<T> values(count);
  CONTROL(fake_cuda_read)(values.data(), reinterpret_cast<uint64_t>(tensor.data), count * sizeof(T));
  return values;
}

}  // namespace aotpack::tests
