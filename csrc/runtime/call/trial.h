// Calls that go given ways and record how long each took: how archives are tuned.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"

namespace aotpack::runtime {

// Belongs to one context.
class Trial {
 public:
  // In the place of what the archive says. Throws INVALID_ARGUMENT for a site that is there twice.
  Trial(const aotpack_choice* choices, size_t count, bool records);
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  const aotpack_module_tuning* tuning() const noexcept { return &tuning_; }
  // A call begins: its records replace those of the one before.
  void begin() noexcept;
  // A step begins; its module is of this target.
  void begin_step(const char* target) noexcept { target_ = target; }

  const std::deque<aotpack_site>& sites() const noexcept { return sites_; }

 private:
  static void record(void* self, const aotpack_module_site* site) noexcept;
  void add(const aotpack_module_site& site);

  std::vector<aotpack_module_choice> choices_;
  aotpack_module_tuning tuning_{};
  const char* target_ = "";
  std::deque<aotpack_site> sites_;
  std::deque<std::vector<int64_t>> numbers_;
  std::deque<std::string> kernels_;
};

}  // namespace aotpack::runtime
