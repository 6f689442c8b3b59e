// A file mapped into memory, read-only.
#ifndef AOTPACK_RUNTIME_FILE_MAP_H_
#define AOTPACK_RUNTIME_FILE_MAP_H_

#include <cstddef>
#include <utility>

#include "bytes.h"

namespace aotpack::runtime {

// A copy of a range of a file that costs memory only where it is written to.
class PrivateMap {
 public:
  PrivateMap() noexcept = default;
  ~PrivateMap();
  PrivateMap(PrivateMap&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), base_(other.base_), size_(other.size_) {}
  PrivateMap& operator=(PrivateMap&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  // The first byte of the range; NULL when there is none.
  uint8_t* data() const noexcept { return data_; }

 private:
  friend class FileMap;
  uint8_t* data_ = nullptr;
  void* base_ = nullptr;  // the page that it lies in
  size_t size_ = 0;
};

// Immutable and thread-safe. The mapping is private and read-only, its pages are those of the page cache: processes
// that map the same file share them. The file must not be shortened while it is mapped; replace it by a rename.
class FileMap {
 public:
  // Throws NOT_FOUND or IO_ERROR.
  explicit FileMap(const char* path);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  Bytes bytes() const noexcept { return {data_, size_}; }

  // A copy of its own of a range. Empty when the system has no mapping left.
  PrivateMap map_private(size_t offset, size_t size) const noexcept;
  // Done with map_private: gives the file's descriptor back.
  void close_descriptor() noexcept;

 private:
  int fd_ = -1;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_FILE_MAP_H_
