// A file mapped into memory, read-only.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "host/mapping.h"
#include "host/prefetch.h"
#include "host/sealed_file.h"
#include "host/source.h"

namespace aotpack::runtime {

// Immutable and thread-safe. The mapping is private and read-only, its pages are those of the page cache: processes
// that map the same file share them. A write to the file changes them, and where it is shortened, touching them
// ends the process (SIGBUS): a file is replaced by a rename, or copied. Until close_descriptor, read() and what is
// built on it do not touch the mapping, so a file that changes while it is loaded is an error at worst.
class FileMap final : public Source {
 public:
  // kPrefetch: maps, and has its pages ready soon. kCopy: maps a sealed copy in memory, which no file is behind.
  enum class Mode : uint8_t { kMap, kPrefetch, kCopy };

  // Throws NOT_FOUND, IO_ERROR, TRUNCATED_ARCHIVE or OUT_OF_MEMORY.
  FileMap(const char* path, Mode mode);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  Bytes bytes() const noexcept { return {data_, size_}; }

  uint64_t size() const noexcept override { return size_; }
  void read(uint64_t offset, std::span<uint8_t> out) const override;
  Hashes hashes(uint64_t offset, uint64_t size) const;
  Digest sha256(uint64_t offset, uint64_t size) const;
  // Whether all bytes of a range are 0 or 1.
  bool are_bools(uint64_t offset, uint64_t size) const;
  // A sealed copy of a range, to be verified and executed.
  SealedFile code(uint64_t offset, uint64_t size) const;

  // Takes the pages within a range of some map's bytes() out of this process. They stay in the page cache, and come
  // back where they are read.
  static void forget(Bytes range) noexcept;

  // A copy of its own of a range, which costs memory only where it is written to. Empty when the system has no mapping
  // left.
  Mapping map_private(size_t offset, size_t size) const noexcept;
  // Done with all of the above but bytes(): gives the file's descriptor back.
  void close_descriptor() noexcept;

 private:
  template <typename Visit>
  void read_chunks(uint64_t offset, uint64_t size, Visit visit) const;

  int fd_ = -1;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  Prefetch prefetch_;
};

}  // namespace aotpack::runtime
