// The ways that kernels go on this host, from the archive (docs/tuning.md).
#pragma once

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "aotpack/module_abi.h"
#include "archive/archive.h"
#include "manifest/tuning.h"

namespace aotpack::runtime {

// Of one target: for each number of threads, what modules are given.
struct TargetTuning {
  int32_t threads = 0;
  aotpack_module_tuning tuning{};
};

// What an archive has for this processor; nothing where it has never been tuned on one like it. Immutable.
class Tunings {
 public:
  Tunings() = default;
  // Throws TAMPERED_ARCHIVE and MALFORMED_ARCHIVE.
  explicit Tunings(const Archive& archive);
  Tunings(Tunings&&) = default;
  Tunings& operator=(Tunings&&) = default;

  // Those of a target; they live as long as this object.
  std::vector<const TargetTuning*> of(std::string_view target) const;

 private:
  // Places stay where they are.
  std::deque<TuningRecord> records_;
  std::deque<TargetTuning> tunings_;
};

}  // namespace aotpack::runtime
