#include "update/host_values.h"

#include <algorithm>
#include <cstring>

#include "base/dltensor.h"

namespace aotpack::runtime {

Stream& HostValues::stream() {
  if (stream_ == nullptr) stream_ = model_.device().default_stream();
  return *stream_;
}

const void* HostValues::get(size_t constant) {
  if (const void* data = there(constant)) return data;
  const void* on_device = far(constant);
  if (on_device == nullptr) return nullptr;
  OwnedMemory& memory = downloads_[constant];
  if (memory == nullptr) {
    const size_t bytes = extent_bytes(model_.archive().manifest().constants[constant]);
    OwnedMemory made = allocate_weight(host_device(), bytes);
    stream().copy(made.get(), on_device, bytes);
    stream().wait();
    memory = std::move(made);
  }
  return memory.get();
}

// Most values differ near their beginning if they do: what is on the device is not downloaded as a whole.
bool HostValues::equals(size_t constant, const void* bytes) {
  constexpr size_t kFirst = size_t{64} << 10;
  constexpr size_t kPiece = size_t{4} << 20;
  const size_t size = extent_bytes(model_.archive().manifest().constants[constant]);
  const void* known = there(constant);
  if (const auto found = downloads_.find(constant); known == nullptr && found != downloads_.end()) {
    known = found->second.get();
  }
  if (known != nullptr) return std::memcmp(known, bytes, size) == 0;
  const auto* on_device = static_cast<const char*>(far(constant));
  if (on_device == nullptr) return false;
  const OwnedMemory piece = allocate_weight(host_device(), std::min(size, kPiece));
  for (size_t at = 0; at < size;) {
    const size_t count = std::min(size - at, at == 0 ? kFirst : kPiece);
    stream().copy(piece.get(), on_device + at, count);
    stream().wait();
    if (std::memcmp(piece.get(), static_cast<const char*>(bytes) + at, count) != 0) return false;
    at += count;
  }
  return true;
}

void HostValues::download(const DLTensor& tensor, void* to, const int64_t* strides, size_t item) {
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* from_strides = nullptr;
  if (!strides_of(tensor, compact, &from_strides)) return;  // match_given has seen to it
  stream().copy_strided(to, strides, data_of(tensor), from_strides, tensor.shape, tensor.ndim, item);
  stream().wait();
}

}  // namespace aotpack::runtime
