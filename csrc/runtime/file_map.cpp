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

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return fd_; }

 private:
  int fd_;
};

int open_retrying(const char* path) noexcept {
  int fd;
  // O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for regular files.
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

FileMap::FileMap(const char* path) {
  const Descriptor file(open_retrying(path));
  if (file.get() < 0) {
    const int why = errno;
    const bool absent = why == ENOENT || why == ENOTDIR;
    fail(absent ? AOTPACK_NOT_FOUND : AOTPACK_IO_ERROR, "cannot open: %s", std::strerror(why));
  }
  struct stat info;
  if (::fstat(file.get(), &info) != 0) fail(AOTPACK_IO_ERROR, "cannot stat: %s", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) {
    fail(AOTPACK_IO_ERROR, "%s, not a regular file", S_ISDIR(info.st_mode) ? "is a directory" : "is a special file");
  }
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(AOTPACK_IO_ERROR, "cannot map: %s", std::strerror(errno));
  data_ = static_cast<const uint8_t*>(address);
}

FileMap::~FileMap() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace aotpack::runtime
