// Page faults of a mapped file, taken while other work goes on.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "base/bytes.h"

namespace aotpack::runtime {

// Maps the pages of a range into this process from threads of its own, and reads from the disk what the page cache
// lacks. A hint: where threads, memory or the system's support are missing, the pages come with the first access. The
// range must stay mapped until stop() has returned, or the destructor.
class Prefetch {
 public:
  Prefetch() = default;
  ~Prefetch() { stop(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  // At most once.
  void start(Bytes range) noexcept;
  // Stops the threads and waits for them.
  void stop() noexcept;

 private:
  void run() noexcept;

  Bytes range_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stopped_ = false;
  std::vector<std::thread> threads_;
  pid_t process_ = 0;  // whose threads they are
};

}  // namespace aotpack::runtime
