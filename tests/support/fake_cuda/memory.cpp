#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iterator>

namespace fake_cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr int kFresh = 0xFF;  // a NaN in every floating-point type
constexpr int kFreed = 0xDD;

size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Memory::Memory(size_t bytes) : bytes_(bytes) {
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* far = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
  void* near = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (far == MAP_FAILED || near == MAP_FAILED) std::abort();
  close(file);
  begin_ = reinterpret_cast<Address>(far);
  shadow_ = static_cast<char*>(near);
}

// The first gap that is large enough, with space to the neighbours on both sides.
Address Memory::allocate(size_t bytes) {
  if (bytes == 0 || bytes > bytes_) return 0;
  Address at = begin_ + kAlignment;
  for (const auto& [address, size] : live_) {
    if (address - at >= rounded(bytes) + kAlignment && address > at) break;
    at = address + rounded(size) + kAlignment;
  }
  if (at + rounded(bytes) + kAlignment > begin_ + bytes_) return 0;
  live_.emplace(at, bytes);
  live_bytes_ += bytes;
  std::memset(shadow_ + (at - begin_), kFresh, bytes < 4096 ? bytes : 4096);
  return at;
}

bool Memory::free(Address address) {
  const auto known = live_.find(address);
  if (known == live_.end()) return false;
  std::memset(shadow_ + (address - begin_), kFreed, known->second < 4096 ? known->second : 4096);
  live_bytes_ -= known->second;
  live_.erase(known);
  return true;
}

char* Memory::access(Address address, size_t bytes) const {
  const auto next = live_.upper_bound(address);
  if (next == live_.begin()) return nullptr;
  const auto& [begin, size] = *std::prev(next);
  if (address - begin > size || bytes > size - (address - begin)) return nullptr;
  return shadow_ + (address - begin_);
}

}  // namespace fake_cuda
