// Memory of which much is written at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace aotpack::runtime {

// Where the system has pages of this size, one fault brings as much memory as 512 faults of small pages.
inline constexpr size_t kHugePage = size_t{2} << 20;

// Asks for huge pages in a range, where whole ones fit into it. Costs no memory until they are touched.
void advise_huge(void* memory, size_t bytes) noexcept;

// Gives the whole pages of a range of anonymous memory back to the system. They read as zeros then.
void return_pages(void* memory, size_t bytes) noexcept;

// Zeros, from the beginning of a huge page on. What is not touched costs no memory.
class HugeMemory {
 public:
  HugeMemory() noexcept = default;
  // Without memory, data() is NULL.
  explicit HugeMemory(size_t bytes) noexcept;
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), base_(other.base_), size_(other.size_) {}
  HugeMemory& operator=(HugeMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  uint8_t* data() const noexcept { return data_; }

 private:
  uint8_t* data_ = nullptr;
  void* base_ = nullptr;
  size_t size_ = 0;  // of the mapping
};

}  // namespace aotpack::runtime
