// A call of a kernel that can go several ways (kernels/knobs.h): the way that the runtime chose for its sizes and,
// while an archive is tuned, how long it took.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/knobs.h"
#include "tensor.h"

namespace aotpack::module {

// Counts up when the same choice no longer means the same in some kernel: numbers of sites change then.
inline constexpr uint64_t kTuningVersion = 1;

// Around one call of a kernel. Without a tuning it costs the look at a pointer.
//
//   const TunedCall tuned("linear", {m, n, k}, [&] { return kernels::linear_knobs(args); });
//   args.knobs = tuned.knobs();
//   kernels::linear(args);
class TunedCall {
 public:
  // `numbers` are all that the time of a call depends on, but for the number of threads, at most kMost. `sizes` returns
  // the KnobSizes of the call.
  template <class Sizes>
  TunedCall(const char* kernel, std::initializer_list<int64_t> numbers, const Sizes& sizes) : tuning_(current()) {
    if (tuning_ == nullptr) return;
    begin(kernel, numbers);
    if (tuning_->record == nullptr) return;
    const kernels::KnobSizes positions = sizes();
    std::copy(positions.begin(), positions.end(), site_.positions);
    site_.nanoseconds = now();
  }
  ~TunedCall() {
    if (tuning_ == nullptr || tuning_->record == nullptr) return;
    site_.nanoseconds = now() - site_.nanoseconds;
    tuning_->record(tuning_->recorder, &site_);
  }
  TunedCall(const TunedCall&) = delete;
  TunedCall& operator=(const TunedCall&) = delete;

  kernels::Knobs knobs() const { return {site_.choice}; }

 private:
  static constexpr size_t kMost = 40;

  static const aotpack_module_tuning* current() {
    const aotpack_module_call& call = Call::current().arguments();
    constexpr size_t kNeeded = offsetof(aotpack_module_call, tuning) + sizeof(call.tuning);
    return call.struct_size >= kNeeded ? call.tuning : nullptr;
  }

  static uint64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
  }

  // FNV-1a over words, and a mix of all bits at the end (SplitMix64's).
  void begin(const char* kernel, std::initializer_list<int64_t> numbers) {
    uint64_t hash = 0xcbf29ce484222325u;
    const auto add = [&](uint64_t word) { hash = (hash ^ word) * 0x100000001b3u; };
    add(kTuningVersion);
    for (const char* c = kernel; *c != 0; ++c) add(static_cast<unsigned char>(*c));
    for (const int64_t number : numbers) {
      if (site_.num_numbers < kMost) numbers_[site_.num_numbers++] = number;
      add(static_cast<uint64_t>(number));
      hash ^= hash >> 29;
    }
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    site_.struct_size = sizeof site_;
    site_.site = hash ^ (hash >> 31);
    site_.kernel = kernel;
    site_.numbers = numbers_;
    const aotpack_module_choice* const end = tuning_->choices + tuning_->num_choices;
    const aotpack_module_choice* const found =
        std::lower_bound(tuning_->choices, end, site_.site,
                         [](const aotpack_module_choice& each, uint64_t site) { return each.site < site; });
    if (found != end && found->site == site_.site) site_.choice = found->choice;
  }

  const aotpack_module_tuning* tuning_;
  // Before the runtime is asked for a choice, all of it is zero.
  aotpack_module_site site_{};
  int64_t numbers_[kMost];
};

}  // namespace aotpack::module
