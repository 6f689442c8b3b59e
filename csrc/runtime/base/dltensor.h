// DLPack tensors as callers give them.
#pragma once

#include <cstdint>
#include <string>

#include "aotpack/dlpack.h"

namespace aotpack::runtime {

// Memory that the CPU reads and writes.
inline bool is_on_host(DLDevice device) noexcept {
  return device.device_type == kDLCPU || device.device_type == kDLCUDAHost;
}

inline bool same_device(DLDevice a, DLDevice b) noexcept {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

inline char* data_of(const DLTensor& tensor) noexcept {
  return tensor.data != nullptr ? static_cast<char*>(tensor.data) + tensor.byte_offset : nullptr;
}

// The strides of a tensor, computed into `buffer` where it has none. False when they overflow.
bool strides_of(const DLTensor& tensor, int64_t* buffer, const int64_t** out) noexcept;

// In what two tensors of one dtype and rank differ that are not the same elements at the same addresses: "devices",
// "addresses", "shapes" or "strides". NULL: in nothing. Strides of dims of size 1 do not count.
const char* difference_of(const DLTensor& a, const DLTensor& b) noexcept;

// "cpu", "cuda:0"
std::string device_name(DLDevice device);

}  // namespace aotpack::runtime
