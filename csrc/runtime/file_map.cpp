#include "file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "status.h"

namespace aotpack::runtime {
namespace {

int open_retrying(const char* path) noexcept {
  int fd;
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files.
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

PrivateMap::~PrivateMap() {
  if (data_ != nullptr) ::munmap(base_, size_);
}

FileMap::FileMap(const char* path) : fd_(open_retrying(path)) {
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
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (address == MAP_FAILED) fail(AOTPACK_IO_ERROR, "cannot map: %s", std::strerror(errno));
    data_ = static_cast<const uint8_t*>(address);
  } catch (...) {
    close_descriptor();
    throw;
  }
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
  close_descriptor();
}

void FileMap::close_descriptor() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

PrivateMap FileMap::map_private(size_t offset, size_t size) const noexcept {
  PrivateMap map;
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t before = offset % page;
  map.size_ = before + size;
  map.base_ = fd_ < 0 ? MAP_FAILED
                      : ::mmap(nullptr, map.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_,
                               static_cast<off_t>(offset - before));
  if (map.base_ != MAP_FAILED) map.data_ = static_cast<uint8_t*>(map.base_) + before;
  return map;
}

}  // namespace aotpack::runtime
