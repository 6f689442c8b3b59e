#include "host/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/bools.h"
#include "base/status.h"

namespace aotpack::runtime {
namespace {

// Stays in the caches of a core.
constexpr uint64_t kChunk = 256 << 10;

size_t page_size() noexcept { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

int open_retrying(const char* path) noexcept {
  int fd;
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files.
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

FileMap::FileMap(const char* path, Mode mode) : fd_(open_retrying(path)) {
  try {
    if (fd_ < 0) {
      const int why = errno;
      const bool absent = why == ENOENT || why == ENOTDIR;
      fail(absent ? AOTPACK_NOT_FOUND : AOTPACK_IO_ERROR, "cannot open: %s", std::strerror(why));
    }
    struct stat info;
    if (::fstat(fd_, &info) != 0) fail(AOTPACK_IO_ERROR, "cannot stat: %s", std::strerror(errno));
    if (!S_ISREG(info.st_mode)) {
      fail(AOTPACK_IO_ERROR, "%s, not a regular file", S_ISDIR(info.st_mode) ? "is a directory" : "is a special file");
    }
    size_ = static_cast<size_t>(info.st_size);
    if (size_ == 0) return;
    if (mode == Mode::kCopy) {
      SealedFile copy(*this, 0, size_, SealedFile::Use::kData);
      close_descriptor();
      fd_ = copy.release();
    }
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (address == MAP_FAILED) fail(AOTPACK_IO_ERROR, "cannot map: %s", std::strerror(errno));
    data_ = static_cast<const uint8_t*>(address);
    if (mode == Mode::kPrefetch) prefetch_.start(bytes());
  } catch (...) {
    close_descriptor();
    throw;
  }
}

FileMap::~FileMap() {
  prefetch_.stop();
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  close_descriptor();
}

void FileMap::close_descriptor() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void FileMap::read(uint64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(AOTPACK_IO_ERROR, "cannot read: %s", std::strerror(errno));
    if (count == 0) fail(AOTPACK_TRUNCATED_ARCHIVE, "truncated: the file became shorter while it was read");
    out = out.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

template <typename Visit>
void FileMap::read_chunks(uint64_t offset, uint64_t size, Visit visit) const {
  std::vector<uint8_t> buffer(std::min(size, kChunk));
  while (size > 0) {
    const std::span<uint8_t> chunk(buffer.data(), std::min(size, kChunk));
    read(offset, chunk);
    if (!visit(Bytes(chunk))) return;
    offset += chunk.size();
    size -= chunk.size();
  }
}

Hashes FileMap::hashes(uint64_t offset, uint64_t size) const {
  Hasher hasher;
  read_chunks(offset, size, [&](Bytes chunk) {
    hasher.add(chunk);
    return true;
  });
  return hasher.finish();
}

Digest FileMap::sha256(uint64_t offset, uint64_t size) const {
  Sha256 hash;
  read_chunks(offset, size, [&](Bytes chunk) {
    hash.add(chunk);
    return true;
  });
  return hash.finish();
}

bool FileMap::are_bools(uint64_t offset, uint64_t size) const {
  bool good = true;
  read_chunks(offset, size, [&](Bytes chunk) { return good = runtime::are_bools(chunk.data(), chunk.size()); });
  return good;
}

SealedFile FileMap::code(uint64_t offset, uint64_t size) const {
  return SealedFile(*this, offset, size, SealedFile::Use::kCode);
}

void FileMap::forget(Bytes range) noexcept {
  const size_t page = page_size();
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(range.data()) + page - 1) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(range.data()) + range.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Mapping FileMap::map_private(size_t offset, size_t size) const noexcept {
  if (fd_ < 0) return {};
  const size_t before = offset % page_size();
  const size_t whole = before + size;
  void* base = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_, static_cast<off_t>(offset - before));
  if (base == MAP_FAILED) return {};
  return {base, whole, static_cast<uint8_t*>(base) + before};
}

}  // namespace aotpack::runtime
