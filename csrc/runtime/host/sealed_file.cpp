#include "host/sealed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/status.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace aotpack::runtime {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

int create(SealedFile::Use use) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const bool code = use == SealedFile::Use::kCode;
  const char* name = code ? "aotpack-module" : "aotpack-archive";
  // The flag says whether the file may be executed where the system's default is something else; kernels before 6.3 do
  // not know it.
  int fd = ::memfd_create(name, kFlags | (code ? MFD_EXEC : MFD_NOEXEC_SEAL));
  if (fd < 0 && errno == EINVAL) fd = ::memfd_create(name, kFlags);
  if (fd < 0) {
    fail(AOTPACK_IO_ERROR, "cannot create a file in memory: %s; aotpack needs memfd_create (Linux 3.17)",
         std::strerror(errno));
  }
  return fd;
}

void write_all(int fd, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int why = written < 0 ? errno : ENOSPC;
      const bool memory = why == ENOMEM || why == ENOSPC;
      fail(memory ? AOTPACK_OUT_OF_MEMORY : AOTPACK_IO_ERROR, "cannot copy to memory: %s", std::strerror(why));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void copy(const Source& source, uint64_t offset, uint64_t size, int fd) {
  std::vector<uint8_t> buffer(std::min(size, uint64_t{256} << 10));  // stays in the caches of a core
  while (size > 0) {
    const std::span<uint8_t> chunk(buffer.data(), std::min<uint64_t>(size, buffer.size()));
    source.read(offset, chunk);
    write_all(fd, chunk);
    offset += chunk.size();
    size -= chunk.size();
  }
}

// A writer that had mapped the file, or a system without seals, makes this fail: then nothing is used.
void seal(int fd) {
  const bool sealed = ::fcntl(fd, F_ADD_SEALS, kSeals) == 0;
  const int why = errno;
  if (!sealed || (::fcntl(fd, F_GET_SEALS) & kSeals) != kSeals) {
    fail(AOTPACK_IO_ERROR, "cannot seal a file in memory: %s",
         sealed ? "the seals are not in force" : std::strerror(why));
  }
}

}  // namespace

SealedFile::SealedFile(const Source& source, uint64_t offset, uint64_t size, Use use) : fd_(create(use)), size_(size) {
  try {
    copy(source, offset, size, fd_);
    seal(fd_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SealedFile::~SealedFile() {
  if (fd_ >= 0) ::close(fd_);
}

Hashes SealedFile::hashes() const {
  Hasher hasher;
  hasher.add(MappedFile(*this).bytes());
  return hasher.finish();
}

MappedFile::MappedFile(const SealedFile& file) {
  if (file.size() == 0) return;
  void* const address = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (address == MAP_FAILED) fail(AOTPACK_IO_ERROR, "cannot map: %s", std::strerror(errno));
  bytes_ = {static_cast<const uint8_t*>(address), file.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace aotpack::runtime
