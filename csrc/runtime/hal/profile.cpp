#include "hal/profile.h"

#include <chrono>

namespace aotpack::runtime {
namespace {

uint64_t now() noexcept {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

}  // namespace

size_t Profile::open(uint32_t step, uint32_t kernel) noexcept {
  if (events_.size() >= kMostEvents) return kNone;
  try {
    events_.push_back({sizeof(aotpack_profile_event), step, kernel, 0, 0});
  } catch (...) {
    return kNone;  // without memory for it, the event is not kept
  }
  // After the push, which may move all events.
  events_.back().begin_ns = now() - origin_;
  return events_.size() - 1;
}

void Profile::close(size_t* event) noexcept {
  if (*event != kNone) events_[*event].end_ns = now() - origin_;
  *event = kNone;
}

void Profile::begin_call() noexcept {
  events_.clear();
  step_ = kernel_ = kNone;
  origin_ = now();
  call_ = open(AOTPACK_PROFILE_ALL, AOTPACK_PROFILE_ALL);
}

void Profile::end_call() noexcept { close(&call_); }

void Profile::begin_step(uint32_t step) noexcept {
  current_step_ = step;
  step_ = open(step, AOTPACK_PROFILE_ALL);
}

void Profile::end_step() noexcept { close(&step_); }

void Profile::mark(uint32_t kernel, bool end) noexcept {
  if (end) {
    close(&kernel_);
  } else {
    kernel_ = open(current_step_, kernel);
  }
}

}  // namespace aotpack::runtime
