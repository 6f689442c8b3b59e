// A call that a pipeline runs, as its caller sees it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "aotpack/aotpack.h"

namespace aotpack::runtime {

// Releases a tensor unless it is NULL.
void release_managed(DLManagedTensorVersioned* tensor) noexcept;

// Thread-safe. The pipeline ends it once; it may outlive the pipeline.
class PendingCall {
 public:
  // `borrows`: the call writes to memory of its caller, so it is not dropped before it has ended.
  explicit PendingCall(bool borrows) noexcept;
  ~PendingCall();
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;

  bool borrows() const noexcept { return borrows_; }
  // Whether this process is a child of the one that made the call: there it never ends, and its memory stays.
  bool is_foreign() const noexcept;

  // Whether the call has ended, after at most `timeout_ns`; negative: whenever that is. Throws INVALID_ARGUMENT in a
  // child process.
  bool wait(int64_t timeout_ns);
  // Waits, and moves the results out. Throws what the call has failed with, each time, and INVALID_ARGUMENT for another
  // number of outputs or if the results have been taken.
  void take(DLManagedTensorVersioned** outputs, size_t count);

  // The end: with results, or with a status that is not NULL. Takes both over.
  void end(std::vector<DLManagedTensorVersioned*> outputs, aotpack_status* status) noexcept;

 private:
  const bool borrows_;
  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  bool taken_ = false;
  std::vector<DLManagedTensorVersioned*> outputs_;
  aotpack_status* status_ = nullptr;
};

}  // namespace aotpack::runtime
