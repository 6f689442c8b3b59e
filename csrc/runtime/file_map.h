// A file mapped into memory, read-only.
#ifndef AOTPACK_RUNTIME_FILE_MAP_H_
#define AOTPACK_RUNTIME_FILE_MAP_H_

#include "bytes.h"

namespace aotpack::runtime {

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

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_FILE_MAP_H_
