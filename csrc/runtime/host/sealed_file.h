// Files in memory that nothing can change any more: what is verified there is what is used later.
#pragma once

#include <cstddef>
#include <utility>

#include "base/hasher.h"
#include "host/source.h"

namespace aotpack::runtime {

// Owns the descriptor of an anonymous file whose size and content are sealed, for this process and for all others.
class SealedFile {
 public:
  enum class Use : uint8_t { kData, kCode };  // code can be executed

  SealedFile() noexcept = default;
  // A copy of a range of a source, which may change meanwhile: then it holds some mixture. Throws what the source
  // throws, IO_ERROR or OUT_OF_MEMORY.
  SealedFile(const Source& source, uint64_t offset, uint64_t size, Use use);
  ~SealedFile();
  SealedFile(SealedFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}
  SealedFile& operator=(SealedFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(size_, other.size_);
    return *this;
  }

  // -1 where there is no file.
  int fd() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }

  size_t size() const noexcept { return size_; }

  // Of what the file holds. Throws IO_ERROR.
  Hashes hashes() const;

 private:
  int fd_ = -1;
  size_t size_ = 0;
};

// The bytes of a sealed file, for the length of a scope.
class MappedFile {
 public:
  // Throws IO_ERROR.
  explicit MappedFile(const SealedFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  Bytes bytes() const noexcept { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace aotpack::runtime
