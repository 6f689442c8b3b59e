// Memory of the fake devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace fake_cuda {

using Address = uint64_t;

// One device's memory: pages that the host cannot touch at the addresses of the device. Guarded by the driver's mutex.
class Memory {
 public:
  explicit Memory(size_t bytes);
  // 0: none is left.
  Address allocate(size_t bytes);
  bool free(Address address);
  bool contains(Address address) const { return address - begin_ < bytes_; }
  // The same bytes where the driver reads and writes them; NULL unless they are all in one live allocation.
  char* access(Address address, size_t bytes) const;
  // Where the driver reads and writes the byte of an address, alive or not.
  char* shadow(Address address) const { return shadow_ + (address - begin_); }
  // Sizes by address.
  const std::map<Address, size_t>& blocks() const { return live_; }
  size_t live() const { return live_.size(); }
  size_t live_bytes() const { return live_bytes_; }
  size_t capacity() const { return bytes_; }

 private:
  size_t bytes_;
  Address begin_ = 0;
  char* shadow_ = nullptr;
  std::map<Address, size_t> live_;
  size_t live_bytes_ = 0;
};

}  // namespace fake_cuda
