#include "call/trial.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/status.h"

namespace aotpack::runtime {
namespace {

// More are not kept: a loop of the model may run for long.
constexpr size_t kMostSites = size_t{1} << 16;

}  // namespace

Trial::Trial(const aotpack_choice* choices, size_t count, bool records) {
  for (size_t i = 0; i < count; ++i) choices_.push_back({choices[i].site, choices[i].choice, 0});
  const auto by_site = [](const auto& a, const auto& b) { return a.site < b.site; };
  std::sort(choices_.begin(), choices_.end(), by_site);
  const auto same = [](const auto& a, const auto& b) { return a.site == b.site; };
  if (std::adjacent_find(choices_.begin(), choices_.end(), same) != choices_.end()) {
    fail(AOTPACK_INVALID_ARGUMENT, "two choices for one site");
  }
  tuning_.struct_size = sizeof tuning_;
  tuning_.choices = choices_.data();
  tuning_.num_choices = choices_.size();
  tuning_.record = records ? &Trial::record : nullptr;
  tuning_.recorder = this;
}

void Trial::begin() noexcept {
  sites_.clear();
  numbers_.clear();
  kernels_.clear();
}

void Trial::record(void* self, const aotpack_module_site* site) noexcept {
  try {
    static_cast<Trial*>(self)->add(*site);
  } catch (...) {  // without memory for it, it is not kept
  }
}

void Trial::add(const aotpack_module_site& site) {
  constexpr size_t kNeeded = offsetof(aotpack_module_site, nanoseconds) + sizeof(site.nanoseconds);
  if (sites_.size() >= kMostSites || site.struct_size < kNeeded) return;
  numbers_.emplace_back(site.numbers, site.numbers + site.num_numbers);
  kernels_.emplace_back(site.kernel);
  aotpack_site kept{};
  kept.struct_size = sizeof kept;
  kept.site = site.site;
  kept.kernel = kernels_.back().c_str();
  kept.target = target_;
  kept.numbers = numbers_.back().data();
  kept.num_numbers = site.num_numbers;
  kept.choice = site.choice;
  std::memcpy(kept.positions, site.positions, sizeof kept.positions);
  kept.nanoseconds = site.nanoseconds;
  sites_.push_back(kept);
}

}  // namespace aotpack::runtime
