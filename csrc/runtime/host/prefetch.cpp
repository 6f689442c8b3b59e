#include "host/prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "host/blocked_signals.h"
#include "host/process.h"

#ifndef MADV_POPULATE_READ  // since Linux 5.14
#define MADV_POPULATE_READ 22
#endif

namespace aotpack::runtime {

namespace {

// Of a system call: long enough to cost nothing, short enough to stop soon.
constexpr size_t kPart = size_t{4} << 20;
// A few threads map as fast as the system does.
constexpr size_t kMaxThreads = 4;

// Whether to go on. A file that became shorter is an error here, and no signal.
bool populate(const uint8_t* begin, size_t size) noexcept {
  void* const address = const_cast<uint8_t*>(begin);
  while (::madvise(address, size, MADV_POPULATE_READ) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    // Older systems read the file ahead, and map it with the first access.
    return errno == EINVAL && ::madvise(address, size, MADV_WILLNEED) == 0;
  }
  return true;
}

}  // namespace

void Prefetch::stop() noexcept {
  stopped_ = true;
  // In a process that was forked meanwhile the threads do not exist.
  for (std::thread& thread : threads_) process_ == ::getpid() ? thread.join() : thread.detach();
  threads_.clear();
}

void Prefetch::start(Bytes range) noexcept {
  range_ = range;
  process_ = ::getpid();
  const size_t parts = (range.size() + kPart - 1) / kPart;
  const size_t count = std::min({parts, kMaxThreads, static_cast<size_t>(usable_cores())});
  const BlockedSignals blocked;
  try {
    threads_.reserve(count);
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
  } catch (const std::exception&) {
    // Fewer threads, or none.
  }
}

void Prefetch::run() noexcept {
  for (;;) {
    const size_t begin = next_.fetch_add(kPart);
    if (stopped_ || begin >= range_.size()) return;
    if (!populate(range_.data() + begin, std::min(kPart, range_.size() - begin))) stopped_ = true;
  }
}

}  // namespace aotpack::runtime
