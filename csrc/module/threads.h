// The number of threads inside of a call.
#pragma once

#include <omp.h>

namespace aotpack::module {

// OpenMP keeps the team size per thread of the caller, who may use OpenMP too: it is put back.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(omp_get_max_threads()) {
    if (before_ != count) omp_set_num_threads(count);
  }
  ~ThreadCount() {
    if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace aotpack::module
