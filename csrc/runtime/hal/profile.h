// When the steps and kernels of a call began and ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aotpack/aotpack.h"

namespace aotpack::runtime {

// The events of one call. Belongs to one thread at a time.
class Profile {
 public:
  // More are not kept: a loop of the model may run for long.
  static constexpr size_t kMostEvents = size_t{1} << 20;

  // A call begins: its events replace those of the one before.
  void begin_call() noexcept;
  void end_call() noexcept;
  // After a call that has failed: there are no events.
  void discard() noexcept { events_.clear(); }
  void begin_step(uint32_t step) noexcept;
  void end_step() noexcept;
  // A kernel of the current step begins or ends.
  void mark(uint32_t kernel, bool end) noexcept;

  // In the order in which they began; the first is the call.
  const std::vector<aotpack_profile_event>& events() const noexcept { return events_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  size_t open(uint32_t step, uint32_t kernel) noexcept;
  void close(size_t* event) noexcept;

  std::vector<aotpack_profile_event> events_;
  uint64_t origin_ = 0;
  uint32_t current_step_ = 0;
  // Events that have not ended.
  size_t call_ = kNone;
  size_t step_ = kNone;
  size_t kernel_ = kNone;
};

// A step of a call; of nothing where there is no profile.
class ProfiledStep {
 public:
  ProfiledStep(Profile* profile, size_t step) noexcept : profile_(profile) {
    if (profile_ != nullptr) profile_->begin_step(static_cast<uint32_t>(step));
  }
  ~ProfiledStep() {
    if (profile_ != nullptr) profile_->end_step();
  }
  ProfiledStep(const ProfiledStep&) = delete;
  ProfiledStep& operator=(const ProfiledStep&) = delete;

 private:
  Profile* profile_;
};

// A call; of nothing where there is no profile. Without finish() it has failed.
class ProfiledCall {
 public:
  explicit ProfiledCall(Profile* profile) noexcept : profile_(profile) {
    if (profile_ != nullptr) profile_->begin_call();
  }
  ~ProfiledCall() {
    if (profile_ != nullptr) profile_->discard();
  }
  ProfiledCall(const ProfiledCall&) = delete;
  ProfiledCall& operator=(const ProfiledCall&) = delete;

  void finish() noexcept {
    if (profile_ != nullptr) profile_->end_call();
    profile_ = nullptr;
  }

 private:
  Profile* profile_;
};

}  // namespace aotpack::runtime
