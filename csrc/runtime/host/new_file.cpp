#include "host/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "host/process.h"

namespace aotpack::runtime {
namespace {

// The system writes no more than about twice this at once.
constexpr size_t kMost = size_t{1} << 30;
constexpr int kAttempts = 16;

// The path of a temporary file beside `path`. The name is cut so that it stays within the system's 255 bytes.
std::string temporary_path(const std::string& folder, const std::string& path) {
  return folder + "/." + path.substr(path.rfind('/') + 1).substr(0, 200) +
         format(".%016llx.aotpack-tmp", static_cast<unsigned long long>(random_seed()));
}

// 0 when all of a file or folder is on the disk, otherwise errno.
int flush(int fd) noexcept {
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path) {
  const size_t slash = path.rfind('/');
  folder_ = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (slash + 1 == path.size()) fail(AOTPACK_IO_ERROR, "'%s' does not name a file", path.c_str());
  struct stat info;
  if (::lstat(path.c_str(), &info) == 0) {
    // A rename would replace a device as well.
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
      fail(AOTPACK_IO_ERROR, "%s: %s, not a regular file", path.c_str(),
           S_ISDIR(info.st_mode) ? "is a directory" : "is a special file");
    }
    if (S_ISREG(info.st_mode)) mode_ = info.st_mode & 07777;
  }
  open_temporary();
}

NewFile::~NewFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void NewFile::fail_with(const char* what) const {
  const int why = errno;
  const bool absent = why == ENOENT || why == ENOTDIR;
  fail(absent ? AOTPACK_NOT_FOUND : AOTPACK_IO_ERROR, "%s: %s: %s", path_.c_str(), what, std::strerror(why));
}

void NewFile::open_temporary() {
  // Such a file gets its name through a link in /proc.
  if (::access("/proc/self/fd", X_OK) == 0) {
    do {
      fd_ = ::open(folder_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ >= 0) return;
  }
  // Whatever failed but for that the system has no such files, fails here again.
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = temporary_path(folder_, path_);
    fd_ = ::open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      temporary_ = std::move(name);
      return;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  fail_with("cannot create a file beside it");
}

void NewFile::link_temporary() {
  const std::string link = "/proc/self/fd/" + std::to_string(fd_);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = temporary_path(folder_, path_);
    if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = std::move(name);
      return;
    }
    if (errno != EEXIST && errno != EINTR) break;
  }
  fail_with("cannot name the new file");
}

void NewFile::write(const void* data, size_t bytes) {
  auto at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t count = ::write(fd_, at, std::min(bytes, kMost));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_with("cannot write");
    at += count;
    bytes -= static_cast<size_t>(count);
  }
}

void NewFile::commit() {
  if (mode_ != 0 && ::fchmod(fd_, mode_) != 0) fail_with("cannot set the permissions of the file that it replaces");
  errno = flush(fd_);
  if (errno != 0) fail_with("cannot flush to the disk");
  if (temporary_.empty()) link_temporary();
  // Network file systems report here what they could not write.
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_with("cannot write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with("cannot replace it");
  temporary_.clear();
  const char* what = "the file is written, but its folder cannot be flushed to the disk";
  const int folder = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) {
    // A folder that may be written to and not read: the system flushes it in its own time.
    if (errno == EACCES) return;
    fail_with(what);
  }
  const int why = flush(folder);
  ::close(folder);
  errno = why;
  // EINVAL: a file system that flushes no folders.
  if (why != 0 && why != EINVAL) fail_with(what);
}

}  // namespace aotpack::runtime
