// What modules may need of the runtime besides imports (module_abi.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace aotpack::runtime {

// The bit of a feature by its name in manifests; 0 when this runtime has none of this name.
uint64_t find_feature(std::string_view name) noexcept;
// The bits of all.
uint64_t all_features() noexcept;
// Their names, for messages.
const char* feature_names() noexcept;

}  // namespace aotpack::runtime
