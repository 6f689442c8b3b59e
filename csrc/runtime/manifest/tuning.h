// Reads `tuning/tuning.json` of an archive (docs/format.md): which ways the kernels of its modules go.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {

inline constexpr std::string_view kTuningPath = "tuning/tuning.json";

// What was found by measurement for modules of a target, on a processor, with a number of threads.
struct TuningRecord {
  std::string target;
  std::string processor;
  int32_t threads = 0;
  std::vector<aotpack_module_choice> choices;  // by ascending site, each once
};

// Throws MALFORMED_ARCHIVE.
std::vector<TuningRecord> parse_tuning(std::string_view text);

}  // namespace aotpack::runtime
