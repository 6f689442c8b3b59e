// Memory that a mapping of the system holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace aotpack::runtime {

// The only owner of a mapping, which ends with it.
class Mapping {
 public:
  Mapping() noexcept = default;
  // Takes the mapping [base, base + size) over; `data` lies in it.
  Mapping(void* base, size_t size, uint8_t* data) noexcept : data_(data), base_(base), size_(size) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), base_(other.base_), size_(other.size_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  // The first byte that was asked for; NULL when there is no mapping.
  uint8_t* data() const noexcept { return data_; }

 private:
  uint8_t* data_ = nullptr;
  void* base_ = nullptr;  // of its first page
  size_t size_ = 0;
};

}  // namespace aotpack::runtime
