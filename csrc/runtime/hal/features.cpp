#include "hal/features.h"

#include "aotpack/module_abi.h"

namespace aotpack::runtime {

uint64_t find_feature(std::string_view name) noexcept {
#define AOTPACK_FIND(known, bit) \
  if (name == #known) return bit;
  AOTPACK_MODULE_FEATURES(AOTPACK_FIND)
#undef AOTPACK_FIND
  return 0;
}

uint64_t all_features() noexcept {
#define AOTPACK_BIT(known, bit) | bit
  return 0 AOTPACK_MODULE_FEATURES(AOTPACK_BIT);
#undef AOTPACK_BIT
}

const char* feature_names() noexcept {
#define AOTPACK_NAME(known, bit) ", " #known
  constexpr const char* kNames = AOTPACK_MODULE_FEATURES(AOTPACK_NAME);
#undef AOTPACK_NAME
  return kNames + 2;  // without the first comma
}

}  // namespace aotpack::runtime
