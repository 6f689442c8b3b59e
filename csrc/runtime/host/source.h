// Bytes that are read piece by piece: of a file, or of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace aotpack::runtime {

class Source {
 public:
  virtual uint64_t size() const noexcept = 0;
  // Copies the bytes from `offset` on; all of them lie within size(). Throws TRUNCATED_ARCHIVE where the file has
  // become shorter meanwhile, or IO_ERROR. What was read once is not read again: it may be different then.
  virtual void read(uint64_t offset, std::span<uint8_t> out) const = 0;

 protected:
  ~Source() = default;
};

class MemorySource final : public Source {
 public:
  explicit MemorySource(Bytes bytes) noexcept : bytes_(bytes) {}
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read(uint64_t offset, std::span<uint8_t> out) const override {
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
  }

 private:
  Bytes bytes_;
};

}  // namespace aotpack::runtime
