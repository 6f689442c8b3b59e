#include "pipeline/pending_call.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/status.h"

namespace aotpack::runtime {

void release_managed(DLManagedTensorVersioned* tensor) noexcept {
  if (tensor != nullptr) tensor->deleter(tensor);
}

PendingCall::PendingCall(bool borrows) noexcept : borrows_(borrows), process_(::getpid()) {}

PendingCall::~PendingCall() {
  for (DLManagedTensorVersioned* output : outputs_) release_managed(output);
  release_status(status_);
}

bool PendingCall::is_foreign() const noexcept { return ::getpid() != process_; }

bool PendingCall::wait(int64_t timeout_ns) {
  if (is_foreign()) fail(AOTPACK_INVALID_ARGUMENT, "the call runs in the parent of this process");
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done_; };
  if (timeout_ns < 0) {
    ended_.wait(lock, is_done);
    return true;
  }
  // So far ahead that the sum does not overflow.
  const auto timeout = std::min(std::chrono::nanoseconds(timeout_ns), std::chrono::nanoseconds(INT64_MAX / 4));
  return ended_.wait_until(lock, std::chrono::steady_clock::now() + timeout, is_done);
}

void PendingCall::take(DLManagedTensorVersioned** outputs, size_t count) {
  wait(-1);
  const std::lock_guard lock(mutex_);
  if (status_ != nullptr) throw Error(status_->code, status_->message);
  if (taken_) fail(AOTPACK_INVALID_ARGUMENT, "the results of this call have been taken");
  if (count != outputs_.size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "the call has %zu outputs, room was given for %zu", outputs_.size(), count);
  }
  if (outputs == nullptr && count > 0) fail(AOTPACK_INVALID_ARGUMENT, "out_outputs is NULL");
  std::copy(outputs_.begin(), outputs_.end(), outputs);
  outputs_.clear();
  taken_ = true;
}

void PendingCall::end(std::vector<DLManagedTensorVersioned*> outputs, aotpack_status* status) noexcept {
  const std::lock_guard lock(mutex_);
  outputs_ = std::move(outputs);
  status_ = status;
  done_ = true;
  ended_.notify_all();
}

}  // namespace aotpack::runtime
